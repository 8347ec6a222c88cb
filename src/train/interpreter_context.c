/*
 * Context parallelism: this rank's share of each microbatch, its exchange with the other members, and the pieces in
 * which an encoder's output goes to the shares that read it and their gradients come back.
 */
#include "train/context_exchange.h"
#include "train/interpreter_state.h"

#include <string.h>

bool mt_interpreter_is_seam(const mt_interpreter *interpreter, int32_t edge) {
  const motet_program *program = interpreter->program;
  const motet_program_edge *ends = &program->edges[edge];
  return program->share_count > 0 && program->regions[program->stages[ends->from].region].replicated &&
         !program->regions[program->stages[ends->to].region].replicated;
}

static motet_status make_share(mt_interpreter *interpreter, int32_t range, int32_t member, const int32_t *ranks,
                               mt_arena *arena, motet_error *error, mt_share *share) {
  const motet_range *cut = &interpreter->program->ranges[range];
  mt_share_query query = {.begin = cut->begin,
                          .end = cut->end,
                          .ulysses = interpreter->options.ulysses,
                          .degree = cut->degree,
                          .member = member,
                          .ranks = ranks};
  motet_status status =
      mt_share_make(arena, interpreter->options.config,
                    &mt_interpreter_input(interpreter, false, cut->microbatch)->batch, &query, error, share);
  if (status != MOTET_OK) return status;
  const motet_share *stated = &interpreter->program->shares[cut->first_share + member];
  if (stated->tokens != share->batch.tokens || stated->features != share->features)
    return mt_error_set(error, MOTET_ERROR_FAILED,
                        "member %d of range %d has %d tokens and %d features by the program, %d and %d by the data",
                        (int)member, (int)range, (int)stated->tokens, (int)stated->features,
                        (int)share->batch.tokens, (int)share->features);
  share->context->exchange = &interpreter->exchange;
  share->context->counts = &interpreter->counts;
  return MOTET_OK;
}

motet_status mt_interpreter_share_prepare(mt_interpreter *interpreter, motet_error *error) {
  const motet_program *program = interpreter->program;
  interpreter->counts = (mt_context_counts){0};
  if (program->share_count == 0) return MOTET_OK;
  interpreter->exchange = mt_context_exchange_over(interpreter->options.transport);
  for (int64_t i = 0; i < interpreter->instruction_count; i++) {
    const motet_instruction *instruction = &interpreter->instructions[i];
    if (instruction->range == 0 || instruction->kind > MOTET_BWD_W) continue;
    mt_input *input = mt_interpreter_input(interpreter, false, instruction->microbatch);
    const int32_t *ranks = program->group_ranks + program->groups[instruction->peer].first;
    if (input->range == instruction->range) continue;
    if (input->range != 0)
      return mt_error_set(error, MOTET_ERROR_UNSUPPORTED,
                          "the runtime computes one range of a microbatch on a rank, not %d and %d",
                          (int)input->range, (int)instruction->range);
    input->range = instruction->range;
    int32_t member = mt_group_place(program, instruction->peer, interpreter->rank);
    motet_status status =
        make_share(interpreter, instruction->range, member, ranks, interpreter->tables, error, &input->share);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

motet_status mt_interpreter_share_load(mt_interpreter *interpreter, const motet_instruction *instruction,
                                       motet_error *error) {
  mt_input *input = mt_interpreter_input(interpreter, false, instruction->microbatch);
  const mt_context *context = input->share.context;
  return make_share(interpreter, instruction->range, context->index, context->ranks, input->arena, error,
                    &input->share);
}

/** Which features of a microbatch a share reads. */
static motet_status find_features(mt_interpreter *interpreter, int32_t range, int32_t member, motet_error *error,
                                  const mt_share **result) {
  mt_share **known = &interpreter->pieces[interpreter->program->ranges[range].first_share + member];
  *result = *known;
  if (*known != NULL) return MOTET_OK;
  mt_share *share = MT_ARENA_NEW(interpreter->tables, mt_share, 1);
  int32_t *ranks = MT_ARENA_NEW(interpreter->tables, int32_t, interpreter->program->ranges[range].degree);
  if (share == NULL || ranks == NULL) return mt_error_memory(error, sizeof *share, "a share's features");
  motet_status status = make_share(interpreter, range, member, ranks, interpreter->tables, error, share);
  *result = *known = share;
  return status;
}

static size_t row_bytes(const mt_interpreter *interpreter) {
  return (size_t)interpreter->options.config->decoder.hidden *
         mt_element_bytes(mt_network_element(interpreter->options.network));
}

void mt_interpreter_gather_rows(const mt_interpreter *interpreter, const void *from, const int32_t *rows,
                                int32_t count, void *to) {
  size_t bytes = row_bytes(interpreter);
  for (int32_t i = 0; i < count; i++)
    memcpy((char *)to + (size_t)i * bytes, (const char *)from + (size_t)rows[i] * bytes, bytes);
}

void mt_interpreter_scatter_rows(const mt_interpreter *interpreter, const void *from, const int32_t *rows,
                                 int32_t count, void *to) {
  size_t bytes = row_bytes(interpreter);
  for (int32_t i = 0; i < count; i++)
    memcpy((char *)to + (size_t)rows[i] * bytes, (const char *)from + (size_t)i * bytes, bytes);
}

motet_status mt_interpreter_gather(mt_interpreter *interpreter, int32_t range, int32_t member, const void *whole,
                                   motet_error *error, void **piece) {
  const mt_share *share;
  motet_status status = find_features(interpreter, range, member, error, &share);
  if (status != MOTET_OK) return status;
  int64_t bytes = (int64_t)share->features * (int64_t)row_bytes(interpreter);
  *piece = mt_pool_take(interpreter->pool, bytes);
  if (*piece == NULL) return mt_error_memory(error, (unsigned long long)bytes, "a share's features");
  mt_interpreter_gather_rows(interpreter, whole, share->feature, share->features, *piece);
  return MOTET_OK;
}

motet_status mt_interpreter_scatter(mt_interpreter *interpreter, int32_t edge, int32_t range, int32_t member,
                                    const void *piece, motet_error *error) {
  const motet_range *cut = &interpreter->program->ranges[range];
  const mt_internvl *config = interpreter->options.config;
  mt_value *whole = &interpreter->wholes[mt_interpreter_cell(interpreter, edge, cut->microbatch)];
  const mt_batch *batch = &mt_interpreter_input(interpreter, false, cut->microbatch)->batch;
  const mt_share *share;
  motet_status status = find_features(interpreter, range, member, error, &share);
  if (status != MOTET_OK) return status;
  if (whole->data == NULL) {
    size_t bytes = (size_t)batch->tiles * (size_t)config->tokens_per_tile * row_bytes(interpreter);
    whole->data = mt_pool_take(interpreter->pool, (int64_t)bytes);
    if (whole->data == NULL) return mt_error_memory(error, bytes, "a gradient");
    memset(whole->data, 0, bytes);
  }
  mt_interpreter_scatter_rows(interpreter, piece, share->feature, share->features, whole->data);
  return MOTET_OK;
}

/* ---- Image modules in front of the decoder, in one stage ---- */

static int32_t embedding_layer(const mt_interpreter *interpreter) {
  return interpreter->options.config->vision.layers + 2;
}

int32_t mt_interpreter_share_begin(const mt_interpreter *interpreter, const motet_instruction *instruction) {
  int32_t begin = interpreter->program->stages[instruction->stage].layer_begin;
  return begin > embedding_layer(interpreter) ? begin : embedding_layer(interpreter);
}

bool mt_interpreter_has_images(mt_interpreter *interpreter, const motet_instruction *instruction) {
  return instruction->range > 0 &&
         interpreter->program->stages[instruction->stage].layer_begin < embedding_layer(interpreter) &&
         mt_interpreter_input(interpreter, false, instruction->microbatch)->share.tiles > 0;
}

/** The tiles in which a share has features, as a batch; features' rows in it. */
static motet_status make_images(mt_interpreter *interpreter, const mt_input *input, mt_arena *arena,
                                motet_error *error, mt_batch *images, int32_t **rows) {
  static const int32_t no_tokens[2] = {0, 0};
  const mt_share *share = &input->share;
  const mt_internvl *config = interpreter->options.config;
  size_t floats = 3 * (size_t)config->vision.image_size * (size_t)config->vision.image_size;
  float *pixels = MT_ARENA_NEW(arena, float, floats *(size_t)share->tiles);
  *rows = MT_ARENA_NEW(arena, int32_t, share->features);
  if (pixels == NULL || *rows == NULL) return mt_error_memory(error, floats * sizeof(float), "a share's tiles");
  for (int32_t t = 0; t < share->tiles && input->batch.pixels != NULL; t++)
    memcpy(pixels + floats * (size_t)t, input->batch.pixels + floats * (size_t)share->tile[t],
           floats * sizeof *pixels);
  for (int32_t f = 0, t = 0; f < share->features; f++) {
    while (share->tile[t] < share->feature[f] / config->tokens_per_tile) t++;
    (*rows)[f] = t * config->tokens_per_tile + share->feature[f] % config->tokens_per_tile;
  }
  *images = (mt_batch){.segments = 1,
                       .segment_begin = no_tokens,
                       .tiles = share->tiles,
                       .pixels = input->batch.pixels ? pixels : NULL};
  return MOTET_OK;
}

static int64_t image_bytes(const mt_interpreter *interpreter, const mt_share *share) {
  return (int64_t)share->tiles * interpreter->options.config->tokens_per_tile * (int64_t)row_bytes(interpreter);
}

motet_status mt_interpreter_forward_images(mt_interpreter *interpreter, const motet_instruction *instruction,
                                           bool keep, mt_kept *kept, void **piece, motet_error *error) {
  mt_input *input = mt_interpreter_input(interpreter, false, instruction->microbatch);
  const motet_program_stage *place = &interpreter->program->stages[instruction->stage];
  int32_t embedding = embedding_layer(interpreter);
  int32_t first_trainable = interpreter->stages[instruction->stage].first_trainable;
  motet_status status =
      make_images(interpreter, input, interpreter->tables, error, &kept->images, &kept->image_rows);
  if (status != MOTET_OK) return status;
  void *features = mt_pool_take(interpreter->pool, image_bytes(interpreter, &input->share));
  *piece = mt_pool_take(interpreter->pool, (int64_t)input->share.features * (int64_t)row_bytes(interpreter));
  if (features == NULL || *piece == NULL)
    status = mt_error_memory(error, (unsigned long long)image_bytes(interpreter, &input->share), "image features");
  bool trains = keep && first_trainable < embedding;
  if (status == MOTET_OK)
    status = mt_network_forward(interpreter->options.network, place->layer_begin, embedding, &kept->images, NULL,
                                features, trains, trains ? first_trainable : -1, kept->arena, error,
                                &kept->image_saved, NULL);
  if (status == MOTET_OK)
    mt_interpreter_gather_rows(interpreter, features, kept->image_rows, input->share.features, *piece);
  mt_pool_give(interpreter->pool, features);
  return status;
}

motet_status mt_interpreter_backward_images(mt_interpreter *interpreter, const motet_instruction *instruction,
                                            const mt_kept *kept, const void *piece, motet_error *error) {
  const mt_input *input = mt_interpreter_input(interpreter, false, instruction->microbatch);
  const motet_program_stage *place = &interpreter->program->stages[instruction->stage];
  int64_t bytes = image_bytes(interpreter, &input->share);
  void *gradient = mt_pool_take(interpreter->pool, bytes);
  if (gradient == NULL) return mt_error_memory(error, (unsigned long long)bytes, "image features' gradients");
  memset(gradient, 0, (size_t)bytes);
  mt_interpreter_scatter_rows(interpreter, piece, kept->image_rows, input->share.features, gradient);
  motet_status status =
      mt_network_backward(interpreter->options.network, place->layer_begin, embedding_layer(interpreter),
                          interpreter->stages[instruction->stage].first_trainable, &kept->images, kept->image_saved,
                          gradient, NULL, error);
  mt_pool_give(interpreter->pool, gradient);
  return status;
}

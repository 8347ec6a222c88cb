/*
 * Runs of joined instructions. What the network computes at once is one batch and one array: the members' rows
 * stand behind one another, in their order, and are put together in front of a computation and taken apart behind
 * it. Buffers stay the members' own. What is put together is workspace; where one instruction stands alone it is
 * that instruction's own data, and nothing is copied.
 */
#include "train/interpreter_state.h"

#include <string.h>

int32_t mt_interpreter_run_length(const mt_interpreter *interpreter, const motet_instruction *first) {
  int32_t length = 1;
  /* Exact sums have the bits of microbatches that are computed one by one: members run one after the other. */
  if (mt_network_sums_exactly(interpreter->options.network)) return length;
  while ((first[length - 1].flags & MOTET_FLAG_JOINED) != 0) length++;
  return length;
}

motet_status mt_interpreter_run_make(mt_interpreter *interpreter, const motet_instruction *first,
                                     motet_error *error, mt_run *run) {
  int32_t count = mt_interpreter_run_length(interpreter, first);
  mt_arena_reset(interpreter->run_arena);
  *run =
      (mt_run){.first = first, .count = count, .members = MT_ARENA_NEW(interpreter->run_arena, mt_member, count)};
  if (run->members == NULL)
    return mt_error_memory(error, (unsigned)count * sizeof(mt_member), "joined microbatches");
  for (int32_t i = 0; i < count; i++) {
    const motet_instruction *instruction = &first[i];
    bool next = (instruction->flags & MOTET_FLAG_NEXT) != 0;
    run->members[i] = (mt_member){.instruction = instruction,
                                  .input = mt_interpreter_input(interpreter, next, instruction->microbatch),
                                  .batch = mt_interpreter_batch(interpreter, instruction)};
  }
  run->batch = run->members[0].batch;
  return MOTET_OK;
}

/** The sums of the members' sizes, as one batch has them. */
static motet_status add_shapes(const mt_run *run, motet_error *error, mt_batch *batch) {
  int64_t tokens = 0, segments = 0, tiles = 0;
  for (int32_t i = 0; i < run->count; i++) {
    const mt_batch *own = run->members[i].batch;
    tokens += own->tokens, segments += own->segments, tiles += own->tiles;
    if (own->loss_weight != run->batch->loss_weight)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "microbatches of one step weigh their targets differently");
  }
  if (tokens > INT32_MAX || segments > INT32_MAX || tiles > INT32_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT,
                        "%d microbatches with %lld tokens and %lld tiles are too large to be computed at once; a "
                        "smaller batch in the schedule would be right",
                        (int)run->count, (long long)tokens, (long long)tiles);
  *batch = (mt_batch){.tokens = (int32_t)tokens,
                      .segments = (int32_t)segments,
                      .tiles = (int32_t)tiles,
                      .loss_weight = run->batch->loss_weight,
                      .parts = run->count};
  return MOTET_OK;
}

static motet_status join_bounds(mt_interpreter *interpreter, const mt_run *run, motet_error *error,
                                mt_batch *batch) {
  int32_t *segments = MT_ARENA_NEW(interpreter->run_arena, int32_t, (int64_t)batch->segments + 1);
  int32_t *parts = MT_ARENA_NEW(interpreter->run_arena, int32_t, (int64_t)run->count + 1);
  if (segments == NULL || parts == NULL)
    return mt_error_memory(error, (unsigned)batch->segments * sizeof *segments, "joined microbatches");
  for (int32_t i = 0, segment = 0; i < run->count; i++) {
    const mt_batch *own = run->members[i].batch;
    for (int32_t s = 1; s <= own->segments; s++) segments[++segment] = parts[i] + own->segment_begin[s];
    parts[i + 1] = parts[i] + own->tokens;
  }
  batch->segment_begin = segments;
  batch->part_begin = parts;
  return MOTET_OK;
}

/** Ids with the places of features, and labels, as far as all members have them. */
static motet_status join_tokens(mt_interpreter *interpreter, const mt_run *run, motet_error *error,
                                mt_batch *batch) {
  const int32_t per_tile = interpreter->options.config->tokens_per_tile;
  int32_t *ids = MT_ARENA_NEW(interpreter->run_arena, int32_t, batch->tokens);
  int32_t *labels = MT_ARENA_NEW(interpreter->run_arena, int32_t, batch->tokens);
  int32_t *rows = MT_ARENA_NEW(interpreter->run_arena, int32_t, (int64_t)batch->tiles * per_tile);
  if (ids == NULL || labels == NULL || rows == NULL)
    return mt_error_memory(error, (unsigned)batch->tokens * 3 * sizeof *ids, "joined microbatches");
  bool has_ids = true, has_labels = true, has_rows = true;
  int64_t feature = 0;
  for (int32_t i = 0; i < run->count; i++) {
    const mt_batch *own = run->members[i].batch;
    const int32_t begin = batch->part_begin[i];
    has_ids = has_ids && own->token_ids != NULL;
    has_labels = has_labels && own->labels != NULL;
    has_rows = has_rows && (own->feature_rows != NULL || own->tiles == 0);
    if (has_ids) memcpy(ids + begin, own->token_ids, (size_t)own->tokens * sizeof *ids);
    if (has_labels) memcpy(labels + begin, own->labels, (size_t)own->tokens * sizeof *labels);
    for (int64_t f = 0; has_rows && f < (int64_t)own->tiles * per_tile; f++)
      rows[feature++] = begin + own->feature_rows[f];
  }
  batch->token_ids = has_ids ? ids : NULL;
  batch->labels = has_labels ? labels : NULL;
  batch->feature_rows = has_rows ? rows : NULL;
  return MOTET_OK;
}

static motet_status join_pixels(mt_interpreter *interpreter, mt_run *run, motet_error *error, mt_batch *batch) {
  const size_t side = (size_t)interpreter->options.config->vision.image_size, floats = 3 * side * side;
  const int64_t bytes = (int64_t)(floats * sizeof(float)) * batch->tiles;
  run->pixels = mt_pool_take_workspace(interpreter->pool, bytes);
  if (run->pixels == NULL) return mt_error_memory(error, (unsigned long long)bytes, "joined pixels");
  float *to = run->pixels;
  for (int32_t i = 0; i < run->count; i++) {
    const mt_batch *own = run->members[i].batch;
    if (own->tiles == 0) continue;
    if (own->pixels == NULL) return MOTET_OK; /* the layer that misses them says so */
    memcpy(to, own->pixels, floats * (size_t)own->tiles * sizeof *to);
    to += floats * (size_t)own->tiles;
  }
  batch->pixels = run->pixels;
  return MOTET_OK;
}

motet_status mt_interpreter_run_join(mt_interpreter *interpreter, mt_run *run, bool pixels, motet_error *error) {
  if (run->count == 1) return MOTET_OK;
  const uint32_t inputs = interpreter->program->stages[run->first->stage].inputs;
  mt_batch *batch = MT_ARENA_NEW(interpreter->run_arena, mt_batch, 1);
  if (batch == NULL) return mt_error_memory(error, sizeof *batch, "joined microbatches");
  motet_status status = add_shapes(run, error, batch);
  if (status == MOTET_OK) status = join_bounds(interpreter, run, error, batch);
  if (status == MOTET_OK && (inputs & (MOTET_INPUT_TOKENS | MOTET_INPUT_LABELS)) != 0)
    status = join_tokens(interpreter, run, error, batch);
  if (status == MOTET_OK && pixels && (inputs & MOTET_INPUT_PIXELS) != 0 && batch->tiles > 0)
    status = join_pixels(interpreter, run, error, batch);
  run->batch = batch;
  return status;
}

void mt_interpreter_run_end(mt_interpreter *interpreter, mt_run *run) {
  mt_pool_give(interpreter->pool, run->pixels);
  run->pixels = NULL;
  for (int32_t i = 0; i < run->count; i++) {
    mt_interpreter_release_input(interpreter, run->members[i].input);
    mt_pool_give(interpreter->pool, run->members[i].features);
    run->members[i].features = NULL;
  }
}

motet_status mt_interpreter_boundary_bytes(const mt_interpreter *interpreter, int32_t layer, const mt_batch *batch,
                                           motet_error *error, int64_t *bytes) {
  int64_t rows = 0, columns = 0, count;
  *bytes = 0;
  if (layer > 0) mt_network_output_shape(interpreter->options.config, layer - 1, batch, &rows, &columns);
  const int64_t element = (int64_t)mt_element_bytes(mt_network_element(interpreter->options.network));
  if (__builtin_mul_overflow(rows, columns, &count) || __builtin_mul_overflow(count, element, bytes))
    return mt_error_set(error, MOTET_ERROR_LIMIT, "an activation of %lld x %lld is too large", (long long)rows,
                        (long long)columns);
  return MOTET_OK;
}

motet_status mt_interpreter_joined_make(mt_interpreter *interpreter, const mt_run *run, int32_t layer,
                                        motet_error *error, mt_joined *joined) {
  *joined = (mt_joined){.layer = layer};
  if (run->count == 1) return MOTET_OK;
  int64_t bytes;
  motet_status status = mt_interpreter_boundary_bytes(interpreter, layer, run->batch, error, &bytes);
  if (status != MOTET_OK || bytes == 0) return status;
  joined->workspace = mt_pool_take_workspace(interpreter->pool, bytes);
  joined->data = joined->workspace;
  return joined->data != NULL ? MOTET_OK : mt_error_memory(error, (unsigned long long)bytes, "joined activations");
}

/** Calls for each member: where its rows stand in the joined array, and how many bytes they take. */
typedef void for_rows(mt_joined *joined, const mt_member *member, char *rows, size_t bytes);

static motet_status each(mt_interpreter *interpreter, const mt_run *run, mt_joined *joined, motet_error *error,
                         for_rows *call) {
  char *rows = joined->data;
  for (int32_t i = 0; i < run->count; i++) {
    int64_t bytes;
    motet_status status =
        mt_interpreter_boundary_bytes(interpreter, joined->layer, run->members[i].batch, error, &bytes);
    if (status != MOTET_OK) return status;
    if (bytes > 0) call(joined, &run->members[i], rows, (size_t)bytes);
    if (rows != NULL) rows += bytes;
  }
  return MOTET_OK;
}

static void put_rows(mt_joined *joined, const mt_member *member, char *rows, size_t bytes) {
  /* What lacks a member's rows is nothing: the network says that it misses them. */
  if (member->from == NULL)
    joined->data = NULL;
  else
    memcpy(rows, member->from, bytes);
}

static void take_rows(mt_joined *joined, const mt_member *member, char *rows, size_t bytes) {
  (void)joined;
  if (member->to != NULL) memcpy(member->to, rows, bytes);
}

motet_status mt_interpreter_joined_put(mt_interpreter *interpreter, const mt_run *run, mt_joined *joined,
                                       motet_error *error) {
  if (run->count > 1) return joined->data == NULL ? MOTET_OK : each(interpreter, run, joined, error, put_rows);
  joined->data = (void *)(uintptr_t)run->members[0].from;
  return MOTET_OK;
}

motet_status mt_interpreter_joined_take(mt_interpreter *interpreter, const mt_run *run, mt_joined *joined,
                                        motet_error *error) {
  if (run->count == 1 || joined->data == NULL) return MOTET_OK;
  return each(interpreter, run, joined, error, take_rows);
}

/** Rows that the stage's layers compute for the batch. */
static double stage_rows(const mt_interpreter *interpreter, int32_t stage, const mt_batch *batch) {
  const mt_internvl *config = interpreter->options.config;
  const motet_program_stage *place = &interpreter->program->stages[stage];
  const int32_t embedding = config->vision.layers + 2;
  int64_t rows = 0, columns;
  if (place->layer_begin < embedding) mt_network_output_shape(config, 0, batch, &rows, &columns);
  return (double)rows + (place->layer_end > embedding ? batch->tokens : 0);
}

void mt_interpreter_run_times(mt_interpreter *interpreter, int64_t index, int32_t length, double start,
                              double finish) {
  const motet_instruction *first = &interpreter->instructions[index];
  double all = 0, before = 0;
  interpreter->start[index] = start;
  interpreter->finish[index + length - 1] = finish;
  if (length == 1) return;
  for (int pass = 0; pass < 2; pass++)
    for (int32_t i = 0; i < length; i++) {
      const double rows = stage_rows(interpreter, first->stage, mt_interpreter_batch(interpreter, &first[i]));
      if (pass == 0) {
        all += rows;
        continue;
      }
      before += rows;
      if (i + 1 == length) break;
      const double part = all > 0 ? before / all : (double)(i + 1) / length;
      interpreter->finish[index + i] = interpreter->start[index + i + 1] = start + (finish - start) * part;
    }
}

/*
 * Frozen encoders whose features are cached. With a cache the frozen layers run picture by picture, so that a
 * picture's features do not depend on what else is in its microbatch, and are the same bits from the cache as
 * computed.
 */
#include "train/interpreter_state.h"

/** Bytes of the activation behind @p layer for as many tiles as @p batch says. */
static int64_t activation_bytes(const mt_interpreter *interpreter, int32_t layer, const mt_batch *batch) {
  int64_t rows, columns;
  mt_network_output_shape(interpreter->options.config, layer, batch, &rows, &columns);
  return rows * columns * (int64_t)mt_element_bytes(mt_network_element(interpreter->options.network));
}

/** Layers [begin, end) of the image modules for one picture of the batch after another. */
static motet_status run_pictures(mt_interpreter *interpreter, int32_t microbatch, int32_t begin, int32_t end,
                                 const mt_batch *batch, const char *entering, char *leaving, motet_error *error) {
  const mt_batch_source *source = interpreter->step->source;
  const int32_t *tiles;
  int32_t count;
  motet_status status = source->pictures(source->context, microbatch, interpreter->tables, error, &tiles, &count);
  mt_arena *arena = mt_pool_arena_take(interpreter->pool, 0); /* nothing is kept in it */
  if (status == MOTET_OK && arena == NULL) status = mt_error_memory(error, 0, "image features");
  int64_t side = interpreter->options.config->vision.image_size;
  mt_batch picture = *batch;
  for (int32_t i = 0; i < count && status == MOTET_OK; i++) {
    picture.tiles = tiles[i];
    status = mt_network_forward(interpreter->options.network, begin, end, &picture, entering, leaving, false, -1,
                                arena, error, NULL, NULL);
    if (picture.pixels != NULL) picture.pixels += tiles[i] * 3 * side * side;
    if (entering != NULL) entering += activation_bytes(interpreter, begin - 1, &picture);
    leaving += activation_bytes(interpreter, end - 1, &picture);
  }
  mt_pool_arena_give(interpreter->pool, arena);
  return status;
}

bool mt_interpreter_cached(const mt_interpreter *interpreter, int32_t microbatch) {
  return interpreter->step->cached_layers > 0 && interpreter->program->microbatches[microbatch].cached != 0;
}

motet_status mt_interpreter_begin_stage(mt_interpreter *interpreter, mt_member *member, motet_error *error,
                                        int32_t *layer) {
  const motet_program_stage *place = &interpreter->program->stages[member->instruction->stage];
  const mt_batch_source *source = interpreter->step->source;
  int32_t boundary = interpreter->step->cached_layers, m = member->instruction->microbatch;
  if (boundary == 0 || member->batch->tiles == 0 || place->layer_begin > boundary) return MOTET_OK;
  bool cached = mt_interpreter_cached(interpreter, m);
  if (place->layer_begin == boundary && !cached) return MOTET_OK;
  int32_t end = place->layer_end < boundary ? place->layer_end : boundary;
  char *features = member->to;
  if (place->layer_end > boundary) {
    int64_t bytes = activation_bytes(interpreter, boundary - 1, member->batch);
    member->features = mt_pool_take_workspace(interpreter->pool, bytes);
    if (member->features == NULL) return mt_error_memory(error, (unsigned long long)bytes, "image features");
    features = (char *)member->features;
  }
  motet_status status =
      cached ? source->read_features(source->context, m, error, features)
             : run_pictures(interpreter, m, place->layer_begin, end, member->batch, member->from, features, error);
  if (status == MOTET_OK && !cached && end == boundary && member->instruction->kind == MOTET_FWD)
    status = source->keep_features(source->context, m, error, features);
  *layer = end;
  member->from = features;
  return status;
}

/* A model's config.json of any architecture from arbitrary bytes: what is accepted can be counted and charged. */
#include "model/architecture.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void charge(const mt_architecture *architecture) {
  const mt_picture picture = {1, 448, 448};
  const int64_t tokens = 1 << 20;
  const mt_shape shape = {.segments = &tokens,
                          .segment_count = 1,
                          .pictures = &picture,
                          .picture_count = architecture->reads_pictures ? 1 : 0};
  double extents[MT_EXTENTS];
  motet_error error;
  if (mt_architecture_measure(architecture, &shape, &error, extents) != MOTET_OK) {
    if (error.text[0] == '\0') abort();
    return;
  }
  for (int e = 0; e < MT_EXTENTS; e++)
    if (!isfinite(extents[e]) || extents[e] < 0) abort();
  for (int32_t l = 0; l < architecture->model->layer_count; l++) {
    mt_layer_cost cost;
    mt_architecture_cost(architecture, l, extents, 8, &cost);
    if (!isfinite(cost.forward_flops) || cost.forward_flops < 0 || cost.worst_forward_flops < cost.forward_flops ||
        cost.saved_bytes < cost.passed_bytes || cost.output_bytes < 0)
      abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  mt_architecture *architecture;
  mt_arena *arena = mt_arena_create();
  if (arena == NULL) abort();
  error.text[0] = '\0';
  if (mt_architecture_parse(arena, data, size, "fuzz", &error, &architecture) != MOTET_OK) {
    if (error.text[0] == '\0') abort();
  } else {
    int64_t total = 0;
    const mt_model *model = architecture->model;
    for (int32_t l = 0; l < model->layer_count; l++) {
      if (model->layers[l].parameters < 0 || model->layers[l].kind >= architecture->design_count ||
          __builtin_add_overflow(total, model->layers[l].parameters, &total))
        abort();
    }
    for (int32_t m = 0; m < model->module_count; m++)
      if (model->modules[m].layer_begin >= model->modules[m].layer_end) abort();
    charge(architecture);
  }
  mt_arena_destroy(arena);
  return 0;
}

#include "model/model.h"

#include <string.h>

motet_status mt_model_abstract(mt_arena *arena, int32_t module_count, const char *const *names,
                               const int32_t *layers, const bool *trainable, motet_error *error,
                               mt_model **result) {
  if (module_count < 1 || module_count > MT_MODEL_MODULES_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a model has 1 to %d modules, not %d", MT_MODEL_MODULES_MAX,
                        module_count);
  int64_t total = 0;
  for (int32_t m = 0; m < module_count; m++) {
    if (layers[m] < 1)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "module %s has %d layers; at least 1 is needed", names[m],
                          layers[m]);
    total += layers[m];
  }
  if (total > INT32_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%lld layers are more than a model may have", (long long)total);
  mt_model *model = MT_ARENA_NEW(arena, mt_model, 1);
  mt_module *modules = MT_ARENA_NEW(arena, mt_module, module_count);
  mt_layer *all = MT_ARENA_NEW(arena, mt_layer, total);
  mt_module_edge *edges = MT_ARENA_NEW(arena, mt_module_edge, module_count);
  if (model == NULL || modules == NULL || all == NULL || edges == NULL)
    return mt_error_memory(error, (unsigned long long)total * sizeof *all, "a model");
  int32_t next = 0;
  for (int32_t m = 0; m < module_count; m++) {
    modules[m] =
        (mt_module){.name = mt_arena_text(arena, names[m]), .layer_begin = next, .layer_end = next + layers[m]};
    if (modules[m].name == NULL) return mt_error_memory(error, strlen(names[m]), "a module name");
    for (; next < modules[m].layer_end; next++) {
      all[next] = (mt_layer){.module = m, .trainable = trainable[m]};
      all[next].name = mt_arena_format(arena, "%s.%d", names[m], next - modules[m].layer_begin);
      if (all[next].name == NULL) return mt_error_memory(error, strlen(names[m]), "a layer name");
    }
    if (m > 0) edges[m - 1] = (mt_module_edge){.from = m - 1, .to = m};
  }
  *model = (mt_model){.module_count = module_count,
                      .layer_count = next,
                      .edge_count = module_count - 1,
                      .modules = modules,
                      .layers = all,
                      .edges = edges};
  *result = model;
  return MOTET_OK;
}

#include "order/layout_units.h"

#include "base/text.h"

#include <string.h>

/* Units a kind: found by name, by having none, or free of cost. */
static motet_status match_units(const mt_megatron_layout *layout, const mt_unit *given, int32_t given_count,
                                motet_error *error, mt_unit *units) {
  for (int32_t kind = 0; kind < MT_MEGATRON_KINDS; kind++)
    units[kind] = (mt_unit){.name = mt_megatron_letters[kind], .has_forward = true};
  bool backward = false;
  for (int32_t u = 0; u < given_count; u++) {
    bool known = false;
    for (int32_t kind = 0; kind < MT_MEGATRON_KINDS; kind++) {
      if (*given[u].name != '\0' && strcmp(given[u].name, mt_megatron_letters[kind]) != 0) continue;
      known |= layout->layers[kind] > 0;
      units[kind] = given[u];
      units[kind].name = mt_megatron_letters[kind];
    }
    if (!known)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "--unit: the layout has no layers '%s'; units of a layout are times of one layer, as in "
                          "'E: f=0.1, b=0.2; t: f=1, b=2; L: f=0.5, b=1'",
                          given[u].name);
    backward |= given[u].has_backward;
  }
  for (int32_t kind = 0; kind < MT_MEGATRON_KINDS; kind++) {
    bool free_of_cost = units[kind].forward <= 0 && !units[kind].has_backward;
    if (free_of_cost) units[kind].has_backward = backward;
    units[kind].per_layer = true;
  }
  return MOTET_OK;
}

static motet_status match_trainable(const mt_unit *unit, const char *const *trainable, int32_t trainable_count,
                                    motet_error *error, bool *trains) {
  *trains = unit->has_backward;
  if (trainable == NULL) return MOTET_OK;
  *trains = false;
  for (int32_t i = 0; i < trainable_count; i++) *trains |= strcmp(trainable[i], unit->name) == 0;
  if (*trains && !unit->has_backward)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "%s trains but has no backward time: give b, or x and w, as in '%s: f=1, b=2'", unit->name,
                        unit->name);
  return MOTET_OK;
}

static motet_status check_names(const char *const *trainable, int32_t trainable_count, motet_error *error) {
  for (int32_t i = 0; i < trainable_count; i++) {
    bool known = false;
    for (int32_t kind = 0; kind < MT_MEGATRON_KINDS; kind++)
      known |= strcmp(trainable[i], mt_megatron_letters[kind]) == 0;
    if (!known)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--trainable: '%s' is none of a layout's layers E, t, m, L",
                          trainable[i]);
  }
  return MOTET_OK;
}

/* Modules of the kinds that are there, and the schedule over all of them. */
static motet_status make_model(mt_arena *arena, const mt_unit *units, int32_t virtual_stages,
                               const char *const *trainable, int32_t trainable_count, motet_error *error,
                               mt_layout_units *result) {
  const char *names[MT_MEGATRON_KINDS];
  int32_t layers[MT_MEGATRON_KINDS], count = 0;
  bool trains[MT_MEGATRON_KINDS];
  mt_text schedule = {0};
  for (int32_t kind = 0; kind < MT_MEGATRON_KINDS; kind++) {
    if (result->layout->layers[kind] == 0) continue;
    motet_status status = match_trainable(&units[kind], trainable, trainable_count, error, &trains[count]);
    if (status != MOTET_OK) {
      mt_text_free(&schedule);
      return status;
    }
    names[count] = units[kind].name;
    layers[count] = result->layout->layers[kind];
    result->units[count] = units[kind];
    result->unit_of_module[count] = count;
    mt_text_append(&schedule, "%s%s", count > 0 ? "+" : "<", names[count]);
    count++;
  }
  result->unit_count = count;
  mt_text_append(&schedule, ": 1f1b(virtual=%d)>", virtual_stages);
  motet_status status = schedule.failed ? mt_error_memory(error, schedule.length, "a schedule")
                                        : mt_schedule_parse(arena, schedule.data, error, &result->schedule);
  mt_text_free(&schedule);
  return status == MOTET_OK ? mt_model_abstract(arena, count, names, layers, trains, error, &result->model)
                            : status;
}

motet_status mt_layout_units_make(mt_arena *arena, const char *text, const mt_unit *units, int32_t unit_count,
                                  int32_t ranks, const char *const *trainable, int32_t trainable_count,
                                  motet_error *error, mt_layout_units *result) {
  mt_megatron_layout *layout;
  mt_unit of_kind[MT_MEGATRON_KINDS];
  int32_t virtual_stages;
  motet_status status = mt_megatron_layout_parse(arena, text, error, &layout);
  if (status == MOTET_OK) status = mt_megatron_layout_judge(layout, ranks, error, &virtual_stages);
  if (status == MOTET_OK) status = match_units(layout, units, unit_count, error, of_kind);
  if (status == MOTET_OK) status = check_names(trainable, trainable_count, error);
  if (status != MOTET_OK) return status;
  *result = (mt_layout_units){.layout = layout,
                              .units = MT_ARENA_NEW(arena, mt_unit, MT_MEGATRON_KINDS),
                              .unit_of_module = MT_ARENA_NEW(arena, int32_t, MT_MEGATRON_KINDS)};
  if (result->units == NULL || result->unit_of_module == NULL)
    return mt_error_memory(error, sizeof(mt_unit) * MT_MEGATRON_KINDS, "a layout's units");
  return make_model(arena, of_kind, virtual_stages, trainable, trainable_count, error, result);
}

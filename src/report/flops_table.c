#include "report/flops_table.h"

#include "report/words.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { KEY_COLUMNS = 12, NAME_COLUMNS = 20, NUMBER_COLUMNS = 14 };

static bool trains(const motet_program *program, int32_t module) {
  const motet_program_module *of = &program->modules[module];
  for (int32_t layer = of->layer_begin; layer < of->layer_end; layer++)
    if (program->layer_trainable[layer]) return true;
  return false;
}

static double whole(const double parts[MT_FLOPS_PARTS]) {
  return parts[MT_FLOPS_FORWARD] + parts[MT_FLOPS_INPUT] + parts[MT_FLOPS_WEIGHT];
}

/* Seconds of the region's forwards and backwards on all ranks. */
static double region_seconds(const motet_program *program, const mt_simulation *simulation, int32_t region) {
  double seconds = 0;
  for (int64_t i = 0; i < program->rank_begin[program->ranks]; i++) {
    const motet_instruction *instruction = &program->instructions[i];
    if (instruction->kind <= MOTET_RECOMPUTE && program->stages[instruction->stage].region == region)
      seconds += simulation->finish[i] - simulation->start[i];
  }
  return seconds;
}

static double region_flops(const motet_program *program, const mt_flops *flops, int32_t region) {
  double sum = 0, parts[MT_FLOPS_PARTS];
  for (int32_t s = 0; s < program->stage_count; s++) {
    if (program->stages[s].region != region) continue;
    mt_flops_sum(flops, s, -1, parts);
    sum += whole(parts);
  }
  return sum;
}

static double busy_seconds(const motet_program *program, const mt_simulation *simulation) {
  double seconds = 0;
  for (int32_t rank = 0; rank < program->ranks; rank++) seconds += simulation->ranks[rank].busy;
  return seconds;
}

static void put_cell(mt_text *out, const mt_text *cell) {
  const char *text = cell->data != NULL ? cell->data : "";
  for (int column = mt_words_columns(text); column < NUMBER_COLUMNS; column++) mt_text_append(out, " ");
  mt_text_append(out, "%s", text);
}

static void put_flops(mt_text *out, double value, const char *unit) {
  mt_text cell = {0};
  mt_words_flops(&cell, value);
  mt_text_append(&cell, "%s", unit);
  put_cell(out, &cell);
  mt_text_free(&cell);
}

static void put_percent(mt_text *out, double share) {
  mt_text cell = {0};
  if (isfinite(share)) mt_text_append(&cell, "%.1f%%", 100 * share);
  put_cell(out, &cell);
  mt_text_free(&cell);
}

static void put_name(mt_text *out, const char *name) {
  size_t from = out->length;
  mt_text_append(out, "  %s", name);
  mt_words_pad(out, from, NAME_COLUMNS);
}

static void put_modules(const motet_program *program, const mt_flops *flops, double total, mt_text *out) {
  double parts[MT_FLOPS_PARTS];
  mt_text_append(out, "\n  %-*s%*s%*s%*s%*s\n", NAME_COLUMNS - 2, "module", NUMBER_COLUMNS, "forward",
                 NUMBER_COLUMNS, "input grads", NUMBER_COLUMNS, "weight grads", NUMBER_COLUMNS, "of all");
  for (int32_t module = 0; module < program->module_count; module++) {
    mt_flops_sum(flops, -1, module, parts);
    put_name(out, program->modules[module].name);
    for (int part = 0; part < MT_FLOPS_PARTS; part++) put_flops(out, parts[part], "");
    put_percent(out, whole(parts) / total);
    mt_text_append(out, "%s\n", trains(program, module) ? "" : "  frozen");
  }
}

static void put_regions(const motet_program *program, const mt_simulation *simulation, const mt_flops *flops,
                        mt_text *out) {
  mt_text_append(out, "\n  %-*s%*s%*s\n", NAME_COLUMNS - 2, "region", NUMBER_COLUMNS, "computes at", NUMBER_COLUMNS,
                 flops->peak > 0 ? "of the peak" : "");
  for (int32_t region = 0; region < program->region_count; region++) {
    double seconds = region_seconds(program, simulation, region), sum = region_flops(program, flops, region);
    if (!(seconds > 0)) continue;
    put_name(out, program->regions[region].name);
    put_flops(out, sum / seconds, "/s");
    put_percent(out, mt_flops_utilization(flops, sum, 1, seconds));
    mt_text_append(out, "\n");
  }
}

void mt_flops_table_text(const motet_program *program, const mt_simulation *simulation, const mt_flops *flops,
                         mt_text *out) {
  if (flops == NULL) return;
  double total = mt_flops_total(flops),
         mfu = mt_flops_utilization(flops, total, program->ranks, simulation->makespan);
  size_t from = out->length;
  mt_text_append(out, "operations");
  mt_words_pad(out, from, KEY_COLUMNS);
  mt_words_flops(out, total);
  mt_text_append(out, " of model work");
  if (isfinite(mfu)) {
    mt_text_append(out, ": MFU %.1f%%, of what %s at ", 100 * mfu, mt_counted(program->ranks, "rank").text);
    mt_words_flops(out, flops->peak);
    mt_text_append(out, "/s could do, %.1f%% while they compute",
                   100 * mt_flops_utilization(flops, total, 1, busy_seconds(program, simulation)));
  }
  mt_text_append(out, "\n");
  if (!(total > 0)) return;
  put_modules(program, flops, total, out);
  put_regions(program, simulation, flops, out);
}

static json_t *number_or_null(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static bool set(json_t *object, const char *key, json_t *value) {
  return json_object_set_new(object, key, value) == 0;
}

static json_t *make_module(const motet_program *program, const mt_flops *flops, int32_t module) {
  double parts[MT_FLOPS_PARTS];
  mt_flops_sum(flops, -1, module, parts);
  json_t *row = json_object();
  bool good = set(row, "name", json_string(program->modules[module].name)) &&
              set(row, "trains", json_boolean(trains(program, module))) &&
              set(row, "forward", json_real(parts[MT_FLOPS_FORWARD])) &&
              set(row, "input_gradient", json_real(parts[MT_FLOPS_INPUT])) &&
              set(row, "weight_gradient", json_real(parts[MT_FLOPS_WEIGHT]));
  if (good) return row;
  json_decref(row);
  return NULL;
}

static json_t *make_region(const motet_program *program, const mt_simulation *simulation, const mt_flops *flops,
                           int32_t region) {
  double seconds = region_seconds(program, simulation, region), sum = region_flops(program, flops, region);
  json_t *row = json_object();
  bool good = set(row, "name", json_string(program->regions[region].name)) && set(row, "flops", json_real(sum)) &&
              set(row, "seconds", json_real(seconds)) &&
              set(row, "busy_mfu", number_or_null(mt_flops_utilization(flops, sum, 1, seconds)));
  if (good) return row;
  json_decref(row);
  return NULL;
}

json_t *mt_flops_table_json(const motet_program *program, const mt_simulation *simulation, const mt_flops *flops) {
  if (flops == NULL) return json_null();
  double total = mt_flops_total(flops);
  json_t *modules = json_array(), *regions = json_array(), *document = json_object();
  bool good = true;
  for (int32_t i = 0; good && i < program->module_count; i++)
    good = json_array_append_new(modules, make_module(program, flops, i)) == 0;
  for (int32_t i = 0; good && i < program->region_count; i++)
    good = json_array_append_new(regions, make_region(program, simulation, flops, i)) == 0;
  good = good && set(document, "total", json_real(total)) &&
         set(document, "peak_per_second", number_or_null(flops->peak > 0 ? flops->peak : NAN)) &&
         set(document, "mfu",
             number_or_null(mt_flops_utilization(flops, total, program->ranks, simulation->makespan))) &&
         set(document, "busy_mfu",
             number_or_null(mt_flops_utilization(flops, total, 1, busy_seconds(program, simulation))));
  if (good && json_object_set(document, "modules", modules) == 0 &&
      json_object_set(document, "regions", regions) == 0) {
    json_decref(modules);
    json_decref(regions);
    return document;
  }
  json_decref(modules);
  json_decref(regions);
  json_decref(document);
  return NULL;
}

#include "report/what_if.h"

#include "program/columns.h"
#include "sim/simulate.h"

#include <stdbool.h>
#include <string.h>

typedef struct what_if {
  mt_arena *arena;
  const motet_program *program;
  const mt_cost_table *costs;
  mt_what_if *rows;
  int32_t count;
  double before;
} what_if;

static bool is_compute(int kind) { return kind <= MT_COST_RECOMPUTE; }

/* A copy whose values can be changed stage by stage; microbatches that share a value go on sharing it. */
static motet_status copy_costs(what_if *w, bool by_microbatch, motet_error *error, mt_cost_table *copy) {
  size_t stages = (size_t)w->program->stage_count, microbatches = (size_t)mt_column_count(w->program);
  *copy = *w->costs;
  for (int kind = 0; kind < MT_COST_KINDS; kind++) {
    const mt_cost_values *from = &w->costs->seconds[kind];
    if (!is_compute(kind) || from->values == NULL) continue;
    size_t columns = by_microbatch && from->microbatch_stride != 0 ? microbatches : 1;
    if (columns > 0 && stages > SIZE_MAX / sizeof(double) / columns)
      return mt_error_set(error, MOTET_ERROR_LIMIT, "%zu stages by %zu microbatches are too many", stages, columns);
    double *values = MT_ARENA_NEW(w->arena, double, stages *columns);
    if (values == NULL) return mt_error_memory(error, stages * columns * sizeof *values, "changed costs");
    copy->seconds[kind] = (mt_cost_values){values, (int64_t)columns, columns > 1 ? 1 : 0};
    for (size_t stage = 0; stage < stages; stage++)
      for (size_t m = 0; m < columns; m++)
        values[stage * columns + m] = mt_cost_seconds(w->costs, (mt_cost_kind)kind, (int32_t)stage, (int32_t)m);
  }
  return MOTET_OK;
}

static motet_status simulate(what_if *w, const mt_cost_table *costs, motet_error *error, double *makespan) {
  mt_arena *arena = mt_arena_create(); /* a simulation's arrays are not needed once the makespan is known */
  if (arena == NULL) return mt_error_memory(error, sizeof(void *), "a simulation");
  mt_simulation *simulation;
  motet_status status = mt_simulate(arena, w->program, costs, NULL, error, &simulation);
  if (status == MOTET_OK) *makespan = simulation->makespan;
  mt_arena_destroy(arena);
  return status;
}

static motet_status add_row(what_if *w, const mt_cost_table *costs, const char *change, motet_error *error) {
  if (change == NULL) return mt_error_memory(error, 64, "a change's name");
  mt_what_if *row = &w->rows[w->count];
  *row = (mt_what_if){.change = change, .before = w->before};
  motet_status status = simulate(w, costs, error, &row->makespan);
  if (status == MOTET_OK) w->count++;
  return status;
}

static bool first_of_name(const motet_program *program, int32_t region) {
  for (int32_t earlier = 0; earlier < region; earlier++)
    if (strcmp(program->regions[earlier].name, program->regions[region].name) == 0) return false;
  return true;
}

static motet_status add_region(what_if *w, int32_t region, int percent, motet_error *error) {
  const char *name = w->program->regions[region].name;
  mt_cost_table changed;
  motet_status status = copy_costs(w, true, error, &changed);
  if (status != MOTET_OK) return status;
  bool any = false;
  for (int kind = 0; kind < MT_COST_KINDS; kind++) {
    mt_cost_values *values = &changed.seconds[kind];
    if (!is_compute(kind) || values->values == NULL) continue;
    for (int32_t stage = 0; stage < w->program->stage_count; stage++) {
      if (strcmp(w->program->regions[w->program->stages[stage].region].name, name) != 0) continue;
      for (int64_t m = 0; m < values->stage_stride; m++) {
        double *value = &values->values[stage * values->stage_stride + m];
        any = any || *value > 0;
        *value *= 1.0 - percent / 100.0;
      }
    }
  }
  return any ? add_row(w, &changed, mt_arena_format(w->arena, "%s %d%% faster", name, percent), error) : MOTET_OK;
}

/* Every microbatch costs a stage the mean over those that cost it anything; the others stay without work. */
static motet_status add_equal_microbatches(what_if *w, motet_error *error) {
  mt_cost_table changed;
  motet_status status = copy_costs(w, true, error, &changed);
  if (status != MOTET_OK) return status;
  bool any = false;
  for (int kind = 0; kind < MT_COST_KINDS; kind++) {
    mt_cost_values *values = &changed.seconds[kind];
    if (!is_compute(kind) || values->values == NULL || values->stage_stride < 2) continue;
    for (int32_t stage = 0; stage < w->program->stage_count; stage++) {
      double *row = &values->values[stage * values->stage_stride], sum = 0.0;
      int64_t working = 0;
      for (int64_t m = 0; m < values->stage_stride; m++) {
        sum += row[m];
        working += row[m] > 0;
      }
      for (int64_t m = 0; m < values->stage_stride; m++) {
        if (!(row[m] > 0)) continue;
        any = any || row[m] * (double)working - sum > 1e-9 * sum || sum - row[m] * (double)working > 1e-9 * sum;
        row[m] = sum / (double)working;
      }
    }
  }
  return any ? add_row(w, &changed, "microbatches of equal cost", error) : MOTET_OK;
}

static bool costs_time(mt_link link) { return link.latency_seconds > 0 || link.bytes_per_second > 0; }

static mt_link faster(mt_link link) { return (mt_link){link.latency_seconds / 2, link.bytes_per_second * 2}; }

static motet_status add_links(what_if *w, motet_error *error) {
  mt_cost_table changed = *w->costs;
  if (!costs_time(changed.links.local) && !costs_time(changed.links.remote)) return MOTET_OK;
  changed.links.local = faster(changed.links.local);
  changed.links.remote = faster(changed.links.remote);
  motet_status status = add_row(w, &changed, "links twice as fast", error);
  changed.links.local = changed.links.remote = (mt_link){0};
  if (status == MOTET_OK) status = add_row(w, &changed, "transfers that cost nothing", error);
  return status;
}

motet_status mt_what_if_make(mt_arena *arena, const motet_program *program, const mt_cost_table *costs,
                             motet_error *error, mt_what_if **rows, int32_t *count) {
  static const int percents[] = {20, 50};
  what_if w = {.arena = arena, .program = program, .costs = costs};
  w.rows = MT_ARENA_NEW(arena, mt_what_if, 2 * (size_t)program->region_count + 3);
  if (w.rows == NULL) return mt_error_memory(error, sizeof *w.rows, "changes of the costs");
  motet_status status = simulate(&w, costs, error, &w.before);
  for (int32_t region = 0; status == MOTET_OK && region < program->region_count; region++)
    for (size_t i = 0; status == MOTET_OK && i < 2 && first_of_name(program, region); i++)
      status = add_region(&w, region, percents[i], error);
  if (status == MOTET_OK) status = add_equal_microbatches(&w, error);
  if (status == MOTET_OK) status = add_links(&w, error);
  *rows = w.rows;
  *count = w.count;
  return status;
}

#include "mixture.h"

#include "gpt_rows.h"

#include "order/plan.h"

#include <math.h>
#include <stdlib.h>

/* Whether `parts` parts of at most `limit` seconds hold all layers; fills counts. */
static bool cut_fits(const double *seconds, int32_t count, int32_t parts, double first, double limit,
                     int32_t *counts) {
  int32_t layer = 0;
  for (int32_t p = 0; p < parts; p++) {
    double sum = p == 0 ? first : 0;
    counts[p] = 0;
    while (layer < count && (count - layer > parts - 1 - p) && sum + seconds[layer] <= limit) {
      sum += seconds[layer++];
      counts[p]++;
    }
  }
  return layer == count;
}

void mixture_cut(const double *seconds, int32_t count, int32_t parts, double first, int32_t *counts) {
  double low = 0, high = first;
  for (int32_t l = 0; l < count; l++) high += seconds[l];
  for (int round = 0; round < 60; round++) {
    double middle = (low + high) / 2;
    if (cut_fits(seconds, count, parts, first, middle, counts))
      high = middle;
    else
      low = middle;
  }
  cut_fits(seconds, count, parts, first, high, counts);
}

static mixture_layer layer_of(const mixture *mixed, int32_t layer) {
  return layer < mixed->encoder_layers ? mixed->encoder[layer] : mixed->decoder[layer - mixed->encoder_layers];
}

static void fill_stage(const mixture *mixed, const mt_stage *stage, int32_t microbatch, double *forward,
                       double *backward) {
  double spread = mixed->spread != NULL ? mixed->spread[microbatch] : 1;
  *forward = *backward = 0;
  for (int32_t l = stage->layer_begin; l < stage->layer_end; l++) {
    mixture_layer layer = layer_of(mixed, l);
    bool encoder = l < mixed->encoder_layers;
    double scale = encoder ? spread : 1;
    *forward += scale * layer.forward;
    if (stage->gate == MT_GATE_NONE || l < stage->first_trainable) continue;
    *backward += scale * (layer.input + (!encoder || mixed->encoder_trains ? layer.weight : 0));
  }
}

double mixture_seconds(const mixture *mixed, const char *text, const int32_t *split, int32_t split_count) {
  static const char *const names[] = {"vision", "llm"};
  const int32_t layers[] = {mixed->encoder_layers, mixed->decoder_layers};
  const bool trains[] = {mixed->encoder_trains, true};
  motet_error error;
  mt_arena *arena = mt_arena_create();
  mt_model *model;
  mt_schedule *schedule = NULL;
  mt_derivation *derivation = NULL;
  if (arena == NULL) gpt_stop("out of memory");
  motet_status status = mt_model_abstract(arena, 2, names, layers, trains, &error, &model);
  if (status == MOTET_OK) status = mt_schedule_parse(arena, text, &error, &schedule);
  mt_derive_request request = {.model = model,
                               .schedule = schedule,
                               .ranks = mixed->ranks,
                               .microbatches = mixed->microbatches,
                               .split = split,
                               .split_count = split_count};
  if (status == MOTET_OK) status = mt_derive(arena, &request, &error, &derivation);
  if (status != MOTET_OK) gpt_stop(error.text);
  int64_t columns = mixed->microbatches, cells = derivation->stage_count * columns;
  double *forward = MT_ARENA_NEW(arena, double, cells), *backward = MT_ARENA_NEW(arena, double, cells);
  if (forward == NULL || backward == NULL) gpt_stop("out of memory");
  for (int32_t s = 0; s < derivation->stage_count; s++)
    for (int32_t m = 0; m < columns; m++)
      fill_stage(mixed, &derivation->stages[s], m, &forward[s * columns + m], &backward[s * columns + m]);
  mt_cost_table costs = {0};
  costs.seconds[MT_COST_FORWARD] = (mt_cost_values){forward, columns, 1};
  costs.seconds[MT_COST_BACKWARD] = (mt_cost_values){backward, columns, 1};
  const mt_plan_replica replica = {.derivation = derivation, .costs = &costs};
  /* Five milliseconds of search a plan: thousands of plans are made. */
  const mt_plan_options options = {.order = {.search_seconds = 0.005}};
  mt_plan plan;
  if (mt_plan_make(arena, &replica, 1, &options, &error, &plan) != MOTET_OK) gpt_stop(error.text);
  double seconds = plan.simulation->makespan;
  mt_plan_free(&plan);
  mt_arena_destroy(arena);
  return seconds;
}

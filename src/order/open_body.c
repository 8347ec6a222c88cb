#include "order/open_body.h"

#include "motet/program.h"

#include <math.h>

/* Visited events that one search may cost: a few milliseconds, and for one of thousands of plans fewer. */
static const int64_t WORK_DEFAULT = 70000, WORK_QUICK = 20000;

/* What a stage's first or only backward event costs. */
static mt_cost_kind backward_kind(const mt_derivation *d, int32_t stage) {
  bool whole = !mt_body_is_split(d, stage) && (d->stages[stage].gate & MT_GATE_WEIGHTS) != 0;
  return whole ? MT_COST_BACKWARD : MT_COST_BACKWARD_X;
}

/* Of one event, a run of microbatches. */
static motet_status average(const mt_derivation *d, const mt_cost_table *costs, mt_cost_kind column,
                            double *seconds, motet_error *error) {
  for (int32_t s = 0; s < d->stage_count; s++) {
    mt_cost_kind kind = column == MT_COST_BACKWARD_X ? backward_kind(d, s) : column;
    double sum = 0.0;
    int32_t active = 0;
    for (int32_t m = 0; m < d->microbatches; m++) {
      if (!mt_stage_active(d, s, m)) continue;
      sum += mt_cost_seconds(costs, kind, s, m);
      active++;
    }
    seconds[s] = active > 0 ? sum / active * d->regions[d->stages[s].region].skeleton.batch : 0.0;
    if (!(seconds[s] >= 0.0) || isinf(seconds[s]))
      return mt_error_set(
          error, MOTET_ERROR_ARGUMENT,
          "the cost table gives %g seconds on average for stage %d; times are finite and not negative", seconds[s],
          s);
  }
  return MOTET_OK;
}

/* The longest transfer between neighbours: bytes are those of the largest output. */
static double longest_lag(const mt_derivation *d, const mt_cost_table *costs, const mt_order_options *options) {
  int64_t bytes = 0;
  for (int32_t s = 0; options != NULL && options->output_bytes.values != NULL && s < d->stage_count; s++)
    for (int32_t m = 0; m < d->microbatches; m++) {
      int64_t own =
          options->output_bytes
              .values[s * options->output_bytes.stage_stride + m * options->output_bytes.microbatch_stride];
      if (own > bytes) bytes = own;
    }
  return mt_link_seconds(costs->links.local, bytes);
}

motet_status mt_order_body(mt_arena *arena, const mt_derivation *derivation, const mt_cost_table *costs,
                           const mt_order_options *options, bool quick, motet_error *error,
                           const mt_derivation **ordered) {
  *ordered = derivation;
  if (!mt_body_is_open(derivation)) return MOTET_OK;
  int32_t stages = derivation->stage_count;
  double *seconds = MT_ARENA_NEW(arena, double, 3 * (int64_t)stages);
  mt_derivation *copy = MT_ARENA_NEW(arena, mt_derivation, 1);
  if (seconds == NULL || copy == NULL)
    return mt_error_memory(error, (unsigned long long)stages * 24 + sizeof *copy, "a body's order");
  *copy = *derivation;
  static const mt_cost_kind kinds[] = {MT_COST_FORWARD, MT_COST_BACKWARD_X, MT_COST_BACKWARD_W};
  motet_status status = MOTET_OK;
  for (int k = 0; k < 3 && status == MOTET_OK; k++)
    status = average(derivation, costs, kinds[k], seconds + (int64_t)k * stages, error);
  mt_body_times times = {.forward = seconds,
                         .input = seconds + stages,
                         .weight = seconds + 2 * (int64_t)stages,
                         .lag = longest_lag(derivation, costs, options),
                         .work = quick ? WORK_QUICK : WORK_DEFAULT};
  if (status == MOTET_OK) status = mt_body_order_by(arena, copy, &times, error);
  if (status == MOTET_OK) *ordered = copy;
  return status;
}

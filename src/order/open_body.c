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

/* Time of one stage's work for a microbatch; `path`: without the weight gradients, for which nobody waits. */
static double work_of(const mt_derivation *d, const mt_cost_table *costs, int32_t stage, int32_t microbatch,
                      bool path) {
  if (!mt_stage_active(d, stage, microbatch)) return 0.0;
  const mt_stage *info = &d->stages[stage];
  double sum = mt_cost_seconds(costs, MT_COST_FORWARD, stage, microbatch);
  if (info->gate == MT_GATE_NONE) return sum;
  if (d->regions[info->region].replicated) {
    bool whole = (info->gate & MT_GATE_WEIGHTS) != 0;
    return sum + mt_cost_seconds(costs, whole ? MT_COST_BACKWARD : MT_COST_BACKWARD_X, stage, microbatch);
  }
  sum += mt_cost_seconds(costs, backward_kind(d, stage), stage, microbatch);
  if (mt_body_is_split(d, stage) && (info->gate & MT_GATE_WEIGHTS) != 0 && !path)
    sum += mt_cost_seconds(costs, MT_COST_BACKWARD_W, stage, microbatch);
  return sum;
}

/* Encodes that a step may find done are no work of it for certain. */
static bool is_ahead(const mt_derivation *d, int32_t stage) {
  const mt_region *region = &d->regions[d->stages[stage].region];
  return region->replicated && region->skeleton.order == MT_ORDER_AHEAD;
}

motet_status mt_order_open_bound(mt_arena *arena, const mt_derivation *d, const mt_cost_table *costs,
                                 motet_error *error, double *bound) {
  double *work = MT_ARENA_NEW(arena, double, d->ranks); /* of a rank's body */
  double *head = MT_ARENA_NEW(arena, double, d->ranks); /* forwards of the slabs before its first, the fastest */
  bool *seen = MT_ARENA_NEW(arena, bool, d->ranks);
  if (work == NULL || head == NULL || seen == NULL)
    return mt_error_memory(error, (unsigned long long)d->ranks * 17, "a lower bound");
  double most = 0.0, all = 0.0, before = 0.0;
  for (int32_t s = 0; s < d->stage_count; s++) {
    double shortest = INFINITY;
    bool first = s == 0 || d->stages[s].region != d->stages[s - 1].region;
    if (first) before = 0.0;
    for (int32_t m = 0; m < d->microbatches; m++) {
      double seconds = work_of(d, costs, s, m, false);
      int32_t rank = mt_stage_rank(d, s, m);
      if (!is_ahead(d, s)) all += seconds;
      shortest = fmin(shortest, mt_stage_active(d, s, m) ? mt_cost_seconds(costs, MT_COST_FORWARD, s, m) : 0.0);
      if (rank < 0) continue;
      if (!seen[rank]) head[rank] = before;
      seen[rank] = true;
      work[rank] += seconds;
    }
    before += shortest;
  }
  for (int32_t m = 0; m < d->microbatches; m++) {
    double path = 0.0;
    for (int32_t s = 0; s < d->stage_count; s++)
      if (d->stages[s].rank >= 0 && d->shared_ranks == d->ranks) path += work_of(d, costs, s, m, true);
    most = fmax(most, path);
  }
  for (int32_t r = 0; r < d->ranks; r++) most = fmax(most, head[r] + work[r]);
  *bound = fmax(most, all / d->ranks);
  return MOTET_OK;
}

/* A pipeline with encoders on abstract times, and a replay of orders that knows the rules of the program, not
 * the order floor. */
#ifndef ORDER_CASE_H
#define ORDER_CASE_H

#include "algebra/derive.h"
#include "base/arena.h"
#include "order/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline void assert_seconds_near(double a, double b) {
  if (!(a - b < 1e-9 && b - a < 1e-9)) fail_msg("%.12g is not %.12g", a, b);
}

typedef struct order_case {
  const char *schedule; /* e.g. "<transpose, 1f1b>" */
  int32_t ranks, microbatches;
  int32_t modules; /* default 2; the last but `sinks` is the trunk */
  int32_t sinks;   /* modules behind the trunk */
  bool trainable;  /* the encoders; the trunk always is */
  bool frozen_sinks;
  const double *encode; /* repeated over the microbatches; a further encoder takes it shifted by its number */
  int32_t encode_count;
  double forward, backward;         /* of a rank's share of the trunk */
  const double *stage_factors;      /* [P] or NULL: slow and fast ranks */
  const double *microbatch_factors; /* [M] or NULL */
  double encode_backward;           /* times the forward; default 2 */
  const uint64_t *present;
  mt_links links;
  int64_t bytes; /* of every output */
  double search_seconds;
} order_case;

typedef struct order_run {
  mt_arena *arena;
  mt_derivation *derivation;
  mt_cost_table costs;
  mt_order_options options;
  mt_order_result result;
} order_run;

static inline double *case_table(mt_arena *arena, mt_cost_table *table, mt_cost_kind kind, const mt_derivation *d) {
  table->seconds[kind] =
      (mt_cost_values){.values = MT_ARENA_NEW(arena, double, (int64_t)d->stage_count * d->microbatches),
                       .stage_stride = d->microbatches,
                       .microbatch_stride = 1};
  return table->seconds[kind].values;
}

static inline bool case_has(const mt_derivation *d, int32_t stage, int32_t module, int32_t microbatch) {
  return (d->stages[stage].modules >> module & 1) != 0 && (d->present[microbatch] >> module & 1) != 0;
}

static inline void case_costs(const order_case *c, order_run *run) {
  const mt_derivation *d = run->derivation;
  double *forward = case_table(run->arena, &run->costs, MT_COST_FORWARD, d);
  double *backward = case_table(run->arena, &run->costs, MT_COST_BACKWARD, d);
  double *input = case_table(run->arena, &run->costs, MT_COST_BACKWARD_X, d);
  int32_t modules = c->modules == 0 ? 2 : c->modules, trunk = modules - 1 - c->sinks;
  double ratio = c->encode_backward == 0.0 ? 2.0 : c->encode_backward;
  for (int32_t s = 0; s < d->stage_count; s++)
    for (int32_t m = 0; m < d->microbatches; m++) {
      int64_t i = (int64_t)s * d->microbatches + m;
      double factor = 1.0;
      if (c->stage_factors != NULL && d->stages[s].rank >= 0) factor *= c->stage_factors[d->stages[s].rank];
      if (c->microbatch_factors != NULL) factor *= c->microbatch_factors[m];
      for (int32_t j = 0; j < modules; j++) {
        if (!case_has(d, s, j, m)) continue;
        double e = c->encode_count > 0 ? c->encode[(m + j) % c->encode_count] : 0.0;
        bool trains = j < trunk ? c->trainable : j == trunk || !c->frozen_sinks;
        double part = d->stages[s].share > 0 && d->stages[s].rank >= 0 ? d->stages[s].share : 1.0;
        forward[i] += j == trunk ? c->forward * factor * part : e;
        if (trains || j > trunk) {
          backward[i] += j == trunk ? c->backward * factor * part : ratio * e;
          input[i] += j == trunk ? c->backward / 2 * factor * part : ratio / 2 * e;
        }
      }
    }
}

static inline void case_derive(const order_case *c, order_run *run) {
  *run = (order_run){.arena = mt_arena_create()};
  static const char *const names[] = {"m0", "m1", "m2", "m3", "m4", "m5"};
  int32_t layers[6], modules = c->modules == 0 ? 2 : c->modules, trunk = modules - 1 - c->sinks;
  bool trainable[6];
  motet_error error;
  for (int32_t j = 0; j < modules; j++) {
    layers[j] = j == trunk ? c->ranks * 6 : 1;
    trainable[j] = j < trunk ? c->trainable : j == trunk || !c->frozen_sinks;
  }
  mt_model *model;
  mt_schedule *schedule;
  if (mt_model_abstract(run->arena, modules, names, layers, trainable, &error, &model) != MOTET_OK)
    fail_msg("%s", error.text);
  if (trunk > 1) { /* encoders side by side */
    model->edge_count = 0;
    for (int32_t j = 0; j < trunk; j++) model->edges[model->edge_count++] = (mt_module_edge){j, trunk};
    if (c->sinks > 0) model->edges[model->edge_count++] = (mt_module_edge){trunk, trunk + 1};
  }
  if (mt_schedule_parse(run->arena, c->schedule, &error, &schedule) != MOTET_OK)
    fail_msg("%s: %s", c->schedule, error.text);
  mt_derive_request request = {.model = model,
                               .schedule = schedule,
                               .ranks = c->ranks,
                               .microbatches = c->microbatches,
                               .present = c->present};
  if (mt_derive(run->arena, &request, &error, &run->derivation) != MOTET_OK)
    fail_msg("%s: %s", c->schedule, error.text);
  case_costs(c, run);
  run->costs.links = c->links;
  run->options.search_seconds = c->search_seconds;
  if (c->bytes > 0) {
    int64_t *bytes = MT_ARENA_NEW(run->arena, int64_t, 1);
    *bytes = c->bytes;
    run->options.output_bytes = (motet_size_table){.values = bytes};
  }
}

static inline void case_order(const order_case *c, order_run *run) {
  case_derive(c, run);
  motet_error error;
  if (mt_order_make(run->arena, run->derivation, &run->costs, &run->options, &error, &run->result) != MOTET_OK)
    fail_msg("%s: %s", c->schedule, error.text);
}

static inline void case_end(order_run *run) { mt_arena_destroy(run->arena); }

/* ---- the replay ---- */

typedef struct replay {
  const order_run *run;
  double *forward_end, *backward_end; /* [stages * M] -1: not yet */
  int32_t *where;                     /* [stages * M] rank of the forward */
  double makespan;
} replay;

static inline double replay_transfer(const replay *p, int32_t from, int32_t to) {
  const mt_links *links = &p->run->costs.links;
  if (from == to) return 0.0;
  int64_t bytes = p->run->options.output_bytes.values != NULL ? p->run->options.output_bytes.values[0] : 0;
  bool inside = links->ranks_per_node <= 0 || from / links->ranks_per_node == to / links->ranks_per_node;
  mt_link link = inside ? links->local : links->remote;
  return link.latency_seconds + (link.bytes_per_second > 0 ? (double)bytes / link.bytes_per_second : 0.0);
}

/* Earliest start of an event on @p rank, or -1 while an input is missing. */
static inline double replay_ready(const replay *p, mt_event event, int32_t rank) {
  const mt_derivation *d = p->run->derivation;
  double ready = 0.0;
  int64_t M = d->microbatches;
  bool forward = event.kind == MOTET_FWD;
  if (!forward && event.kind != MOTET_BWD_W) {
    double own = p->forward_end[event.stage * M + event.microbatch];
    if (own < 0) return -1;
    if (own > ready) ready = own;
  }
  for (int32_t e = 0; e < d->edge_count; e++) {
    mt_edge edge = d->edges[e];
    if (forward ? edge.to != event.stage : edge.from != event.stage || !edge.gradient) continue;
    int32_t other = forward ? edge.from : edge.to;
    if (!mt_stage_active(d, other, event.microbatch)) continue;
    int64_t cell = other * M + event.microbatch;
    double end = forward ? p->forward_end[cell] : p->backward_end[cell];
    if (end < 0) return -1;
    end += replay_transfer(p, p->where[cell], rank);
    if (end > ready) ready = end;
  }
  if (forward && p->run->result.order.barrier)
    for (int32_t e = 0; e < d->edge_count; e++) {
      mt_edge edge = d->edges[e];
      if (edge.to != event.stage || d->stages[edge.from].rank >= 0) continue;
      for (int32_t m = 0; m < d->microbatches; m++) {
        if (!mt_stage_active(d, edge.from, m)) continue;
        double end = p->forward_end[edge.from * M + m];
        if (end < 0) return -1;
        end += replay_transfer(p, p->where[edge.from * M + m], rank);
        if (end > ready) ready = end;
      }
    }
  return ready;
}

static inline double replay_order(const order_run *run, replay *p) {
  const mt_derivation *d = run->derivation;
  const mt_order *order = &run->result.order;
  int64_t cells = (int64_t)d->stage_count * d->microbatches;
  *p = (replay){.run = run,
                .forward_end = MT_ARENA_NEW(run->arena, double, cells),
                .backward_end = MT_ARENA_NEW(run->arena, double, cells),
                .where = MT_ARENA_NEW(run->arena, int32_t, cells)};
  for (int64_t i = 0; i < cells; i++) p->forward_end[i] = p->backward_end[i] = -1;
  for (int32_t i = 0; i < order->carried_count; i++) {
    int64_t cell = (int64_t)order->carried[i].stage * d->microbatches + order->carried[i].microbatch;
    p->forward_end[cell] = 0.0;
    p->where[cell] = order->carried[i].rank;
  }
  int64_t *at = MT_ARENA_NEW(run->arena, int64_t, d->ranks);
  double *clock = MT_ARENA_NEW(run->arena, double, d->ranks);
  memcpy(at, order->begin, (size_t)d->ranks * sizeof *at);
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t r = 0; r < d->ranks; r++)
      for (; at[r] < order->begin[r + 1]; at[r]++) {
        mt_event event = order->events[at[r]];
        double start = event.next ? 0.0 : replay_ready(p, event, r);
        if (start < 0) break;
        if (clock[r] > start) start = clock[r];
        mt_cost_kind kind = event.kind == MOTET_FWD   ? MT_COST_FORWARD
                            : event.kind == MOTET_BWD ? MT_COST_BACKWARD
                                                      : MT_COST_BACKWARD_X;
        double end = start + mt_cost_seconds(&run->costs, kind, event.stage, event.microbatch);
        if (order->start != NULL && !(start - order->start[at[r]] < 1e-9 && order->start[at[r]] - start < 1e-9))
          fail_msg("rank %d event %lld starts at %g, the order says %g", r, (long long)at[r], start,
                   order->start[at[r]]);
        clock[r] = end;
        if (end > p->makespan) p->makespan = end;
        moved = true;
        if (event.next) continue;
        int64_t cell = (int64_t)event.stage * d->microbatches + event.microbatch;
        if (event.kind == MOTET_FWD)
          p->forward_end[cell] = end;
        else
          p->backward_end[cell] = end;
        p->where[cell] = r;
      }
  }
  for (int32_t r = 0; r < d->ranks; r++)
    if (at[r] != order->begin[r + 1]) fail_msg("rank %d hangs at event %lld", r, (long long)at[r]);
  return p->makespan;
}

#endif

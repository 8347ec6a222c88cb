/* Plans at random, derived, ordered and lowered as users' plans are. */
#include "program_builder.h"

#include "order/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TERM_SIZE = 96, REPLICAS_MAX = 3 };

typedef struct plan_draw {
  mt_random *random;
  mt_arena *arena;
  mt_model *model;
  int32_t ranks, microbatches, trunk;
  bool windowed;
  int32_t manner;             /* of all transposed regions: fill, windows, prefix */
  int32_t batch, trunk_batch; /* microbatches at a time: of transposed regions, of those that share the ranks */
  char *schedule;             /* [PLAN_TEXT_SIZE] */
} plan_draw;

static int32_t below(plan_draw *d, int32_t bound) { return (int32_t)mt_random_below(d->random, (uint64_t)bound); }

/* Encoders, perhaps one with a projector, a trunk that all feed, perhaps a generator. */
static void draw_model(plan_draw *d) {
  static const char *const encoder_names[] = {"vision", "audio"};
  int32_t encoders = below(d, 3), projector = encoders > 0 && below(d, 3) == 0, generator = below(d, 5) == 0;
  int32_t modules = encoders + projector + 1 + generator, layers = 0, manner = below(d, 4);
  mt_model *model = MT_ARENA_NEW(d->arena, mt_model, 1);
  d->model = model;
  d->trunk = encoders + projector;
  model->module_count = modules;
  model->modules = MT_ARENA_NEW(d->arena, mt_module, modules);
  model->edges = MT_ARENA_NEW(d->arena, mt_module_edge, modules);
  model->layers = MT_ARENA_NEW(d->arena, mt_layer, 64);
  for (int32_t i = 0; i < modules; i++) {
    mt_module *module = &model->modules[i];
    int32_t count = 1 + below(d, i == d->trunk ? 9 : 4);
    bool trains = below(d, 2) == 0, is_projector = projector && i == encoders;
    *module = (mt_module){.name = i < encoders    ? encoder_names[i]
                                  : is_projector  ? "projector"
                                  : i == d->trunk ? "llm"
                                                  : "generator",
                          .layer_begin = layers,
                          .layer_end = layers + count,
                          .inputs = i < encoders    ? MOTET_INPUT_PIXELS
                                    : i == d->trunk ? MOTET_INPUT_TOKENS
                                                    : 0};
    for (; layers < module->layer_end; layers++)
      model->layers[layers] = (mt_layer){
          .name = "layer", .module = i, .trainable = manner == 0 ? below(d, 2) == 0 : manner == 1 || trains};
    if (i != d->trunk && !(i > d->trunk)) {
      bool feeds_projector = projector && i == encoders - 1;
      model->edges[model->edge_count++] = (mt_module_edge){i, feeds_projector ? i + 1 : d->trunk};
    }
    if (i > d->trunk) model->edges[model->edge_count++] = (mt_module_edge){d->trunk, i};
  }
  model->layer_count = layers;
  model->last_inputs = MOTET_INPUT_LABELS;
  const mt_module *trunk = &model->modules[d->trunk];
  bool same = model->layers[trunk->layer_begin].trainable == model->layers[trunk->layer_end - 1].trainable;
  model->tied_embeddings = !generator && same && below(d, 4) == 0;
}

/* Gives a skeleton's text the option batch=n. */
static void add_batch(char text[TERM_SIZE], int32_t batch) {
  size_t length = strlen(text);
  bool options = text[length - 1] == ')';
  if (batch == 1 || strcmp(text, "inline") == 0) return;
  if (options) length--;
  snprintf(text + length, TERM_SIZE - length, "%sbatch=%d)", options ? ", " : "(", batch);
}

static void draw_skeleton(plan_draw *d, int32_t module, char text[TERM_SIZE]) {
  if (module == d->trunk) {
    static const char *const trunks[] = {"1f1b", "1f1b(virtual=2)", "1f1b", "gpipe"};
    snprintf(text, TERM_SIZE, "%s", trunks[below(d, 4)]);
    add_batch(text, d->trunk_batch);
    return;
  }
  /* All transposed regions of a plan share a manner: fill, windows, prefix. */
  static const char *const others[3][8] = {
      {"inline", "1f1b", "1f1b(virtual=2)", "transpose", "transpose(owner=round-robin)", "transpose(order=ahead)"},
      {"inline", "1f1b", "1f1b(virtual=2)", "transpose(window=3)", "transpose(window=3)", "transpose(window=3)"},
      {"inline", "1f1b", "1f1b(virtual=2)", "transpose(order=prefix)", "transpose(order=prefix, owner=balanced)",
       "transpose(order=prefix)"},
  };
  /* Behind the trunk there is nothing to encode before the body. */
  bool none = (module > d->trunk && d->manner == 2) || d->windowed;
  snprintf(text, TERM_SIZE, "%s", others[d->manner][below(d, none ? 3 : 6)]);
  d->windowed = d->windowed || strstr(text, "window") != NULL; /* one window a plan */
  add_batch(text, strstr(text, "transpose") != NULL ? d->batch : d->trunk_batch);
}

/* A region with ranks of its own, in one to three pipelines. */
static void draw_dedicated(plan_draw *d, char text[TERM_SIZE]) {
  static const char *const inner[] = {"1f1b", "gpipe", "1f1b, virtual=2"};
  int32_t data = 1 + below(d, 3), ranks = data * (1 + below(d, 2));
  snprintf(text, TERM_SIZE, "dedicate(ranks=%d, data=%d, inner=%s)", ranks, data, inner[below(d, 3)]);
  add_batch(text, 1 + below(d, 3));
  d->ranks += ranks;
}

static void draw_schedule(plan_draw *d) {
  bool dedicates = below(d, 4) == 0;
  d->manner = below(d, 3);
  d->batch = below(d, 2) == 0 ? 1 + below(d, 4) : 1;
  d->trunk_batch = below(d, 4) == 0 ? 2 : 1;
  size_t length = 0;
  char skeleton[TERM_SIZE];
  for (int32_t i = 0; i < d->model->module_count; i++) {
    const char *name = d->model->modules[i].name, *joined = "";
    if (i + 1 < d->model->module_count && strcmp(d->model->modules[i + 1].name, "projector") == 0 &&
        below(d, 2) == 0)
      joined = "+projector";
    if (dedicates && i != d->trunk && below(d, 2) == 0)
      draw_dedicated(d, skeleton);
    else
      draw_skeleton(d, i, skeleton);
    length += (size_t)snprintf(d->schedule + length, PLAN_TEXT_SIZE - length, "%s%s%s: %s", i == 0 ? "<" : ", ",
                               name, joined, skeleton);
    if (joined[0] != '\0') i++;
  }
  snprintf(d->schedule + length, PLAN_TEXT_SIZE - length, ">");
}

static void fill_costs(plan_draw *d, const mt_derivation *derivation, mt_cost_table *costs) {
  for (int kind = 0; kind < MT_COST_KINDS; kind++) {
    int64_t count = (int64_t)derivation->stage_count * d->microbatches;
    double *values = MT_ARENA_NEW(d->arena, double, count);
    for (int64_t i = 0; i < count; i++) values[i] = 0.5 + mt_random_unit(d->random);
    costs->seconds[kind] =
        (mt_cost_values){.values = values, .stage_stride = d->microbatches, .microbatch_stride = 1};
  }
}

static int64_t close_run(const mt_event *open, int32_t *opened, mt_event *events, int64_t written) {
  do events[written] = open[--*opened];
  while (events[written++].joined);
  return written;
}

/* Some of the whole backwards that train become two halves, the second anywhere behind the first. */
static void split_backwards(plan_draw *d, const mt_derivation *derivation, mt_order *order) {
  int64_t total = order->begin[derivation->ranks], written = 0;
  mt_event *events = MT_ARENA_NEW(d->arena, mt_event, 2 * total), *open = MT_ARENA_NEW(d->arena, mt_event, total);
  int64_t *begin = MT_ARENA_NEW(d->arena, int64_t, derivation->ranks + 1);
  for (int32_t rank = 0; rank < derivation->ranks; rank++) {
    int32_t opened = 0;
    for (int64_t i = order->begin[rank]; i < order->begin[rank + 1]; i++) {
      int64_t last = i;
      while (order->events[last].joined) last++;
      bool splits = order->events[i].kind == MOTET_BWD;
      for (int64_t k = last; splits && k >= i; k--) {
        open[opened] = order->events[k]; /* the last of a run first, so that it is taken out in its order */
        open[opened++].kind = MOTET_BWD_W;
      }
      for (; i <= last; i++) {
        events[written] = order->events[i];
        if (splits) events[written].kind = MOTET_BWD_X;
        written++;
      }
      i--;
      while (opened > 0 && below(d, 3) == 0) written = close_run(open, &opened, events, written);
    }
    while (opened > 0) written = close_run(open, &opened, events, written);
    begin[rank + 1] = written;
  }
  order->begin = begin;
  order->events = events;
  order->start = NULL;
}

static motet_size_table draw_sizes(plan_draw *d, const mt_derivation *derivation) {
  int64_t count = (int64_t)derivation->stage_count * d->microbatches;
  motet_size_table table = {MT_ARENA_NEW(d->arena, int64_t, count), d->microbatches, 1};
  for (int64_t i = 0; i < count; i++) table.values[i] = below(d, 1000);
  return table;
}

/* One replica: its own masks, costs and order. False where the schedule is illegal. */
static bool draw_replica(plan_draw *d, const mt_schedule *schedule, mt_replica *replica, motet_error *error) {
  uint64_t *present = MT_ARENA_NEW(d->arena, uint64_t, d->microbatches);
  uint64_t *cached = MT_ARENA_NEW(d->arena, uint64_t, d->microbatches);
  uint64_t all = (UINT64_C(1) << d->model->module_count) - 1, always = UINT64_C(1) << d->trunk;
  bool masks = below(d, 2) == 0, caches = below(d, 8) == 0;
  for (int32_t i = 0; i < d->microbatches; i++) {
    present[i] = masks ? (mt_random_bits(d->random) & all) | always : all;
    cached[i] = caches ? mt_random_bits(d->random) & present[i] & ~always : 0;
  }
  mt_derive_request request = {.model = d->model,
                               .schedule = schedule,
                               .ranks = d->ranks,
                               .microbatches = d->microbatches,
                               .present = present,
                               .cached = cached};
  mt_derivation *derivation;
  if (mt_derive(d->arena, &request, error, &derivation) != MOTET_OK) return false;
  mt_cost_table costs = {0};
  fill_costs(d, derivation, &costs);
  mt_order_options options = {.search_seconds = -1};
  mt_order_result *result = MT_ARENA_NEW(d->arena, mt_order_result, 1);
  if (mt_order_make(d->arena, derivation, &costs, &options, error, result) != MOTET_OK) return false;
  if (below(d, 4) == 0) split_backwards(d, derivation, &result->order);
  *replica = (mt_replica){.derivation = derivation, .order = &result->order};
  replica->sizes.saved_bytes = draw_sizes(d, derivation);
  replica->sizes.output_bytes = draw_sizes(d, derivation);
  replica->sizes.tied_bytes = 77;
  return true;
}

motet_program *plan_draw_program(mt_random *random, char schedule_text[PLAN_TEXT_SIZE], motet_error *error) {
  plan_draw d = {.random = random, .arena = mt_arena_create(), .schedule = schedule_text};
  motet_error_clear(error);
  d.ranks = 1 + below(&d, 5);
  d.microbatches = 1 + below(&d, 9);
  int32_t replica_count = 1 + below(&d, REPLICAS_MAX);
  draw_model(&d);
  draw_schedule(&d);
  mt_schedule *schedule;
  mt_replica replicas[REPLICAS_MAX];
  motet_program *program = NULL;
  bool good = mt_schedule_parse(d.arena, d.schedule, error, &schedule) == MOTET_OK;
  for (int32_t i = 0; i < replica_count && good; i++) {
    good = draw_replica(&d, schedule, &replicas[i], error);
    /* No order exists, for example with a window too narrow between two Sharded regions. */
    if (!good && error->status == MOTET_ERROR_ARGUMENT) error->status = MOTET_ERROR_ILLEGAL;
  }
  if (good) (void)mt_program_lower(replicas, replica_count, error, &program);
  mt_arena_destroy(d.arena);
  return program;
}

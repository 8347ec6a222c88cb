#include "search/bound.h"

#include "algebra/skeleton.h"

#include <math.h>
#include <string.h>

double mt_search_sum(const double *values, int32_t begin, int32_t end) {
  double sum = 0.0;
  for (int32_t i = begin; i < end; i++) sum += values[i];
  return sum;
}

/* ---- layers ---- */

static bool same_class(const mt_search_space *space, int32_t a, int32_t b) {
  const mt_layer *layers = space->problem->architecture->model->layers;
  return layers[a].kind == layers[b].kind && layers[a].module == layers[b].module &&
         layers[a].trainable == layers[b].trainable && space->passes[a] == space->passes[b] &&
         mt_search_reached(space, a) == mt_search_reached(space, b);
}

/* A layer's times for @p count microbatches of one shape at a time, a microbatch's part of them. */
static void measure_part(const mt_forecast *forecast, int32_t layer, const double *extents, double count,
                         mt_layer_forecast *part) {
  double all[MT_EXTENTS];
  for (int e = 0; e < MT_EXTENTS; e++) all[e] = count * extents[e];
  mt_forecast_layer(forecast, layer, all, part);
  double *const seconds[] = {&part->forward,          &part->input_gradient, &part->weight_gradient,
                             &part->forward_exchange, &part->input_exchange, &part->weight_exchange};
  for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) *seconds[i] /= count;
}

/* The least of each in runs of at most @p batch. */
static void measure_runs(const mt_forecast *forecast, int32_t layer, const double *extents, int32_t batch,
                         mt_layer_forecast *least) {
  for (int32_t count = 2; count <= batch; count++) {
    mt_layer_forecast f;
    measure_part(forecast, layer, extents, count, &f);
    least->forward = fmin(least->forward, f.forward);
    least->input_gradient = fmin(least->input_gradient, f.input_gradient);
    least->weight_gradient = fmin(least->weight_gradient, f.weight_gradient);
    least->forward_exchange = fmin(least->forward_exchange, f.forward_exchange);
    least->input_exchange = fmin(least->input_exchange, f.input_exchange);
    least->weight_exchange = fmin(least->weight_exchange, f.weight_exchange);
  }
}

/* Whether a layer has as much to do for each microbatch. */
static bool is_even(const mt_search_space *space, const mt_search_batch *batch, int32_t layer) {
  const mt_architecture *architecture = space->problem->architecture;
  const mt_layer_design *design = &architecture->designs[architecture->model->layers[layer].kind];
  bool used[MT_EXTENTS] = {false};
  for (int32_t p = 0; p < design->product_count; p++) used[design->products[p].rows] = true;
  for (int e = 0; e < MT_EXTENTS; e++)
    used[e] |= design->rates[e].forward_flops > 0 || design->rates[e].moved_bytes > 0 ||
               design->rates[e].output_bytes > 0 || design->rates[e].heads > 0;
  for (int32_t k = 1; k < batch->kinds; k++)
    for (int e = 0; e < MT_EXTENTS; e++)
      if (used[e] && batch->extents[batch->first[k]][e] != batch->extents[batch->first[0]][e]) return false;
  return true;
}

/* A run of so many that only work counts: no partial tiles, launches, or gathered weights. However microbatches are
 * put together, a layer does no less for each. */
static const double MANY = 0x1p20;

static void measure_class(const mt_search_space *space, const mt_forecast *forecast, int32_t layer, int32_t class,
                          int32_t together, mt_search_table *table) {
  const mt_search_batch *batch = table->batch;
  bool even = together == 1 || is_even(space, batch, layer);
  table->limit |= !even;
  bool trains = space->problem->architecture->model->layers[layer].trainable;
  for (int32_t k = 0; k < batch->kinds; k++) {
    mt_layer_forecast f;
    int64_t at = (int64_t)k * table->classes + class;
    const double *extents = batch->extents[batch->first[k]];
    mt_forecast_layer(forecast, layer, extents, &f);
    int64_t saved = trains ? f.saved_bytes : f.passed_bytes;
    if (mt_search_reached(space, layer) && saved > table->saved[class]) table->saved[class] = saved;
    if (even)
      measure_runs(forecast, layer, extents, together, &f);
    else
      measure_part(forecast, layer, extents, MANY, &f);
    table->forward[at] = f.forward + f.forward_exchange;
    if (!mt_search_reached(space, layer)) continue;
    if (space->passes[layer]) table->input[at] = f.input_gradient + f.input_exchange;
    if (trains) table->weight[at] = f.weight_gradient + f.weight_exchange;
  }
}

motet_status mt_search_table_make(mt_arena *arena, const mt_search_space *space,
                                  const mt_search_candidate *candidate, motet_error *error,
                                  mt_search_table *table) {
  const mt_architecture *architecture = space->problem->architecture;
  const mt_model *model = architecture->model;
  mt_search_batch *batch = mt_search_space_batch(space, candidate->microbatch);
  mt_parallel *parallels = MT_ARENA_NEW(arena, mt_parallel, model->module_count);
  *table = (mt_search_table){.batch = batch, .class_of = MT_ARENA_NEW(arena, int32_t, model->layer_count)};
  if (parallels == NULL || table->class_of == NULL)
    return mt_error_memory(error, (unsigned long long)model->layer_count * 4, "layers' times");
  for (int32_t l = 0; l < model->layer_count; l++) {
    table->classes += l == 0 || !same_class(space, l - 1, l);
    table->class_of[l] = table->classes - 1;
  }
  int64_t cells = (int64_t)batch->kinds * table->classes;
  table->forward = MT_ARENA_NEW(arena, double, cells);
  table->input = MT_ARENA_NEW(arena, double, cells);
  table->weight = MT_ARENA_NEW(arena, double, cells);
  table->saved = MT_ARENA_NEW(arena, int64_t, table->classes);
  table->kind_seconds = MT_ARENA_NEW(arena, double, batch->kinds);
  if (table->forward == NULL || table->input == NULL || table->weight == NULL || table->saved == NULL ||
      table->kind_seconds == NULL)
    return mt_error_memory(error, (unsigned long long)cells * 24, "layers' times");
  mt_search_parallels(space, candidate, parallels);
  mt_forecast forecast = {.architecture = architecture,
                          .cluster = &space->problem->cluster,
                          .parallel = parallels,
                          .fit = mt_collective_fit_usual(),
                          .microbatches = 1};
  for (int32_t l = 0; l < model->layer_count; l++) {
    int32_t class = table->class_of[l];
    int32_t together = model->layers[l].module < space->trunk ? candidate->encoder_batch : 1;
    if (l == 0 || class != table->class_of[l - 1]) measure_class(space, &forecast, l, class, together, table);
    for (int32_t k = 0; k < batch->kinds; k++) {
      int64_t at = (int64_t)k * table->classes + class;
      table->kind_seconds[k] += table->forward[at] + table->input[at] + table->weight[at];
    }
  }
  return MOTET_OK;
}

/* ---- the replica with most to do ---- */

int32_t mt_search_together(const mt_search_candidate *c) {
  int32_t cell = c->tensor * c->ulysses * c->ring, group = c->shard_devices / cell;
  if (c->zero < 2) return 1;
  return c->shard_devices == 0 || group > c->data ? c->data : group > 1 ? group : 1;
}

/* Deals the step's microbatches out to replicas and takes the one that computes longest, or of groups of replicas
 * the one whose slowest at each place do; heaviest first. */
static motet_status choose_replica(mt_arena *arena, const mt_search_table *table, motet_error *error,
                                   mt_search_load *load) {
  const mt_search_batch *batch = table->batch;
  int32_t each = load->microbatches, groups = load->data / load->together, busiest = 0;
  if (batch->kinds == 1) {
    for (int32_t i = 0; i < each; i++) load->microbatch[i] = i;
    return MOTET_OK;
  }
  double *sum = MT_ARENA_NEW(arena, double, groups);
  int32_t *held = MT_ARENA_NEW(arena, int32_t, load->data);
  int32_t *worst = MT_ARENA_NEW(arena, int32_t, (int64_t)groups * each); /* (groups, places) */
  const int32_t *owner = mt_search_batch_owners(arena, table->batch, load->data);
  if (sum == NULL || held == NULL || worst == NULL || owner == NULL)
    return mt_error_memory(error, (unsigned long long)batch->count * 4, "replicas");
  for (int64_t i = 0; i < (int64_t)groups * each; i++) worst[i] = -1;
  for (int32_t i = 0; i < batch->count; i++) {
    int32_t group = owner[i] / load->together, *place = &worst[(int64_t)group * each + held[owner[i]]++];
    if (*place < 0 || table->kind_seconds[batch->kind[i]] > table->kind_seconds[batch->kind[*place]]) *place = i;
  }
  for (int32_t g = 0; g < groups; g++) {
    for (int32_t k = 0; k < each; k++) sum[g] += table->kind_seconds[batch->kind[worst[(int64_t)g * each + k]]];
    if (sum[g] > sum[busiest]) busiest = g;
  }
  /* The lightest and heaviest take turns, so that no two heavy ones meet. */
  int32_t front = 0, back = each;
  for (int32_t k = 0; k < each; k++)
    load->microbatch[k % 2 == 0 ? --back : front++] = worst[(int64_t)busiest * each + k];
  return MOTET_OK;
}

motet_status mt_search_load_make(mt_arena *arena, const mt_search_space *space, const mt_search_table *table,
                                 int32_t data, int32_t together, motet_error *error, mt_search_load *load) {
  const mt_search_batch *batch = table->batch;
  int32_t layers = space->problem->architecture->model->layer_count, each = batch->count / data;
  *load = (mt_search_load){.data = data,
                           .microbatches = each,
                           .together = together,
                           .microbatch = MT_ARENA_NEW(arena, int32_t, each),
                           .forward = MT_ARENA_NEW(arena, double, layers),
                           .backward = MT_ARENA_NEW(arena, double, layers),
                           .least_forward = MT_ARENA_NEW(arena, double, layers),
                           .least_backward = MT_ARENA_NEW(arena, double, layers)};
  double *number = MT_ARENA_NEW(arena, double, batch->kinds);
  if (load->microbatch == NULL || load->forward == NULL || load->backward == NULL || load->least_forward == NULL ||
      load->least_backward == NULL || number == NULL)
    return mt_error_memory(error, (unsigned long long)layers * 32, "a replica's work");
  motet_status status = choose_replica(arena, table, error, load);
  if (status != MOTET_OK) return status;
  for (int32_t i = 0; i < each; i++) number[batch->kind[load->microbatch[i]]] += 1.0;
  for (int32_t l = 0; l < layers; l++) load->least_forward[l] = load->least_backward[l] = INFINITY;
  for (int32_t k = 0; k < batch->kinds; k++) {
    double way = 0.0;
    if (number[k] <= 0) continue;
    for (int32_t l = 0; l < layers; l++) {
      int64_t at = (int64_t)k * table->classes + table->class_of[l];
      double forward = table->forward[at], backward = table->input[at] + table->weight[at];
      load->forward[l] += number[k] * forward;
      load->backward[l] += number[k] * backward;
      load->least_forward[l] = fmin(load->least_forward[l], forward);
      load->least_backward[l] = fmin(load->least_backward[l], backward);
      way += forward + table->input[at];
    }
    load->way_split = fmax(load->way_split, way);
    load->way = fmax(load->way, table->kind_seconds[k]);
  }
  return MOTET_OK;
}

/* ---- bounds ---- */

/* A microbatch's way to the layers that the pipeline cuts and, with whole backwards, back from them: through
 * encoders that no layer of a stage stands before. Encoders side by side are gone through at once. */
static double way_to_cut(const mt_search_space *space, const mt_search_load *load, bool split, int32_t begin) {
  const mt_model *model = space->problem->architecture->model;
  double most = 0.0, way = 0.0;
  for (int32_t j = 0; j < space->trunk && begin > 0; j++) {
    int32_t from = model->modules[j].layer_begin, to = model->modules[j].layer_end;
    double own = mt_search_sum(load->least_forward, from, to);
    if (!split) own += mt_search_sum(load->least_backward, from, to);
    way = space->chain ? way + own : own;
    most = fmax(most, way);
  }
  return most;
}

/* Whether @p stages stages can each force less than @p limit: their work, and the way of a microbatch to them and,
 * with whole backwards, back. A stage takes as many layers as it may (see partition.c). */
static bool limit_holds(const mt_search_load *load, bool split, int32_t begin, int32_t end, int32_t stages,
                        double way, double limit) {
  int32_t layer = begin;
  for (int32_t s = 0; s < stages && layer < end; s++) {
    double work = way;
    for (; layer < end; layer++) {
      work += load->forward[layer] + load->backward[layer];
      if (work > limit) break;
      way += load->least_forward[layer] + (split ? 0.0 : load->least_backward[layer]);
    }
  }
  return layer == end;
}

static double pipeline_limit(const mt_search_load *load, bool split, int32_t begin, int32_t end, int32_t stages,
                             double way) {
  double low = 0.0,
         high = way + (mt_search_sum(load->forward, begin, end) + mt_search_sum(load->backward, begin, end)) * 2;
  for (int i = 0; i < 30; i++) {
    double middle = 0.5 * (low + high);
    if (limit_holds(load, split, begin, end, stages, way, middle))
      high = middle;
    else
      low = middle;
  }
  return low;
}

/* Several chunks a rank: rank r begins behind the first chunks of r ranks, of a layer or more each, and with whole
 * backwards has their way back behind it. So the ranks together have all of the work, and wait for the sum of
 * these. */
static double chunks_limit(const mt_search_load *load, bool split, int32_t begin, int32_t end, int32_t ranks,
                           double way) {
  double sum = mt_search_sum(load->forward, begin, end) + mt_search_sum(load->backward, begin, end);
  for (int32_t r = 0; r < ranks; r++) {
    sum += way;
    way += load->least_forward[begin + r] + (split ? 0.0 : load->least_backward[begin + r]);
  }
  return sum / ranks;
}

double mt_search_bound(const mt_search_space *space, const mt_search_load *load, const mt_search_candidate *c) {
  const mt_model *model = space->problem->architecture->model;
  int32_t trunk = model->modules[space->trunk].layer_begin, layers = model->layer_count, begin, end;
  bool split = mt_skeleton_rows[c->trunk].split;
  double encoders = mt_search_sum(load->forward, 0, trunk) + mt_search_sum(load->backward, 0, trunk);
  double rest = mt_search_sum(load->forward, trunk, layers) + mt_search_sum(load->backward, trunk, layers);
  double bound = (encoders + rest) / mt_search_cells(space, c);
  mt_search_cut(space, c, &begin, &end);
  if (c->dedicated > 0) bound = fmax(encoders / (mt_search_cells(space, c) - c->pipeline), rest / c->pipeline);
  double way = way_to_cut(space, load, split, begin);
  bound = fmax(bound, c->chunks == 1 ? pipeline_limit(load, split, begin, end, c->pipeline, way)
                                     : chunks_limit(load, split, begin, end, c->pipeline, way));
  return fmax(bound, split ? load->way_split : load->way);
}

/* What a trunk leaves idle of what 1F1B does, with f = x = w (arXiv 2401.10241, 2405.15362): where to look first.
 */
static double idle_part(mt_skeleton_kind trunk) {
  static const double parts[MT_SKELETON_KINDS] = {
      [MT_SKELETON_1F1B] = 1.0,      [MT_SKELETON_ZB1P] = 1.0 / 3, [MT_SKELETON_FOLD] = 1.0,
      [MT_SKELETON_VHALF] = 2.0 / 3, [MT_SKELETON_VMIN] = 4.0 / 3, [MT_SKELETON_DUALPIPEV] = 1.0 / 3};
  return parts[trunk];
}

double mt_search_estimate(const mt_search_space *space, const mt_search_load *load, const mt_search_candidate *c) {
  int32_t begin, end;
  mt_search_cut(space, c, &begin, &end);
  if (c->manner == MT_MANNER_INLINE) begin = 0;
  double work = mt_search_sum(load->forward, begin, end) + mt_search_sum(load->backward, begin, end);
  double idle = idle_part(c->trunk) * (c->pipeline + c->dedicated - 1) / ((double)c->microbatches * c->chunks);
  return fmax(c->bound, work / c->pipeline * (1.0 + idle));
}

/* ---- memory ---- */

double mt_search_least_bytes(const mt_search_space *space, const mt_search_table *table,
                             const mt_search_candidate *c, mt_parallel *parallels) {
  const mt_architecture *architecture = space->problem->architecture;
  const mt_model *model = architecture->model;
  mt_search_parallels(space, c, parallels);
  mt_search_place_optimizer(space, mt_search_may_save(space->problem, MT_SEARCH_OPTIMIZER), parallels);
  mt_forecast forecast = {
      .architecture = architecture, .cluster = &space->problem->cluster, .parallel = parallels, .microbatches = 1};
  int32_t trunk = model->modules[space->trunk].layer_begin;
  mt_span encoders = {.layer_end = trunk}, rest = {.layer_begin = trunk, .layer_end = model->layer_count};
  mt_state_forecast first = {0}, second;
  if (trunk > 0) mt_forecast_state(&forecast, &encoders, 0, &first);
  mt_forecast_state(&forecast, &rest, 0, &second);
  double a = (double)first.static_bytes, b = (double)second.static_bytes / c->pipeline, layer = 0.0;
  double held = c->manner == MT_MANNER_TRANSPOSE  ? a + b
                : c->manner == MT_MANNER_DEDICATE ? fmax(a, b)
                                                  : b + a / c->pipeline;
  /* A layer's backward has all that its forward saved, kept or restored. */
  for (int32_t l = 0; l < table->classes; l++) layer = fmax(layer, (double)table->saved[l]);
  return fmax(held, layer);
}

#include "search/placement.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A width, tensor degree and number of stages of the trunk. */
typedef struct trunk_choice {
  int32_t data, tensor, pipeline;
  double bound; /* on any placement of the others beside it */
} trunk_choice;

/* A module beside the trunk at one tensor degree. */
typedef struct option {
  int32_t tensor;
  double work; /* T = work / devices */
} option;

typedef struct finder {
  const mt_placement_request *request;
  const trunk_choice *trunk;
  int32_t others[MT_PLACEMENT_MODULES_MAX], other_count;
  option options[MT_PLACEMENT_MODULES_MAX][MT_PLACEMENT_TENSORS];
  int32_t option_count[MT_PLACEMENT_MODULES_MAX];
  double roots[MT_PLACEMENT_MODULES_MAX + 1],
      works[MT_PLACEMENT_MODULES_MAX + 1]; /* sums over the modules from here */
  double repeats;                          /* microbatches after the first */
  mt_placement now, *best;
  double lightest; /* the least bytes that some choice takes where memory refused it */
} finder;

static double trunk_seconds(const mt_placement_request *r, const trunk_choice *t) {
  const mt_placement_module *module = &r->modules[r->trunk];
  int degree = t->tensor == 1 ? 0 : t->tensor == 2 ? 1 : t->tensor == 4 ? 2 : 3;
  return r->microbatch * module->seconds[degree];
}

static int32_t repeats_of(const mt_placement_request *r, int32_t data) {
  return r->batch / (data * r->microbatch) - 1;
}

/* The trunk's first stage holds as many microbatches as there are stages, or microbatches. */
static double trunk_bytes(const mt_placement_request *r, const trunk_choice *t) {
  const mt_placement_module *module = &r->modules[r->trunk];
  double open = fmin(t->pipeline, repeats_of(r, t->data) + 1);
  return (module->static_bytes + open * r->microbatch * module->sample_bytes) / t->tensor / t->pipeline;
}

static double other_bytes(const mt_placement_request *r, int32_t module, int32_t tensor, int32_t devices,
                          int32_t data) {
  double samples = ceil((double)data * r->microbatch * tensor / devices);
  return (r->modules[module].static_bytes + samples * r->modules[module].sample_bytes) / tensor;
}

static bool fits(finder *f, double bytes) {
  double cap = f->request->memory_bytes;
  if (cap <= 0 || bytes <= cap) return true;
  if (bytes < f->lightest) f->lightest = bytes;
  return false;
}

/* The modules beside the trunk at a width of it. */
static void set_options(finder *f, int32_t data) {
  const mt_placement_request *r = f->request;
  for (int32_t i = 0; i < f->other_count; i++) {
    const mt_placement_module *module = &r->modules[f->others[i]];
    f->option_count[i] = 0;
    for (int degree = 0; degree < MT_PLACEMENT_TENSORS; degree++) {
      if (!(module->seconds[degree] > 0)) continue;
      int32_t tensor = 1 << degree;
      f->options[i][f->option_count[i]++] =
          (option){tensor, (double)data * r->microbatch * tensor * module->seconds[degree]};
    }
  }
  f->roots[f->other_count] = f->works[f->other_count] = 0.0;
  for (int32_t i = f->other_count; i-- > 0;) {
    double least = INFINITY;
    for (int32_t o = 0; o < f->option_count[i]; o++) least = fmin(least, f->options[i][o].work);
    f->roots[i] = f->roots[i + 1] + sqrt(least);
    f->works[i] = f->works[i + 1] + least;
  }
}

/* No placement of the modules from @p i on over @p devices is faster: sums of work_k / x_k with the sum of x_k
 * given are least where x_k goes by the root of the work, their maximum where x_k goes by the work itself. */
static double rest_bound(const finder *f, int32_t i, double devices, double warm_up, double slowest) {
  if (i == f->other_count) return warm_up + f->repeats * slowest;
  if (devices <= 0) return INFINITY;
  return warm_up + f->roots[i] * f->roots[i] / devices + f->repeats * fmax(slowest, f->works[i] / devices);
}

static void keep(finder *f, double warm_up, double slowest) {
  f->now.warm_up = warm_up;
  f->now.steady = f->repeats * slowest;
  f->now.seconds = f->now.warm_up + f->now.steady;
  if (!(f->now.seconds < f->best->seconds)) return;
  int64_t looked_at = f->best->looked_at;
  *f->best = f->now;
  f->best->looked_at = looked_at;
}

static void place_from(finder *f, int32_t i, int32_t devices, double warm_up, double slowest);

/* Module @p i with @p taken devices, then the others. */
static void place_one(finder *f, int32_t i, const option *o, int32_t taken, int32_t devices, double warm_up,
                      double slowest) {
  f->best->looked_at++;
  double bytes = other_bytes(f->request, f->others[i], o->tensor, taken, f->trunk->data);
  if (!fits(f, bytes)) return;
  double seconds = o->work / taken;
  f->now.modules[f->others[i]] = (mt_placed_module){.tensor = o->tensor,
                                                    .devices = taken,
                                                    .replicas = taken / o->tensor,
                                                    .pipeline = 1,
                                                    .seconds = seconds,
                                                    .bytes = bytes};
  place_from(f, i + 1, devices - taken, warm_up + seconds, fmax(slowest, seconds));
}

static void place_from(finder *f, int32_t i, int32_t devices, double warm_up, double slowest) {
  if (i == f->other_count) {
    keep(f, warm_up, slowest);
    return;
  }
  for (int32_t n = 0; n < f->option_count[i]; n++) {
    const option *o = &f->options[i][n];
    int32_t most = devices / o->tensor * o->tensor;
    /* The last module takes what is left: more devices never hurt. */
    int32_t first = i + 1 == f->other_count ? most : o->tensor;
    double room = f->best->seconds - warm_up;
    if (first < most && room > 0 && !isinf(room)) {
      /* Fewer devices than these make its own time alone too long. */
      double least = floor((1.0 + f->repeats) * o->work / room / o->tensor) * o->tensor;
      if (least > most) continue;
      if (least > first) first = (int32_t)least;
    }
    for (int32_t taken = first; taken <= most && taken > 0; taken += o->tensor) {
      double seconds = o->work / taken, left = devices - taken;
      /* What the others need grows from here on. */
      if (rest_bound(f, i + 1, left, warm_up, slowest) >= f->best->seconds) break;
      if (rest_bound(f, i + 1, left, warm_up + seconds, fmax(slowest, seconds)) >= f->best->seconds) continue;
      place_one(f, i, o, taken, devices, warm_up, slowest);
    }
  }
}

static int compare_bounds(const void *left, const void *right) {
  const trunk_choice *a = left, *b = right;
  if (a->bound != b->bound) return a->bound < b->bound ? -1 : 1;
  if (a->data != b->data) return a->data < b->data ? -1 : 1;
  if (a->tensor != b->tensor) return a->tensor < b->tensor ? -1 : 1;
  return (a->pipeline > b->pipeline) - (a->pipeline < b->pipeline);
}

/* Every choice for the trunk whose memory suffices, with its bound; counts them first where @p choices is NULL. */
static int32_t list_trunks(finder *f, trunk_choice *choices) {
  const mt_placement_request *r = f->request;
  const mt_placement_module *module = &r->modules[r->trunk];
  int32_t count = 0, most = r->batch / r->microbatch;
  for (int32_t data = 1; data <= most && data <= r->devices; data++) {
    if (r->batch % (data * r->microbatch) != 0) continue;
    if (choices != NULL) set_options(f, data);
    f->repeats = repeats_of(r, data);
    for (int degree = 0; degree < MT_PLACEMENT_TENSORS; degree++)
      for (int32_t stages = 1; stages <= module->layers && module->seconds[degree] > 0; stages++) {
        trunk_choice choice = {data, 1 << degree, stages, 0};
        int64_t devices = (int64_t)data * choice.tensor * stages;
        if (devices > r->devices) break;
        if (!fits(f, trunk_bytes(r, &choice))) continue;
        double whole = trunk_seconds(r, &choice);
        if (choices != NULL) {
          choice.bound = rest_bound(f, 0, (double)(r->devices - devices), whole, whole / stages);
          choices[count] = choice;
        }
        count++;
      }
  }
  return count;
}

static motet_status check(const mt_placement_request *r, motet_error *error) {
  if (r->module_count < 1 || r->module_count > MT_PLACEMENT_MODULES_MAX || r->trunk < 0 ||
      r->trunk >= r->module_count)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "%d modules with trunk %d; accepted: 1 to %d, the trunk one of "
                        "them",
                        r->module_count, r->trunk, MT_PLACEMENT_MODULES_MAX);
  if (r->devices < 1 || r->devices > 1 << 20 || r->microbatch < 1 || r->batch < r->microbatch ||
      r->batch % r->microbatch != 0 || r->batch > 1 << 24)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "%d devices, %d samples in microbatches of %d; accepted: 1 device or more, and whole "
                        "microbatches",
                        r->devices, r->batch, r->microbatch);
  for (int32_t k = 0; k < r->module_count; k++) {
    double most = 0;
    for (int degree = 0; degree < MT_PLACEMENT_TENSORS; degree++) {
      if (!(r->modules[k].seconds[degree] >= 0) || isinf(r->modules[k].seconds[degree]))
        return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                            "module %s takes %g seconds; times are finite, not negative", r->modules[k].name,
                            r->modules[k].seconds[degree]);
      most = fmax(most, r->modules[k].seconds[degree]);
    }
    if (most <= 0)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "module %s has no time at any tensor degree",
                          r->modules[k].name);
  }
  return MOTET_OK;
}

static motet_status refuse(const finder *f, motet_error *error) {
  const mt_placement_request *r = f->request;
  if (isinf(f->lightest))
    return mt_error_set(error, MOTET_ERROR_ILLEGAL, "%d devices do not give each of %d modules one", r->devices,
                        r->module_count);
  return mt_error_set(error, MOTET_ERROR_ILLEGAL,
                      "no placement on %d devices keeps %.4g bytes a device: the lightest that was refused takes "
                      "%.4g; accepted: so much memory, more devices, or smaller microbatches",
                      r->devices, r->memory_bytes, f->lightest);
}

motet_status mt_placement_find(mt_arena *arena, const mt_placement_request *request, motet_error *error,
                               mt_placement *placement) {
  motet_status status = check(request, error);
  if (status != MOTET_OK) return status;
  memset(placement, 0, sizeof *placement);
  placement->seconds = INFINITY;
  finder f = {.request = request, .best = placement, .lightest = INFINITY};
  for (int32_t k = 0; k < request->module_count; k++)
    if (k != request->trunk) f.others[f.other_count++] = k;
  int32_t count = list_trunks(&f, NULL);
  trunk_choice *choices = MT_ARENA_NEW(arena, trunk_choice, count + 1);
  if (choices == NULL) return mt_error_memory(error, (unsigned long long)count * sizeof *choices, "a placement");
  list_trunks(&f, choices);
  qsort(choices, (size_t)count, sizeof *choices, compare_bounds);
  for (int32_t i = 0; i < count && choices[i].bound < placement->seconds; i++) {
    const trunk_choice *t = &choices[i];
    int32_t devices = t->data * t->tensor * t->pipeline;
    double whole = trunk_seconds(request, t), each = whole / t->pipeline;
    f.trunk = t;
    f.repeats = repeats_of(request, t->data);
    f.now.data = t->data;
    f.now.modules[request->trunk] = (mt_placed_module){.tensor = t->tensor,
                                                       .devices = devices,
                                                       .replicas = t->data,
                                                       .pipeline = t->pipeline,
                                                       .seconds = each,
                                                       .bytes = trunk_bytes(request, t)};
    set_options(&f, t->data);
    place_from(&f, 0, request->devices - devices, whole, each);
  }
  if (isinf(placement->seconds)) return refuse(&f, error);
  placement->bound = choices[0].bound;
  return MOTET_OK;
}

#include "order/unit_costs.h"

#include "algebra/skeleton.h"
#include "base/array.h"
#include "program/columns.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 1 << 20, SPLIT_LAYERS_MAX = 65536 };

static uint64_t all_modules(int32_t count) { return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1; }

static int64_t greatest_divisor(int64_t a, int64_t b) {
  while (b > 0) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Layers that every module gets: a multiple of the slabs of each group of Sharded terms that share ranks, so that
 * all even splits come out even. */
static int64_t layers_per_module(const mt_schedule *schedule, int32_t ranks) {
  int64_t chunks = 0, dedicated = 0, layers = 1;
  for (int32_t t = 0; t < schedule->term_count; t++) {
    const mt_skeleton *skeleton = &schedule->terms[t].skeleton;
    dedicated += skeleton->ranks;
    if (mt_skeleton_sharded(skeleton) && skeleton->ranks == 0) chunks += skeleton->virtual_stages;
    int64_t slabs = (int64_t)skeleton->ranks / skeleton->data * skeleton->virtual_stages;
    if (slabs > 0 && layers < INT32_MAX) layers = layers / greatest_divisor(layers, slabs) * slabs;
  }
  int64_t shared = (dedicated < ranks ? ranks - dedicated : 1) * (chunks > 0 ? chunks : 1);
  return layers < INT32_MAX ? layers / greatest_divisor(layers, shared) * shared : INT32_MAX;
}

/* A split says how many layers there are: its sum, evenly over the modules that it splits. One that cannot be meant
 * so leaves the layers as they are, and the derivation says what is wrong with it. */
static int64_t layers_of_split(const mt_schedule *schedule, const int32_t *split, int32_t split_count,
                               int64_t otherwise) {
  int64_t layers = 0, modules = 0;
  for (int32_t i = 0; i < split_count; i++) layers += split[i];
  for (int32_t t = 0; t < schedule->term_count; t++)
    if (mt_skeleton_sharded(&schedule->terms[t].skeleton)) modules += schedule->terms[t].module_count;
  bool meant = modules > 0 && layers > 0 && layers <= SPLIT_LAYERS_MAX && layers % modules == 0;
  return meant ? layers / modules : otherwise;
}

/* Whether `name` is the text between two pluses of `joined`, or all of it. */
static bool names_part(const char *joined, const char *name) {
  size_t length = strlen(name);
  if (strcmp(joined, name) == 0) return true;
  for (const char *at = joined; at != NULL; at = strchr(at, '+')) {
    at += *at == '+';
    if (strncmp(at, name, length) == 0 && (at[length] == '+' || at[length] == '\0')) return true;
  }
  return false;
}

static motet_status unit_trains(const mt_unit *unit, const char *module, const char *const *trainable,
                                int32_t trainable_count, motet_error *error, bool *trains) {
  *trains = unit->has_backward;
  if (trainable == NULL) return MOTET_OK;
  *trains = false;
  for (int32_t i = 0; i < trainable_count; i++)
    *trains |= strcmp(trainable[i], unit->name) == 0 || names_part(trainable[i], module);
  if (*trains && !unit->has_backward)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "%s trains but has no backward time: give b, or x and w, as in '%s: f=1, b=2'", module,
                        module);
  return MOTET_OK;
}

static motet_status check_trainable_names(const mt_unit *units, int32_t unit_count, const char *const *trainable,
                                          int32_t trainable_count, motet_error *error) {
  for (int32_t i = 0; trainable != NULL && i < trainable_count; i++) {
    bool known = false;
    for (int32_t u = 0; u < unit_count; u++)
      known |= names_part(units[u].name, trainable[i]) || names_part(trainable[i], units[u].name);
    if (!known)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--trainable: no unit is named '%s'; units: %s%s",
                          trainable[i], units[0].name, unit_count > 1 ? ", ..." : "");
  }
  return MOTET_OK;
}

/* The branch group (from 1) of the term that names the module, or 0: on the chain. */
static int32_t branch_of(const mt_schedule *schedule, const char *module) {
  for (int32_t t = 0; t < schedule->term_count; t++)
    for (int32_t n = 0; n < schedule->terms[t].module_count; n++)
      if (strcmp(schedule->terms[t].modules[n], module) == 0) return schedule->terms[t].branch;
  return 0;
}

static bool follows_in_term(const mt_schedule *schedule, const char *before, const char *module) {
  for (int32_t t = 0; t < schedule->term_count; t++) {
    const mt_term *term = &schedule->terms[t];
    for (int32_t n = 1; n < term->module_count; n++)
      if (strcmp(term->modules[n - 1], before) == 0 && strcmp(term->modules[n], module) == 0) return true;
  }
  return false;
}

/* Modules side by side in the schedule ('|') share their sources and sinks instead of feeding one another. A term's
 * own modules are a chain. */
static motet_status set_branches(mt_arena *arena, const mt_schedule *schedule, mt_model *model,
                                 motet_error *error) {
  mt_module_edge *edges = MT_ARENA_NEW(arena, mt_module_edge, model->module_count * model->module_count);
  if (edges == NULL) return mt_error_memory(error, sizeof *edges * MT_MODEL_MODULES_MAX, "module edges");
  int32_t count = 0;
  /* Ends of the branches before, and of the ones that the module at hand stands beside. */
  uint64_t sources = 0, ends = 0;
  int32_t branch = 0;
  for (int32_t j = 0; j < model->module_count; j++) {
    int32_t own = branch_of(schedule, model->modules[j].name);
    if (j > 0 && follows_in_term(schedule, model->modules[j - 1].name, model->modules[j].name)) {
      edges[count++] = (mt_module_edge){j - 1, j};
      ends = (ends & ~(UINT64_C(1) << (j - 1))) | UINT64_C(1) << j;
      continue;
    }
    if (own == 0 || own != branch) {
      sources = ends;
      ends = 0;
    }
    branch = own;
    for (int32_t from = 0; from < j; from++)
      if (sources >> from & 1) edges[count++] = (mt_module_edge){from, j};
    ends |= UINT64_C(1) << j;
  }
  model->edges = edges;
  model->edge_count = count;
  return MOTET_OK;
}

motet_status mt_unit_model(mt_arena *arena, const mt_schedule *schedule, const mt_unit *units, int32_t unit_count,
                           int32_t ranks, const int32_t *split, int32_t split_count, const char *const *trainable,
                           int32_t trainable_count, motet_error *error, mt_model **model,
                           int32_t **unit_of_module) {
  if (ranks < 1 || ranks > RANKS_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--ranks: %d is not between 1 and %d", ranks, RANKS_MAX);
  motet_status status = check_trainable_names(units, unit_count, trainable, trainable_count, error);
  if (status != MOTET_OK) return status;
  const char *names[MT_MODEL_MODULES_MAX];
  int32_t layers[MT_MODEL_MODULES_MAX], owners[MT_MODEL_MODULES_MAX], count = 0;
  bool trains[MT_MODEL_MODULES_MAX];
  int64_t each = layers_of_split(schedule, split, split_count, layers_per_module(schedule, ranks));
  if (each > INT32_MAX / MT_MODEL_MODULES_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT,
                        "%d ranks with this many virtual stages are more than can be planned", ranks);
  for (int32_t u = 0; u < unit_count; u++) {
    const char *name = *units[u].name != '\0' ? units[u].name : "model";
    while (name != NULL && count < MT_MODEL_MODULES_MAX) {
      size_t length = strcspn(name, "+");
      names[count] = mt_arena_format(arena, "%.*s", (int)length, name);
      if (names[count] == NULL) return mt_error_memory(error, length, "a module name");
      if (length == 0)
        return mt_error_set(error, MOTET_ERROR_PARSE, "--unit: '%s' has an empty name beside a '+'", units[u].name);
      layers[count] = (int32_t)each;
      owners[count] = u;
      status = unit_trains(&units[u], names[count], trainable, trainable_count, error, &trains[count]);
      if (status != MOTET_OK) return status;
      count++;
      name = name[length] == '+' ? name + length + 1 : NULL;
    }
    if (name != NULL)
      return mt_error_set(error, MOTET_ERROR_LIMIT, "--unit: more than %d modules", MT_MODEL_MODULES_MAX);
  }
  *unit_of_module = MT_ARENA_NEW(arena, int32_t, count);
  if (*unit_of_module == NULL) return mt_error_memory(error, sizeof owners, "modules");
  memcpy(*unit_of_module, owners, (size_t)count * sizeof *owners);
  status = mt_model_abstract(arena, count, names, layers, trains, error, model);
  return status == MOTET_OK ? set_branches(arena, schedule, *model, error) : status;
}

uint64_t mt_unit_varied_modules(const mt_derivation *derivation) {
  uint64_t replicated = 0, inlined = 0;
  for (int32_t r = 0; r < derivation->region_count; r++) {
    const mt_region *region = &derivation->regions[r];
    uint64_t modules = all_modules(region->module_end) & ~all_modules(region->module_begin);
    if (region->replicated)
      replicated |= modules;
    else if (region->skeleton.kind == MT_SKELETON_INLINE)
      inlined |= modules;
  }
  return replicated != 0 ? replicated : inlined;
}

motet_status mt_unit_presence(mt_arena *arena, const mt_derivation *derivation, const mt_unit_variation *variation,
                              motet_error *error, uint64_t **present) {
  *present = NULL;
  bool absent = false;
  for (int32_t i = 0; i < variation->encode_count; i++) absent |= variation->encode[i] == 0;
  if (variation->encode_count == 0) return MOTET_OK;
  uint64_t varied = mt_unit_varied_modules(derivation);
  if (varied == 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "--encode gives the times of a transpose or inline region; this schedule has none");
  if (!absent) return MOTET_OK;
  *present = MT_ARENA_NEW(arena, uint64_t, derivation->microbatches);
  if (*present == NULL)
    return mt_error_memory(error, (unsigned long long)derivation->microbatches * sizeof(uint64_t), "microbatches");
  for (int32_t m = 0; m < derivation->microbatches; m++)
    (*present)[m] = all_modules(derivation->model->module_count) &
                    ~(variation->encode[m % variation->encode_count] == 0 ? varied : 0);
  return MOTET_OK;
}

typedef MT_ARRAY(mt_unit_share) share_list;

/* Adds layers [begin, end) of a stage to the list, module by module. `factor` turns a part of the unit's layers
 * into a part of its time. */
typedef struct share_span {
  int32_t stage, layer_begin, layer_end, first_trainable;
  double factor;
} share_span;

typedef struct unit_layers {
  const int32_t *unit_of_layer;
  const uint8_t *trainable;
  const int32_t *unit_layer_count; /* [units] */
  const mt_unit *units;
} unit_layers;

static bool add_shares(share_list *shares, const unit_layers *layers, const share_span *span) {
  for (int32_t l = span->layer_begin; l < span->layer_end;) {
    int32_t unit = layers->unit_of_layer[l];
    int32_t all = 0, training = 0, passing = 0;
    for (; l < span->layer_end && layers->unit_of_layer[l] == unit; l++) {
      bool reached = span->first_trainable >= 0 && l >= span->first_trainable;
      all++;
      training += reached && layers->trainable[l];
      passing += reached && !layers->trainable[l];
    }
    bool per_layer = layers->units[unit].per_layer;
    double factor = per_layer ? 1 : span->factor, whole = per_layer ? 1 : layers->unit_layer_count[unit];
    mt_unit_share share = {.stage = span->stage,
                           .unit = unit,
                           .forward = all * factor / whole,
                           .trainable = training * factor / whole,
                           .frozen = passing * factor / whole};
    if (!MT_ARRAY_PUSH(shares, share)) return false;
  }
  return true;
}

static motet_status index_layers(mt_arena *arena, int32_t layer_count, const mt_unit *units, int32_t unit_count,
                                 const int32_t *unit_of_layer, const uint8_t *trainable, motet_error *error,
                                 unit_layers *layers) {
  int32_t *counts = MT_ARENA_NEW(arena, int32_t, unit_count);
  if (counts == NULL) return mt_error_memory(error, (unsigned long long)unit_count * sizeof *counts, "units");
  for (int32_t l = 0; l < layer_count; l++) counts[unit_of_layer[l]]++;
  *layers = (unit_layers){unit_of_layer, trainable, counts, units};
  return MOTET_OK;
}

motet_status mt_unit_costs(mt_arena *arena, const mt_derivation *derivation, const mt_unit *units,
                           int32_t unit_count, const int32_t *unit_of_module, const mt_unit_variation *variation,
                           motet_error *error, mt_cost_table *table) {
  const mt_model *model = derivation->model;
  int32_t *unit_of_layer = MT_ARENA_NEW(arena, int32_t, model->layer_count);
  uint8_t *trainable = MT_ARENA_NEW(arena, uint8_t, model->layer_count);
  uint64_t *active = MT_ARENA_NEW(arena, uint64_t, derivation->microbatches);
  if (unit_of_layer == NULL || trainable == NULL || active == NULL)
    return mt_error_memory(error, (unsigned long long)model->layer_count * 5, "unit costs");
  for (int32_t l = 0; l < model->layer_count; l++) {
    unit_of_layer[l] = unit_of_module[model->layers[l].module];
    trainable[l] = model->layers[l].trainable;
  }
  unit_layers layers;
  motet_status status =
      index_layers(arena, model->layer_count, units, unit_count, unit_of_layer, trainable, error, &layers);
  if (status != MOTET_OK) return status;
  share_list shares = {0};
  for (int32_t s = 0; s < derivation->stage_count; s++) {
    const mt_stage *stage = &derivation->stages[s];
    for (int32_t p = stage->part_begin; p < stage->part_end; p++) {
      const mt_part *part = &derivation->parts[p];
      const mt_region *region = &derivation->regions[part->region];
      bool sharded = !region->replicated && region->skeleton.kind != MT_SKELETON_INLINE;
      share_span span = {s, part->layer_begin, part->layer_end, stage->first_trainable,
                         sharded ? (double)region->pipeline : 1.0};
      if (!add_shares(&shares, &layers, &span)) {
        free(shares.data);
        return mt_error_memory(error, shares.count * sizeof *shares.data, "unit costs");
      }
    }
  }
  uint64_t varied_modules = mt_unit_varied_modules(derivation), varied = 0, everything = all_modules(unit_count);
  bool absent = false;
  for (int32_t m = 0; m < derivation->microbatches; m++) active[m] = everything;
  for (int32_t j = 0; j < model->module_count; j++) {
    uint64_t unit = UINT64_C(1) << unit_of_module[j];
    if (varied_modules >> j & 1) varied |= unit;
    for (int32_t m = 0; m < derivation->microbatches; m++) {
      if ((derivation->present[m] & ~derivation->cached[m]) >> j & 1) continue;
      absent = true;
      active[m] &= ~unit;
    }
  }
  mt_unit_request request = {.units = units,
                             .shares = shares.data,
                             .unit_count = unit_count,
                             .share_count = (int32_t)shares.count,
                             .stage_count = derivation->stage_count,
                             .microbatches = derivation->microbatches,
                             .encode = variation->encode_count > 0 ? variation->encode : NULL,
                             .encode_count = variation->encode_count,
                             .varied = varied,
                             .active = absent ? active : NULL};
  status = mt_unit_table(arena, &request, error, table);
  free(shares.data);
  return status;
}

/* First layer that each stage's backward reaches, from the program's own edges and flags; -1: none. */
static void reach_of_program(const motet_program *program, bool *above, int32_t *first_trainable) {
  for (int32_t s = 0; s < program->stage_count; s++) {
    const motet_program_stage *stage = &program->stages[s];
    first_trainable[s] = -1;
    for (int32_t l = stage->layer_begin; l < stage->layer_end && first_trainable[s] < 0; l++)
      if (program->layer_trainable[l]) first_trainable[s] = l;
    if (above[s]) first_trainable[s] = stage->layer_begin;
    for (int32_t e = 0; e < program->edge_count; e++)
      if (program->edges[e].from == s) above[program->edges[e].to] |= above[s] || first_trainable[s] >= 0;
  }
}

static motet_status match_units(const motet_program *program, const mt_unit *units, int32_t unit_count,
                                int32_t *unit_of_layer, motet_error *error) {
  for (int32_t j = 0; j < program->module_count; j++) {
    const motet_program_module *module = &program->modules[j];
    int32_t found = -1;
    for (int32_t u = 0; u < unit_count && found < 0; u++)
      if (*units[u].name == '\0' || names_part(units[u].name, module->name)) found = u;
    if (found < 0)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "--unit: the program's module '%s' has no times; add '%s: f=1, b=2', or give one unit "
                          "without a name for all",
                          module->name, module->name);
    for (int32_t l = module->layer_begin; l < module->layer_end; l++) unit_of_layer[l] = found;
  }
  return MOTET_OK;
}

/* Ranks of a pipeline that a region's layers are spread over. */
static double region_ranks(const motet_program *program, int32_t region) {
  double shares = 0.0;
  for (int32_t s = 0; s < program->stage_count; s++)
    if (program->stages[s].region == region) shares += program->stages[s].share;
  return shares;
}

/* A module's times are a rank's share where several stages carry it, else per microbatch. */
static double module_factor(const motet_program *program, int32_t layer) {
  for (int32_t j = 0; j < program->module_count; j++) {
    const motet_program_module *module = &program->modules[j];
    if (layer < module->layer_begin || layer >= module->layer_end) continue;
    for (int32_t s = 0; s < program->stage_count; s++) {
      const motet_program_stage *stage = &program->stages[s];
      bool overlaps = stage->layer_begin < module->layer_end && stage->layer_end > module->layer_begin;
      bool covers = stage->layer_begin <= module->layer_begin && stage->layer_end >= module->layer_end;
      if (overlaps && !covers) return region_ranks(program, stage->region);
    }
  }
  return 1.0;
}

/* Over shares: a sharded stage's time goes with the tokens, a replicated one's stands at the first share. */
static motet_status divide_among_shares(mt_arena *arena, const motet_program *program, motet_error *error,
                                        mt_cost_table *table) {
  mt_cost_table whole = *table;
  int32_t columns = mt_column_count(program);
  for (int kind = 0; kind < MT_COST_KINDS && program->share_count > 0; kind++) {
    if (whole.seconds[kind].values == NULL) continue;
    double *values = MT_ARENA_NEW(arena, double, (int64_t)program->stage_count *columns);
    if (values == NULL) return mt_error_memory(error, (unsigned)columns * sizeof(double), "costs of shares");
    table->seconds[kind] = (mt_cost_values){values, columns, 1};
    for (int32_t s = 0; s < program->stage_count; s++)
      for (int32_t r = 1; r < program->range_count; r++) {
        const motet_range *range = &program->ranges[r];
        double seconds = mt_cost_seconds(&whole, (mt_cost_kind)kind, s, range->microbatch);
        double tokens = program->microbatches[range->microbatch].tokens;
        bool replicated = program->regions[program->stages[s].region].replicated;
        for (int32_t c = range->first_share; c < range->first_share + range->degree; c++)
          values[(int64_t)s * columns + c] =
              replicated ? (range->begin == 0 && c == range->first_share ? seconds : 0)
                         : seconds * (tokens > 0 ? program->shares[c].tokens / tokens : 1.0);
      }
  }
  return MOTET_OK;
}

motet_status mt_unit_costs_of_program(mt_arena *arena, const motet_program *program, const mt_unit *units,
                                      int32_t unit_count, motet_error *error, mt_cost_table *table) {
  int32_t *unit_of_layer = MT_ARENA_NEW(arena, int32_t, program->layer_count);
  int32_t *first_trainable = MT_ARENA_NEW(arena, int32_t, program->stage_count);
  bool *above = MT_ARENA_NEW(arena, bool, program->stage_count);
  if (unit_of_layer == NULL || first_trainable == NULL || above == NULL)
    return mt_error_memory(error, (unsigned long long)program->layer_count * 5, "unit costs");
  motet_status status = match_units(program, units, unit_count, unit_of_layer, error);
  unit_layers layers;
  if (status == MOTET_OK)
    status = index_layers(arena, program->layer_count, units, unit_count, unit_of_layer, program->layer_trainable,
                          error, &layers);
  if (status != MOTET_OK) return status;
  reach_of_program(program, above, first_trainable);
  share_list shares = {0};
  bool good = true;
  for (int32_t s = 0; s < program->stage_count && good; s++) {
    const motet_program_stage *stage = &program->stages[s];
    for (int32_t j = 0; j < program->module_count && good; j++) {
      const motet_program_module *module = &program->modules[j];
      int32_t begin = stage->layer_begin > module->layer_begin ? stage->layer_begin : module->layer_begin;
      int32_t end = stage->layer_end < module->layer_end ? stage->layer_end : module->layer_end;
      if (begin >= end) continue;
      share_span span = {s, begin, end, first_trainable[s], module_factor(program, begin)};
      good = add_shares(&shares, &layers, &span);
    }
  }
  mt_unit_request request = {.units = units,
                             .shares = shares.data,
                             .unit_count = unit_count,
                             .share_count = (int32_t)shares.count,
                             .stage_count = program->stage_count,
                             .microbatches = program->microbatch_count};
  status = good ? mt_unit_table(arena, &request, error, table)
                : mt_error_memory(error, shares.count * sizeof *shares.data, "unit costs");
  if (status == MOTET_OK) status = divide_among_shares(arena, program, error, table);
  free(shares.data);
  return status;
}

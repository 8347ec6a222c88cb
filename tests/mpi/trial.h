/* A small training run on made-up microbatches: what the tests compare across schedules, widths and owners. */
#ifndef MOTET_TESTS_MPI_TRIAL_H
#define MOTET_TESTS_MPI_TRIAL_H

#include "base/random.h"
#include "train/interpreter.h"
#include "train/planner.h"
#include "train/share.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifndef TRIAL_ALL_MICROBATCHES
#define TRIAL_ALL_MICROBATCHES 8
#endif
enum {
  TRIAL_MICROBATCHES = TRIAL_ALL_MICROBATCHES,
  TRIAL_STEPS = 3,
  TRIAL_TOKENS_MAX = 64,
  TRIAL_PARAMETERS_MAX = 512
};

/** The test's transport over all ranks that the launcher started; NULL, with the reason printed, where there is
 * none. */
static inline mt_transport *trial_connect(double hang_seconds, mt_transport_report *report) {
  motet_error error;
  mt_transport *transport;
  mt_transport_options options = {.ranks = 1, .hang_seconds = hang_seconds, .report = report};
  if (!mt_transport_launched(&options.ranks, NULL)) options.ranks = 1;
  if (mt_transport_mpi_create(&options, &error, &transport) == MOTET_OK) return transport;
  fprintf(stderr, "%s\n", error.text);
  return NULL;
}

/** Ends the test on all ranks, also where only some of them failed. Returns the exit code. */
static inline int trial_finish(mt_transport *transport, int failed) {
  motet_error error;
  motet_error_clear(&error);
  if (failed != 0) mt_transport_fail(transport, &error);
  mt_transport_destroy(transport);
  return failed;
}

/** The tiny model of tests/data/train; its image token is one that the trial's rows have. */
static inline mt_internvl trial_config(void) {
  mt_internvl config;
  motet_error error;
  if (mt_internvl_read(MOTET_TEST_DATA "/train/config.json", &error, &config) != MOTET_OK)
    fail_msg("%s", error.text);
  config.image_token = 0;
  return config;
}

typedef struct trial_microbatch {
  mt_batch shape;
  int32_t segment_begin[4];
  int32_t token_ids[TRIAL_TOKENS_MAX], labels[TRIAL_TOKENS_MAX], feature_rows[TRIAL_TOKENS_MAX];
  float *pixels;
} trial_microbatch;

typedef struct trial_data {
  const mt_internvl *config;
  trial_microbatch microbatches[TRIAL_STEPS + 1][TRIAL_MICROBATCHES];
  int step;
} trial_data;

/** Packed rows of one to three segments, with as many tiles as @p counts says of step and microbatch. */
static inline void trial_data_fill_tiles(trial_data *data, const mt_internvl *config,
                                         int counts[TRIAL_STEPS + 1][TRIAL_MICROBATCHES]) {
  data->config = config;
  for (int step = 0; step <= TRIAL_STEPS; step++) {
    int targets = 0;
    mt_random random = mt_random_stream((uint64_t)step, "trial");
    for (int m = 0; m < TRIAL_MICROBATCHES; m++) {
      trial_microbatch *own = &data->microbatches[step][m];
      int tiles = counts[step][m], segments = 1 + m % 3;
      int features = tiles * config->tokens_per_tile, tokens = features + 6 + (5 * m + step) % 7;
      own->shape = (mt_batch){.tokens = tokens,
                              .segments = segments,
                              .segment_begin = own->segment_begin,
                              .tiles = tiles,
                              .feature_rows = own->feature_rows};
      for (int s = 0; s <= segments; s++)
        own->segment_begin[s] = s == segments ? tokens : s * 2 + (s > 0 ? features : 0);
      for (int t = 0; t < tokens; t++) {
        own->token_ids[t] = (int32_t)mt_random_below(&random, (uint64_t)config->decoder.vocabulary);
        own->labels[t] =
            t < features ? -100 : (int32_t)mt_random_below(&random, (uint64_t)config->decoder.vocabulary);
        targets += own->labels[t] >= 0;
      }
      for (int f = 0; f < features; f++) own->feature_rows[f] = f + 1;
      size_t pixels = (size_t)tiles * 3 * (size_t)config->vision.image_size * (size_t)config->vision.image_size;
      own->pixels = malloc((pixels + 1) * sizeof(float));
      for (size_t i = 0; i < pixels; i++) own->pixels[i] = (float)mt_random_normal(&random);
    }
    for (int m = 0; m < TRIAL_MICROBATCHES; m++) data->microbatches[step][m].shape.loss_weight = 1.0 / targets;
  }
}

/** None to two tiles, every third microbatch text alone; or one to three. */
static inline void trial_data_fill(trial_data *data, const mt_internvl *config, bool text_only_too) {
  int counts[TRIAL_STEPS + 1][TRIAL_MICROBATCHES];
  for (int step = 0; step <= TRIAL_STEPS; step++)
    for (int m = 0; m < TRIAL_MICROBATCHES; m++) counts[step][m] = (m + step) % 3 + (text_only_too ? 0 : 1);
  trial_data_fill_tiles(data, config, counts);
}

static inline void trial_data_free(trial_data *data) {
  for (int step = 0; step <= TRIAL_STEPS; step++)
    for (int m = 0; m < TRIAL_MICROBATCHES; m++) free(data->microbatches[step][m].pixels);
}

static inline motet_status trial_shape(void *context, bool next, int32_t microbatch, motet_error *error,
                                       mt_batch *batch) {
  (void)error;
  trial_data *data = context;
  *batch = data->microbatches[data->step + next][microbatch].shape;
  return MOTET_OK;
}

static inline motet_status trial_load(void *context, bool next, int32_t microbatch, uint32_t inputs,
                                      mt_arena *arena, motet_error *error, mt_batch *batch) {
  (void)arena, (void)error;
  trial_data *data = context;
  const trial_microbatch *own = &data->microbatches[data->step + next][microbatch];
  if ((inputs & MOTET_INPUT_TOKENS) != 0)
    batch->token_ids = own->token_ids, batch->feature_rows = own->feature_rows;
  if ((inputs & MOTET_INPUT_LABELS) != 0) batch->labels = own->labels;
  if ((inputs & MOTET_INPUT_PIXELS) != 0) batch->pixels = own->pixels;
  return MOTET_OK;
}

typedef struct trial {
  const char *schedule;
  int32_t pipeline, replicas;
  int32_t context; /* ranks of a plane; 0: none */
  int32_t ulysses; /* most ranks of a group that exchange heads */
  bool flexible;   /* groups drawn anew for every microbatch, some ranks without any; else one of all ranks */
  bool trainable[3];
  bool exact;
  bool recompute[3];
  int32_t spoiled_rank; /* > 0: a weight of this rank changes by itself in front of step 2 */
  /* Sees the program and what this rank measured, step by step; or NULL. */
  void (*inspect)(const motet_program *program, int32_t rank, const trial_data *data, const mt_step_result *step);
} trial;

typedef struct trial_result {
  mt_network *network;
  double losses[TRIAL_STEPS][TRIAL_MICROBATCHES], norms[TRIAL_STEPS];
  uint64_t digests[TRIAL_STEPS];      /* of the weights */
  double first_moments;               /* norm of AdamW's first moments after one step, of what this rank holds */
  int64_t peak_bytes, forecast_bytes; /* activations of the last step */
  mt_context_counts counts;           /* of all steps */
  double expected_forward;            /* elements that attention has to send, by the volume formulas */
} trial_result;

static inline double trial_first_moments(mt_network *network) {
  double sum = 0;
  for (int32_t i = 0; i < mt_network_parameter_count(network); i++) {
    float *first, *second;
    if (!mt_network_parameter(network, i)->trainable) continue;
    mt_network_moments(network, i, &first, &second);
    for (int64_t e = 0; e < mt_network_parameter(network, i)->count; e++)
      sum += (double)first[e] * (double)first[e];
  }
  return sqrt(sum);
}

/** One group of all ranks, or drawn ones: consecutive segments to each, some ranks left out. */
static inline void trial_cut(const trial *what, int step, int m, mt_arena *arena,
                             mt_planner_microbatch *microbatch) {
  int32_t segments = microbatch->batch.segments, width = what->context;
  mt_planner_group *groups = MT_ARENA_NEW(arena, mt_planner_group, segments);
  int32_t *ranks = MT_ARENA_NEW(arena, int32_t, width), used = 0;
  mt_random random = mt_random_stream((uint64_t)(step * 100 + m), "groups");
  microbatch->groups = groups;
  for (int32_t i = 0; i < width; i++) ranks[i] = i;
  if (!what->flexible) {
    groups[microbatch->group_count++] =
        (mt_planner_group){.segment_end = segments, .degree = width, .context_ranks = ranks};
    return;
  }
  for (int32_t segment = 0; segment < segments && used < width;) {
    mt_planner_group *group = &groups[microbatch->group_count++];
    used += (int32_t)mt_random_below(&random, 2); /* one is left out */
    if (used >= width) used = width - 1;
    *group = (mt_planner_group){.segment_begin = segment, .context_ranks = ranks + used};
    group->degree = 1 + (int32_t)mt_random_below(&random, (uint64_t)(width - used));
    used += group->degree;
    segment += 1 + (int32_t)mt_random_below(&random, (uint64_t)(segments - segment));
    if (used >= width) segment = segments;
    group->segment_end = segment;
  }
  groups[microbatch->group_count - 1].segment_end = segments;
}

/** Elements that a rank's attention sends forward in a step: (tokens / d) [(2h + 2kv)(U - 1)/U + 2kv (R - 1)] a
 * layer, a ring without the rounding of zig-zag pieces. */
static inline double trial_volume(const mt_internvl *config, const trial *what, const motet_program *program,
                                  int32_t rank) {
  double elements = 0;
  for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
    const motet_instruction *x = &program->instructions[i];
    if (x->kind != MOTET_FWD || x->range == 0) continue;
    const motet_range *range = &program->ranges[x->range];
    int32_t first_block = config->vision.layers + 3, last = first_block + config->decoder.layers;
    int32_t begin = program->stages[x->stage].layer_begin, end = program->stages[x->stage].layer_end;
    begin = begin > first_block ? begin : first_block;
    end = end < last ? end : last;
    if (begin >= end) continue;
    double u = mt_share_ulysses(config, what->ulysses, range->degree), r = range->degree / u;
    double kv = (config->decoder.kv_heads < u ? u : config->decoder.kv_heads) * config->decoder.head_dim;
    double h = (double)config->decoder.heads * config->decoder.head_dim;
    elements += (end - begin) * (double)(range->end - range->begin) / range->degree *
                ((2 * h + 2 * kv) * (u - 1) / u + 2 * kv * (r - 1));
  }
  return elements;
}

/** Plans and runs TRIAL_STEPS steps of @p trial on the transport's ranks. */
static inline motet_status trial_run(const trial *what, trial_data *data, mt_transport *transport,
                                     motet_error *error, trial_result *result) {
  mt_planner_options options = {.config = data->config,
                                .schedule = what->schedule,
                                .pipeline = what->pipeline,
                                .replicas = what->replicas,
                                .context = what->context,
                                .ulysses = what->ulysses,
                                .microbatches = TRIAL_MICROBATCHES / what->replicas,
                                .exact = what->exact,
                                .search_seconds = 0.001};
  memcpy(options.trainable, what->trainable, sizeof options.trainable);
  memcpy(options.recompute, what->recompute, sizeof options.recompute);
  mt_layer_costs_from_operations(data->config, &options.costs);
  memset(result, 0, sizeof *result);
  mt_planner *planner = NULL;
  mt_interpreter *interpreter = NULL;
  mt_arena *arena = mt_arena_create(), *last = mt_arena_create();
  bool held[64], trains[64];
  motet_status status = mt_planner_create(&options, error, &planner);
  if (status != MOTET_OK) goto done;
  mt_planner_held(planner, transport->rank, held);
  mt_planner_trainable(planner, trains);
  status = mt_network_create(data->config, held, trains, error, &result->network);
  if (status != MOTET_OK) goto done;
  mt_network_initialize(result->network, 7);
  if (what->exact) status = mt_network_sum_exactly(result->network, TRIAL_MICROBATCHES, error);
  if (status != MOTET_OK) goto done;
  status = mt_interpreter_create(
      &(mt_interpreter_options){
          .config = data->config, .network = result->network, .transport = transport, .ulysses = what->ulysses},
      error, &interpreter);
  mt_batch_source source = {.context = data, .shape = trial_shape, .load = trial_load};
  motet_carried *carried = NULL;
  int32_t carried_count = 0;
  for (int step = 0; step < TRIAL_STEPS && status == MOTET_OK; step++) {
    mt_plan plan;
    mt_planner_microbatch batches[TRIAL_MICROBATCHES];
    static const motet_carried nothing;
    data->step = step;
    for (int m = 0; m < TRIAL_MICROBATCHES; m++)
      batches[m] = (mt_planner_microbatch){.batch = data->microbatches[step][m].shape, .targets = 6};
    for (int m = 0; m < TRIAL_MICROBATCHES && what->context > 1; m++) trial_cut(what, step, m, arena, &batches[m]);
    status = mt_planner_plan(planner, MT_PLANNER_TRAIN, batches, carried != NULL ? carried : &nothing,
                             carried_count, arena, error, &plan);
    if (status != MOTET_OK) break;
    mt_network_zero_gradients(result->network);
    if (step == 1 && what->spoiled_rank > 0 && transport->rank == what->spoiled_rank)
      mt_network_parameter(result->network, 0)->value[0] += 0.5F;
    mt_step_result measured;
    mt_step this = {.program = plan.program,
                    .source = &source,
                    .number = step + 1,
                    .optimizer = {.learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-3},
                    .clip_norm = 0.5,
                    .sums = result->losses[step],
                    .sum_count = TRIAL_MICROBATCHES};
    status = mt_interpreter_run(interpreter, &this, error, &measured);
    if (status == MOTET_OK && what->inspect != NULL) what->inspect(plan.program, transport->rank, data, &measured);
    if (status == MOTET_OK) {
      result->norms[step] = measured.gradient_norm;
      result->digests[step] = measured.weights_digest;
      result->counts.ring_forward += measured.counts.ring_forward;
      result->counts.ring_backward += measured.counts.ring_backward;
      result->counts.ulysses_forward += measured.counts.ulysses_forward;
      result->counts.ulysses_backward += measured.counts.ulysses_backward;
      result->expected_forward += trial_volume(data->config, what, plan.program, transport->rank);
      if (step == 0) result->first_moments = trial_first_moments(result->network);
      result->peak_bytes = measured.peak_bytes;
      if (plan.verification.memory != NULL)
        result->forecast_bytes = plan.verification.memory[transport->rank].peak_bytes;
      for (int32_t s = 0; s < plan.program->stage_count; s++) {
        const motet_group *group = &plan.program->groups[plan.program->stages[s].group];
        for (int32_t i = 0; i < group->count; i++)
          if (plan.program->group_ranks[group->first + i] == transport->rank)
            result->forecast_bytes -= plan.program->static_bytes[s];
      }
      mt_arena_reset(last);
      status = mt_planner_carried(plan.program, last, error, &carried, &carried_count);
    }
    mt_plan_free(&plan);
    mt_arena_reset(arena);
  }
done:
  mt_interpreter_destroy(interpreter);
  mt_planner_destroy(planner);
  mt_arena_destroy(arena);
  mt_arena_destroy(last);
  return status;
}

static inline const mt_parameter *trial_find(mt_network *network, const char *name) {
  for (int32_t i = 0; i < mt_network_parameter_count(network); i++)
    if (strcmp(mt_network_parameter(network, i)->name, name) == 0) return mt_network_parameter(network, i);
  return NULL;
}

static inline const char *trial_name(const trial *what) {
  static char text[200];
  snprintf(text, sizeof text, "%s, D %d x P %d x C %d, Ulysses %d%s", what->schedule, what->replicas,
           what->pipeline, what->context, what->ulysses, what->flexible ? ", flexible" : "");
  return text;
}

/** Losses, norms and weights agree up to the order of sums. */
static inline void trial_compare(const trial_result *result, const trial_result *reference, const trial *what) {
  for (int step = 0; step < TRIAL_STEPS; step++) {
    for (int m = 0; m < TRIAL_MICROBATCHES; m++) {
      double difference = fabs(result->losses[step][m] - reference->losses[step][m]);
      if (!(difference < 1e-5) || !(result->losses[step][m] > 0))
        fail_msg("%s: loss of step %d, microbatch %d: %.9g and %.9g", trial_name(what), step, m,
                 result->losses[step][m], reference->losses[step][m]);
    }
    /* Ranks without OPTIM know no norm. */
    if (result->norms[step] != 0 && fabs(result->norms[step] / reference->norms[step] - 1) > 1e-4)
      fail_msg("%s: norm of step %d: %.9g and %.9g", trial_name(what), step, result->norms[step],
               reference->norms[step]);
  }
  for (int32_t i = 0; i < mt_network_parameter_count(result->network); i++) {
    const mt_parameter *own = mt_network_parameter(result->network, i);
    const mt_parameter *other = trial_find(reference->network, own->name);
    assert_non_null(other);
    for (int64_t e = 0; e < own->count; e++)
      if (!(fabsf(own->value[e] - other->value[e]) < 1e-5F))
        fail_msg("%s: %s[%lld]: %.9g and %.9g", trial_name(what), own->name, (long long)e, (double)own->value[e],
                 (double)other->value[e]);
  }
}

/** The trial against one rank that computes everything in order, and the forecast of its memory. */
static inline void trial_check(const mt_internvl *config, const trial *what, bool text_only_too,
                               mt_transport *transport) {
  motet_error error;
  static trial_data data;
  trial_data_fill(&data, config, text_only_too);
  trial alone = *what;
  alone.schedule = "<vision+projector: inline, llm: 1f1b>";
  alone.pipeline = alone.replicas = 1;
  mt_transport *self;
  trial_result reference, result;
  assert_int_equal(mt_transport_self_create(&(mt_transport_options){.ranks = 1}, &error, &self), MOTET_OK);
  if (trial_run(&alone, &data, self, &error, &reference) != MOTET_OK) fail_msg("alone: %s", error.text);
  if (trial_run(what, &data, transport, &error, &result) != MOTET_OK)
    fail_msg("%s: %s", trial_name(what), error.text);
  trial_compare(&result, &reference, what);
  /* After one step the first moments are 1 - beta1 = 0.1 of the clipped gradients, whose norm is at most 0.5. */
  double clipped = fmin(reference.norms[0], 0.5);
  if (fabs(reference.first_moments - 0.1 * clipped) > 1e-6)
    fail_msg("clipping to 0.5 left a norm of %.9g of %.9g", reference.first_moments * 10, reference.norms[0]);
  /* The forecast counts what the program says is held; it is exact but for the allocations' rounding, and for what
     a split backward copies, which it counts from the forward on. */
  bool splits = strstr(what->schedule, "zb") != NULL;
  if (result.peak_bytes > result.forecast_bytes ||
      (!splits && (double)result.peak_bytes < 0.95 * (double)result.forecast_bytes))
    fail_msg("%s: rank %d used %lld bytes at once, forecast %lld", trial_name(what), transport->rank,
             (long long)result.peak_bytes, (long long)result.forecast_bytes);
  mt_network_destroy(result.network);
  mt_network_destroy(reference.network);
  mt_transport_destroy(self);
  trial_data_free(&data);
}

/** A schedule whose frozen encoder runs ahead, in one and two replicas of at most four ranks, with microbatches of
 * text alone and without. */
static inline void trial_check_ahead(const char *schedule, mt_transport *transport) {
  mt_internvl config = trial_config();
  for (int32_t replicas = 1; replicas <= 2 && transport->ranks % replicas == 0; replicas++)
    for (int text_only_too = 0; text_only_too < 2; text_only_too++) {
      trial what = {.schedule = schedule,
                    .pipeline = transport->ranks / replicas,
                    .replicas = replicas,
                    .trainable = {false, false, true}};
      if (what.pipeline <= 4) trial_check(&config, &what, text_only_too != 0, transport);
    }
}

#endif

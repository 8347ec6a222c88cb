/*
 * The language model over a group of ranks, members as threads: the sum of the members' losses and gradients
 * against one network with the whole packed row. Both add the same numbers in another order: single precision
 * leaves some units in the seventh digit.
 */
#include "member_threads.h"
#include "nn_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* Of the largest value of a gradient, and of the loss. bfloat16 has 8 bits: a partial sum that is rounded elsewhere
 * moves the layers behind it by some of its units. */
static const double tolerances[] = {[MT_ELEMENT_FLOAT32] = 1e-5, [MT_ELEMENT_BFLOAT16] = 3e-2};
static double tolerance;

enum { FIRST = 4, SEGMENTS_MAX = 6, TOKENS_MAX = 256, FEATURES = NN_CASE_TILES * NN_CASE_FEATURES };

static motet_error failure;

static void must(motet_status status) {
  if (status != MOTET_OK) fail_msg("%s", failure.text);
}

typedef struct row_case {
  int32_t segments;
  int32_t lengths[SEGMENTS_MAX];
  bool features;
} row_case;

static const row_case rows[] = {
    {3, {68, 1, 21}, true}, {1, {240}, true}, {4, {5, 2, 16, 9}, true}, {1, {3}, false}, {3, {1, 0, 2}, false},
};
enum { ROWS = sizeof rows / sizeof *rows };

typedef struct network_job {
  mt_internvl config;
  int32_t ulysses, rings;
  bool split;
  mt_element element;
  int32_t threads;
  int32_t begin[SEGMENTS_MAX + 1], ids[TOKENS_MAX], labels[TOKENS_MAX], rows[FEATURES];
  mt_batch whole;
  int32_t features;
  float *input; /* (features, hidden) */
  double losses[MEMBERS_MAX];
  mt_network *networks[MEMBERS_MAX];
  float *input_gradient; /* (features, hidden): every row from the member that holds it */
} network_job;

static void fill(network_job *job, const row_case *row) {
  mt_random random = mt_random_stream(13, "row");
  int32_t total = 0, targets = 0;
  for (int32_t s = 0; s < row->segments; s++) job->begin[s + 1] = total += row->lengths[s];
  for (int32_t t = 0; t < total; t++) {
    job->ids[t] = (int32_t)mt_random_below(&random, 75);
    job->labels[t] = t % 3 == 1 ? -100 : (int32_t)mt_random_below(&random, 75);
    targets += job->labels[t] != -100;
  }
  job->features = row->features ? FEATURES : 0;
  for (int32_t f = 0; f < job->features; f++) job->rows[f] = (7 * f + 3) % total;
  job->whole = (mt_batch){.tokens = total,
                          .segments = row->segments,
                          .segment_begin = job->begin,
                          .tiles = row->features ? NN_CASE_TILES : 0,
                          .token_ids = job->ids,
                          .labels = job->labels,
                          .feature_rows = job->rows,
                          .loss_weight = 1.0 / targets};
  const int64_t count = job->features * (int64_t)job->config.decoder.hidden;
  job->input = malloc((size_t)(count + 1) * sizeof(float));
  job->input_gradient = calloc((size_t)count + 1, sizeof(float));
  for (int64_t i = 0; i < count; i++) job->input[i] = (float)mt_random_normal(&random);
}

static motet_status make(const mt_internvl *config, mt_element element, int32_t threads, motet_error *error,
                         mt_network **network) {
  bool held[NN_CASE_LAYERS], trainable[NN_CASE_LAYERS];
  for (int l = 0; l < NN_CASE_LAYERS; l++) held[l] = l >= FIRST, trainable[l] = true;
  motet_status status = mt_network_create(config, held, trainable, error, network);
  if (status == MOTET_OK) nn_case_weights(*network);
  /* Half of these weights: the scores of attention are less sharp, and rounding is not blown up. */
  for (int32_t i = 0; status == MOTET_OK && i < mt_network_parameter_count(*network); i++) {
    mt_parameter *parameter = mt_network_parameter(*network, i);
    for (int64_t e = 0; parameter->dims >= 2 && e < parameter->count; e++) parameter->value[e] *= 0.5F;
  }
  return status == MOTET_OK ? mt_network_use(*network, element, threads, error) : status;
}

/* Backward whole, or in two halves: messages go with the first. */
static motet_status backward(mt_network *network, const mt_internvl *config, int32_t begin, int32_t end,
                             const mt_batch *batch, mt_saved *saved, const float *output_gradient,
                             float *input_gradient, bool split, mt_arena *arena, motet_error *error) {
  if (!split)
    return mt_network_backward(network, begin, end, begin, batch, saved, output_gradient, input_gradient, error);
  bool trainable[NN_CASE_LAYERS];
  for (int l = 0; l < NN_CASE_LAYERS; l++) trainable[l] = true;
  const int64_t bytes =
      mt_network_deferred_bytes(config, mt_network_element(network), trainable, begin, end, begin, batch);
  void *memory = mt_arena_array(arena, (size_t)bytes, 1);
  mt_deferred *deferred;
  motet_status status = mt_network_backward_inputs(network, begin, end, begin, batch, saved, output_gradient,
                                                   input_gradient, memory, error, &deferred);
  return status == MOTET_OK ? mt_network_backward_weights(network, batch, deferred, error) : status;
}

/* Forward and backward in two runs of layers, as two pipeline stages would. */
static motet_status step(mt_network *network, const mt_internvl *config, const mt_batch *batch, const float *input,
                         bool split, mt_arena *arena, motet_error *error, double *loss, float *input_gradient) {
  mt_saved *first, *second;
  int64_t between_rows, columns;
  mt_network_output_shape(config, 5, batch, &between_rows, &columns);
  float *between = MT_ARENA_NEW(arena, float, between_rows *columns);
  float *gradient = MT_ARENA_NEW(arena, float, between_rows *columns);
  const int32_t end = NN_CASE_LAYERS;
  motet_status status =
      mt_network_forward(network, FIRST, 6, batch, input, between, true, FIRST, arena, error, &first, loss);
  if (status == MOTET_OK)
    status = mt_network_forward(network, 6, end, batch, between, NULL, true, 6, arena, error, &second, loss);
  if (status == MOTET_OK)
    status = backward(network, config, 6, end, batch, second, NULL, gradient, split, arena, error);
  if (status == MOTET_OK)
    status = backward(network, config, FIRST, 6, batch, first, gradient, input_gradient, split, arena, error);
  return status;
}

static motet_status step_as_member(member *self) {
  network_job *job = self->job;
  mt_arena *arena = mt_arena_create();
  const size_t hidden = (size_t)job->config.decoder.hidden;
  int32_t ranks[MEMBERS_MAX], held[FEATURES];
  mt_context *context;
  mt_batch share;
  for (int32_t i = 0; i < MEMBERS_MAX; i++) ranks[i] = i;
  motet_status status = mt_context_zigzag(arena, job->ulysses, job->rings, self->rank, ranks, job->whole.segments,
                                          job->begin, &self->error, &context);
  if (status == MOTET_OK) {
    context->exchange = &self->exchange;
    status = mt_context_share(context, &job->whole, job->features, arena, &self->error, &share);
  }
  if (status == MOTET_OK)
    status = make(&job->config, job->element, job->threads, &self->error, &job->networks[self->rank]);
  if (status == MOTET_OK) {
    const int32_t count = mt_context_features(context, self->rank, job->features, job->rows, held);
    float *input = MT_ARENA_NEW(arena, float, (size_t)count *hidden),
          *gradient = MT_ARENA_NEW(arena, float, (size_t)count *hidden);
    for (int32_t f = 0; f < count; f++)
      memcpy(input + (size_t)f * hidden, job->input + (size_t)held[f] * hidden, hidden * sizeof *input);
    status = step(job->networks[self->rank], &job->config, &share, count > 0 ? input : NULL, job->split, arena,
                  &self->error, &job->losses[self->rank], count > 0 ? gradient : NULL);
    for (int32_t f = 0; f < count; f++)
      memcpy(job->input_gradient + (size_t)held[f] * hidden, gradient + (size_t)f * hidden, hidden * sizeof *input);
  }
  mt_arena_destroy(arena);
  return status;
}

/* Largest difference over the largest value expected. A bias of keys moves all scores of a row nearly alike: what
 * it gets is what is left of larger numbers, and so is four times as far off. */
static double worst;

static void close_to(const char *what, const char *name, const double *found, const float *wanted, int64_t count) {
  const double allowed = strstr(name, "k_proj.bias") != NULL ? 4 * tolerance : tolerance;
  double most = 0, largest = 1e-30;
  for (int64_t i = 0; i < count; i++) {
    const double off = fabs(found[i] - (double)wanted[i]);
    most = off > most || isnan(off) ? off : most;
    largest = fabs((double)wanted[i]) > largest ? fabs((double)wanted[i]) : largest;
  }
  if (!(most <= allowed * largest)) fail_msg("%s: gradient of %s is off by %g of %g", what, name, most, largest);
  if (allowed <= tolerances[MT_ELEMENT_FLOAT32]) worst = most / largest > worst ? most / largest : worst;
}

static void compare(const row_case *row, bool other, int32_t ulysses, int32_t rings, mt_element element) {
  char what[96];
  snprintf(what, sizeof what, "%d x %d, form %d, row %td", ulysses, rings, other, row - rows);
  network_job job = {.config = nn_case_config(other),
                     .ulysses = ulysses,
                     .rings = rings,
                     .element = element,
                     .split = (ulysses + rings + row->segments) % 2 == 0};
  static member members[MEMBERS_MAX];
  const int32_t count = ulysses * rings;
  tolerance = tolerances[element];
  fill(&job, row);
  const int64_t input_count = (int64_t)job.features * job.config.decoder.hidden;
  mt_network *whole, *before[MEMBERS_MAX];
  mt_arena *arena = mt_arena_create();
  float *input_gradient = MT_ARENA_NEW(arena, float, input_count);
  double loss = 0, sum = 0, last = 0;
  must(make(&job.config, job.element, 1, &failure, &whole));
  must(step(whole, &job.config, &job.whole, job.input, false, arena, &failure, &loss, input_gradient));
  for (int again = 0; again < 2; again++) {
    memcpy(before, job.networks, sizeof before);
    job.threads = 1 + again; /* the same bits, whatever their number */
    memset(job.losses, 0, sizeof job.losses);
    if (members_run(count, step_as_member, &job, members, &failure) != MOTET_OK)
      fail_msg("%s: %s", what, failure.text);
    last = sum, sum = 0;
    for (int32_t i = 0; i < count; i++) sum += job.losses[i];
    if (again == 1) assert_true(sum == last);
    for (int32_t m = 0; m < count && again == 1; m++) {
      for (int32_t i = 0; i < mt_network_parameter_count(whole); i++) {
        const mt_parameter *a = mt_network_parameter(before[m], i), *b = mt_network_parameter(job.networks[m], i);
        assert_memory_equal(a->gradient, b->gradient, (size_t)a->count * sizeof(float));
      }
      mt_network_destroy(before[m]);
    }
  }
  if (!(fabs(sum - loss) <= tolerance * loss)) fail_msg("%s: loss %.9g, alone %.9g", what, sum, loss);
  for (int32_t i = 0; i < mt_network_parameter_count(whole); i++) {
    const mt_parameter *wanted = mt_network_parameter(whole, i);
    double *found = calloc((size_t)wanted->count, sizeof *found);
    for (int32_t m = 0; m < count; m++)
      for (int64_t e = 0; e < wanted->count; e++)
        found[e] += (double)mt_network_parameter(job.networks[m], i)->gradient[e];
    close_to(what, wanted->name, found, wanted->gradient, wanted->count);
    free(found);
  }
  double *found = calloc((size_t)input_count + 1, sizeof *found);
  for (int64_t e = 0; e < input_count; e++) found[e] = (double)job.input_gradient[e];
  close_to(what, "the image features", found, input_gradient, input_count);
  for (int32_t m = 0; m < count; m++) mt_network_destroy(job.networks[m]);
  free(found), free(job.input), free(job.input_gradient);
  mt_network_destroy(whole);
  mt_arena_destroy(arena);
}

static void test_rings_of_every_degree(void **state) {
  (void)state;
  for (int32_t degree = 1; degree <= 8; degree++)
    for (int r = 0; r < ROWS; r++) compare(&rows[r], degree % 2 == 0, 1, degree, MT_ELEMENT_FLOAT32);
}

/* 4 heads with 2 of keys and values, and 4 with 4. */
static void test_heads_and_rings(void **state) {
  (void)state;
  static const int32_t forms[][2] = {{2, 1}, {4, 1}, {2, 2}, {2, 3}, {4, 2}};
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
    for (int r = 0; r < ROWS; r++)
      compare(&rows[r], ((int)f + r) % 2, forms[f][0], forms[f][1], MT_ELEMENT_FLOAT32);
}

static void test_bfloat16(void **state) {
  (void)state;
  static const row_case text = {3, {77, 2, 50}, false};
  for (int32_t degree = 1; degree <= 3; degree++) compare(&text, false, 1, degree, MT_ELEMENT_BFLOAT16);
  compare(&text, true, 2, 2, MT_ELEMENT_BFLOAT16);
}

/* A share that is not the context's, and a failure of one member that ends the others' waits. */
static void test_wrong_shares_are_refused(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  network_job job = {.config = nn_case_config(false)};
  const int32_t ranks[2] = {0, 1};
  mt_context *context;
  mt_batch share;
  mt_network *network;
  double loss = 0;
  fill(&job, &rows[0]);
  must(make(&job.config, MT_ELEMENT_FLOAT32, 1, &failure, &network));
  must(mt_context_zigzag(arena, 1, 2, 1, ranks, 3, job.begin, &failure, &context));
  must(mt_context_share(context, &job.whole, job.features, arena, &failure, &share));
  assert_int_equal(step(network, &job.config, &share, job.input, false, arena, &failure, &loss, NULL),
                   MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(failure.text, "no way to exchange"));
  const mt_context_exchange exchange = {0};
  context->exchange = &exchange;
  share.tiles = 1;
  assert_int_equal(step(network, &job.config, &share, job.input, false, arena, &failure, &loss, NULL),
                   MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(failure.text, "its owner encodes"));
  job.whole.context = context;
  assert_int_equal(step(network, &job.config, &job.whole, job.input, false, arena, &failure, &loss, NULL),
                   MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(failure.text, "90 tokens"));
  mt_network_destroy(network);
  mt_arena_destroy(arena);
  free(job.input), free(job.input_gradient);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rings_of_every_degree),
      cmocka_unit_test(test_heads_and_rings),
      cmocka_unit_test(test_bfloat16),
      cmocka_unit_test(test_wrong_shares_are_refused),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  printf("largest difference of a gradient: %.2g of its largest value\n", worst);
  return failed;
}

/*
 * Context-parallel groups over messages: ranks divided into groups of several sizes, each with a packed row of its
 * own, all in one microbatch. The sums of losses and gradients over all ranks against one network that computes
 * every row whole, and the elements that went round against the formulas.
 */
#include "../runtime/nn_case.h"

#include "comm/collective.h"
#include "train/context_exchange.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FIRST = 4, TOKENS_MAX = 160, SEGMENTS_MAX = 4, GROUPS_MAX = 8 };

static const double tolerance = 1e-5;

static mt_transport *transport;
static motet_error failure;

static void must(motet_status status) {
  if (status != MOTET_OK) fail_msg("rank %d: %s", transport->rank, failure.text);
}

typedef struct packed_row {
  int32_t begin[SEGMENTS_MAX + 1], ids[TOKENS_MAX], labels[TOKENS_MAX];
  mt_batch batch;
} packed_row;

/* Lengths that the group's degree does not divide, shorter than its pieces, and long ones. */
static void fill(packed_row *row, int32_t number) {
  static const int32_t lengths[][SEGMENTS_MAX] = {{97, 3, 40, 1}, {1, 1, 0, 0}, {5, 2, 90, 61}, {64, 64, 0, 0}};
  mt_random random = mt_random_stream(17 + (uint64_t)number, "row");
  row->begin[0] = 0;
  for (int32_t s = 0; s < SEGMENTS_MAX; s++) row->begin[s + 1] = row->begin[s] + lengths[number % 4][s];
  const int32_t tokens = row->begin[SEGMENTS_MAX];
  for (int32_t t = 0; t < tokens; t++) {
    row->ids[t] = (int32_t)mt_random_below(&random, 75);
    row->labels[t] = t % 4 == 1 ? -100 : (int32_t)mt_random_below(&random, 75);
  }
  row->batch = (mt_batch){.tokens = tokens,
                          .segments = SEGMENTS_MAX,
                          .segment_begin = row->begin,
                          .token_ids = row->ids,
                          .labels = row->labels,
                          .loss_weight = 1.0 / 300};
}

static mt_network *make(const mt_internvl *config) {
  bool held[NN_CASE_LAYERS], trainable[NN_CASE_LAYERS];
  mt_network *network;
  for (int l = 0; l < NN_CASE_LAYERS; l++) held[l] = l >= FIRST, trainable[l] = true;
  must(mt_network_create(config, held, trainable, &failure, &network));
  nn_case_weights(network);
  /* Half of these weights: the scores of attention are less sharp, and rounding is not blown up. */
  for (int32_t i = 0; i < mt_network_parameter_count(network); i++) {
    mt_parameter *parameter = mt_network_parameter(network, i);
    for (int64_t e = 0; parameter->dims >= 2 && e < parameter->count; e++) parameter->value[e] *= 0.5F;
  }
  return network;
}

static double step(mt_network *network, const mt_batch *batch) {
  mt_arena *arena = mt_arena_create();
  mt_saved *saved;
  double loss = 0;
  must(mt_network_forward(network, FIRST, NN_CASE_LAYERS, batch, NULL, NULL, true, FIRST, arena, &failure, &saved,
                          &loss));
  must(mt_network_backward(network, FIRST, NN_CASE_LAYERS, FIRST, batch, saved, NULL, NULL, &failure));
  mt_arena_destroy(arena);
  return loss;
}

/* Sums over all ranks. */
static void add_up(double *values, size_t count) {
  int32_t ranks[64];
  mt_collective_scratch scratch = {0};
  for (int32_t i = 0; i < transport->ranks; i++) ranks[i] = i;
  const mt_rank_group all = {.number = 0, .count = transport->ranks, .ranks = ranks};
  must(mt_all_reduce_doubles(transport, &all, values, count, &scratch, &failure));
  mt_collective_scratch_free(&scratch);
}

typedef struct division {
  int32_t count;
  int32_t ulysses[GROUPS_MAX], rings[GROUPS_MAX];
} division;

static void compare(const mt_internvl *config, const division *groups, bool backwards) {
  packed_row row;
  mt_arena *arena = mt_arena_create();
  mt_network *whole = make(config), *own = make(config);
  double losses[2] = {0, 0}, elements[2] = {0, 0}, wanted_elements[2] = {0, 0};
  int32_t first = 0;
  for (int32_t g = 0; g < groups->count; g++) {
    const int32_t u = groups->ulysses[g], r = groups->rings[g], degree = u * r;
    int32_t ranks[64], place = -1;
    for (int32_t i = 0; i < degree; i++) {
      ranks[i] = backwards ? transport->ranks - 1 - first - i : first + i;
      if (ranks[i] == transport->rank) place = i;
    }
    first += degree;
    fill(&row, g);
    losses[0] += step(whole, &row.batch) / transport->ranks; /* every rank adds it */
    const mt_internvl_decoder *decoder = &config->decoder;
    const double kv = 2.0 * row.batch.tokens * fmax(decoder->kv_heads, u) * decoder->head_dim * decoder->layers;
    wanted_elements[0] += kv * (r - 1);
    wanted_elements[1] += 2 * kv * (r - 1) + (r > 1 ? kv : 0);
    if (place < 0) continue;
    const mt_context_exchange exchange = mt_context_exchange_over(transport);
    mt_context_counts counts = {0};
    mt_context *context;
    mt_batch share;
    must(mt_context_zigzag(arena, u, r, place, ranks, SEGMENTS_MAX, row.begin, &failure, &context));
    context->exchange = &exchange;
    context->counts = &counts;
    must(mt_context_share(context, &row.batch, 0, arena, &failure, &share));
    losses[1] += step(own, &share);
    elements[0] += (double)counts.ring_forward;
    elements[1] += (double)counts.ring_backward;
  }
  add_up(losses, 2);
  add_up(elements, 2);
  if (!(fabs(losses[1] - losses[0]) <= 1e-6 * losses[0])) fail_msg("loss %.9g, alone %.9g", losses[1], losses[0]);
  for (int i = 0; i < 2; i++)
    if (elements[i] != wanted_elements[i])
      fail_msg("%.0f elements went round, by the formula %.0f", elements[i], wanted_elements[i]);
  for (int32_t i = 0; i < mt_network_parameter_count(whole); i++) {
    const mt_parameter *wanted = mt_network_parameter(whole, i), *mine = mt_network_parameter(own, i);
    double *sum = calloc((size_t)wanted->count, sizeof *sum), most = 0, largest = 1e-30;
    for (int64_t e = 0; e < wanted->count; e++) sum[e] = (double)mine->gradient[e];
    add_up(sum, (size_t)wanted->count);
    for (int64_t e = 0; e < wanted->count; e++) {
      const double off = fabs(sum[e] - (double)wanted->gradient[e]);
      most = off > most || isnan(off) ? off : most;
      largest = fmax(largest, fabs((double)wanted->gradient[e]));
    }
    if (!(most <= tolerance * largest))
      fail_msg("%d groups: gradient of %s is off by %g of %g", groups->count, wanted->name, most, largest);
    free(sum);
  }
  mt_network_destroy(whole);
  mt_network_destroy(own);
  mt_arena_destroy(arena);
}

/* All ranks in one ring. */
static void test_one_ring(void **state) {
  (void)state;
  const mt_internvl config = nn_case_config(false);
  const division all = {.count = 1, .ulysses = {1}, .rings = {transport->ranks}};
  compare(&config, &all, false);
  compare(&config, &all, true);
}

/* 1; 1 + 1; 1 + 2; 1 + 3 and 2 x 1 + 1 + 1; 1 + 3 + 2 x 2 and 1 x 5 + 2 x 1 + 1. */
static void test_groups_of_several_sizes(void **state) {
  (void)state;
  const mt_internvl config = nn_case_config(false);
  static const division divisions[] = {
      {1, {1}, {1}},       {2, {1, 1}, {1, 1}},       {2, {1, 1}, {1, 2}},       {2, {1, 2}, {1, 1}},
      {2, {1, 1}, {1, 3}}, {3, {2, 1, 1}, {1, 1, 1}}, {3, {1, 1, 2}, {1, 3, 2}}, {3, {1, 2, 1}, {5, 1, 1}}};
  for (size_t d = 0; d < sizeof divisions / sizeof *divisions; d++) {
    int32_t ranks = 0;
    for (int32_t g = 0; g < divisions[d].count; g++) ranks += divisions[d].ulysses[g] * divisions[d].rings[g];
    if (ranks == transport->ranks) compare(&config, &divisions[d], d % 2 == 0);
  }
}

/* The form with as many heads of keys and values as of queries, shared by two and by four. */
static void test_heads(void **state) {
  (void)state;
  const mt_internvl config = nn_case_config(true);
  for (int32_t u = 2; u <= 4; u += 2) {
    if (transport->ranks % u != 0) continue;
    compare(&config, &(division){.count = 1, .ulysses = {u}, .rings = {transport->ranks / u}}, false);
  }
}

int main(void) {
  mt_transport_options options = {.ranks = 1, .hang_seconds = 5};
  if (!mt_transport_launched(&options.ranks, NULL)) options.ranks = 1;
  if (mt_transport_mpi_create(&options, &failure, &transport) != MOTET_OK) {
    fprintf(stderr, "%s\n", failure.text);
    return 2;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_ring),
      cmocka_unit_test(test_groups_of_several_sizes),
      cmocka_unit_test(test_heads),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (failed != 0) mt_transport_fail(transport, &failure);
  mt_transport_destroy(transport);
  return failed;
}

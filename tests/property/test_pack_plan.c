/* What every plan must keep, whoever planned it: each sequence once, memory, disjoint ranks, values by the
 * contract's formula, slice tables that cover every token, loss weights that add up. */
#include "base/random.h"
#include "motet/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES_MAX = 300, CASES = 400, SEED = 5 };

typedef struct instance {
  motet_pack_options options;
  int32_t degrees[64];
  int32_t count;
  motet_pack_sequence sequences[SEQUENCES_MAX];
} instance;

static double formula(const motet_pack_cost *cost, int64_t tokens, double area, int32_t d) {
  double ring = 0;
  if (d > 1) {
    double bandwidth = cost->bandwidth_bytes_per_second[cost->bandwidth_count - 1];
    for (int32_t i = cost->bandwidth_count - 1; i >= 0; i--)
      if (cost->bandwidth_degree[i] >= d) bandwidth = cost->bandwidth_bytes_per_second[i];
    ring = cost->ring_bytes_per_token * (double)tokens * (d - 1) / (d * bandwidth) +
           cost->latency_seconds_per_hop * (d - 1);
  }
  double attention = cost->attention_seconds_per_area * area / d;
  return cost->fixed_seconds + cost->linear_seconds_per_token * (double)tokens / d +
         (cost->no_overlap ? attention + ring : fmax(attention, ring));
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-12; }

static void draw(mt_random *random, instance *of) {
  static const int32_t rank_counts[] = {1, 2, 7, 8, 16, 24, 64};
  memset(of, 0, sizeof *of);
  motet_pack_options *options = &of->options;
  options->ranks = rank_counts[mt_random_below(random, 7)];
  options->memory_tokens = 1000 + (int64_t)mt_random_below(random, 20000);
  options->ranks_per_node = 1 + (int32_t)mt_random_below(random, 8);
  options->cost = (motet_pack_cost){.attention_seconds_per_area = 2e-8 * mt_random_unit(random),
                                    .linear_seconds_per_token = 3e-4 * mt_random_unit(random),
                                    .fixed_seconds = mt_random_unit(random),
                                    .ring_bytes_per_token = 2e6 * mt_random_unit(random) * mt_random_unit(random),
                                    .latency_seconds_per_hop = 1e-3 * mt_random_unit(random),
                                    .no_overlap = mt_random_unit(random) < 0.2,
                                    .bandwidth_count = 3,
                                    .bandwidth_degree = {2, 8, 32},
                                    .bandwidth_bytes_per_second = {1e11, 9e10, 5e9}};
  if (mt_random_unit(random) < 0.4) {
    for (int32_t d = 1; d <= options->ranks; d *= 2) of->degrees[options->degree_count++] = d;
    options->degrees = of->degrees;
  }
  int32_t widest = options->degree_count > 0 ? of->degrees[options->degree_count - 1] : options->ranks;
  of->count = 1 + (int32_t)mt_random_below(random, SEQUENCES_MAX);
  double load = 0.2 + 1.5 * mt_random_unit(random); /* of the memory of all ranks */
  double mean = load * (double)options->memory_tokens * options->ranks / of->count;
  for (int32_t k = 0; k < of->count; k++) {
    double size = mean * -log(1 - mt_random_unit(random));
    int64_t tokens = 1 + (int64_t)size, most = options->memory_tokens * widest;
    if (tokens > most) tokens = most;
    of->sequences[k] = (motet_pack_sequence){tokens, motet_pack_causal_area(tokens)};
  }
}

static void check_sequences(const instance *of, const motet_pack_plan *plan) {
  int seen[SEQUENCES_MAX] = {0};
  int64_t tokens = 0;
  for (int64_t g = 0; g < plan->group_count; g++) {
    const motet_pack_group *group = &plan->groups[g];
    int64_t sum = 0;
    double area = 0;
    assert_true(group->sequence_count > 0);
    for (int32_t i = 0; i < group->sequence_count; i++) {
      int32_t k = plan->sequences[group->sequence_first + i];
      assert_in_range(k, 0, of->count - 1);
      if (i > 0) assert_true(k > plan->sequences[group->sequence_first + i - 1]);
      seen[k]++;
      sum += of->sequences[k].tokens;
      area += of->sequences[k].area;
    }
    assert_int_equal(sum, group->tokens);
    assert_true(sum <= of->options.memory_tokens * group->degree);
    assert_true(near(group->seconds, formula(&of->options.cost, sum, area, group->degree)));
    tokens += sum;
  }
  for (int64_t i = 0; i < plan->deferred_count; i++) seen[plan->deferred[i]]++;
  for (int32_t k = 0; k < of->count; k++) assert_int_equal(seen[k], 1);
  assert_int_equal(tokens, plan->loss_denominator);
}

/* No rank in two groups at once, and the value is the last end. */
static void check_ranks(const instance *of, const motet_pack_plan *plan) {
  double sum = 0;
  for (int64_t m = 0; m < plan->microbatch_count; m++) {
    const motet_pack_microbatch *microbatch = &plan->microbatches[m];
    double last = 0;
    for (int64_t g = 0; g < microbatch->group_count; g++) {
      const motet_pack_group *group = &plan->groups[microbatch->group_first + g];
      assert_int_equal(group->microbatch, m);
      last = fmax(last, group->start + group->seconds);
      for (int32_t r = 0; r < group->degree; r++) {
        int32_t rank = plan->ranks[group->rank_first + r];
        assert_in_range(rank, 0, of->options.ranks - 1);
        if (r > 0) assert_true(rank > plan->ranks[group->rank_first + r - 1]);
      }
      for (int64_t h = 0; h < g; h++) {
        const motet_pack_group *other = &plan->groups[microbatch->group_first + h];
        double slack = 1e-9 * (1 + last);
        if (group->start >= other->start + other->seconds - slack ||
            other->start >= group->start + group->seconds - slack)
          continue;
        for (int32_t r = 0; r < group->degree; r++)
          for (int32_t q = 0; q < other->degree; q++)
            assert_int_not_equal(plan->ranks[group->rank_first + r], plan->ranks[other->rank_first + q]);
      }
    }
    assert_true(near(last, microbatch->value));
    assert_true(microbatch->lower_bound <= microbatch->value);
    sum += microbatch->value;
  }
  assert_true(near(sum, plan->value));
  assert_true(plan->lower_bound <= plan->value);
}

/* Each token of each sequence lies in exactly one slice; the chunks are r and 2d - 1 - r; weights add up. */
static void check_slices(const instance *of, const motet_pack_plan *plan) {
  int64_t part = 0, weights = 0;
  for (int64_t g = 0; g < plan->group_count; g++) {
    const motet_pack_group *group = &plan->groups[g];
    const int64_t *cumulative = plan->cumulative + group->cumulative_first;
    assert_int_equal(cumulative[0], 0);
    for (int32_t i = 0; i < group->sequence_count; i++) {
      int32_t k = plan->sequences[group->sequence_first + i];
      int64_t length = of->sequences[k].tokens, d = group->degree, held = 0, chunk = 0;
      for (int32_t r = 0; r < group->degree; r++) {
        const motet_pack_part *of_rank = &plan->parts[part + r];
        const motet_pack_slice *slice = &plan->slices[of_rank->slice_first + i];
        assert_int_equal(of_rank->group, g);
        assert_int_equal(of_rank->position, r);
        assert_int_equal(of_rank->rank, plan->ranks[group->rank_first + r]);
        assert_int_equal(slice->sequence, k);
        chunk = slice->chunk;
        assert_int_equal(slice->first_begin, r * chunk);
        assert_int_equal(slice->second_begin, (2 * d - 1 - r) * chunk);
        int64_t first = length - slice->first_begin, second = length - slice->second_begin;
        assert_int_equal(slice->first_tokens, first < 0 ? 0 : first > chunk ? chunk : first);
        assert_int_equal(slice->second_tokens, second < 0 ? 0 : second > chunk ? chunk : second);
        held += slice->first_tokens + slice->second_tokens;
      }
      assert_int_equal(held, length);
      assert_true(2 * d * chunk >= length && 2 * d * (chunk - 1) < length); /* least padding to 2d */
      assert_int_equal(cumulative[i + 1] - cumulative[i], 2 * chunk);
    }
    for (int32_t r = 0; r < group->degree; r++) weights += plan->parts[part + r].loss_numerator;
    part += group->degree;
  }
  assert_int_equal(part, plan->part_count);
  assert_int_equal(weights, plan->loss_denominator);
}

static const motet_pack_plan *plan_with(motet_packer **packer, const motet_pack_options *options,
                                        const instance *of) {
  const motet_pack_plan *plan;
  motet_error error;
  if (motet_packer_create(options, &error, packer) != MOTET_OK) fail_msg("%s", error.text);
  if (motet_packer_plan(*packer, of->sequences, of->count, &error, &plan) != MOTET_OK) fail_msg("%s", error.text);
  return plan;
}

static void every_plan_is_sound(void **unused) {
  (void)unused;
  static instance of;
  mt_random random = mt_random_stream(SEED, "plans");
  int compared = 0, deferring = 0;
  for (int c = 0; c < CASES; c++) {
    draw(&random, &of);
    motet_pack_options options = of.options;
    options.planner = (motet_pack_planner)mt_random_below(&random, 5);
    options.static_degree = options.degree_count > 0 ? of.degrees[options.degree_count - 1] : options.ranks;
    options.batch = (motet_pack_batch)mt_random_below(&random, 3);
    options.batch_size = 1 + (int32_t)mt_random_below(&random, 100);
    if (options.planner == MOTET_PACK_BEST && mt_random_unit(&random) < 0.3) options.scope = MOTET_PACK_GLOBAL;
    if (options.planner == MOTET_PACK_BEST && options.scope == MOTET_PACK_MICROBATCH &&
        mt_random_unit(&random) < 0.3)
      options.group_budget = 1 + (int32_t)mt_random_below(&random, 40);
    motet_packer *packer, *again;
    const motet_pack_plan *plan = plan_with(&packer, &options, &of);
    check_sequences(&of, plan);
    check_ranks(&of, plan);
    check_slices(&of, plan);
    deferring += plan->deferred_count > 0;
    uint64_t digest = plan->digest;
    double value = plan->value;
    int64_t deferred = plan->deferred_count;
    assert_int_equal(plan_with(&again, &options, &of)->digest, digest);
    motet_packer_destroy(again);
    if (options.planner == MOTET_PACK_BFD_DP) { /* never slower than the published baseline on the same sequences */
      options.planner = MOTET_PACK_BEST;
      const motet_pack_plan *best = plan_with(&again, &options, &of);
      if (best->deferred_count == 0 && deferred == 0) {
        if (best->value > value * (1 + 1e-9))
          fail_msg("case %d of seed %d: %g, baseline %g", c, SEED, best->value, value);
        compared++;
      }
      motet_packer_destroy(again);
    }
    motet_packer_destroy(packer);
  }
  print_message("%d cases (seed %d), %d compared with the baseline, %d with deferred sequences\n", CASES, SEED,
                compared, deferring);
  assert_true(compared > 20 && deferring > 20);
}

/* A packer that has seen its largest batch gives the same plans as a new one, batch after batch. */
static void a_packer_has_no_memory_of_batches(void **unused) {
  (void)unused;
  static instance of;
  mt_random random = mt_random_stream(SEED, "steady");
  motet_packer *packer = NULL;
  motet_pack_options options = {0};
  for (int c = 0; c < 60; c++) {
    instance *drawn = &of;
    draw(&random, drawn);
    if (c == 0) {
      options = of.options;
      options.degrees = NULL;
      options.degree_count = 0;
      options.batch = MOTET_PACK_AUTO;
      assert_int_equal(motet_packer_create(&options, NULL, &packer), MOTET_OK);
    }
    for (int32_t k = 0; k < of.count; k++)
      if (of.sequences[k].tokens > motet_packer_longest(packer)) {
        of.sequences[k].tokens = motet_packer_longest(packer);
        of.sequences[k].area = motet_pack_causal_area(of.sequences[k].tokens);
      }
    const motet_pack_plan *plan, *fresh;
    motet_packer *other;
    assert_int_equal(motet_packer_plan(packer, of.sequences, of.count, NULL, &plan), MOTET_OK);
    fresh = plan_with(&other, &options, &of);
    assert_true(plan->value == fresh->value);
    assert_int_equal(plan->deferred_count, 0);
    motet_packer_destroy(other);
  }
  motet_packer_destroy(packer);
}

/* Groups that fit into a node stay in one where the others leave room: here degrees are such that they always can.
 */
static void rings_stay_inside_nodes(void **unused) {
  (void)unused;
  static instance of;
  mt_random random = mt_random_stream(SEED, "nodes");
  for (int c = 0; c < 100; c++) {
    draw(&random, &of);
    motet_pack_options options = of.options;
    int32_t degrees[] = {1, 2, 4, 8, 16, 32, 64};
    options.ranks = 64;
    options.ranks_per_node = 8;
    options.degrees = degrees;
    options.degree_count = 7;
    motet_packer *packer;
    const motet_pack_plan *plan = plan_with(&packer, &options, &of);
    for (int64_t g = 0; g < plan->group_count; g++) {
      const motet_pack_group *group = &plan->groups[g];
      int32_t nodes = 1;
      for (int32_t r = 1; r < group->degree; r++)
        nodes += plan->ranks[group->rank_first + r] / 8 != plan->ranks[group->rank_first + r - 1] / 8;
      assert_int_equal(nodes, (group->degree + 7) / 8);
    }
    motet_packer_destroy(packer);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_plan_is_sound),
      cmocka_unit_test(a_packer_has_no_memory_of_batches),
      cmocka_unit_test(rings_stay_inside_nodes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Context parallelism, with members as threads: who holds what, and attention over the group. References: the rule
 * of the cut token by token, the volume formulas, and attention over the whole row by the plain kernel (which its
 * own tests hold against the definition).
 */
#include "member_threads.h"

#include "base/random.h"
#include "motet/pack.h"
#include "nn/context_attention.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static motet_error failure;

static void must(motet_status status) {
  if (status != MOTET_OK) fail_msg("%s", failure.text);
}

enum { SEGMENTS_MAX = 8 };

typedef struct row_case {
  int32_t segments;
  int32_t lengths[SEGMENTS_MAX];
} row_case;

/* Lengths of many multiples of 2d, of none, shorter than 2d, 1 and 0. */
static const row_case rows[] = {
    {1, {96}}, {3, {37, 1, 58}}, {1, {3}}, {5, {2, 0, 90, 5, 1}}, {2, {1, 1}}, {4, {64, 128, 16, 32}},
};
enum { ROWS = sizeof rows / sizeof *rows };

static int32_t bounds_of(const row_case *row, int32_t *begin) {
  begin[0] = 0;
  for (int32_t s = 0; s < row->segments; s++) begin[s + 1] = begin[s] + row->lengths[s];
  return begin[row->segments];
}

static const mt_context *cut(mt_arena *arena, const row_case *row, int32_t ulysses, int32_t rings, int32_t index) {
  int32_t begin[SEGMENTS_MAX + 1], ranks[MEMBERS_MAX];
  bounds_of(row, begin);
  for (int32_t i = 0; i < ulysses * rings; i++) ranks[i] = i;
  mt_context *context;
  must(mt_context_zigzag(arena, ulysses, rings, index, ranks, row->segments, begin, &failure, &context));
  return context;
}

/* A token's place in its segment, divided by the size of a piece, is its piece; pieces i and 2d - 1 - i are i's. */
static void test_every_token_has_its_member(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  for (int32_t degree = 1; degree <= 9; degree++)
    for (int r = 0; r < ROWS; r++) {
      int32_t begin[SEGMENTS_MAX + 1], total = bounds_of(&rows[r], begin), held = 0;
      const mt_context *context = cut(arena, &rows[r], 1, degree, 0);
      for (int32_t i = 0; i < degree; i++) {
        int32_t count = mt_context_tokens(context, i), *tokens = MT_ARENA_NEW(arena, int32_t, count);
        mt_context_list(context, i, tokens);
        held += count;
        for (int32_t t = 0; t < count; t++) {
          int32_t s = 0;
          while (tokens[t] >= begin[s + 1]) s++;
          const int32_t size = (rows[r].lengths[s] + 2 * degree - 1) / (2 * degree);
          const int32_t piece = (tokens[t] - begin[s]) / size;
          assert_int_equal(piece < degree ? piece : 2 * degree - 1 - piece, i);
          if (t > 0) assert_true(tokens[t] > tokens[t - 1]);
        }
        for (int32_t c = context->chunk_begin[i]; c < context->chunk_begin[i + 1]; c++)
          assert_true(context->chunks[c].end > context->chunks[c].begin);
      }
      assert_int_equal(held, total); /* each has one place by the rule: all of them is each once */
    }
  mt_arena_destroy(arena);
}

/* The planner's slice tables and the layers' shares are the same cut. */
static void test_planner_slices_are_the_shares(void **state) {
  (void)state;
  enum { SEQUENCES = 14, RANKS = 7 };
  const motet_pack_options options = {
      .ranks = RANKS,
      .memory_tokens = 300,
      .cost = {.attention_seconds_per_area = 1e-6, .linear_seconds_per_token = 1e-5},
      .batch = MOTET_PACK_AUTO};
  motet_pack_sequence sequences[SEQUENCES];
  mt_random random = mt_random_stream(5, "sequences");
  for (int32_t i = 0; i < SEQUENCES; i++) {
    sequences[i].tokens = i < 4 ? i + 1 : 1 + (int64_t)mt_random_below(&random, i == 5 ? 2000 : 400);
    sequences[i].area = motet_pack_causal_area(sequences[i].tokens);
  }
  motet_packer *packer;
  const motet_pack_plan *plan;
  mt_arena *arena = mt_arena_create();
  must(motet_packer_create(&options, &failure, &packer));
  must(motet_packer_plan(packer, sequences, SEQUENCES, &failure, &plan));
  int32_t widest = 0;
  for (int64_t p = 0; p < plan->part_count; p++) {
    const motet_pack_part *part = &plan->parts[p];
    const motet_pack_group *group = &plan->groups[part->group];
    int32_t begin[SEQUENCES + 1] = {0};
    for (int32_t i = 0; i < group->sequence_count; i++)
      begin[i + 1] = begin[i] + (int32_t)sequences[plan->sequences[group->sequence_first + i]].tokens;
    mt_context *context;
    must(mt_context_zigzag(arena, 1, group->degree, part->position, plan->ranks + group->rank_first,
                           group->sequence_count, begin, &failure, &context));
    assert_int_equal(context->ranks[part->position], part->rank);
    int32_t count = mt_context_tokens(context, part->position), *tokens = MT_ARENA_NEW(arena, int32_t, count),
            at = 0;
    mt_context_list(context, part->position, tokens);
    for (int32_t i = 0; i < group->sequence_count; i++) {
      const motet_pack_slice *slice = &plan->slices[part->slice_first + i];
      for (int32_t t = 0; t < slice->first_tokens; t++)
        assert_int_equal(tokens[at++], begin[i] + slice->first_begin + t);
      for (int32_t t = 0; t < slice->second_tokens; t++)
        assert_int_equal(tokens[at++], begin[i] + slice->second_begin + t);
    }
    assert_int_equal(at, count);
    widest = group->degree > widest ? group->degree : widest;
  }
  assert_true(widest > 2);
  motet_packer_destroy(packer);
  mt_arena_destroy(arena);
}

/* Where 2d divides a segment, a causal mask keeps as many pairs for every member. */
static void test_causal_work_is_balanced(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const row_case row = {1, {840}};
  for (int32_t degree = 1; degree <= 7; degree++) {
    if (840 % (2 * degree) != 0) continue;
    const mt_context *context = cut(arena, &row, 1, degree, 0);
    for (int32_t i = 0; i < degree; i++) {
      int32_t tokens[840];
      int64_t pairs = 0;
      mt_context_list(context, i, tokens);
      for (int32_t t = 0; t < mt_context_tokens(context, i); t++) pairs += tokens[t] + 1;
      assert_int_equal(pairs * degree, 840 * 841 / 2);
    }
  }
  mt_arena_destroy(arena);
}

static void test_share_picks_own_rows(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const row_case *row = &rows[1];
  int32_t begin[SEGMENTS_MAX + 1], total = bounds_of(row, begin), ids[128], labels[128];
  int32_t features[] = {40, 0, 95, 37, 38}, seen = 0;
  for (int32_t t = 0; t < total; t++) ids[t] = 1000 + t, labels[t] = 2000 + t;
  const mt_batch whole = {.tokens = total,
                          .segments = row->segments,
                          .segment_begin = begin,
                          .tiles = 1,
                          .token_ids = ids,
                          .labels = labels,
                          .feature_rows = features,
                          .loss_weight = 0.25};
  for (int32_t i = 0; i < 4; i++) {
    const mt_context *context = cut(arena, row, 2, 2, i);
    int32_t tokens[128], held[5];
    mt_context_list(context, i, tokens);
    mt_batch share;
    must(mt_context_share(context, &whole, 5, arena, &failure, &share));
    assert_int_equal(share.tokens, mt_context_tokens(context, i));
    assert_true(share.context == context && share.loss_weight == 0.25 && share.tiles == 0);
    assert_int_equal(share.segment_begin[share.segments], share.tokens);
    for (int32_t s = 0; s < share.segments; s++)
      for (int32_t t = share.segment_begin[s]; t < share.segment_begin[s + 1]; t++) {
        assert_int_equal(share.token_ids[t], 1000 + tokens[t]);
        assert_int_equal(share.labels[t], 2000 + tokens[t]);
        assert_true(tokens[t] >= begin[s] && tokens[t] < begin[s + 1]);
      }
    assert_int_equal(mt_context_features(context, i, 5, features, held), share.features);
    for (int32_t f = 0; f < share.features; f++) assert_int_equal(tokens[share.feature_rows[f]], features[held[f]]);
    seen += share.features;
  }
  assert_int_equal(seen, 5);
  features[2] = 96;
  mt_batch share;
  assert_int_equal(mt_context_share(cut(arena, row, 1, 2, 0), &whole, 5, arena, &failure, &share),
                   MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(failure.text, "row 96"));
  assert_int_equal(mt_context_share(cut(arena, &rows[0], 1, 2, 0), &whole, 5, arena, &failure, &share),
                   MOTET_ERROR_ARGUMENT);
  mt_arena_destroy(arena);
}

/* 28 heads with 4 of keys and values: 7 and 14 would cut a group of 7 heads into pieces that need two of the 4. */
static void test_heads_that_can_be_shared(void **state) {
  (void)state;
  for (int32_t u = 1; u <= 40; u++) {
    const bool legal = u == 1 || u == 2 || u == 4 || u == 28;
    assert_int_equal(mt_context_check_heads(u, 28, 4, &failure), legal ? MOTET_OK : MOTET_ERROR_ILLEGAL);
    if (!legal) assert_non_null(strstr(failure.text, "1, 2, 4, 28 can"));
  }
  mt_arena *arena = mt_arena_create();
  const int32_t begin[2] = {0, 10}, ranks[3] = {0};
  mt_context *context;
  assert_int_equal(mt_context_zigzag(arena, 0, 1, 0, ranks, 1, begin, &failure, &context), MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_context_zigzag(arena, 1, 3, 3, ranks, 1, begin, &failure, &context), MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_context_zigzag(arena, 1, 3, 0, ranks, 0, begin, &failure, &context), MOTET_ERROR_ARGUMENT);
  mt_arena_destroy(arena);
}

typedef struct attention_job {
  const row_case *row;
  int32_t ulysses, rings, heads, kv_heads, head_dim;
  bool causal;
  float *qkv, *output_gradient; /* of the whole row */
  float *output, *gradient;     /* of the whole row: each member writes its own */
  mt_context_counts counts[MEMBERS_MAX];
} attention_job;

static int64_t qkv_width(const attention_job *job) {
  return (int64_t)(job->heads + 2 * job->kv_heads) * job->head_dim;
}

/* own rows <-> rows of the whole, `width` floats each */
static void copy_rows(const int32_t *tokens, int32_t count, int64_t width, float *whole, float *own, bool out) {
  for (int32_t t = 0; t < count; t++)
    memcpy(out ? whole + tokens[t] * width : own + t * width, out ? own + t * width : whole + tokens[t] * width,
           (size_t)width * sizeof *own);
}

static motet_status attend_as_member(member *self) {
  attention_job *job = self->job;
  mt_arena *arena = mt_arena_create();
  int32_t begin[SEGMENTS_MAX + 1], ranks[MEMBERS_MAX];
  bounds_of(job->row, begin);
  for (int32_t i = 0; i < MEMBERS_MAX; i++) ranks[i] = i;
  mt_context *context;
  mt_team *team = NULL;
  motet_status status = mt_context_zigzag(arena, job->ulysses, job->rings, self->rank, ranks, job->row->segments,
                                          begin, &self->error, &context);
  if (status != MOTET_OK) goto done;
  context->exchange = &self->exchange;
  context->counts = &self->counts;
  status = mt_team_create(1, &self->error, &team);
  if (status != MOTET_OK) goto done;
  const mt_device device = {mt_tensor_backend_cpu(MT_ELEMENT_FLOAT32), team};
  const mt_context_attention attention = {.context = context,
                                          .device = &device,
                                          .heads = job->heads,
                                          .kv_heads = job->kv_heads,
                                          .head_dim = job->head_dim,
                                          .causal = job->causal,
                                          .scale = 1.0F / sqrtf((float)job->head_dim)};
  const int32_t count = mt_context_tokens(context, self->rank);
  const int64_t width = qkv_width(job), wide = (int64_t)job->heads * job->head_dim;
  int32_t *tokens = MT_ARENA_NEW(arena, int32_t, count);
  float *qkv = MT_ARENA_NEW(arena, float, count *width), *gradient = MT_ARENA_NEW(arena, float, count *width);
  float *output = MT_ARENA_NEW(arena, float, count *wide), *dy = MT_ARENA_NEW(arena, float, count *wide);
  float *saved = MT_ARENA_NEW(arena, float, mt_context_attention_saved(&attention));
  float *scratch = MT_ARENA_NEW(arena, float, mt_context_attention_scratch(&attention));
  mt_context_list(context, self->rank, tokens);
  copy_rows(tokens, count, width, job->qkv, qkv, false);
  copy_rows(tokens, count, wide, job->output_gradient, dy, false);
  status = mt_context_attention_forward(&attention, qkv, saved, scratch, output, &self->error);
  /* What backward needs is in `saved`, and nothing in scratch. */
  memset(scratch, 0xff, mt_context_attention_scratch(&attention) * sizeof *scratch);
  if (status == MOTET_OK)
    status = mt_context_attention_backward(&attention, qkv, output, dy, saved, scratch, gradient, &self->error);
  copy_rows(tokens, count, wide, job->output, output, true);
  copy_rows(tokens, count, width, job->gradient, gradient, true);
  job->counts[self->rank] = self->counts;
done:
  mt_team_destroy(team);
  mt_arena_destroy(arena);
  return status;
}

/* The whole row by the plain kernel. */
static void attend_alone(const attention_job *job, int32_t total, float *output, float *gradient) {
  mt_team *team;
  must(mt_team_create(1, &failure, &team));
  const mt_device device = {mt_tensor_backend_cpu(MT_ELEMENT_FLOAT32), team};
  const int64_t width = qkv_width(job), wide = (int64_t)job->heads * job->head_dim;
  const int64_t narrow = (int64_t)job->kv_heads * job->head_dim;
  int32_t begin[SEGMENTS_MAX + 1];
  bounds_of(job->row, begin);
  const mt_attention attention = {.query = job->qkv,
                                  .key = job->qkv + wide,
                                  .value = job->qkv + wide + narrow,
                                  .query_stride = width,
                                  .key_stride = width,
                                  .value_stride = width,
                                  .heads = job->heads,
                                  .kv_heads = job->kv_heads,
                                  .head_dim = job->head_dim,
                                  .segments = job->row->segments,
                                  .segment_begin = begin,
                                  .causal = job->causal,
                                  .scale = 1.0F / sqrtf((float)job->head_dim)};
  float *log_sum = malloc((size_t)(total * job->heads) * sizeof *log_sum);
  must(mt_parallel_attention_forward(&device, &attention, output, wide, log_sum, &failure));
  const mt_attention_gradients gradients = {.output = output,
                                            .output_gradient = job->output_gradient,
                                            .output_stride = wide,
                                            .output_gradient_stride = wide,
                                            .log_sum = log_sum,
                                            .query = gradient,
                                            .key = gradient + wide,
                                            .value = gradient + wide + narrow,
                                            .query_stride = width,
                                            .key_stride = width,
                                            .value_stride = width};
  must(mt_parallel_attention_backward(&device, &attention, &gradients, &failure));
  mt_team_destroy(team);
  free(log_sum);
}

static double largest_difference(const float *a, const float *b, int64_t count, double *largest) {
  double most = 0;
  *largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const double off = fabs((double)a[i] - (double)b[i]);
    most = off > most || isnan(off) ? off : most;
    *largest = fabs((double)b[i]) > *largest ? fabs((double)b[i]) : *largest;
  }
  return most;
}

static float *random_floats(const char *name, int64_t count) {
  float *data = malloc((size_t)(count + 1) * sizeof *data);
  mt_random random = mt_random_stream(7, name);
  for (int64_t i = 0; i < count; i++) data[i] = (float)mt_random_normal(&random);
  return data;
}

/* Sums over the members by the formulas: every row of a block travels as far as every other. */
static void check_counts(const attention_job *job, int32_t total, const char *what) {
  const int64_t kv_heads = job->kv_heads > job->ulysses ? job->kv_heads : job->ulysses;
  const int64_t kv = 2 * total * kv_heads * job->head_dim, query = 2 * (int64_t)total * job->heads * job->head_dim;
  const int64_t ring = kv * (job->rings - 1), ulysses = (query + kv) * (job->ulysses - 1) / job->ulysses;
  mt_context_counts sum = {0};
  for (int32_t i = 0; i < job->ulysses * job->rings; i++) {
    sum.ring_forward += job->counts[i].ring_forward;
    sum.ring_backward += job->counts[i].ring_backward;
    sum.ulysses_forward += job->counts[i].ulysses_forward;
    sum.ulysses_backward += job->counts[i].ulysses_backward;
  }
  if (sum.ring_forward != ring || sum.ring_backward != 2 * ring + (job->rings > 1 ? kv : 0))
    fail_msg("%s: ring sent %lld and %lld elements, by the formula %lld and %lld", what,
             (long long)sum.ring_forward, (long long)sum.ring_backward, (long long)ring,
             (long long)(2 * ring + kv));
  if (job->row->lengths[0] % (2 * job->ulysses * job->rings) != 0 || job->row->segments > 1) return;
  /* Equal shares: what the formulas say, of every member. */
  const int64_t members = job->ulysses * job->rings;
  if (sum.ulysses_forward != ulysses || sum.ulysses_backward != ulysses)
    fail_msg("%s: Ulysses sent %lld and %lld elements, by the formula %lld", what, (long long)sum.ulysses_forward,
             (long long)sum.ulysses_backward, (long long)ulysses);
  for (int32_t i = 0; i < members; i++) {
    assert_int_equal(job->counts[i].ring_forward * members, sum.ring_forward);
    assert_int_equal(job->counts[i].ring_backward * members, sum.ring_backward);
    assert_int_equal(job->counts[i].ulysses_forward * members, sum.ulysses_forward);
    assert_int_equal(job->counts[i].ulysses_backward * members, sum.ulysses_backward);
  }
}

static void compare_attention(attention_job *job) {
  int32_t begin[SEGMENTS_MAX + 1];
  const int32_t total = bounds_of(job->row, begin), members = job->ulysses * job->rings;
  const int64_t width = qkv_width(job), wide = (int64_t)job->heads * job->head_dim;
  char what[160];
  snprintf(what, sizeof what, "%d x %d, %d/%d heads, %s, row of %d segments and %d tokens", job->ulysses,
           job->rings, job->heads, job->kv_heads, job->causal ? "causal" : "full", job->row->segments, total);
  job->qkv = random_floats("qkv", total * width);
  job->output_gradient = random_floats("dy", total * wide);
  float *output = malloc((size_t)(total * wide) * sizeof *output);
  float *gradient = malloc((size_t)(total * width) * sizeof *gradient);
  attend_alone(job, total, output, gradient);
  float *first = NULL;
  for (int again = 0; again < 2; again++) {
    static member members_of[MEMBERS_MAX];
    job->output = malloc((size_t)(total * wide) * sizeof *output);
    job->gradient = malloc((size_t)(total * width) * sizeof *gradient);
    if (members_run(members, attend_as_member, job, members_of, &failure) != MOTET_OK)
      fail_msg("%s: %s", what, failure.text);
    double largest, off = largest_difference(job->output, output, total * wide, &largest);
    if (!(off <= 1e-6 * largest)) fail_msg("%s: output is off by %g of %g", what, off, largest);
    off = largest_difference(job->gradient, gradient, total * width, &largest);
    if (!(off <= 2e-6 * largest)) fail_msg("%s: gradient is off by %g of %g", what, off, largest);
    check_counts(job, total, what);
    free(job->output);
    if (again == 0)
      first = job->gradient;
    else
      assert_memory_equal(first, job->gradient, (size_t)(total * width) * sizeof *first);
  }
  free(first), free(job->gradient), free(job->qkv), free(job->output_gradient), free(output), free(gradient);
}

static void test_attention_over_the_ring(void **state) {
  (void)state;
  for (int32_t degree = 1; degree <= 8; degree++)
    for (int r = 0; r < ROWS; r++)
      for (int causal = 0; causal < 2; causal++) {
        attention_job job = {.row = &rows[r],
                             .ulysses = 1,
                             .rings = degree,
                             .heads = 6,
                             .kv_heads = 2,
                             .head_dim = 20,
                             .causal = causal};
        compare_attention(&job);
      }
}

/* Heads whole and repeated, alone and in rings. */
static void test_attention_over_heads(void **state) {
  (void)state;
  static const int32_t forms[][5] = {/* U, R, heads, kv_heads, head_dim */
                                     {2, 1, 4, 2, 16}, {4, 1, 8, 2, 8},  {3, 1, 6, 3, 10},  {2, 2, 4, 4, 16},
                                     {2, 3, 4, 2, 12}, {4, 2, 28, 4, 4}, {28, 1, 28, 4, 4}, {3, 2, 6, 1, 8},
                                     {2, 4, 8, 2, 16}, {7, 1, 7, 7, 6},  {8, 1, 8, 8, 4}};
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
    for (int r = 0; r < ROWS; r++)
      for (int causal = 0; causal < 2; causal++) {
        attention_job job = {.row = &rows[r],
                             .ulysses = forms[f][0],
                             .rings = forms[f][1],
                             .heads = forms[f][2],
                             .kv_heads = forms[f][3],
                             .head_dim = forms[f][4],
                             .causal = causal};
        compare_attention(&job);
      }
}

static void test_illegal_heads_are_refused(void **state) {
  (void)state;
  attention_job job = {.row = &rows[0], .ulysses = 7, .rings = 1, .heads = 28, .kv_heads = 4, .head_dim = 4};
  static member members[MEMBERS_MAX];
  job.qkv = job.gradient = calloc(96 * 36 * 4, sizeof(float));
  job.output_gradient = job.output = calloc(96 * 28 * 4, sizeof(float));
  assert_int_equal(members_run(7, attend_as_member, &job, members, &failure), MOTET_ERROR_ILLEGAL);
  assert_non_null(strstr(failure.text, "7 ranks cannot share 28 heads"));
  free(job.qkv), free(job.output);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_planner_slices_are_the_shares), cmocka_unit_test(test_every_token_has_its_member),
      cmocka_unit_test(test_causal_work_is_balanced),       cmocka_unit_test(test_share_picks_own_rows),
      cmocka_unit_test(test_heads_that_can_be_shared),      cmocka_unit_test(test_attention_over_the_ring),
      cmocka_unit_test(test_attention_over_heads),          cmocka_unit_test(test_illegal_heads_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

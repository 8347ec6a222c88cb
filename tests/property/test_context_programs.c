/* Programs over context ranks, lowered from random spreads: accepted by the verifier, read back from JSON,
 * simulated alike by the event engine and the recurrence, with the messages that the cut asks for and no other; and
 * refused as soon as anything of them is missing, doubled or turned to another range, member or group. */
#include "../unit/algebra_model.h"

#include "base/random.h"
#include "order/plan.h"
#include "program/columns.h"
#include "program/json.h"
#include "program_builder.h"
#include "sim/memory.h"

#include <math.h>

enum { DRAWS = 300, MUTANTS = 40 };

static const char *const schedules[] = {"<vision: transpose, llm: 1f1b>",
                                        "<vision: transpose(order=prefix), llm: 1f1b>",
                                        "<vision: inline, llm: 1f1b>", "<vision: transpose, llm: gpipe>"};
static const char *const models[] = {"vision:f llm:tttt", "vision:t llm:tttt", "vision:f llm:ffff",
                                     "vision:t llm:ffff"};

typedef struct drawing {
  mt_arena *arena;
  mt_random random;
  int32_t pipeline, context, replicas, microbatches;
  mt_plan plan;
} drawing;

static int32_t below(mt_random *random, int32_t bound) { return (int32_t)mt_random_below(random, (uint64_t)bound); }

static double *draw_times(drawing *d, int64_t count) {
  double *values = MT_ARENA_NEW(d->arena, double, count);
  for (int64_t i = 0; i < count; i++) values[i] = 1 + below(&d->random, 8);
  return values;
}

static int64_t *draw_sizes(drawing *d, int64_t count) {
  int64_t *values = MT_ARENA_NEW(d->arena, int64_t, count);
  for (int64_t i = 0; i < count; i++) values[i] = 1 + below(&d->random, 1000);
  return values;
}

/* Cuts one microbatch: random ranks in random groups, random shares, some of them empty. */
static void draw_microbatch(drawing *d, mt_spread *spread, int32_t m, bool images) {
  int32_t group_of[16], groups = 1 + below(&d->random, spread->width), token = 0;
  for (int32_t c = 0; c < spread->width; c++) group_of[c] = below(&d->random, groups + 1) - 1; /* -1: no share */
  group_of[below(&d->random, spread->width)] = 0;
  spread->begin[m] = spread->share_count;
  for (int32_t g = 0; g < groups; g++) {
    motet_range range = {.begin = token, .microbatch = m, .first_share = spread->share_count};
    for (int32_t c = 0; c < spread->width; c++) {
      if (group_of[c] != g) continue;
      int32_t tokens = below(&d->random, 9), features = images && tokens > 0 ? below(&d->random, tokens + 1) : 0;
      spread->place[m * spread->width + c] = spread->share_count;
      spread->shares[spread->share_count++] = (mt_spread_share){.range = spread->range_count,
                                                                .member = range.degree++,
                                                                .context_rank = c,
                                                                .tokens = tokens,
                                                                .features = features};
      token += tokens;
    }
    if (range.degree == 0) continue;
    if (token == range.begin) { /* a range has a token at least */
      spread->shares[spread->share_count - 1].tokens = 1;
      token++;
    }
    range.end = token;
    spread->ranges[spread->range_count++] = range;
  }
}

static mt_plan_spread *draw_spread(drawing *d, const mt_derivation *derivation, const mt_cost_table *costs) {
  mt_plan_spread *result = MT_ARENA_NEW(d->arena, mt_plan_spread, 1);
  int32_t most = d->microbatches * d->context, stages = derivation->stage_count;
  mt_spread *spread = &result->spread;
  *spread = (mt_spread){.width = d->context,
                        .ranges = MT_ARENA_NEW(d->arena, motet_range, most),
                        .shares = MT_ARENA_NEW(d->arena, mt_spread_share, most),
                        .begin = MT_ARENA_NEW(d->arena, int32_t, d->microbatches + 1),
                        .place = MT_ARENA_NEW(d->arena, int32_t, most)};
  for (int32_t i = 0; i < most; i++) spread->place[i] = -1;
  int32_t *tokens = MT_ARENA_NEW(d->arena, int32_t, d->microbatches);
  for (int32_t m = 0; m < d->microbatches; m++) {
    draw_microbatch(d, spread, m, (derivation->present[m] & 1) != 0);
    tokens[m] = spread->ranges[spread->range_count - 1].end;
  }
  spread->begin[d->microbatches] = spread->share_count;
  int64_t cells = (int64_t)stages * spread->share_count;
  result->costs.links = costs->links;
  for (int kind = 0; kind <= MT_COST_BACKWARD_W; kind++)
    result->costs.seconds[kind] = (mt_cost_values){draw_times(d, cells), spread->share_count, 1};
  result->sizes = (mt_sizes){.saved_bytes = {draw_sizes(d, cells), spread->share_count, 1},
                             .output_bytes = {draw_sizes(d, cells), spread->share_count, 1},
                             .weight_bytes = draw_sizes(d, stages),
                             .static_bytes = draw_sizes(d, stages),
                             .tokens = tokens};
  return result;
}

static void draw(drawing *d, uint64_t seed) {
  *d = (drawing){.arena = mt_arena_create(), .random = mt_random_stream(seed, "context programs")};
  d->pipeline = 1 + below(&d->random, 3);
  d->context = 1 + below(&d->random, 4);
  d->replicas = 1 + below(&d->random, 2);
  d->microbatches = 1 + below(&d->random, 5);
  const char *schedule = schedules[below(&d->random, 4)];
  mt_model *model = model_of(d->arena, models[below(&d->random, 4)]);
  model->modules[0].inputs = MOTET_INPUT_PIXELS;
  model->modules[1].inputs = MOTET_INPUT_TOKENS;
  mt_plan_replica replicas[2] = {{0}};
  mt_cost_table costs[2] = {{.links = {.local = {0.01, 1e4}, .remote = {0.01, 1e4}}}};
  motet_error error;
  for (int32_t k = 0; k < d->replicas; k++) {
    costs[k].links = costs[0].links;
    uint64_t *present = MT_ARENA_NEW(d->arena, uint64_t, d->microbatches);
    for (int32_t m = 0; m < d->microbatches; m++) present[m] = below(&d->random, 3) > 0 ? 3 : 2;
    mt_schedule *parsed;
    assert_int_equal(mt_schedule_parse(d->arena, schedule, &error, &parsed), MOTET_OK);
    mt_derive_request request = {.model = model,
                                 .schedule = parsed,
                                 .ranks = d->pipeline,
                                 .microbatches = d->microbatches,
                                 .present = present};
    mt_derivation *derivation;
    assert_int_equal(mt_derive(d->arena, &request, &error, &derivation), MOTET_OK);
    for (int kind = 0; kind <= MT_COST_BACKWARD_W; kind++)
      costs[k].seconds[kind] =
          (mt_cost_values){draw_times(d, (int64_t)derivation->stage_count * d->microbatches), d->microbatches, 1};
    replicas[k] = (mt_plan_replica){
        .derivation = derivation, .costs = &costs[k], .spread = draw_spread(d, derivation, &costs[0])};
  }
  mt_plan_options options = {.order = {.search_seconds = -1}, .simulate = {.timeline = true, .attribute = true}};
  if (mt_plan_make(d->arena, replicas, d->replicas, &options, &error, &d->plan) != MOTET_OK)
    fail_msg("seed %llu, %s, %d x %d x %d: %s: %s", (unsigned long long)seed, schedule, d->replicas, d->pipeline,
             d->context, error.rule, error.text);
}

static void release(drawing *d) {
  mt_plan_free(&d->plan);
  mt_arena_destroy(d->arena);
}

/* Who computes (stage, share): looked up in the lists alone. */
static int32_t rank_of(const motet_program *p, int32_t stage, int32_t column) {
  for (int32_t rank = 0; rank < p->ranks; rank++)
    for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
      const motet_instruction *x = &p->instructions[i];
      if (x->kind == MOTET_FWD && x->stage == stage && mt_column_of(p, rank, x) == column) return rank;
    }
  return -1;
}

/* Bytes that must travel forward: what a share reads and another rank makes. */
static int64_t expected_bytes(const motet_program *p) {
  int64_t bytes = 0;
  for (int32_t e = 0; e < p->edge_count; e++) {
    int32_t from = p->edges[e].from, to = p->edges[e].to;
    bool whole = p->regions[p->stages[from].region].replicated;
    for (int32_t r = 1; r < p->range_count; r++)
      for (int32_t i = 0; i < p->ranges[r].degree; i++) {
        int32_t column = p->ranges[r].first_share + i, home = column;
        if (whole &&
            ((p->microbatches[p->ranges[r].microbatch].present & 1) == 0 || p->shares[column].features == 0))
          continue;
        if (whole) home = mt_column_first(p, p->ranges[r].microbatch);
        if (rank_of(p, from, home) == rank_of(p, to, column)) continue;
        bytes += p->output_bytes
                     .values[from * p->output_bytes.stage_stride + column * p->output_bytes.microbatch_stride];
      }
  }
  return bytes;
}

static int64_t sent_bytes(const motet_program *p) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < p->rank_begin[p->ranks]; i++)
    if (p->instructions[i].kind == MOTET_SEND &&
        p->buffers[p->instructions[i].buffer].kind == MOTET_BUFFER_ACTIVATION)
      bytes += p->buffers[p->instructions[i].buffer].bytes;
  return bytes;
}

static void check_json(const motet_program *p) {
  mt_text text = {0};
  motet_error error;
  motet_program *again;
  assert_int_equal(mt_program_print(p, NULL, &error, &text), MOTET_OK);
  if (mt_program_parse(text.data, text.length, "again", &error, &again, NULL) != MOTET_OK)
    fail_msg("%s", error.text);
  assert_true(motet_program_digest(again) == motet_program_digest(p));
  motet_program_destroy(again);
  mt_text_free(&text);
}

static void test_lowered_programs(void **state) {
  (void)state;
  int64_t shared = 0, messages = 0;
  for (uint64_t seed = 0; seed < DRAWS; seed++) {
    drawing d;
    draw(&d, seed);
    const motet_program *p = d.plan.program;
    const mt_simulation *s = d.plan.simulation;
    motet_error error;
    size_t count = (size_t)p->rank_begin[p->ranks];
    double makespan, *finish = MT_ARENA_NEW(d.arena, double, count), idle = 0, causes = 0;
    assert_int_equal(mt_simulate_max_plus(d.arena, p, &d.plan.costs, &error, &makespan, finish), MOTET_OK);
    assert_memory_equal(&makespan, &s->makespan, sizeof makespan);
    assert_true(d.plan.bound > 0 && d.plan.bound <= makespan * (1 + 1e-12));
    assert_memory_equal(finish, s->finish, count * sizeof *finish);
    for (int32_t rank = 0; rank < p->ranks; rank++) idle += s->ranks[rank].idle;
    for (int cause = 0; cause < MT_IDLE_CAUSES; cause++) causes += s->idle_by_cause[cause];
    if (fabs(causes - idle) > 1e-9 * idle)
      fail_msg("seed %llu: %.17g seconds of causes for %.17g idle", (unsigned long long)seed, causes, idle);
    mt_memory_timeline *memory;
    assert_int_equal(mt_memory_timeline_make(d.arena, p, s->start, s->finish, &error, &memory), MOTET_OK);
    for (int32_t rank = 0; rank < p->ranks; rank++)
      if (memory->peak_bytes[rank] != d.plan.verification.memory[rank].peak_bytes)
        fail_msg("seed %llu, rank %d: %lld bytes on the timeline, %lld by the verifier", (unsigned long long)seed,
                 rank, (long long)memory->peak_bytes[rank], (long long)d.plan.verification.memory[rank].peak_bytes);
    assert_int_equal(sent_bytes(p), expected_bytes(p));
    messages += sent_bytes(p) > 0;
    for (size_t i = 0; i < count; i++) shared += mt_is_shared(p, &p->instructions[i]);
    check_json(p);
    release(&d);
  }
  assert_true(shared > 10 * DRAWS && messages > DRAWS / 2);
}

/* ---- Damage ---- */

static void must_be_refused(const motet_program *p, uint64_t seed, const char *what) {
  motet_error error;
  motet_status status = motet_verify(p, NULL, &error, NULL);
  if (status != MOTET_ERROR_REFUSED)
    fail_msg("seed %llu: accepted with %s (%s)", (unsigned long long)seed, what,
             status == MOTET_OK ? "good" : error.text);
}

static void drop(motet_program *p, int64_t index) {
  int32_t rank = program_rank_of(p, index);
  memmove(&p->instructions[index], &p->instructions[index + 1],
          (size_t)(p->rank_begin[p->ranks] - index - 1) * sizeof *p->instructions);
  for (int32_t i = rank + 1; i <= p->ranks; i++) p->rank_begin[i]--;
}

static bool damage_range(motet_program *p, mt_random *random, motet_instruction *x) {
  if (x->range == 0 || p->range_count == 2) return false;
  int32_t other = 1 + below(random, p->range_count - 1);
  if (other == x->range) return false;
  x->range = other;
  return true;
}

static bool damage_group(motet_program *p, mt_random *random, motet_instruction *x) {
  if (x->range == 0 || x->kind > MOTET_RECOMPUTE) return false;
  int32_t other = below(random, p->group_count);
  if (other == x->peer) return false;
  const motet_group *a = &p->groups[other], *b = &p->groups[x->peer];
  if (a->count == b->count &&
      memcmp(p->group_ranks + a->first, p->group_ranks + b->first, (size_t)a->count * sizeof(int32_t)) == 0)
    return false;
  x->peer = other;
  return true;
}

static bool damage_member(motet_program *p, mt_random *random, motet_instruction *x) {
  if (x->kind != MOTET_SEND || x->range == 0) return false;
  motet_buffer *buffer = &p->buffers[x->buffer];
  int32_t other = below(random, p->ranges[x->range].degree + 1) - 1;
  if (other == buffer->member) return false;
  buffer->member = other;
  return true;
}

static bool damage_shares(motet_program *p, mt_random *random, motet_instruction *x) {
  (void)x;
  p->shares[below(random, p->share_count)].tokens += below(random, 2) * 2 - 1;
  return true;
}

static bool damage_ranges(motet_program *p, mt_random *random, motet_instruction *x) {
  (void)x;
  motet_range *range = &p->ranges[1 + below(random, p->range_count - 1)];
  int32_t *fields[] = {&range->begin, &range->end, &range->microbatch, &range->first_share, &range->degree};
  *fields[below(random, 5)] += below(random, 2) * 2 - 1;
  return true;
}

/* Two members of both groups meet in one order and, on this rank, in the other. */
static bool damage_order(motet_program *p, mt_random *random, motet_instruction *x) {
  (void)random;
  int64_t index = x - p->instructions;
  if (!mt_is_shared(p, x)) return false;
  int32_t rank = program_rank_of(p, index);
  for (int64_t i = index + 1; i < p->rank_begin[rank + 1]; i++) {
    motet_instruction *y = &p->instructions[i];
    if (!mt_is_shared(p, y) || (y->kind == x->kind && y->stage == x->stage && y->range == x->range)) continue;
    const motet_group *a = &p->groups[x->peer];
    for (int32_t k = 0; k < a->count; k++) {
      int32_t other = p->group_ranks[a->first + k];
      if (other == rank || mt_group_place(p, y->peer, other) < 0) continue;
      motet_instruction kept = *x;
      *x = *y;
      *y = kept;
      return true;
    }
  }
  return false;
}

static const struct {
  const char *name;
  bool (*damage)(motet_program *program, mt_random *random, motet_instruction *instruction);
} damages[] = {
    {"another range", damage_range},   {"another group", damage_group},
    {"another member", damage_member}, {"another share", damage_shares},
    {"another cut", damage_ranges},    {"another order on one member", damage_order},
};
enum { DAMAGES = sizeof damages / sizeof damages[0] };

static void test_damaged_programs(void **state) {
  (void)state;
  int done[DAMAGES] = {0};
  for (uint64_t seed = 0; seed < 60; seed++) {
    drawing d;
    draw(&d, seed);
    const motet_program *p = d.plan.program;
    for (int i = 0; i < MUTANTS; i++) {
      motet_program *copy = program_copy(p);
      drop(copy, below(&d.random, (int32_t)p->rank_begin[p->ranks]));
      must_be_refused(copy, seed, "an instruction dropped");
      program_free(copy);
    }
    for (int i = 0; i < MUTANTS; i++) {
      motet_program *copy = program_copy(p);
      int kind = i % DAMAGES;
      if (damages[kind].damage(copy, &d.random,
                               &copy->instructions[below(&d.random, (int32_t)p->rank_begin[p->ranks])])) {
        must_be_refused(copy, seed, damages[kind].name);
        done[kind]++;
      }
      program_free(copy);
    }
    release(&d);
  }
  for (int kind = 0; kind < DAMAGES; kind++) assert_true(done[kind] > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lowered_programs),
                                     cmocka_unit_test(test_damaged_programs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

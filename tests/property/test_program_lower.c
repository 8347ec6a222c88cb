/* Random derivations with random legal orders: every lowered program runs through on a rendezvous machine without
 * any buffered send, and its waits cost nothing on the order's own timeline. */
#include "../program_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static const uint64_t seed = 20240607;

typedef struct draw {
  fixture_options options;
  bool split, timed;
  int32_t replicas;
} draw;

static draw draw_case(mt_arena *arena, mt_random *random) {
  draw this = {.options = {.ranks = 1 + (int32_t)mt_random_below(random, 5),
                           .microbatches = 1 + (int32_t)mt_random_below(random, 6),
                           .chunks = 1 + (int32_t)mt_random_below(random, 3),
                           .folded = mt_random_below(random, 2),
                           .encoder = mt_random_below(random, 2),
                           .generator = mt_random_below(random, 2),
                           .train_encoder = mt_random_below(random, 2),
                           .train_trunk = mt_random_below(random, 2),
                           .train_generator = mt_random_below(random, 2)},
               .split = mt_random_below(random, 2),
               .timed = mt_random_below(random, 2),
               .replicas = 1 + (int32_t)mt_random_below(random, 2)};
  if (mt_random_below(random, 2)) {
    uint64_t *present = MT_ARENA_NEW(arena, uint64_t, this.options.microbatches);
    uint64_t trunk = this.options.encoder ? 2 : 1;
    uint64_t modules = (uint64_t)2 << (this.options.encoder + this.options.generator); /* sets of modules */
    for (int32_t m = 0; m < this.options.microbatches; m++) present[m] = trunk | mt_random_below(random, modules);
    this.options.present = present;
  }
  return this;
}

/* By the machine here and by the verifier, which is written apart from lowering. */
static void check_program(mt_arena *arena, const motet_program *program, mt_random *random, int round) {
  const char *wrong = fixture_run(arena, program, random);
  if (wrong != NULL) fail_msg("round %d: %s", round, wrong);
  const motet_verify_options options = {0};
  motet_error error = {0};
  if (motet_verify(program, &options, &error, NULL) != MOTET_OK)
    fail_msg("round %d: the verifier refuses by %s: %s", round, error.rule, error.text);
}

/* `prefix`: every owner's encodes go first. The consumer's first event stands behind the arrival of all features.
 */
static mt_order *prefix_order(mt_arena *arena, const mt_derivation *derivation, const mt_order *order) {
  mt_order *prefix = MT_ARENA_NEW(arena, mt_order, 1);
  prefix->begin = order->begin;
  prefix->barrier = true;
  prefix->events = MT_ARENA_NEW(arena, mt_event, order->begin[derivation->ranks]);
  int64_t used = 0;
  for (int32_t rank = 0; rank < derivation->ranks; rank++)
    for (int others = 0; others < 2; others++)
      for (int64_t e = order->begin[rank]; e < order->begin[rank + 1]; e++) {
        bool encode = order->events[e].stage == 0 && order->events[e].kind == MOTET_FWD;
        if (encode != others) prefix->events[used++] = order->events[e];
      }
  return prefix;
}

static void test_prefix_waits_for_all_features(void **state) {
  (void)state;
  mt_random random = mt_random_stream(seed, "prefix");
  for (int round = 0; round < 500; round++) {
    mt_arena *arena = mt_arena_create();
    draw this = draw_case(arena, &random);
    this.options.encoder = true;
    this.options.present = NULL;
    mt_derivation *derivation = fixture_derive(arena, &this.options);
    double *seconds;
    mt_order *order = fixture_random_order(arena, derivation, this.split, true, &random, &seconds);
    mt_replica replica = {.derivation = derivation, .order = prefix_order(arena, derivation, order)};
    motet_error error = {0};
    motet_program *program = NULL;
    if (mt_program_lower(&replica, 1, &error, &program) != MOTET_OK) fail_msg("round %d: %s", round, error.text);
    check_program(arena, program, &random, round);
    int32_t features = 0;
    for (int64_t i = program->rank_begin[0]; i < program->rank_begin[1]; i++) {
      const motet_instruction *at = &program->instructions[i];
      if (at->kind == MOTET_WAIT && at->flags == MOTET_FLAG_RECV && at->stage == 0 &&
          program->buffers[at->buffer].kind == MOTET_BUFFER_ACTIVATION)
        features++;
      if (at->kind == MOTET_FWD && at->stage == 0) features++;
      if (at->kind == MOTET_FWD && at->stage == 1) break; /* slab 0 lies on rank 0 */
    }
    assert_int_equal(features, derivation->microbatches);
    motet_program_destroy(program);
    mt_arena_destroy(arena);
  }
}

/* `ahead`: some features lie ready on some rank, and the tails encode for the next step. */
static mt_order *ahead_order(mt_arena *arena, const mt_derivation *derivation, const mt_order *order,
                             mt_random *random) {
  int32_t microbatches = derivation->microbatches;
  mt_order *ahead = MT_ARENA_NEW(arena, mt_order, 1);
  ahead->begin = MT_ARENA_NEW(arena, int64_t, derivation->ranks + 1);
  ahead->events = MT_ARENA_NEW(arena, mt_event, order->begin[derivation->ranks] + microbatches);
  ahead->carried = MT_ARENA_NEW(arena, motet_carried, microbatches);
  bool *early = MT_ARENA_NEW(arena, bool, microbatches);
  int32_t *next_owner = MT_ARENA_NEW(arena, int32_t, microbatches);
  for (int32_t m = 0; m < microbatches; m++) {
    early[m] = mt_random_below(random, 2);
    next_owner[m] = (int32_t)mt_random_below(random, (uint64_t)derivation->ranks + 1); /* the last: nobody */
    if (early[m])
      ahead->carried[ahead->carried_count++] = (motet_carried){
          .stage = 0, .microbatch = m, .rank = (int32_t)mt_random_below(random, (uint64_t)derivation->ranks)};
  }
  int64_t used = 0;
  for (int32_t rank = 0; rank < derivation->ranks; rank++) {
    ahead->begin[rank] = used;
    for (int64_t e = order->begin[rank]; e < order->begin[rank + 1]; e++)
      if (order->events[e].stage != 0 || !early[order->events[e].microbatch])
        ahead->events[used++] = order->events[e];
    for (int32_t m = 0; m < microbatches; m++)
      if (next_owner[m] == rank)
        ahead->events[used++] = (mt_event){.kind = MOTET_FWD, .next = true, .stage = 0, .microbatch = m};
  }
  ahead->begin[derivation->ranks] = used;
  return ahead;
}

static void test_carried_features_are_sent_first(void **state) {
  (void)state;
  mt_random random = mt_random_stream(seed, "ahead");
  for (int round = 0; round < 500; round++) {
    mt_arena *arena = mt_arena_create();
    draw this = draw_case(arena, &random);
    this.options.encoder = true;
    this.options.train_encoder = false;
    this.options.present = NULL;
    mt_derivation *derivation = fixture_derive(arena, &this.options);
    double *seconds;
    mt_order *order = fixture_random_order(arena, derivation, this.split, true, &random, &seconds);
    mt_replica replicas[2] = {{.derivation = derivation}, {.derivation = derivation}};
    replicas[0].order = ahead_order(arena, derivation, order, &random);
    replicas[1].order =
        mt_random_below(&random, 2) ? replicas[0].order : ahead_order(arena, derivation, order, &random);
    motet_error error = {0};
    motet_program *program = NULL;
    if (mt_program_lower(replicas, this.replicas, &error, &program) != MOTET_OK)
      fail_msg("round %d: %s", round, error.text);
    check_program(arena, program, &random, round);
    int32_t carried = 0, loads_next = 0, forwards_next = 0;
    for (int32_t k = 0; k < this.replicas; k++) carried += replicas[k].order->carried_count;
    assert_int_equal(program->carried_count, carried);
    for (int64_t i = 0; i < program->rank_begin[program->ranks]; i++) {
      if (!(program->instructions[i].flags & MOTET_FLAG_NEXT)) continue;
      loads_next += program->instructions[i].kind == MOTET_LOAD;
      forwards_next += program->instructions[i].kind == MOTET_FWD;
    }
    assert_int_equal(loads_next, forwards_next);
    motet_program_destroy(program);
    mt_arena_destroy(arena);
  }
}

/* Runs the lists by time, transfers free. Returns the makespan; `stall` gets the time spent in waits of senders. */
static double run_by_time(mt_arena *arena, const motet_program *program, const mt_order *order,
                          const double *seconds, double *stall) {
  int64_t *next = MT_ARENA_NEW(arena, int64_t, program->ranks);
  int64_t *event = MT_ARENA_NEW(arena, int64_t, program->ranks);
  double *now = MT_ARENA_NEW(arena, double, program->ranks);
  double *sent = MT_ARENA_NEW(arena, double, program->buffer_count);
  double *received = MT_ARENA_NEW(arena, double, program->buffer_count);
  for (int64_t b = 0; b < program->buffer_count; b++) sent[b] = received[b] = -1;
  *stall = 0;
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    next[rank] = program->rank_begin[rank];
    event[rank] = order->begin[rank];
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t rank = 0; rank < program->ranks; rank++)
      for (; next[rank] < program->rank_begin[rank + 1]; next[rank]++, moved = true) {
        const motet_instruction *this = &program->instructions[next[rank]];
        int32_t b = this->buffer;
        if (this->kind == MOTET_SEND) sent[b] = now[rank];
        if (this->kind == MOTET_RECV) received[b] = now[rank];
        if (this->kind <= MOTET_BWD_W) now[rank] += seconds[event[rank]++];
        if (this->kind != MOTET_WAIT) continue;
        if (sent[b] < 0 || received[b] < 0) break;
        double done = sent[b] > received[b] ? sent[b] : received[b];
        if (done <= now[rank]) continue;
        bool computes_left = event[rank] < order->begin[rank + 1];
        if (!(this->flags & MOTET_FLAG_RECV) && computes_left) *stall += done - now[rank];
        now[rank] = done;
      }
  }
  double makespan = 0;
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    assert_int_equal(next[rank], program->rank_begin[rank + 1]);
    if (now[rank] > makespan) makespan = now[rank];
  }
  return makespan;
}

static double order_makespan(const mt_derivation *derivation, const mt_order *order, const double *start,
                             const double *seconds) {
  double makespan = 0;
  for (int64_t e = 0; e < order->begin[derivation->ranks]; e++)
    if (start[e] + seconds[e] > makespan) makespan = start[e] + seconds[e];
  return makespan;
}

static void test_lowered_programs_run(void **state) {
  (void)state;
  mt_random random = mt_random_stream(seed, "lower");
  for (int round = 0; round < 1500; round++) {
    mt_arena *arena = mt_arena_create();
    draw this = draw_case(arena, &random);
    mt_derivation *derivation = fixture_derive(arena, &this.options);
    mt_replica *replicas = MT_ARENA_NEW(arena, mt_replica, this.replicas);
    double *seconds[2];
    for (int32_t k = 0; k < this.replicas; k++) {
      replicas[k].derivation = derivation;
      replicas[k].order = fixture_random_order(arena, derivation, this.split, this.timed, &random, &seconds[k]);
      if (k > 0 && mt_random_below(&random, 2)) {
        replicas[k].order = replicas[0].order;
        seconds[k] = seconds[0];
      }
    }
    motet_error error = {0};
    motet_program *program = NULL;
    if (mt_program_lower(replicas, this.replicas, &error, &program) != MOTET_OK)
      fail_msg("round %d: %s", round, error.text);
    check_program(arena, program, &random, round);
    motet_program_destroy(program);
    mt_arena_destroy(arena);
  }
}

/* Models and schedules as users write them, through parsing and deriving. */
static const struct {
  const char *schedule;
  int modules;
  int32_t layers[4]; /* 0: as many as the trunk needs */
  bool branches;     /* the first two modules both feed the third */
} written[] = {
    {"<1f1b>", 1, {0}, false},
    {"<gpipe>", 1, {0}, false},
    {"<1f1b(virtual=2)>", 1, {0}, false},
    {"<a: transpose, b: 1f1b>", 2, {3, 0}, false},
    {"<a+b: transpose(order=prefix), c: 1f1b(virtual=2)>", 3, {2, 1, 0}, false},
    {"<a: inline, b: 1f1b>", 2, {3, 0}, false},
    {"<a: inline, b: 1f1b(virtual=3), c: inline>", 3, {3, 0, 1}, false},
    {"<a: 1f1b, b: transpose>", 2, {0, 2}, false},
    {"<a: transpose, b: 1f1b, c: transpose>", 3, {2, 0, 2}, false},
    {"<(a: transpose | b: transpose), c: 1f1b>", 3, {2, 2, 0}, true},
    {"<(a: transpose | b: transpose), c: gpipe, d: transpose>", 4, {2, 2, 0, 1}, true},
    {"<a: 1f1b, b: 1f1b>", 2, {0, 0}, false},
    {"<a: 1f1b, b: transpose, c: 1f1b>", 3, {0, 2, 0}, false},
};
enum { WRITTEN = sizeof written / sizeof written[0] };

static mt_derivation *derive_written(mt_arena *arena, int which, int32_t ranks, mt_random *random) {
  static const char *const names[] = {"a", "b", "c", "d"};
  int32_t layers[4];
  bool trainable[4];
  for (int j = 0; j < written[which].modules; j++) {
    layers[j] = written[which].layers[j] > 0 ? written[which].layers[j] : 3 * ranks;
    trainable[j] = mt_random_below(random, 3) > 0;
  }
  motet_error error = {0};
  mt_model *model;
  mt_schedule *schedule;
  mt_derivation *derivation;
  assert_int_equal(mt_model_abstract(arena, written[which].modules, names, layers, trainable, &error, &model),
                   MOTET_OK);
  model->modules[0].inputs = MOTET_INPUT_PIXELS;
  model->modules[model->module_count - 1].inputs |= MOTET_INPUT_TOKENS;
  model->last_inputs = MOTET_INPUT_LABELS;
  model->tied_embeddings = mt_random_below(random, 2);
  if (written[which].branches) model->edges[0] = (mt_module_edge){.from = 0, .to = 2};
  int32_t microbatches = 1 + (int32_t)mt_random_below(random, 7);
  uint64_t *present = MT_ARENA_NEW(arena, uint64_t, microbatches);
  for (int32_t m = 0; m < microbatches; m++) {
    present[m] = ((uint64_t)1 << model->module_count) - 1;
    if (written[which].branches && mt_random_below(random, 2)) present[m] -= 1; /* without a */
  }
  if (mt_schedule_parse(arena, written[which].schedule, &error, &schedule) != MOTET_OK)
    fail_msg("%s: %s", written[which].schedule, error.text);
  const mt_derive_request request = {
      .model = model, .schedule = schedule, .ranks = ranks, .microbatches = microbatches, .present = present};
  if (mt_derive(arena, &request, &error, &derivation) != MOTET_OK)
    fail_msg("%s: %s", written[which].schedule, error.text);
  return derivation;
}

static void test_derived_schedules_run(void **state) {
  (void)state;
  mt_random random = mt_random_stream(seed, "derived");
  for (int round = 0; round < 1500; round++) {
    mt_arena *arena = mt_arena_create();
    int32_t ranks = 1 + (int32_t)mt_random_below(&random, 4);
    mt_derivation *derivation = derive_written(arena, round % WRITTEN, ranks, &random);
    double *seconds;
    mt_order *order = fixture_random_order(arena, derivation, mt_random_below(&random, 2),
                                           mt_random_below(&random, 2), &random, &seconds);
    mt_replica replicas[3];
    int32_t count = 1 + (int32_t)mt_random_below(&random, 3);
    for (int32_t k = 0; k < count; k++) replicas[k] = (mt_replica){.derivation = derivation, .order = order};
    motet_error error = {0};
    motet_program *program = NULL;
    if (mt_program_lower(replicas, count, &error, &program) != MOTET_OK)
      fail_msg("round %d, %s: %s", round, written[round % WRITTEN].schedule, error.text);
    check_program(arena, program, &random, round);
    motet_program_destroy(program);
    mt_arena_destroy(arena);
  }
}

/* On the order's own durations, with free transfers, a sender never waits before its last compute, and the step
 * takes as long as the order says. */
static void test_waits_cost_nothing_on_the_own_timeline(void **state) {
  (void)state;
  mt_random random = mt_random_stream(seed, "timeline");
  for (int round = 0; round < 1000; round++) {
    mt_arena *arena = mt_arena_create();
    draw this = draw_case(arena, &random);
    mt_derivation *derivation = fixture_derive(arena, &this.options);
    double *seconds;
    mt_order *order = fixture_random_order(arena, derivation, this.split, true, &random, &seconds);
    mt_replica replica = {.derivation = derivation, .order = order};
    motet_error error = {0};
    motet_program *program = NULL;
    assert_int_equal(mt_program_lower(&replica, 1, &error, &program), MOTET_OK);
    double stall, makespan = run_by_time(arena, program, order, seconds, &stall);
    assert_true(stall == 0);
    assert_true(makespan == order_makespan(derivation, order, order->start, seconds));
    motet_program_destroy(program);
    mt_arena_destroy(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lowered_programs_run),
      cmocka_unit_test(test_derived_schedules_run),
      cmocka_unit_test(test_prefix_waits_for_all_features),
      cmocka_unit_test(test_carried_features_are_sent_first),
      cmocka_unit_test(test_waits_cost_nothing_on_the_own_timeline),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

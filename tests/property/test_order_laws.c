/* Laws that orders keep on random pipelines. Every failure prints the seed of its case. */
#include "../order_case.h"

#include "base/random.h"

enum { CASES = 400, RANKS_MOST = 6, MICROBATCHES_MOST = 14 };

typedef struct random_case {
  order_case c;
  double encode[MICROBATCHES_MOST], stages[RANKS_MOST], microbatches[MICROBATCHES_MOST];
  uint64_t present[MICROBATCHES_MOST];
  char schedule[160], text[400];
} random_case;

static int32_t draw(mt_random *random, int32_t most) {
  return 1 + (int32_t)mt_random_below(random, (uint64_t)most);
}

static bool chance(mt_random *random, int32_t one_in) { return mt_random_below(random, (uint64_t)one_in) == 0; }

/* Halves, or numbers that are multiples of nothing. */
static double draw_time(mt_random *random, bool rough) {
  return rough ? 0.1 + 3.0 * mt_random_unit(random) : 0.5 * draw(random, 8);
}

/* %s in the schedule's text stands for the transposed regions' options. */
static const char *const shapes[] = {"<transpose%s, 1f1b>", "<transpose%s, gpipe>",
                                     "<transpose%s, 1f1b(virtual=2)>",
                                     "<(m0: transpose%s | m1: transpose%s), m2: 1f1b>"};

static void draw_case(uint64_t seed, random_case *r) {
  mt_random random = mt_random_stream(seed, "order.laws");
  memset(r, 0, sizeof *r);
  bool rough = chance(&random, 3);
  order_case *c = &r->c;
  c->ranks = draw(&random, RANKS_MOST);
  c->microbatches = draw(&random, MICROBATCHES_MOST);
  c->trainable = chance(&random, 2);
  c->forward = draw_time(&random, rough);
  c->backward = draw_time(&random, rough);
  c->encode = r->encode;
  c->encode_count = chance(&random, 2) ? 1 : draw(&random, c->microbatches);
  for (int32_t i = 0; i < c->encode_count; i++) r->encode[i] = draw_time(&random, rough);
  c->encode_backward = 0.5 * draw(&random, 5);
  if (chance(&random, 3)) {
    for (int32_t i = 0; i < c->ranks; i++) r->stages[i] = draw(&random, 3);
    c->stage_factors = r->stages;
  }
  if (chance(&random, 3)) {
    for (int32_t i = 0; i < c->microbatches; i++) r->microbatches[i] = 0.5 * draw(&random, 4);
    c->microbatch_factors = r->microbatches;
  }
  int32_t shape = (int32_t)mt_random_below(&random, sizeof shapes / sizeof *shapes);
  c->modules = shape == 3 ? 3 : 2;
  if (chance(&random, 3)) { /* some microbatches are text alone */
    for (int32_t i = 0; i < c->microbatches; i++)
      r->present[i] = (uint64_t)1 << (c->modules - 1) | mt_random_below(&random, (uint64_t)1 << (c->modules - 1));
    c->present = r->present;
  }
  if (chance(&random, 4)) {
    c->links = (mt_links){.ranks_per_node = chance(&random, 2) ? 0 : 2,
                          .local = {.latency_seconds = 0.25, .bytes_per_second = 8},
                          .remote = {.latency_seconds = 0.5, .bytes_per_second = 4}};
    c->bytes = 2;
  }
  c->search_seconds = chance(&random, 2) ? -1 : 0.002;
  snprintf(r->schedule, sizeof r->schedule, "%s", shapes[shape]);
  snprintf(r->text, sizeof r->text, "seed %llu: %s P %d M %d", (unsigned long long)seed, shapes[shape], c->ranks,
           c->microbatches);
}

/* The text with the options of both transposed regions. */
static const char *with(random_case *r, const char *options) {
  static char text[320]; /* one thread, one case at a time */
  snprintf(text, sizeof text, r->schedule, options, options);
  return text;
}

static const char *inlined(const random_case *r) {
  if (r->c.modules == 3) return "<(m0: inline | m1: inline), m2: 1f1b>";
  if (strstr(r->schedule, "gpipe") != NULL) return "<inline, gpipe>";
  return strstr(r->schedule, "virtual") != NULL ? "<inline, 1f1b(virtual=2)>" : "<inline, 1f1b>";
}

static void run(random_case *r, const char *schedule, order_run *result) {
  order_case c = r->c;
  c.schedule = schedule;
  case_order(&c, result);
  replay check;
  double makespan = replay_order(result, &check);
  assert_seconds_near(makespan, result->result.makespan);
  if (result->result.bound > makespan + 1e-9)
    fail_msg("%s: bound %g > %g", r->text, result->result.bound, makespan);
}

static double makespan_of(random_case *r, const char *schedule) {
  order_run result;
  run(r, schedule, &result);
  double makespan = result.result.makespan;
  case_end(&result);
  return makespan;
}

/* Striking the free events leaves the body; every free event that the data ask for is there once, a backward behind
 * its forward on one rank. */
static void check_invariant(const random_case *r, const order_run *run) {
  const mt_derivation *d = run->derivation;
  const mt_order *order = &run->result.order;
  int64_t cells = (int64_t)d->stage_count * d->microbatches;
  int32_t *owner = MT_ARENA_NEW(run->arena, int32_t, cells), *backwards = MT_ARENA_NEW(run->arena, int32_t, cells);
  for (int64_t i = 0; i < cells; i++) owner[i] = -1;
  for (int32_t rank = 0; rank < d->ranks; rank++) {
    int64_t body = d->body_begin[rank];
    for (int64_t i = order->begin[rank]; i < order->begin[rank + 1]; i++) {
      mt_event event = order->events[i];
      int64_t cell = (int64_t)event.stage * d->microbatches + event.microbatch;
      if (d->stages[event.stage].rank >= 0) {
        if (body == d->body_begin[rank + 1] || memcmp(&d->body[body], &event, sizeof event) != 0)
          fail_msg("%s: rank %d leaves its body's sequence at event %lld", r->text, rank, (long long)i);
        body++;
      } else if (event.kind == MOTET_FWD) {
        if (owner[cell] != -1) fail_msg("%s: microbatch %d encoded twice", r->text, event.microbatch);
        owner[cell] = rank;
      } else {
        if (owner[cell] != rank || backwards[cell]++ != 0)
          fail_msg("%s: backward of microbatch %d out of place", r->text, event.microbatch);
      }
    }
    if (body != d->body_begin[rank + 1]) fail_msg("%s: rank %d lost body events", r->text, rank);
  }
  for (int32_t s = 0; s < d->stage_count; s++)
    for (int32_t m = 0; d->stages[s].rank < 0 && m < d->microbatches; m++) {
      int64_t cell = (int64_t)s * d->microbatches + m;
      bool active = mt_stage_active(d, s, m);
      if ((owner[cell] >= 0) != active || (backwards[cell] == 1) != (active && d->stages[s].gate != MT_GATE_NONE))
        fail_msg("%s: work of stage %d, microbatch %d is missing or not asked for", r->text, s, m);
    }
}

static void test_fill_keeps_the_body_and_is_no_slower_than_prefix_or_inline(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= CASES; seed++) {
    random_case r;
    draw_case(seed, &r);
    order_run fill;
    run(&r, with(&r, ""), &fill);
    check_invariant(&r, &fill);
    double makespan = fill.result.makespan;
    case_end(&fill);
    const char *others[] = {with(&r, "(order=prefix)"), NULL, NULL};
    double prefix = makespan_of(&r, others[0]);
    double balanced = makespan_of(&r, with(&r, "(order=prefix, owner=balanced)"));
    double in_stage = makespan_of(&r, inlined(&r));
    if (makespan > prefix + 1e-9 || makespan > balanced + 1e-9 || makespan > in_stage + 1e-9)
      fail_msg("%s: fill %g, prefix %g and %g, inline %g", r.text, makespan, prefix, balanced, in_stage);
  }
}

static void test_round_robin_keeps_its_owners_and_is_no_slower_than_its_prefix(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= CASES; seed++) {
    random_case r;
    draw_case(seed, &r);
    for (int32_t k = 0; k < 2; k++) {
      order_run run_result;
      run(&r, with(&r, k == 0 ? "(owner=round-robin)" : "(order=prefix, owner=round-robin)"), &run_result);
      check_invariant(&r, &run_result);
      const mt_order *order = &run_result.result.order;
      for (int32_t rank = 0; rank < r.c.ranks; rank++)
        for (int64_t i = order->begin[rank]; i < order->begin[rank + 1]; i++)
          if (run_result.derivation->stages[order->events[i].stage].rank < 0 &&
              order->events[i].microbatch % r.c.ranks != rank)
            fail_msg("%s: microbatch %d lies on rank %d", r.text, order->events[i].microbatch, rank);
      case_end(&run_result);
    }
    double fill = makespan_of(&r, with(&r, "(owner=round-robin)"));
    double prefix = makespan_of(&r, with(&r, "(order=prefix, owner=round-robin)"));
    if (fill > prefix + 1e-9) fail_msg("%s: fill %g, prefix %g", r.text, fill, prefix);
  }
}

/* Most features of a stage alive at once: from the end of the encode (from the begin, when carried) to the end of
 * the consumer's forward; at equal times the consumed one goes first. */
static int32_t features_alive(const order_run *run, const replay *p, int32_t stage) {
  const mt_derivation *d = run->derivation;
  const mt_order *order = &run->result.order;
  int32_t consumer = -1, most = 0;
  for (int32_t e = 0; e < d->edge_count; e++)
    if (d->edges[e].from == stage) consumer = d->edges[e].to;
  double *made = MT_ARENA_NEW(run->arena, double, 2 * d->microbatches);
  double *gone = MT_ARENA_NEW(run->arena, double, 2 * d->microbatches);
  int32_t count = 0;
  for (int32_t m = 0; m < d->microbatches; m++) {
    if (p->forward_end[stage * d->microbatches + m] < 0) continue;
    made[count] = p->forward_end[stage * d->microbatches + m];
    gone[count++] = p->forward_end[consumer * d->microbatches + m];
  }
  for (int64_t i = 0; i < order->begin[d->ranks]; i++) {
    if (!order->events[i].next || order->events[i].stage != stage) continue;
    made[count] =
        order->start[i] + mt_cost_seconds(&run->costs, MT_COST_FORWARD, stage, order->events[i].microbatch);
    gone[count++] = 1e300;
  }
  for (int32_t i = 0; i < count; i++) {
    int32_t alive = 0;
    for (int32_t j = 0; j < count; j++) alive += made[j] <= made[i] + 1e-9 && gone[j] > made[i] + 1e-9;
    if (alive > most) most = alive;
  }
  return most;
}

static void test_windows_are_kept_and_no_slower_than_inline(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= CASES; seed++) {
    random_case r;
    draw_case(seed, &r);
    for (int32_t window = 1; window <= 5; window += 2)
      for (int32_t k = 0; k < 2; k++) {
        char options[64];
        /* Interleaved bodies leave some owners no place for some encodes in a small window. */
        if (k == 1 && strstr(r.schedule, "virtual") != NULL) continue;
        snprintf(options, sizeof options, "(window=%d%s)", window, k == 0 ? "" : ", owner=round-robin");
        order_run result;
        run(&r, with(&r, options), &result);
        check_invariant(&r, &result);
        replay check;
        replay_order(&result, &check);
        for (int32_t s = 0; s < result.derivation->stage_count; s++) {
          if (result.derivation->stages[s].rank >= 0) continue;
          int32_t alive = features_alive(&result, &check, s);
          if (alive > window) fail_msg("%s: %d features alive in a window of %d", r.text, alive, window);
        }
        double in_stage = k == 0 ? makespan_of(&r, inlined(&r)) : 1e300;
        if (result.result.makespan > in_stage + 1e-9)
          fail_msg("%s: window %d gives %g, inline %g", r.text, window, result.result.makespan, in_stage);
        case_end(&result);
      }
  }
}

static void test_equal_input_gives_equal_orders(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= CASES / 4; seed++) {
    random_case r;
    draw_case(seed, &r);
    order_run a, b;
    run(&r, with(&r, ""), &a);
    run(&r, with(&r, ""), &b);
    int64_t events = a.result.order.begin[r.c.ranks];
    assert_memory_equal(a.result.order.begin, b.result.order.begin, (size_t)(r.c.ranks + 1) * sizeof(int64_t));
    assert_memory_equal(a.result.order.events, b.result.order.events, (size_t)events * sizeof(mt_event));
    assert_memory_equal(a.result.order.start, b.result.order.start, (size_t)events * sizeof(double));
    assert_true(a.result.makespan == b.result.makespan && a.result.bound == b.result.bound);
    case_end(&a);
    case_end(&b);
  }
}

/* Steady state of `ahead`: what is found done at the begin is what the tail leaves behind, rank by rank. */
static void test_ahead_leaves_what_it_found_and_is_no_slower_than_fill(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= CASES / 4; seed++) {
    random_case r;
    draw_case(seed, &r);
    r.c.trainable = false;
    double fill = makespan_of(&r, with(&r, ""));
    for (int32_t window = 0; window <= 2; window += 2) {
      order_run result;
      run(&r, with(&r, window == 0 ? "(order=ahead)" : "(order=ahead, window=2)"), &result);
      const mt_derivation *d = result.derivation;
      const mt_order *order = &result.result.order;
      int32_t next = 0;
      for (int32_t rank = 0; rank < d->ranks; rank++)
        for (int64_t i = order->begin[rank]; i < order->begin[rank + 1]; i++) {
          mt_event event = order->events[i];
          if (!event.next) continue;
          next++;
          bool found = false;
          for (int32_t k = 0; k < order->carried_count; k++)
            found = found || (order->carried[k].stage == event.stage &&
                              order->carried[k].microbatch == event.microbatch && order->carried[k].rank == rank);
          if (!found) fail_msg("%s: microbatch %d is encoded ahead on rank %d", r.text, event.microbatch, rank);
        }
      assert_int_equal(next, order->carried_count);
      replay check;
      replay_order(&result, &check);
      for (int32_t s = 0; window > 0 && s < d->stage_count; s++)
        if (d->stages[s].rank < 0 && features_alive(&result, &check, s) > window)
          fail_msg("%s: ahead breaks a window of %d", r.text, window);
      if (window == 0 && result.result.makespan > fill + 1e-9)
        fail_msg("%s: ahead %g, fill %g", r.text, result.result.makespan, fill);
      case_end(&result);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fill_keeps_the_body_and_is_no_slower_than_prefix_or_inline),
      cmocka_unit_test(test_round_robin_keeps_its_owners_and_is_no_slower_than_its_prefix),
      cmocka_unit_test(test_windows_are_kept_and_no_slower_than_inline),
      cmocka_unit_test(test_equal_input_gives_equal_orders),
      cmocka_unit_test(test_ahead_leaves_what_it_found_and_is_no_slower_than_fill),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

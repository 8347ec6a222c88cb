/* Properties of the algebra over random models, schedules, flags and data. The seed is printed; MOTET_TEST_SEED
 * sets it. */
#include "../unit/algebra_model.h"

#include "base/random.h"
#include "base/text.h"

enum { CASES = 4000, MODULES = 6, STAGES_MAX = 160, MICROBATCHES_MAX = 14 };

static uint64_t test_seed(void) {
  const char *text = getenv("MOTET_TEST_SEED");
  uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20260729;
  print_message("seed %llu\n", (unsigned long long)seed);
  return seed;
}

static int32_t below(mt_random *random, int32_t bound) { return (int32_t)mt_random_below(random, (uint64_t)bound); }

static bool chance(mt_random *random, int32_t percent) { return below(random, 100) < percent; }

/* Schedules as texts. */

static void random_skeleton(mt_random *random, mt_text *text) {
  static const char *const orders[] = {"fill", "prefix", "ahead"};
  static const char *const owners[] = {"round-robin", "balanced"};
  switch (below(random, 4)) {
  case 0: mt_text_append(text, "inline"); return;
  case 1: mt_text_append(text, "gpipe"); return;
  case 2:
    mt_text_append(text, "1f1b");
    if (chance(random, 50))
      mt_text_append(text, "(virtual=%d, batch=%d)", 1 + below(random, 4), 1 + below(random, 3));
    return;
  default: break;
  }
  mt_text_append(text, "transpose(");
  int count = 0;
  if (chance(random, 30)) mt_text_append(text, "%sowner=%s", count++ ? "," : "", owners[below(random, 2)]);
  if (chance(random, 50)) mt_text_append(text, "%sorder=%s", count++ ? "," : "", orders[below(random, 3)]);
  if (chance(random, 30)) mt_text_append(text, "%swindow=%d", count++ ? " , " : "", 1 + below(random, 20));
  if (chance(random, 30)) mt_text_append(text, "%sbatch=%d", count++ ? ", " : "", 1 + below(random, 9));
  mt_text_append(text, ")");
}

static bool same_term(const mt_term *a, const mt_term *b) {
  if (a->module_count != b->module_count || a->branch != b->branch) return false;
  for (int32_t i = 0; i < a->module_count; i++)
    if (strcmp(a->modules[i], b->modules[i]) != 0) return false;
  return a->skeleton.kind == b->skeleton.kind && a->skeleton.virtual_stages == b->skeleton.virtual_stages &&
         a->skeleton.order == b->skeleton.order && a->skeleton.owner == b->skeleton.owner &&
         a->skeleton.window == b->skeleton.window && a->skeleton.batch == b->skeleton.batch;
}

/* print, parse, print: the same tree and the same text. */
static void check_round_trip(mt_arena *arena, const mt_schedule *schedule) {
  motet_error error;
  mt_schedule *again = NULL;
  char *text = mt_schedule_print(arena, schedule);
  assert_non_null(text);
  if (mt_schedule_parse(arena, text, &error, &again) != MOTET_OK) fail_msg("%s: %s", text, error.text);
  assert_int_equal(again->term_count, schedule->term_count);
  for (int32_t i = 0; i < again->term_count; i++)
    if (!same_term(&again->terms[i], &schedule->terms[i])) fail_msg("term %d changes in %s", i, text);
  assert_string_equal(mt_schedule_print(arena, again), text);
}

static void random_schedule(mt_random *random, mt_text *text) {
  int32_t elements = 1 + below(random, 4), name = 0;
  mt_text_append(text, "<");
  for (int32_t e = 0; e < elements; e++) {
    int32_t branches = chance(random, 25) ? 2 + below(random, 2) : 1;
    mt_text_append(text, "%s%s", e > 0 ? "," : "", branches > 1 ? "(" : "");
    for (int32_t b = 0; b < branches; b++) {
      if (b > 0) mt_text_append(text, "|");
      int32_t names = below(random, 3);
      for (int32_t i = 0; i < names; i++) mt_text_append(text, "%sm-%d", i > 0 ? "+" : "", name++);
      if (names > 0) mt_text_append(text, ": ");
      random_skeleton(random, text);
    }
    if (branches > 1) mt_text_append(text, ")");
  }
  mt_text_append(text, ">");
}

static void test_schedules_survive_printing(void **state) {
  (void)state;
  mt_random random = mt_random_stream(test_seed(), "print");
  for (int i = 0; i < CASES; i++) {
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_schedule *schedule = NULL;
    mt_text text = {0};
    random_schedule(&random, &text);
    if (mt_schedule_parse(arena, text.data, &error, &schedule) != MOTET_OK)
      fail_msg("%s: %s", text.data, error.text);
    check_round_trip(arena, schedule);
    mt_text_free(&text);
    mt_arena_destroy(arena);
  }
}

/* Damaged and random texts either parse and survive printing, or are refused with a column. */
static void test_any_text_is_answered(void **state) {
  (void)state;
  static const char alphabet[] = "<>()|,:+= 1f1bgpipetransposeinlineorderwindowfill0987\n\x80\xff";
  mt_random random = mt_random_stream(test_seed(), "fuzz");
  int parsed = 0, refused = 0;
  for (int i = 0; i < 10 * CASES; i++) {
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_schedule *schedule = NULL;
    mt_text text = {0};
    if (chance(&random, 70)) {
      random_schedule(&random, &text);
      for (int32_t n = below(&random, 4); n > 0; n--)
        text.data[below(&random, (int32_t)text.length)] = alphabet[below(&random, (int32_t)sizeof alphabet - 1)];
    } else {
      int32_t length = below(&random, 60);
      mt_text_append(&text, "<");
      for (int32_t n = 0; n < length; n++)
        mt_text_bytes(&text, &alphabet[below(&random, (int32_t)sizeof alphabet - 1)], 1);
    }
    motet_status status = mt_schedule_parse(arena, text.data, &error, &schedule);
    if (status == MOTET_OK) {
      check_round_trip(arena, schedule);
      parsed++;
    } else {
      if (status != MOTET_ERROR_PARSE) fail_msg("%s: status %d", text.data, status);
      assert_non_null(strstr(error.text, "column "));
      refused++;
    }
    mt_text_free(&text);
    mt_arena_destroy(arena);
  }
  assert_true(parsed > CASES && refused > CASES);
}

/* Random derivations. */

typedef struct random_case {
  mt_model *model;
  mt_text schedule;
  mt_derive_request request;
  uint64_t present[MICROBATCHES_MAX], cached[MICROBATCHES_MAX];
  int32_t split[STAGES_MAX];
} random_case;

static void random_model(mt_random *random, mt_arena *arena, random_case *c) {
  static const char *const names[MODULES] = {"a", "b", "c", "d", "e", "f"};
  int32_t count = 1 + below(random, MODULES), layers[MODULES];
  bool trainable[MODULES] = {false};
  for (int32_t m = 0; m < count; m++) layers[m] = 1 + below(random, 6);
  motet_error error;
  assert_int_equal(mt_model_abstract(arena, count, names, layers, trainable, &error, &c->model), MOTET_OK);
  for (int32_t m = 0; m < count; m++) {
    int32_t percent = chance(random, 50) ? 0 : chance(random, 50) ? 100 : 30;
    for (int32_t l = c->model->modules[m].layer_begin; l < c->model->modules[m].layer_end; l++)
      c->model->layers[l].trainable = chance(random, percent);
  }
  if (chance(random, 50)) return; /* a chain */
  c->model->edges = MT_ARENA_NEW(arena, mt_module_edge, MODULES * MODULES);
  c->model->edge_count = 0;
  int32_t trunk = below(random, count);
  for (int32_t m = 0; m < count; m++) {
    if (m == trunk) continue;
    /* Encoders feed the trunk or the next encoder, generators hang off the trunk or the one before. */
    mt_module_edge edge = m < trunk ? (mt_module_edge){m, chance(random, 40) ? m + 1 : trunk}
                                    : (mt_module_edge){chance(random, 40) ? m - 1 : trunk, m};
    c->model->edges[c->model->edge_count++] = edge;
  }
  /* Sometimes a connection that skips modules. */
  int32_t from = below(random, count);
  if (chance(random, 25) && from + 2 < count)
    c->model->edges[c->model->edge_count++] = (mt_module_edge){from, from + 2};
}

static void random_terms(mt_random *random, random_case *c) {
  static const char *const sharded[2][4] = {
      {"1f1b", "gpipe", "1f1b(virtual=2)", "1f1b(virtual=3)"},
      {"1f1b(batch=3)", "gpipe(batch=3)", "1f1b(virtual=2, batch=3)", "1f1b(virtual=3, batch=3)"}};
  static const char *const hosted_or_replicated[] = {"inline", "transpose", "transpose(window=3)",
                                                     "transpose(order=prefix)", "transpose(order=ahead)"};
  int32_t gpipe = chance(random, 25), together = chance(random, 25);
  mt_text_append(&c->schedule, "<");
  for (int32_t m = 0; m < c->model->module_count;) {
    mt_text_append(&c->schedule, "%s%s", m > 0 ? ", " : "", c->model->modules[m].name);
    for (m++; m < c->model->module_count && chance(random, 35); m++)
      mt_text_append(&c->schedule, "+%s", c->model->modules[m].name);
    const char *skeleton = chance(random, 55) ? sharded[together][gpipe ? 1 : below(random, 4)]
                                              : hosted_or_replicated[below(random, 5)];
    mt_text_append(&c->schedule, ": %s", skeleton);
  }
  mt_text_append(&c->schedule, ">");
}

static void random_request(mt_random *random, mt_arena *arena, random_case *c) {
  *c = (random_case){.schedule = {0}};
  random_model(random, arena, c);
  random_terms(random, c);
  motet_error error;
  mt_schedule *schedule = NULL;
  assert_int_equal(mt_schedule_parse(arena, c->schedule.data, &error, &schedule), MOTET_OK);
  int32_t microbatches = 1 + below(random, MICROBATCHES_MAX);
  bool text_only = chance(random, 40), caching = chance(random, 20);
  for (int32_t m = 0; m < microbatches; m++) {
    uint64_t all = (UINT64_C(1) << c->model->module_count) - 1;
    c->present[m] = text_only ? mt_random_bits(random) & all : all;
    c->cached[m] = caching ? mt_random_bits(random) & mt_random_bits(random) & all : 0;
  }
  c->request = (mt_derive_request){.model = c->model,
                                   .schedule = schedule,
                                   .ranks = 1 + below(random, 6),
                                   .microbatches = microbatches,
                                   .present = c->present,
                                   .cached = c->cached};
}

/* Replaces the even split by a random one with the same sums. */
static void random_split(mt_random *random, random_case *c, const mt_derivation *d) {
  int32_t count = 0;
  for (int32_t s = 0; s < d->stage_count; s++) {
    const mt_region *region = &d->regions[d->stages[s].region];
    if (d->stages[s].rank < 0) continue;
    if (d->stages[s].slab == 0)
      for (int32_t l = 0; l < region->layer_end - region->layer_begin; l++)
        c->split[count + below(random, region->slabs)]++;
    count++;
  }
  c->request.split = c->split;
  c->request.split_count = count;
}

/* The stage of each layer; asserts that stages and parts tile the model. */
static void check_tiling(const mt_derivation *d, int32_t *stage_of) {
  for (int32_t l = 0; l < d->model->layer_count; l++) stage_of[l] = -1;
  for (int32_t s = 0; s < d->stage_count; s++) {
    const mt_stage *stage = &d->stages[s];
    int32_t at = stage->layer_begin;
    for (int32_t p = stage->part_begin; p < stage->part_end; p++) {
      const mt_part *part = &d->parts[p];
      const mt_region *region = &d->regions[part->region];
      assert_int_equal(part->layer_begin, at);
      assert_true(part->region == stage->region || region->host == s);
      assert_true(part->layer_begin >= region->layer_begin && part->layer_end <= region->layer_end);
      for (; at < part->layer_end; at++) {
        assert_int_equal(stage_of[at], -1);
        stage_of[at] = s;
      }
    }
    assert_int_equal(at, stage->layer_end);
  }
  for (int32_t l = 0; l < d->model->layer_count; l++) assert_true(stage_of[l] >= 0);
}

static void close_relation(bool *reach, int32_t count) {
  for (int32_t k = 0; k < count; k++)
    for (int32_t i = 0; i < count; i++)
      for (int32_t j = 0; reach[i * count + k] && j < count; j++)
        reach[i * count + j] = reach[i * count + j] || reach[k * count + j];
}

/* Stage i reaches stage j by edges exactly where some layer of i reaches some layer of j in the model. */
static void check_edges(mt_arena *arena, const mt_derivation *d, const int32_t *stage_of, bool *reach) {
  int32_t layers = d->model->layer_count, stages = d->stage_count;
  bool *layer_reach = MT_ARENA_NEW(arena, bool, layers *layers);
  bool *wanted = MT_ARENA_NEW(arena, bool, stages *stages);
  for (int32_t l = 0; l + 1 < layers; l++)
    layer_reach[l * layers + l + 1] = d->model->layers[l].module == d->model->layers[l + 1].module;
  for (int32_t e = 0; e < d->model->edge_count; e++) {
    int32_t from = d->model->modules[d->model->edges[e].from].layer_end - 1;
    layer_reach[from * layers + d->model->modules[d->model->edges[e].to].layer_begin] = true;
  }
  close_relation(layer_reach, layers);
  for (int32_t a = 0; a < layers; a++)
    for (int32_t b = 0; b < layers; b++)
      if (layer_reach[a * layers + b] && stage_of[a] != stage_of[b])
        wanted[stage_of[a] * stages + stage_of[b]] = true;
  for (int32_t e = 0; e < d->edge_count; e++) {
    assert_true(d->edges[e].from < d->edges[e].to);
    assert_false(reach[d->edges[e].from * stages + d->edges[e].to]); /* no edge twice */
    reach[d->edges[e].from * stages + d->edges[e].to] = true;
  }
  close_relation(reach, stages);
  for (int32_t i = 0; i < stages; i++)
    for (int32_t j = 0; j < stages; j++)
      if (d->stages[i].layer_begin < d->stages[i].layer_end && d->stages[j].layer_begin < d->stages[j].layer_end)
        if (reach[i * stages + j] != wanted[i * stages + j]) fail_msg("%s: stages %d, %d", d->text, i, j);
}

static bool trains(const mt_derivation *d, int32_t stage) {
  for (int32_t l = d->stages[stage].layer_begin; l < d->stages[stage].layer_end; l++)
    if (d->model->layers[l].trainable) return true;
  return false;
}

/* Gates by their definition over the transitive closure. */
static void check_gates(const mt_derivation *d, const bool *reach) {
  for (int32_t s = 0; s < d->stage_count; s++) {
    bool above = false;
    for (int32_t q = 0; q < d->stage_count; q++) above = above || (reach[q * d->stage_count + s] && trains(d, q));
    int gate = (trains(d, s) ? MT_GATE_WEIGHTS : 0) + (above ? MT_GATE_INPUT : 0);
    assert_int_equal(d->stages[s].gate, gate);
    int32_t first = d->stages[s].layer_begin;
    if (!above)
      while (first < d->stages[s].layer_end && !d->model->layers[first].trainable) first++;
    assert_int_equal(d->stages[s].first_trainable, gate == MT_GATE_NONE ? -1 : first);
    for (int32_t e = 0; e < d->edge_count; e++)
      if (d->edges[e].from == s) assert_int_equal(d->edges[e].gradient, trains(d, s) || above);
  }
}

static bool active(const mt_derivation *d, int32_t stage, int32_t microbatch) {
  const mt_stage *s = &d->stages[stage];
  const mt_region *region = &d->regions[s->region];
  for (int32_t m = 0; m < d->model->module_count; m++) {
    const mt_module *module = &d->model->modules[m];
    bool holds = s->layer_begin == s->layer_end
                     ? m >= region->module_begin && m < region->module_end
                     : module->layer_begin < s->layer_end && module->layer_end > s->layer_begin;
    if (holds && (d->present[microbatch] >> m & 1) != 0 && (d->cached[microbatch] >> m & 1) == 0) return true;
  }
  return false;
}

static int required_backward(mt_gate gate) {
  return gate == MT_GATE_NONE ? -1 : gate == MT_GATE_INPUT ? MOTET_BWD_X : MOTET_BWD;
}

/* Events are joined with the one behind them iff both are of one stage and kind and of the same `batch`
 * microbatches of their pipeline, and those stand in order. */
static void check_runs(const mt_derivation *d) {
  for (int32_t r = 0; r < d->ranks; r++)
    for (int64_t i = d->body_begin[r]; i < d->body_begin[r + 1]; i++) {
      const mt_event *event = &d->body[i], *next = i + 1 < d->body_begin[r + 1] ? event + 1 : NULL;
      const mt_region *region = &d->regions[d->stages[event->stage].region];
      int32_t each = region->data * region->skeleton.batch;
      bool together = next != NULL && next->stage == event->stage && next->kind == event->kind &&
                      next->microbatch / each == event->microbatch / each;
      assert_int_equal(event->joined, together);
      if (together) assert_true(next->microbatch > event->microbatch);
    }
}

/* Every required event of the body once, on its stage's rank. */
static void check_events(const mt_derivation *d, int *forwards, int *backwards) {
  for (int32_t r = 0; r < d->ranks; r++)
    for (int64_t i = d->body_begin[r]; i < d->body_begin[r + 1]; i++) {
      const mt_event *event = &d->body[i];
      assert_int_equal(d->stages[event->stage].rank, r);
      assert_false(event->next);
      int *count = event->kind == MOTET_FWD ? forwards : backwards;
      if (event->kind != MOTET_FWD) assert_int_equal(event->kind, required_backward(d->stages[event->stage].gate));
      count[event->stage * d->microbatches + event->microbatch]++;
    }
  for (int32_t s = 0; s < d->stage_count; s++)
    for (int32_t m = 0; m < d->microbatches; m++) {
      int wanted = d->stages[s].rank >= 0 && active(d, s, m);
      assert_int_equal(forwards[s * d->microbatches + m], wanted);
      assert_int_equal(backwards[s * d->microbatches + m], wanted && d->stages[s].gate != MT_GATE_NONE);
    }
}

typedef struct progress {
  const mt_derivation *d;
  bool *forward, *backward; /* (stage, microbatch) done; replicated stages count as done when they could be */
} progress;

static bool forward_ready(const progress *p, int32_t stage, int32_t m) {
  for (int32_t e = 0; e < p->d->edge_count; e++) {
    const mt_edge *edge = &p->d->edges[e];
    if (edge->to == stage && active(p->d, edge->from, m) && !p->forward[edge->from * p->d->microbatches + m])
      return false;
  }
  return true;
}

static bool backward_ready(const progress *p, int32_t stage, int32_t m) {
  if (!p->forward[stage * p->d->microbatches + m]) return false;
  for (int32_t e = 0; e < p->d->edge_count; e++) {
    const mt_edge *edge = &p->d->edges[e];
    if (edge->from == stage && edge->gradient && active(p->d, edge->to, m) &&
        !p->backward[edge->to * p->d->microbatches + m])
      return false;
  }
  return true;
}

/* Runs every event of replicated stages that can run, wherever its owner is. */
static bool run_replicated(progress *p) {
  bool moved = false;
  for (int32_t s = 0; s < p->d->stage_count; s++)
    for (int32_t m = 0; p->d->stages[s].rank < 0 && m < p->d->microbatches; m++) {
      if (!active(p->d, s, m)) continue;
      bool *forward = &p->forward[s * p->d->microbatches + m], *backward = &p->backward[s * p->d->microbatches + m];
      if (!*forward && forward_ready(p, s, m)) *forward = moved = true;
      if (!*backward && p->d->stages[s].gate != MT_GATE_NONE && backward_ready(p, s, m)) *backward = moved = true;
    }
  return moved;
}

/* Events that are joined need all their inputs before, and have no output before the last of them. */
static bool run_together(progress *p, int64_t *at) {
  const mt_event *first = &p->d->body[*at], *event = first;
  bool forward = first->kind == MOTET_FWD, ready = true;
  for (bool more = true; more; event++) {
    ready = ready && (forward ? forward_ready : backward_ready)(p, event->stage, event->microbatch);
    more = event->joined;
  }
  for (const mt_event *done = first; ready && done < event; done++)
    (forward ? p->forward : p->backward)[done->stage * p->d->microbatches + done->microbatch] = true;
  if (ready) *at += event - first;
  return ready;
}

/* Plain dependency simulation: each rank goes on while its next event's inputs exist. */
static void check_executable(mt_arena *arena, const mt_derivation *d, const char *schedule) {
  size_t cells = (size_t)d->stage_count * (size_t)d->microbatches;
  progress p = {d, MT_ARENA_NEW(arena, bool, cells), MT_ARENA_NEW(arena, bool, cells)};
  int64_t *at = MT_ARENA_NEW(arena, int64_t, d->ranks);
  memcpy(at, d->body_begin, (size_t)d->ranks * sizeof *at);
  for (bool moved = true; moved;) {
    moved = run_replicated(&p);
    for (int32_t r = 0; r < d->ranks; r++)
      while (at[r] < d->body_begin[r + 1] && run_together(&p, &at[r])) moved = true;
  }
  for (int32_t r = 0; r < d->ranks; r++)
    if (at[r] < d->body_begin[r + 1])
      fail_msg("%s, %d ranks, %d microbatches: rank %d hangs at its event %lld", schedule, d->ranks,
               d->microbatches, r, (long long)(at[r] - d->body_begin[r]));
}

static void check_derivation(mt_arena *arena, const mt_derivation *d, const char *schedule) {
  int32_t *stage_of = MT_ARENA_NEW(arena, int32_t, d->model->layer_count);
  bool *reach = MT_ARENA_NEW(arena, bool, d->stage_count * d->stage_count);
  int *forwards = MT_ARENA_NEW(arena, int, d->stage_count * d->microbatches);
  int *backwards = MT_ARENA_NEW(arena, int, d->stage_count * d->microbatches);
  check_tiling(d, stage_of);
  check_edges(arena, d, stage_of, reach);
  check_gates(d, reach);
  check_events(d, forwards, backwards);
  check_runs(d);
  check_executable(arena, d, schedule);
}

/* The canonical text derives the same thing. */
static void check_canonical(mt_arena *arena, const random_case *c, const mt_derivation *d) {
  motet_error error;
  mt_schedule *schedule = NULL;
  mt_derivation *again = NULL;
  assert_int_equal(mt_schedule_parse(arena, d->text, &error, &schedule), MOTET_OK);
  mt_derive_request request = c->request;
  request.schedule = schedule;
  if (mt_derive(arena, &request, &error, &again) != MOTET_OK) fail_msg("%s: %s", d->text, error.text);
  assert_string_equal(again->text, d->text);
  assert_int_equal(again->region_count, d->region_count);
  assert_int_equal(again->stage_count, d->stage_count);
  assert_int_equal(again->edge_count, d->edge_count);
  assert_int_equal(again->body_begin[d->ranks], d->body_begin[d->ranks]);
  for (int64_t i = 0; i < d->body_begin[d->ranks]; i++) {
    assert_int_equal(again->body[i].kind, d->body[i].kind);
    assert_int_equal(again->body[i].stage, d->body[i].stage);
    assert_int_equal(again->body[i].microbatch, d->body[i].microbatch);
  }
}

static void test_derivations(void **state) {
  (void)state;
  mt_random random = mt_random_stream(test_seed(), "derive");
  int legal = 0, illegal = 0;
  for (int i = 0; i < CASES; i++) {
    mt_arena *arena = mt_arena_create();
    random_case c;
    random_request(&random, arena, &c);
    motet_error error;
    mt_derivation *d = NULL;
    motet_status status = mt_derive(arena, &c.request, &error, &d);
    if (status == MOTET_OK) {
      check_derivation(arena, d, c.schedule.data);
      check_canonical(arena, &c, d);
      random_split(&random, &c, d);
      status = mt_derive(arena, &c.request, &error, &d);
      if (status == MOTET_OK)
        check_derivation(arena, d, c.schedule.data);
      else if (strstr(error.text, "rides on it") == NULL)
        fail_msg("%s: %s", c.schedule.data, error.text);
      legal++;
    } else {
      if (status != MOTET_ERROR_ILLEGAL) fail_msg("%s: status %d: %s", c.schedule.data, status, error.text);
      if (strstr(error.text, "accepted: ") == NULL || error.rule[0] == '\0') fail_msg("%s", error.text);
      illegal++;
    }
    mt_text_free(&c.schedule);
    mt_arena_destroy(arena);
  }
  print_message("%d legal, %d refused\n", legal, illegal);
  assert_true(legal > CASES / 5 && illegal > CASES / 20);
}

/* Seconds of a body on its own: forwards take f, backwards b, transfers nothing. Also the most microbatches that a
 * rank holds between forward and backward. */
static int64_t run_timed(mt_arena *arena, const mt_derivation *d, int64_t f, int64_t b, int32_t *most_held) {
  int64_t *forward = MT_ARENA_NEW(arena, int64_t, d->stage_count * d->microbatches); /* end, 0: not yet */
  int64_t *backward = MT_ARENA_NEW(arena, int64_t, d->stage_count * d->microbatches);
  int64_t *at = MT_ARENA_NEW(arena, int64_t, d->ranks), *now = MT_ARENA_NEW(arena, int64_t, d->ranks);
  int32_t *held = MT_ARENA_NEW(arena, int32_t, d->ranks);
  memcpy(at, d->body_begin, (size_t)d->ranks * sizeof *at);
  int64_t makespan = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t r = 0; r < d->ranks; r++)
      for (; at[r] < d->body_begin[r + 1]; at[r]++, moved = true) {
        int32_t s = d->body[at[r]].stage, m = d->body[at[r]].microbatch, last = d->stage_count - 1;
        bool fwd = d->body[at[r]].kind == MOTET_FWD;
        int64_t *mine = fwd ? &forward[s * d->microbatches + m] : &backward[s * d->microbatches + m];
        int64_t input = fwd        ? s > 0 ? forward[(s - 1) * d->microbatches + m] : 0
                        : s < last ? backward[(s + 1) * d->microbatches + m]
                                   : forward[s * d->microbatches + m];
        if (input == 0 && !(fwd && s == 0)) break;
        *mine = now[r] = (input > now[r] ? input : now[r]) + (fwd ? f : b);
        if (now[r] > makespan) makespan = now[r];
        held[r] += fwd ? 1 : -1;
        if (held[r] > most_held[r]) most_held[r] = held[r];
      }
  }
  for (int32_t r = 0; r < d->ranks; r++) assert_int_equal(at[r], d->body_begin[r + 1]);
  return makespan;
}

/* 1F1B ends at (M + P - 1)(f + b) and holds at most P - r microbatches on rank r, for every M; v chunks of f and b
 * each end at (v M + P - 1)(f + b) where P divides M (arXiv 2104.04473, section 2.2). GPipe ends as 1F1B and holds
 * M. */
static void test_published_laws_of_the_orders(void **state) {
  (void)state;
  static const int64_t times[][2] = {{1, 2}, {1, 1}, {3, 2}};
  for (int32_t p = 1; p <= 8; p++)
    for (int32_t m = 1; m <= 24; m++)
      for (int32_t v = 1; v <= 4; v++)
        for (int t = 0; t < 3; t++) {
          int64_t f = times[t][0], b = times[t][1];
          if (v > 1 && m % p != 0) continue;
          mt_arena *arena = mt_arena_create();
          char text[40];
          int32_t held[8] = {0};
          snprintf(text, sizeof text, "<1f1b(virtual=%d)>", v);
          const mt_derivation *d = derive_of(arena, "l:tttttttttttttttttttttttttttttttt", text, p, m);
          assert_int_equal(run_timed(arena, d, f, b, held), (v * m + p - 1) * (f + b));
          for (int32_t r = 0; v == 1 && r < p; r++) assert_int_equal(held[r], m < p - r ? m : p - r);
          if (v == 1) {
            memset(held, 0, sizeof held);
            d = derive_of(arena, "l:tttttttttttttttttttttttttttttttt", "<gpipe>", p, m);
            assert_int_equal(run_timed(arena, d, f, b, held), (m + p - 1) * (f + b));
            assert_int_equal(held[0], m);
          }
          mt_arena_destroy(arena);
        }
}

/* Where the ranks do not divide the microbatches, an interleaved order is no slower than that of the next multiple.
 */
static void test_uneven_groups_cost_no_more_than_full_ones(void **state) {
  (void)state;
  for (int32_t p = 2; p <= 6; p++)
    for (int32_t v = 2; v <= 4; v++)
      for (int32_t m = 1; m <= 3 * p; m++) {
        mt_arena *arena = mt_arena_create();
        char text[40];
        int32_t held[8] = {0};
        snprintf(text, sizeof text, "<1f1b(virtual=%d)>", v);
        const mt_derivation *d = derive_of(arena, "l:tttttttttttttttttttttttt", text, p, m);
        int64_t full = ((int64_t)(m + p - 1) / p * p * v + p - 1) * 3;
        assert_true(run_timed(arena, d, 1, 2, held) <= full);
        mt_arena_destroy(arena);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_schedules_survive_printing),
      cmocka_unit_test(test_any_text_is_answered),
      cmocka_unit_test(test_derivations),
      cmocka_unit_test(test_published_laws_of_the_orders),
      cmocka_unit_test(test_uneven_groups_cost_no_more_than_full_ones),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

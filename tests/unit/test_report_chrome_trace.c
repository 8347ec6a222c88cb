#include "../sim_builder.h"
#include "report/chrome_trace.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static json_t *trace_of(const mt_chrome_trace *trace) {
  mt_text text = {0};
  assert_int_equal(mt_report_chrome_trace(trace, NULL, &text), MOTET_OK);
  json_error_t error;
  json_t *document = json_loads(text.data, JSON_REJECT_DUPLICATES, &error);
  if (document == NULL) fail_msg("line %d: %s", error.line, error.text);
  mt_text_free(&text);
  return document;
}

static const char *text_member(json_t *event, const char *key) {
  return json_string_value(json_object_get(event, key));
}

static double number_member(json_t *event, const char *key) {
  assert_true(json_is_number(json_object_get(event, key)));
  return json_number_value(json_object_get(event, key));
}

static void build(builder *b, mt_chrome_trace *trace) {
  builder_begin(b, 4, 2, 2, 8);
  builder_cost_all(b, 1.0, 2.0);
  b->costs.links.local.latency_seconds = 0.25;
  for (int32_t replica = 0; replica < 2; replica++)
    builder_pipeline(b, 2 * replica, 2, 1, 4 * replica, 4, false, 0);
  builder_send_waits(b);
  builder_collective(b, MOTET_STEP_END, 0, -1, -1);
  motet_program *p = builder_end(b);
  mt_simulation *s = builder_simulate(b, p);
  *trace = (mt_chrome_trace){.program = p, .start = s->start, .finish = s->finish, .idle_cause = s->idle_cause};
}

/* Every instruction that takes time is one complete event on its rank's thread, with its times in microseconds. */
static void test_events_are_the_instructions(void **state) {
  (void)state;
  builder b;
  mt_chrome_trace trace;
  build(&b, &trace);
  int64_t joined = 0; /* what the events say, whether or not the program is right */
  while (trace.program->instructions[joined].kind != MOTET_FWD) joined++;
  b.program.instructions[joined].flags |= MOTET_FLAG_JOINED;
  json_t *document = trace_of(&trace), *events = json_object_get(document, "traceEvents"), *event;
  size_t index, complete = 0, threads = 0;
  json_array_foreach(events, index, event) {
    if (strcmp(text_member(event, "ph"), "M") == 0)
      threads += strcmp(text_member(event, "name"), "thread_name") == 0;
    if (strcmp(text_member(event, "ph"), "X") != 0) continue;
    complete++;
    int rank = (int)number_member(event, "tid");
    assert_int_equal(number_member(event, "pid"), rank / 2);
    json_t *arguments = json_object_get(event, "args");
    int64_t at = trace.program->rank_begin[rank] + (int64_t)number_member(arguments, "instruction");
    const motet_instruction *instruction = &trace.program->instructions[at];
    ASSERT_NEAR(number_member(event, "ts"), trace.start[at] * 1e6);
    ASSERT_CLOSE(number_member(event, "dur"), (trace.finish[at] - trace.start[at]) * 1e6, 1e-6);
    if (instruction->kind == MOTET_FWD) {
      assert_string_equal(text_member(event, "cat"), "forward");
      assert_int_equal(number_member(arguments, "microbatch"), instruction->microbatch);
      assert_int_equal(number_member(arguments, "stage"), instruction->stage);
      assert_string_equal(text_member(arguments, "region"), "llm");
      assert_int_equal(json_is_true(json_object_get(arguments, "joined")), at == joined);
    }
    bool waits = instruction->kind == MOTET_WAIT || instruction->kind == MOTET_STEP_END;
    if (waits)
      assert_string_equal(text_member(arguments, "cause"), mt_idle_cause_name(trace.idle_cause[at]));
    else
      assert_null(json_object_get(arguments, "cause"));
  }
  size_t timed = 0;
  for (int64_t i = 0; i < trace.program->rank_begin[4]; i++) timed += trace.finish[i] > trace.start[i];
  assert_int_equal(complete, timed);
  assert_int_equal(threads, 4);
  json_decref(document);
  builder_free(&b);
}

/* Every transfer is one arrow: it leaves one rank inside the compute that made the data and reaches the other no
 * earlier. */
static void test_arrows_join_their_ends(void **state) {
  (void)state;
  builder b;
  mt_chrome_trace trace;
  build(&b, &trace);
  json_t *document = trace_of(&trace), *events = json_object_get(document, "traceEvents"), *from, *to;
  size_t i, j, arrows = 0;
  json_array_foreach(events, i, from) {
    if (strcmp(text_member(from, "ph"), "s") != 0) continue;
    int ends = 0;
    json_array_foreach(events, j, to) {
      if (strcmp(text_member(to, "ph"), "f") != 0 || strcmp(text_member(from, "id"), text_member(to, "id")) != 0)
        continue;
      ends++;
      assert_true(number_member(to, "ts") > number_member(from, "ts"));
      assert_true(number_member(to, "tid") - number_member(from, "tid") != 0);
      assert_string_equal(text_member(to, "name"), text_member(from, "name"));
    }
    assert_int_equal(ends, 1);
    arrows++;
  }
  assert_int_equal(arrows, 2 * (4 + 4)); /* an activation and a gradient for each of two replicas' microbatches */
  json_decref(document);
  builder_free(&b);
}

static void test_memory_is_a_counter(void **state) {
  (void)state;
  builder b;
  mt_chrome_trace trace;
  build(&b, &trace);
  int64_t hundred = 100;
  b.program.saved_bytes.values = &hundred;
  mt_memory_timeline *memory = NULL;
  assert_int_equal(mt_memory_timeline_make(b.arena, trace.program, trace.start, trace.finish, NULL, &memory),
                   MOTET_OK);
  trace.memory = memory;
  json_t *document = trace_of(&trace), *event;
  size_t index, steps = 0;
  double most = 0;
  json_array_foreach(json_object_get(document, "traceEvents"), index, event) {
    if (strcmp(text_member(event, "ph"), "C") != 0) continue;
    steps++;
    if (strcmp(text_member(event, "name"), "memory of rank 0") != 0) continue;
    double bytes = number_member(json_object_get(event, "args"), "bytes");
    if (bytes > most) most = bytes;
  }
  assert_int_equal(steps, memory->begin[4]);
  ASSERT_NEAR(most, 200); /* 1F1B on the first of two ranks holds two microbatches */
  json_decref(document);
  builder_free(&b);
}

static void test_texts_are_escaped(void **state) {
  (void)state;
  static const struct {
    const char *text, *json;
  } rows[] = {{"plain", "\"plain\""},
              {"a\"b\\c", "\"a\\\"b\\\\c\""},
              {"line\nend\t\x01", "\"line\\u000aend\\u0009\\u0001\""},
              {"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", "\"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80\""},
              {"\xff\xc0\x80", "\"\\ufffd\\ufffd\\ufffd\""}, /* no UTF-8; an overlong zero */
              {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""}, /* a surrogate */
              {"cut \xe2\x82", "\"cut \\ufffd\\ufffd\""}};   /* a sequence without its end */
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    mt_text text = {0};
    mt_report_json_string(&text, rows[i].text);
    assert_string_equal(text.data, rows[i].json);
    mt_text_free(&text);
  }
  builder b;
  mt_chrome_trace trace;
  build(&b, &trace);
  b.program.regions[0].name = "llm \"quoted\"\n\xff";
  b.program.schedule = "<\"llm\": 1f1b>";
  trace.title = "back\\slash";
  json_t *document = trace_of(&trace), *other = json_object_get(document, "otherData");
  assert_string_equal(text_member(other, "schedule"), "<\"llm\": 1f1b>");
  assert_string_equal(text_member(other, "title"), "back\\slash");
  json_decref(document);
  builder_free(&b);
}

/* Any program gives a document that parses. */
static void test_random_programs_parse(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 50; seed++) {
    mt_random random = mt_random_stream(seed, "trace");
    builder b;
    motet_program *p = builder_random(&b, &random);
    mt_simulation *s = builder_simulate(&b, p);
    mt_chrome_trace trace = {.program = p, .start = s->start, .finish = s->finish, .idle_cause = s->idle_cause};
    json_decref(trace_of(&trace));
    builder_free(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_events_are_the_instructions), cmocka_unit_test(test_arrows_join_their_ends),
      cmocka_unit_test(test_memory_is_a_counter),         cmocka_unit_test(test_texts_are_escaped),
      cmocka_unit_test(test_random_programs_parse),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

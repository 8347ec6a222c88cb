#include "../sim_builder.h"
#include "report/page.h"
#include "report/page_columns.h"
#include "report/transfers.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <zlib.h>

#include <cmocka.h>

/* --- reading a page's data back, by docs/report.md alone --------------------------------------------------------
 */

typedef struct column {
  uint8_t *bytes;
  size_t count, at;
  int64_t before;
} column;

static int digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static column column_decode(const char *text, size_t length) {
  column c = {.bytes = calloc(length + 1, 1)};
  assert_int_equal(length % 4, 0);
  uint32_t group = 0;
  for (size_t i = 0; i < length; i++) {
    bool padding = text[i] == '=';
    if (padding) assert_true(i + 2 >= length);
    assert_true(padding || digit(text[i]) >= 0);
    group = group << 6 | (padding ? 0 : (uint32_t)digit(text[i]));
    if (i % 4 != 3) continue;
    size_t whole = text[i] == '=' ? (text[i - 1] == '=' ? 1 : 2) : 3;
    for (size_t k = 0; k < whole; k++) c.bytes[c.count++] = (uint8_t)(group >> (16 - 8 * k));
    group = 0;
  }
  return c;
}

/* The same, compressed as zlib does it (RFC 1950), by a decoder that is told no size. */
static column column_inflate(const char *text, size_t length) {
  column small = column_decode(text, length), c = {0};
  size_t room = 0;
  z_stream stream = {.next_in = small.bytes, .avail_in = (uInt)small.count};
  assert_int_equal(inflateInit(&stream), Z_OK);
  int result = Z_OK;
  while (result == Z_OK) {
    room = 2 * room + 64;
    c.bytes = realloc(c.bytes, room);
    stream.next_out = c.bytes + stream.total_out;
    stream.avail_out = (uInt)(room - stream.total_out);
    result = inflate(&stream, Z_NO_FLUSH);
  }
  assert_int_equal(result, Z_STREAM_END);
  assert_int_equal(stream.avail_in, 0);
  c.count = stream.total_out;
  inflateEnd(&stream);
  free(small.bytes);
  return c;
}

/* The text of the script element that the document names. */
static column column_open(const char *html, json_t *owner, const char *key) {
  char head[96];
  const char *id = json_string_value(json_object_get(owner, key));
  assert_non_null(id);
  snprintf(head, sizeof head, "<script type=\"text/plain\" id=\"%s\">", id);
  const char *begin = strstr(html, head);
  assert_non_null(begin);
  begin += strlen(head);
  return column_inflate(begin, (size_t)(strstr(begin, "</script>") - begin));
}

static uint64_t read_unsigned(column *c) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    assert_true(c->at < c->count);
    uint8_t byte = c->bytes[c->at++];
    value |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return value;
  }
}

static int64_t read_signed(column *c) {
  uint64_t value = read_unsigned(c);
  return value % 2 == 0 ? (int64_t)(value / 2) : -(int64_t)(value / 2) - 1;
}

static int64_t read_difference(column *c) { return c->before += read_signed(c); }

static void column_close(column *c) {
  assert_int_equal(c->at, c->count); /* nothing is left over */
  free(c->bytes);
}

static json_t *document_of(const char *html) {
  const char *head = "<script type=\"application/json\" id=\"data\">", *begin = strstr(html, head);
  assert_non_null(begin);
  begin += strlen(head);
  json_error_t error;
  json_t *document =
      json_loadb(begin, (size_t)(strstr(begin, "</script>") - begin), JSON_REJECT_DUPLICATES, &error);
  if (document == NULL) fail_msg("%s at %d", error.text, error.position);
  return document;
}

static size_t count_of(const char *text, const char *part) {
  size_t count = 0;
  for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) count++;
  return count;
}

/* --- a page to look at ------------------------------------------------------------------------------------------
 */

typedef struct made_page {
  builder b;
  mt_page page;
  mt_text html;
} made_page;

static void make(made_page *made) {
  builder_begin(&made->b, 4, 1, 4, 8);
  builder_cost_all(&made->b, 1.0, 2.0);
  made->b.costs.links.local.latency_seconds = 0.125;
  builder_pipeline(&made->b, 0, 4, 1, 0, 8, false, 1000);
  builder_send_waits(&made->b);
  builder_collective(&made->b, MOTET_STEP_END, 0, -1, -1);
  motet_program *program = builder_end(&made->b);
  made->page = (mt_page){.title = "a page", .side_count = 1};
  made->page.sides[0] = (mt_page_side){.title = "a side",
                                       .program = program,
                                       .bound = NAN,
                                       .timeline_count = 1,
                                       .timelines = {{.title = "simulated"}}};
  mt_page_timeline *timeline = &made->page.sides[0].timelines[0];
  timeline->simulation = builder_simulate(&made->b, program);
  assert_non_null(timeline->simulation);
  assert_int_equal(mt_page_memory(made->b.arena, program, NULL, timeline), MOTET_OK);
}

static const char *render(made_page *made) {
  mt_text_free(&made->html);
  motet_error error;
  if (mt_report_page(&made->page, &error, &made->html) != MOTET_OK) fail_msg("%s", error.text);
  return made->html.data;
}

static void release(made_page *made) {
  mt_text_free(&made->html);
  builder_free(&made->b);
}

static json_t *side_of(json_t *document) { return json_array_get(json_object_get(document, "sides"), 0); }

static json_t *timeline_of(json_t *document) {
  return json_array_get(json_object_get(side_of(document), "timelines"), 0);
}

/* Every instruction is there, with its times to half of a tick. */
static void test_instructions_come_back(void **state) {
  (void)state;
  made_page made = {0};
  make(&made);
  motet_instruction *first = made.b.program.instructions; /* joined, whether or not that is right */
  while (first->kind != MOTET_FWD) first++;
  first->flags |= MOTET_FLAG_JOINED;
  const char *html = render(&made);
  json_t *document = document_of(html), *side = side_of(document), *timeline = timeline_of(document);
  const motet_program *program = made.page.sides[0].program;
  const mt_simulation *simulation = made.page.sides[0].timelines[0].simulation;
  column begin = column_open(html, side, "rank_begin"), kind = column_open(html, side, "kind");
  column stage = column_open(html, side, "stage"), microbatch = column_open(html, side, "microbatch");
  column gap = column_open(html, timeline, "gap"), duration = column_open(html, timeline, "duration");
  column cause = column_open(html, timeline, "cause"), critical = column_open(html, timeline, "critical");
  double tick = simulation->makespan / json_number_value(json_object_get(timeline, "ticks"));
  assert_true(tick < 1e-8 * simulation->makespan);
  for (int32_t rank = 0; rank <= 4; rank++) assert_int_equal(read_difference(&begin), program->rank_begin[rank]);
  for (int32_t rank = 0; rank < 4; rank++) {
    int64_t time = 0;
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      const motet_instruction *instruction = &program->instructions[i];
      int code = kind.bytes[kind.at++];
      assert_int_equal(code & 31, instruction->kind);
      assert_int_equal((code & 32) != 0, (instruction->flags & (MOTET_FLAG_RECV | MOTET_FLAG_JOINED)) != 0);
      int64_t its_stage = read_difference(&stage);
      if (instruction->kind <= MOTET_RECOMPUTE) assert_int_equal(its_stage, instruction->stage);
      if (instruction->kind >= MOTET_SEND && instruction->kind <= MOTET_WAIT) {
        assert_int_equal(its_stage, rank); /* stage s lies on rank s: the own end of the transfer */
        assert_int_equal((code & 128) != 0, program->buffers[instruction->buffer].kind == MOTET_BUFFER_GRADIENT);
      }
      assert_int_equal(read_difference(&microbatch), instruction->microbatch);
      time += read_signed(&gap);
      ASSERT_CLOSE((double)time * tick, simulation->start[i], 0.51 * tick);
      time += (int64_t)read_unsigned(&duration);
      ASSERT_CLOSE((double)time * tick, simulation->finish[i], 0.51 * tick);
      assert_int_equal(cause.bytes[cause.at++], simulation->idle_cause[i]);
    }
  }
  for (int64_t k = 0; k < simulation->critical_count; k++)
    assert_int_equal(read_difference(&critical), simulation->critical[k]);
  column *all[] = {&begin, &kind, &stage, &microbatch, &gap, &duration, &cause, &critical};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) column_close(all[i]);
  json_decref(document);
  release(&made);
}

/* The other end of every transfer: its own buffer, its own peer; 1F1B by hand sends each buffer once. */
static void test_ends_of_transfers_meet(void **state) {
  (void)state;
  made_page made = {0};
  make(&made);
  const char *html = render(&made);
  json_t *document = document_of(html);
  const motet_program *program = made.page.sides[0].program;
  column partner = column_open(html, side_of(document), "partner");
  int ends = 0;
  for (int64_t i = 0; i < program->rank_begin[4]; i++) {
    int64_t difference = read_signed(&partner);
    const motet_instruction *one = &program->instructions[i], *other = one + difference;
    bool transfers = one->kind >= MOTET_SEND && one->kind <= MOTET_WAIT;
    assert_int_equal(difference != 0, transfers);
    if (!transfers) continue;
    ends++;
    bool sends = one->kind == MOTET_SEND || (one->kind == MOTET_WAIT && (one->flags & MOTET_FLAG_RECV) == 0);
    assert_int_equal(other->kind, sends ? MOTET_WAIT : MOTET_SEND);
    if (sends) assert_true(other->flags & MOTET_FLAG_RECV);
    assert_int_equal(other->buffer, one->buffer);
    int64_t at = i + difference;
    assert_true(at >= program->rank_begin[one->peer] && at < program->rank_begin[one->peer + 1]);
  }
  assert_int_equal(ends, 4 * 2 * 3 * 8); /* SEND, RECV and two WAITs of 3 edges both ways for 8 microbatches */
  column_close(&partner);
  json_decref(document);
  release(&made);
}

/* A buffer that travels twice between the same ranks, and to another rank between: by the order of the posts. */
static void test_repeated_transfers_meet_in_order(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 3, 1, 1, 1);
  int32_t buffer = builder_buffer(&b, MOTET_BUFFER_ACTIVATION, 0, builder_edge(&b, 0, 0), 0, 1);
  static const int sends[][2] = {{MOTET_SEND, 1}, {MOTET_SEND, 2}, {MOTET_SEND, 1},
                                 {MOTET_WAIT, 2}, {MOTET_WAIT, 1}, {MOTET_WAIT, 1}};
  for (int i = 0; i < 6; i++) builder_add(&b, 0, sends[i][0], 0, 0, 0, buffer, sends[i][1]);
  for (int i = 0; i < 4; i++)
    builder_add(&b, 1, i < 2 ? MOTET_RECV : MOTET_WAIT, i < 2 ? 0 : MOTET_FLAG_RECV, 0, 0, buffer, 0);
  builder_add(&b, 2, MOTET_RECV, 0, 0, 0, buffer, 0); /* never waited for */
  motet_program *program = builder_end(&b);
  int64_t *partners;
  assert_int_equal(mt_transfer_partners(program, NULL, &partners), MOTET_OK);
  /* rank 0: 0..5, rank 1: RECV 6, RECV 7, WAIT 8, WAIT 9, rank 2: RECV 10 */
  static const int64_t expected[] = {8, 10, 9, 10, 8, 9, 0, 2, 0, 2, 1};
  for (int i = 0; i < 11; i++) assert_int_equal(partners[i], expected[i]);
  free(partners);
  builder_free(&b);
}

/* The first rank of four holds four microbatches under 1F1B, a page without sizes counts them. */
static void test_memory_counts_activations(void **state) {
  (void)state;
  made_page made = {0};
  make(&made);
  const char *html = render(&made);
  json_t *document = document_of(html), *memory = json_object_get(timeline_of(document), "memory");
  assert_int_equal(json_integer_value(json_object_get(memory, "activation")), MT_PAGE_ACTIVATION);
  column begin = column_open(html, memory, "begin"), time = column_open(html, memory, "time");
  column bytes = column_open(html, memory, "bytes");
  int64_t ends[5], last = 0;
  for (int i = 0; i < 5; i++) ends[i] = read_difference(&begin);
  for (int32_t rank = 0; rank < 4; rank++) {
    int64_t most = 0;
    for (int64_t i = ends[rank]; i < ends[rank + 1]; i++) {
      read_difference(&time);
      last = read_difference(&bytes);
      if (last > most) most = last;
    }
    assert_int_equal(most, (4 - rank) * MT_PAGE_ACTIVATION);
    assert_int_equal(last, 0); /* all is given back */
  }
  column_close(&begin);
  column_close(&time);
  column_close(&bytes);
  json_decref(document);
  release(&made);
}

/* Names that would end the script, open a comment, or are no UTF-8 at all. */
static void test_names_cannot_leave_their_place(void **state) {
  (void)state;
  static const char evil[] = "</script><script>alert(1)</script><!-- \"'&\\ \xf0\x9f\x98\x80";
  made_page made = {0};
  make(&made);
  size_t elements = count_of(render(&made), "</script");
  size_t scripts = count_of(made.html.data, "<script");
  motet_program *program = &made.b.program;
  program->regions[0].name = evil;
  program->regions[0].skeleton = evil;
  program->modules[0].name = evil;
  program->schedule = evil;
  mt_page_fact fact = {evil, evil};
  mt_what_if change = {.change = evil, .makespan = 1, .before = 2};
  made.page.title = made.page.message = made.page.sides[0].title = made.page.sides[0].timelines[0].title = evil;
  made.page.facts = &fact;
  made.page.fact_count = 1;
  made.page.sides[0].what_if = &change;
  made.page.sides[0].what_if_count = 1;
  const char *html = render(&made);
  assert_int_equal(count_of(html, "</script"), elements);
  assert_int_equal(count_of(html, "<script"), scripts);
  assert_int_equal(count_of(html, "alert(1)"), count_of(html, "&#62;alert(1)") + count_of(html, "\\u003ealert(1)"));
  json_t *document = document_of(html), *side = side_of(document);
  json_t *region = json_array_get(json_object_get(side, "regions"), 0);
  assert_string_equal(json_string_value(json_object_get(region, "name")), evil);
  assert_string_equal(json_string_value(json_object_get(side, "schedule")), evil);
  assert_string_equal(json_string_value(json_object_get(document, "message")), evil);
  json_decref(document);
  program->regions[0].name = "\xff\xfe half";
  document = document_of(render(&made));
  region = json_array_get(json_object_get(side_of(document), "regions"), 0);
  assert_string_equal(json_string_value(json_object_get(region, "name")), "\xef\xbf\xbd\xef\xbf\xbd half");
  json_decref(document);
  release(&made);
}

/* Nothing is fetched when the page is looked at. */
static void test_page_stands_alone(void **state) {
  (void)state;
  made_page made = {0};
  make(&made);
  const char *html = render(&made);
  static const char *const fetching[] = {"http:", "https:", " src=", "@import", "url(", "fetch(", "XMLHttpRequest"};
  for (size_t i = 0; i < sizeof fetching / sizeof *fetching; i++)
    if (strstr(html, fetching[i]) != NULL) fail_msg("the page holds '%s'", fetching[i]);
  assert_non_null(strstr(html, "default-src 'none'"));
  assert_null(strstr(html, "{{"));
  release(&made);
}

/* Numbers at the edges of their bytes, by the definition of the form. */
static void test_columns(void **state) {
  (void)state;
  static const int64_t values[] = {0,    -1,   1,     63,        64,        -64,       -65,
                                   8191, 8192, -8192, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
  enum { COUNT = sizeof values / sizeof *values };
  mt_column made = {0};
  for (int i = 0; i < COUNT; i++) mt_column_signed(&made, values[i]);
  mt_column_unsigned(&made, UINT64_MAX);
  static const uint8_t first[] = {0, 1, 2, 126, 128, 1, 127, 129, 1};
  for (size_t i = 0; i < sizeof first; i++) assert_int_equal(made.bytes.data[i], first[i]);
  mt_text text = {0};
  mt_column_print(&made, &text);
  column read = column_inflate(text.data, text.length);
  for (int i = 0; i < COUNT; i++) assert_true(read_signed(&read) == values[i]);
  assert_true(read_unsigned(&read) == UINT64_MAX);
  column_close(&read);
  mt_text_free(&text);
  mt_column_free(&made);
  mt_column_print(&made, &text); /* nothing at all */
  read = column_inflate(text.data, text.length);
  assert_int_equal(read.count, 0);
  free(read.bytes);
  mt_text_free(&text);
  /* RFC 4648, section 10 */
  static const char *const vectors[][2] = {{"f", "Zg=="},        {"fo", "Zm8="},        {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
    mt_column_base64((const uint8_t *)vectors[i][0], strlen(vectors[i][0]), &text);
    assert_string_equal(text.data, vectors[i][1]);
    mt_text_free(&text);
  }
  for (int i = 0; i < 100000; i++)
    mt_column_byte(&made, (uint8_t)((int64_t)i * i >> 3)); /* beyond one block of text */
  mt_column_base64(made.bytes.data, made.bytes.count, &text);
  read = column_decode(text.data, text.length);
  assert_int_equal(read.count, 100000);
  assert_memory_equal(read.bytes, made.bytes.data, 100000);
  free(read.bytes);
  mt_text_free(&text);
  mt_column_free(&made);
}

static double makespan_after(const mt_what_if *rows, int32_t count, const char *change) {
  for (int32_t i = 0; i < count; i++)
    if (strcmp(rows[i].change, change) == 0) return rows[i].makespan;
  return NAN;
}

/* 1F1B takes (M + P - 1)(f + b); every change scales a part of that. */
static void test_what_if(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 4, 1, 4, 8);
  builder_cost_all(&b, 1.0, 2.0);
  builder_pipeline(&b, 0, 4, 1, 0, 8, false, 0);
  builder_send_waits(&b);
  motet_program *program = builder_end(&b);
  mt_what_if *rows;
  int32_t count;
  assert_int_equal(mt_what_if_make(b.arena, program, &b.costs, NULL, &rows, &count), MOTET_OK);
  assert_int_equal(count, 2); /* microbatches cost the same already, links nothing, nothing is Replicated */
  ASSERT_NEAR(rows[0].before, 33.0);
  ASSERT_NEAR(makespan_after(rows, count, "llm 20% faster"), 0.8 * 33.0);
  ASSERT_NEAR(makespan_after(rows, count, "llm 50% faster"), 0.5 * 33.0);
  ASSERT_NEAR(b.costs.seconds[MT_COST_FORWARD].values[0], 1.0); /* the table given is left alone */

  /* One microbatch four times as long: equal ones of the same sum take (8 + 3) times 3 * 11/8. */
  for (int32_t stage = 0; stage < 4; stage++) {
    b.costs.seconds[MT_COST_FORWARD].values[stage * 8 + 3] = 4.0;
    b.costs.seconds[MT_COST_BACKWARD].values[stage * 8 + 3] = 8.0;
  }
  assert_int_equal(mt_what_if_make(b.arena, program, &b.costs, NULL, &rows, &count), MOTET_OK);
  ASSERT_NEAR(makespan_after(rows, count, "microbatches of equal cost"), 11 * 3 * 11.0 / 8);

  b.costs.links.local = (mt_link){0.25, 0};
  assert_int_equal(mt_what_if_make(b.arena, program, &b.costs, NULL, &rows, &count), MOTET_OK);
  assert_true(makespan_after(rows, count, "links twice as fast") < rows[0].before);
  assert_true(makespan_after(rows, count, "transfers that cost nothing") <
              makespan_after(rows, count, "links twice as fast"));
  builder_free(&b);
}

/* Half a model in one region, half in another: the slower half decides. */
static void test_what_if_by_region(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 1, 1, 2, 4);
  builder_cost_all(&b, 1.0, 2.0);
  b.program.stages[0].region = 1;
  for (int32_t m = 0; m < 4; m++)
    for (int32_t stage = 0; stage < 2; stage++) builder_compute(&b, 0, MOTET_FWD, stage, m);
  motet_program *program = builder_end(&b);
  mt_what_if *rows;
  int32_t count;
  assert_int_equal(mt_what_if_make(b.arena, program, &b.costs, NULL, &rows, &count), MOTET_OK);
  assert_int_equal(count, 4);
  ASSERT_NEAR(makespan_after(rows, count, "vision 20% faster"), 4 * 1.8);
  ASSERT_NEAR(makespan_after(rows, count, "llm 50% faster"), 4 * 1.5);
  builder_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_instructions_come_back),
      cmocka_unit_test(test_ends_of_transfers_meet),
      cmocka_unit_test(test_repeated_transfers_meet_in_order),
      cmocka_unit_test(test_memory_counts_activations),
      cmocka_unit_test(test_names_cannot_leave_their_place),
      cmocka_unit_test(test_page_stands_alone),
      cmocka_unit_test(test_columns),
      cmocka_unit_test(test_what_if),
      cmocka_unit_test(test_what_if_by_region),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "../sim_builder.h"
#include "report/chakra_trace.h"
#include "report/hta_trace.h"
#include "report/transfers.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* Two replicas of two ranks, one microbatch after the other, with an all-reduce and the step's end. */
static void build(builder *b, mt_chrome_trace *trace) {
  builder_begin(b, 4, 2, 2, 8);
  builder_cost_all(b, 1.0, 2.0);
  b->costs.links.local = (mt_link){0.25, 1e6};
  for (int32_t replica = 0; replica < 2; replica++)
    builder_pipeline(b, 2 * replica, 2, 1, 4 * replica, 4, false, 500000);
  builder_send_waits(b);
  builder_collective(b, MOTET_ALL_REDUCE, 0, 0, builder_buffer(b, MOTET_BUFFER_WEIGHT_GRADIENT, 0, -1, -1, 4000));
  builder_collective(b, MOTET_STEP_END, 0, -1, -1);
  motet_program *p = builder_end(b);
  mt_simulation *s = builder_simulate(b, p);
  assert_non_null(s);
  *trace = (mt_chrome_trace){.program = p, .start = s->start, .finish = s->finish, .idle_cause = s->idle_cause};
}

/* By rank: compute on one stream adds up to the busy time, communication on the other to transfers and collectives.
 */
static void test_hta_streams(void **state) {
  (void)state;
  builder b;
  mt_chrome_trace trace;
  build(&b, &trace);
  int64_t *partners;
  assert_int_equal(mt_transfer_partners(trace.program, NULL, &partners), MOTET_OK);
  for (int32_t rank = 0; rank < 4; rank++) {
    mt_text text = {0};
    assert_int_equal(mt_report_hta_trace(&trace, rank, partners, NULL, &text), MOTET_OK);
    char named[32];
    snprintf(named, sizeof named, "\"rank\": %d,", rank);
    assert_non_null(strstr(text.data, named)); /* as the reader's pattern wants it */
    json_t *document = json_loads(text.data, JSON_REJECT_DUPLICATES, NULL), *event;
    assert_non_null(document);
    double compute = 0, transfers = 0, collectives = 0;
    int64_t kernels = 0, launches = 0;
    size_t index;
    json_array_foreach(json_object_get(document, "traceEvents"), index, event) {
      const char *cat = json_string_value(json_object_get(event, "cat"));
      const char *name = json_string_value(json_object_get(event, "name"));
      double seconds = json_number_value(json_object_get(event, "dur")) * 1e-6;
      json_t *arguments = json_object_get(event, "args");
      if (strcmp(cat, "user_annotation") == 0)
        ASSERT_CLOSE(seconds, trace.finish[trace.program->rank_begin[4] - 1], 1e-6);
      if (strcmp(cat, "cuda_runtime") == 0) launches++;
      if (strcmp(cat, "kernel") != 0) continue;
      kernels++;
      assert_int_equal(json_integer_value(json_object_get(arguments, "correlation")), launches);
      if (strncmp(name, "ncclDevKernel_SendRecv", 22) == 0)
        transfers += seconds;
      else if (strncmp(name, "ncclDevKernel_AllReduce", 23) == 0)
        collectives += seconds;
      else
        compute += seconds;
    }
    assert_int_equal(kernels, launches);
    ASSERT_CLOSE(compute, 4 * (1.0 + 2.0), 1e-6);
    double waited = 0, reduced = 0; /* a transfer takes 0.25 + 0.5; what of it the rank stands in */
    for (int64_t i = trace.program->rank_begin[rank]; i < trace.program->rank_begin[rank + 1]; i++) {
      const motet_instruction *at = &trace.program->instructions[i];
      double seconds = trace.finish[i] - trace.start[i];
      if (at->kind == MOTET_WAIT && at->flags & MOTET_FLAG_RECV) waited += seconds < 0.75 ? seconds : 0.75;
      if (at->kind == MOTET_ALL_REDUCE) reduced += seconds;
    }
    ASSERT_CLOSE(transfers, waited, 1e-5);
    ASSERT_CLOSE(collectives, reduced, 1e-5);
    json_decref(document);
    mt_text_free(&text);
  }
  free(partners);
  builder_free(&b);
}

/* --- a reader of protobuf's wire form ------------------------------------------------------------------------- */

typedef struct reader {
  const uint8_t *at, *end;
} reader;

static uint64_t varint(reader *r) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    assert_true(r->at < r->end && shift < 64);
    value |= (uint64_t)(*r->at & 127) << shift;
    if (*r->at++ < 128) return value;
  }
}

static reader inner(reader *r) {
  uint64_t size = varint(r);
  assert_true(size <= (uint64_t)(r->end - r->at));
  reader part = {r->at, r->at + size};
  r->at += size;
  return part;
}

typedef struct node {
  uint64_t id, type, duration, dependencies[64];
  int dependency_count;
  int64_t source, destination, tag, bytes, collective;
  char name[128], group[16];
} node;

static void read_attribute(reader r, node *n) {
  char name[32] = "";
  int64_t value = -1;
  while (r.at < r.end) {
    uint64_t key = varint(&r);
    if ((key & 7) == 0) {
      value = (int64_t)varint(&r);
      continue;
    }
    assert_int_equal(key & 7, 2);
    reader text = inner(&r);
    char *to = key >> 3 == 1 ? name : n->group;
    snprintf(to, 16, "%.*s", (int)(text.end - text.at), (const char *)text.at);
  }
  if (strcmp(name, "comm_src") == 0) n->source = value;
  if (strcmp(name, "comm_dst") == 0) n->destination = value;
  if (strcmp(name, "comm_tag") == 0) n->tag = value;
  if (strcmp(name, "comm_size") == 0) n->bytes = value;
  if (strcmp(name, "comm_type") == 0) n->collective = value;
}

static node read_node(reader r) {
  node n = {.source = -1, .destination = -1, .tag = -1, .bytes = -1, .collective = -1};
  while (r.at < r.end) {
    uint64_t key = varint(&r);
    switch (key) {
    case 1 << 3: n.id = varint(&r); break;
    case 3 << 3: n.type = varint(&r); break;
    case 6 << 3: varint(&r); break;
    case 7 << 3: n.duration = varint(&r); break;
    case 2 << 3 | 2: {
      reader text = inner(&r);
      snprintf(n.name, sizeof n.name, "%.*s", (int)(text.end - text.at), (const char *)text.at);
      break;
    }
    case 5 << 3 | 2: {
      reader list = inner(&r);
      while (list.at < list.end && n.dependency_count < 64) n.dependencies[n.dependency_count++] = varint(&list);
      break;
    }
    case 10 << 3 | 2: read_attribute(inner(&r), &n); break;
    default: fail_msg("a field with key %d", (int)key);
    }
  }
  return n;
}

static bool depends(const node *n, uint64_t on) {
  for (int i = 0; i < n->dependency_count; i++)
    if (n->dependencies[i] == on) return true;
  return false;
}

/* Every instruction but WAIT is a node, in the list's order, behind what it needs. */
static void test_chakra_nodes(void **state) {
  (void)state;
  static const uint64_t types[MOTET_INSTRUCTION_KINDS] = {
      [MOTET_FWD] = 4,  [MOTET_BWD] = 4,        [MOTET_SEND] = 5,
      [MOTET_RECV] = 6, [MOTET_ALL_REDUCE] = 7, [MOTET_STEP_END] = 7};
  builder b;
  mt_chrome_trace trace;
  build(&b, &trace);
  for (int32_t rank = 0; rank < 4; rank++) {
    mt_column bytes = {0};
    assert_int_equal(mt_report_chakra_trace(&trace, rank, NULL, &bytes), MOTET_OK);
    reader file = {bytes.bytes.data, bytes.bytes.data + bytes.bytes.count};
    reader metadata = inner(&file);
    assert_int_equal(varint(&metadata), 1 << 3 | 2);
    uint64_t last = 0, waited = 0, receive_of[64] = {0};
    int64_t begin = trace.program->rank_begin[rank];
    for (int64_t i = begin; i < trace.program->rank_begin[rank + 1]; i++) {
      const motet_instruction *at = &trace.program->instructions[i];
      if (at->kind == MOTET_WAIT) {
        if (at->flags & MOTET_FLAG_RECV) waited = receive_of[at->buffer];
        continue;
      }
      node n = read_node(inner(&file));
      assert_int_equal(n.id, i - begin + 1);
      assert_int_equal(n.type, types[at->kind]);
      for (int k = 0; k < n.dependency_count; k++) assert_true(n.dependencies[k] < n.id);
      if (last > 0) assert_true(depends(&n, last));
      if (n.type == 4) {
        assert_int_equal(n.duration, at->kind == MOTET_FWD ? 1000000 : 2000000);
        if (waited > 0) assert_true(depends(&n, waited)); /* the data that it reads */
        waited = 0;
      }
      if (n.type == 4 || n.type == 7) last = n.id;
      if (at->kind == MOTET_RECV) receive_of[at->buffer] = n.id;
      if (at->kind == MOTET_SEND || at->kind == MOTET_RECV) {
        assert_int_equal(n.source, at->kind == MOTET_SEND ? rank : at->peer);
        assert_int_equal(n.destination, at->kind == MOTET_SEND ? at->peer : rank);
        assert_int_equal(n.tag, at->buffer);
        assert_int_equal(n.bytes, 500000);
      }
      if (at->kind == MOTET_ALL_REDUCE) {
        assert_int_equal(n.collective, 0);
        assert_int_equal(n.bytes, 4000);
        assert_string_equal(n.group, "0");
      }
      if (at->kind == MOTET_STEP_END) assert_int_equal(n.collective, 9);
      if (at->kind == MOTET_FWD) assert_non_null(strstr(n.name, "FWD of llm."));
    }
    assert_ptr_equal(file.at, file.end);
    mt_column_free(&bytes);
  }
  builder_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hta_streams),
      cmocka_unit_test(test_chakra_nodes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

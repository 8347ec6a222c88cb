/* Program JSON, in and out, and the digest. */
#include "../program_fixture.h"

#include "base/text.h"
#include "program/columns.h"
#include "program/json.h"
#include "program/times.h"

#include <math.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static char *program_text(const motet_program *program) {
  char path[] = "/tmp/motet-test-XXXXXX", *data;
  size_t bytes;
  motet_error error;
  close(mkstemp(path));
  if (motet_program_write(program, path, &error) != MOTET_OK) fail_msg("%s", error.text);
  assert_int_equal(mt_file_read(path, &error, &data, &bytes), MOTET_OK);
  unlink(path);
  return data;
}

static motet_status read_text(const char *text, size_t bytes, motet_error *error, motet_program **program) {
  char path[] = "/tmp/motet-test-XXXXXX";
  close(mkstemp(path));
  assert_int_equal(mt_file_write(path, text, bytes, error), MOTET_OK);
  motet_error_clear(error);
  motet_status status = motet_program_read(path, error, program);
  if (status != MOTET_OK) {
    assert_null(*program);
    assert_string_equal(error->file, path);
  }
  unlink(path);
  return status;
}

/* A program with everything in it: replicas, transposed regions, sizes that differ by microbatch, a tie, a
 * carried output and work for the next step. */
static motet_program *full_program(mt_arena *arena) {
  static const fixture_options options = {.ranks = 3,
                                          .microbatches = 4,
                                          .chunks = 2,
                                          .encoder = true,
                                          .generator = true,
                                          .train_trunk = true,
                                          .train_generator = true};
  mt_random random = mt_random_stream(7, "json");
  mt_derivation *derivation = fixture_derive(arena, &options);
  mt_model *model = MT_ARENA_NEW(arena, mt_model, 1);
  *model = *derivation->model;
  model->tied_embeddings = true;
  derivation->model = model;
  int64_t *sizes = MT_ARENA_NEW(arena, int64_t, derivation->stage_count * 4);
  for (int32_t i = 0; i < derivation->stage_count * 4; i++) sizes[i] = 1000 + i * (i % 3 == 0);
  mt_replica replicas[2];
  for (int k = 0; k < 2; k++) {
    double *seconds;
    mt_order *order = fixture_random_order(arena, derivation, k == 1, k == 0, &random, &seconds);
    replicas[k] = (mt_replica){.derivation = derivation, .order = order};
    replicas[k].sizes.static_bytes = sizes;
    replicas[k].sizes.saved_bytes = (motet_size_table){sizes, 4, 1};
    replicas[k].sizes.output_bytes = (motet_size_table){sizes, 4, 0};
    replicas[k].sizes.weight_bytes = sizes;
    replicas[k].sizes.tied_bytes = 77;
    replicas[k].sizes.memory_cap = 123456789012;
  }
  /* The first encode of replica 0 moves to the next step; its output of this step is there already. */
  mt_order *order = (mt_order *)(uintptr_t)replicas[0].order;
  for (int64_t e = 0; e < order->begin[3]; e++) {
    if (order->events[e].stage != 0) continue;
    order->carried = MT_ARENA_NEW(arena, motet_carried, 1);
    order->carried_count = 1;
    order->carried[0] = (motet_carried){.stage = 0, .microbatch = order->events[e].microbatch, .rank = 2};
    order->events[e].next = true;
    break;
  }
  motet_error error;
  motet_program *program;
  if (mt_program_lower(replicas, 2, &error, &program) != MOTET_OK) fail_msg("%s", error.text);
  return program;
}

static void test_round_trip_keeps_the_digest(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_program *program = full_program(arena);
  assert_int_equal(program->tie_count, 1);
  assert_int_equal(program->carried_count, 1);
  motet_instruction *first = &program->instructions[0]; /* what the file says, whether or not it is right */
  while (first->kind != MOTET_BWD) first++;
  first->flags |= MOTET_FLAG_JOINED;
  char *text = program_text(program);
  assert_non_null(strstr(text, " next\""));
  assert_non_null(strstr(text, " joined\""));
  motet_error error;
  motet_program *again;
  if (read_text(text, strlen(text), &error, &again) != MOTET_OK) fail_msg("%s", error.text);
  assert_true(motet_program_digest(program) == motet_program_digest(again));
  char *second = program_text(again);
  assert_string_equal(text, second);
  int64_t instructions = program->rank_begin[program->ranks];
  assert_int_equal(again->rank_begin[again->ranks], instructions);
  assert_memory_equal(again->instructions, program->instructions, (size_t)instructions * sizeof(motet_instruction));
  free(text);
  free(second);
  motet_program_destroy(again);
  motet_program_destroy(program);
  mt_arena_destroy(arena);
}

/* Each change of one field, one at a time, changes the digest. */
static void test_digest_sees_every_field(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_program *p = full_program(arena);
  uint64_t digest = motet_program_digest(p);
#define SEES(field, change)                                                                                        \
  do {                                                                                                             \
    __typeof__(p->field) kept = p->field;                                                                          \
    p->field = (__typeof__(p->field))(change);                                                                     \
    if (motet_program_digest(p) == digest) fail_msg("the digest does not see %s", #field);                         \
    p->field = kept;                                                                                               \
    assert_true(motet_program_digest(p) == digest);                                                                \
  } while (0)
  SEES(ranks, kept - 1);
  SEES(replicas, kept + 1);
  SEES(modules[1].name, "other");
  SEES(modules[1].layer_begin, kept + 1);
  SEES(modules[1].layer_end, kept + 1);
  SEES(module_edges[0].to, kept + 1);
  SEES(layer_trainable[2], 1 - kept);
  SEES(microbatches[3].replica, kept + 1);
  SEES(microbatches[3].tokens, kept + 1);
  SEES(microbatches[3].present, kept ^ 1);
  SEES(microbatches[3].cached, kept ^ 1);
  SEES(regions[1].name, "other");
  SEES(regions[1].skeleton, "other");
  SEES(regions[1].replicated, !kept);
  SEES(stages[2].region, kept + 1);
  SEES(stages[2].slab, kept + 1);
  SEES(stages[2].layer_begin, kept + 1);
  SEES(stages[2].layer_end, kept + 1);
  SEES(stages[2].group, kept + 1);
  SEES(stages[2].inputs, kept ^ 4);
  SEES(stages[2].share, kept / 2);
  SEES(edges[1].from, kept + 1);
  SEES(ranges[0].end, kept + 1);
  SEES(group_ranks[1], kept + 1);
  SEES(ties[0].first_stage, kept + 1);
  SEES(ties[0].second_stage, kept - 1);
  SEES(ties[0].bytes, kept + 1);
  SEES(carried[0].rank, kept + 1);
  SEES(schedule, "<other>");
  SEES(buffers[5].kind, kept + 1);
  SEES(buffers[5].stage, kept + 1);
  SEES(buffers[5].edge, kept + 1);
  SEES(buffers[5].microbatch, kept + 1);
  SEES(buffers[5].range, kept + 1);
  SEES(buffers[5].bytes, kept + 1);
  SEES(static_bytes[1], kept + 1);
  SEES(saved_bytes.values[5], kept + 1);
  SEES(output_bytes.values[1], kept + 1);
  SEES(memory_cap, kept + 1);
  SEES(rank_begin[1], kept + 1);
  SEES(instructions[9].kind, kept ^ 1);
  SEES(instructions[9].flags, kept ^ 1);
  SEES(instructions[9].stage, kept + 1);
  SEES(instructions[9].microbatch, kept + 1);
  SEES(instructions[9].range, kept + 1);
  SEES(instructions[9].buffer, kept + 1);
  SEES(instructions[9].peer, kept + 1);
  motet_program_destroy(p);
  mt_arena_destroy(arena);
}

/* Two names that run together alike, and a size table in another layout. */
static void test_digest_is_of_the_content(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_program *program = full_program(arena);
  uint64_t digest = motet_program_digest(program);
  motet_size_table *sizes = &program->saved_bytes;
  int64_t stages = program->stage_count, microbatches = program->microbatch_count;
  motet_size_table turned = {MT_ARENA_NEW(arena, int64_t, stages * microbatches), 1, stages};
  for (int64_t s = 0; s < stages; s++)
    for (int64_t m = 0; m < microbatches; m++)
      turned.values[m * stages + s] = sizes->values[s * sizes->stage_stride + m * sizes->microbatch_stride];
  *sizes = turned;
  assert_true(motet_program_digest(program) == digest);
  program->regions[0].name = "ab", program->regions[0].skeleton = "c";
  digest = motet_program_digest(program);
  program->regions[0].name = "a", program->regions[0].skeleton = "bc";
  assert_true(motet_program_digest(program) != digest);
  motet_program_destroy(program);
  mt_arena_destroy(arena);
}

/* A small file, written by hand from docs/formats/program.md: one rank, one layer, one microbatch. */
static const char small[] =
    "{\"format\": \"motet-program\", \"version\": 1, \"schedule\": \"\", \"ranks\": 2, \"replicas\": 1,\n"
    "\"modules\": [{\"name\": \"llm\", \"layers\": [0, 2]}], \"module_edges\": [],\n"
    "\"trainable\": \"11\", \"microbatches\": [[0, 0, \"1\", \"0\"]],\n"
    "\"regions\": [{\"name\": \"llm\", \"skeleton\": \"1f1b\", \"replicated\": false}],\n"
    "\"stages\": [{\"region\": 0, \"slab\": 0, \"layers\": [0, 1], \"group\": 1, \"inputs\": [\"tokens\"], "
    "\"share\": 1},\n"
    " {\"region\": 0, \"slab\": 1, \"layers\": [1, 2], \"group\": 2, \"inputs\": [], \"share\": 1}],\n"
    "\"edges\": [[0, 1]], \"ranges\": [[0, -1]], \"groups\": [[0, 1], [0], [1]], \"ties\": [],\n"
    "\"carried\": [], \"memory_cap\": 0, \"static_bytes\": [5, 6], \"saved_bytes\": [7, [8]],\n"
    "\"output_bytes\": [9, 9],\n"
    "\"buffers\": [[\"ACTIVATION\", 0, 0, 0, 0, 9], [\"GRADIENT\", 0, 0, 0, 0, 9]],\n"
    "\"lists\": [[\"LOAD 0 0\", \"FWD 0 0\", \"SEND 0 1\", \"RECV 1 1\", \"WAIT 1 1 recv\", \"WAIT 0 1\", \"BWD 0 "
    "0\", \"OPTIM\", \"STEP_END 0\"],\n"
    " [\"RECV 0 0\", \"WAIT 0 0 recv\", \"FWD 1 0\", \"BWD 1 0\", \"SEND 1 0\", \"WAIT 1 0\", \"OPTIM\", "
    "\"STEP_END 0\"]]}\n";

static void test_a_file_written_by_hand(void **state) {
  (void)state;
  motet_error error;
  motet_program *program;
  if (read_text(small, strlen(small), &error, &program) != MOTET_OK) fail_msg("%s", error.text);
  assert_int_equal(program->rank_begin[2], 17);
  const motet_instruction *send = &program->instructions[2], *wait = &program->instructions[4];
  const motet_instruction expected_send = {MOTET_SEND, 0, 0, 0, 0, 0, 0, 1};
  const motet_instruction expected_wait = {MOTET_WAIT, MOTET_FLAG_RECV, 0, 0, 0, 0, 1, 1};
  assert_memory_equal(send, &expected_send, sizeof *send);
  assert_memory_equal(wait, &expected_wait, sizeof *wait);
  assert_int_equal(program->saved_bytes.values[program->saved_bytes.stage_stride], 8);
  assert_int_equal(program->stages[0].inputs, MOTET_INPUT_TOKENS);
  /* XXH3 of the canonical form, packed apart from this code: every compiler must come to it. */
  assert_true(motet_program_digest(program) == 0x785c42084ed17579u);
  mt_arena *arena = mt_arena_create();
  mt_random random = mt_random_stream(1, "hand");
  const char *wrong = fixture_run(arena, program, &random);
  if (wrong != NULL) fail_msg("%s", wrong);
  mt_arena_destroy(arena);
  motet_program_destroy(program);
}

/* `small` with its first `from` made `to`. */
static char *altered(const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  if (at == NULL) fail_msg("%s is not in the text", from);
  mt_text copy = {0};
  mt_text_bytes(&copy, text, (size_t)(at - text));
  mt_text_append(&copy, "%s%s", to, at + strlen(from));
  return copy.data;
}

static void test_errors_name_the_key(void **state) {
  (void)state;
  static const struct {
    const char *from, *to, *key, *words;
  } cases[] = {
      {"motet-program", "motet-plan", "format", "no program file"},
      {"\"version\": 1", "\"version\": 1.0", "version", "integer"},
      {"\"ranks\": 2", "\"ranks\": 3", "lists", "one list a rank"},
      {"\"ranks\": 2", "\"ranks\": -1", "lists", "one list a rank"},
      {"\"ranks\": 2", "\"ranks\": 4294967298", "ranks", "range"},
      {"\"ranks\": 2", "\"rank\": 2", "rank", "not a key"},
      {"\"replicas\": 1", "\"replicas\": 0", "replicas", "must be from 1"},
      {"\"replicas\": 1", "\"replicas\": 3", "replicas", "must be from 1 to 2"},
      {"\"name\": \"llm\", \"layers\"", "\"nam\": \"llm\", \"layers\"", "modules[0].nam", "not a key"},
      {"\"layers\": [0, 2]", "\"layers\": [0, 3]", "modules[0].layers[1]", "from 0 to 2"},
      {"\"layers\": [0, 2]", "\"layers\": [0, 1]", "modules[0].layers[1]", "from 2 to 2"},
      {"\"layers\": [0, 2]", "\"layers\": [1, 2]", "modules[0].layers[0]", "from 0 to 0"},
      {"\"module_edges\": []", "\"module_edges\": [[0, 0]]", "module_edges[0][1]", "module_edges[0][1]"},
      {"\"trainable\": \"11\"", "\"trainable\": \"1x\"", "trainable[1]", "0 or 1"},
      {"[[0, 0, \"1\", \"0\"]]", "[]", "microbatches", "at least one"},
      {"[[0, 0, \"1\", \"0\"]]", "[[1, 0, \"1\", \"0\"]]", "microbatches[0][0]", "from 0 to 0"},
      {"[[0, 0, \"1\", \"0\"]]", "[[0, 0, \"3\", \"0\"]]", "microbatches[0][2]", "beyond the last"},
      {"[[0, 0, \"1\", \"0\"]]", "[[0, 0, \"1\", \"-1\"]]", "microbatches[0]", "hexadecimal"},
      {"[[0, 0, \"1\", \"0\"]]", "[[0, 0, \"1\"]]", "microbatches[0]", "cached"},
      {"\"replicated\": false", "\"replicated\": 0", "regions[0].replicated", "true or false"},
      {"\"region\": 0", "\"region\": 1", "stages[0].region", "from 0 to 0"},
      {"\"slab\": 1", "\"slab\": -1", "stages[1].slab", "from 0"},
      {"\"layers\": [1, 2]", "\"layers\": [2, 1]", "stages[1].layers[1]", "from 2 to 2"},
      {"\"group\": 2", "\"group\": 3", "stages[1].group", "from 0 to 2"},
      {"[\"tokens\"]", "[\"tokens\", \"tokens\"]", "stages[0].inputs[1]", "at most once"},
      {"[\"tokens\"]", "[\"sound\"]", "stages[0].inputs[0]", "pixels, tokens or labels"},
      {"\"share\": 1", "\"share\": 1.5", "stages[0].share", "at most 1"},
      {"[[0, 1]], \"ranges\"", "[[1, 0]], \"ranges\"", "edges[0][1]", "edges[0][1]"},
      {"[[0, 1]], \"ranges\"", "[[0, 2]], \"ranges\"", "edges[0][1]", "from 1 to 1"},
      {"[[0, -1]]", "[[0, 5]]", "ranges[0][1]", "from -1 to -1"},
      {"[[0, -1]]", "[[0, -1], [4, 4, 0, [[0, 0]]]]", "ranges[1][1]", "from 5"},
      {"[[0, -1]]", "[[0, -1], [4, 5]]", "ranges[1]", "of each share"},
      {"[[0, -1]]", "[[0, -1], [4, 5, 0, []]]", "number of shares of ranges[1]", ""},
      {"[[0, -1]]", "[[0, -1], [4, 5, 9, [[1, 0]]]]", "ranges[1][2]", "from 0"},
      {"[[0, -1]]", "[[0, -1], [4, 5, 0, [[1, 2]]]]", "ranges[1][3][0][1]", "from 0 to 1"},
      {"[[0, 1], [0], [1]]", "[[0], [0], [1]]", "number of ranks of groups[0]", "from 2 to 2"},
      {"[[0, 1], [0], [1]]", "[[0, 1], [0], [2]]", "groups[2][0]", "from 0 to 1"},
      {"[[0, 1], [0], [1]]", "[[0, 1], [0], []]", "number of ranks of groups[2]", "from 1"},
      {"[[0, 1], [0], [1]]", "[[1, 0], [0], [1]]", "groups[0][1]", "groups[0][1]"},
      {"\"ties\": []", "\"ties\": [[0, 2, 1]]", "ties[0][1]", "from 0 to 1"},
      {"\"ties\": []", "\"ties\": [[0, 1, -1]]", "ties[0]", "range"},
      {"\"carried\": []", "\"carried\": [[0, 1, 0]]", "carried[0][1]", "from 0 to 0"},
      {"\"ties\": []", "\"ties\": [], \"times\": 1", "times", "object"},
      {"\"ties\": []", "\"ties\": [], \"times\": {\"b\": 1}", "times.b", "not a key"},
      {"\"ties\": []", "\"ties\": [], \"times\": {\"forward\": [1]}", "times.forward", "one entry a stage"},
      {"\"ties\": []", "\"ties\": [], \"times\": {\"load\": [1, [1, 2]]}", "times.load[1]",
       "one entry a microbatch"},
      {"\"ties\": []", "\"ties\": [], \"times\": {\"offload\": [1, -1]}", "times.offload[1]", ">= 0"},
      {"\"ties\": []", "\"ties\": [], \"times\": {\"backward\": [1, [\"2\"]]}", "times.backward[1]", ">= 0"},
      {"\"ties\": []", "\"ties\": [], \"times\": {\"optimizer\": [1, [1]]}", "times.optimizer[1]", "number"},
      {"\"ties\": []", "\"ties\": [], \"times\": {\"links\": [1]}", "times.links", "object"},
      {"\"ties\": []", "\"ties\": [], \"times\": {\"links\": {\"nic\": 1}}", "times.links.nic", "not a key"},
      {"\"ties\": []", "\"ties\": [], \"times\": {\"links\": {\"ranks_per_node\": -1}}",
       "times.links.ranks_per_node", "range"},
      {"\"ties\": []", "\"ties\": [], \"times\": {\"links\": {\"latency_seconds\": true}}",
       "times.links.latency_seconds", ">= 0"},
      {"\"ties\": []", "\"ties\": [], \"times\": {\"bound\": null}", "times.bound", ">= 0"},
      {"\"ties\": []", "\"ties\": [], \"times\": {\"flops\": {}}", "pieces", "list"},
      {"\"memory_cap\": 0", "\"memory_cap\": -5", "memory_cap", "range"},
      {"\"static_bytes\": [5, 6]", "\"static_bytes\": [5]", "static_bytes", "one entry a stage"},
      {"\"static_bytes\": [5, 6]", "\"static_bytes\": [5, 1e300]", "static_bytes[1]", "integer"},
      {"\"static_bytes\": [5, 6]", "\"static_bytes\": [5, 9223372036854775807]", "static_bytes[1]", "range"},
      {"[7, [8]]", "[7, [8, 8]]", "saved_bytes[1]", "one entry a microbatch"},
      {"[7, [8]]", "[7, [-8]]", "saved_bytes[1][0]", "range"},
      {"\"ACTIVATION\"", "\"activation\"", "buffers[0][0]", "no kind"},
      {"0, 0, 0, 0, 9]]", "2, 0, 0, 0, 9]]", "buffers[1][1]", "from 0 to 1"},
      {"0, 0, 0, 0, 9]]", "0, 1, 0, 0, 9]]", "buffers[1][2]", "from 0 to 0"},
      {"0, 0, 0, 0, 9]]", "0, 0, -1, 0, 9]]", "buffers[1][3]", "from 0 to 0"},
      {"0, 0, 0, 0, 9]]", "0, 0, 0, 1, 9]]", "buffers[1][4]", "from 0 to 0"},
      {"0, 0, 0, 0, 9]]", "0, 0, 0, 0]]", "buffers[1]", "must be"},
      {"\"FWD 0 0\"", "\"FWD 0 1\"", "lists[0][1]", "microbatch is 1"},
      {"\"FWD 0 0\"", "\"FWD 2 0\"", "lists[0][1]", "stage is 2"},
      {"\"FWD 0 0\"", "\"FWD 0\"", "lists[0][1]", "its numbers"},
      {"\"FWD 0 0\"", "\"FWD 0  0\"", "lists[0][1]", "its numbers"},
      {"\"FWD 0 0\"", "\"FWD 0 0 \"", "lists[0][1]", "single spaces"},
      {"\"FWD 0 0\"", "\"FWD 0 99999999999\"", "lists[0][1]", "its numbers"},
      {"\"FWD 0 0\"", "\"FWD 0 0 recv\"", "lists[0][1]", "flags"},
      {"\"FWD 0 0\"", "\"FWD 0 0 range=1\"", "lists[0][1]", "range is 1"},
      {"\"FWD 0 0\"", "\"FWD 0 0 rank=1\"", "lists[0][1]", "name before ="},
      {"\"FWD 0 0\"", "\"fwd 0 0\"", "lists[0][1]", "no instruction kind"},
      {"\"FWD 0 0\"", "\"\"", "lists[0][1]", "no instruction kind"},
      {"\"FWD 0 0\"", "7", "lists[0][1]", "a text"},
      {"\"SEND 0 1\"", "\"SEND 2 1\"", "lists[0][2]", "buffer table"},
      {"\"SEND 0 1\"", "\"SEND 0 2\"", "lists[0][2]", "peer is 2"},
      {"\"SEND 0 1\"", "\"ALL_REDUCE 0 0\"", "lists[0][2]", "kind of buffers[0]"},
      {"\"STEP_END 0\"", "\"STEP_END 3\"", "lists[0][8]", "peer is 3"},
      {"\"OPTIM\"", "\"OPTIM stage=0\"", "lists[0][7]", "stage is 0"},
      {"\"schedule\": \"\"", "\"schedule\": 3", "schedule", "text"},
      {"\"schedule\": \"\"", "\"schedule\": \"\", \"digest\": \"0123456789abcdef\"", "digest",
       "take the digest key out"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char *text = altered(small, cases[i].from, cases[i].to);
    motet_error error;
    motet_program *program;
    motet_status status = read_text(text, strlen(text), &error, &program);
    if (status != MOTET_ERROR_PARSE || strcmp(error.key, cases[i].key) != 0 ||
        strstr(error.text, cases[i].words) == NULL)
      fail_msg("%s -> %s: status %d, key \"%s\": %s", cases[i].from, cases[i].to, status, error.key, error.text);
    free(text);
  }
}

/* A file's times: every kind, alike and by microbatch, links, bound and operations, read back to the last digit. */
static void test_times_read_back(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_program *program = full_program(arena), *again;
  int32_t columns = mt_column_count(program), stages = program->stage_count;
  mt_random random = mt_random_stream(3, "times");
  double *values = MT_ARENA_NEW(arena, double, stages *columns), *ones = MT_ARENA_NEW(arena, double, columns);
  for (int32_t i = 0; i < stages * columns; i++) values[i] = i % 3 == 0 ? 0.1 : mt_random_unit(&random);
  for (int32_t m = 0; m < columns; m++) ones[m] = 1.0 / 3 + m;
  mt_flops_piece piece = {.stage = 1, .module = 0, .parts = {ones, ones, ones}};
  const mt_flops flops = {.peak = 1e12 / 3, .piece_count = 1, .microbatch_count = columns, .pieces = &piece};
  mt_program_times times = {.known = true, .bound = 2.0 / 7, .flops = &flops}, read;
  times.costs.links = (mt_links){4, {1e-5, 1e9 / 3}, {2e-5, 1e8}, true};
  for (int kind = 0; kind < MT_COST_KINDS; kind++)
    if (kind != MT_COST_RECOMPUTE) times.costs.seconds[kind] = (mt_cost_values){values, columns, kind % 2};
  times.costs.optimizer_seconds = values;
  mt_text text = {0};
  motet_error error;
  assert_int_equal(mt_program_print(program, &times, &error, &text), MOTET_OK);
  if (mt_program_parse(text.data, text.length, "times", &error, &again, &read) != MOTET_OK)
    fail_msg("%s", error.text);
  assert_true(motet_program_digest(again) == motet_program_digest(program));
  assert_true(read.known && read.bound == times.bound);
  for (int kind = 0; kind < MT_COST_KINDS; kind++)
    for (int32_t s = 0; s < stages; s++)
      for (int32_t m = 0; m < columns; m++)
        assert_true(mt_cost_seconds(&read.costs, (mt_cost_kind)kind, s, m) ==
                    mt_cost_seconds(&times.costs, (mt_cost_kind)kind, s, m));
  assert_memory_equal(read.costs.optimizer_seconds, values, (size_t)stages * sizeof(double));
  assert_int_equal(read.costs.links.ranks_per_node, 4);
  assert_true(read.costs.links.local.latency_seconds == 1e-5 && read.costs.links.remote.bytes_per_second == 1e8);
  assert_true(read.costs.links.local.bytes_per_second == 1e9 / 3 && read.costs.links.shared_nic);
  assert_true(read.flops->peak == flops.peak && read.flops->piece_count == 1 && read.flops->pieces[0].stage == 1);
  assert_memory_equal(read.flops->pieces[0].parts[2], ones, (size_t)columns * sizeof(double));
  motet_program_destroy(again);
  /* Without them the file is what it was before there were any. */
  char *plain = program_text(program);
  assert_int_equal(mt_program_parse(plain, strlen(plain), "plain", &error, &again, &read), MOTET_OK);
  assert_false(read.known);
  assert_null(strstr(plain, "times"));
  free(plain);
  motet_program_destroy(again);
  mt_text_free(&text);
  motet_program_destroy(program);
  mt_arena_destroy(arena);
}

static void test_malformed_json_names_the_line(void **state) {
  (void)state;
  motet_error error;
  motet_program *program;
  char *text = altered(small, "\"edges\"", "\"edges\" 5");
  assert_int_equal(read_text(text, strlen(text), &error, &program), MOTET_ERROR_PARSE);
  assert_int_equal(error.line, 7);
  free(text);
  text = altered(small, "\"ranks\": 2", "\"ranks\": 2, \"ranks\": 2");
  assert_int_equal(read_text(text, strlen(text), &error, &program), MOTET_ERROR_PARSE);
  assert_non_null(strstr(error.text, "duplicate"));
  assert_int_equal(error.line, 1);
  free(text);
  enum { DEEP = 100000 };
  text = malloc(DEEP + 1);
  memset(text, '[', DEEP);
  assert_int_equal(read_text(text, DEEP, &error, &program), MOTET_ERROR_PARSE);
  free(text);
  assert_int_equal(read_text("[]", 2, &error, &program), MOTET_ERROR_PARSE);
  assert_int_equal(read_text("", 0, &error, &program), MOTET_ERROR_PARSE);
  text = altered(small, "\"version\": 1", "\"version\": 2");
  assert_int_equal(read_text(text, strlen(text), &error, &program), MOTET_ERROR_UNSUPPORTED);
  free(text);
}

static void test_an_edited_file_is_noticed(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_program *program = full_program(arena), *again;
  motet_error error;
  char *text = program_text(program);
  char *edited = altered(text, "\"memory_cap\": 123456789012", "\"memory_cap\": 123456789013");
  assert_int_equal(read_text(edited, strlen(edited), &error, &again), MOTET_ERROR_PARSE);
  assert_string_equal(error.key, "digest");
  char *begin = strstr(edited, "\"digest\""), *end = strchr(begin, '\n');
  memmove(begin, end, strlen(end) + 1);
  assert_int_equal(read_text(edited, strlen(edited), &error, &again), MOTET_OK);
  motet_program_destroy(again);
  free(edited);
  free(text);
  motet_program_destroy(program);
  mt_arena_destroy(arena);
}

static void test_names_are_escaped(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_program *program = full_program(arena), *again;
  motet_error error;
  program->modules[0].name = "a \"quoted\"\n\\ n\xc3\xa4me";
  char *text = program_text(program);
  assert_int_equal(read_text(text, strlen(text), &error, &again), MOTET_OK);
  assert_string_equal(again->modules[0].name, program->modules[0].name);
  program->modules[0].name = "\xff";
  assert_int_equal(motet_program_write(program, "/tmp/motet-not-written", &error), MOTET_ERROR_ARGUMENT);
  program->modules[0].name = "a";
  program->instructions[0].peer = 100;
  assert_int_equal(motet_program_write(program, "/tmp/motet-not-written", &error), MOTET_ERROR_PARSE);
  assert_string_equal(error.key, "lists[0][0]");
  assert_int_equal(access("/tmp/motet-not-written", F_OK), -1);
  free(text);
  motet_program_destroy(again);
  motet_program_destroy(program);
  mt_arena_destroy(arena);
}

/* Any lowered program, and fields that differ from what an instruction's buffer implies. */
static void test_random_programs_return(void **state) {
  (void)state;
  mt_random random = mt_random_stream(11, "json");
  for (int round = 0; round < 60; round++) {
    mt_arena *arena = mt_arena_create();
    fixture_options options = {.ranks = 1 + (int32_t)mt_random_below(&random, 4),
                               .microbatches = 1 + (int32_t)mt_random_below(&random, 4),
                               .chunks = 1 + (int32_t)mt_random_below(&random, 2),
                               .encoder = mt_random_below(&random, 2),
                               .train_trunk = true};
    mt_derivation *derivation = fixture_derive(arena, &options);
    double *seconds;
    mt_order *order = fixture_random_order(arena, derivation, round % 2, true, &random, &seconds);
    mt_replica replica = {.derivation = derivation, .order = order};
    motet_error error;
    motet_program *program, *again;
    assert_int_equal(mt_program_lower(&replica, 1, &error, &program), MOTET_OK);
    for (int64_t i = 0; i < program->rank_begin[program->ranks]; i++)
      if (program->instructions[i].kind == MOTET_SEND && mt_random_below(&random, 2))
        program->instructions[i].stage = -1;
    char *text = program_text(program);
    if (read_text(text, strlen(text), &error, &again) != MOTET_OK) fail_msg("round %d: %s", round, error.text);
    assert_true(motet_program_digest(program) == motet_program_digest(again));
    free(text);
    motet_program_destroy(again);
    motet_program_destroy(program);
    mt_arena_destroy(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip_keeps_the_digest),
      cmocka_unit_test(test_digest_sees_every_field),
      cmocka_unit_test(test_digest_is_of_the_content),
      cmocka_unit_test(test_a_file_written_by_hand),
      cmocka_unit_test(test_errors_name_the_key),
      cmocka_unit_test(test_malformed_json_names_the_line),
      cmocka_unit_test(test_times_read_back),
      cmocka_unit_test(test_an_edited_file_is_noticed),
      cmocka_unit_test(test_names_are_escaped),
      cmocka_unit_test(test_random_programs_return),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* PyTorch pipelining CSV, in and out. */
#include "../program_fixture.h"

#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const published[] = {"1f1b", "1f1bv", "vpp2", "vpp4", "zb1p", "zb2p", "zbv", "vhalf", "vmin"};
enum { PUBLISHED = sizeof published / sizeof published[0] };

static motet_program *read_file(const char *name, motet_placement placement) {
  char path[512];
  snprintf(path, sizeof path, "%s/schedules/%s", MOTET_TEST_DATA, name);
  motet_error error;
  motet_program *program;
  if (motet_program_read_pytorch_csv(path, placement, &error, &program) != MOTET_OK) fail_msg("%s", error.text);
  return program;
}

/* Reads a text; returns the status. */
static motet_status read_text(const char *text, size_t bytes, motet_placement placement, motet_error *error,
                              motet_program **program) {
  char path[] = "/tmp/motet-test-XXXXXX";
  close(mkstemp(path));
  assert_int_equal(mt_file_write(path, text, bytes, error), MOTET_OK);
  motet_error_clear(error);
  motet_status status = motet_program_read_pytorch_csv(path, placement, error, program);
  if (status != MOTET_OK) {
    assert_null(*program);
    assert_string_equal(error->file, path);
  }
  unlink(path);
  return status;
}

static motet_program *good_text(const char *text) {
  motet_error error;
  motet_program *program;
  if (read_text(text, strlen(text), MOTET_PLACEMENT_AUTO, &error, &program) != MOTET_OK)
    fail_msg("%s: %s", text, error.text);
  return program;
}

static char *write_text(const motet_program *program, bool communication) {
  char path[] = "/tmp/motet-test-XXXXXX", *data;
  size_t bytes;
  motet_error error;
  close(mkstemp(path));
  if (motet_program_write_pytorch_csv(program, communication, path, &error) != MOTET_OK) fail_msg("%s", error.text);
  assert_int_equal(mt_file_read(path, &error, &data, &bytes), MOTET_OK);
  unlink(path);
  return data;
}

static char *list_text(mt_arena *arena, const motet_program *program, int32_t rank) {
  char *text = mt_arena_text(arena, "");
  for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
    const motet_instruction *at = &program->instructions[i];
    const char *wait = at->kind != MOTET_WAIT ? "" : at->flags & MOTET_FLAG_RECV ? " recv" : " send";
    const char *what = "";
    if (at->kind >= MOTET_SEND && at->kind <= MOTET_WAIT)
      what = program->buffers[at->buffer].kind == MOTET_BUFFER_GRADIENT ? " gradient" : " activation";
    text = mt_arena_format(arena, "%s%s%s%s %d.%d\n", text, motet_instruction_name(at->kind), wait, what, at->stage,
                           at->microbatch);
  }
  return text;
}

static void test_published_orders_return_byte_for_byte(void **state) {
  (void)state;
  for (int i = 0; i < PUBLISHED; i++) {
    char name[64], path[512], *data;
    snprintf(name, sizeof name, "%s_p4_m8.csv", published[i]);
    snprintf(path, sizeof path, "%s/schedules/%s", MOTET_TEST_DATA, name);
    size_t bytes;
    motet_error error;
    assert_int_equal(mt_file_read(path, &error, &data, &bytes), MOTET_OK);
    motet_program *program = read_file(name, MOTET_PLACEMENT_AUTO);
    assert_int_equal(program->ranks, 4);
    assert_int_equal(program->microbatch_count, 8);
    char *written = write_text(program, false);
    assert_string_equal(written, data);
    free(written);
    free(data);
    motet_program_destroy(program);
  }
}

static void test_published_orders_run(void **state) {
  (void)state;
  mt_random random = mt_random_stream(1, "published");
  const char *const more[] = {"zb1p_2rank_2stagep_compute.csv", "zb1p_2rank_2stagep_comms.csv"};
  for (int i = 0; i < PUBLISHED + 2; i++) {
    mt_arena *arena = mt_arena_create();
    char name[64];
    snprintf(name, sizeof name, "%s_p4_m8.csv", i < PUBLISHED ? published[i] : "");
    motet_program *program = read_file(i < PUBLISHED ? name : more[i - PUBLISHED], MOTET_PLACEMENT_AUTO);
    const char *wrong = fixture_run(arena, program, &random);
    if (wrong != NULL) fail_msg("%s: %s", name, wrong);
    const motet_verify_options options = {0};
    motet_error error = {0};
    if (motet_verify(program, &options, &error, NULL) != MOTET_OK) fail_msg("%s: %s", name, error.text);
    motet_program_destroy(program);
    mt_arena_destroy(arena);
  }
}

static void test_mixed_backward_kinds_are_kept(void **state) {
  (void)state;
  /* Full backwards on rank 0, split ones on rank 1: counted in the file by eye (8 microbatches, 2 stages a rank).
   */
  motet_program *program = read_file("zb1p_2rank_2stagep_comms.csv", MOTET_PLACEMENT_LOOP);
  int32_t counts[2][MOTET_INSTRUCTION_KINDS] = {{0}};
  assert_int_equal(program->ranks, 2);
  assert_int_equal(program->stage_count, 4);
  for (int32_t rank = 0; rank < 2; rank++)
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++)
      counts[rank][program->instructions[i].kind]++;
  assert_int_equal(counts[0][MOTET_BWD], 16);
  assert_int_equal(counts[0][MOTET_BWD_X] + counts[0][MOTET_BWD_W], 0);
  assert_int_equal(counts[1][MOTET_BWD], 0);
  assert_int_equal(counts[1][MOTET_BWD_X], 16);
  assert_int_equal(counts[1][MOTET_BWD_W], 16);
  for (int32_t rank = 0; rank < 2; rank++) {
    assert_int_equal(counts[rank][MOTET_FWD], 16);
    assert_int_equal(counts[rank][MOTET_SEND], 24);
    assert_int_equal(counts[rank][MOTET_RECV], 24);
    assert_int_equal(counts[rank][MOTET_WAIT], 48);
    assert_int_equal(counts[rank][MOTET_OPTIM], 1);
    assert_int_equal(counts[rank][MOTET_STEP_END], 1);
  }
  motet_program_destroy(program);
}

static void test_compute_only_gets_its_transfers(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_program *program = good_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  assert_string_equal(list_text(arena, program, 0),
                      "FWD 0.0\nSEND activation 0.0\n"
                      "FWD 0.1\nSEND activation 0.1\n"
                      "RECV gradient 0.0\nWAIT recv gradient 0.0\nWAIT send activation 0.0\nBWD 0.0\n"
                      "RECV gradient 0.1\nWAIT recv gradient 0.1\nWAIT send activation 0.1\nBWD 0.1\n"
                      "OPTIM -1.-1\nSTEP_END -1.-1\n");
  assert_string_equal(list_text(arena, program, 1), "RECV activation 0.0\nWAIT recv activation 0.0\nFWD 1.0\n"
                                                    "BWD 1.0\nSEND gradient 0.0\n"
                                                    "RECV activation 0.1\nWAIT recv activation 0.1\nFWD 1.1\n"
                                                    "BWD 1.1\nSEND gradient 0.1\n"
                                                    "WAIT send gradient 0.0\nWAIT send gradient 0.1\n"
                                                    "OPTIM -1.-1\nSTEP_END -1.-1\n");
  motet_program_destroy(program);
  mt_arena_destroy(arena);
}

static void test_explicit_order_is_kept(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_program *program = good_text("0F0,0SEND_F0,0RECV_B0,0F1,0WAIT_SEND_F0,0SEND_F1,0I0,0RECV_B1,0B1,0W0\n"
                                     "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1");
  assert_string_equal(list_text(arena, program, 0),
                      "FWD 0.0\nSEND activation 0.0\nRECV gradient 0.0\nFWD 0.1\nWAIT send activation 0.0\n"
                      "SEND activation 0.1\nWAIT recv gradient 0.0\nBWD_X 0.0\nRECV gradient 0.1\n"
                      "WAIT recv gradient 0.1\nBWD 0.1\nBWD_W 0.0\nWAIT send activation 0.1\n"
                      "OPTIM -1.-1\nSTEP_END -1.-1\n");
  assert_string_equal(list_text(arena, program, 1),
                      "RECV activation 0.0\nRECV activation 0.1\nWAIT recv activation 0.0\nFWD 1.0\nBWD 1.0\n"
                      "SEND gradient 0.0\nWAIT recv activation 0.1\nFWD 1.1\nBWD 1.1\nSEND gradient 0.1\n"
                      "WAIT send gradient 0.0\nWAIT send gradient 0.1\nOPTIM -1.-1\nSTEP_END -1.-1\n");
  char *written = write_text(program, true);
  assert_string_equal(written,
                      "0F0,0SEND_F0,0RECV_B0,0F1,0WAIT_SEND_F0,0SEND_F1,0I0,0RECV_B1,0B1,0W0,0WAIT_SEND_F1\r\n"
                      "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\r\n");
  free(written);
  motet_program_destroy(program);
  mt_arena_destroy(arena);
}

static void test_statement_of_an_imported_order(void **state) {
  (void)state;
  motet_program *program = read_file("zbv_p4_m8.csv", MOTET_PLACEMENT_V);
  assert_int_equal(program->module_count, 1);
  assert_string_equal(program->modules[0].name, "model");
  assert_int_equal(program->layer_count, 8);
  assert_int_equal(program->stage_count, 8);
  assert_int_equal(program->edge_count, 7);
  assert_int_equal(program->replicas, 1);
  for (int32_t s = 0; s < 8; s++) {
    const motet_program_stage *stage = &program->stages[s];
    assert_int_equal(program->layer_trainable[s], 1);
    assert_int_equal(stage->layer_begin, s);
    assert_int_equal(stage->layer_end, s + 1);
    assert_true(stage->share == 0.5);
    assert_int_equal(program->groups[stage->group].count, 1);
    assert_int_equal(program->group_ranks[program->groups[stage->group].first], s < 4 ? s : 7 - s);
  }
  motet_program_destroy(program);
  program = good_text("0F0,0F1\n1F0,1F1\n"); /* no backward anywhere: nothing is trained */
  assert_int_equal(program->layer_trainable[0] + program->layer_trainable[1], 0);
  motet_program_destroy(program);
}

static void test_forms_of_writing(void **state) {
  (void)state;
  static const char byte_order_mark[] = "\xef\xbb\xbf"
                                        "0F0, 0F1 ,,\"0I0\",0W0 , \"0B1\"\n ,1F0,1B0,\t1F1,\"\",1B1,,\n\n \n";
  const char *const same[] = {
      "0F0,0F1,0I0,0W0,0B1\r\n1F0,1B0,1F1,1B1\r\n",
      "0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1B1",
      byte_order_mark,
      "0FORWARD0,0FORWARD1,0BACKWARD_INPUT0,0BACKWARD_WEIGHT0,0FULL_BACKWARD1\n1F0,1FULL_BACKWARD0,1F1,1B1\n",
      "0UNSHARD,0F0,0F1,0I0,0W0,0B1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD\n1F0,(1B0;1F1)OVERLAP_F_B,1B1\n",
  };
  for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
    motet_program *program = good_text(same[i]);
    char *written = write_text(program, false);
    assert_string_equal(written, same[0]);
    free(written);
    motet_program_destroy(program);
  }
  motet_program *program = good_text("\n0F0,0B0\n"); /* a rank without work is a rank */
  assert_int_equal(program->ranks, 2);
  assert_int_equal(program->rank_begin[1], 1); /* it holds nothing to optimize, but ends its step */
  motet_program_destroy(program);
}

static void test_errors_name_line_and_cell(void **state) {
  (void)state;
  static const struct {
    const char *text;
    motet_status status;
    int line;
    const char *key, *words;
  } cases[] = {
      {"0F0,0X0\n", MOTET_ERROR_PARSE, 1, "cell 2", "names no action"},
      {"0F0\n1F0,,F1\n", MOTET_ERROR_PARSE, 2, "cell 3", "does not begin with a stage"},
      {"0F0\r\n1F\r\n", MOTET_ERROR_PARSE, 2, "cell 1", "no microbatch"},
      {"0F0x", MOTET_ERROR_PARSE, 1, "cell 1", "goes on"},
      {"0F99999999999", MOTET_ERROR_PARSE, 1, "cell 1", "no microbatch"},
      {"0f0", MOTET_ERROR_PARSE, 1, "cell 1", "names no action"},
      {"0F-1", MOTET_ERROR_PARSE, 1, "cell 1", "no microbatch"},
      {"\"0F0", MOTET_ERROR_PARSE, 1, "cell 1", "does not end"},
      {"\"0F0\"1,0F1", MOTET_ERROR_PARSE, 1, "cell 1", "closing quote"},
      {"(0F0;0B0", MOTET_ERROR_PARSE, 1, "cell 1", "closing bracket"},
      {"(0F0;0B0)F", MOTET_ERROR_PARSE, 1, "cell 1", "OVERLAP_F_B"},
      {"0OVERLAP_F_B", MOTET_ERROR_PARSE, 1, "cell 1", "names no action"},
      {"", MOTET_ERROR_PARSE, 1, "", "no action"},
      {"\n,,\n", MOTET_ERROR_PARSE, 1, "", "no action"},
      {"0UNSHARD", MOTET_ERROR_PARSE, 1, "", "microbatch"},
      {"0F0,1F0\n1B0\n", MOTET_ERROR_PARSE, 2, "placement", "one rank"},
      {"0F0,2F0,3F0\n", MOTET_ERROR_PARSE, 0, "placement", "no row has an action of stage 1"},
      {"2000000000F0", MOTET_ERROR_PARSE, 0, "", "cannot be filled"},
      {"0F2000000000", MOTET_ERROR_PARSE, 0, "", "cannot be filled"},
      {"0F0,0SEND_F0\n", MOTET_ERROR_PARSE, 1, "cell 2", "no other side"},
      {"0F0,0RECV_F0\n1F0", MOTET_ERROR_PARSE, 1, "cell 2", "no other side"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    motet_error error;
    motet_program *program;
    motet_status status = read_text(cases[i].text, strlen(cases[i].text), MOTET_PLACEMENT_AUTO, &error, &program);
    if (status != cases[i].status || error.line != cases[i].line || strcmp(error.key, cases[i].key) != 0 ||
        strstr(error.text, cases[i].words) == NULL)
      fail_msg("\"%s\": status %d, line %d, key \"%s\": %s", cases[i].text, status, error.line, error.key,
               error.text);
  }
  motet_error error;
  motet_program *program;
  assert_int_equal(read_text("0F0\0001F0", 7, MOTET_PLACEMENT_AUTO, &error, &program), MOTET_ERROR_PARSE);
}

static void test_placement_is_checked(void **state) {
  (void)state;
  motet_error error;
  motet_program *program;
  const char *loop = "0F0,2F0\n1F0,3F0\n", *folded = "0F0,3F0\n1F0,2F0\n";
  assert_int_equal(read_text(loop, strlen(loop), MOTET_PLACEMENT_V, &error, &program), MOTET_ERROR_ARGUMENT);
  assert_string_equal(error.key, "placement");
  assert_int_equal(error.line, 1); /* where stage 2 is; a V has it on rank 1 */
  assert_non_null(strstr(error.text, "stage 2"));
  assert_int_equal(read_text(folded, strlen(folded), MOTET_PLACEMENT_LOOP, &error, &program), MOTET_ERROR_ARGUMENT);
  assert_int_equal(read_text(folded, strlen(folded), MOTET_PLACEMENT_V, &error, &program), MOTET_OK);
  motet_program_destroy(program);
  assert_int_equal(read_text(loop, strlen(loop), MOTET_PLACEMENT_LOOP, &error, &program), MOTET_OK);
  motet_program_destroy(program);
}

/* What cannot run or is not complete is imported all the same: the verifier says what is wrong with it. */
static void test_broken_orders_are_imported(void **state) {
  (void)state;
  const char *const broken[] = {
      "0F0,0B0\n1B0,1F0\n",       "0B0,0F0\n1F0,1B0\n",          "0F0,0F0,0B0\n1F0,1B0\n",
      "0F0\n1F0,1B0\n",           "0F0,0W0\n1F0,1W0\n",          "0F0,0SEND_F0,0SEND_F0\n1F0,1RECV_F0\n",
      "0F0,0WAIT_SEND_F0\n1F0\n", "0SEND_F0,0F0,1RECV_F0,1F0\n",
  };
  for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) motet_program_destroy(good_text(broken[i]));
}

static void test_what_the_form_cannot_say(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  mt_random random = mt_random_stream(3, "unsupported");
  const fixture_options transposed = {
      .ranks = 2, .microbatches = 2, .chunks = 1, .encoder = true, .train_trunk = true};
  const fixture_options plain = {.ranks = 2, .microbatches = 2, .chunks = 1, .train_trunk = true};
  double *seconds;
  for (int kind = 0; kind < 2; kind++) {
    mt_derivation *derivation = fixture_derive(arena, kind == 0 ? &transposed : &plain);
    mt_order *order = fixture_random_order(arena, derivation, false, true, &random, &seconds);
    mt_replica replicas[2] = {{.derivation = derivation, .order = order},
                              {.derivation = derivation, .order = order}};
    motet_error error;
    motet_program *program;
    assert_int_equal(mt_program_lower(replicas, kind + 1, &error, &program), MOTET_OK);
    assert_int_equal(motet_program_write_pytorch_csv(program, false, "/tmp/motet-not-written", &error),
                     MOTET_ERROR_UNSUPPORTED);
    assert_int_equal(access("/tmp/motet-not-written", F_OK), -1);
    motet_program_destroy(program);
  }
  mt_arena_destroy(arena);
}

static void test_joined_microbatches_cannot_be_said(void **state) {
  (void)state;
  motet_program *program = read_file("1f1b_p4_m8.csv", MOTET_PLACEMENT_AUTO);
  char *text = write_text(program, false);
  free(text);
  program->instructions[0].flags |= MOTET_FLAG_JOINED;
  motet_error error;
  assert_int_equal(motet_program_write_pytorch_csv(program, false, "/tmp/motet-not-written", &error),
                   MOTET_ERROR_UNSUPPORTED);
  assert_non_null(strstr(error.text, "several microbatches at a time"));
  motet_program_destroy(program);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_published_orders_return_byte_for_byte),
      cmocka_unit_test(test_published_orders_run),
      cmocka_unit_test(test_mixed_backward_kinds_are_kept),
      cmocka_unit_test(test_compute_only_gets_its_transfers),
      cmocka_unit_test(test_explicit_order_is_kept),
      cmocka_unit_test(test_statement_of_an_imported_order),
      cmocka_unit_test(test_forms_of_writing),
      cmocka_unit_test(test_errors_name_line_and_cell),
      cmocka_unit_test(test_placement_is_checked),
      cmocka_unit_test(test_broken_orders_are_imported),
      cmocka_unit_test(test_what_the_form_cannot_say),
      cmocka_unit_test(test_joined_microbatches_cannot_be_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

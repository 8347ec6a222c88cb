/* Searches: against judging every candidate, their bounds, the threads' number, and jobs that cannot be read. */
#include "search/bound.h"
#include "search/search.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char SMALL[] = "config: " MOTET_TEST_DATA "/models/InternVL2-2B\n"
                            "trainable: [projector, llm]\n"
                            "cluster: {preset: a100-40gb, devices: 8}\n"
                            "train: {global_batch: 16}\n"
                            "search: {tensor: [1, 2], context: [1], pipeline: [1, 2, 4], microbatch: [1, 2]}\n";
static const char UNIFORM[] = "workload: {tokens: 2304, images: 1x448x1344}\n";
static const char VARIED[] = "workload: {distribution: wikipedia, images: 1x448x448, seed: 3}\n";

static const mt_search_effort quick = {.order_seconds = MT_ORDER_QUICK};

static mt_search_problem *problem_of(const char *workload, char *const *overrides, int count) {
  char text[2048];
  motet_error error;
  mt_search_problem *problem;
  snprintf(text, sizeof text, "%s%s", SMALL, workload);
  if (mt_search_problem_parse(text, strlen(text), "job.yaml", count, overrides, &error, &problem) != MOTET_OK)
    fail_msg("%s", error.text);
  return problem;
}

static mt_search_result search(mt_arena *arena, const mt_search_problem *problem, int32_t threads,
                               mt_search_space *space) {
  motet_error error;
  mt_search_result result;
  mt_search_options options = {.threads = threads};
  if (mt_search_run_problem(arena, problem, &options, space, &error, &result) != MOTET_OK)
    fail_msg("%s", error.text);
  return result;
}

/* The best of all candidates, each judged; on the way, no bound is above what its candidate takes. */
static void check_against_all(const char *workload, char *const *words, int count) {
  mt_search_problem *problem = problem_of(workload, words, count);
  mt_arena *arena = mt_arena_create(), *scratch = mt_arena_create();
  mt_search_space space;
  mt_search_result result = search(arena, problem, 1, &space);
  assert_true(result.found);
  double best = INFINITY;
  motet_error error;
  for (int32_t i = 0; i < space.count; i++) {
    mt_search_plan plan;
    mt_arena_reset(scratch);
    motet_status status = mt_search_evaluate(scratch, &space, &space.candidates[i], &quick, &error, &plan);
    if (status == MOTET_ERROR_ILLEGAL) continue;
    if (status != MOTET_OK) fail_msg("candidate %d: %s", i, error.text);
    if (plan.seconds < space.candidates[i].bound * (1 - 1e-9))
      fail_msg("candidate %d takes %g, its bound is %g", i, plan.seconds, space.candidates[i].bound);
    if (plan.memory_bytes <= problem->memory_bytes) best = fmin(best, plan.seconds);
    /* What is set aside by its stages alone is no faster than the limit. */
    const mt_search_effort limited = {.order_seconds = MT_ORDER_QUICK, .limit = plan.seconds * 1.0001};
    double seconds = plan.seconds;
    mt_arena_reset(scratch);
    assert_int_equal(mt_search_evaluate(scratch, &space, &space.candidates[i], &limited, &error, &plan), MOTET_OK);
    assert_true(plan.seconds == seconds);
  }
  assert_true(space.count > 30);
  assert_true(result.evaluated < space.count);
  mt_search_plan again;
  assert_int_equal(mt_search_evaluate(scratch, &space, &result.best, &quick, &error, &again), MOTET_OK);
  if (again.seconds != best) fail_msg("found %g, the best of all is %g", again.seconds, best);
  assert_true(result.bound <= best * (1 + 1e-12));
  assert_true(result.plan.memory_bytes <= problem->memory_bytes);
  mt_plan_free(&result.plan.plan);
  mt_arena_destroy(scratch);
  mt_arena_destroy(arena);
  mt_search_problem_destroy(problem);
}

static void test_all_candidates(void **state) {
  (void)state;
  char trunks[] = "search.trunk=[1f1b, zb1p, zbv, fold]", one[] = "search.trunk=[1f1b]",
       level[] = "search.zero=[3]";
  char nodes[] = "cluster.devices=16", few[] = "search.microbatch=[1]", batch[] = "train.global_batch=32";
  char chunks[] = "search.trunk=[1f1b, fold, vhalf, dualpipev]", three[] = "search.virtual=[3]",
       trained[] = "trainable=[vision, projector, llm]", stages[] = "search.pipeline=[4]";
  char *split[] = {trunks, few}, *whole[] = {one}, *shards[] = {trunks, nodes, few, level, batch},
       *several[] = {chunks, three, trained, stages, few, batch};
  check_against_all(UNIFORM, split, 2);
  check_against_all(VARIED, several, 6);
  check_against_all(VARIED, whole, 1);
  check_against_all(VARIED, shards, 5);
}

/* Encoders that take several microbatches at a time: with equal pictures, and with unlike ones. */
static void test_encoder_batches(void **state) {
  (void)state;
  char batches[] = "search.encoder_batch=[1, 2, 3, 8]", few[] = "search.microbatch=[1]",
       one[] = "search.trunk=[1f1b, zb2p]", trace[] = "workload.trace=" MOTET_TEST_DATA "/search/pictures.jsonl";
  char *alike[] = {few, one, batches}, *unlike[] = {few, one, batches, trace};
  check_against_all(UNIFORM, alike, 3);
  check_against_all("", unlike, 4);
}

static void test_threads_do_not_matter(void **state) {
  (void)state;
  char trunks[] = "search.trunk=[1f1b, zb1p]";
  char *few[] = {trunks};
  mt_search_problem *problem = problem_of(VARIED, few, 1);
  mt_arena *arena = mt_arena_create();
  mt_search_space space;
  mt_search_result one = search(arena, problem, 1, &space);
  uint64_t digest = motet_program_digest(one.plan.plan.program);
  mt_search_result three = search(arena, problem, 3, &space);
  assert_true(digest == motet_program_digest(three.plan.plan.program));
  assert_true(one.evaluated == three.evaluated && one.plan.seconds == three.plan.seconds);
  assert_true(one.runner_up_seconds == three.runner_up_seconds);
  mt_plan_free(&one.plan.plan);
  mt_plan_free(&three.plan.plan);
  mt_arena_destroy(arena);
  mt_search_problem_destroy(problem);
}

/* Every trunk is a candidate where it was not left out, and what is planned has the trunk that it says. */
static void test_trunks(void **state) {
  (void)state;
  static const char *const names[] = {"1f1b", "zb1p", "zb2p", "fold", "zbv", "vhalf", "vmin", "dualpipev"};
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_search_space space;
  char only[] = "search.pipeline=[4]", microbatch[] = "search.microbatch=[1]", tensor[] = "search.tensor=[1]";
  char batch[] = "train.global_batch=8", zero[] = "search.zero=[1]";
  char *few[] = {only, microbatch, tensor};
  mt_search_problem *problem = problem_of(UNIFORM, few, 3);
  assert_int_equal(mt_search_space_make(arena, problem, &problem->data, &error, &space), MOTET_OK);
  for (size_t t = 0; t < sizeof names / sizeof *names; t++) {
    int32_t found = 0;
    for (int32_t i = 0; i < space.count; i++)
      found += strstr(mt_search_schedule(arena, &space, &space.candidates[i]), names[t]) != NULL;
    if (found == 0) fail_msg("no candidate has %s", names[t]);
  }
  mt_search_problem_destroy(problem);
  for (size_t t = 1; t < sizeof names / sizeof *names; t++) {
    char trunk[64];
    snprintf(trunk, sizeof trunk, "search.trunk=[%s]", names[t]);
    char *words[] = {only, microbatch, tensor, trunk, batch, zero};
    problem = problem_of(UNIFORM, words, 6);
    mt_search_result result = search(arena, problem, 1, &space);
    if (!result.found) fail_msg("nothing fits with %s", names[t]);
    assert_non_null(strstr(result.plan.derivation->text, names[t]));
    assert_true(result.bound <= result.plan.seconds);
    mt_plan_free(&result.plan.plan);
    mt_search_problem_destroy(problem);
  }
  mt_arena_destroy(arena);
}

/* Groups of a node's devices are candidates of ZeRO 3 where there are more nodes, and divide every module's copies.
 */
static void test_shard_groups(void **state) {
  (void)state;
  char nodes[] = "cluster.devices=32", trunk[] = "search.trunk=[1f1b]", batch[] = "train.global_batch=32";
  char *words[] = {nodes, trunk, batch};
  motet_error error;
  mt_arena *arena = mt_arena_create();
  mt_search_space space;
  mt_search_problem *problem = problem_of(UNIFORM, words, 3);
  assert_int_equal(mt_search_space_make(arena, problem, &problem->data, &error, &space), MOTET_OK);
  int32_t groups = 0, modules = problem->architecture->model->module_count;
  mt_parallel parallels[8];
  for (int32_t i = 0; i < space.count; i++) {
    const mt_search_candidate *c = &space.candidates[i];
    if (c->shard_devices == 0) continue;
    groups++;
    assert_true(c->zero == 3 && c->shard_devices == 8);
    mt_search_parallels(&space, c, parallels);
    for (int32_t j = 0; j < modules; j++) {
      if (mt_parallel_check(&parallels[j], &problem->cluster, &error) != MOTET_OK) fail_msg("%s", error.text);
      assert_true(parallels[j].layered);
      assert_int_equal(parallels[j].shard_group * parallels[j].tensor, 8);
    }
  }
  assert_true(groups > 0);
  mt_search_problem_destroy(problem);
  mt_arena_destroy(arena);
}

/* Replicas that gather weights together wait for the slowest in each microbatch; others for the one with most in
 * all. */
static void test_lockstep(void **state) {
  (void)state;
  enum { DATA = 4, EACH = 4 };
  motet_error error;
  mt_arena *arena = mt_arena_create();
  mt_search_space space;
  mt_search_problem *problem = problem_of(VARIED, NULL, 0);
  assert_int_equal(mt_search_space_make(arena, problem, &problem->data, &error, &space), MOTET_OK);
  mt_search_candidate one = space.candidates[0];
  one.microbatch = 1;
  mt_search_table table;
  assert_int_equal(mt_search_table_make(arena, &space, &one, &error, &table), MOTET_OK);
  const int32_t *owner = mt_search_batch_owners(arena, table.batch, DATA);
  double sum[DATA] = {0}, slowest[EACH] = {0}, alone = 0, lockstep = 0;
  int32_t held[DATA] = {0};
  for (int32_t i = 0; i < table.batch->count; i++) {
    double seconds = table.kind_seconds[table.batch->kind[i]];
    sum[owner[i]] += seconds;
    slowest[held[owner[i]]] = fmax(slowest[held[owner[i]]], seconds);
    held[owner[i]]++;
  }
  for (int r = 0; r < DATA; r++) alone = fmax(alone, sum[r]);
  for (int k = 0; k < EACH; k++) lockstep += slowest[k];
  assert_true(lockstep > alone);
  for (int together = 1; together <= DATA; together += DATA - 1) {
    mt_search_load load;
    double found = 0;
    assert_int_equal(mt_search_load_make(arena, &space, &table, DATA, together, &error, &load), MOTET_OK);
    for (int32_t k = 0; k < EACH; k++) found += table.kind_seconds[table.batch->kind[load.microbatch[k]]];
    assert_true(fabs(found - (together == 1 ? alone : lockstep)) < 1e-12);
  }
  mt_search_problem_destroy(problem);
  mt_arena_destroy(arena);
}

/* With half of the memory the plan drops activations; with next to none nothing fits, and the search says how much
 * would do: with that, it finds a plan. */
static void test_memory(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  mt_search_space space;
  char trunks[] = "search.trunk=[1f1b, zb1p]";
  char *tight[] = {trunks, "memory=9GB"}, *none[] = {trunks, "memory=1GB"};
  mt_search_problem *problem = problem_of(UNIFORM, tight, 2);
  mt_search_result result = search(arena, problem, 1, &space);
  assert_true(result.found);
  assert_true(result.plan.memory_bytes <= 9e9);
  mt_plan_free(&result.plan.plan);
  mt_search_problem_destroy(problem);
  problem = problem_of(UNIFORM, none, 2);
  result = search(arena, problem, 1, &space);
  assert_false(result.found);
  assert_true(result.least_bytes > 1e9 && !isinf(result.least_bytes));
  mt_search_problem_destroy(problem);
  mt_arena_destroy(arena);
}

/* Where both may be used, no layer computes again what host memory would keep for less, nor the other way round. */
static void test_savings(void **state) {
  (void)state;
  static const char *const savings[] = {"search.saving=[recompute]", "search.saving=[offload]",
                                        "search.saving=[recompute, offload]"};
  double seconds[3];
  for (int i = 0; i < 3; i++) {
    char saving[64], pipeline[] = "search.pipeline=[2]", level[] = "search.zero=[1]",
                     trunk[] = "search.trunk=[1f1b]";
    char cluster[] = "cluster.preset=h100", memory[] = "memory=9GB", one[] = "search.tensor=[1]",
         batch[] = "search.microbatch=[1]", chain[] = "search.placement=[chain]";
    snprintf(saving, sizeof saving, "%s", savings[i]);
    char *words[] = {saving, pipeline, level, trunk, cluster, memory, one, batch, chain};
    mt_arena *arena = mt_arena_create();
    mt_search_space space;
    mt_search_problem *problem = problem_of(UNIFORM, words, 9);
    mt_search_result result = search(arena, problem, 1, &space);
    assert_true(result.found);
    int32_t saved[MT_SAVINGS] = {0};
    for (int32_t l = 0; l < problem->architecture->model->layer_count; l++) saved[result.plan.savings[l]]++;
    assert_true(saved[MT_SAVING_INPUT] + saved[MT_SAVING_HOST] > 0);
    if (i < 2) assert_int_equal(saved[i == 0 ? MT_SAVING_HOST : MT_SAVING_INPUT], 0);
    seconds[i] = result.plan.seconds;
    mt_plan_free(&result.plan.plan);
    mt_search_problem_destroy(problem);
    mt_arena_destroy(arena);
  }
  assert_true(seconds[0] != seconds[1]);
  if (seconds[2] > fmin(seconds[0], seconds[1]) * (1 + 1e-9))
    fail_msg("%g with both, %g and %g with one", seconds[2], seconds[0], seconds[1]);
}

/* States go to host memory where that is cheaper than giving up activations, as far as the host has room. */
static void test_optimizer_in_host_memory(void **state) {
  (void)state;
  static const char *const savings[] = {"search.saving=[recompute]", "search.saving=[recompute, optimizer]",
                                        "search.saving=[recompute, offload, optimizer]"};
  double seconds[3], host = 0;
  for (int i = 0; i < 5; i++) {
    char saving[64], level[] = "search.zero=[0]", memory[] = "memory=18GB", devices[] = "cluster.devices=2",
                     samples[] = "train.global_batch=128", trunk[] = "search.trunk=[1f1b]";
    snprintf(saving, sizeof saving, "%s", savings[i < 2 ? i : 2]);
    char *words[] = {saving, level, memory, devices, samples, trunk};
    mt_arena *arena = mt_arena_create();
    mt_search_space space;
    mt_search_problem *problem = problem_of(UNIFORM, words, 6);
    problem->cluster.device.host_memory_bytes = i == 3 ? host * 0.9 : i == 4 ? 1e6 : 0;
    mt_search_result result = search(arena, problem, 1, &space);
    assert_true(result.found && result.plan.memory_bytes <= problem->memory_bytes);
    if (i < 3) seconds[i] = result.plan.seconds;
    if (i == 0) assert_true(!result.plan.host_optimizer && result.plan.host_bytes == 0);
    if (i == 1) assert_true(result.plan.host_optimizer && seconds[1] < seconds[0]);
    if (i == 2) assert_true((host = result.plan.host_bytes) > 0 && seconds[2] <= seconds[1] * (1 + 1e-9));
    if (i > 2) assert_true(result.plan.host_bytes <= problem->cluster.device.host_memory_bytes);
    if (i > 2) assert_true(result.plan.seconds >= seconds[2] * (1 - 1e-9));
    if (i == 4) assert_true(fabs(result.plan.seconds - seconds[0]) <= 1e-9 * seconds[0]);
    mt_plan_free(&result.plan.plan);
    mt_search_problem_destroy(problem);
    mt_arena_destroy(arena);
  }
}

/* Degrees that a job names are looked at, also those that are no powers of two. */
static void test_named_degrees(void **state) {
  (void)state;
  char config[] = "config=" MOTET_TEST_DATA "/models/SmolVLM-256M-Instruct", tensor[] = "search.tensor=[3]",
       devices[] = "cluster.devices=6", samples[] = "train.global_batch=4", trainable[] = "trainable=[llm]";
  char *words[] = {config, tensor, devices, samples, trainable};
  mt_arena *arena = mt_arena_create();
  mt_search_space space;
  mt_search_problem *problem = problem_of("workload: {tokens: 2048, images: 1x512x512}\n", words, 5);
  mt_search_result result = search(arena, problem, 1, &space);
  assert_true(result.found);
  assert_int_equal(result.best.tensor, 3);
  mt_plan_free(&result.plan.plan);
  mt_search_problem_destroy(problem);
  mt_arena_destroy(arena);
}

/* A generator that two encoders feed side by side. */
static void test_generator(void **state) {
  (void)state;
  static const char text[] = "config: " MOTET_TEST_DATA "/models/Open-Sora-Plan-v1.3\n"
                             "cluster: {preset: h100, devices: 16}\n"
                             "train: {global_batch: 16}\n"
                             "search: {tensor: [2], context: [1], pipeline: [1, 2], microbatch: [1]}\n";
  motet_error error;
  mt_search_problem *problem;
  mt_arena *arena = mt_arena_create();
  mt_search_space space;
  if (mt_search_problem_parse(text, strlen(text), "job.yaml", 0, NULL, &error, &problem) != MOTET_OK)
    fail_msg("%s", error.text);
  mt_search_result result = search(arena, problem, 1, &space);
  assert_true(result.found);
  assert_false(space.chain);
  assert_int_equal(space.trunk, problem->architecture->model->module_count - 1);
  mt_plan_free(&result.plan.plan);
  mt_arena_destroy(arena);
  mt_search_problem_destroy(problem);
}

static bool stop_at_once(void *context) {
  (void)context;
  return true;
}

static void test_stop(void **state) {
  (void)state;
  mt_search_problem *problem = problem_of(UNIFORM, NULL, 0);
  mt_arena *arena = mt_arena_create();
  mt_search_space space;
  mt_search_result result;
  motet_error error;
  mt_search_options options = {.stop = stop_at_once};
  assert_int_equal(mt_search_run_problem(arena, problem, &options, &space, &error, &result), MOTET_OK);
  /* Not empty-handed: one batch is judged. */
  assert_string_equal(result.end, "interrupted");
  assert_true(result.found && result.evaluated > 0 && result.evaluated < result.candidates);
  mt_plan_free(&result.plan.plan);
  mt_arena_destroy(arena);
  mt_search_problem_destroy(problem);
}

static void test_bad_jobs(void **state) {
  (void)state;
  const char *model = "config: " MOTET_TEST_DATA "/models/InternVL2-2B\n";
  static const struct {
    const char *rest;
    int line;
    const char *key, *words;
  } rows[] = {
      {"cluster: h100\n", 0, "devices", "lacks devices"},
      {"cluster: h101\ndevices: 8\ntrain: {global_batch: 8}\n", 2, "cluster", "presets are"},
      {"cluster: h100\ndevices: 8\n", 0, "train.global_batch", "lacks train.global_batch"},
      {"cluster: h100\ndevices: 0\n", 3, "devices", "from 1"},
      {"cluster: h100\ndevices: 8\nmemory: 80\n", 4, "memory", "memory"},
      {"cluster: h100\ndevices: 8\ntrain: {global_batch: 8}\nsearch: {tensors: [1]}\n", 5, "search.tensors",
       "no key"},
      {"cluster: h100\ndevices: 8\ntrain: {global_batch: 8}\nsearch: {placement: [pipe]}\n", 5, "search.placement",
       "known are chain"},
      {"cluster: h100\ndevices: 8\ntrain: {global_batch: 8}\nsearch: {trunk: [gpipe]}\n", 5, "search.trunk",
       "known are 1f1b, zb1p"},
      {"cluster: h100\ndevices: 8\ntrain: {global_batch: 8}\ntrainable: [vison]\n", 5, "trainable", "no module"},
      {"cluster: h100\ndevices: 8\ntrain: {global_batch: 8}\nworkload: {images: 2x448}\n", 5, "workload.images",
       "NUMBERxHEIGHTxWIDTH"},
      {"cluster: h100\ndevices: 8\ntrain: {global_batch: 8}\nworkload: {distribution: nothing}\n", 5,
       "workload.distribution", "nothing"},
      {"cluster: h100\ndevices: 8\ntrain: {global_batch: 8}\nsearch: {time_limit: 0s}\n", 5, "search.time_limit",
       "above zero"},
      {"cluster: [1, 2\n", 3, "", "not YAML"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[1024];
    motet_error error;
    mt_search_problem *problem;
    snprintf(text, sizeof text, "%s%s", model, rows[i].rest);
    motet_error_clear(&error);
    motet_status status = mt_search_problem_parse(text, strlen(text), "job.yaml", 0, NULL, &error, &problem);
    if (status == MOTET_OK) fail_msg("row %zu is read", i);
    if (strcmp(error.key, rows[i].key) != 0 || strstr(error.text, rows[i].words) == NULL ||
        (rows[i].line > 0 && error.line != rows[i].line) || strcmp(error.file, "job.yaml") != 0)
      fail_msg("row %zu: %s:%d [%s] %s", i, error.file, error.line, error.key, error.text);
  }
}

static void test_traces(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int line, count; /* count 0: refused */
    const char *words;
  } rows[] = {
      {"{\"tokens\": 10}\n\n{\"tokens\": 20, \"images\": [[448, 448], [10, 20]]}\n", 0, 2, ""},
      {"{\"tokens\": 10, \"video\": [16, 448, 448]}", 0, 1, ""},
      {"{\"tokens\": 10}\n{\"tokens\": 0}\n", 2, 0, "from 1"},
      {"{\"tokens\": 10, \"images\": [[448]]}", 1, 0, "[height, width]"},
      {"{\"tokens\": 10, \"video\": [448]}", 1, 0, "[frames, height, width]"},
      {"tokens: 10", 1, 0, "no JSON object"},
      {"\n", 0, 0, "no sample"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    mt_arena *arena = mt_arena_create();
    motet_error error;
    motet_error_clear(&error);
    mt_workload_samples data;
    motet_status status =
        mt_workload_samples_parse(arena, rows[i].text, strlen(rows[i].text), "trace.jsonl", &error, &data);
    if (rows[i].count > 0) {
      assert_int_equal(status, MOTET_OK);
      assert_int_equal(data.count, rows[i].count);
    } else {
      assert_int_not_equal(status, MOTET_OK);
      if (strstr(error.text, rows[i].words) == NULL || error.line != rows[i].line)
        fail_msg("row %zu: line %d: %s", i, error.line, error.text);
    }
    mt_arena_destroy(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_candidates),
      cmocka_unit_test(test_encoder_batches),
      cmocka_unit_test(test_threads_do_not_matter),
      cmocka_unit_test(test_trunks),
      cmocka_unit_test(test_shard_groups),
      cmocka_unit_test(test_lockstep),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_savings),
      cmocka_unit_test(test_optimizer_in_host_memory),
      cmocka_unit_test(test_named_degrees),
      cmocka_unit_test(test_generator),
      cmocka_unit_test(test_stop),
      cmocka_unit_test(test_bad_jobs),
      cmocka_unit_test(test_traces),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

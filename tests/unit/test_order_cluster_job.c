/* Jobs for a cluster: what is read, what is refused and where, and that a plan's step follows from its parts. */
#include "order/cluster_plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MODELS MOTET_TEST_DATA "/models/"

static motet_error failure;
static mt_arena *arena;

static int set_up(void **state) {
  (void)state;
  arena = mt_arena_create();
  motet_error_clear(&failure);
  return arena == NULL;
}

static int tear_down(void **state) {
  (void)state;
  mt_arena_destroy(arena);
  return 0;
}

static motet_status parse(const char *yaml, int words, char *const *overrides, mt_cluster_job *job) {
  return mt_cluster_job_parse(arena, yaml, strlen(yaml), "j.yaml", words, overrides, &failure, job);
}

static motet_status open_job(const char *yaml, int words, char *const *overrides, mt_cluster_job *job,
                             mt_cluster_setup *setup) {
  motet_status status = parse(yaml, words, overrides, job);
  return status == MOTET_OK ? mt_cluster_job_open(arena, job, &failure, setup) : status;
}

static const char llama[] = "model: " MODELS "Llama-3.1-8B\n"
                            "cluster: h100\n"
                            "schedule: '<llm: 1f1b>'\n"
                            "parallel: {tensor: 4, pipeline: 2, data: 2, context: 4}\n"
                            "workload: {tokens: 4096}\n"
                            "train: {microbatches: 8, steps: 3}\n"
                            "data: {train: nowhere.jsonl}\n";

static void test_what_a_job_says(void **state) {
  (void)state;
  mt_cluster_job job;
  mt_cluster_setup setup;
  char *words[] = {"parallel.data=1", "parallel.split=[10, 24]", "cluster.memory=40GB"};
  assert_int_equal(open_job(llama, 3, words, &job, &setup), MOTET_OK);
  assert_int_equal(setup.cluster.devices, 32);
  assert_true(setup.cluster.device.memory_bytes == 40e9);
  assert_int_equal(setup.split_count, 2);
  assert_int_equal(setup.split[1], 24);
  assert_int_equal(setup.microbatches, 8);
  char *batch[] = {"train.global_batch=16"};
  assert_int_equal(open_job(llama, 1, batch, &job, &setup), MOTET_OK);
  assert_int_equal(setup.microbatches, 8);
  /* Eight KV heads: two Ulysses ranks beside four tensor ranks, the ring has the rest. */
  assert_int_equal(setup.parallel[0].ulysses, 2);
  assert_int_equal(setup.parallel[0].ring, 2);
  assert_true(setup.parallel[0].sequence_parallel);
  assert_true(setup.extents[MT_ROWS_TEXT] == 4096);
}

static void refused(const char *yaml, const char *key, int line, const char *says) {
  mt_cluster_job job;
  mt_cluster_setup setup;
  motet_error_clear(&failure);
  if (open_job(yaml, 0, NULL, &job, &setup) == MOTET_OK) fail_msg("accepted: %s", yaml);
  if (strcmp(failure.key, key) != 0 || failure.line != line || strstr(failure.text, says) == NULL)
    fail_msg("%s: key '%s' (%s), line %d (%d), %s", yaml, failure.key, key, failure.line, line, failure.text);
}

static void test_wrong_jobs_are_told_where_and_why(void **state) {
  (void)state;
  refused("model: m\n", "cluster", 0, "missing");
  refused("cluster: h100\n", "model", 0, "missing");
  refused("cluster: h100\nmodell: m\n", "modell", 2, "parallel.tensor");
  refused("cluster: h100\nmodel: m\nparallel: {tensor: 0}\n", "parallel.tensor", 3, "whole number");
  refused("cluster: h100\nmodel: m\nparallel: {tensor: [1]}\n", "parallel.tensor", 3, "not a list");
  refused("cluster: h100\nmodel: m\nparallel:\n  recompute: some\n", "parallel.recompute", 4,
          "none|selective|full|offload");
  refused("cluster: {preset: h100, memory: 80}\nmodel: m\n", "cluster.memory", 1, "unit");
  refused("cluster: h100\nmodel: m\nparallel: {data: 2}\ntrain: {global_batch: 5}\n", "train.global_batch", 4,
          "parallel.data (2) x workload.samples (1)");
  refused("cluster: h100\ncluster: h200\n", "cluster", 2, "twice");
  refused("cluster: tpu\nmodel: " MODELS "Llama-3.1-8B\n", "cluster", 1, "presets are");
  refused("cluster: h100\nmodel: " MODELS "Llama-3.1-8B\ntrainable: [vision]\n", "trainable", 3, "no such module");
  refused("cluster: h100\nmodel: " MODELS "Llama-3.1-8B\ndevices: 4\nparallel: {tensor: 8}\n", "parallel", 0,
          "more than the cluster's 4 devices");
  refused("cluster: ascend-910c-supernode\nmodel: " MODELS "Llama-3.1-8B\nparallel: {recompute: offload}\n",
          "parallel.recompute", 3, "host_bandwidth");
  refused("cluster: ascend-910c-supernode\nmodel: " MODELS "Llama-3.1-8B\nparallel: {optimizer: host}\n",
          "parallel.optimizer", 3, "host_bandwidth");
  refused("cluster: h100\nmodel: m\ntrain: {steps: 3, micro_batch_size: 2}\n", "train.micro_batch_size", 3,
          "'workload.samples' is for that");
  refused("cluster: h100\nmodel: m\nparallel: {optimizer: cpu}\n", "parallel.optimizer", 3, "device|host");
  refused("cluster: a100-80gb\nmodel: " MODELS "Llama-3.1-8B\nparallel: {precision: float8}\n",
          "parallel.precision", 3, "states no peak");
  refused("cluster: h100\nmodel: m\nparallel: {routed_nodes: 0.5}\n", "parallel.routed_nodes", 3,
          "a number from 1");
  refused("cluster: h100\nmodel: " MODELS "InternVL2-8B\nworkload: {images: 2by448}\n", "workload.images", 3,
          "2x448x448");
  refused("[1, 2]", "", 1, "mapping");
  refused("cluster: h100\nmodel: " MODELS "InternVL2-8B\nparallel:\n  recompute_layers: [3-99]\n",
          "parallel.recompute_layers", 4, "from 0 to 59");
  refused("cluster: h100\nmodel: " MODELS "InternVL2-8B\nparallel: {tensor: 4, encoder_tensor: 3}\n",
          "parallel.encoder_tensor", 3, "divide the 4 devices");
  refused("cluster: h100\nmodel: " MODELS "InternVL2-8B\nworkload: {tokens: 9, trace: a.jsonl}\n", "workload.trace",
          3, "beside it");
  /* A word of the command line is no line of the file, and the file's other keys stay where they are. */
  mt_cluster_job job;
  mt_cluster_setup setup;
  char *words[] = {"parallel.tensor=2", "trainable=[vison]"};
  assert_int_not_equal(open_job("cluster: h100\nmodel: " MODELS "InternVL2-8B\n", 2, words, &job, &setup),
                       MOTET_OK);
  assert_string_equal(failure.file, "command line");
  assert_int_equal(failure.line, 0);
  motet_error_clear(&failure);
  assert_int_not_equal(
      open_job("cluster: h100\nmodel: " MODELS "InternVL2-8B\ntrainable: [vison]\n", 1, words, &job, &setup),
      MOTET_OK);
  assert_string_equal(failure.file, "j.yaml");
  assert_int_equal(failure.line, 3);
}

/* States and activations in host memory are weighed: what a host has not room for is refused. */
static void test_host_memory_is_weighed(void **state) {
  (void)state;
  mt_cluster_job job;
  mt_cluster_setup setup;
  mt_cluster_plan made;
  char *words[] = {"parallel.optimizer=host", "parallel.offload_layers=[1-32]", "parallel.context=1"};
  double bytes[2];
  for (int i = 0; i < 2; i++) {
    assert_int_equal(open_job(llama, 1 + 2 * i, words, &job, &setup), MOTET_OK);
    if (mt_cluster_plan_make(arena, &setup, &failure, &made) != MOTET_OK) fail_msg("%s", failure.text);
    bytes[i] = made.host_bytes;
    mt_plan_free(&made.plan);
  }
  /* 12 bytes of a quarter of the fuller half of 8.03e9 parameters; activations of 34 bytes a value at most. */
  assert_true(bytes[0] > 12 * 8.03e9 / 8 && bytes[0] < 1.1 * 12 * 8.03e9 / 8);
  assert_true(bytes[1] > bytes[0] && bytes[1] < bytes[0] + 2.0 * 17 * 34 * 4096 * 4096 / 4);
  setup.cluster.device.host_memory_bytes = bytes[1] * 0.999;
  assert_int_equal(mt_cluster_plan_make(arena, &setup, &failure, &made), MOTET_ERROR_REFUSED);
  assert_string_equal(failure.rule, "host_memory");
  mt_plan_free(&made.plan);
}

/* One stage, one device: the step is M times forward and backward, then the optimizer. */
static void test_a_step_is_its_parts(void **state) {
  (void)state;
  mt_cluster_job job;
  mt_cluster_setup setup;
  mt_cluster_plan made;
  char *words[] = {"parallel.tensor=1", "parallel.pipeline=1", "parallel.data=1", "parallel.context=1",
                   "cluster.memory=300GB"};
  assert_int_equal(open_job(llama, 5, words, &job, &setup), MOTET_OK);
  if (mt_cluster_plan_make(arena, &setup, &failure, &made) != MOTET_OK) fail_msg("%s", failure.text);
  const mt_span all = {.layer_end = setup.architecture->model->layer_count, .first_trainable = 0};
  mt_span_forecast one;
  mt_state_forecast end;
  mt_forecast_span(&setup.forecast, &all, setup.extents, &one);
  mt_forecast_state(&setup.forecast, &all, 0, &end);
  double wanted = 8 * (one.seconds[MT_COST_FORWARD] + one.seconds[MT_COST_BACKWARD]) + end.optimizer_seconds;
  assert_true(fabs(made.plan.simulation->makespan / wanted - 1) < 1e-9);
  assert_true(made.plan.verification.memory[0].peak_bytes >= end.static_bytes + one.saved_bytes);
  mt_plan_free(&made.plan);
}

/* However a model is cut and whoever computes what: a microbatch costs the sum over its layers, and what the stages
 * hold is that of the layers. A region on every rank is reduced over them by the program. */
static void test_tables_conserve_work(void **state) {
  (void)state;
  static const char yaml[] = "model: " MODELS "InternVL2-8B\ncluster: {preset: h100, memory: 1TB}\n"
                             "parallel: {tensor: 2, pipeline: 4, recompute: full}\n"
                             "workload: {tokens: 4096, images: 4x448x448}\ntrain: {microbatches: 8}\n";
  static const char *const schedules[] = {"schedule=<vision+projector+llm: 1f1b>",
                                          "schedule=<vision+projector: transpose, llm: 1f1b>",
                                          "schedule=<vision+projector: inline, llm: 1f1b>",
                                          "schedule=<vision+projector: inline, llm: 1f1b(virtual=2)>"};
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
    mt_cluster_job job;
    mt_cluster_setup setup;
    mt_cluster_plan made;
    char *words[] = {(char *)(uintptr_t)schedules[i]};
    assert_int_equal(open_job(yaml, 1, words, &job, &setup), MOTET_OK);
    if (mt_cluster_plan_make(arena, &setup, &failure, &made) != MOTET_OK) fail_msg("%s", failure.text);
    const mt_span all = {.layer_end = setup.architecture->model->layer_count, .first_trainable = 0};
    mt_span_forecast whole;
    mt_state_forecast held;
    mt_forecast_span(&setup.forecast, &all, setup.extents, &whole);
    mt_forecast_state(&setup.forecast, &all, 0, &held);
    double forward = 0, backward = 0, saved = 0, gradients = 0;
    for (int32_t s = 0; s < made.derivation->stage_count; s++) {
      forward += mt_cost_seconds(&made.tables.costs, MT_COST_FORWARD, s, 0);
      backward += mt_cost_seconds(&made.tables.costs, MT_COST_BACKWARD, s, 0);
      const motet_size_table *table = &made.tables.sizes.saved_bytes;
      saved += (double)table->values[s * table->stage_stride];
      gradients += (double)made.tables.sizes.weight_bytes[s];
    }
    assert_true(fabs(forward / whole.seconds[MT_COST_FORWARD] - 1) < 1e-9);
    assert_true(fabs(backward / whole.seconds[MT_COST_BACKWARD] - 1) < 1e-9);
    assert_true(saved == (double)whole.saved_bytes);
    assert_true(fabs(gradients / (double)held.gradient_bytes - 1) < 1e-6);
    mt_plan_free(&made.plan);
  }
}

/* 8e9 parameters at 16 bytes do not fit 80 GB; the refusal says how much would. */
static void test_what_does_not_fit(void **state) {
  (void)state;
  mt_cluster_job job;
  mt_cluster_setup setup;
  mt_cluster_plan made;
  char *words[] = {"parallel.tensor=1", "parallel.pipeline=1", "parallel.data=1", "parallel.context=1"};
  assert_int_equal(open_job(llama, 4, words, &job, &setup), MOTET_OK);
  assert_int_equal(mt_cluster_plan_make(arena, &setup, &failure, &made), MOTET_ERROR_REFUSED);
  assert_string_equal(failure.rule, "memory");
  assert_int_equal(failure.rank, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {TEST(test_what_a_job_says),     TEST(test_wrong_jobs_are_told_where_and_why),
                                     TEST(test_a_step_is_its_parts), TEST(test_tables_conserve_work),
                                     TEST(test_what_does_not_fit),   TEST(test_host_memory_is_weighed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Quantities, presets and cluster files, and what malformed ones are told. */
#include "cluster/cluster.h"
#include "cluster/quantity.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static motet_error failure;

static void test_quantities(void **state) {
  (void)state;
  static const struct {
    const char *text;
    mt_quantity kind;
    double value;
  } good[] = {
      {"80GiB", MT_QUANTITY_BYTES, 85899345920.0},
      {"64 GB", MT_QUANTITY_BYTES, 64e9},
      {"400Gb/s", MT_QUANTITY_BYTES_A_SECOND, 50e9},
      {"400Gbit/s", MT_QUANTITY_BYTES_A_SECOND, 50e9},
      {"450GB/s", MT_QUANTITY_BYTES_A_SECOND, 450e9},
      {"1GiB/s", MT_QUANTITY_BYTES_A_SECOND, 1073741824.0},
      {"3.35TB/s", MT_QUANTITY_BYTES_A_SECOND, 3.35e12},
      {"989.4TFLOP/s", MT_QUANTITY_FLOPS, 989.4e12},
      {"312TFLOPS", MT_QUANTITY_FLOPS, 312e12},
      {"5us", MT_QUANTITY_SECONDS, 5e-6},
      {"1.2ms", MT_QUANTITY_SECONDS, 1.2e-3},
      {"0s", MT_QUANTITY_SECONDS, 0},
      {"0.8", MT_QUANTITY_NUMBER, 0.8},
  };
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    double value;
    assert_int_equal(mt_quantity_parse(good[i].text, good[i].kind, &failure, &value), MOTET_OK);
    assert_true(fabs(value - good[i].value) <= 1e-12 * good[i].value);
  }
  static const struct {
    const char *text;
    mt_quantity kind;
    const char *says;
  } bad[] = {
      {"80", MT_QUANTITY_BYTES, "has no unit"},
      {"80GiB/s", MT_QUANTITY_BYTES, "'GiB/s' is not known"},
      {"80GB", MT_QUANTITY_BYTES_A_SECOND, "450GB/s"},
      {"-5us", MT_QUANTITY_SECONDS, "no number"},
      {"", MT_QUANTITY_BYTES, "no number"},
      {"nan", MT_QUANTITY_NUMBER, "no number"},
      {"1e999", MT_QUANTITY_NUMBER, "no number"},
      {"0x10", MT_QUANTITY_NUMBER, "no number"},
      {"8 apples", MT_QUANTITY_NUMBER, "apples"},
      {"5usec", MT_QUANTITY_SECONDS, "'usec' is not known"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    double value;
    assert_int_equal(mt_quantity_parse(bad[i].text, bad[i].kind, &failure, &value), MOTET_ERROR_PARSE);
    if (strstr(failure.text, bad[i].says) == NULL) fail_msg("'%s': %s", bad[i].text, failure.text);
  }
}

/* Every name that the list has is there, is whole at any size, and its links get no faster from inside to outside.
 */
static void test_presets_are_whole(void **state) {
  (void)state;
  char names[256], *rest = names;
  snprintf(names, sizeof names, "%s", mt_cluster_presets());
  int count = 0;
  for (char *name = strtok_r(names, ", ", &rest); name != NULL; name = strtok_r(NULL, ", ", &rest), count++) {
    static const int32_t sizes[] = {1, 2, 8, 9, 16, 100, 768, 769, 8192};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      mt_cluster cluster;
      assert_int_equal(mt_cluster_preset(name, sizes[s], &failure, &cluster), MOTET_OK);
      if (mt_cluster_check(&cluster, &failure) != MOTET_OK) fail_msg("%s, %d: %s", name, sizes[s], failure.text);
      assert_int_equal(cluster.devices, sizes[s]); /* not rounded up to whole nodes */
      assert_true(cluster.levels[cluster.level_count - 1].devices >= sizes[s]);
      assert_true(cluster.fast_level < cluster.level_count);
      for (int32_t l = 1; l < cluster.level_count; l++)
        assert_true(cluster.levels[l].link.bytes_per_second <= cluster.levels[l - 1].link.bytes_per_second);
      /* Tensor cores that know float8 take it twice as fast. */
      double float8 = cluster.device.float8_flops;
      assert_true(float8 == 0 || fabs(float8 / cluster.device.bfloat16_flops - 2) < 1e-3);
      assert_true(cluster.device.bfloat16_flops > 1e14 && cluster.device.memory_bytes >= 40e9);
    }
  }
  assert_int_equal(count, 10);
  mt_cluster cluster;
  assert_int_equal(mt_cluster_preset("tpu", 8, &failure, &cluster), MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(failure.text, "ascend-910c-supernode"));
  assert_int_equal(mt_cluster_preset("h100", 0, &failure, &cluster), MOTET_ERROR_ARGUMENT);
}

static void test_links_are_those_of_the_lowest_common_level(void **state) {
  (void)state;
  mt_cluster cluster;
  assert_int_equal(mt_cluster_preset("ascend-910c-supernode", 1536, &failure, &cluster), MOTET_OK);
  assert_int_equal(mt_cluster_level(&cluster, 0, 1), 0);
  assert_int_equal(mt_cluster_level(&cluster, 1, 2), 1);
  assert_int_equal(mt_cluster_level(&cluster, 15, 16), 2);
  assert_int_equal(mt_cluster_level(&cluster, 767, 768), 3);
  mt_links links = mt_cluster_links(&cluster);
  assert_int_equal(links.ranks_per_node, 768);
  assert_true(links.local.bytes_per_second == 196e9 && links.remote.bytes_per_second == 25e9);
  assert_int_equal(mt_cluster_preset("h100", 64, &failure, &cluster), MOTET_OK);
  links = mt_cluster_links(&cluster);
  assert_int_equal(links.ranks_per_node, 8);
  assert_true(links.local.bytes_per_second == 450e9 && links.remote.bytes_per_second == 50e9);
  assert_int_equal(mt_cluster_preset("ascend-910b", 64, &failure, &cluster), MOTET_OK);
  links = mt_cluster_links(&cluster); /* a mesh: one of seven links */
  assert_true(links.local.bytes_per_second == 28e9 && links.remote.bytes_per_second == 25e9);
}

#define DEVICE "device: {name: X, bfloat16: 100TFLOP/s, memory: 32GiB, memory_bandwidth: 1TB/s}\n"
#define NODE "- {name: node, devices: 4, bandwidth_per_direction: 100GB/s, latency: 2us}\n"
#define ALL "- {name: all, devices: 16, bandwidth_per_direction: 100Gb/s, latency: 9us}\n"

static void test_files(void **state) {
  (void)state;
  mt_cluster cluster;
  static const char whole[] = "name: ours\n" DEVICE "levels:\n" NODE ALL;
  assert_int_equal(mt_cluster_parse(whole, strlen(whole), "c.yaml", &failure, &cluster), MOTET_OK);
  assert_string_equal(cluster.name, "ours");
  assert_int_equal(cluster.devices, 16);
  assert_int_equal(cluster.fast_level, 0);
  assert_true(cluster.device.memory_bytes == 32.0 * 1073741824);
  assert_true(cluster.levels[1].link.bytes_per_second == 12.5e9);
  assert_true(cluster.levels[1].link.latency_seconds == 9e-6);
  assert_true(cluster.device.matmul_efficiency == 0.8);
  /* A preset with something measured in place of its own number. */
  static const char changed[] =
      "preset: h100\ndevices: 64\ndevice: {matmul_efficiency: 0.62}\nfast_level: cluster\n";
  assert_int_equal(mt_cluster_parse(changed, strlen(changed), "c.yaml", &failure, &cluster), MOTET_OK);
  assert_int_equal(cluster.devices, 64);
  assert_true(cluster.device.matmul_efficiency == 0.62 && cluster.device.bfloat16_flops == 989.4e12);
  assert_int_equal(cluster.fast_level, 1);
  static const char mesh[] =
      "name: ours\n" DEVICE
      "levels:\n- {name: node, devices: 4, bandwidth_per_direction: 90GB/s, latency: 2us, peers: 3}\n" ALL;
  assert_int_equal(mt_cluster_parse(mesh, strlen(mesh), "c.yaml", &failure, &cluster), MOTET_OK);
  assert_true(cluster.levels[0].peers == 3 && cluster.levels[1].peers == 0);
  assert_true(mt_cluster_links(&cluster).local.bytes_per_second == 30e9);
}

static void test_wrong_files_are_told_where_and_why(void **state) {
  (void)state;
  static const struct {
    const char *yaml, *key;
    int line;
    const char *says;
  } cases[] = {
      {"", "", 1, "mapping"},
      {"a: ]\n", "", 1, "not YAML"},
      {"colour: red\n", "colour", 1, "keys are preset, name, devices"},
      {"name: x\nname: y\n", "name", 2, "twice"},
      {"name: x\n", "device", 1, "needs 'device' and 'levels', or 'preset'"},
      {"preset: h100\n", "devices", 1, "how many"},
      {"preset: tpu\ndevices: 8\n", "preset", 1, "presets are"},
      {"preset: h100\ndevices: 2.5\n", "devices", 2, "whole numbers"},
      {"preset: h100\ndevices: 8\nfast_level: x\n", "fast_level", 3, "no level"},
      {"device: {name: X}\nlevels: []\n", "device.bfloat16", 1, "the key bfloat16 is missing"},
      {DEVICE "levels: 3\n", "levels", 2, "must be a list"},
      {DEVICE "levels: []\n", "levels", 2, "at least one level"},
      {DEVICE "levels:\n" ALL NODE, "levels", 3, "joins 4 devices, which is no multiple of the 16"},
      {DEVICE "levels:\n- {name: n, devices: 4, bandwidth: 1GB/s}\n", "levels.0.bandwidth", 3,
       "state bandwidth_per_direction"},
      {DEVICE "levels:\n- {name: n, devices: 4, latency: 1us}\n", "levels.0.bandwidth_per_direction", 3, "missing"},
      {DEVICE "levels:\n- {name: n, devices: 4, bandwidth_per_direction: 5, latency: 1us}\n",
       "levels.0.bandwidth_per_direction", 3, "has no unit"},
      {DEVICE "levels:\n- {name: n, devices: 4, bandwidth_per_direction: 5PFLOPS, latency: 1us}\n",
       "levels.0.bandwidth_per_direction", 3, "'PFLOPS' is not known"},
      {DEVICE "levels:\n- {name: n, devices: 4, bandwidth_per_direction: 900TB/s, latency: 1us}\n",
       "levels.0.bandwidth_per_direction", 3, "not believable"},
      {"device: {name: X, bfloat16: 100TFLOP/s, memory: 32B, memory_bandwidth: 1TB/s}\nlevels:\n" NODE,
       "device.memory", 1, "32B is not believable"},
      {"device: {name: X, bfloat16: [1], memory: 32GB, memory_bandwidth: 1TB/s}\nlevels:\n" NODE, "device.bfloat16",
       1, "one value"},
      {"devices: 20\n" DEVICE "levels:\n" NODE ALL, "levels", 4, "joins 16 devices, but the cluster has 20"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    mt_cluster cluster;
    motet_error_clear(&failure);
    if (mt_cluster_parse(cases[c].yaml, strlen(cases[c].yaml), "c.yaml", &failure, &cluster) == MOTET_OK)
      fail_msg("accepted: %s", cases[c].yaml);
    assert_string_equal(failure.file, "c.yaml");
    if (strstr(failure.text, cases[c].says) == NULL || strcmp(failure.key, cases[c].key) != 0 ||
        failure.line != cases[c].line)
      fail_msg("%s\nline %d, key %s: %s", cases[c].yaml, failure.line, failure.key, failure.text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_quantities),
      cmocka_unit_test(test_presets_are_whole),
      cmocka_unit_test(test_links_are_those_of_the_lowest_common_level),
      cmocka_unit_test(test_files),
      cmocka_unit_test(test_wrong_files_are_told_where_and_why),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

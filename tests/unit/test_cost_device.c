/* Collectives against measured ones; layers on a device against closed forms. */
#include "cost/collective.h"
#include "cost/device.h"
#include "cost/product.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static motet_error failure;

static mt_cluster preset(const char *name, int32_t devices) {
  mt_cluster cluster;
  assert_int_equal(mt_cluster_preset(name, devices, &failure, &cluster), MOTET_OK);
  return cluster;
}

/* NCCL on A100, 8 a node. The fit saw 8 and 32 ranks; here are the others, mean error by size of group. Two ranks
 * of a node reach less of their links than any ring of more. */
static void test_all_reduce_equals_measurements(void **state) {
  (void)state;
  static const struct {
    int ranks;
    double mean, large; /* of all messages, of those from 64 MiB on */
  } groups[] = {{2, 0.23, 0.14}, {4, 0.05, 0.03}, {16, 0.10, 0.07}, {64, 0.08, 0.07}, {128, 0.08, 0.07}};
  mt_cluster cluster = preset("a100-40gb", 128);
  mt_collective_fit fit = mt_collective_fit_usual();
  for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
    char path[512], line[128];
    snprintf(path, sizeof path, "%s/facts/all_reduce_a100.csv", MOTET_TEST_DATA);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    double sum = 0, large_sum = 0;
    int count = 0, large = 0;
    while (fgets(line, sizeof line, file) != NULL) {
      int ranks;
      double bytes, microseconds;
      if (sscanf(line, "%d,%lf,%lf", &ranks, &bytes, &microseconds) != 3 || ranks != groups[g].ranks) continue;
      double seconds = mt_collective_seconds(&cluster, &fit, MT_COLLECTIVE_ALL_REDUCE, ranks, 1, bytes);
      double error = fabs(seconds / (microseconds * 1e-6) - 1);
      sum += error;
      count++;
      if (bytes < 1 << 26) continue;
      large_sum += error;
      large++;
    }
    fclose(file);
    assert_true(large >= 5 && count > large);
    if (sum / count > groups[g].mean || large_sum / large > groups[g].large)
      fail_msg("%d ranks: mean error %.3f, large messages %.3f", groups[g].ranks, sum / count, large_sum / large);
  }
}

static void test_collectives_follow_their_groups(void **state) {
  (void)state;
  mt_cluster cluster = preset("h100", 64);
  const mt_collective_fit ideal = {.inside = 1, .between = 1};
  cluster.levels[1].efficiency = 0; /* as the fit says */
  double bytes = 1e9, node = 450e9, port = 50e9;
  assert_true(mt_collective_seconds(&cluster, &ideal, MT_COLLECTIVE_ALL_REDUCE, 1, 1, bytes) == 0);
  assert_true(
      fabs(mt_collective_seconds(&cluster, &ideal, MT_COLLECTIVE_ALL_GATHER, 8, 1, bytes) / (bytes * 7 / 8 / node) -
           1) < 1e-12);
  /* One rank a node: one port each. All ranks of eight nodes: eight ports a node, less than a device's links. */
  assert_true(fabs(mt_collective_seconds(&cluster, &ideal, MT_COLLECTIVE_ALL_REDUCE, 8, 8, bytes) /
                       (bytes * 14 / 8 / port) -
                   1) < 1e-12);
  assert_true(fabs(mt_collective_seconds(&cluster, &ideal, MT_COLLECTIVE_ALL_REDUCE, 64, 1, bytes) /
                       (bytes * 126 / 64 / (8 * port)) -
                   1) < 1e-12);
  /* Every other rank: four a node, four ports. */
  assert_true(fabs(mt_collective_seconds(&cluster, &ideal, MT_COLLECTIVE_REDUCE_SCATTER, 8, 2, bytes) /
                       (bytes * 7 / 8 / (4 * port)) -
                   1) < 1e-12);
  /* All-to-all over two nodes: half of the rows crosses, by the rank's own port. */
  const mt_sent_parts copies = {1, 1};
  assert_true(fabs(mt_collective_all_to_all_seconds(&cluster, &ideal, 16, 1, bytes, copies) / (bytes / 2 / port) -
                   1) < 1e-12);
  assert_true(
      fabs(mt_collective_all_to_all_seconds(&cluster, &ideal, 8, 1, bytes, copies) / (bytes * 7 / 8 / node) - 1) <
      1e-12);
  assert_true(fabs(mt_collective_all_to_all_seconds(&cluster, &ideal, 16, 1, bytes, (mt_sent_parts){1, 0.5}) /
                       (bytes / 4 / port) -
                   1) < 1e-12);
  assert_true(fabs(mt_collective_all_to_all_seconds(&cluster, &ideal, 8, 1, bytes, (mt_sent_parts){0.75, 1}) /
                       (0.75 * bytes * 7 / 8 / node) -
                   1) < 1e-12);
  /* A level that says what it reaches. */
  cluster.levels[1].efficiency = 0.5;
  assert_true(fabs(mt_collective_all_to_all_seconds(&cluster, &ideal, 16, 1, bytes, copies) / (bytes / port) - 1) <
              1e-12);
}

/* Eight devices, each with a link to each of seven others: as many of them are used as there are others. */
static void test_collectives_of_a_mesh(void **state) {
  (void)state;
  mt_cluster cluster = preset("h100", 64);
  const mt_collective_fit ideal = {.inside = 1, .between = 1};
  const mt_sent_parts copies = {1, 1};
  cluster.levels[0].peers = 7;
  double bytes = 1e9, link = 450e9 / 7;
  for (int32_t ranks = 2; ranks <= 8; ranks *= 2) {
    double seconds = bytes / ranks / link; /* (ranks - 1) / ranks of the bytes by ranks - 1 links */
    assert_true(fabs(mt_collective_seconds(&cluster, &ideal, MT_COLLECTIVE_ALL_GATHER, ranks, 1, bytes) / seconds -
                     1) < 1e-12);
    assert_true(fabs(mt_collective_all_to_all_seconds(&cluster, &ideal, ranks, 1, bytes, copies) / seconds - 1) <
                1e-12);
  }
  /* Every other rank: four a node. */
  assert_true(
      fabs(mt_collective_seconds(&cluster, &ideal, MT_COLLECTIVE_ALL_GATHER, 4, 2, bytes) / (bytes / 4 / link) -
           1) < 1e-12);
  /* Two a node and their two ports, which are less. */
  assert_true(fabs(mt_collective_seconds(&cluster, &ideal, MT_COLLECTIVE_ALL_GATHER, 4, 4, bytes) /
                       (bytes * 3 / 4 / fmin(link, 100e9)) -
                   1) < 1e-12);
}

/* An ideal device: the operations alone, divided by the group; a narrow product at half of its efficiency. */
static void test_layers_on_a_device(void **state) {
  (void)state;
  static const char config[] = "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 512, \"n_head\": 8, "
                               "\"vocab_size\": 1000, \"resid_pdrop\": 0}";
  mt_arena *arena = mt_arena_create();
  mt_architecture *model;
  assert_int_equal(mt_architecture_parse(arena, config, sizeof config - 1, "c", &failure, &model), MOTET_OK);
  const int64_t tokens = 1024;
  const mt_shape shape = {.segments = &tokens, .segment_count = 1};
  double extents[MT_EXTENTS];
  assert_int_equal(mt_architecture_measure(model, &shape, &failure, extents), MOTET_OK);
  mt_layer_cost cost;
  mt_architecture_cost(model, 1, extents, 1, &cost);
  mt_device device = {.bfloat16_flops = 1e12,
                      .memory_bytes_per_second = INFINITY,
                      .matmul_efficiency = 1,
                      .attention_efficiency = 1,
                      .memory_efficiency = 1};
  mt_device_seconds one, four, narrow, stored;
  mt_device_layer_seconds(&device, model, 1, extents, &(mt_device_share){.tensor_parallel = 1}, &one);
  assert_true(fabs(one.forward * 1e12 / cost.forward_flops - 1) < 1e-12);
  assert_true(fabs(one.input_gradient * 1e12 / cost.input_flops - 1) < 1e-12);
  assert_true(fabs(one.weight_gradient * 1e12 / cost.weight_flops - 1) < 1e-12);
  assert_true(fabs(one.attention * 1e12 / cost.attention_flops - 1) < 1e-12);
  mt_device_layer_seconds(&device, model, 1, extents, &(mt_device_share){.tensor_parallel = 4}, &four);
  assert_true(fabs(four.forward * 4 / one.forward - 1) < 1e-12);
  device.matmul_half_width = 512; /* the smallest side of every product of this block */
  mt_device_layer_seconds(&device, model, 1, extents, &(mt_device_share){.tensor_parallel = 1}, &narrow);
  assert_true(fabs((narrow.forward - narrow.attention) / (one.forward - one.attention) - 2) < 1e-12);
  device.matmul_half_width = 0;
  /* Scores in memory: the square, 8 heads, softmax and dropout 9 bytes. */
  device.memory_bytes_per_second = 1e12;
  mt_device_layer_seconds(&device, model, 1, extents,
                          &(mt_device_share){.tensor_parallel = 1, .stored_scores = true}, &stored);
  double square = 1024.0 * 1025;
  assert_true(fabs(stored.attention - (2 * cost.attention_flops + 9 * 8 * square) / 1e12) < 1e-15);
  device.matmul_half_width = 512;
  /* Two norms (4 bytes a value moved), two residual sums (6), GELU of four times the width (4). */
  mt_device_layer_seconds(&device, model, 1, extents, &(mt_device_share){.tensor_parallel = 1}, &one);
  assert_true(fabs(one.forward - narrow.forward - (2 * 4 + 2 * 6 + 4 * 4) * 512 * 1024.0 / 1e12) < 1e-15);
  /* A kernel an operation: 151 bytes where fused kernels move 44. */
  mt_device_layer_seconds(&device, model, 1, extents, &(mt_device_share){.tensor_parallel = 1, .eager = true},
                          &four);
  double slower = (four.forward - narrow.forward) / (one.forward - narrow.forward);
  assert_true(fabs(slower - 151.0 / 44) < 0.05);
  mt_device_layer_seconds(&device, model, 1, extents, &(mt_device_share){.tensor_parallel = 2}, &four);
  mt_device_layer_seconds(&device, model, 1, extents,
                          &(mt_device_share){.tensor_parallel = 2, .sequence_parallel = true}, &stored);
  assert_true(fabs(four.forward - stored.forward - (2 * 4 + 2 * 6) * 512 * 1024.0 / 2 / 1e12) < 1e-15);
  assert_true(fabs(mt_device_optimizer_seconds(&device, 1e9) - 0.038) < 1e-12);
  mt_arena_destroy(arena);
}

static double seconds_of(const mt_device *device, double rows, double columns, double depth, double copies) {
  return mt_product_seconds(device, &(mt_product_shape){rows, columns, depth, copies, false});
}

/* Ten units of 1e11 operations a second, tiles that cost no more than their work: whole waves alone are left. */
static void test_products_in_waves(void **state) {
  (void)state;
  mt_device device = {.bfloat16_flops = 1e12,
                      .memory_bytes_per_second = INFINITY,
                      .matmul_efficiency = 1,
                      .memory_efficiency = 1,
                      .compute_units = 10};
  double whole = 2.0 * 128 * 256 * 1024 / 1e11; /* one wave of the largest tiles */
  assert_true(fabs(seconds_of(&device, 128 * 5, 256 * 2, 1024, 1) / whole - 1) < 1e-12);
  assert_true(fabs(seconds_of(&device, 128, 256, 1024, 10) / whole - 1) < 1e-12);
  /* One tile more than a wave: more than half of a wave more, whatever the tile; never two whole waves, for smaller
     tiles share the rest. */
  double more = seconds_of(&device, 128, 256, 1024, 11);
  assert_true(more > 1.1 * whole && more < 2 * whole);
  /* A row is a tile: no faster than the smallest one. */
  assert_true(seconds_of(&device, 1, 64, 1024, 1) == seconds_of(&device, 64, 64, 1024, 1));
  /* As much depth again for starting and ending a tile. */
  device.matmul_depth = 1024;
  assert_true(fabs(seconds_of(&device, 128 * 5, 256 * 2, 1024, 1) / whole - 2) < 1e-12);
  /* Slow memory: the three matrices' bytes. */
  device.memory_bytes_per_second = 1e6;
  assert_true(fabs(seconds_of(&device, 100, 200, 300, 2) / (2 * 2 * (100 * 300 + 300 * 200 + 100 * 200) / 1e6) -
                   1) < 1e-12);
  assert_true(seconds_of(&device, 0, 200, 300, 2) == 0);
}

/* Float8: twice the operations a second, one byte an operand, and the time of a tile's ends as it was. */
static void test_products_in_float8(void **state) {
  (void)state;
  mt_device device = {.bfloat16_flops = 1e12,
                      .float8_flops = 2e12,
                      .memory_bytes_per_second = INFINITY,
                      .matmul_efficiency = 1,
                      .memory_efficiency = 1,
                      .compute_units = 10};
  mt_product_shape shape = {128 * 5, 256 * 2, 1024, 1, true};
  double whole = seconds_of(&device, 128 * 5, 256 * 2, 1024, 1);
  assert_true(fabs(mt_product_seconds(&device, &shape) / whole - 0.5) < 1e-12);
  device.matmul_depth = 512;
  double ends = seconds_of(&device, 128 * 5, 256 * 2, 1024, 1) - whole;
  assert_true(fabs(mt_product_seconds(&device, &shape) / (whole / 2 + ends) - 1) < 1e-12);
  device.memory_bytes_per_second = 1e6;
  shape = (mt_product_shape){100, 200, 300, 2, true};
  assert_true(fabs(mt_product_seconds(&device, &shape) / (2 * (100 * 300 + 300 * 200 + 2 * 100 * 200) / 1e6) - 1) <
              1e-12);
}

/* A block's maps in float8, its attention and the head not; rows and their gradients are cast with 4 bytes moved.
 */
static void test_layers_in_float8(void **state) {
  (void)state;
  enum { WIDTH = 512, TOKENS = 1024, BLOCK = 1, HEAD = 3 };
  static const char config[] = "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 512, \"n_head\": 8, "
                               "\"vocab_size\": 1000, \"resid_pdrop\": 0}";
  mt_arena *arena = mt_arena_create();
  mt_architecture *model;
  assert_int_equal(mt_architecture_parse(arena, config, sizeof config - 1, "c", &failure, &model), MOTET_OK);
  const int64_t tokens = TOKENS;
  const mt_shape shape = {.segments = &tokens, .segment_count = 1};
  double extents[MT_EXTENTS];
  assert_int_equal(mt_architecture_measure(model, &shape, &failure, extents), MOTET_OK);
  /* Memory fast enough that no product waits for it. */
  mt_device device = {.bfloat16_flops = 1e12,
                      .float8_flops = 2e12,
                      .memory_bytes_per_second = 1e12,
                      .matmul_efficiency = 1,
                      .attention_efficiency = 1,
                      .memory_efficiency = 1};
  const mt_device_share plain = {.tensor_parallel = 1}, small = {.tensor_parallel = 1, .float8 = true};
  mt_device_seconds two, one;
  mt_device_layer_seconds(&device, model, BLOCK, extents, &plain, &two);
  mt_device_layer_seconds(&device, model, BLOCK, extents, &small, &one);
  /* Four maps: queries, keys and values, their output, the inner width and back. */
  double products = 2 * TOKENS * (3.0 + 1 + 4 + 4) * WIDTH * WIDTH / 1e12;
  double taken = 4.0 * TOKENS * (1 + 1 + 1 + 4) * WIDTH / 1e12,
         given = 4.0 * TOKENS * (3 + 1 + 4 + 1) * WIDTH / 1e12;
  assert_true(one.attention == two.attention);
  assert_true(fabs(two.forward - one.forward - (products / 2 - taken)) < 1e-12);
  assert_true(fabs(two.input_gradient - one.input_gradient - (products / 2 - given)) < 1e-12);
  assert_true(fabs(two.weight_gradient - one.weight_gradient - products / 2) < 1e-12);
  mt_device_layer_seconds(&device, model, HEAD, extents, &plain, &two);
  mt_device_layer_seconds(&device, model, HEAD, extents, &small, &one);
  assert_true(two.forward > 0 && one.forward == two.forward && one.input_gradient == two.input_gradient);
  mt_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_reduce_equals_measurements),
      cmocka_unit_test(test_collectives_follow_their_groups),
      cmocka_unit_test(test_collectives_of_a_mesh),
      cmocka_unit_test(test_layers_on_a_device),
      cmocka_unit_test(test_products_in_waves),
      cmocka_unit_test(test_products_in_float8),
      cmocka_unit_test(test_layers_in_float8),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

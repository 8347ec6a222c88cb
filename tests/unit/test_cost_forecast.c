/* Forecasts of layers, stages and states against closed forms: volumes of exchanges by formula, published bytes of
 * ZeRO, and sums over layers. */
#include "cost/exchange.h"
#include "cost/forecast.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static motet_error failure;
static const mt_collective_fit ideal = {.inside = 1, .between = 1}; /* no start-up: volumes alone */

enum { LAYERS = 4, HIDDEN = 512, HEADS = 8, TOKENS = 1024, BLOCK = 1, HEAD = LAYERS + 1 };
static const double ROW_BYTES = 2.0 * TOKENS * HIDDEN;

typedef struct fixture {
  mt_arena *arena;
  mt_architecture *model;
  mt_cluster cluster;
  mt_parallel parallel;
  mt_forecast forecast;
  double extents[MT_EXTENTS];
} fixture;

static int set_up(void **state) {
  static fixture f;
  static const char config[] = "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 512, \"n_head\": 8, "
                               "\"vocab_size\": 1000, \"resid_pdrop\": 0, \"embd_pdrop\": 0}";
  f = (fixture){.arena = mt_arena_create(), .parallel = mt_parallel_single()};
  if (mt_architecture_parse(f.arena, config, sizeof config - 1, "c", &failure, &f.model) != MOTET_OK) return 1;
  if (mt_cluster_preset("h100", 64, &failure, &f.cluster) != MOTET_OK) return 1;
  for (int l = 0; l < f.cluster.level_count; l++) f.cluster.levels[l].link.latency_seconds = 0;
  for (int l = 0; l < f.cluster.level_count; l++) f.cluster.levels[l].efficiency = 1;
  f.cluster.device.layer_host_seconds = 0;
  f.cluster.device.collective_units = 0;
  f.cluster.device.host_efficiency = 1;
  const int64_t tokens = TOKENS;
  const mt_shape shape = {.segments = &tokens, .segment_count = 1};
  if (mt_architecture_measure(f.model, &shape, &failure, f.extents) != MOTET_OK) return 1;
  f.forecast = (mt_forecast){
      .architecture = f.model, .cluster = &f.cluster, .parallel = &f.parallel, .fit = ideal, .microbatches = 4};
  *state = &f;
  return 0;
}

static int tear_down(void **state) {
  mt_arena_destroy(((fixture *)*state)->arena);
  return 0;
}

static void near(double found, double wanted) {
  if (fabs(found - wanted) > 1e-9 * fabs(wanted)) fail_msg("found %.12g, wanted %.12g", found, wanted);
}

static mt_exchange exchange_of(fixture *f, int layer) {
  mt_exchange exchange;
  mt_exchange_layer(&f->forecast, layer, f->extents, &exchange);
  return exchange;
}

/* Elements 4bsh(P - 1)/P a direction; with sequence parallelism as many, and 2bsh(P - 1)/P more for the weights. */
static void test_tensor_parallel_volumes(void **state) {
  fixture *f = *state;
  double node = f->cluster.levels[0].link.bytes_per_second, part = 3.0 / 4;
  f->parallel.tensor = 4;
  mt_exchange plain = exchange_of(f, BLOCK);
  near(plain.tensor, 4 * ROW_BYTES * part / node);
  near(plain.tensor_input, plain.tensor);
  assert_true(plain.regather == 0);
  f->parallel.sequence_parallel = true;
  mt_exchange rows = exchange_of(f, BLOCK);
  near(rows.tensor, plain.tensor);
  near(rows.regather, 2 * ROW_BYTES * part / node);
  mt_exchange head = exchange_of(f, HEAD);
  near(head.tensor, ROW_BYTES * part / node);
}

/* In four chunks behind the products: where these take forever the first chunk is left; where they take no time,
 * all is in the open. */
static void test_tensor_overlap(void **state) {
  fixture *f = *state;
  mt_layer_forecast plain, slow, fast;
  f->parallel.tensor = 4;
  f->parallel.sequence_parallel = true;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &plain);
  near(plain.forward_exchange, exchange_of(f, BLOCK).tensor);
  f->parallel.tensor_overlap = true;
  f->cluster.device.bfloat16_flops = 1e9;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &slow);
  near(slow.forward_exchange, plain.forward_exchange / 4);
  near(slow.input_exchange, plain.input_exchange / 4);
  f->cluster.device.bfloat16_flops = 1e30;
  f->cluster.device.memory_bytes_per_second = 1e30;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &fast);
  if (fabs(fast.forward_exchange / plain.forward_exchange - 1) > 1e-6) fail_msg("%g", fast.forward_exchange);
}

/* Design 04's table, full heads (g = 1): ring 2(bsh/P)(P - 1), back 4(P - 1) + 2; Ulysses 4(bsh/P)(P - 1)/P. */
static void test_context_parallel_volumes(void **state) {
  fixture *f = *state;
  double node = f->cluster.levels[0].link.bytes_per_second, part = ROW_BYTES / 4;
  f->parallel.ring = 4;
  mt_exchange ring = exchange_of(f, BLOCK);
  near(ring.ring, 2 * part * 3 / node);
  near(ring.ring_backward, (4 * 3 + 2) * part / node);
  f->cluster.levels[0].peers = 7; /* a mesh: one link to the next of the ring */
  near(exchange_of(f, BLOCK).ring, 2 * part * 3 / (node / 7));
  f->cluster.levels[0].peers = 0;
  assert_true(ring.forward == 0);
  f->parallel.ring = 1;
  f->parallel.ulysses = 4;
  mt_exchange ulysses = exchange_of(f, BLOCK);
  near(ulysses.forward, 4 * part * 3 / 4 / node);
  near(ulysses.input, ulysses.forward);
  f->parallel.ring = 2;
  f->parallel.ulysses = 2;
  mt_exchange both = exchange_of(f, BLOCK);
  near(both.forward, part * 4 * 1 / 2 / node);
  near(both.ring, part * 2 / node);
  assert_true(exchange_of(f, HEAD).ring == 0);
}

/* Bytes of arXiv 1910.02054, figure 1 (7.5e9 parameters, 64 replicas: 120, 31.4, 16.6, 1.9 GB), and of two levels
 * (shard group 8: 15.0; layered: 5.2). Held on one device, whatever the model: as bytes a parameter. */
static void test_zero_bytes(void **state) {
  fixture *f = *state;
  static const struct {
    int level, group;
    bool layered;
    double gigabytes;
  } rows[] = {{0, 0, false, 120},  {1, 0, false, 31.4}, {2, 0, false, 16.6},
              {3, 0, false, 1.88}, {3, 8, false, 15.0}, {1, 8, true, 5.16}};
  const mt_span whole = {.layer_end = LAYERS + 2};
  f->parallel.data = 64;
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    f->parallel.zero_level = rows[r].level;
    f->parallel.shard_group = rows[r].group;
    f->parallel.layered = rows[r].layered;
    mt_state_forecast held;
    mt_forecast_state(&f->forecast, &whole, 0, &held);
    double gigabytes = (double)held.static_bytes / held.parameters * 7.5;
    if (fabs(gigabytes / rows[r].gigabytes - 1) > 0.005)
      fail_msg("row %zu: %.2f GB, published %.2f", r, gigabytes, rows[r].gigabytes);
  }
}

/* 2 Psi elements a step whatever the level below 2; shards of layered ZeRO 2(Psi/Z)(G - 1)/G between nodes. */
static void test_reductions(void **state) {
  fixture *f = *state;
  const mt_span whole = {.layer_end = LAYERS + 2};
  double port = f->cluster.levels[1].link.bytes_per_second;
  mt_state_forecast held;
  f->parallel.data = 64;
  mt_forecast_state(&f->forecast, &whole, 0, &held);
  near(held.reduce_seconds, 2 * 2 * held.parameters * 63 / 64 / (8 * port));
  double all = held.reduce_seconds;
  assert_true(held.exposed_seconds == all);
  f->parallel.zero_level = 1;
  mt_forecast_state(&f->forecast, &whole, 1e3, &held);
  near(held.reduce_seconds, all);
  near(held.exposed_seconds, all / 8);
  f->parallel.shard_group = 8;
  f->parallel.layered = true;
  mt_forecast_state(&f->forecast, &whole, 0, &held);
  near(held.reduce_seconds, 2 * 2 * held.parameters / 8 * 7 / 8 / port);
}

/* Routed rows go to their experts and back, (n - 1)/n of them to others; each device holds its part of the experts,
 * and in the worst case computes and receives more rows than it brings. */
static void test_experts(void **state) {
  fixture *f = *state;
  static const char config[] =
      "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 2, \"hidden_size\": 512, \"num_attention_heads\": 8, "
      "\"num_key_value_heads\": 8, \"head_dim\": 64, \"vocab_size\": 1000, \"num_experts\": 16, "
      "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 256, \"intermediate_size\": 256}";
  assert_int_equal(mt_architecture_parse(f->arena, config, sizeof config - 1, "c", &failure, &f->model), MOTET_OK);
  f->forecast.architecture = f->model;
  const int64_t tokens = TOKENS;
  const mt_shape shape = {.segments = &tokens, .segment_count = 1};
  assert_int_equal(mt_architecture_measure(f->model, &shape, &failure, f->extents), MOTET_OK);
  double node = f->cluster.levels[0].link.bytes_per_second, experts = 16 * 3.0 * 512 * 256;
  mt_layer_forecast together, apart, worst;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &together);
  near(mt_exchange_parameters(&f->forecast, BLOCK).expert, experts);
  f->parallel.data = f->parallel.expert = 8;
  /* Both experts of a token lie on one of eight devices in an eighth of the cases: one row less to send. */
  double once = (2 - 1.0 / 8) / 2;
  near(exchange_of(f, BLOCK).forward, once * 2 * (2 * ROW_BYTES) * 7 / 8 / node);
  f->parallel.dispatch_copies = true;
  near(exchange_of(f, BLOCK).forward, 2 * (2 * ROW_BYTES) * 7 / 8 / node);
  mt_layer_parameters held = mt_exchange_parameters(&f->forecast, BLOCK);
  near(held.expert, experts / 8);
  assert_int_equal(held.expert_copies, 1);
  assert_int_equal(held.dense_copies, 8);
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &apart);
  /* Two experts a device and two for each token: everybody's tokens may come, eight times its own. */
  f->parallel.worst_routing = true;
  near(exchange_of(f, BLOCK).forward, 8 * 2 * (2 * ROW_BYTES) * 7 / 8 / node);
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &worst);
  assert_true(worst.forward > 1.5 * apart.forward && apart.forward_exchange > together.forward_exchange);
}

/* Weights of 2 bytes over 8 devices: gathered for each pass, hidden behind the pass where overlap is allowed. */
static void test_divided_weights(void **state) {
  fixture *f = *state;
  double node = f->cluster.levels[0].link.bytes_per_second;
  f->parallel.data = 8;
  f->parallel.zero_level = 3;
  double parameters = mt_exchange_parameters(&f->forecast, BLOCK).dense, once = 2 * parameters * 7 / 8 / node;
  near(exchange_of(f, BLOCK).gather, once);
  near(exchange_of(f, BLOCK).reduce, once);
  mt_layer_forecast open, hidden;
  f->parallel.overlap = false;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &open);
  near(open.forward_exchange, once);
  near(open.input_exchange + open.weight_exchange, 2 * once);
  f->parallel.overlap = true;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &hidden);
  near(hidden.forward_exchange, fmax(0, once - hidden.forward));
  near(hidden.input_exchange + hidden.weight_exchange,
       fmax(0, 2 * once - hidden.input_gradient - hidden.weight_gradient));
  near(hidden.hidden_exchange + hidden.forward_exchange + hidden.input_exchange + hidden.weight_exchange, 3 * once);
  assert_true(hidden.working_bytes == (int64_t)ceil(2 * 2 * parameters));
}

/* A collective that takes a tenth of the compute units costs a tenth of its time where compute hides it; gradients
 * that are sent in every microbatch are read in 2 bytes and written in 4. */
static void test_hidden_collectives_cost(void **state) {
  fixture *f = *state;
  mt_layer_forecast kept, free_of_cost, layer;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &kept);
  f->parallel.data = 8;
  f->parallel.zero_level = 3;
  f->parallel.float32_gradients = true;
  f->cluster.levels[0].link.bytes_per_second = 1e15; /* hidden for sure */
  double parameters = mt_exchange_parameters(&f->forecast, BLOCK).dense, once = 2 * parameters * 7 / 8 / 1e15;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &free_of_cost);
  assert_true(free_of_cost.forward_exchange == 0 && free_of_cost.weight_exchange == 0);
  const mt_device *device = &f->cluster.device;
  near(free_of_cost.weight_gradient - kept.weight_gradient,
       6 * parameters / (device->memory_bytes_per_second * device->memory_efficiency));
  f->cluster.device.collective_units = device->compute_units / 10;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &layer);
  near(layer.forward_exchange, once / 10);
  near(layer.input_exchange + layer.weight_exchange, (once + 2 * once) / 10);
}

/* A ring and gathered weights that each would just hide behind the same compute cannot both. */
static void test_what_hides_takes_turns(void **state) {
  fixture *f = *state;
  f->parallel.data = 4;
  f->parallel.ring = 2;
  f->parallel.zero_level = 3;
  double link = f->cluster.levels[0].link.bytes_per_second;
  for (double part = 1e-3; part < 100; part *= 1.3) {
    mt_layer_forecast layer;
    f->cluster.levels[0].link.bytes_per_second = part * link;
    mt_exchange exchange = exchange_of(f, BLOCK);
    mt_forecast_layer(&f->forecast, BLOCK, f->extents, &layer);
    double forward = exchange.forward + exchange.ring + exchange.gather;
    double backward = exchange.input + exchange.ring_backward + exchange.gather + exchange.reduce;
    assert_true(layer.forward + layer.forward_exchange >= forward * (1 - 1e-12));
    assert_true(layer.input_gradient + layer.weight_gradient + layer.input_exchange + layer.weight_exchange >=
                backward * (1 - 1e-12));
  }
}

/* Experts of a node's eight devices have their replicas in other nodes, one port each. Between two nodes a token
 * with two of sixteen experts crosses to a node of its experts once: 2(1 - 1/4) of nodes for 2 copies. */
static void test_experts_between_nodes(void **state) {
  fixture *f = *state;
  static const char config[] =
      "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"hidden_size\": 512, \"num_attention_heads\": 8, "
      "\"num_key_value_heads\": 8, \"vocab_size\": 1000, \"num_local_experts\": 16, \"num_experts_per_tok\": 2, "
      "\"intermediate_size\": 256}";
  assert_int_equal(mt_architecture_parse(f->arena, config, sizeof config - 1, "c", &failure, &f->model), MOTET_OK);
  f->forecast.architecture = f->model;
  const int64_t tokens = TOKENS;
  const mt_shape shape = {.segments = &tokens, .segment_count = 1};
  assert_int_equal(mt_architecture_measure(f->model, &shape, &failure, f->extents), MOTET_OK);
  double node = f->cluster.levels[0].link.bytes_per_second, port = f->cluster.levels[1].link.bytes_per_second;
  f->parallel.data = 64;
  f->parallel.expert = 8;
  f->parallel.zero_level = 3;
  mt_layer_parameters held = mt_exchange_parameters(&f->forecast, BLOCK);
  assert_int_equal(held.expert_copies, 8);
  assert_int_equal(held.expert_stride, 8);
  near(held.expert, 16 * 3.0 * 512 * 256 / 8);
  near(exchange_of(f, BLOCK).gather, 2 * held.expert * 7 / 8 / port + 2 * held.dense * 63 / 64 / (8 * port));
  f->parallel.zero_level = 0;
  f->parallel.expert = 16;
  double copies = 2 * ROW_BYTES, crossing = copies / 2 * 0.75 / port, inside = copies * (16 - 2) / 16 / node;
  assert_true(crossing > inside);
  near(exchange_of(f, BLOCK).forward, 2 * crossing);
  /* Routing that keeps a token's two experts on one node: half of the tokens cross, once. */
  f->parallel.routed_nodes = 1;
  near(exchange_of(f, BLOCK).forward, 2 * fmax(copies / 2 * 0.5 / port, inside));
  /* As a plain all-to-all sends them, half of the copies cross. */
  f->parallel.dispatch_copies = true;
  near(exchange_of(f, BLOCK).forward, 2 * copies / 2 / port);
}

static void test_spans_are_sums(void **state) {
  fixture *f = *state;
  uint8_t savings[LAYERS + 2] = {0, 0, MT_SAVING_INPUT, MT_SAVING_INPUT, MT_SAVING_SELECTIVE, 0};
  f->forecast.savings = savings;
  f->parallel.tensor = 2;
  f->model->model->layers[2].trainable = false;
  const mt_span span = {.layer_end = LAYERS + 2, .first_trainable = 1};
  double forward = 0, input = 0, weight = 0, again = 0;
  int64_t saved = 0;
  for (int l = 0; l < LAYERS + 2; l++) {
    mt_layer_forecast layer;
    mt_forecast_layer(&f->forecast, l, f->extents, &layer);
    forward += layer.forward + layer.forward_exchange;
    if (l < 1) continue;
    if (l > 1) input += layer.input_gradient + layer.input_exchange;
    if (l != 2) weight += layer.weight_gradient + layer.weight_exchange;
    again += layer.recompute + layer.recompute_exchange;
    saved += l == 2 ? layer.passed_bytes : layer.saved_bytes;
    if (savings[l] == MT_SAVING_INPUT) assert_true(layer.saved_bytes == (int64_t)ROW_BYTES);
  }
  mt_span_forecast sum;
  mt_forecast_span(&f->forecast, &span, f->extents, &sum);
  near(sum.seconds[MT_COST_FORWARD], forward);
  near(sum.seconds[MT_COST_BACKWARD_X], input + again);
  near(sum.seconds[MT_COST_BACKWARD_W], weight);
  near(sum.seconds[MT_COST_BACKWARD], input + weight + again);
  assert_true(again > 0 && sum.saved_bytes == saved);
  f->model->model->layers[2].trainable = true;
  /* A module whose outputs are cached neither computes nor holds anything. */
  const mt_span cached = {.layer_end = LAYERS + 2, .first_trainable = 1, .absent = 1};
  mt_state_forecast held;
  mt_forecast_span(&f->forecast, &cached, f->extents, &sum);
  mt_forecast_state(&f->forecast, &cached, 0, &held);
  assert_true(sum.seconds[MT_COST_FORWARD] == 0 && sum.seconds[MT_COST_BACKWARD] == 0 && sum.saved_bytes == 0);
  assert_true(held.static_bytes == 0 && held.optimizer_seconds == 0);
}

/* Microbatches that are computed together take what one of all their rows does, each in proportion to what it would
 * take alone. */
static void test_what_is_computed_together_is_shared_out(void **state) {
  fixture *f = *state;
  const mt_span span = {.layer_end = LAYERS + 2, .first_trainable = 0};
  double all[MT_EXTENTS], half[MT_EXTENTS];
  for (int e = 0; e < MT_EXTENTS; e++) half[e] = f->extents[e] / 2, all[e] = f->extents[e] + half[e];
  mt_span_forecast parts[2], alone[2], together;
  mt_forecast_span(&f->forecast, &span, f->extents, &parts[0]);
  mt_forecast_span(&f->forecast, &span, half, &parts[1]);
  mt_forecast_span(&f->forecast, &span, all, &together);
  memcpy(alone, parts, sizeof alone);
  mt_forecast_share(&together, 2, parts);
  for (int k = MT_COST_FORWARD; k <= MT_COST_BACKWARD_W; k++) {
    near(parts[0].seconds[k] + parts[1].seconds[k], together.seconds[k]);
    near(parts[0].seconds[k] * alone[1].seconds[k], parts[1].seconds[k] * alone[0].seconds[k]);
  }
  assert_true(together.seconds[MT_COST_FORWARD] <
              alone[0].seconds[MT_COST_FORWARD] + alone[1].seconds[MT_COST_FORWARD]);
  near((double)(parts[0].saved_bytes + parts[1].saved_bytes), (double)together.saved_bytes);
  assert_int_equal(parts[1].working_bytes, together.working_bytes);
}

/* Seven pictures on four devices: the fullest has two of them. Rows of context ranks divide evenly. */
static void test_whole_pictures(void **state) {
  (void)state;
  mt_parallel parallel = mt_parallel_single();
  double extents[MT_EXTENTS] = {[MT_ROWS_PATCHES] = 7 * 256, [MT_AREA_PICTURE] = 7 * 256 * 256};
  parallel.samples = 4;
  near(mt_exchange_parts(&parallel, extents), 7.0 / 2);
  parallel.samples = 8;
  near(mt_exchange_parts(&parallel, extents), 7);
  parallel.ring = 2;
  near(mt_exchange_parts(&parallel, extents), 14);
  parallel.samples = 1;
  near(mt_exchange_parts(&parallel, extents), 2);
}

/* Activations that leave and come back at 1 TB/s hide; at 1 GB/s they stand in the open, both ways. */
static void test_host_memory(void **state) {
  fixture *f = *state;
  uint8_t savings[LAYERS + 2] = {0, MT_SAVING_HOST};
  mt_layer_forecast kept, there;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &kept);
  f->forecast.savings = savings;
  f->cluster.device.host_bytes_per_second = 1e12;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &there);
  assert_true(there.forward_exchange == 0 && there.saved_bytes < kept.saved_bytes / 2);
  f->cluster.device.host_bytes_per_second = 1e9;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &there);
  near(there.forward_exchange, (double)kept.saved_bytes / 1e9 - kept.forward);
  f->cluster.device.host_efficiency = 0.5;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &there);
  near(there.forward_exchange, (double)kept.saved_bytes / 0.5e9 - kept.forward);
  f->cluster.device.host_efficiency = 1;
  /* Weights that are gathered for the layer do not travel with its activations. */
  f->parallel.data = 64;
  f->parallel.zero_level = 3;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &kept);
  f->cluster.device.host_bytes_per_second = 5e8;
  mt_forecast_layer(&f->forecast, BLOCK, f->extents, &there);
  assert_true(there.working_bytes > there.host_bytes);
  near(there.forward_exchange - kept.forward_exchange, (double)there.host_bytes / 1e9);
}

/* States in host memory leave 12 bytes a parameter of the device; eight buckets come in, are updated and go out. */
static void test_optimizer_in_host_memory(void **state) {
  enum { PARTS = 8 };
  fixture *f = *state;
  const mt_span span = {.layer_end = LAYERS + 2, .first_trainable = 0};
  for (int i = 0; i < 3; i++) {
    f->parallel.data = i == 2 ? 64 : 1;
    f->parallel.zero_level = i == 2 ? 1 : 0;
    f->parallel.host_optimizer = false;
    f->cluster.device.host_bytes_per_second = i == 0 ? 1e12 : 1e10; /* the update, or the way, is longer */
    mt_state_forecast here, there;
    mt_forecast_state(&f->forecast, &span, 0, &here);
    f->parallel.host_optimizer = true;
    mt_forecast_state(&f->forecast, &span, 0, &there);
    double states = 12 * here.trainable_parameters / f->parallel.data;
    double way = states / f->cluster.device.host_bytes_per_second / PARTS, update = here.optimizer_seconds / PARTS;
    double in = 0, updated = 0, out = 0;
    for (int part = 0; part < PARTS; part++) {
      in += way;
      updated = fmax(in, updated) + update;
      out = fmax(updated, out) + way;
    }
    assert_true(here.host_bytes == 0 && (way < update) == (i == 0));
    assert_true(fabs((double)(here.static_bytes - there.static_bytes) - states) <= 1);
    assert_true(fabs((double)there.host_bytes - states) <= 1);
    near(there.optimizer_seconds, out);
  }
}

static void test_what_does_not_fit_is_refused(void **state) {
  fixture *f = *state;
  f->parallel.tensor = 8;
  f->parallel.data = 8;
  assert_int_equal(mt_parallel_check(&f->parallel, &f->cluster, &failure), MOTET_OK);
  f->parallel.shard_group = 3;
  assert_int_equal(mt_parallel_check(&f->parallel, &f->cluster, &failure), MOTET_ERROR_ARGUMENT);
  f->parallel.shard_group = 0;
  f->parallel.expert = 3;
  assert_int_equal(mt_parallel_check(&f->parallel, &f->cluster, &failure), MOTET_ERROR_ARGUMENT);
  f->parallel.expert = 1;
  f->parallel.pipeline = 2;
  assert_int_equal(mt_parallel_check(&f->parallel, &f->cluster, &failure), MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(failure.text, "64 devices"));
  f->parallel.pipeline = 1;
  f->parallel.ring = 0;
  assert_int_equal(mt_parallel_check(&f->parallel, &f->cluster, &failure), MOTET_ERROR_ARGUMENT);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {TEST(test_tensor_parallel_volumes),
                                     TEST(test_context_parallel_volumes),
                                     TEST(test_zero_bytes),
                                     TEST(test_reductions),
                                     TEST(test_experts),
                                     TEST(test_tensor_overlap),
                                     TEST(test_hidden_collectives_cost),
                                     TEST(test_what_hides_takes_turns),
                                     TEST(test_experts_between_nodes),
                                     TEST(test_divided_weights),
                                     TEST(test_spans_are_sums),
                                     TEST(test_what_is_computed_together_is_shared_out),
                                     TEST(test_whole_pictures),
                                     TEST(test_host_memory),
                                     TEST(test_optimizer_in_host_memory),
                                     TEST(test_what_does_not_fit_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

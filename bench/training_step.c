/* Number 16, one thread: a training step of a small InternVL beside the processor's peak. Seconds are the thread's,
 * so that a busy machine does not count; work is what the model needs, without what is computed twice. */
#include "nn/network.h"
#include "tensor/matmul.h"
#include "tensor/parallel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static void stop_on(motet_status status, const motet_error *error) {
  if (status == MOTET_OK) return;
  fprintf(stderr, "bench: %s\n", error->text);
  exit(3);
}

static void *zeroed(size_t count, size_t size) {
  void *memory = calloc(count, size);
  if (memory == NULL) exit(3);
  return memory;
}

static float *ramp(int64_t count) {
  float *data = zeroed((size_t)count, sizeof *data);
  for (int64_t i = 0; i < count; i++) data[i] = (float)(i * 7919 % 1000) / 500.0F - 1.0F;
  return data;
}

static void print_row(const char *what, double flops, double seconds, double peak) {
  printf("| %-54s | %8.1f | %8.1f | %5.1f %% |\n", what, seconds * 1e3, flops / seconds / 1e9,
         100 * flops / seconds / peak);
}

/* FLOP a second of chains of fused multiply-adds in registers; 0 where that is not known. */
#if defined(__x86_64__)
__attribute__((target("avx512f"))) static double chains(void) {
  enum { CHAINS = 12, ROUNDS = 10 << 20, LANES = 16 };
  __m512 x[CHAINS];
  const __m512 a = _mm512_set1_ps(0.999F), b = _mm512_set1_ps(0.001F);
  for (int i = 0; i < CHAINS; i++) x[i] = _mm512_set1_ps((float)i);
  const double begin = now();
  for (int round = 0; round < ROUNDS; round++)
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) x[i] = _mm512_fmadd_ps(x[i], a, b);
  const double seconds = now() - begin;
  volatile float used = 0;
  for (int i = 0; i < CHAINS; i++) used = used + _mm512_reduce_add_ps(x[i]);
  return 2.0 * CHAINS * ROUNDS * LANES / seconds;
}

static double measure_chains(void) {
  double best = 0;
  for (int i = 0; i < 5 && __builtin_cpu_supports("avx512f"); i++) best = fmax(best, chains());
  return best;
}
#else
static double measure_chains(void) { return 0; }
#endif

/* FLOP a second of a large product. */
static double measure_product(const mt_device *device) {
  enum { SIZE = 1024 };
  float *a = ramp(SIZE * SIZE), *b = ramp(SIZE * SIZE), *c = ramp(SIZE * SIZE);
  const mt_matmul product = {.m = SIZE,
                             .n = SIZE,
                             .k = SIZE,
                             .a = a,
                             .b = b,
                             .c = c,
                             .a_stride = SIZE,
                             .b_stride = SIZE,
                             .c_stride = SIZE};
  double best = INFINITY;
  for (int i = 0; i < 8; i++) {
    motet_error error;
    const double begin = now();
    stop_on(mt_matmul_run(device->backend, device->team, &product, &error), &error);
    best = fmin(best, now() - begin);
  }
  free(a), free(b), free(c);
  return 2.0 * SIZE * SIZE * SIZE / best;
}

static void bench_attention(const mt_device *device, int32_t heads, int32_t kv_heads, int32_t length, bool causal,
                            double peak) {
  enum { DIM = 64 };
  const int64_t wide = heads * DIM, narrow = kv_heads * DIM, stride = wide + 2 * narrow;
  const int32_t begin[2] = {0, length};
  float *qkv = ramp(length * stride), *gradient = ramp(length * stride), *out = ramp(length * wide);
  float *dy = ramp(length * wide), *log_sum = ramp((int64_t)length * heads);
  motet_error error;
  const mt_attention attention = {.query = qkv,
                                  .key = qkv + wide,
                                  .value = qkv + wide + narrow,
                                  .query_stride = stride,
                                  .key_stride = stride,
                                  .value_stride = stride,
                                  .heads = heads,
                                  .kv_heads = kv_heads,
                                  .head_dim = DIM,
                                  .segments = 1,
                                  .segment_begin = begin,
                                  .causal = causal,
                                  .scale = 0.125F};
  const mt_attention_gradients gradients = {.output = out,
                                            .output_gradient = dy,
                                            .output_stride = wide,
                                            .output_gradient_stride = wide,
                                            .log_sum = log_sum,
                                            .query = gradient,
                                            .key = gradient + wide,
                                            .value = gradient + wide + narrow,
                                            .query_stride = stride,
                                            .key_stride = stride,
                                            .value_stride = stride};
  double forward = INFINITY, backward = INFINITY;
  for (int i = 0; i < 4; i++) {
    const double start = now();
    stop_on(mt_parallel_attention_forward(device, &attention, out, wide, log_sum, &error), &error);
    const double middle = now();
    stop_on(mt_parallel_attention_backward(device, &attention, &gradients, &error), &error);
    forward = fmin(forward, middle - start);
    backward = fmin(backward, now() - middle);
  }
  const double flops = 4.0 * (double)wide * length * length * (causal ? 0.5 : 1.0);
  char name[64];
  snprintf(name, sizeof name, "attention %s, %d rows, %d/%d heads of %d, forward", causal ? "causal" : "full",
           length, heads, kv_heads, DIM);
  print_row(name, flops, forward, peak);
  snprintf(name, sizeof name, "  the same, backward");
  print_row(name, 2.5 * flops, backward, peak);
  free(qkv), free(gradient), free(out), free(dy), free(log_sum);
}

static mt_internvl small_model(void) {
  return (mt_internvl){.vision = {.layers = 4,
                                  .hidden = 384,
                                  .intermediate = 1536,
                                  .heads = 6,
                                  .image_size = 224,
                                  .patch_size = 14,
                                  .channels = 3,
                                  .norm_epsilon = 1e-6F,
                                  .qkv_bias = true},
                       .decoder = {.layers = 6,
                                   .hidden = 768,
                                   .intermediate = 3072,
                                   .heads = 12,
                                   .kv_heads = 4,
                                   .head_dim = 64,
                                   .vocabulary = 8192,
                                   .norm_epsilon = 1e-6F,
                                   .rope_theta = 1e6,
                                   .attention_bias = true},
                       .downsample_ratio = 0.5F,
                       .vision_select_layer = -1,
                       .tokens_per_tile = 64};
}

/* Six operations for every matrix element and row that passes it, and attention's. */
static double step_flops(mt_network *network, const mt_internvl *config, const mt_batch *batch) {
  double flops = 0;
  for (int32_t i = 0; i < mt_network_parameter_count(network); i++) {
    const mt_parameter *parameter = mt_network_parameter(network, i);
    int32_t block;
    const mt_internvl_kind kind = mt_internvl_layer_kind(config, parameter->layer, &block);
    if (!parameter->decay || kind == MT_INTERNVL_TOKEN_EMBED) continue;
    const double rows = kind <= MT_INTERNVL_VISION_BLOCK ? batch->tiles * 257.0
                        : kind == MT_INTERNVL_PROJECTOR  ? batch->tiles * 64.0
                                                         : batch->tokens;
    flops += 6.0 * (double)parameter->count * rows;
  }
  const double tile = 257.0 * 257.0 * config->vision.hidden * config->vision.layers * batch->tiles;
  double rows = 0;
  for (int32_t s = 0; s < batch->segments; s++)
    rows += pow(batch->segment_begin[s + 1] - batch->segment_begin[s], 2) / 2;
  return flops + 14.0 * (tile + rows * config->decoder.hidden * config->decoder.layers);
}

static void bench_step(int32_t text, int32_t tiles, double peak) {
  const mt_internvl config = small_model();
  const int32_t layers = mt_internvl_layer_count(&config), tokens = text + tiles * config.tokens_per_tile;
  bool all[64];
  for (int i = 0; i < 64; i++) all[i] = true;
  motet_error error;
  mt_network *network;
  stop_on(mt_network_create(&config, all, all, &error, &network), &error);
  mt_network_initialize(network, 1);
  int32_t *ids = zeroed((size_t)tokens, sizeof *ids), *labels = zeroed((size_t)tokens, sizeof *labels);
  int32_t *rows = zeroed((size_t)(tiles * config.tokens_per_tile), sizeof *rows);
  const int32_t begin[3] = {0, tokens / 2, tokens};
  for (int32_t t = 0; t < tokens; t++) ids[t] = t * 37 % 8192, labels[t] = (t * 53 + 1) % 8192;
  for (int32_t f = 0; f < tiles * config.tokens_per_tile; f++) rows[f] = f;
  float *pixels = ramp((int64_t)tiles * 3 * 224 * 224);
  const mt_batch batch = {.tokens = tokens,
                          .segments = 2,
                          .segment_begin = begin,
                          .tiles = tiles,
                          .token_ids = ids,
                          .labels = labels,
                          .feature_rows = rows,
                          .pixels = pixels,
                          .loss_weight = 1.0 / tokens};
  const mt_adamw options = {1e-4, 0.9, 0.95, 1e-8, 0.1};
  mt_arena *arena = mt_arena_create();
  double best[4] = {INFINITY, INFINITY, INFINITY, INFINITY}; /* forward, backward, optimizer, all */
  for (int step = 1; step <= 5; step++) {
    mt_saved *saved;
    double loss = 0;
    mt_arena_reset(arena);
    const double start = now();
    stop_on(mt_network_forward(network, 0, layers, &batch, NULL, NULL, true, 0, arena, &error, &saved, &loss),
            &error);
    const double middle = now();
    stop_on(mt_network_backward(network, 0, layers, 0, &batch, saved, NULL, NULL, &error), &error);
    const double behind = now();
    stop_on(mt_network_adamw(network, &options, step, 1.0, &error), &error);
    mt_network_zero_gradients(network);
    const double end = now();
    const double times[4] = {middle - start, behind - middle, end - behind, end - start};
    for (int i = 0; i < 4; i++) best[i] = fmin(best[i], times[i]);
  }
  const double flops = step_flops(network, &config, &batch);
  char name[64];
  snprintf(name, sizeof name, "step, %d tokens, %d tiles", tokens, tiles);
  print_row(name, flops, best[3], peak);
  print_row("  forward", flops / 3, best[0], peak);
  print_row("  backward", flops * 2 / 3, best[1], peak);
  printf("| %-54s | %8.1f |          |         |\n", "  AdamW and zeroing", best[2] * 1e3);
  mt_arena_destroy(arena);
  mt_network_destroy(network);
  free(ids), free(labels), free(rows), free(pixels);
}

int main(void) {
  motet_error error;
  mt_device device = {.backend = mt_tensor_backend_cpu(MT_ELEMENT_FLOAT32)};
  stop_on(mt_team_create(1, &error, &device.team), &error);
  const double chained = measure_chains(), product = measure_product(&device);
  const double peak = fmax(chained, product);
  printf("float32, one thread, %s kernels; peak %.1f GFLOP/s (%s)\n\n", device.backend->name, peak / 1e9,
         chained >= product ? "multiply-adds in registers" : "the product below");
  printf("| %-54s | %8s | %8s | %7s |\n", "what", "ms", "GFLOP/s", "of peak");
  printf("|--------------------------------------------------------|----------|----------|---------|\n");
  print_row("product 1024 x 1024 x 1024", 0x1p31, 0x1p31 / product, peak);
  bench_attention(&device, 16, 16, 1025, false, peak);
  bench_attention(&device, 14, 2, 2048, true, peak);
  bench_step(256, 2, peak);
  bench_step(1024, 4, peak);
  mt_team_destroy(device.team);
  return 0;
}

/*
 * Context parallelism on the ranks that mpirun starts: how much of the ring's messages hides behind attention, and
 * training steps over real texts of very different length (this source tree's), with groups of flexible degree
 * against all ranks in one ring. Computation is counted in the processor time of the busiest rank, so that a busy
 * machine does not count; waits and messages are the least wall times of some rounds. Both plans run in turn.
 */
#include "base/array.h"
#include "base/clock.h"
#include "comm/collective.h"
#include "data/tokenizer.h"
#include "motet/pack.h"
#include "nn/context_attention.h"
#include "nn/network.h"
#include "train/context_exchange.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 64, HEADS = 14, KV_HEADS = 2, DIM = 64, ROUNDS = 5 };

static mt_transport *transport;
static mt_context_exchange exchange;
static motet_error error;

static void must(motet_status status) {
  if (status == MOTET_OK) return;
  mt_transport_fail(transport, &error);
  fprintf(stderr, "bench: %s\n", error.text);
  exit(3);
}

static void *zeroed(size_t count, size_t size) {
  void *memory = calloc(count + 1, size);
  if (memory == NULL) exit(3);
  return memory;
}

static int32_t all_ranks[RANKS_MAX];

static mt_rank_group everyone(void) {
  return (mt_rank_group){.number = 0, .count = transport->ranks, .ranks = all_ranks};
}

static void meet(void) {
  const mt_rank_group all = everyone();
  must(mt_barrier(transport, &all, &error));
}

/* The largest of every rank's value, on rank 0. */
static double slowest(double value) {
  const mt_rank_group all = everyone();
  double values[RANKS_MAX] = {0};
  must(mt_gather(transport, &all, &value, sizeof value, values, &error));
  for (int32_t i = 1; i < transport->ranks; i++) value = fmax(value, values[i]);
  return value;
}

static double least(const double *values, int count) {
  double best = values[0];
  for (int i = 1; i < count; i++) best = fmin(best, values[i]);
  return best;
}

static float *ramp(int64_t count) {
  float *data = zeroed((size_t)count, sizeof *data);
  for (int64_t i = 0; i < count; i++) data[i] = (float)(i * 7919 % 1000) / 500.0F - 1.0F;
  return data;
}

/* Only the messages of one direction of the ring: `floats` to the next rank, `times` times. */
static double messages_alone(float *block, int64_t floats, int times) {
  const int32_t rank = transport->rank, ranks = transport->ranks;
  meet();
  const double begin = mt_clock_seconds();
  for (int i = 0; i < times; i++) {
    mt_transfer *in, *out;
    const size_t bytes = (size_t)floats * sizeof *block;
    must(mt_transport_recv(transport, (rank + ranks - 1) % ranks, MT_TAG_TRANSFER, block + floats, bytes, &error,
                           &in));
    must(mt_transport_send(transport, (rank + 1) % ranks, MT_TAG_TRANSFER, block, bytes, &error, &out));
    must(mt_transport_wait(transport, in, &error));
    must(mt_transport_wait(transport, out, &error));
  }
  return mt_clock_seconds() - begin;
}

typedef struct ring_times {
  double work, wait, messages;
} ring_times;

static void print_ring(int32_t tokens, const char *direction, double alone, const ring_times *t) {
  if (transport->rank != 0) return;
  printf("| %6d | %-8s | %9.2f | %9.2f | %10.2f | %10.3f | %10.3f | %6.0f %% |\n", tokens, direction, alone * 1e3,
         t->work * 1e3, alone / t->work, t->messages * 1e3, t->wait * 1e3,
         100 * fmax(0, 1 - t->wait / t->messages));
}

/* Attention over a row of `tokens`, alone (ring of one) or over all ranks; medians of both directions. */
static void time_attention(int32_t tokens, int32_t degree, ring_times times[2]) {
  const int64_t width = (HEADS + 2 * KV_HEADS) * DIM, wide = HEADS * DIM;
  const int32_t begin[2] = {0, tokens};
  mt_arena *arena = mt_arena_create();
  mt_context *context;
  mt_context_counts counts = {0};
  mt_device device = {.backend = mt_tensor_backend_cpu(MT_ELEMENT_FLOAT32)};
  must(mt_team_create(1, &error, &device.team));
  must(
      mt_context_zigzag(arena, 1, degree, degree > 1 ? transport->rank : 0, all_ranks, 1, begin, &error, &context));
  context->exchange = &exchange;
  context->counts = &counts;
  const mt_context_attention attention = {.context = context,
                                          .device = &device,
                                          .heads = HEADS,
                                          .kv_heads = KV_HEADS,
                                          .head_dim = DIM,
                                          .causal = true,
                                          .scale = 0.125F};
  const int64_t rows = mt_context_tokens(context, context->index);
  float *qkv = ramp(rows * width), *output = ramp(rows * wide), *dy = ramp(rows * wide),
        *gradient = ramp(rows * width);
  float *saved = zeroed(mt_context_attention_saved(&attention), sizeof *saved);
  float *scratch = zeroed(mt_context_attention_scratch(&attention), sizeof *scratch);
  float *block = ramp(2 * 2 * KV_HEADS * DIM * rows);
  double samples[2][3][ROUNDS];
  for (int round = 0; round < ROUNDS; round++)
    for (int d = 0; d < 2; d++) {
      meet();
      counts = (mt_context_counts){0};
      const double start = mt_clock_thread_seconds();
      must(d == 0 ? mt_context_attention_forward(&attention, qkv, saved, scratch, output, &error)
                  : mt_context_attention_backward(&attention, qkv, output, dy, saved, scratch, gradient, &error));
      samples[d][0][round] = slowest(mt_clock_thread_seconds() - start);
      samples[d][1][round] = slowest(counts.wait_seconds);
      samples[d][2][round] =
          degree == 1
              ? 0
              : slowest(messages_alone(block, rows * 2 * KV_HEADS * DIM, d == 0 ? degree - 1 : 2 * degree - 1));
    }
  for (int d = 0; d < 2; d++)
    times[d] = (ring_times){.work = least(samples[d][0], ROUNDS),
                            .wait = least(samples[d][1], ROUNDS),
                            .messages = least(samples[d][2], ROUNDS)};
  free(qkv), free(output), free(dy), free(gradient), free(saved), free(scratch), free(block);
  mt_team_destroy(device.team);
  mt_arena_destroy(arena);
}

static void bench_ring(void) {
  if (transport->rank == 0) {
    printf("Causal attention over a ring of %d ranks, %d/%d heads of %d: processor time of a rank that computes "
           "the row\n"
           "alone, and of the busiest in the ring; messages without attention; waits for them beside it; ms\n\n",
           transport->ranks, HEADS, KV_HEADS, DIM);
    printf("| tokens | pass     |     alone |      ring |      speed |   messages |      waits |   hidden |\n");
    printf("|--------|----------|-----------|-----------|------------|------------|------------|----------|\n");
  }
  for (int32_t tokens = 512; tokens <= 2048; tokens *= 2) {
    ring_times alone[2], ring[2];
    time_attention(tokens, 1, alone);
    time_attention(tokens, transport->ranks, ring);
    print_ring(tokens, "forward", alone[0].work, &ring[0]);
    print_ring(tokens, "backward", alone[1].work, &ring[1]);
  }
}

enum { DOCUMENTS_MAX = 4096, BATCH = 12, STEPS = 5, MEMORY_TOKENS = 2048, FIRST = 3 };

typedef struct documents {
  mt_tokens tokens;
  int32_t count;
  int64_t begin[DOCUMENTS_MAX + 1];
} documents;

static void add_document(documents *all, const mt_tokenizer *tokenizer, const char *text, size_t bytes) {
  if (bytes < 32 || all->count == DOCUMENTS_MAX) return;
  must(mt_tokenizer_encode(tokenizer, text, bytes, &error, &all->tokens));
  const size_t most = (size_t)all->begin[all->count] + (size_t)(MEMORY_TOKENS * transport->ranks);
  if (all->tokens.count > most) all->tokens.count = most;
  all->begin[++all->count] = (int64_t)all->tokens.count;
}

/* The tree's headers and sources, and the paragraphs of its pages, as tokens; cut to what the ranks' memory takes
 * together. */
static void read_documents(documents *all) {
  static const char *const patterns[] = {"docs/*.md", "docs/formats/*.md", "README.md", "include/motet/*.h",
                                         "src/*/*.[ch]"};
  mt_tokenizer *tokenizer;
  glob_t found;
  must(mt_tokenizer_read("examples/demo/tokenizer.json", &error, &tokenizer));
  for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++)
    if (glob(patterns[p], p > 0 ? GLOB_APPEND : 0, NULL, &found) != 0) exit(3);
  for (size_t i = 0; i < found.gl_pathc; i++) {
    static char text[1 << 20];
    FILE *file = fopen(found.gl_pathv[i], "rb");
    if (file == NULL) continue;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *name = found.gl_pathv[i], *at = text;
    const bool page = strcmp(name + strlen(name) - 3, ".md") == 0;
    for (const char *end; page && (end = strstr(at, "\n\n")) != NULL; at = end + 2)
      add_document(all, tokenizer, at, (size_t)(end - at));
    add_document(all, tokenizer, at, strlen(at));
  }
  globfree(&found);
  mt_tokenizer_destroy(tokenizer);
}

static mt_internvl text_model(void) {
  return (mt_internvl){.vision = {.layers = 1,
                                  .hidden = 16,
                                  .intermediate = 16,
                                  .heads = 1,
                                  .image_size = 28,
                                  .patch_size = 14,
                                  .channels = 3,
                                  .norm_epsilon = 1e-6F},
                       .decoder = {.layers = 4,
                                   .hidden = 192,
                                   .intermediate = 512,
                                   .heads = 3,
                                   .kv_heads = 1,
                                   .head_dim = 64,
                                   .vocabulary = 2000,
                                   .norm_epsilon = 1e-6F,
                                   .rope_theta = 1e6,
                                   .attention_bias = true},
                       .downsample_ratio = 0.5F,
                       .vision_select_layer = -1,
                       .tokens_per_tile = 1};
}

typedef struct trainer {
  mt_internvl config;
  mt_network *network;
  mt_arena *arena;
  const documents *all;
} trainer;

/* The group's documents as one packed row, this rank's share of it, forward and backward. */
static void run_group(trainer *t, const motet_pack_plan *plan, const motet_pack_group *group, const int32_t *batch,
                      double weight, double *loss) {
  const int32_t *ranks = plan->ranks + group->rank_first, *members = plan->sequences + group->sequence_first;
  int32_t place = -1, *begin = MT_ARENA_NEW(t->arena, int32_t, group->sequence_count + 1);
  for (int32_t i = 0; i < group->degree; i++)
    if (ranks[i] == transport->rank) place = i;
  if (place < 0) return;
  int32_t *ids = MT_ARENA_NEW(t->arena, int32_t, group->tokens),
          *labels = MT_ARENA_NEW(t->arena, int32_t, group->tokens);
  for (int32_t s = 0; s < group->sequence_count; s++) {
    const int64_t first = t->all->begin[batch[members[s]]], count = t->all->begin[batch[members[s]] + 1] - first;
    for (int64_t i = 0; i < count; i++) {
      ids[begin[s] + i] = t->all->tokens.data[first + i];
      labels[begin[s] + i] = i + 1 < count ? t->all->tokens.data[first + i + 1] : -100;
    }
    begin[s + 1] = begin[s] + (int32_t)count;
  }
  mt_batch whole = {.tokens = (int32_t)group->tokens,
                    .segments = group->sequence_count,
                    .segment_begin = begin,
                    .token_ids = ids,
                    .labels = labels,
                    .loss_weight = weight};
  if (group->degree > 1) {
    mt_context *context;
    mt_batch share;
    must(mt_context_zigzag(t->arena, 1, group->degree, place, ranks, whole.segments, begin, &error, &context));
    context->exchange = &exchange;
    must(mt_context_share(context, &whole, 0, t->arena, &error, &share));
    whole = share;
  }
  const int32_t layers = mt_internvl_layer_count(&t->config);
  mt_saved *saved;
  must(mt_network_forward(t->network, FIRST, layers, &whole, NULL, NULL, true, FIRST, t->arena, &error, &saved,
                          loss));
  must(mt_network_backward(t->network, FIRST, layers, FIRST, &whole, saved, NULL, NULL, &error));
}

/* One step without the optimizer, which is the same for both: all groups of this rank, then the gradients' sum. */
static double run_step(trainer *t, motet_packer *packer, const motet_pack_sequence *sequences, const int32_t *batch,
                       double *loss, double *work, int64_t *wide) {
  static mt_collective_scratch scratch;
  const mt_rank_group all = everyone();
  const motet_pack_plan *plan;
  *loss = 0;
  must(motet_packer_plan(packer, sequences, BATCH, &error, &plan));
  mt_network_zero_gradients(t->network);
  meet();
  const double begin = mt_clock_seconds(), idle = mt_clock_thread_seconds();
  for (int64_t g = 0; g < plan->group_count; g++) {
    mt_arena_reset(t->arena);
    run_group(t, plan, &plan->groups[g], batch, 1.0 / (double)plan->loss_denominator, loss);
    if (plan->groups[g].degree > 1) *wide += plan->groups[g].tokens;
  }
  *work = slowest(mt_clock_thread_seconds() - idle);
  for (int32_t i = 0; i < mt_network_parameter_count(t->network); i++) {
    mt_parameter *parameter = mt_network_parameter(t->network, i);
    if (parameter->gradient != NULL)
      must(mt_all_reduce_floats(transport, &all, parameter->gradient, (size_t)parameter->count, &scratch, &error));
  }
  const double seconds = slowest(mt_clock_seconds() - begin);
  must(mt_all_reduce_doubles(transport, &all, loss, 1, &scratch, &error));
  return seconds;
}

/* Least seconds of some of one row of `tokens`: by this rank alone, or in a ring of all until the last is done. */
static double time_row(trainer *t, int32_t tokens, int32_t degree) {
  static int32_t ids[MEMORY_TOKENS];
  const int32_t begin[2] = {0, tokens}, layers = mt_internvl_layer_count(&t->config);
  double best = INFINITY;
  for (int i = 0; i < 5; i++) {
    mt_batch row = {
        .tokens = tokens, .segments = 1, .segment_begin = begin, .token_ids = ids, .labels = ids, .loss_weight = 1};
    mt_saved *saved;
    double loss = 0;
    mt_arena_reset(t->arena);
    if (degree > 1) {
      mt_context *context;
      mt_batch share;
      must(mt_context_zigzag(t->arena, 1, degree, transport->rank, all_ranks, 1, begin, &error, &context));
      context->exchange = &exchange;
      must(mt_context_share(context, &row, 0, t->arena, &error, &share));
      row = share;
      meet();
    }
    const double start = degree > 1 ? mt_clock_seconds() : mt_clock_thread_seconds();
    must(mt_network_forward(t->network, FIRST, layers, &row, NULL, NULL, true, FIRST, t->arena, &error, &saved,
                            &loss));
    must(mt_network_backward(t->network, FIRST, layers, FIRST, &row, saved, NULL, NULL, &error));
    best = fmin(best, degree > 1 ? slowest(mt_clock_seconds() - start) : mt_clock_thread_seconds() - start);
  }
  return best;
}

/* fixed + linear * tokens + attention * tokens^2 / 2 through three rows, and what a ring takes beyond its part of
 * that: the same on all ranks. */
static motet_pack_cost fit_cost(trainer *t) {
  enum { SHORT = 64, RING = 256, MIDDLE = 1024, LONG = MEMORY_TOKENS };
  const int32_t ranks = transport->ranks;
  double times[4] = {time_row(t, SHORT, 1), time_row(t, MIDDLE, 1), time_row(t, LONG, 1), time_row(t, RING, ranks)};
  const mt_rank_group all = everyone();
  must(mt_broadcast(transport, &all, 0, times, sizeof times, &error));
  const double low = (times[1] - times[0]) / (MIDDLE - SHORT), high = (times[2] - times[1]) / (LONG - MIDDLE);
  const double quadratic = fmax(0, (high - low) / (LONG - SHORT));
  const double linear = fmax(1e-9, low - quadratic * (SHORT + MIDDLE));
  const double fixed = fmax(0, times[0] - linear * SHORT - quadratic * SHORT * SHORT);
  const double beyond = times[3] - fixed - (linear * RING + quadratic * RING * RING) / ranks;
  return (motet_pack_cost){.attention_seconds_per_area = 2 * quadratic,
                           .linear_seconds_per_token = linear,
                           .fixed_seconds = fixed,
                           .latency_seconds_per_hop = fmax(0, beyond) / (ranks - 1),
                           .no_overlap = true};
}

static motet_packer *make_packer(const motet_pack_cost *cost, bool flexible) {
  const motet_pack_options options = {.ranks = transport->ranks,
                                      .memory_tokens = MEMORY_TOKENS,
                                      .cost = *cost,
                                      .planner = flexible ? MOTET_PACK_BEST : MOTET_PACK_STATIC,
                                      .static_degree = transport->ranks,
                                      .scope = flexible ? MOTET_PACK_GLOBAL : MOTET_PACK_MICROBATCH,
                                      .batch = MOTET_PACK_AUTO};
  motet_packer *packer;
  must(motet_packer_create(&options, &error, &packer));
  return packer;
}

static void bench_documents(void) {
  static documents all;
  trainer t = {.config = text_model(), .arena = mt_arena_create(), .all = &all};
  bool held[64] = {false};
  for (int32_t l = FIRST; l < mt_internvl_layer_count(&t.config); l++) held[l] = true;
  must(mt_network_create(&t.config, held, held, &error, &t.network));
  mt_network_initialize(t.network, 1);
  read_documents(&all);
  const motet_pack_cost cost = fit_cost(&t);
  motet_packer *packers[2] = {make_packer(&cost, false), make_packer(&cost, true)};
  double ratios[2][STEPS], tokens = 0, sums[2][2] = {{0, 0}, {0, 0}};
  int64_t wide[2] = {0, 0};
  if (transport->rank == 0) {
    printf(
        "\nForward, backward and the gradients' sum over %d texts of this source tree a step, 4 layers of "
        "192;\n"
        "%.3g s + %.3g s a token + %.3g s a pair, %.3g s a hop. Tokens a second of the busiest rank's processor\n"
        "time, and of wall time\n\n",
        BATCH, cost.fixed_seconds, cost.linear_seconds_per_token, cost.attention_seconds_per_area,
        cost.latency_seconds_per_hop);
    printf("| tokens | longest |   ring | flexible | ratio | ring, wall | flexible, wall | ratio | loss differs by "
           "|\n");
    printf("|--------|---------|--------|----------|-------|------------|----------------|-------|-----------------"
           "|\n");
  }
  for (int step = 0; step < STEPS; step++) {
    motet_pack_sequence sequences[BATCH];
    int32_t batch[BATCH];
    int64_t sum = 0, longest = 0;
    double loss[2], seconds[2], work[2];
    for (int32_t i = 0; i < BATCH; i++) {
      batch[i] = (int32_t)((step * BATCH + i) * (int64_t)337 % all.count); /* spread over the tree's folders */
      sequences[i].tokens = all.begin[batch[i] + 1] - all.begin[batch[i]];
      sequences[i].area = motet_pack_causal_area(sequences[i].tokens);
      sum += sequences[i].tokens;
      longest = sequences[i].tokens > longest ? sequences[i].tokens : longest;
    }
    tokens += (double)sum;
    for (int turn = 0; turn < 2; turn++) {
      const int flexible = (turn + step) % 2;
      seconds[flexible] =
          run_step(&t, packers[flexible], sequences, batch, &loss[flexible], &work[flexible], &wide[flexible]);
      sums[flexible][0] += work[flexible];
      sums[flexible][1] += seconds[flexible];
    }
    ratios[0][step] = work[0] / work[1];
    ratios[1][step] = seconds[0] / seconds[1];
    const double count = (double)sum;
    if (transport->rank == 0)
      printf("| %6.0f | %7lld | %6.0f | %8.0f | %5.2f | %10.0f | %14.0f | %5.2f | %15.1e |\n", count,
             (long long)longest, count / work[0], count / work[1], ratios[0][step], count / seconds[0],
             count / seconds[1], ratios[1][step], fabs(loss[1] - loss[0]) / loss[0]);
    fflush(stdout);
  }
  if (transport->rank == 0)
    printf("| %6.0f |     all | %6.0f | %8.0f | %5.2f | %10.0f | %14.0f | %5.2f | in rings %.0f %%, %.0f %% |\n",
           tokens, tokens / sums[0][0], tokens / sums[1][0], mt_median(ratios[0], STEPS), tokens / sums[0][1],
           tokens / sums[1][1], mt_median(ratios[1], STEPS), 100 * (double)wide[0] / tokens,
           100 * (double)wide[1] / tokens);
  for (int i = 0; i < 2; i++) motet_packer_destroy(packers[i]);
  mt_network_destroy(t.network);
  mt_arena_destroy(t.arena);
  free(all.tokens.data);
}

int main(void) {
  mt_transport_options options = {.ranks = 1, .hang_seconds = 20};
  if (!mt_transport_launched(&options.ranks, NULL) || options.ranks < 2 || options.ranks > RANKS_MAX) {
    fprintf(stderr, "bench: start 2 to %d ranks: mpirun -n 2 build/bench/bench_training_context\n", RANKS_MAX);
    return 2;
  }
  must(mt_transport_mpi_create(&options, &error, &transport));
  for (int32_t i = 0; i < RANKS_MAX; i++) all_ranks[i] = i;
  exchange = mt_context_exchange_over(transport);
  bench_ring();
  bench_documents();
  mt_transport_destroy(transport);
  return 0;
}

/*
 * Number 16: a training step beside PyTorch's on the same cores, models and batches: two decoders and a
 * vision-language model, float32 and bfloat16, with one thread and with two. Steps alternate with the peer's, and
 * medians are compared. Processor seconds count (user and system, of all threads over their number), so that a busy
 * machine does not; wall seconds stand beside them. The peer is PyTorch at its best: as it comes, with allocations
 * that are kept (glibc.malloc tunables), pure bfloat16 or autocast, whichever is fastest; MOTET_BENCH_COMPILE=1
 * tries torch.compile too. MOTET_BENCH_PYTHON names an interpreter that has PyTorch; without one, the peer's
 * columns stay empty.
 *
 * With two threads on a machine that is busy, PyTorch's wait for each other in a loop, which costs processor
 * seconds; one thread each is the fairer comparison there. Arguments: steps, part of a model's name, most threads,
 * part of a type's name.
 *
 * Work is what the model needs: 6 operations for every matrix element and row, 12 for every pair of attention and
 * column; nothing that is computed twice. The peak is the fastest found here: chains of multiplications in
 * registers, again before and behind every step, or a product of 1024 x 1024 x 1024 by Motet or by PyTorch. Each
 * row says what its step's products take by themselves and what all else does: why a step falls short.
 */
#include "base/array.h"
#include "base/clock.h"
#include "nn/network.h"
#include "tensor/matmul.h"
#include "tensor/parallel.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { STEPS_MOST = 64, PHASES = 3 };

typedef struct seconds {
  double wall, processor;
} seconds;

static seconds now(void) { return (seconds){mt_clock_seconds(), mt_clock_process_seconds()}; }

static seconds since(seconds begin) {
  const seconds end = now();
  return (seconds){end.wall - begin.wall, end.processor - begin.processor};
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

/* ---- the peer: a process that answers lines */

typedef struct peer {
  pid_t process;
  FILE *to, *from; /* NULL: there is none */
} peer;

static bool ask(peer *p, char answer[256], const char *question) {
  if (p->to == NULL) return false;
  fprintf(p->to, "%s\n", question);
  fflush(p->to);
  if (fgets(answer, 256, p->from) != NULL) return true;
  fclose(p->to), fclose(p->from);
  p->to = p->from = NULL;
  return false;
}

static peer start_peer(bool tuned) {
  int down[2], up[2];
  peer made = {0};
  const char *python = getenv("MOTET_BENCH_PYTHON");
  /* Or the next peer would hold this one's ends open. */
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) exit(3);
  made.process = fork();
  if (made.process == 0) {
    dup2(down[0], STDIN_FILENO);
    dup2(up[1], STDOUT_FILENO);
    close(down[0]), close(down[1]), close(up[0]), close(up[1]);
    if (tuned)
      setenv("GLIBC_TUNABLES",
             "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad="
             "268435456",
             1);
    setenv("ATEN_CPU_CAPABILITY", "avx512", 0);
    if (python == NULL) python = "python3";
    execlp(python, python, "bench/training_step_peer.py", (char *)NULL);
    _exit(127);
  }
  close(down[0]), close(up[1]);
  made.to = fdopen(down[1], "w");
  made.from = fdopen(up[0], "r");
  return made;
}

static void stop_peer(peer *p) {
  if (p->to != NULL) fclose(p->to), fclose(p->from);
  waitpid(p->process, NULL, 0);
  *p = (peer){0};
}

/* ---- steps */

typedef struct timing {
  int32_t steps;
  seconds phase[PHASES][STEPS_MOST]; /* forward, backward, optimizer */
} timing;

/* Median of a phase, or of the whole step with PHASES. */
static double median(const timing *t, int phase, bool processor) {
  double values[STEPS_MOST];
  for (int32_t i = 0; i < t->steps; i++) {
    values[i] = 0;
    for (int p = 0; p < PHASES; p++)
      if (p == phase || phase == PHASES) values[i] += processor ? t->phase[p][i].processor : t->phase[p][i].wall;
  }
  return t->steps == 0 ? NAN : mt_median(values, (size_t)t->steps);
}

static bool peer_step(peer *p, timing *t) {
  char answer[256];
  double v[2 * PHASES];
  if (!ask(p, answer, "step")) return false;
  if (sscanf(answer, "%lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5]) != 6) return false;
  for (int i = 0; i < PHASES; i++) t->phase[i][t->steps] = (seconds){v[2 * i], v[2 * i + 1]};
  t->steps++;
  return true;
}

typedef struct model {
  const char *name, *title;
  mt_internvl config;
  int32_t sequences, tokens, tiles; /* tokens of a sequence */
} model;

static const model models[] = {
    {"large",
     "decoder d768, 4 layers, 12 heads, vocabulary 8192, 2 x 512",
     {.decoder =
          {.layers = 4, .hidden = 768, .intermediate = 2048, .heads = 12, .kv_heads = 12, .vocabulary = 8192}},
     2,
     512,
     0},
    {"small",
     "decoder d256, 4 layers, 4 heads, vocabulary 1024, 8 x 128",
     {.decoder = {.layers = 4, .hidden = 256, .intermediate = 688, .heads = 4, .kv_heads = 4, .vocabulary = 1024}},
     8,
     128,
     0},
    {"multimodal",
     "ViT d384, 4 layers, 4 tiles + decoder d768, 6 layers, 2 x 640",
     {.decoder =
          {.layers = 6, .hidden = 768, .intermediate = 3072, .heads = 12, .kv_heads = 4, .vocabulary = 8192}},
     2,
     640,
     4},
};

static mt_internvl config_of(const model *m) {
  mt_internvl config = m->config;
  config.vision = (mt_internvl_vision){.layers = 4,
                                       .hidden = 384,
                                       .intermediate = 1536,
                                       .heads = 6,
                                       .image_size = 224,
                                       .patch_size = 14,
                                       .channels = 3,
                                       .norm_epsilon = 1e-6F,
                                       .qkv_bias = true};
  config.decoder.head_dim = 64;
  config.decoder.norm_epsilon = 1e-6F;
  config.decoder.rope_theta = 1e6;
  config.decoder.attention_bias = true;
  config.downsample_ratio = 0.5F;
  config.vision_select_layer = -1;
  config.tokens_per_tile = 64;
  return config;
}

/* A network with its batch. */
typedef struct own {
  mt_internvl config;
  mt_network *network;
  mt_batch batch;
  int32_t begin[STEPS_MOST], *ids, *labels, *rows;
  float *pixels;
  mt_arena *arena;
  int32_t first, layers;
  int64_t step;
} own;

static void open_own(const model *m, mt_element element, int32_t threads, own *o) {
  motet_error error;
  *o = (own){.config = config_of(m), .arena = mt_arena_create()};
  o->layers = mt_internvl_layer_count(&o->config);
  o->first = m->tiles > 0 ? 0 : o->config.vision.layers + 2;
  bool held[64], trains[64];
  for (int i = 0; i < 64; i++) held[i] = i >= o->first, trains[i] = true;
  stop_on(mt_network_create(&o->config, held, trains, &error, &o->network), &error);
  stop_on(mt_network_use(o->network, element, threads, &error), &error);
  mt_network_initialize(o->network, 1);
  const int32_t tokens = m->sequences * m->tokens, features = m->tiles * o->config.tokens_per_tile;
  o->ids = zeroed((size_t)tokens, sizeof *o->ids), o->labels = zeroed((size_t)tokens, sizeof *o->labels);
  o->rows = zeroed((size_t)features + 1, sizeof *o->rows);
  o->pixels = ramp((int64_t)m->tiles * 3 * 224 * 224 + 1);
  for (int32_t s = 0; s <= m->sequences; s++) o->begin[s] = s * m->tokens;
  for (int32_t t = 0; t < tokens; t++) {
    o->ids[t] = t * 37 % o->config.decoder.vocabulary;
    o->labels[t] = (o->ids[t] * 53 + 1) % o->config.decoder.vocabulary;
  }
  const int32_t each = features / m->sequences; /* of a sequence, in front */
  for (int32_t f = 0; f < features; f++) o->rows[f] = f / each * m->tokens + f % each;
  o->batch = (mt_batch){.tokens = tokens,
                        .segments = m->sequences,
                        .segment_begin = o->begin,
                        .tiles = m->tiles,
                        .token_ids = o->ids,
                        .labels = o->labels,
                        .feature_rows = o->rows,
                        .pixels = o->pixels,
                        .loss_weight = 1.0 / tokens};
}

static void close_own(own *o) {
  mt_arena_destroy(o->arena);
  mt_network_destroy(o->network);
  free(o->ids), free(o->labels), free(o->rows), free(o->pixels);
}

static void own_step(own *o, timing *t) {
  const mt_adamw options = {
      .learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  motet_error error;
  mt_saved *saved;
  double loss = 0;
  mt_arena_reset(o->arena);
  seconds mark = now();
  stop_on(mt_network_forward(o->network, o->first, o->layers, &o->batch, NULL, NULL, true, o->first, o->arena,
                             &error, &saved, &loss),
          &error);
  t->phase[0][t->steps] = since(mark);
  mark = now();
  stop_on(mt_network_backward(o->network, o->first, o->layers, o->first, &o->batch, saved, NULL, NULL, &error),
          &error);
  t->phase[1][t->steps] = since(mark);
  mark = now();
  stop_on(mt_network_adamw(o->network, &options, ++o->step, 1.0, &error), &error);
  mt_network_zero_gradients(o->network);
  t->phase[2][t->steps++] = since(mark);
}

/* What the products of a step's linear layers take by themselves, and their operations. */
typedef struct linear_cost {
  double seconds, flops;
} linear_cost;

static int64_t rows_of(const own *o, const model *m, mt_internvl_kind kind) {
  return kind <= MT_INTERNVL_VISION_BLOCK ? m->tiles * 257
         : kind == MT_INTERNVL_PROJECTOR  ? (int64_t)m->tiles * o->config.tokens_per_tile
                                          : o->batch.tokens;
}

static double step_flops(const own *o, const model *m) {
  double flops = 0;
  for (int32_t i = 0; i < mt_network_parameter_count(o->network); i++) {
    const mt_parameter *parameter = mt_network_parameter(o->network, i);
    int32_t block;
    const mt_internvl_kind kind = mt_internvl_layer_kind(&o->config, parameter->layer, &block);
    if (!parameter->decay || kind == MT_INTERNVL_TOKEN_EMBED) continue;
    flops += 6.0 * (double)parameter->count * (double)rows_of(o, m, kind);
  }
  const double tile = 257.0 * 257.0 * o->config.vision.hidden * o->config.vision.layers * m->tiles;
  const double causal = 0.5 * m->tokens * m->tokens * m->sequences * o->config.decoder.hidden;
  return flops + 12.0 * (tile + causal * o->config.decoder.layers);
}

/* ---- peak */

#if defined(__x86_64__)
enum { CHAINS = 12, ROUNDS = 2 << 20 };

__attribute__((target("avx512f"))) static double chain_float32(void) {
  __m512 x[CHAINS];
  const __m512 a = _mm512_set1_ps(0.999F), b = _mm512_set1_ps(0.001F);
  for (int i = 0; i < CHAINS; i++) x[i] = _mm512_set1_ps((float)i);
  const seconds begin = now();
  for (int round = 0; round < ROUNDS; round++)
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) x[i] = _mm512_fmadd_ps(x[i], a, b);
  const double taken = since(begin).processor;
  volatile float used = 0;
  for (int i = 0; i < CHAINS; i++) used = used + _mm512_reduce_add_ps(x[i]);
  return 2.0 * CHAINS * ROUNDS * 16 / taken;
}

__attribute__((target("avx512f,avx512bf16"))) static double chain_bfloat16(void) {
  __m512 x[CHAINS];
  const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f003f00);
  for (int i = 0; i < CHAINS; i++) x[i] = _mm512_set1_ps((float)i);
  const seconds begin = now();
  for (int round = 0; round < ROUNDS; round++)
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) x[i] = _mm512_dpbf16_ps(x[i], a, a);
  const double taken = since(begin).processor;
  volatile float used = 0;
  for (int i = 0; i < CHAINS; i++) used = used + _mm512_reduce_add_ps(x[i]);
  return 4.0 * CHAINS * ROUNDS * 16 / taken;
}

static double chain(mt_element element) {
  if (!__builtin_cpu_supports("avx512f")) return 0;
  if (element == MT_ELEMENT_BFLOAT16) return __builtin_cpu_supports("avx512bf16") ? chain_bfloat16() : 0;
  return chain_float32();
}
#else
static double chain(mt_element element) { return (void)element, 0.0; }
#endif

enum { SIZE = 1024 };

/* Seconds of a product; transposed as a linear layer's forward (0), input gradient (1) or weight gradient (2). */
static double product(const mt_device *device, int64_t m, int64_t n, int64_t k, int form) {
  motet_error error;
  float *a = ramp(m * k), *b = ramp(n * k), *c = ramp(m * n);
  const mt_matmul p = {.transpose_a = form == 2,
                       .transpose_b = form == 0,
                       .b_float = form < 2,
                       .c_float = form == 2,
                       .accumulate = form == 2,
                       .m = m,
                       .n = n,
                       .k = k,
                       .a = a,
                       .b = b,
                       .c = c,
                       .a_stride = form == 2 ? m : k,
                       .b_stride = form == 0 ? k : n,
                       .c_stride = n};
  double best = INFINITY;
  for (int i = 0; i < 5; i++) {
    const seconds begin = now();
    stop_on(mt_matmul_run(device->backend, device->team, &p, &error), &error);
    best = fmin(best, since(begin).processor);
  }
  free(a), free(b), free(c);
  return best;
}

/* Each matrix's three products; equal layers are measured once. */
static linear_cost measure_linear(const own *o, const model *m, mt_element element) {
  motet_error error;
  mt_device device = {.backend = mt_tensor_backend_cpu(element)};
  stop_on(mt_team_create(1, &error, &device.team), &error);
  struct {
    int64_t rows, out, in;
    double seconds;
  } seen[32];
  int count = 0;
  linear_cost all = {0};
  for (int32_t i = 0; i < mt_network_parameter_count(o->network); i++) {
    const mt_parameter *parameter = mt_network_parameter(o->network, i);
    int32_t block;
    const mt_internvl_kind kind = mt_internvl_layer_kind(&o->config, parameter->layer, &block);
    if (!parameter->decay || parameter->dims != 2 || kind == MT_INTERNVL_TOKEN_EMBED) continue;
    const int64_t rows = rows_of(o, m, kind), out = parameter->shape[0], in = parameter->shape[1];
    int known = 0;
    while (known < count && (seen[known].rows != rows || seen[known].out != out || seen[known].in != in)) known++;
    if (known == count && count < 32) {
      seen[count].rows = rows, seen[count].out = out, seen[count].in = in;
      seen[count++].seconds = product(&device, rows, out, in, 0) + product(&device, rows, in, out, 1) +
                              product(&device, out, in, rows, 2);
    }
    all.seconds += seen[known].seconds;
    all.flops += 6.0 * (double)rows * (double)out * (double)in;
  }
  mt_team_destroy(device.team);
  return all;
}

/* Operations a second of one core. */
static double measure_peak(mt_element element, peer *p) {
  motet_error error;
  mt_device device = {.backend = mt_tensor_backend_cpu(element)};
  const char *type = element == MT_ELEMENT_BFLOAT16 ? "bfloat16" : "float32";
  char question[64], answer[256];
  double chained = 0, theirs = NAN, wall;
  stop_on(mt_team_create(1, &error, &device.team), &error);
  for (int i = 0; i < 5; i++) chained = fmax(chained, chain(element));
  const double ours = 0x1p31 / product(&device, SIZE, SIZE, SIZE, 0);
  snprintf(question, sizeof question, "product %d %s", SIZE, type);
  if (ask(p, answer, question) && sscanf(answer, "%lf %lf", &wall, &theirs) == 2) theirs = 0x1p31 / theirs;
  const double peak = fmax(fmax(chained, ours), isnan(theirs) ? 0 : theirs);
  printf(
      "%s, a core, GFLOP/s: chains in registers %.1f, product of 1024: Motet %.1f (%s), PyTorch %.1f; peak %.1f\n",
      type, chained / 1e9, ours / 1e9, device.backend->name, theirs / 1e9, peak / 1e9);
  static const struct {
    const char *name;
    int64_t out, in;
  } layers[] = {{"q/k/v 768 -> 2304", 2304, 768},
                {"gate/up 768 -> 4096", 4096, 768},
                {"down 2048 -> 768", 768, 2048},
                {"head 768 -> 8192", 8192, 768}};
  double flops = 0, taken = 0;
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    const int64_t rows = 1024, out = layers[i].out, in = layers[i].in;
    const double one = 2.0 * (double)rows * (double)out * (double)in;
    const double times[3] = {product(&device, rows, out, in, 0), product(&device, rows, in, out, 1),
                             product(&device, out, in, rows, 2)};
    printf("  %-22s 1024 rows: forward %5.1f %%, input gradient %5.1f %%, weight gradient %5.1f %% of the peak\n",
           layers[i].name, 100 * one / times[0] / peak, 100 * one / times[1] / peak, 100 * one / times[2] / peak);
    flops += 3 * one, taken += times[0] + times[1] + times[2];
  }
  printf("  linear layers together %.1f %% of the peak (goal 85 %%)\n", 100 * flops / taken / peak);
  mt_team_destroy(device.team);
  return peak;
}

/* ---- the table */

static const char *const modes[MT_ELEMENT_COUNT][2] = {{"float32", NULL}, {"bfloat16", "autocast"}};
static const char *const tunings[2] = {"", ", malloc tuned"};

typedef struct choice {
  int mode, peer;
} choice;

static bool load_peer(peer *p, const model *m, mt_element element, int mode, int32_t threads) {
  char question[128], answer[256];
  snprintf(question, sizeof question, "load %s %s %d", m->name, modes[element][mode], (int)threads);
  return ask(p, answer, question);
}

/* The peer's fastest way, by two steps each behind one to warm up. */
static choice best_way(const model *m, mt_element element, peer peers[2]) {
  choice best = {0, 0};
  double least = INFINITY;
  for (int mode = 0; mode < 2 && modes[element][mode] != NULL; mode++)
    for (int i = 0; i < 2; i++) {
      timing trial = {0};
      if (!load_peer(&peers[i], m, element, mode, 1)) continue;
      for (int step = 0; step < 3 && peer_step(&peers[i], &trial); step++)
        if (step == 0) trial.steps = 0;
      const double found = median(&trial, PHASES, true);
      if (found < least) least = found, best = (choice){mode, i};
    }
  return best;
}

static void compare(const model *m, mt_element element, int32_t threads, int32_t steps, double peak, choice best,
                    peer peers[2]) {
  own o;
  timing ours = {0}, theirs = {0};
  char answer[256];
  open_own(m, element, threads, &o);
  load_peer(&peers[best.peer], m, element, best.mode, threads);
  if (getenv("MOTET_BENCH_COMPILE") != NULL) ask(&peers[best.peer], answer, "compile");
  own_step(&o, &ours);
  peer_step(&peers[best.peer], &theirs);
  ours.steps = theirs.steps = 0;
  for (int32_t i = 0; i < steps; i++) {
    peak = fmax(peak, chain(element));
    own_step(&o, &ours);
    peak = fmax(peak, chain(element));
    peer_step(&peers[best.peer], &theirs);
  }
  const linear_cost linear = measure_linear(&o, m, element);
  const double flops = step_flops(&o, m);
  const char *type = element == MT_ELEMENT_BFLOAT16 ? "bfloat16" : "float32";
  double mine[PHASES + 1], other[PHASES + 1];
  for (int i = 0; i <= PHASES; i++)
    mine[i] = 1e3 * median(&ours, i, true), other[i] = 1e3 * median(&theirs, i, true);
  printf("\n%s, %s, %d thread%s: %.1f GFLOP a step; PyTorch's best: %s%s\n", m->title, type, (int)threads,
         threads == 1 ? "" : "s", flops / 1e9, modes[element][best.mode], tunings[best.peer]);
  printf("  processor ms   forward  backward optimizer      step  of peak   wall ms\n");
  printf("  Motet        %9.1f %9.1f %9.1f %9.1f %6.1f %% %9.1f\n", mine[0], mine[1], mine[2], mine[3],
         100 * flops / mine[3] * 1e3 / peak, 1e3 * median(&ours, PHASES, false));
  printf("  PyTorch      %9.1f %9.1f %9.1f %9.1f %6.1f %% %9.1f\n", other[0], other[1], other[2], other[3],
         100 * flops / other[3] * 1e3 / peak, 1e3 * median(&theirs, PHASES, false));
  const double goal = element == MT_ELEMENT_BFLOAT16 ? 68 : 72, share = 100 * flops / mine[3] * 1e3 / peak;
  const bool slow = other[3] / mine[3] < 1.15,
             low = share < goal; /* without a peer there is nothing to be slower than */
  printf("  PyTorch / Motet: processor %.2f, wall %.2f (goal 1.15)%s; of peak %.1f %% (goal %.0f %%)%s\n",
         other[3] / mine[3], median(&theirs, PHASES, false) / median(&ours, PHASES, false), slow ? " BELOW" : "",
         share, goal, low ? " BELOW" : "");
  const double apart = 1e3 * linear.seconds, at_peak = 1e3 * linear.flops / peak;
  printf("  linear layers by themselves %.1f ms, %.1f %% of the peak (goal 85 %%)%s; all else %.1f ms, %.1f ms of "
         "it at the "
         "peak\n",
         apart, 100 * at_peak / apart, at_peak / apart < 0.85 ? " BELOW" : "", mine[3] - apart,
         1e3 * flops / peak - at_peak);
  if (low)
    printf("  short by %.1f ms: linear layers are %.1f ms above the peak, all else %.1f ms%s\n",
           mine[3] - 1e5 * flops / peak / goal, apart - at_peak, mine[3] - apart - (1e3 * flops / peak - at_peak),
           threads > 1 ? ", waits of threads for each other among them" : "");
  fflush(stdout);
  close_own(&o);
}

int main(int argc, char **argv) {
  const int32_t steps = argc > 1 ? atoi(argv[1]) : 7;
  const char *only = argc > 2 ? argv[2] : "";
  const int32_t most = argc > 3 ? atoi(argv[3]) : 2; /* threads */
  const char *type = argc > 4 ? argv[4] : "";
  signal(SIGPIPE, SIG_IGN); /* a peer that is gone is none */
  peer peers[2] = {start_peer(false), start_peer(true)};
  char answer[256];
  if (!ask(&peers[0], answer, "load small float32 1")) {
    printf("no PyTorch here\n");
  } else {
    printf("PyTorch %s", answer + 3);
  }
  double peak[MT_ELEMENT_COUNT];
  for (int element = 0; element < MT_ELEMENT_COUNT; element++)
    peak[element] = measure_peak((mt_element)element, &peers[0]);
  for (size_t m = 0; m < sizeof models / sizeof *models; m++)
    for (int element = 0; element < MT_ELEMENT_COUNT; element++)
      if (strstr(models[m].name, only) != NULL && strstr(modes[element][0], type) != NULL) {
        const choice best = best_way(&models[m], (mt_element)element, peers);
        for (int32_t threads = 1; threads <= most; threads++)
          compare(&models[m], (mt_element)element, threads, steps < STEPS_MOST ? steps : STEPS_MOST, peak[element],
                  best, peers);
      }
  for (int i = 0; i < 2; i++) stop_peer(&peers[i]);
  return 0;
}

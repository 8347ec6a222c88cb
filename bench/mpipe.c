/* Number 14: Mpipe's two comparisons (arXiv 2607.03229 v1, tables 1 and 3), simulated over a grid of what is not
 * published: pipeline size, microbatches, shares and sizes of pictures, how they spread over microbatches, frozen
 * or trained. Layer times are forecasts.
 *
 * At 512 devices an encoder on a pipeline stage of its own against the transposed encoder, and the encoder inside
 * the first stage beside; at 8 devices the encoder inside the first stage, as Megatron-LM has it. Transposed is
 * `prefix`, which is Mpipe's order, and `fill`, Motet's.
 *
 *   bench/mpipe [folder of models, tests/data/models] */
#include "order/forecast_costs.h"
#include "support/gpt_rows.h"
#include "support/mixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS_MAX = 2048, LAYERS_MAX = 128, MICROBATCHES_MAX = 256, CELL = 8, DIMENSIONS = 6 };

typedef enum spread_kind { SPREAD_EVEN, SPREAD_MIXED, SPREAD_RARE, SPREADS } spread_kind;

/* Mean 1. Mixed: every other microbatch has four times the pictures of its neighbours, as encoder stages of 200 to
 * 300 ms beside at least 1000 ms (table 3) have; rare: every eighth has nine times the others'. */
static double spread_of(spread_kind kind, int microbatch) {
  switch (kind) {
  case SPREAD_MIXED: return microbatch % 2 == 0 ? 0.4 : 1.6;
  case SPREAD_RARE: return microbatch % 8 == 7 ? 4.5 : 0.5;
  default: return 1;
  }
}

/* One point of a grid and what came of it. `coordinates` index the dimensions' values. */
typedef struct point {
  int coordinates[DIMENSIONS];
  double share; /* of the encoder in a microbatch's forward */
  double dedicated, inlined, prefix, fill;
} point;

typedef struct dimension {
  const char *name;
  int count;
  const char *values[5];
} dimension;

typedef struct study {
  const char *title;
  dimension dimensions[DIMENSIONS];
  bool against_dedicated; /* else against inlined */
  double published;       /* speedup */
  int count;
  point points[POINTS_MAX];
} study;

/* Per layer, from the forecasts of one model's modules: encoders dealt over a cell, language models divided by it.
 */
typedef struct model_times {
  int32_t count;
  mixture_layer layers[LAYERS_MAX];
  double forward;
} model_times;

static void add_times(const mt_forecast *forecast, const double *extents, int32_t begin, int32_t end,
                      model_times *times) {
  for (int32_t l = begin; l < end; l++) {
    if (times->count == LAYERS_MAX) gpt_stop("a model of too many layers");
    mt_layer_forecast layer;
    mt_forecast_layer(forecast, l, extents, &layer);
    mixture_layer one = {.forward = layer.forward + layer.forward_exchange,
                         .input = layer.input_gradient + layer.input_exchange + layer.recompute +
                                  layer.recompute_exchange,
                         .weight = layer.weight_gradient + layer.weight_exchange};
    times->forward += one.forward;
    times->layers[times->count++] = one;
  }
}

typedef struct pair {
  mt_architecture *encoder, *decoder; /* the same where one model has both */
  mt_cluster cluster;
} pair;

static mt_architecture *read_model(mt_arena *arena, const char *folder, const char *name) {
  char path[512];
  motet_error error;
  mt_architecture *model;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  if (mt_architecture_read(arena, path, &error, &model) != MOTET_OK) gpt_stop(error.text);
  return model;
}

/* Everything recomputed, as table 1's activations say. */
static void measure(const mt_architecture *model, const mt_cluster *cluster, const mt_parallel *parallel,
                    const mt_shape *shape, bool vision, model_times *times) {
  motet_error error;
  double extents[MT_EXTENTS];
  uint8_t savings[512];
  mt_parallel modules[8];
  memset(savings, MT_SAVING_INPUT, sizeof savings);
  for (int j = 0; j < 8; j++) modules[j] = *parallel;
  const mt_model *layers = model->model;
  if (layers->layer_count > 512 || layers->module_count > 8) gpt_stop("a model of too many layers");
  if (mt_architecture_measure(model, shape, &error, extents) != MOTET_OK) gpt_stop(error.text);
  const mt_forecast forecast = {.architecture = model,
                                .cluster = cluster,
                                .parallel = modules,
                                .savings = savings,
                                .fit = mt_collective_fit_usual(),
                                .microbatches = 1};
  *times = (model_times){0};
  for (int32_t j = 0; j < layers->module_count; j++) {
    bool text = strcmp(layers->modules[j].name, "llm") == 0 || strcmp(layers->modules[j].name, "mtp") == 0;
    if (text != vision)
      add_times(&forecast, extents, layers->modules[j].layer_begin, layers->modules[j].layer_end, times);
  }
}

static void simulate_point(const model_times *encoder, const model_times *decoder, int ranks, int microbatches,
                           spread_kind spread, bool trains, point *result) {
  double factors[MICROBATCHES_MAX], seconds[LAYERS_MAX];
  int32_t counts[LAYERS_MAX];
  for (int m = 0; m < microbatches; m++) factors[m] = spread_of(spread, m);
  const mixture mixed = {.encoder_layers = encoder->count,
                         .decoder_layers = decoder->count,
                         .encoder = encoder->layers,
                         .decoder = decoder->layers,
                         .encoder_trains = trains,
                         .ranks = ranks,
                         .microbatches = microbatches,
                         .spread = factors};
  for (int32_t l = 0; l < decoder->count; l++)
    seconds[l] = decoder->layers[l].forward + decoder->layers[l].input + decoder->layers[l].weight;
  result->share = encoder->forward / (encoder->forward + decoder->forward);
  counts[0] = encoder->count;
  mixture_cut(seconds, decoder->count, ranks - 1, 0, counts + 1);
  result->dedicated = mixture_seconds(&mixed, "<vision+llm: 1f1b>", counts, ranks);
  mixture_cut(seconds, decoder->count, ranks, 0, counts);
  result->inlined = mixture_seconds(&mixed, "<vision: inline, llm: 1f1b>", counts, ranks);
  result->prefix = mixture_seconds(&mixed, "<vision: transpose(order=prefix), llm: 1f1b>", counts, ranks);
  result->fill = mixture_seconds(&mixed, "<vision: transpose, llm: 1f1b>", counts, ranks);
}

static double speedup(const study *s, const point *p) {
  return (s->against_dedicated ? p->dedicated : p->inlined) / p->prefix;
}

/* Published within five hundredths of it, as number 14 asks: 1.15 to 1.27 about 1.21. */
static bool within(const study *s, const point *p) { return fabs(speedup(s, p) / s->published - 1) <= 0.05; }

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void print_range(const char *what, double *values, int count) {
  if (count == 0) return;
  qsort(values, (size_t)count, sizeof *values, compare);
  printf("%-54s least %.2f, quarter %.2f, median %.2f, three quarters %.2f, most %.2f\n", what, values[0],
         values[count / 4], values[count / 2], values[3 * count / 4], values[count - 1]);
}

static void print_study(const study *s) {
  static double prefix[POINTS_MAX], inside[POINTS_MAX], fill[POINTS_MAX], all[POINTS_MAX], inlined[POINTS_MAX];
  int found = 0;
  printf("\n%s\n%d points:", s->title, s->count);
  for (int d = 0; d < DIMENSIONS; d++) {
    printf("%s %s", d > 0 ? ";" : "", s->dimensions[d].name);
    for (int v = 0; v < s->dimensions[d].count; v++) printf("%s %s", v > 0 ? "," : "", s->dimensions[d].values[v]);
  }
  printf("\n\n");
  for (int i = 0; i < s->count; i++) {
    const point *p = &s->points[i];
    prefix[i] = speedup(s, p);
    all[i] = p->prefix / p->fill;
    inlined[i] = (s->against_dedicated ? p->inlined : p->dedicated) / p->prefix;
    fill[i] = prefix[i] * all[i];
    if (within(s, p)) inside[found++] = all[i];
  }
  double low = s->published * 0.95, high = s->published * 1.05;
  printf("published %.2f; %d of %d points (%.0f%%) lie in %.2f to %.2f\n", s->published, found, s->count,
         100.0 * found / s->count, low, high);
  const char *base = s->against_dedicated ? "dedicated stage" : "inside the first stage";
  char what[80];
  snprintf(what, sizeof what, "%s / prefix:", base);
  print_range(what, prefix, s->count);
  snprintf(what, sizeof what, "%s / fill:", base);
  print_range(what, fill, s->count);
  print_range(s->against_dedicated ? "inside the first stage / prefix:" : "dedicated stage / prefix:", inlined,
              s->count);
  print_range("prefix / fill, what the better order adds:", all, s->count);
  print_range("the same where the published speedup falls:", inside, found);
  printf("\nwhere it falls, of the points with each value:\n");
  for (int d = 0; d < DIMENSIONS; d++) {
    printf("  %-22s", s->dimensions[d].name);
    for (int v = 0; v < s->dimensions[d].count; v++) {
      int with = 0, hits = 0;
      for (int i = 0; i < s->count; i++) {
        if (s->points[i].coordinates[d] != v) continue;
        with++;
        hits += within(s, &s->points[i]);
      }
      printf(" %s: %.0f%%%s", s->dimensions[d].values[v], 100.0 * hits / (with > 0 ? with : 1),
             v + 1 < s->dimensions[d].count ? "," : "");
    }
    printf("\n");
  }
}

static void print_points(const study *s) {
  printf("\nEvery point of: %s\n", s->title);
  for (int d = 0; d < DIMENSIONS; d++) printf("%s ", s->dimensions[d].name);
  printf("| encoder's share of a forward | dedicated, inside, prefix, fill in s | %s/prefix | prefix/fill\n",
         s->against_dedicated ? "dedicated" : "inside");
  for (int i = 0; i < s->count; i++) {
    const point *p = &s->points[i];
    for (int d = 0; d < DIMENSIONS; d++) printf("%s ", s->dimensions[d].values[p->coordinates[d]]);
    printf("| %.3f | %.2f %.2f %.2f %.2f | %.3f%s | %.3f\n", p->share, p->dedicated, p->inlined, p->prefix, p->fill,
           speedup(s, p), within(s, p) ? " *" : "", p->prefix / p->fill);
  }
}

/* Pictures of `side` pixels a side whose features are `features` tokens together, as near as whole pictures come.
 */
static int pictures_for(const mt_architecture *model, int features, int side, mt_picture *pictures, int most) {
  int64_t edge = model->rules.patch * model->rules.merge;
  int each = (int)((side / edge) * (side / edge));
  int count = (features + each / 2) / each;
  if (count < 1) count = 1;
  if (count > most) count = most;
  for (int i = 0; i < count; i++) pictures[i] = (mt_picture){1, side, side};
  return count;
}

/* Qwen2-VL's ViT and DeepSeek-V3 on a 910C supernode: 8192 tokens a microbatch (table 1), cells of eight dies,
 * experts over 64. */
static void study_large(mt_arena *arena, const char *folder, study *s) {
  static const int ranks[] = {4, 8, 16}, rounds[] = {1, 2, 4}, sides[] = {448, 896, 1792};
  static const double shares[] = {0.25, 0.5, 0.75, 1};
  enum { TOKENS = 8192 };
  *s = (study){.title = "512 devices: Qwen2-VL's ViT and DeepSeek-V3, 8192 tokens a microbatch",
               .dimensions = {{"pipeline", 3, {"4", "8", "16"}},
                              {"microbatches/pipeline", 3, {"1", "2", "4"}},
                              {"tokens from pictures", 4, {"1/4", "1/2", "3/4", "all"}},
                              {"picture's side", 3, {"448", "896", "1792"}},
                              {"spread", 3, {"even", "mixed", "rare"}},
                              {"encoder", 2, {"frozen", "trained"}}},
               .against_dedicated = true,
               .published = 1.21};
  motet_error error;
  mt_cluster cluster;
  if (mt_cluster_preset("ascend-910c-supernode", 512, &error, &cluster) != MOTET_OK) gpt_stop(error.text);
  const mt_architecture *vision = read_model(arena, folder, "Qwen2-VL-7B-Instruct");
  const mt_architecture *llm = read_model(arena, folder, "DeepSeek-V3");
  mt_parallel dealt = mt_parallel_single(), divided = mt_parallel_single();
  dealt.samples = divided.tensor = CELL;
  divided.sequence_parallel = true;
  divided.expert = 64;
  static model_times encoder, decoder;
  const int64_t tokens = TOKENS;
  const mt_shape text = {.segments = &tokens, .segment_count = 1};
  measure(llm, &cluster, &divided, &text, false, &decoder);
  for (int share = 0; share < 4; share++)
    for (int side = 0; side < 3; side++) {
      mt_picture pictures[64];
      int count = pictures_for(vision, (int)(shares[share] * TOKENS), sides[side], pictures, 64);
      const int64_t room = 2 * TOKENS; /* whole pictures may ask for more than the row has */
      const mt_shape shape = {.segments = &room, .segment_count = 1, .pictures = pictures, .picture_count = count};
      measure(vision, &cluster, &dealt, &shape, true, &encoder);
      for (int p = 0; p < 3; p++)
        for (int r = 0; r < 3; r++)
          for (int spread = 0; spread < SPREADS; spread++)
            for (int trains = 0; trains < 2; trains++) {
              point *made = &s->points[s->count++];
              *made = (point){.coordinates = {p, r, share, side, spread, trains}};
              simulate_point(&encoder, &decoder, ranks[p], ranks[p] * rounds[r], (spread_kind)spread, trains == 1,
                             made);
            }
    }
}

/* Qwen3-VL in place of the unpublished Qwen3.5 model; one picture and a caption of 64 tokens a sample, as
 * CapsFusion has them, eight samples a microbatch. */
static void study_small(mt_arena *arena, const char *folder, study *s) {
  static const int ranks[] = {2, 4, 8}, rounds[] = {1, 2, 4, 8}, sides[] = {224, 448, 896};
  static const char *const models[] = {"Qwen3-VL-2B-Instruct", "Qwen3-VL-4B-Instruct", "Qwen3-VL-8B-Instruct",
                                       "Qwen3-VL-30B-A3B-Instruct"};
  enum { SAMPLES = 8, CAPTION = 64 };
  *s = (study){.title = "8 devices: Qwen3-VL in place of a Qwen3.5 model, a picture and a caption a sample",
               .dimensions = {{"pipeline", 3, {"2", "4", "8"}},
                              {"microbatches/pipeline", 4, {"1", "2", "4", "8"}},
                              {"model", 4, {"2B", "4B", "8B", "30B-A3B"}},
                              {"picture's side", 3, {"224", "448", "896"}},
                              {"spread", 2, {"even", "mixed"}},
                              {"encoder", 2, {"frozen", "trained"}}},
               .published = 2.70};
  motet_error error;
  mt_cluster cluster;
  if (mt_cluster_preset("ascend-910c-supernode", 8, &error, &cluster) != MOTET_OK) gpt_stop(error.text);
  mt_parallel single = mt_parallel_single();
  static model_times encoder, decoder;
  for (int m = 0; m < 4; m++) {
    const mt_architecture *model = read_model(arena, folder, models[m]);
    for (int side = 0; side < 3; side++) {
      mt_picture pictures[SAMPLES];
      int64_t segments[SAMPLES], edge = model->rules.patch * model->rules.merge;
      int64_t features = (sides[side] / edge) * (sides[side] / edge);
      for (int i = 0; i < SAMPLES; i++) {
        pictures[i] = (mt_picture){1, sides[side], sides[side]};
        segments[i] = features + CAPTION;
      }
      const mt_shape shape = {
          .segments = segments, .segment_count = SAMPLES, .pictures = pictures, .picture_count = SAMPLES};
      measure(model, &cluster, &single, &shape, true, &encoder);
      measure(model, &cluster, &single, &shape, false, &decoder);
      for (int p = 0; p < 3; p++)
        for (int r = 0; r < 4; r++)
          for (int spread = 0; spread < 2; spread++)
            for (int trains = 0; trains < 2; trains++) {
              point *made = &s->points[s->count++];
              *made = (point){.coordinates = {p, r, m, side, spread, trains}};
              simulate_point(&encoder, &decoder, ranks[p], ranks[p] * rounds[r], (spread_kind)spread, trains == 1,
                             made);
            }
    }
  }
}

int main(int count, char **arguments) {
  const char *folder = count > 1 ? arguments[1] : "tests/data/models";
  static study large, small;
  mt_arena *arena = mt_arena_create();
  if (arena == NULL) gpt_stop("out of memory");
  study_large(arena, folder, &large);
  study_small(arena, folder, &small);
  print_study(&large);
  print_study(&small);
  print_points(&large);
  print_points(&small);
  mt_arena_destroy(arena);
  return 0;
}

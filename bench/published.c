/* Steps and plans that others published against forecasts and plans of Motet:
 *   - steps that no coefficient was fitted on;
 *   - InternVL2's layer lists (MindSpeed-MM) against the best contiguous partition by simulated time;
 *   - InternVL3-8B on 64 devices with flexible context parallelism against the best static degree;
 *   - Open-Sora-Plan with autoencoder and text encoder inside the pipeline, on devices of their own, or cached
 * offline.
 *
 *   bench/published [folder of models, tests/data/models [published steps, bench/data/published.txt]] */
#include "order/forecast_costs.h"
#include "order/plan.h"
#include "search/partition.h"
#include "support/gpt_rows.h"
#include "support/published_rows.h"
#include "workload/trace.h"

#include "motet/pack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MAX = 256, STAGES_MAX = 64 };

static mt_architecture *read_model(mt_arena *arena, const char *folder, const char *name) {
  char path[512];
  motet_error error;
  mt_architecture *model;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  if (mt_architecture_read(arena, path, &error, &model) != MOTET_OK) gpt_stop(error.text);
  if (model->model->layer_count > LAYERS_MAX || model->model->module_count > 8)
    gpt_stop("a model of too many layers");
  return model;
}

/* ---- InternVL2's layer lists ---- */

/* Blocks of the encoder and of the language model on each stage. */
typedef struct published_list {
  const char *model;
  int32_t ranks, tensor;
  int32_t vision[16], decoder[16];
} published_list;

static const published_list lists[] = {
    {"InternVL2-8B", 4, 1, {24, 0, 0, 0}, {6, 9, 9, 8}},
    {"InternVL2-76B",
     16,
     8,
     {11, 12, 12, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
     {0, 0, 0, 1, 5, 6, 7, 7, 7, 7, 7, 7, 7, 7, 6, 6}},
};

static int32_t module_of(const mt_model *model, const char *name) {
  for (int32_t j = 0; j < model->module_count; j++)
    if (strcmp(model->modules[j].name, name) == 0) return j;
  gpt_stop(name);
}

/* The list as a split of all layers: patch embedding with the first block, the projector with the last one of the
 * encoder, token embedding with the first block of the decoder, the head with its last. */
static void split_of(const published_list *list, const mt_model *model, int32_t *split) {
  int32_t last_vision = 0, first_decoder = 0, last_decoder = 0;
  for (int32_t s = 0; s < list->ranks; s++) {
    split[s] = list->vision[s] + list->decoder[s];
    if (list->vision[s] > 0) last_vision = s;
    if (list->decoder[s] > 0) last_decoder = s;
  }
  while (list->decoder[first_decoder] == 0) first_decoder++;
  split[0]++;
  split[last_vision]++;
  split[first_decoder]++;
  split[last_decoder]++;
  int32_t sum = 0;
  for (int32_t s = 0; s < list->ranks; s++) sum += split[s];
  if (sum != model->layer_count) gpt_stop("a published list does not add up");
}

/* A split as "vision+decoder" blocks a stage. */
static void print_split(const mt_model *model, const int32_t *split, int32_t ranks) {
  int32_t layer = 0, text = module_of(model, "llm"), vision = module_of(model, "vision");
  for (int32_t s = 0; s < ranks; s++) {
    int32_t blocks[2] = {0, 0};
    for (int32_t end = layer + split[s]; layer < end; layer++) {
      int32_t module = model->layers[layer].module;
      bool edge = layer == model->modules[vision].layer_begin || layer == model->modules[text].layer_begin ||
                  layer + 1 == model->modules[text].layer_end;
      if (!edge && module == vision) blocks[0]++;
      if (!edge && module == text) blocks[1]++;
    }
    if (blocks[0] > 0 && blocks[1] > 0)
      printf(" %d+%d", blocks[0], blocks[1]);
    else
      printf(" %s%d", blocks[0] > 0 ? "v" : "", blocks[0] + blocks[1]);
  }
}

typedef struct chain_times {
  double forward[LAYERS_MAX], backward[LAYERS_MAX];
  int32_t first_trainable;
} chain_times;

static void chain_of(const mt_architecture *model, const mt_forecast *forecast, const double *extents, bool frozen,
                     chain_times *times) {
  const mt_model *layers = model->model;
  int32_t vision_end = layers->modules[module_of(layers, "vision")].layer_end;
  times->first_trainable = frozen ? vision_end : 0;
  for (int32_t l = 0; l < layers->layer_count; l++) {
    mt_layer_forecast layer;
    mt_forecast_layer(forecast, l, extents, &layer);
    times->forward[l] = layer.forward + layer.forward_exchange;
    double input = l > times->first_trainable ? layer.input_gradient + layer.input_exchange : 0;
    times->backward[l] = l < times->first_trainable ? 0 : input + layer.weight_gradient + layer.weight_exchange;
  }
}

static void compare_list(mt_arena *arena, const char *folder, const published_list *list, int tiles, bool frozen) {
  motet_error error;
  const mt_architecture *model = read_model(arena, folder, list->model);
  mt_cluster cluster;
  if (mt_cluster_preset("ascend-910b", list->ranks * list->tensor, &error, &cluster) != MOTET_OK)
    gpt_stop(error.text);
  mt_parallel modules[8];
  for (int j = 0; j < 8; j++) {
    modules[j] = mt_parallel_single();
    modules[j].tensor = list->tensor;
    modules[j].sequence_parallel = list->tensor > 1;
    modules[j].pipeline = list->ranks;
  }
  mt_picture pictures[16];
  for (int t = 0; t < tiles; t++) pictures[t] = (mt_picture){1, 448, 448};
  const int64_t tokens = 4096;
  const mt_shape shape = {.segments = &tokens, .segment_count = 1, .pictures = pictures, .picture_count = tiles};
  double extents[MT_EXTENTS];
  if (mt_architecture_measure(model, &shape, &error, extents) != MOTET_OK) gpt_stop(error.text);
  const mt_forecast forecast = {.architecture = model,
                                .cluster = &cluster,
                                .parallel = modules,
                                .fit = mt_collective_fit_usual(),
                                .microbatches = 1};
  static chain_times times;
  chain_of(model, &forecast, extents, frozen, &times);
  const mt_partition_request request = {.layers = model->model->layer_count,
                                        .ranks = list->ranks,
                                        .chunks = 1,
                                        .microbatches = 4 * list->ranks,
                                        .forward = times.forward,
                                        .backward = times.backward,
                                        .first_trainable = times.first_trainable,
                                        .least = 1,
                                        .evaluations = 60000};
  int32_t split[16];
  double published;
  mt_partition found;
  split_of(list, model->model, split);
  if (mt_partition_seconds(arena, &request, split, &error, &published) != MOTET_OK ||
      mt_partition_find(arena, &request, &error, &found) != MOTET_OK)
    gpt_stop(error.text);
  printf("%-14s %5d %-8s %10.3f %10.3f %10.3f %8.3f%s ", list->model, tiles, frozen ? "frozen" : "trained",
         published, found.seconds, found.bound, published / found.seconds, found.proven ? "*" : " ");
  print_split(model->model, found.split, list->ranks);
  printf("\n");
}

static void compare_lists(mt_arena *arena, const char *folder) {
  printf("InternVL2's layer lists (MindSpeed-MM: 8B on 4 stages, 76B on 16) on 910B, 4096 tokens, four "
         "microbatches a\n"
         "stage, 76B with 8 tensor ranks; seconds of a step. Not published: tiles a sample, what trains. * "
         "proven\n\n");
  printf("%-14s %5s %-8s %10s %10s %10s %9s  %s\n", "model", "tiles", "encoder", "published", "searched", "bound",
         "ratio", "searched list: v encoder blocks, v+d both, decoder blocks");
  for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
    printf("%-14s published list:", lists[l].model);
    const mt_architecture *model = read_model(arena, folder, lists[l].model);
    int32_t split[16];
    split_of(&lists[l], model->model, split);
    print_split(model->model, split, lists[l].ranks);
    printf("\n");
    static const int tiles[] = {1, 4, 7, 10, 13};
    for (int frozen = 0; frozen < 2; frozen++)
      for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++)
        compare_list(arena, folder, &lists[l], tiles[t], frozen == 1);
  }
}

/* ---- InternVL3-8B with flexible context parallelism ---- */

/* Coefficients of a group's time from forecasts of one device: a frame is a tile of 256 tokens; everything trains
 * and nothing is recomputed. Also the tokens that memory takes beside states divided over all devices. */
static void pack_cost_of(const mt_architecture *model, const mt_cluster *cluster, motet_pack_cost *cost,
                         int64_t *memory_tokens) {
  enum { TOKENS = 8192, FRAMES = TOKENS / 256 };
  motet_error error;
  mt_parallel modules[8];
  mt_picture pictures[FRAMES];
  double extents[MT_EXTENTS], alone[MT_EXTENTS] = {0};
  const int64_t tokens = TOKENS;
  for (int j = 0; j < 8; j++) modules[j] = mt_parallel_single();
  for (int f = 0; f < FRAMES; f++) pictures[f] = (mt_picture){1, 448, 448};
  const mt_shape shape = {.segments = &tokens, .segment_count = 1, .pictures = pictures, .picture_count = FRAMES};
  if (mt_architecture_measure(model, &shape, &error, extents) != MOTET_OK) gpt_stop(error.text);
  const mt_forecast forecast = {.architecture = model,
                                .cluster = cluster,
                                .parallel = modules,
                                .fit = mt_collective_fit_usual(),
                                .microbatches = 1};
  const mt_span all = {.layer_end = model->model->layer_count};
  mt_span_forecast linear, area;
  mt_state_forecast state;
  alone[MT_AREA_TEXT] = extents[MT_AREA_TEXT];
  extents[MT_AREA_TEXT] = 0;
  mt_forecast_span(&forecast, &all, extents, &linear);
  mt_forecast_span(&forecast, &all, alone, &area);
  mt_forecast_state(&forecast, &all, 0, &state);
  const mt_module_facts *facts = &model->facts[module_of(model->model, "llm")];
  const mt_module *decoder = &model->model->modules[module_of(model->model, "llm")];
  double blocks = decoder->layer_end - decoder->layer_begin - 2;
  /* Keys and values forward; the same and their gradients back: three times. */
  double ring = 3 * blocks * 2 * (double)(facts->kv_heads * facts->head_width) * 2;
  mt_links links = mt_cluster_links(cluster);
  mt_collective_fit fit = mt_collective_fit_usual();
  *cost = (motet_pack_cost){
      .linear_seconds_per_token = (linear.seconds[MT_COST_FORWARD] + linear.seconds[MT_COST_BACKWARD]) / TOKENS,
      .attention_seconds_per_area =
          (area.seconds[MT_COST_FORWARD] + area.seconds[MT_COST_BACKWARD]) / alone[MT_AREA_TEXT],
      .ring_bytes_per_token = ring,
      .latency_seconds_per_hop = 3 * blocks * links.local.latency_seconds,
      .bandwidth_count = 2,
      .bandwidth_degree = {links.ranks_per_node, cluster->devices},
      .bandwidth_bytes_per_second = {fit.inside * links.local.bytes_per_second,
                                     fit.between * links.remote.bytes_per_second}};
  double room = 0.9 * cluster->device.memory_bytes - 16 * state.parameters / cluster->devices -
                2 * (2 * state.parameters / blocks);
  *memory_tokens = (int64_t)(room / ((double)linear.saved_bytes / TOKENS));
}

static double packed_seconds(const motet_pack_options *options, const mt_trace *trace, int64_t *groups) {
  motet_error error;
  motet_packer *packer;
  const motet_pack_plan *plan;
  motet_pack_sequence *sequences = calloc((size_t)trace->count, sizeof *sequences);
  if (sequences == NULL) gpt_stop("out of memory");
  for (int32_t i = 0; i < trace->count; i++)
    sequences[i] = (motet_pack_sequence){trace->items[i].tokens, trace->items[i].area};
  if (motet_packer_create(options, &error, &packer) != MOTET_OK) gpt_stop(error.text);
  double seconds = INFINITY;
  if (motet_packer_plan(packer, sequences, trace->count, &error, &plan) == MOTET_OK && plan->deferred_count == 0) {
    seconds = plan->value;
    *groups = plan->group_count;
  }
  motet_packer_destroy(packer);
  free(sequences);
  return seconds;
}

/* Static groups as frameworks have them: the largest power of two of sequences a microbatch, in the order of the
 * data, of which every one fits. */
static double in_order_seconds(motet_pack_options options, const mt_trace *trace) {
  int64_t groups;
  options.batch = MOTET_PACK_FIXED;
  for (int32_t size = trace->count; size >= 1; size /= 2) {
    options.batch_size = size;
    double seconds = packed_seconds(&options, trace, &groups);
    if (!isinf(seconds)) return seconds;
  }
  return INFINITY;
}

static void compare_packs(mt_arena *arena, const char *folder) {
  static const struct {
    const char *distribution;
    double published;
  } rows[] = {{"openvid", 1.35}, {"msrvtt", 1.14}, {"internvid", 0}, {"burst-128k", 0}};
  enum { DEVICES = 64, SEQUENCES = 512 };
  motet_error error;
  mt_cluster cluster;
  const mt_architecture *model = read_model(arena, folder, "InternVL3-8B");
  if (mt_cluster_preset("ascend-910b", DEVICES, &error, &cluster) != MOTET_OK) gpt_stop(error.text);
  motet_pack_options options = {.ranks = DEVICES,
                                .ranks_per_node = 8,
                                .scope = MOTET_PACK_MICROBATCH,
                                .batch = MOTET_PACK_AUTO,
                                .deadline_ms = 5};
  pack_cost_of(model, &cluster, &options.cost, &options.memory_tokens);
  printf("\nInternVL3-8B on 64 910B, 512 sequences, flexible against static context parallelism; costs from "
         "forecasts.\n"
         "Best static: microbatches composed by the same planner; in data's order: as many sequences a microbatch "
         "as fit.\n"

         "%.3g s a token, %.3g s a pair, %.0f ring bytes a token, %lld tokens fit a device\n\n",
         options.cost.linear_seconds_per_token, options.cost.attention_seconds_per_area,
         options.cost.ring_bytes_per_token, (long long)options.memory_tokens);
  printf("%-12s %10s %14s %8s %7s | %16s %8s %7s %10s\n", "data", "flexible", "best static", "degree", "ratio",
         "in data's order", "degree", "ratio", "published");
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    mt_trace trace;
    const mt_distribution drawn = {.name = rows[r].distribution,
                                   .count = SEQUENCES,
                                   .seed = 1,
                                   .ranks = DEVICES,
                                   .memory_tokens = options.memory_tokens};
    if (mt_distribution_draw(&drawn, &error, &trace) != MOTET_OK) gpt_stop(error.text);
    int64_t groups = 0;
    options.planner = MOTET_PACK_BEST;
    double flexible = packed_seconds(&options, &trace, &groups), best = INFINITY, in_order = INFINITY;
    int32_t degree = 0, in_order_degree = 0;
    options.planner = MOTET_PACK_STATIC;
    for (int32_t d = 1; d <= DEVICES; d *= 2) {
      options.static_degree = d;
      double seconds = packed_seconds(&options, &trace, &groups), plain = in_order_seconds(options, &trace);
      if (seconds < best) {
        best = seconds;
        degree = d;
      }
      if (plain < in_order) {
        in_order = plain;
        in_order_degree = d;
      }
    }
    options.static_degree = 0;
    char published[16] = "-";
    if (rows[r].published > 0) snprintf(published, sizeof published, "%.2f", rows[r].published);
    printf("%-12s %8.3f s %12.3f s %8d %7.2f | %14.3f s %8d %7.2f %10s\n", rows[r].distribution, flexible, best,
           degree, best / flexible, in_order, in_order_degree, in_order / flexible, published);
    mt_trace_destroy(&trace);
  }
}

/* ---- Open-Sora-Plan ---- */

typedef struct placement_row {
  const char *title, *schedule;
  bool cached;
} placement_row;

static double placed_seconds(mt_arena *arena, const mt_architecture *model, const mt_forecast *forecast,
                             const double *extents, int32_t ranks, int32_t microbatches, const placement_row *row,
                             double *peak_bytes) {
  motet_error error;
  mt_schedule *schedule;
  mt_derivation *derivation;
  mt_forecast_tables tables;
  mt_plan plan;
  uint64_t *cached = MT_ARENA_NEW(arena, uint64_t, microbatches);
  if (cached == NULL) gpt_stop("out of memory");
  uint64_t encoders =
      UINT64_C(1) << module_of(model->model, "text_encoder") | UINT64_C(1) << module_of(model->model, "vae");
  for (int32_t m = 0; m < microbatches; m++) cached[m] = row->cached ? encoders : 0;
  mt_derive_request request = {
      .model = model->model, .ranks = ranks, .microbatches = microbatches, .cached = cached};
  motet_status status = mt_schedule_parse(arena, row->schedule, &error, &schedule);
  request.schedule = schedule;
  if (status == MOTET_OK) status = mt_derive(arena, &request, &error, &derivation);
  if (status == MOTET_OK)
    status = mt_forecast_tables_make(arena, derivation, forecast, extents, 1, &error, &tables);
  if (status != MOTET_OK) gpt_stop(error.text);
  const mt_plan_replica replica = {.derivation = derivation, .costs = &tables.costs, .sizes = tables.sizes};
  const mt_plan_options options = {0};
  if (mt_plan_make(arena, &replica, 1, &options, &error, &plan) != MOTET_OK) gpt_stop(error.text);
  double seconds = plan.simulation->makespan;
  *peak_bytes = 0;
  for (int32_t r = 0; r < plan.program->ranks; r++)
    *peak_bytes = fmax(*peak_bytes, (double)plan.verification.memory[r].peak_bytes);
  mt_plan_free(&plan);
  return seconds;
}

static void compare_placements(mt_arena *arena, const char *folder) {
  static const placement_row rows[] = {
      {"joint, inside the first stage", "<text_encoder: inline, vae: inline, dit: 1f1b>", false},
      {"joint, transposed, prefix",
       "<text_encoder: transpose(order=prefix), vae: transpose(order=prefix), dit: 1f1b>", false},
      {"joint, transposed, fill", "<text_encoder: transpose, vae: transpose, dit: 1f1b>", false},
      {"joint, transposed, fill, 4 at a time",
       "<text_encoder: transpose(batch=4), vae: transpose(batch=4), dit: 1f1b>", false},
      {"joint, transposed, fill, 8 at a time",
       "<text_encoder: transpose(batch=8), vae: transpose(batch=8), dit: 1f1b>", false},
      {"separate, a cell each", "<text_encoder: dedicate(ranks=1), vae: dedicate(ranks=1), dit: 1f1b>", false},
      {"separate, a cell each, 8 at a time",
       "<text_encoder: dedicate(ranks=1, batch=8), vae: dedicate(ranks=1, batch=8), dit: 1f1b>", false},
      {"cached offline", "<text_encoder: inline, vae: inline, dit: 1f1b>", true},
  };
  enum { CELL = 8 };
  static const int32_t sizes[] = {2, 4, 8};
  motet_error error;
  mt_cluster cluster;
  const mt_architecture *model = read_model(arena, folder, "Open-Sora-Plan-v1.3");
  if (mt_cluster_preset("ascend-910c-supernode", 8 * CELL, &error, &cluster) != MOTET_OK) gpt_stop(error.text);
  double extents[MT_EXTENTS];
  const mt_picture clip = model->usual_picture;
  const mt_shape shape = {.pictures = &clip, .picture_count = 1};
  if (mt_architecture_measure(model, &shape, &error, extents) != MOTET_OK) gpt_stop(error.text);
  mt_parallel modules[8];
  uint8_t savings[LAYERS_MAX] = {0};
  for (int32_t j = 0; j < model->model->module_count; j++) {
    modules[j] = mt_parallel_single();
    if (j == module_of(model->model, "dit"))
      modules[j].ulysses = CELL;
    else
      modules[j].samples = CELL;
  }
  const mt_forecast forecast = {.architecture = model,
                                .cluster = &cluster,
                                .parallel = modules,
                                .savings = savings,
                                .fit = mt_collective_fit_usual(),
                                .microbatches = 1};
  printf(
      "\nOpen-Sora-Plan v1.3, a clip of %d x %d x %d a microbatch, cells of 8 dies of 910C: the transformer "
      "over 8 Ulysses\n"
      "ranks, whole clips dealt over them for the encoders, which take one at a time where nothing is said; four\n"
      "microbatches a pipeline rank\n\n",
      clip.frames, clip.height, clip.width);
  printf("%-37s", "seconds a step, peak GiB");
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) printf(" %10d cells", sizes[s]);
  printf("\n");
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    printf("%-37s", rows[r].title);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      bool each = strstr(rows[r].title, "each") != NULL;
      double peak, seconds;
      if (each && sizes[s] < 3) {
        printf(" %16s", "-");
        continue;
      }
      seconds = placed_seconds(arena, model, &forecast, extents, sizes[s], 4 * sizes[s], &rows[r], &peak);
      printf(" %8.2f %6.1f ", seconds, peak / 1073741824.0);
    }
    printf("\n");
  }
}

int main(int count, char **arguments) {
  const char *folder = count > 1 ? arguments[1] : "tests/data/models";
  mt_arena *arena = mt_arena_create();
  if (arena == NULL) gpt_stop("out of memory");
  static published_row rows[PUBLISHED_ROWS_MAX];
  published_rows_print(rows, published_rows_read(count > 2 ? arguments[2] : "bench/data/published.txt", rows));
  printf("\n");
  compare_lists(arena, folder);
  compare_packs(arena, folder);
  compare_placements(arena, folder);
  mt_arena_destroy(arena);
  return 0;
}

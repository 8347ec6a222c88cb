/* Number 15 and what stands beside it: separate placement in processor time, layer lists of InternVL2 published
 * with MindSpeed-MM against the searched ones, rules for the order of microbatches, and a whole search over 512
 * devices (goal: a minute). */
#include "search/search.h"
#include "base/clock.h"
#include "base/random.h"
#include "cost/forecast.h"
#include "search/partition.h"
#include "search/placement.h"
#include "search/reorder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void stop_on(motet_status status, const motet_error *error) {
  if (status == MOTET_OK) return;
  fprintf(stderr, "bench: %s\n", error->text);
  exit(3);
}

/* ---- separate placement ---- */

static void placement_rows(void) {
  /* Seconds of a sample, forward and backward: a large trunk, an encoder and a generator at ratios of 9 : 1 : 3. */
  const mt_placement_module modules[] = {
      {.name = "vision", .seconds = {0.5, 0.26, 0.14, 0.08}, .static_bytes = 1e10, .sample_bytes = 1e9},
      {.name = "llm", .seconds = {4.5, 2.3, 1.2, 0.66}, .layers = 80, .static_bytes = 1.1e12, .sample_bytes = 4e10},
      {.name = "generator", .seconds = {1.5, 0.8, 0.43, 0.25}, .static_bytes = 4e10, .sample_bytes = 2e9}};
  printf("separate placement, three modules           data  llm TPxPP  vision  generator      step  relaxed bound"
         "   planned in\n");
  for (int32_t devices = 96; devices <= 1296; devices = devices == 96 ? 384 : devices + 912) {
    mt_placement_request request = {.modules = modules,
                                    .module_count = 3,
                                    .trunk = 1,
                                    .devices = devices,
                                    .batch = 1920,
                                    .microbatch = 1,
                                    .memory_bytes = 80e9};
    motet_error error;
    mt_placement p;
    mt_arena *arena = mt_arena_create();
    double begin = mt_clock_process_seconds();
    stop_on(mt_placement_find(arena, &request, &error, &p), &error);
    double seconds = mt_clock_process_seconds() - begin;
    printf("  %5d devices, batch 1920              %8d %7dx%-3d %6d %10d %8.2f s %10.2f s %9.2f ms  %s\n", devices,
           p.data, p.modules[1].tensor, p.modules[1].pipeline, p.modules[0].devices, p.modules[2].devices,
           p.seconds, p.bound, 1e3 * seconds, seconds < 0.05 ? "< 50 ms" : "goal of 50 ms missed");
    mt_arena_destroy(arena);
  }
  printf("  DistTrain's planner, published: 922 ms at 1296 devices\n");
}

/* ---- layer lists ---- */

typedef struct published {
  const char *model, *name;
  int32_t stages, vision[16], llm[16];
} published;

static const published lists[] = {
    {"tests/data/models/InternVL2-8B", "InternVL2-8B", 4, {24}, {6, 9, 9, 8}},
    {"tests/data/models/InternVL2-76B",
     "InternVL2-76B",
     16,
     {11, 12, 12, 10},
     {0, 0, 0, 1, 5, 6, 7, 7, 7, 7, 7, 7, 7, 7, 6, 6}},
};

/* Layers of the chain as the list has them: embeddings and projector in front of the first block of their module,
 * the head behind the last. */
static void split_of(const published *p, const mt_model *model, int32_t *split) {
  const mt_module *vision = &model->modules[0], *llm = &model->modules[model->module_count - 1];
  int32_t blocks = 0, texts = 0, projector = llm->layer_begin - vision->layer_end;
  for (int32_t s = 0; s < p->stages; s++) blocks += p->vision[s], texts += p->llm[s];
  int32_t before = vision->layer_end - vision->layer_begin - blocks,
          ends = llm->layer_end - llm->layer_begin - texts;
  for (int32_t s = 0, seen = 0; s < p->stages; s++) {
    split[s] = p->vision[s] + p->llm[s] + (s == 0 ? before : 0);
    if (seen == 0 && p->llm[s] > 0) split[s] += projector + (ends > 1 ? 1 : 0);
    seen += p->llm[s];
    if (s == p->stages - 1) split[s] += ends > 1 ? ends - 1 : ends;
  }
}

static void list_row(const published *p, bool frozen, int32_t microbatches) {
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_architecture *a;
  mt_cluster cluster;
  stop_on(mt_architecture_read(arena, p->model, &error, &a), &error);
  stop_on(mt_cluster_preset("ascend-910b", 8 * p->stages, &error, &cluster), &error);
  mt_model *model = a->model;
  int32_t layers = model->layer_count, trainable = frozen ? model->modules[0].layer_end : 0;
  mt_parallel *parallels = MT_ARENA_NEW(arena, mt_parallel, model->module_count);
  for (int32_t j = 0; j < model->module_count; j++) {
    parallels[j] = mt_parallel_single();
    parallels[j].tensor = p->stages > 4 ? 8 : 1;
    if (j == 0 && p->stages > 4) parallels[j].tensor = 1, parallels[j].samples = 8;
  }
  mt_forecast forecast = {.architecture = a,
                          .cluster = &cluster,
                          .parallel = parallels,
                          .fit = mt_collective_fit_usual(),
                          .microbatches = microbatches};
  int64_t tokens = 4096;
  mt_picture pictures[13];
  for (int i = 0; i < 13; i++) pictures[i] = (mt_picture){1, 448, 448};
  mt_shape shape = {.segments = &tokens, .segment_count = 1, .pictures = pictures, .picture_count = 13};
  double extents[MT_EXTENTS] = {0};
  stop_on(mt_architecture_measure(a, &shape, &error, extents), &error);
  double *forward = MT_ARENA_NEW(arena, double, layers), *backward = MT_ARENA_NEW(arena, double, layers);
  for (int32_t l = 0; l < layers; l++) {
    mt_layer_forecast f;
    mt_forecast_layer(&forecast, l, extents, &f);
    forward[l] = f.forward + f.forward_exchange;
    if (l < trainable) continue;
    backward[l] = f.weight_gradient + f.weight_exchange + (l > trainable ? f.input_gradient + f.input_exchange : 0);
  }
  mt_partition_request request = {.layers = layers,
                                  .ranks = p->stages,
                                  .chunks = 1,
                                  .microbatches = microbatches,
                                  .forward = forward,
                                  .backward = backward,
                                  .first_trainable = trainable,
                                  .least = 1};
  mt_partition found;
  int32_t split[16];
  double published_seconds;
  split_of(p, model, split);
  stop_on(mt_partition_seconds(arena, &request, split, &error, &published_seconds), &error);
  stop_on(mt_partition_find(arena, &request, &error, &found), &error);
  printf(
      "  %-14s %-7s %3d microbatches: published %8.3f s, searched %8.3f s (%+.1f%%), bound %8.3f s%s\n    layers  ",
      p->name, frozen ? "frozen" : "trained", microbatches, published_seconds, found.seconds,
      100 * (found.seconds / published_seconds - 1), found.bound, found.proven ? ", proven" : "");
  for (int32_t s = 0; s < p->stages; s++) printf("%d ", split[s]);
  printf("-> ");
  for (int32_t s = 0; s < p->stages; s++) printf("%d ", found.split[s]);
  printf("\n");
  mt_arena_destroy(arena);
}

/* ---- orders of microbatches ---- */

static void reorder_row(int32_t ranks, int32_t microbatches, double sigma) {
  enum { DRAWS = 20 };
  double sum[MT_REORDER_RULES] = {0}, balanced = 0;
  mt_random random = mt_random_stream(4, "bench.reorder");
  for (int draw = 0; draw < DRAWS; draw++) {
    mt_arena *arena = mt_arena_create();
    motet_error error;
    int64_t cells = (int64_t)ranks * microbatches;
    double *forward = MT_ARENA_NEW(arena, double, cells), *backward = MT_ARENA_NEW(arena, double, cells);
    int32_t *order = MT_ARENA_NEW(arena, int32_t, microbatches);
    /* An encoder's stage with pictures of very different number before a trunk of equal rows. */
    for (int32_t m = 0; m < microbatches; m++) {
      double encode = exp(sigma * mt_random_normal(&random) - sigma * sigma / 2);
      for (int32_t r = 0; r < ranks; r++) {
        forward[(int64_t)r * microbatches + m] = r == 0 ? encode : 1;
        backward[(int64_t)r * microbatches + m] = 2 * (r == 0 ? encode : 1);
      }
    }
    mt_reorder_request request = {.ranks = ranks,
                                  .microbatches = microbatches,
                                  .forward = forward,
                                  .backward = backward,
                                  .seed = (uint64_t)draw};
    for (int rule = 0; rule < MT_REORDER_RULES; rule++) {
      double seconds;
      stop_on(mt_reorder(arena, &request, (mt_reorder_rule)rule, &error, order, &seconds), &error);
      sum[rule] += seconds / DRAWS;
    }
    balanced += 3.0 * (microbatches + ranks - 1) / DRAWS;
    mt_arena_destroy(arena);
  }
  printf("  %2d ranks %3d microbatches, sigma %.1f  %10.2f %10.2f %10.2f %12.2f %9.1f%%\n", ranks, microbatches,
         sigma, sum[MT_REORDER_RANDOM] / balanced, sum[MT_REORDER_DISTTRAIN] / balanced,
         sum[MT_REORDER_CLIMB] / balanced, sum[MT_REORDER_GIVEN] / balanced,
         100 * (1 - sum[MT_REORDER_CLIMB] / sum[MT_REORDER_DISTTRAIN]));
}

/* ---- whole searches ---- */

static void search_row(const char *model, const char *workload) {
  char yaml[512];
  motet_error error;
  mt_search_problem *problem;
  mt_search_space space;
  mt_search_result result;
  mt_search_options options = {0};
  mt_arena *arena = mt_arena_create();
  snprintf(yaml, sizeof yaml,
           "model: tests/data/models/%s\ncluster: h100\ndevices: 512\nworkload: %s\ntrain: {global_batch: 1024}\n",
           model, workload);
  double begin = mt_clock_process_seconds();
  stop_on(mt_search_problem_parse(yaml, strlen(yaml), "bench", 0, NULL, &error, &problem), &error);
  stop_on(mt_search_run_problem(arena, problem, &options, &space, &error, &result), &error);
  printf("  %-22s %-28s %7lld candidates, %5lld simulated, %7.1f s of processor time, %6.1f s: step %.3f s, %s\n",
         model, workload, (long long)result.candidates, (long long)result.evaluated,
         mt_clock_process_seconds() - begin, result.seconds, result.plan.seconds, result.end);
  mt_plan_free(&result.plan.plan);
  mt_search_problem_destroy(problem);
  mt_arena_destroy(arena);
}

int main(void) {
  placement_rows();
  printf("\nlayer lists, 13 tiles and 4096 tokens a microbatch, Ascend 910B\n");
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    list_row(&lists[i], true, 4 * lists[i].stages);
    list_row(&lists[i], false, 4 * lists[i].stages);
  }
  printf(
      "\norders of microbatches, step over one of equal ones     random  DistTrain      climb        given   climb "
      "gains\n");
  for (int32_t ranks = 4; ranks <= 8; ranks *= 2)
    for (int32_t sigma = 5; sigma <= 10; sigma += 5) {
      reorder_row(ranks, 16, 0.1 * sigma);
      reorder_row(ranks, 32, 0.1 * sigma);
    }
  printf("\nwhole searches, 512 H100, 1024 samples a step\n");
  search_row("InternVL2-76B", "{tokens: 4096, images: 7x448x448}");
  search_row("Qwen2-VL-72B-Instruct", "{distribution: wikipedia}");
  return 0;
}

/* Published configs against parameter counts of transformers and diffusers (tools/make_model_counts.py), published
 * operation counts and formulas. */
#include "model/architecture.h"
#include "model/internvl.h"

#include <motet/program.h>

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static motet_error failure;
static mt_arena *arena;

static int set_up(void **state) {
  (void)state;
  arena = mt_arena_create();
  return arena == NULL;
}

static int tear_down(void **state) {
  (void)state;
  mt_arena_destroy(arena);
  return 0;
}

static const mt_architecture *published(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/models/%s", MOTET_TEST_DATA, name);
  mt_architecture *architecture;
  if (mt_architecture_read(arena, path, &failure, &architecture) != MOTET_OK)
    fail_msg("%s: %s", name, failure.text);
  return architecture;
}

static const mt_architecture *parsed(const char *config) {
  mt_architecture *architecture;
  if (mt_architecture_parse(arena, config, strlen(config), "test", &failure, &architecture) != MOTET_OK)
    fail_msg("%s\n%s", failure.text, config);
  return architecture;
}

static json_t *read_data(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/models/%s", MOTET_TEST_DATA, name);
  json_error_t problem;
  json_t *document = json_load_file(path, 0, &problem);
  if (document == NULL) fail_msg("%s: %s", name, problem.text);
  return document;
}

/* The libraries have neither a class for multi-token prediction nor other auxiliary modules. */
static void compare_modules(const char *name, const mt_architecture *architecture, const json_t *counts) {
  int32_t compared = 0;
  for (int32_t m = 0; m < architecture->model->module_count; m++) {
    const char *module = architecture->model->modules[m].name;
    if (architecture->facts[m].auxiliary) continue;
    const json_t *expected = json_object_get(counts, module);
    if (expected == NULL) fail_msg("%s has no module %s", name, module);
    if (mt_architecture_module_parameters(architecture, m) != json_integer_value(expected))
      fail_msg("%s, %s: %lld parameters, expected %lld", name, module,
               (long long)mt_architecture_module_parameters(architecture, m),
               (long long)json_integer_value(expected));
    compared++;
  }
  assert_int_equal(compared, json_object_size(counts));
}

static void test_every_published_config_is_counted_exactly(void **state) {
  (void)state;
  json_t *document = read_data("counts.json"), *index = read_data("INDEX.json");
  const char *name;
  json_t *counts;
  int32_t models = 0;
  json_object_foreach(json_object_get(document, "models"), name, counts) {
    compare_modules(name, published(name), counts);
    assert_non_null(json_object_get(index, name));
    models++;
  }
  assert_int_equal(models, json_object_size(index));
  assert_int_equal(models, 38);
  json_decref(document);
  json_decref(index);
}

/* The published count of each, and how far it may lie: half a unit of its last digit, or the reason. */
static void test_published_counts(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double published, within;
  } cases[] = {
      {"Qwen2.5-VL-3B-Instruct", 3754622976, 0},
      {"Qwen2.5-VL-7B-Instruct", 8.292e9, 0.5e6},
      {"Qwen3-VL-2B-Instruct", 2.128e9, 0.5e6},
      {"Qwen3-VL-4B-Instruct", 4.438e9, 0.5e6},
      {"Qwen3-VL-8B-Instruct", 8.767e9, 0.5e6},
      {"InternVL2-1B", 938.2e6, 0.05e6},
      {"InternVL2-2B", 2.206e9, 0.5e6},
      {"SmolVLM-256M-Instruct", 256.5e6, 0.05e6},
      {"DeepSeek-V3", 671e9, 0.5e9},
      {"DeepSeek-V2-Lite", 16e9, 0.5e9},
      {"mT5-xxl", 13e9, 0.5e9},
      {"Qwen3-VL-235B-A22B-Instruct", 235e9, 1e9},
      {"Llama-3.1-405B", 405e9, 1e9},
      {"Wan2.1-T2V-14B", 14e9, 0.5e9},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    double count = (double)mt_architecture_parameters(published(cases[c].name));
    if (fabs(count - cases[c].published) > cases[c].within)
      fail_msg("%s: %.0f parameters, published %.0f", cases[c].name, count, cases[c].published);
  }
}

static void test_random_configs_equal_the_libraries(void **state) {
  (void)state;
  json_t *document = read_data("random.json"), *cases = json_object_get(document, "cases"), *entry;
  size_t c;
  json_array_foreach(cases, c, entry) {
    char *config = json_dumps(json_object_get(entry, "config"), 0);
    compare_modules(config, parsed(config), json_object_get(entry, "counts"));
    free(config);
  }
  assert_true(json_array_size(cases) >= 100);
  json_decref(document);
}

static mt_layer_cost sum_costs(const mt_architecture *architecture, const mt_shape *shape, const char *module);

/* What torch counts while small models of the libraries run, to the last operation. It counts attention in full, so
 * a causal area is made the square that it is half of. */
static void test_operations_equal_torchs_count(void **state) {
  (void)state;
  json_t *document = read_data("random.json"), *cases = json_object_get(document, "cases"), *entry;
  size_t c;
  int compared = 0;
  json_array_foreach(cases, c, entry) {
    const json_t *operations = json_object_get(entry, "operations");
    if (operations == NULL) continue;
    char *config = json_dumps(json_object_get(entry, "config"), 0);
    const mt_architecture *architecture = parsed(config);
    int64_t tokens = json_integer_value(json_object_get(operations, "tokens"));
    int sides[3] = {0};
    for (size_t i = 0; i < 3; i++)
      sides[i] = (int)json_integer_value(json_array_get(json_object_get(operations, "picture"), i));
    const mt_picture picture = {sides[0], sides[1], sides[2]};
    const mt_shape shape = {
        .segments = &tokens, .segment_count = tokens > 0, .pictures = &picture, .picture_count = sides[0] > 0};
    mt_layer_cost cost = sum_costs(architecture, &shape, NULL);
    double square = tokens > 0 ? 2.0 * (double)tokens / (double)(tokens + 1) : 1;
    double ours = cost.forward_flops + (square - 1) * cost.attention_flops;
    double theirs = (double)json_integer_value(json_object_get(operations, "forward_flops"));
    if (fabs(ours - theirs) > 0.5) fail_msg("%s\n%.0f operations, torch counts %.0f", config, ours, theirs);
    free(config);
    compared++;
  }
  assert_true(compared >= 60);
  json_decref(document);
}

/* The runtime's reader, written apart, names every weight: layer by layer the same. */
static void test_layers_equal_the_runtimes_reader(void **state) {
  (void)state;
  static const char *const names[] = {"InternVL2.5-4B", "InternVL3-1B", "InternVL3-78B"};
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    const mt_architecture *ours = published(names[n]);
    char path[512];
    snprintf(path, sizeof path, "%s/models/%s", MOTET_TEST_DATA, names[n]);
    mt_internvl config;
    mt_model *model;
    const bool trainable[3] = {true, true, true};
    assert_int_equal(mt_internvl_read(path, &failure, &config), MOTET_OK);
    assert_int_equal(mt_internvl_model(arena, &config, trainable, &failure, &model), MOTET_OK);
    assert_int_equal(model->layer_count, ours->model->layer_count);
    for (int32_t l = 0; l < model->layer_count; l++) {
      assert_string_equal(model->layers[l].name, ours->model->layers[l].name);
      assert_int_equal(model->layers[l].module, ours->model->layers[l].module);
      assert_int_equal(model->layers[l].parameters, ours->model->layers[l].parameters);
    }
    assert_int_equal(model->tied_embeddings, ours->model->tied_embeddings);
  }
}

static mt_layer_cost sum_costs(const mt_architecture *architecture, const mt_shape *shape, const char *module) {
  double extents[MT_EXTENTS];
  if (mt_architecture_measure(architecture, shape, &failure, extents) != MOTET_OK) fail_msg("%s", failure.text);
  mt_layer_cost sum = {0};
  for (int32_t l = 0; l < architecture->model->layer_count; l++) {
    mt_layer_cost cost;
    const mt_layer *layer = &architecture->model->layers[l];
    if (module != NULL && strcmp(architecture->model->modules[layer->module].name, module) != 0) continue;
    mt_architecture_cost(architecture, l, extents, 1, &cost);
    sum.forward_flops += cost.forward_flops;
    sum.input_flops += cost.input_flops;
    sum.weight_flops += cost.weight_flops;
    sum.attention_flops += cost.attention_flops;
    sum.saved_bytes += cost.saved_bytes;
  }
  return sum;
}

static mt_layer_cost cost_of(const mt_architecture *architecture, const double *extents, const char *layer) {
  for (int32_t l = 0; l < architecture->model->layer_count; l++) {
    mt_layer_cost cost;
    if (strcmp(architecture->model->layers[l].name, layer) != 0) continue;
    mt_architecture_cost(architecture, l, extents, 1, &cost);
    return cost;
  }
  fail_msg("no layer %s", layer);
  return (mt_layer_cost){0};
}

/* The authors count multiply-adds: 118.64 at 256 pixels (arXiv 2212.09748, table 1, whose blocks share one
 * embedding of time and class; here each has its own, 0.2% more) and 524.60 at 512. */
static void test_dit_operations_are_the_published_ones(void **state) {
  (void)state;
  const mt_architecture *dit = published("DiT-XL-2");
  static const struct {
    int32_t side;
    double published;
  } cases[] = {{256, 118.64e9}, {512, 524.60e9}};
  for (int c = 0; c < 2; c++) {
    const mt_picture picture = {1, cases[c].side, cases[c].side};
    const mt_shape shape = {.pictures = &picture, .picture_count = 1};
    assert_true(fabs(sum_costs(dit, &shape, NULL).forward_flops / 2 / cases[c].published - 1) < 0.003);
  }
}

/* DeepSeek-V3's report: 37B parameters work on a token, embedding and head included (arXiv 2412.19437, section 1);
 * two operations each but the embedding's, and attention apart. */
static void test_deepseek_operations_follow_active_parameters(void **state) {
  (void)state;
  const mt_architecture *model = published("DeepSeek-V3");
  const int64_t tokens = 1000;
  const mt_shape shape = {.segments = &tokens, .segment_count = 1};
  mt_layer_cost cost = sum_costs(model, &shape, "llm");
  double embedding = 129280.0 * 7168;
  double active = (cost.forward_flops - cost.attention_flops) / 2 / (double)tokens + embedding;
  assert_true(fabs(active - 37e9) < 0.6e9);
  /* Scores of 192 and values of 128 wide, 128 heads, 61 layers, half the square. */
  double area = (double)tokens * ((double)tokens + 1) / 2;
  assert_true(fabs(cost.attention_flops / (61 * 2 * 128 * (192 + 128.0) * area) - 1) < 1e-12);
}

/* 96 B s l h^2 (1 + s/6h + V/16lh) with recomputation (arXiv 2104.04473, equation 3): 4 forwards' worth, the full
 * square of attention. Built from a GPT-like decoder: as many keys as heads, feed-forward of 4h in two matrices is
 * what a gated one of 8h/3 has in three. */
static void test_operations_equal_megatrons_formula(void **state) {
  (void)state;
  const mt_architecture *model =
      parsed("{\"model_type\": \"llama\", \"num_hidden_layers\": 24, \"hidden_size\": 3072, \"intermediate_size\": "
             "8192, \"num_attention_heads\": 24, \"vocab_size\": 51200}");
  const int64_t s = 2048;
  const mt_shape shape = {.segments = &s, .segment_count = 1};
  mt_layer_cost cost = sum_costs(model, &shape, NULL);
  double h = 3072, l = 24, sequence = 2048, vocabulary = 51200;
  /* A forward and a backward (twice it) of everything, the blocks' forward once more. */
  double formula = 96 * sequence * l * h * h * (1 + sequence / (6 * h)) + 6 * sequence * h * vocabulary;
  double square = cost.attention_flops * 2 * sequence / (sequence + 1);
  double dense = cost.forward_flops - cost.attention_flops, head = 2 * sequence * h * vocabulary;
  assert_true(fabs((4 * (dense - head + square) + 3 * head) / formula - 1) < 1e-12);
  assert_true(fabs(cost.weight_flops / dense - 1) < 1e-12);
  /* Flash attention's backward: five products to the forward's two. */
  assert_true(fabs((cost.input_flops - dense) / cost.attention_flops - 2.5) < 1e-12);
}

/* Korthikanti et al., equation 1: 34sbh + 5as^2b a layer; without the two dropout masks (2sbh) and the scores
 * (5as^2b) 32sbh, here with the statistics of two norms (16sb) and of attention (4as b). LLaVA's tower is such a
 * layer. */
static void test_saved_bytes_equal_korthikantis_formula(void **state) {
  (void)state;
  const mt_architecture *model = published("LLaVA-1.5-7B");
  const mt_picture picture = {1, 336, 336};
  const int64_t tokens = 600;
  const mt_shape shape = {.segments = &tokens, .segment_count = 1, .pictures = &picture, .picture_count = 1};
  double extents[MT_EXTENTS];
  assert_int_equal(mt_architecture_measure(model, &shape, &failure, extents), MOTET_OK);
  int64_t s = 577, h = 1024, a = 16;
  mt_layer_cost cost = cost_of(model, extents, "vision.0");
  assert_int_equal(cost.saved_bytes, 32 * s * h + 16 * s + 4 * a * s);
  /* Frozen: the inputs of the four maps go (2 + 2 + 8), that of the projection is kept as attention's result. */
  assert_int_equal(cost.passed_bytes, cost.saved_bytes - (2 + 2 + 8) * s * h);
  assert_int_equal(cost.output_bytes, 2 * s * h);
  /* Logits in 32 bits (section 4.3), the norm's input and result. */
  assert_int_equal(cost_of(model, extents, "llm.head").saved_bytes,
                   4 * tokens * 32000 + 2 * 2 * tokens * 4096 + 4 * tokens);
}

/* Korthikanti et al., table 2 and figure 7: activations on the first stage, without recomputation and with sequence
 * parallelism and selective recomputation; 18 bytes a parameter of the blocks. Theirs keep the scores of the full
 * square (5as^2b, divided by t); ours, without them, is their selective recomputation. Interleaving with v chunks
 * keeps (1 + (p - 1) / (pv)) times as much, plain pipelining p microbatches of L / p layers. */
static void test_memory_equals_korthikantis_table(void **state) {
  (void)state;
  char path[512], line[256];
  snprintf(path, sizeof path, "%s/facts/korthikanti_2022_memory_a100.csv", MOTET_TEST_DATA);
  static const struct {
    const char *name;
    int64_t hidden, layers, heads;
  } models[] = {{"22B", 6144, 48, 64}, {"175B", 12288, 96, 96}, {"530B", 20480, 105, 128}, {"1T", 25600, 128, 160}};
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  int rows = 0;
  while (fgets(line, sizeof line, file) != NULL) {
    char name[16], config[512];
    int tp, pp, vpp, batch;
    double states, plain, selective;
    if (sscanf(line, "%15[^,],%d,%d,%d,%d,%lf,%lf,%lf", name, &tp, &pp, &vpp, &batch, &states, &plain,
               &selective) != 8)
      continue;
    int m = 0;
    while (strcmp(models[m].name, name) != 0) m++;
    int64_t h = models[m].hidden, layers = models[m].layers, heads = models[m].heads, s = 2048;
    snprintf(
        config, sizeof config,
        "{\"model_type\": \"gpt2\", \"n_layer\": %lld, \"n_embd\": %lld, \"n_head\": %lld, \"n_positions\": 2048, "
        "\"vocab_size\": 51200}",
        (long long)layers, (long long)h, (long long)heads);
    const mt_architecture *model = parsed(config);
    double extents[MT_EXTENTS];
    const int64_t segments[4] = {s, s, s, s};
    const mt_shape shape = {.segments = segments, .segment_count = batch};
    assert_int_equal(mt_architecture_measure(model, &shape, &failure, extents), MOTET_OK);
    mt_layer_cost cost = cost_of(model, extents, "llm.0");
    double in_flight = (double)layers * (vpp > 1 ? 1 + (double)(pp - 1) / (pp * vpp) : 1), gib = 1073741824.0;
    double scores = 5.0 * (double)(heads * s * s * batch) / tp;
    int64_t with = mt_architecture_share(cost.saved_bytes, cost.saved_row_bytes, tp, true);
    int64_t without = mt_architecture_share(cost.saved_bytes, cost.saved_row_bytes, tp, false);
    double parameters = (double)model->model->layers[1].parameters * (double)layers / (tp * pp);
    assert_true(fabs(18 * parameters / gib / states - 1) < 0.002);
    assert_true(fabs(in_flight * (double)with / gib / selective - 1) < 0.005);
    assert_true(fabs(in_flight * ((double)without + scores) / gib / plain - 1) < 0.002);
    rows++;
  }
  fclose(file);
  assert_int_equal(rows, 4);
}

static void test_windows_partition_every_picture(void **state) {
  (void)state;
  const mt_architecture *model = published("Qwen2.5-VL-7B-Instruct");
  const int64_t tokens = 20000;
  static const mt_picture pictures[] = {{1, 448, 448}, {1, 700, 588}, {5, 336, 1120}};
  for (int p = 0; p < 3; p++) {
    const mt_shape shape = {.segments = &tokens, .segment_count = 1, .pictures = &pictures[p], .picture_count = 1};
    double extents[MT_EXTENTS], area = 0;
    assert_int_equal(mt_architecture_measure(model, &shape, &failure, extents), MOTET_OK);
    int rows = pictures[p].height / 14, columns = pictures[p].width / 14, frames = (pictures[p].frames + 1) / 2;
    /* Every pair of patches of a frame, one by one: kept if both lie in one window of 8 by 8. */
    for (int i = 0; i < rows * columns; i++)
      for (int j = 0; j < rows * columns; j++)
        area += i / columns / 8 == j / columns / 8 && i % columns / 8 == j % columns / 8;
    assert_true(extents[MT_AREA_WINDOW] == area * frames);
    assert_true(extents[MT_AREA_PICTURE] == (double)frames * rows * columns * rows * columns);
    assert_true(extents[MT_ROWS_FEATURES] == (double)frames * rows * columns / 4);
  }
  /* Blocks 7, 15, 23 and 31 attend to the whole picture. */
  const mt_shape shape = {.segments = &tokens, .segment_count = 1, .pictures = pictures, .picture_count = 3};
  double extents[MT_EXTENTS];
  assert_int_equal(mt_architecture_measure(model, &shape, &failure, extents), MOTET_OK);
  for (int32_t l = 0; l < 32; l++) {
    char name[16];
    snprintf(name, sizeof name, "vision.%d", l);
    double area = cost_of(model, extents, name).attention_flops / (4 * 16 * 80);
    assert_true(area == extents[l % 8 == 7 ? MT_AREA_PICTURE : MT_AREA_WINDOW]);
  }
}

static void test_pictures_become_the_published_numbers_of_tokens(void **state) {
  (void)state;
  static const struct {
    const char *name;
    mt_picture picture;
    double features;
  } cases[] = {
      {"LLaVA-1.5-7B", {1, 100, 900}, 576},              /* arXiv 2310.03744: 336 / 14 a side */
      {"InternVL2-1B", {1, 448, 448}, 256},              /* arXiv 2404.16821: 256 a tile */
      {"InternVL2-1B", {1, 896, 896}, 5 * 256},          /* 2 x 2 and the thumbnail */
      {"InternVL2-1B", {1, 448, 1344}, 4 * 256},         /* 1 x 3 and the thumbnail */
      {"SmolVLM-256M-Instruct", {1, 512, 512}, 17 * 64}, /* arXiv 2504.05299: 64 a tile; 4 x 4 and the whole */
      {"SmolVLM-256M-Instruct", {1, 512, 1024}, 9 * 64}, /* 4 x 2 and the whole */
      {"Qwen2-VL-7B-Instruct", {1, 224, 224}, 64},       /* arXiv 2409.12191, section 2.1: 66 with two markers */
      {"Qwen2-VL-7B-Instruct", {4, 224, 224}, 128},      /* two frames a patch */
      {"Qwen3-VL-4B-Instruct", {1, 512, 512}, 256},      /* 32 pixels a side of a feature */
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const int64_t tokens = 4096;
    const mt_shape shape = {
        .segments = &tokens, .segment_count = 1, .pictures = &cases[c].picture, .picture_count = 1};
    double extents[MT_EXTENTS];
    assert_int_equal(mt_architecture_measure(published(cases[c].name), &shape, &failure, extents), MOTET_OK);
    if (extents[MT_ROWS_FEATURES] != cases[c].features)
      fail_msg("%s, %d x %d: %.0f features", cases[c].name, cases[c].picture.height, cases[c].picture.width,
               extents[MT_ROWS_FEATURES]);
  }
}

/* CogVideoX: 49 frames of 480 x 720 become 13 x 30 x 45 patches beside 226 text tokens (arXiv 2408.06072 and the
 * published config); Wan: 81 frames of 480 x 832, 21 x 30 x 52 (arXiv 2503.20314). */
static void test_clips_become_latents(void **state) {
  (void)state;
  const mt_architecture *cog = published("CogVideoX-2b"), *wan = published("Wan2.1-T2V-1.3B");
  double extents[MT_EXTENTS];
  mt_shape shape = {.pictures = &cog->usual_picture, .picture_count = 1};
  assert_int_equal(mt_architecture_measure(cog, &shape, &failure, extents), MOTET_OK);
  assert_true(extents[MT_ROWS_JOINT] == 13 * 30 * 45 + 226);
  shape.pictures = &wan->usual_picture;
  assert_int_equal(mt_architecture_measure(wan, &shape, &failure, extents), MOTET_OK);
  assert_true(extents[MT_ROWS_LATENT] == 21 * 30 * 52);
  assert_true(extents[MT_AREA_CROSS] == 21.0 * 30 * 52 * 512);
}

/* A sparse block attends inside four interleaved parts: a quarter of the square. */
static void test_open_sora_attends_sparsely_in_the_middle(void **state) {
  (void)state;
  const mt_architecture *model = published("Open-Sora-Plan-v1.3");
  const mt_picture clip = {93, 640, 640};
  const mt_shape shape = {.pictures = &clip, .picture_count = 1};
  double extents[MT_EXTENTS], latents = 24 * 40 * 40;
  assert_int_equal(mt_architecture_measure(model, &shape, &failure, extents), MOTET_OK);
  double full = cost_of(model, extents, "dit.1").attention_flops;
  double sparse = cost_of(model, extents, "dit.2").attention_flops;
  assert_true(full == cost_of(model, extents, "dit.30").attention_flops);
  assert_true(fabs((full - sparse) - 4 * 2304 * latents * latents * 0.75) < 1);
  assert_false(model->model->layers[0].trainable);
  assert_int_equal(model->model->edge_count, 2);
  assert_int_equal(model->model->edges[1].from, 1);
  assert_int_equal(model->model->edges[1].to, 2);
}

/* Deepstack: features of three more depths travel from their blocks to the decoder's first blocks. */
static void test_deepstack_features_travel(void **state) {
  (void)state;
  const mt_architecture *model = published("Qwen3-VL-4B-Instruct");
  const mt_picture picture = {1, 512, 512};
  const int64_t tokens = 300;
  const mt_shape shape = {.segments = &tokens, .segment_count = 1, .pictures = &picture, .picture_count = 1};
  double extents[MT_EXTENTS];
  assert_int_equal(mt_architecture_measure(model, &shape, &failure, extents), MOTET_OK);
  int64_t patch_row = 2 * 1024 * 1024, feature_row = 2 * 256 * 2560, text_row = 2 * 300 * 2560;
  static const struct {
    const char *layer;
    int64_t patches, features, text;
  } cases[] = {{"vision.4", 1, 0, 0},        {"vision.5", 2, 0, 0},        {"vision.16", 3, 0, 0},
               {"vision.23", 4, 0, 0},       {"projector.merge", 3, 1, 0}, {"projector.deep0", 2, 2, 0},
               {"projector.deep2", 0, 4, 0}, {"llm.embed", 0, 3, 1},       {"llm.0", 0, 2, 1},
               {"llm.1", 0, 1, 1},           {"llm.2", 0, 0, 1},           {"llm.35", 0, 0, 1}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    assert_int_equal(cost_of(model, extents, cases[c].layer).output_bytes,
                     cases[c].patches * patch_row + cases[c].features * feature_row + cases[c].text * text_row);
}

/* Eight devices, 16 of 128 experts each, 8 a token: all tokens of all may go to one device, 8 times the even share.
 * With 32 devices of 4 experts at most 4 of a token's 8 meet: 16 times. */
static void test_worst_routing(void **state) {
  (void)state;
  const mt_architecture *model = published("Qwen3-VL-30B-A3B-Instruct");
  const int64_t tokens = 512;
  const mt_shape shape = {.segments = &tokens, .segment_count = 1};
  double extents[MT_EXTENTS], expert = 3 * 2.0 * 2048 * 768 * 512 * 8;
  assert_int_equal(mt_architecture_measure(model, &shape, &failure, extents), MOTET_OK);
  static const struct {
    int32_t devices;
    double factor;
  } cases[] = {{1, 1}, {8, 8}, {32, 16}, {128, 16}};
  int32_t layer = model->model->modules[2].layer_begin + 1;
  for (int c = 0; c < 4; c++) {
    mt_layer_cost cost;
    mt_architecture_cost(model, layer, extents, cases[c].devices, &cost);
    assert_true(fabs(cost.worst_forward_flops - cost.forward_flops - (cases[c].factor - 1) * expert) < 1);
  }
  assert_int_equal(model->designs[model->model->layers[layer].kind].expert_parameters, 128LL * 3 * 2048 * 768);
}

static void refused(const char *config, motet_status status, const char *key, const char *text) {
  mt_architecture *architecture;
  motet_error_clear(&failure);
  assert_int_equal(mt_architecture_parse(arena, config, strlen(config), "c.json", &failure, &architecture), status);
  assert_string_equal(failure.file, "c.json");
  if (key != NULL) assert_string_equal(failure.key, key);
  if (strstr(failure.text, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", failure.text, text);
}

#define LLAMA "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"vocab_size\": 10, "

static void test_wrong_configs_are_told_why(void **state) {
  (void)state;
  refused("{}", MOTET_ERROR_PARSE, "model_type", "known are");
  refused("{\"model_type\": \"gpt9\"}", MOTET_ERROR_UNSUPPORTED, "model_type", "\"gpt9\" is not known; known are");
  refused("{\"_class_name\": \"UNet\"}", MOTET_ERROR_UNSUPPORTED, "_class_name", "WanModel");
  refused(LLAMA "\"hidden_size\": 10, \"intermediate_size\": 4, \"num_attention_heads\": 3}", MOTET_ERROR_PARSE,
          "num_attention_heads", "3 does not divide hidden_size 10");
  refused(LLAMA "\"hidden_size\": 12, \"intermediate_size\": 4, \"num_attention_heads\": 3, "
                "\"num_key_value_heads\": 2}",
          MOTET_ERROR_PARSE, "num_key_value_heads", "2 does not divide num_attention_heads 3");
  refused(LLAMA "\"hidden_size\": -8, \"intermediate_size\": 4, \"num_attention_heads\": 2}", MOTET_ERROR_PARSE,
          "hidden_size", "is -8");
  refused(LLAMA "\"hidden_size\": \"8\", \"intermediate_size\": 4, \"num_attention_heads\": 2}", MOTET_ERROR_PARSE,
          "hidden_size", "is a text");
  refused(LLAMA "\"hidden_size\": 8, \"num_attention_heads\": 2}", MOTET_ERROR_PARSE, "intermediate_size",
          "missing");
  refused("{\"model_type\": \"qwen2_vl\", \"vision_config\": {\"depth\": 1}}", MOTET_ERROR_PARSE,
          "num_hidden_layers", "missing");
  refused("{\"model_type\": \"llava\", \"mm_vision_tower\": \"x\"}", MOTET_ERROR_UNSUPPORTED, "mm_vision_tower",
          "clip-vit-large");
  refused("{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 4096, \"hidden_size\": 1048576, "
          "\"num_attention_heads\": 64, \"intermediate_size\": 8, \"vocab_size\": 8, \"num_experts\": 65536, "
          "\"num_experts_per_tok\": 8, \"moe_intermediate_size\": 1048576}",
          MOTET_ERROR_LIMIT, NULL, "more parameters than 64 bits");
}

static void test_shapes_that_cannot_be_are_told_why(void **state) {
  (void)state;
  double extents[MT_EXTENTS];
  const mt_picture picture = {1, 448, 448}, clip = {9, 448, 448};
  const int64_t few = 100, many = 5000, negative = -1;
  const mt_shape crowded = {.segments = &few, .segment_count = 1, .pictures = &picture, .picture_count = 1};
  assert_int_equal(mt_architecture_measure(published("InternVL2-1B"), &crowded, &failure, extents),
                   MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(failure.text, "become 256 tokens, but the text row has 100"));
  const mt_shape seen = {.segments = &many, .segment_count = 1, .pictures = &picture, .picture_count = 1};
  assert_int_equal(mt_architecture_measure(published("Llama-3.1-8B"), &seen, &failure, extents),
                   MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(failure.text, "text alone"));
  const mt_shape moving = {.pictures = &clip, .picture_count = 1};
  assert_int_equal(mt_architecture_measure(published("DiT-XL-2"), &moving, &failure, extents),
                   MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(failure.text, "not clips"));
  const mt_shape owing = {.segments = &negative, .segment_count = 1};
  assert_int_equal(mt_architecture_measure(published("Llama-3.1-8B"), &owing, &failure, extents),
                   MOTET_ERROR_ARGUMENT);
}

static void test_models_are_whole(void **state) {
  (void)state;
  const mt_architecture *model = published("Qwen2-VL-2B-Instruct");
  assert_int_equal(model->model->module_count, 3);
  assert_int_equal(model->model->modules[0].inputs, MOTET_INPUT_PIXELS);
  assert_int_equal(model->model->modules[2].inputs, MOTET_INPUT_TOKENS);
  assert_int_equal(model->model->last_inputs, MOTET_INPUT_LABELS);
  assert_true(model->model->tied_embeddings);
  assert_string_equal(model->model->layers[0].name, "vision.embed");
  assert_string_equal(model->model->layers[model->model->layer_count - 1].name, "llm.head");
  int32_t next = 0;
  for (int32_t m = 0; m < 3; m++) {
    assert_int_equal(model->model->modules[m].layer_begin, next);
    next = model->model->modules[m].layer_end;
    for (int32_t l = model->model->modules[m].layer_begin; l < next; l++)
      assert_int_equal(model->model->layers[l].module, m);
  }
  assert_int_equal(next, model->model->layer_count);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_published_config_is_counted_exactly),
      cmocka_unit_test(test_published_counts),
      cmocka_unit_test(test_random_configs_equal_the_libraries),
      cmocka_unit_test(test_operations_equal_torchs_count),
      cmocka_unit_test(test_layers_equal_the_runtimes_reader),
      cmocka_unit_test(test_dit_operations_are_the_published_ones),
      cmocka_unit_test(test_deepseek_operations_follow_active_parameters),
      cmocka_unit_test(test_operations_equal_megatrons_formula),
      cmocka_unit_test(test_saved_bytes_equal_korthikantis_formula),
      cmocka_unit_test(test_memory_equals_korthikantis_table),
      cmocka_unit_test(test_windows_partition_every_picture),
      cmocka_unit_test(test_pictures_become_the_published_numbers_of_tokens),
      cmocka_unit_test(test_clips_become_latents),
      cmocka_unit_test(test_open_sora_attends_sparsely_in_the_middle),
      cmocka_unit_test(test_deepstack_features_travel),
      cmocka_unit_test(test_worst_routing),
      cmocka_unit_test(test_wrong_configs_are_told_why),
      cmocka_unit_test(test_shapes_that_cannot_be_are_told_why),
      cmocka_unit_test(test_models_are_whole),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

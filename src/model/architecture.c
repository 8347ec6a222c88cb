#include "model/architecture.h"

#include "model/draft.h"

#include <motet/program.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* An architecture is a row here and its functions in family_*.c. A config belongs to the first row whose key has
 * the row's value. */
typedef struct family {
  const char *key, *value;
  const char *title;
  mt_family_read *read;
} family;

static const family families[] = {
    {"_class_name", "DiTTransformer2DModel", "DiT", mt_family_dit},
    {"_class_name", "Transformer2DModel", "DiT", mt_family_dit}, /* as older diffusers stored it */
    {"_class_name", "CogVideoXTransformer3DModel", "CogVideoX", mt_family_cogvideox},
    {"_class_name", "WanModel", "Wan", mt_family_wan},
    {"_class_name", "WanTransformer3DModel", "Wan", mt_family_wan},
    {"predictor.model_id", "videoditsparse", "Open-Sora-Plan", mt_family_open_sora},
    {"model_type", "gpt2", "GPT-2", mt_family_gpt2},
    {"model_type", "llama", "Llama", mt_family_text},
    {"model_type", "mistral", "Mistral", mt_family_text},
    {"model_type", "mixtral", "Mixtral", mt_family_text},
    {"model_type", "phi3", "Phi-3", mt_family_text},
    {"model_type", "granite", "Granite", mt_family_text},
    {"model_type", "nemotron", "Nemotron", mt_family_text},
    {"model_type", "qwen2", "Qwen2", mt_family_text},
    {"model_type", "qwen3", "Qwen3", mt_family_text},
    {"model_type", "qwen3_moe", "Qwen3 with experts", mt_family_text},
    {"model_type", "internlm2", "InternLM2", mt_family_text},
    {"model_type", "deepseek_v2", "DeepSeek-V2", mt_family_deepseek},
    {"model_type", "deepseek_v3", "DeepSeek-V3", mt_family_deepseek},
    {"model_type", "kimi_k2", "Kimi K2", mt_family_deepseek},
    {"model_type", "qwen2_vl", "Qwen2-VL", mt_family_qwen2_vl},
    {"model_type", "qwen2_5_vl", "Qwen2.5-VL", mt_family_qwen2_5_vl},
    {"model_type", "qwen3_vl", "Qwen3-VL", mt_family_qwen3_vl},
    {"model_type", "qwen3_vl_moe", "Qwen3-VL with experts", mt_family_qwen3_vl},
    {"model_type", "internvl_chat", "InternVL", mt_family_internvl},
    {"model_type", "internvl", "InternVL", mt_family_internvl},
    {"model_type", "llava", "LLaVA", mt_family_llava},
    {"model_type", "idefics3", "Idefics3", mt_family_idefics3},
    {"model_type", "smolvlm", "SmolVLM", mt_family_idefics3},
    {"model_type", "mt5", "mT5", mt_family_mt5},
};
enum { FAMILIES = sizeof families / sizeof *families };

const char *mt_architecture_known(mt_arena *arena) {
  const char *text = "";
  for (int f = 0; f < FAMILIES && text != NULL; f++)
    text = mt_arena_format(arena, "%s%s%s", text, f > 0 ? ", " : "", families[f].value);
  return text != NULL ? text : "";
}

static const family *find_family(mt_draft *draft) {
  const char *found_key = NULL, *found_value = NULL;
  for (int f = 0; f < FAMILIES; f++) {
    const json_t *value = mt_json_find(draft->json, families[f].key);
    if (!json_is_string(value)) continue;
    if (strcmp(json_string_value(value), families[f].value) == 0) return &families[f];
    found_key = families[f].key;
    found_value = json_string_value(value);
  }
  if (found_key == NULL)
    mt_json_fail(draft->json, MOTET_ERROR_PARSE, "model_type",
                 "missing: an architecture is told by model_type, _class_name or predictor.model_id; known are %s",
                 mt_architecture_known(draft->arena));
  else
    mt_json_fail(draft->json, MOTET_ERROR_UNSUPPORTED, found_key, "\"%s\" is not known; known are %s", found_value,
                 mt_architecture_known(draft->arena));
  return NULL;
}

static motet_status copy_lists(mt_draft *draft) {
  mt_architecture *result = draft->result;
  mt_model *model = result->model;
  size_t layers = draft->layers.count;
  model->layers = MT_ARENA_NEW(draft->arena, mt_layer, layers);
  model->modules = MT_ARENA_NEW(draft->arena, mt_module, draft->module_count);
  model->edges = MT_ARENA_NEW(draft->arena, mt_module_edge, draft->edge_count);
  result->facts = MT_ARENA_NEW(draft->arena, mt_module_facts, draft->module_count);
  result->designs = MT_ARENA_NEW(draft->arena, mt_layer_design, draft->design_count);
  if (model->layers == NULL || model->modules == NULL || model->edges == NULL || result->facts == NULL ||
      result->designs == NULL)
    return mt_error_memory(draft->json->error, layers * sizeof *model->layers, "a model");
  memcpy(model->layers, draft->layers.data, layers * sizeof *model->layers);
  memcpy(model->modules, draft->modules, (size_t)draft->module_count * sizeof *model->modules);
  if (draft->edge_count > 0) memcpy(model->edges, draft->edges, (size_t)draft->edge_count * sizeof *model->edges);
  memcpy(result->facts, draft->facts, (size_t)draft->module_count * sizeof *result->facts);
  memcpy(result->designs, draft->designs, (size_t)draft->design_count * sizeof *result->designs);
  model->layer_count = (int32_t)layers;
  model->module_count = draft->module_count;
  model->edge_count = draft->edge_count;
  result->design_count = draft->design_count;
  return MOTET_OK;
}

/* What no single number is guilty of. */
static motet_status check_total(mt_draft *draft) {
  int64_t total = 0;
  for (size_t l = 0; l < draft->layers.count; l++)
    if (__builtin_add_overflow(total, draft->layers.data[l].parameters, &total))
      return mt_error_set(draft->json->error, MOTET_ERROR_LIMIT,
                          "the model has more parameters than 64 bits can count");
  return MOTET_OK;
}

static motet_status read_draft(mt_draft *draft) {
  const family *row = find_family(draft);
  if (row == NULL) return draft->json->status;
  mt_architecture *result = MT_ARENA_NEW(draft->arena, mt_architecture, 1);
  mt_model *model = MT_ARENA_NEW(draft->arena, mt_model, 1);
  if (result == NULL || model == NULL) return mt_error_memory(draft->json->error, sizeof *result, "a model");
  *result = (mt_architecture){.name = row->value, .title = row->title, .model = model, .usual_tokens = 4096};
  model->last_inputs = MOTET_INPUT_LABELS;
  draft->result = result;
  row->read(draft);
  if (draft->json->status == MOTET_OK) draft->json->status = check_total(draft);
  if (draft->json->status != MOTET_OK) return draft->json->status;
  return copy_lists(draft);
}

static motet_status read_json(mt_arena *arena, mt_json *json, mt_architecture **architecture) {
  mt_draft *draft = calloc(1, sizeof *draft);
  if (draft == NULL) return mt_error_memory(json->error, sizeof *draft, "a model");
  draft->arena = arena;
  draft->json = json;
  motet_status status = read_draft(draft);
  if (status == MOTET_OK) *architecture = draft->result;
  if (status != MOTET_OK && json->error != NULL && json->error->file[0] == '\0')
    mt_error_place(json->error, json->file, 0);
  free(draft->layers.data);
  free(draft);
  return status;
}

static motet_status read_one(mt_arena *arena, const char *path, motet_error *error,
                             mt_architecture **architecture) {
  mt_json json;
  motet_status status = mt_json_open(path, "config.json", error, &json);
  if (status != MOTET_OK) return status;
  status = read_json(arena, &json, architecture);
  mt_json_close(&json);
  return status;
}

motet_status mt_architecture_read(mt_arena *arena, const char *path, motet_error *error,
                                  mt_architecture **architecture) {
  const char *plus = strstr(path, " + ");
  if (plus == NULL) return read_one(arena, path, error, architecture);
  mt_architecture *encoder, *decoder;
  char *first = mt_arena_format(arena, "%.*s", (int)(plus - path), path);
  if (first == NULL) return mt_error_memory(error, strlen(path), "a model's path");
  motet_status status = read_one(arena, first, error, &encoder);
  if (status == MOTET_OK) status = read_one(arena, plus + 3, error, &decoder);
  if (status == MOTET_OK) status = mt_architecture_compose(arena, encoder, decoder, error, architecture);
  return status;
}

motet_status mt_architecture_parse(mt_arena *arena, const void *data, size_t bytes, const char *name,
                                   motet_error *error, mt_architecture **architecture) {
  mt_json json;
  motet_status status = mt_json_parse(data, bytes, name, error, &json);
  if (status != MOTET_OK) return status;
  status = read_json(arena, &json, architecture);
  mt_json_close(&json);
  return status;
}

motet_status mt_architecture_measure(const mt_architecture *architecture, const mt_shape *shape, motet_error *error,
                                     double extents[MT_EXTENTS]) {
  memset(extents, 0, MT_EXTENTS * sizeof *extents);
  for (int32_t s = 0; s < shape->segment_count; s++)
    if (shape->segments[s] < 0 || shape->segments[s] > INT32_MAX)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a segment of %lld tokens; 0 to %d belong here",
                          (long long)shape->segments[s], INT32_MAX);
  for (int32_t p = 0; p < shape->picture_count; p++) {
    mt_picture picture = shape->pictures[p];
    if (picture.frames < 1 || picture.frames > MT_WIDTH_MAX || picture.height < 1 || picture.width < 1 ||
        picture.height > MT_WIDTH_MAX || picture.width > MT_WIDTH_MAX)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a picture of %d frames, %d x %d; 1 to %d belong here",
                          picture.frames, picture.height, picture.width, MT_WIDTH_MAX);
  }
  if (shape->picture_count > 0 && !architecture->reads_pictures && architecture->decodes_text)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%s reads text alone, no pictures", architecture->title);
  return architecture->measure(architecture, shape, error, extents);
}

static int64_t whole_bytes(double bytes) { return bytes < 9.2e18 ? (int64_t)bytes : INT64_MAX; }

static bool is_area(int extent) { return extent >= MT_AREA_TEXT; }

motet_status mt_architecture_check_experts(const mt_architecture *architecture, int32_t expert_parallel,
                                           motet_error *error) {
  bool routes = false;
  for (int32_t j = 0; j < architecture->model->module_count; j++) {
    int64_t experts = architecture->facts[j].experts;
    routes = routes || experts > 0;
    if (experts % expert_parallel != 0)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "%d devices cannot share the %lld experts of %s evenly; accepted: a divisor of %lld",
                          expert_parallel, (long long)experts, architecture->model->modules[j].name,
                          (long long)experts);
  }
  if (routes || expert_parallel == 1) return MOTET_OK;
  return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d devices share experts, and %s has none", expert_parallel,
                      architecture->title);
}

motet_status mt_architecture_check_division(const mt_architecture *architecture, int32_t module, int32_t tensor,
                                            int32_t ulysses, motet_error *error) {
  const mt_module_facts *facts = &architecture->facts[module];
  const char *name = architecture->model->modules[module].name;
  if (facts->heads % ((int64_t)tensor * ulysses) != 0)
    return mt_error_set(
        error, MOTET_ERROR_ARGUMENT,
        "tensor %d x ulysses %d devices cannot share the %lld heads of %s evenly; accepted: a divisor of "
        "%lld",
        tensor, ulysses, (long long)facts->heads, name, (long long)facts->heads);
  if (facts->intermediate % tensor != 0)
    return mt_error_set(
        error, MOTET_ERROR_ARGUMENT,
        "tensor %d devices cannot share the feed-forward width %lld of %s evenly; accepted: a divisor of "
        "%lld",
        tensor, (long long)facts->intermediate, name, (long long)facts->intermediate);
  return MOTET_OK;
}

/* Of the tokens that `expert_parallel` devices bring, routing may send every one to as many experts of one device
 * as it holds or as a token is sent to; evenly spread, a device gets as many as it brings. */
double mt_architecture_worst_routing(const mt_module_facts *facts, int32_t expert_parallel) {
  if (facts->experts == 0 || expert_parallel <= 1) return 1.0;
  int64_t held = (facts->experts + expert_parallel - 1) / expert_parallel;
  int64_t hit = held < facts->experts_per_token ? held : facts->experts_per_token;
  return (double)expert_parallel * (double)hit / (double)facts->experts_per_token;
}

void mt_architecture_cost(const mt_architecture *architecture, int32_t layer, const double extents[MT_EXTENTS],
                          int32_t expert_parallel, mt_layer_cost *cost) {
  const mt_layer *described = &architecture->model->layers[layer];
  const mt_layer_design *design = &architecture->designs[described->kind];
  double worst = mt_architecture_worst_routing(&architecture->facts[described->module], expert_parallel);
  mt_rates sum = {0};
  *cost = (mt_layer_cost){0};
  for (int e = 0; e < MT_EXTENTS; e++) {
    const mt_rates *rates = &design->rates[e];
    double forward = extents[e] * rates->forward_flops;
    sum.forward_flops += forward;
    sum.input_flops += extents[e] * rates->input_flops;
    sum.weight_flops += extents[e] * rates->weight_flops;
    sum.saved_bytes += extents[e] * rates->saved_bytes;
    sum.passed_bytes += extents[e] * rates->passed_bytes;
    sum.saved_row_bytes += extents[e] * rates->saved_row_bytes;
    sum.passed_row_bytes += extents[e] * rates->passed_row_bytes;
    sum.output_bytes += extents[e] * rates->output_bytes;
    if (is_area(e)) cost->attention_flops += forward;
    cost->worst_forward_flops += e == MT_ROWS_ROUTED ? worst * forward : forward;
  }
  cost->forward_flops = sum.forward_flops;
  cost->input_flops = sum.input_flops;
  cost->weight_flops = sum.weight_flops;
  cost->recompute_flops = sum.forward_flops;
  cost->saved_bytes = whole_bytes(sum.saved_bytes);
  cost->passed_bytes = whole_bytes(sum.passed_bytes);
  cost->saved_row_bytes = whole_bytes(sum.saved_row_bytes);
  cost->passed_row_bytes = whole_bytes(sum.passed_row_bytes);
  cost->output_bytes = whole_bytes(sum.output_bytes);
}

int64_t mt_architecture_share(int64_t bytes, int64_t row_bytes, int32_t tensor_parallel, bool sequence_parallel) {
  if (sequence_parallel) row_bytes = 0;
  return row_bytes + (bytes - row_bytes + tensor_parallel - 1) / tensor_parallel;
}

int64_t mt_architecture_module_parameters(const mt_architecture *architecture, int32_t module) {
  const mt_module *described = &architecture->model->modules[module];
  int64_t total = architecture->facts[module].unused_parameters;
  for (int32_t l = described->layer_begin; l < described->layer_end; l++)
    total += architecture->model->layers[l].parameters;
  return total;
}

int64_t mt_architecture_parameters(const mt_architecture *architecture) {
  int64_t total = 0;
  for (int32_t m = 0; m < architecture->model->module_count; m++)
    if (!architecture->facts[m].auxiliary) total += mt_architecture_module_parameters(architecture, m);
  return total;
}

int32_t mt_architecture_trunk(const mt_architecture *architecture) {
  const mt_model *model = architecture->model;
  for (int32_t j = 0; j < model->module_count && architecture->decodes_text; j++)
    if ((model->modules[j].inputs & MOTET_INPUT_TOKENS) != 0) return j;
  return model->module_count - 1;
}

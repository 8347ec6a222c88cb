/* One model's encoders before another's decoder, as in Qwen2-VL's vision encoder with DeepSeek-V3. */
#include "model/draft.h"

#include <string.h>

/* What the parts of a composed model are called by: the encoders' modules stand before the one named so. */
static const char TRUNK[] = "llm";

static int32_t find_module(const mt_architecture *architecture, const char *name) {
  for (int32_t j = 0; j < architecture->model->module_count; j++)
    if (strcmp(architecture->model->modules[j].name, name) == 0) return j;
  return -1;
}

static motet_status check(const mt_architecture *encoder, const mt_architecture *decoder, motet_error *error) {
  int32_t trunk = find_module(encoder, TRUNK);
  const mt_model *model = encoder->model;
  bool pictures = encoder->reads_pictures && encoder->decodes_text && trunk > 0;
  if (!pictures)
    return mt_error_set(error, MOTET_ERROR_UNSUPPORTED,
                        "%s has no encoder of pictures that another decoder could take; a model that answers about "
                        "pictures belongs before the +",
                        encoder->title);
  const mt_layer_design *last = &encoder->designs[model->layers[model->modules[trunk].layer_begin - 1].kind];
  if (last->rates[MT_ROWS_FEATURES].output_bytes != 2 * (double)encoder->facts[trunk].hidden)
    return mt_error_set(
        error, MOTET_ERROR_UNSUPPORTED,
        "%s hands features to several blocks of its decoder (deepstack); another has no place for them",
        encoder->title);
  if (decoder->measure != mt_measure_text || find_module(decoder, TRUNK) != 0)
    return mt_error_set(error, MOTET_ERROR_UNSUPPORTED,
                        "%s is no decoder of text alone; such a one belongs behind the +", decoder->title);
  return MOTET_OK;
}

/* A projector whose values of width `old` have width `now`. */
typedef struct resize {
  int64_t old, now;
} resize;

static int64_t resized(const resize *widths, int64_t width) { return width == widths->old ? widths->now : width; }

static void resize_projector(mt_layer_design *design, const resize *widths) {
  int64_t weights = 0, outputs = 0;
  for (int32_t p = 0; p < design->product_count; p++) {
    weights += design->products[p].in * design->products[p].out;
    outputs += design->products[p].out;
  }
  bool bias = design->parameters - weights >= outputs; /* what maps do not hold, norms and biases do */
  for (int32_t p = 0; p < design->product_count; p++) {
    mt_product *product = &design->products[p];
    mt_rates *rates = &design->rates[product->rows];
    int64_t in = p > 0 ? resized(widths, product->in) : product->in, out = resized(widths, product->out);
    int64_t more = in * out - product->in * product->out;
    double wider = (double)(in - product->in);
    design->parameters += more + (bias ? out - product->out : 0);
    rates->forward_flops += 2 * (double)more;
    rates->input_flops += 2 * (double)more;
    rates->weight_flops += 2 * (double)more;
    /* Between two maps stands an activation: it keeps its input, the next map its own, and both move. */
    rates->saved_bytes += 4 * wider;
    rates->saved_row_bytes += 2 * wider;
    rates->passed_bytes += 2 * wider;
    rates->moved_bytes += 4 * wider;
    product->in = in;
    product->out = out;
  }
  design->rates[MT_ROWS_FEATURES].output_bytes += 2 * (double)(widths->now - widths->old);
}

/* The two models' lists, one behind the other. */
typedef struct joined {
  const mt_architecture *encoder, *decoder;
  int32_t modules, layers, edges; /* of the encoder's part */
} joined;

static motet_status make_room(mt_arena *arena, const joined *parts, motet_error *error, mt_architecture *result) {
  const mt_model *decoder = parts->decoder->model;
  mt_model *model = result->model;
  model->module_count = parts->modules + decoder->module_count;
  model->layer_count = parts->layers + decoder->layer_count;
  model->edge_count = parts->encoder->model->edge_count + decoder->edge_count;
  result->design_count = parts->encoder->design_count + parts->decoder->design_count;
  model->modules = MT_ARENA_NEW(arena, mt_module, model->module_count);
  model->layers = MT_ARENA_NEW(arena, mt_layer, model->layer_count);
  model->edges = MT_ARENA_NEW(arena, mt_module_edge, model->edge_count);
  result->facts = MT_ARENA_NEW(arena, mt_module_facts, model->module_count);
  result->designs = MT_ARENA_NEW(arena, mt_layer_design, result->design_count);
  if (model->modules == NULL || model->layers == NULL || model->edges == NULL || result->facts == NULL ||
      result->designs == NULL)
    return mt_error_memory(error, (unsigned)model->layer_count * sizeof *model->layers, "a composed model");
  return MOTET_OK;
}

static void join(const joined *parts, mt_architecture *result) {
  const mt_architecture *encoder = parts->encoder, *decoder = parts->decoder;
  mt_model *model = result->model;
  int32_t designs = encoder->design_count;
  memcpy(result->designs, encoder->designs, (size_t)designs * sizeof *encoder->designs);
  memcpy(result->designs + designs, decoder->designs, (size_t)decoder->design_count * sizeof *decoder->designs);
  memcpy(result->facts, encoder->facts, (size_t)parts->modules * sizeof *encoder->facts);
  memcpy(result->facts + parts->modules, decoder->facts,
         (size_t)decoder->model->module_count * sizeof *decoder->facts);
  memcpy(model->modules, encoder->model->modules, (size_t)parts->modules * sizeof *model->modules);
  memcpy(model->layers, encoder->model->layers, (size_t)parts->layers * sizeof *model->layers);
  for (int32_t j = 0; j < decoder->model->module_count; j++) {
    mt_module *module = &model->modules[parts->modules + j];
    *module = decoder->model->modules[j];
    module->layer_begin += parts->layers;
    module->layer_end += parts->layers;
  }
  for (int32_t l = 0; l < decoder->model->layer_count; l++) {
    mt_layer *layer = &model->layers[parts->layers + l];
    *layer = decoder->model->layers[l];
    layer->module += parts->modules;
    layer->kind += designs;
  }
  /* What fed the encoder's own decoder feeds the other one; both are the first module behind the encoder's part. */
  model->edge_count = 0;
  for (int32_t e = 0; e < encoder->model->edge_count; e++)
    if (encoder->model->edges[e].to <= parts->modules) model->edges[model->edge_count++] = encoder->model->edges[e];
  for (int32_t e = 0; e < decoder->model->edge_count; e++)
    model->edges[model->edge_count++] = (mt_module_edge){decoder->model->edges[e].from + parts->modules,
                                                         decoder->model->edges[e].to + parts->modules};
}

motet_status mt_architecture_compose(mt_arena *arena, const mt_architecture *encoder,
                                     const mt_architecture *decoder, motet_error *error,
                                     mt_architecture **architecture) {
  motet_status status = check(encoder, decoder, error);
  if (status != MOTET_OK) return status;
  mt_architecture *result = MT_ARENA_NEW(arena, mt_architecture, 1);
  mt_model *model = MT_ARENA_NEW(arena, mt_model, 1);
  if (result == NULL || model == NULL) return mt_error_memory(error, sizeof *result, "a composed model");
  *result = *encoder;
  *model = *decoder->model;
  result->model = model;
  result->name = mt_arena_format(arena, "%s+%s", encoder->name, decoder->name);
  result->title = mt_arena_format(arena, "%s and %s", encoder->title, decoder->title);
  if (result->name == NULL || result->title == NULL) return mt_error_memory(error, 64, "a composed model");
  result->usual_tokens = decoder->usual_tokens;
  result->sliding_window = decoder->sliding_window;
  int32_t trunk = find_module(encoder, TRUNK);
  const joined parts = {.encoder = encoder,
                        .decoder = decoder,
                        .modules = trunk,
                        .layers = encoder->model->modules[trunk].layer_begin};
  status = make_room(arena, &parts, error, result);
  if (status != MOTET_OK) return status;
  join(&parts, result);
  const resize widths = {encoder->facts[trunk].hidden, decoder->facts[0].hidden};
  int32_t kind = model->layers[parts.layers - 1].kind;
  if (widths.old != widths.now) resize_projector(&result->designs[kind], &widths);
  for (int32_t l = 0; l < parts.layers; l++)
    if (model->layers[l].kind == kind) model->layers[l].parameters = result->designs[kind].parameters;
  *architecture = result;
  return MOTET_OK;
}

#include "base/text.h"
#include "cli/commands.h"
#include "model/architecture.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PICTURES_MAX = 65536 };

typedef struct model_options {
  const char *images, *video, *trainable;
  int64_t tokens, expert_parallel;
  bool json;
} model_options;

static const mt_option options[] = {
    {"tokens", MT_OPTION_INTEGER, offsetof(model_options, tokens), "N",
     "tokens of the text row, those of picture features included (4096); generators: of a caption"},
    {"images", MT_OPTION_TEXT, offsetof(model_options, images), "NxHxW",
     "pictures of height H and width W, in pixels (2x448x448 where the model reads pictures); 0 for none"},
    {"video", MT_OPTION_TEXT, offsetof(model_options, video), "FxHxW", "a clip of F frames instead of pictures"},
    {"trainable", MT_OPTION_TEXT, offsetof(model_options, trainable), "MODULES",
     "modules that train, as in projector,llm; all, or none (all but what the architecture keeps frozen)"},
    {"expert-parallel", MT_OPTION_COUNT, offsetof(model_options, expert_parallel), "N",
     "devices that share routed experts: what the unluckiest one computes (1)"},
    {"json", MT_OPTION_FLAG, offsetof(model_options, json), NULL, "print one JSON document"},
};

/* What the model is asked about. */
typedef struct question {
  const mt_architecture *architecture;
  mt_shape shape;
  mt_picture picture;
  int64_t tokens;
  int32_t expert_parallel;
  double extents[MT_EXTENTS];
} question;

/* Sums over layers. */
typedef struct costs {
  int64_t layers, parameters;
  double forward, input, weight, recompute, worst;
  int64_t saved, output; /* output: of the last layer */
} costs;

/* Three numbers with an x between them. */
static motet_status read_triple(const char *option, const char *text, motet_error *error, int64_t values[3]) {
  const char *at = text;
  for (int i = 0; i < 3; i++) {
    char *end;
    values[i] = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
    bool last = i == 2;
    if (values[i] < 1 || values[i] > INT32_MAX || *end != (last ? '\0' : 'x')) {
      motet_status status = mt_error_set(error, MOTET_ERROR_ARGUMENT,
                                         "--%s: '%.80s' must be three whole numbers with an x between, as in %s",
                                         option, text, strcmp(option, "video") == 0 ? "81x480x832" : "2x448x448");
      mt_error_key(error, option);
      return status;
    }
    at = end + 1;
  }
  return MOTET_OK;
}

static motet_status choose_pictures(const model_options *chosen, motet_error *error, question *asked,
                                    int32_t *count) {
  const mt_architecture *architecture = asked->architecture;
  int64_t values[3];
  motet_status status = MOTET_OK;
  *count = architecture->reads_pictures ? (architecture->decodes_text ? 2 : 1) : 0;
  asked->picture = architecture->usual_picture;
  if (chosen->images != NULL && chosen->video != NULL)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--images and --video exclude each other");
  if (chosen->video != NULL) {
    status = read_triple("video", chosen->video, error, values);
    if (status != MOTET_OK) return status;
    *count = 1;
    asked->picture = (mt_picture){(int32_t)values[0], (int32_t)values[1], (int32_t)values[2]};
  } else if (chosen->images != NULL && strcmp(chosen->images, "0") == 0) {
    *count = 0;
  } else if (chosen->images != NULL) {
    status = read_triple("images", chosen->images, error, values);
    if (status != MOTET_OK) return status;
    if (values[0] > PICTURES_MAX)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--images: at most %d pictures", PICTURES_MAX);
    *count = (int32_t)values[0];
    asked->picture = (mt_picture){1, (int32_t)values[1], (int32_t)values[2]};
  }
  return MOTET_OK;
}

/* Whether anything trains in front of a module's first layer. */
static bool trains_before(const mt_model *model, int32_t module) {
  for (int32_t e = 0; e < model->edge_count; e++) {
    int32_t from = model->edges[e].from;
    if (model->edges[e].to != module) continue;
    if (model->layers[model->modules[from].layer_begin].trainable || trains_before(model, from)) return true;
  }
  return false;
}

static motet_status choose_trainable(const model_options *chosen, motet_error *error,
                                     const mt_architecture *architecture) {
  const mt_model *model = architecture->model;
  const char *list = chosen->trainable;
  if (list == NULL) return MOTET_OK;
  bool all = strcmp(list, "all") == 0;
  for (int32_t l = 0; l < model->layer_count; l++) model->layers[l].trainable = all;
  if (all || strcmp(list, "none") == 0) return MOTET_OK;
  for (const char *at = list; at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL) {
    size_t length = strcspn(at, ",");
    int32_t module = 0;
    while (module < model->module_count &&
           (strlen(model->modules[module].name) != length || strncmp(model->modules[module].name, at, length) != 0))
      module++;
    if (module == model->module_count)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "--trainable: %s has no module '%.*s'; 'motet model' lists them", architecture->title,
                          (int)(length < 80 ? length : 80), at);
    for (int32_t l = model->modules[module].layer_begin; l < model->modules[module].layer_end; l++)
      model->layers[l].trainable = true;
  }
  return MOTET_OK;
}

/* One segment with all pictures; for a generator a caption a picture. */
static motet_status ask(mt_arena *arena, const model_options *chosen, motet_error *error, question *asked) {
  int32_t pictures;
  motet_status status = choose_pictures(chosen, error, asked, &pictures);
  if (status != MOTET_OK) return status;
  bool text = asked->architecture->decodes_text;
  asked->tokens = chosen->tokens >= 0 ? chosen->tokens : text ? asked->architecture->usual_tokens : -1;
  int32_t segments = asked->tokens < 0 ? 0 : text ? 1 : pictures;
  mt_picture *list = MT_ARENA_NEW(arena, mt_picture, pictures);
  int64_t *lengths = MT_ARENA_NEW(arena, int64_t, segments);
  if (list == NULL || lengths == NULL) return mt_error_memory(error, (size_t)pictures * sizeof *list, "pictures");
  for (int32_t p = 0; p < pictures; p++) list[p] = asked->picture;
  for (int32_t s = 0; s < segments; s++) lengths[s] = asked->tokens;
  asked->shape =
      (mt_shape){.segments = lengths, .segment_count = segments, .pictures = list, .picture_count = pictures};
  return mt_architecture_measure(asked->architecture, &asked->shape, error, asked->extents);
}

/* A layer keeps and computes for its backward what its gate asks for: gradients of weights where it trains, of its
 * input where something in front of it does. */
static void add_layer(const question *asked, int32_t layer, costs *sum) {
  const mt_model *model = asked->architecture->model;
  const mt_layer *described = &model->layers[layer];
  bool first = layer == model->modules[described->module].layer_begin;
  bool passes = first || !described->trainable ? trains_before(model, described->module) : true;
  mt_layer_cost cost;
  mt_architecture_cost(asked->architecture, layer, asked->extents, asked->expert_parallel, &cost);
  sum->layers++;
  sum->parameters += asked->architecture->model->layers[layer].parameters;
  sum->forward += cost.forward_flops;
  if (passes) sum->input += cost.input_flops;
  if (described->trainable) sum->weight += cost.weight_flops;
  sum->recompute += cost.recompute_flops;
  sum->worst += cost.worst_forward_flops;
  int64_t saved = described->trainable ? cost.saved_bytes : passes ? cost.passed_bytes : 0;
  if (__builtin_add_overflow(sum->saved, saved, &sum->saved)) sum->saved = INT64_MAX;
  sum->output = cost.output_bytes;
}

static costs module_costs(const question *asked, int32_t module) {
  const mt_module *described = &asked->architecture->model->modules[module];
  costs sum = {0};
  for (int32_t l = described->layer_begin; l < described->layer_end; l++) add_layer(asked, l, &sum);
  sum.parameters = mt_architecture_module_parameters(asked->architecture, module);
  return sum;
}

static json_t *flops_value(double flops) {
  return flops < 9.2e18 ? json_integer((json_int_t)flops) : json_real(flops);
}

static json_t *module_value(const question *asked, int32_t module) {
  const mt_architecture *architecture = asked->architecture;
  const mt_module_facts *facts = &architecture->facts[module];
  const mt_module *described = &architecture->model->modules[module];
  costs sum = module_costs(asked, module);
  json_t *value = json_object();
  json_object_set_new(value, "name", json_string(described->name));
  json_object_set_new(value, "layers", json_integer(sum.layers));
  json_object_set_new(value, "parameters", json_integer(sum.parameters));
  json_object_set_new(value, "forward_flops", flops_value(sum.forward));
  json_object_set_new(value, "activation_bytes", json_integer(sum.saved));
  json_object_set_new(value, "input_gradient_flops", flops_value(sum.input));
  json_object_set_new(value, "weight_gradient_flops", flops_value(sum.weight));
  json_object_set_new(value, "recompute_flops", flops_value(sum.recompute));
  json_object_set_new(value, "worst_forward_flops", flops_value(sum.worst));
  json_object_set_new(value, "output_bytes", json_integer(sum.output));
  json_object_set_new(value, "unused_parameters", json_integer(facts->unused_parameters));
  json_object_set_new(value, "trainable",
                      json_boolean(architecture->model->layers[described->layer_begin].trainable));
  json_object_set_new(value, "auxiliary", json_boolean(facts->auxiliary));
  return value;
}

static int print_json(const question *asked) {
  const mt_architecture *architecture = asked->architecture;
  json_t *document = json_object(), *modules = json_array();
  json_object_set_new(document, "architecture", json_string(architecture->name));
  json_object_set_new(document, "parameters", json_integer(mt_architecture_parameters(architecture)));
  for (int32_t m = 0; m < architecture->model->module_count; m++)
    json_array_append_new(modules, module_value(asked, m));
  json_object_set_new(document, "modules", modules);
  char *text = json_dumps(document, JSON_INDENT(1));
  int code = text != NULL && mt_cli_print(text) == MT_EXIT_DONE && mt_cli_print("\n") == MT_EXIT_DONE
                 ? MT_EXIT_DONE
                 : MT_EXIT_FAILURE;
  free(text);
  json_decref(document);
  return code;
}

static const char *scaled(double value, double step, const char *const *units, int unit_count, char text[24]) {
  int unit = 0;
  while (fabs(value) >= step && unit + 1 < unit_count) {
    value /= step;
    unit++;
  }
  snprintf(text, 24, unit == 0 ? "%.0f%s" : "%.2f%s", value, units[unit]);
  return text;
}

static const char *count_text(double value, char text[24]) {
  static const char *const units[] = {"", " K", " M", " G", " T", " P", " E"};
  return scaled(value, 1000, units, 7, text);
}

static const char *bytes_text(double value, char text[24]) {
  static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  return scaled(value, 1024, units, 7, text);
}

static void print_row(mt_text *out, int indent, const char *name, const char *note, const costs *sum) {
  char parameters[24], forward[24], backward[24], saved[24];
  mt_text_append(out, "%*s%-*s %6lld %11s %11s %11s %12s%s\n", indent, "", 34 - indent, name,
                 (long long)sum->layers, count_text((double)sum->parameters, parameters),
                 count_text(sum->forward, forward), count_text(sum->input + sum->weight, backward),
                 bytes_text((double)sum->saved, saved), note);
}

/* A module's runs of layers of one kind, in order. */
static void print_kinds(mt_text *out, const question *asked, int32_t module) {
  const mt_architecture *architecture = asked->architecture;
  const mt_module *described = &architecture->model->modules[module];
  bool told[256] = {false};
  for (int32_t first = described->layer_begin; first < described->layer_end; first++) {
    const char *name = architecture->designs[architecture->model->layers[first].kind].name;
    if (told[architecture->model->layers[first].kind]) continue;
    costs sum = {0};
    for (int32_t l = first; l < described->layer_end; l++) {
      int32_t kind = architecture->model->layers[l].kind;
      if (strcmp(architecture->designs[kind].name, name) != 0) continue;
      told[kind] = true;
      add_layer(asked, l, &sum);
    }
    print_row(out, 4, name, "", &sum);
  }
}

static void print_data(mt_text *out, const question *asked) {
  mt_text_append(out, "one microbatch:");
  if (asked->tokens >= 0) mt_text_append(out, " %s", mt_counted(asked->tokens, "token").text);
  if (asked->shape.picture_count > 0) {
    if (asked->tokens >= 0) mt_text_append(out, ",");
    if (asked->picture.frames > 1)
      mt_text_append(out, " a clip of %d frames,", asked->picture.frames);
    else
      mt_text_append(out, " %s of", mt_counted(asked->shape.picture_count, "picture").text);
    mt_text_append(out, " %d x %d", asked->picture.height, asked->picture.width);
  }
  if (asked->extents[MT_ROWS_FEATURES] > 0)
    mt_text_append(out, " (%.0f of the tokens)", asked->extents[MT_ROWS_FEATURES]);
  if (!asked->architecture->decodes_text)
    mt_text_append(out, " (%.0f latent patches)", asked->extents[MT_ROWS_LATENT]);
  mt_text_append(out, "; operations and bytes in bfloat16\n\n");
}

static int print_tree(const question *asked) {
  const mt_architecture *architecture = asked->architecture;
  char number[24];
  mt_text out = {0};
  mt_text_append(&out, "%s (%s): %s parameters\n", architecture->title, architecture->name,
                 count_text((double)mt_architecture_parameters(architecture), number));
  print_data(&out, asked);
  mt_text_append(&out, "%-34s %6s %11s %11s %11s %12s\n", "", "layers", "parameters", "forward", "backward",
                 "activations");
  costs total = {0};
  for (int32_t m = 0; m < architecture->model->module_count; m++) {
    const mt_module *described = &architecture->model->modules[m];
    costs sum = module_costs(asked, m);
    bool frozen = !architecture->model->layers[described->layer_begin].trainable;
    print_row(&out, 2, described->name,
              architecture->facts[m].auxiliary ? "  beside the model"
              : frozen                         ? "  frozen"
                                               : "",
              &sum);
    print_kinds(&out, asked, m);
    if (architecture->facts[m].unused_parameters > 0)
      mt_text_append(&out, "    %-30s %6s %11s\n", "stored, never computed with", "",
                     count_text((double)architecture->facts[m].unused_parameters, number));
    total.layers += sum.layers;
    total.forward += sum.forward;
    total.input += sum.input;
    total.weight += sum.weight;
    total.saved += sum.saved;
    total.worst += sum.worst;
  }
  total.parameters = mt_architecture_parameters(architecture);
  print_row(&out, 2, "total", "", &total);
  if (asked->expert_parallel > 1)
    mt_text_append(&out, "\nworst routing over %d devices: forward %s\n", asked->expert_parallel,
                   count_text(total.worst, number));
  int code = out.failed ? MT_EXIT_FAILURE : mt_cli_print(out.data);
  mt_text_free(&out);
  return code;
}

static int run(const mt_command *command, int argc, char **argv) {
  model_options chosen = {.tokens = -1, .expert_parallel = 1};
  motet_error error;
  motet_error_clear(&error);
  mt_options_given given;
  int words = mt_cli_parse(command, argc, argv, &chosen, &given, &error);
  if (words >= 0 && words != 1)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "model takes one directory or config.json, not %d", words);
  if (error.status != MOTET_OK) return mt_cli_usage(command, &error, chosen.json);
  question asked = {.expert_parallel = (int32_t)chosen.expert_parallel};
  mt_architecture *architecture;
  mt_arena *arena = mt_arena_create();
  motet_status status = arena != NULL ? mt_architecture_read(arena, argv[0], &error, &architecture)
                                      : mt_error_memory(&error, sizeof(void *), "a model");
  if (status == MOTET_OK) {
    asked.architecture = architecture;
    status = choose_trainable(&chosen, &error, architecture);
  }
  if (status == MOTET_OK && mt_architecture_check_experts(architecture, asked.expert_parallel, &error) != MOTET_OK)
    status = mt_error_context(&error, MOTET_ERROR_ARGUMENT, "--expert-parallel");
  if (status == MOTET_OK) status = ask(arena, &chosen, &error, &asked);
  int code = status != MOTET_OK ? mt_cli_fail(&error, chosen.json)
             : chosen.json      ? print_json(&asked)
                                : print_tree(&asked);
  mt_arena_destroy(arena);
  return code;
}

const mt_command mt_command_model = {
    .name = "model",
    .arguments = "DIR|config.json [options]",
    .summary = "parameters, operations and activation bytes of a model",
    .details =
        "Reads a HuggingFace directory or its config.json: modules, layers, exact parameter counts, and what\n"
        "one microbatch costs. Weights are not needed. docs/models.md has the formulas and the known models.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};

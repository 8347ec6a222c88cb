#include "train/job_keys.h"

#include "base/yaml.h"
#include "train/job_phases.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(mt_job, field)
#define TEXT(name, field, required, standard, meaning)                                                             \
  { name, MT_JOB_TEXT, AT(field), 0, 0, NULL, standard, required, meaning }
#define INTEGER(name, field, least, most, standard, meaning)                                                       \
  { name, MT_JOB_INTEGER, AT(field), least, most, NULL, standard, false, meaning }
#define NUMBER(name, field, least, most, standard, meaning)                                                        \
  { name, MT_JOB_NUMBER, AT(field), least, most, NULL, standard, false, meaning }
#define CHOICE(name, field, choices, standard, meaning)                                                            \
  { name, MT_JOB_CHOICE, AT(field), 0, 0, choices, standard, false, meaning }

/* clang-format off: a table */
const mt_job_key mt_job_keys[] = {
    TEXT("model", model, false, NULL, "directory of a model in the HuggingFace layout"),
    TEXT("config", config, false, NULL, "a config.json instead of a model, for random weights"),
    CHOICE("init", init, "pretrained|random", NULL, "where the weights come from"),
    {"trainable", MT_JOB_TEXTS, AT(trainable), 0, 64, "vision|projector|llm", "all", false,
     "modules that are trained; the others are frozen"},
    {"phases", MT_JOB_PHASES, AT(phase_count), 0, 0, NULL, NULL, false,
     "parts of the run with other trainable modules, learning rates or schedules"},
    TEXT("schedule", schedule, false, "<vision+projector: transpose, llm: 1f1b>", "schedule of the step"),
    TEXT("profile", profile, false, NULL, "measured costs from `motet profile`; without it: from FLOPs"),
    CHOICE("deterministic", deterministic, "run|exact", "run",
           "`run`: the same plan gives the same bits; `exact`: any plan over the same microbatches does"),
    TEXT("output_dir", output_dir, true, NULL, "directory of metrics, timelines and checkpoints"),

    TEXT("data.train", data.train, true, NULL, "JSON lines of conversations to train on"),
    TEXT("data.eval", data.eval, false, NULL, "JSON lines of conversations to evaluate on"),
    TEXT("data.images_root", data.images_root, false, NULL, "directory of relative picture paths"),
    TEXT("data.tokenizer", data.tokenizer, false, NULL,
         "a tokenizer.json or its directory; without it: the model's"),
    TEXT("data.system_prompt", data.system_prompt, false, NULL, "put in front of conversations that have none"),
    TEXT("data.feature_cache", data.feature_cache, false, NULL,
         "directory that keeps the features of frozen image modules; without it: computed every time"),
    INTEGER("data.max_tokens", data.max_tokens, 0, 1e9, "0", "longer samples are left out; 0: none"),
    INTEGER("data.decode_threads", data.decode_threads, 1, 256, "1",
            "threads of a rank that decode pictures ahead"),
    INTEGER("data.video_frames", data.video_frames, 1, 4096, "8", "frames of a video that has as many"),

    INTEGER("parallel.pipeline", parallel.pipeline, 1, 65536, "1", "ranks of one pipeline"),
    INTEGER("parallel.data", parallel.data, 1, 65536, "1", "pipelines that share the data"),
    INTEGER("parallel.context", parallel.context, 1, 65536, "1",
            "ranks of the plane that each pipeline rank is: context parallelism"),
    INTEGER("parallel.tensor", parallel.tensor, 1, 1, "1",
            "ranks that divide each layer: only jobs for a cluster have more"),
    {"parallel.split", MT_JOB_INTEGERS, AT(parallel.split), 0, 100000, NULL, NULL, false,
     "layers of each stage of the sharded regions, in stage order; without it: even"},

    CHOICE("context.degrees", context.degrees, "flexible|static", "flexible",
           "`flexible`: every microbatch is cut anew into groups; `static`: it is one group of the whole plane"),
    INTEGER("context.ulysses", context.ulysses, 1, 65536, "1",
            "most ranks of a group that exchange heads; the others stand in a ring"),
    INTEGER("context.rank_tokens", context.rank_tokens, 0, 1e9, "0",
            "most tokens of a microbatch that a rank takes; 0: any"),

    {"memory.recompute", MT_JOB_TEXTS, AT(memory.recompute), 0, 64, "vision|projector|llm", NULL, false,
     "modules whose activations are dropped and computed again for the backward"},

    {"train.steps", MT_JOB_INTEGER, AT(train.steps), 0, 1e12, NULL, NULL, true, "optimizer steps"},
    INTEGER("train.microbatches", train.microbatches, 1, 100000, "1", "microbatches of one pipeline in a step"),
    INTEGER("train.global_batch", train.global_batch, 1, 1e9, NULL,
            "samples of a step over all pipelines; without "
            "it: one a microbatch"),
    {"train.learning_rate", MT_JOB_RATES, AT(train.learning_rate), 0, 1e3, NULL, "1e-4", false,
     "largest learning rate, or one for each module"},
    INTEGER("train.warmup_steps", train.warmup_steps, 0, 1e12, "0", "steps of linear rise"),
    CHOICE("train.decay", train.decay, "none|linear|cosine", "none", "fall to zero after the rise"),
    NUMBER("train.weight_decay", train.weight_decay, 0, 10, "0", "AdamW's decoupled decay, of matrices"),
    {"train.betas", MT_JOB_NUMBERS, AT(train.betas), 0, 0.999999999, NULL, "[0.9, 0.999]", false, "AdamW's two"},
    NUMBER("train.epsilon", train.epsilon, 1e-30, 1, "1e-8", "AdamW's"),
    NUMBER("train.clip_norm", train.clip_norm, 0, 1e30, "1", "largest norm of all gradients; 0: no clipping"),
    INTEGER("train.seed", train.seed, 0, 9007199254740992.0, "0", "of sample order and random weights"),
    CHOICE("train.dtype", train.dtype, "float32|bfloat16", "float32",
           "of activations, messages and products; sums, weights and optimizer stay float32"),
    CHOICE("train.bind", train.bind, "cores|none", "cores",
           "a rank to its share of the cores; none: where the system puts it"),
    INTEGER("train.threads", train.threads, 0, 1024, "0", "threads of a rank; 0: its share of the cores"),
    INTEGER("train.save_every", train.save_every, 0, 1e12, "0", "steps between checkpoints; 0: the last step only"),
    INTEGER("train.keep", train.keep, 1, 1e6, "2", "checkpoints that are kept"),
    INTEGER("train.eval_every", train.eval_every, 0, 1e12, "0", "steps between evaluations; 0: none"),
    INTEGER("train.eval_batches", train.eval_batches, 1, 1e6, "1", "steps' worth of samples in an evaluation"),
    INTEGER("train.log_every", train.log_every, 1, 1e12, "1", "steps between printed lines"),
    INTEGER("train.timeline_every", train.timeline_every, 0, 1e12, "10", "steps between kept timelines; 0: none"),
    CHOICE("train.tensorboard", train.tensorboard, "false|true", "false", "event files for TensorBoard too"),
    NUMBER("train.search_seconds", train.search_seconds, 0, 3600, "0.02",
           "about so long the order of each step is improved; 0: greedy"),
    TEXT("train.resume", train.resume, false, "auto", "`auto`, `never`, or the directory of a checkpoint"),
    NUMBER("train.hang_seconds", train.hang_seconds, 0.1, 1e6, "2", "all ranks waiting for so long is a failure"),
    NUMBER("train.stall_seconds", train.stall_seconds, 0.1, 1e9, "600", "one wait for so long is a failure"),
    NUMBER("train.heartbeat_seconds", train.heartbeat_seconds, 0, 1e9, "3",
           "a rank not heard of for so long is a failure; 0: never"),
};
/* clang-format on */
const int32_t mt_job_key_count = sizeof mt_job_keys / sizeof *mt_job_keys;

const mt_job_key *mt_job_key_find(const char *name) {
  for (int32_t i = 0; i < mt_job_key_count; i++)
    if (strcmp(mt_job_keys[i].name, name) == 0) return &mt_job_keys[i];
  return NULL;
}

bool mt_job_section_exists(const char *name) {
  size_t length = strlen(name);
  for (int32_t i = 0; i < mt_job_key_count; i++)
    if (strncmp(mt_job_keys[i].name, name, length) == 0 && mt_job_keys[i].name[length] == '.') return true;
  return false;
}

enum { NAME_MOST = 64 };

/** Edits (insert, delete, replace) from @p a to @p b; names beyond NAME_MOST are as far as can be. */
static int32_t distance(const char *a, const char *b) {
  size_t columns = strlen(b);
  if (strlen(a) > NAME_MOST || columns > NAME_MOST) return NAME_MOST;
  int32_t row[NAME_MOST + 1];
  for (size_t j = 0; j <= columns; j++) row[j] = (int32_t)j;
  for (size_t i = 1; a[i - 1] != 0; i++) {
    int32_t diagonal = row[0];
    row[0] = (int32_t)i;
    for (size_t j = 1; j <= columns; j++) {
      int32_t best = diagonal + (a[i - 1] != b[j - 1]);
      if (row[j] + 1 < best) best = row[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      diagonal = row[j];
      row[j] = best;
    }
  }
  return row[columns];
}

const char *mt_job_key_nearest(const char *name) {
  const char *nearest = NULL;
  int32_t least = (int32_t)strlen(name) / 3 + 2;
  const char *leaf = strrchr(name, '.');
  for (int32_t i = 0; i < mt_job_key_count; i++) {
    const char *known = mt_job_keys[i].name, *known_leaf = strrchr(known, '.');
    int32_t edits = distance(name, known);
    /* The right word in the wrong section, or without one. */
    if (strcmp(leaf != NULL ? leaf + 1 : name, known_leaf != NULL ? known_leaf + 1 : known) == 0) edits = 1;
    if (edits < least) least = edits, nearest = known;
  }
  return nearest;
}

static const char *accepted(const mt_job_key *key, char text[160]) {
  static const char *const names[MT_JOB_KINDS] = {
      "a text",          "a whole number",          "a number",          "one of",
      "a list of texts", "a list of whole numbers", "a list of numbers", "a number",
      "a list of phases"};
  if (key->kind == MT_JOB_PHASES)
    snprintf(text, 160, "%s", names[key->kind]);
  else if (key->kind == MT_JOB_CHOICE)
    snprintf(text, 160, "one of %s", key->choices);
  else if (key->kind == MT_JOB_TEXT || key->kind == MT_JOB_TEXTS)
    snprintf(text, 160, "%s", names[key->kind]);
  else if (key->least == key->most)
    snprintf(text, 160, "%g: nothing else is supported yet", key->least);
  else
    snprintf(text, 160, "%s from %.15g to %.15g", names[key->kind], key->least, key->most);
  return text;
}

static motet_status refuse(const mt_job_key *key, const char *value, motet_error *error) {
  char text[160];
  motet_status status =
      mt_error_set(error, MOTET_ERROR_PARSE, "%s is %.80s, and must be %s", key->name, value, accepted(key, text));
  mt_error_key(error, key->name);
  return status;
}

static bool read_integer(const char *text, double least, double most, int64_t *value) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end != 0 || errno != 0) return false;
  *value = number;
  return (double)number >= least && (double)number <= most;
}

static bool read_number(const char *text, double least, double most, double *value) {
  char *end;
  if (strpbrk(text, "xXnN") != NULL) return false; /* hexadecimal, infinite and not a number */
  *value = strtod(text, &end);
  return end != text && *end == 0 && isfinite(*value) && *value >= least && *value <= most;
}

static bool read_choice(const char *choices, const char *text, int64_t *value) {
  size_t length = strlen(text);
  int64_t index = 0;
  for (const char *at = choices; at != NULL; index++) {
    const char *end = strchr(at, '|');
    if ((end != NULL ? (size_t)(end - at) : strlen(at)) == length && strncmp(at, text, length) == 0) {
      *value = index;
      return true;
    }
    at = end != NULL ? end + 1 : NULL;
  }
  return false;
}

static motet_status read_scalar(const mt_job_key *key, const char *text, motet_error *error, mt_job *job) {
  void *field = (char *)job + key->offset;
  bool good = false;
  switch (key->kind) {
  case MT_JOB_TEXT: {
    const char *copy = mt_arena_text(job->arena, text);
    if (copy == NULL) return mt_error_memory(error, strlen(text), "the job");
    memcpy(field, &copy, sizeof copy);
    good = *text != 0;
    break;
  }
  case MT_JOB_INTEGER: good = read_integer(text, key->least, key->most, field); break;
  case MT_JOB_NUMBER: good = read_number(text, key->least, key->most, field); break;
  case MT_JOB_CHOICE: good = read_choice(key->choices, text, field); break;
  default: break;
  }
  char quoted[96];
  snprintf(quoted, sizeof quoted, "'%.80s'", text);
  return good ? MOTET_OK : refuse(key, quoted, error);
}

motet_status mt_job_key_number(const mt_job_key *key, yaml_document_t *document, const yaml_node_t *node,
                               motet_error *error, double *value) {
  (void)document;
  if (node == NULL || node->type != YAML_SCALAR_NODE) return refuse(key, "a list or mapping", error);
  const char *text = (const char *)node->data.scalar.value;
  char quoted[96];
  snprintf(quoted, sizeof quoted, "'%.80s'", text);
  bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  if (!plain) return refuse(key, "a quoted text", error);
  if (*text == 0 || mt_yaml_is_null(text)) return refuse(key, "left without a value", error);
  return read_number(text, key->least, key->most, value) ? MOTET_OK : refuse(key, quoted, error);
}

/** Every one of the key's choices. */
static motet_status take_all(const mt_job_key *key, motet_error *error, mt_job *job) {
  const char **texts = MT_ARENA_NEW(job->arena, const char *, strlen(key->choices));
  char *copy = mt_arena_text(job->arena, key->choices), *rest = NULL;
  int32_t count = 0;
  if (texts == NULL || copy == NULL) return mt_error_memory(error, strlen(key->choices), "the job");
  for (char *word = strtok_r(copy, "|", &rest); word != NULL; word = strtok_r(NULL, "|", &rest))
    texts[count++] = word;
  *(mt_job_texts *)(void *)((char *)job + key->offset) = (mt_job_texts){count, texts};
  return MOTET_OK;
}

static const char *scalar_text(const yaml_node_t *node) {
  return node != NULL && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

static motet_status read_list(const mt_job_key *key, yaml_document_t *document, const yaml_node_t *node,
                              motet_error *error, mt_job *job) {
  const yaml_node_item_t *items = node->data.sequence.items.start;
  size_t count = (size_t)(node->data.sequence.items.top - items);
  void *field = (char *)job + key->offset;
  const char **texts = MT_ARENA_NEW(job->arena, const char *, count);
  int64_t *integers = MT_ARENA_NEW(job->arena, int64_t, count);
  double *numbers = MT_ARENA_NEW(job->arena, double, count);
  if (texts == NULL || integers == NULL || numbers == NULL) return mt_error_memory(error, count, "the job");
  for (size_t i = 0; i < count; i++) {
    const char *text = scalar_text(yaml_document_get_node(document, items[i]));
    bool good = text != NULL && *text != 0;
    if (good && key->kind == MT_JOB_TEXTS) {
      texts[i] = mt_arena_text(job->arena, text);
      if (texts[i] == NULL) return mt_error_memory(error, strlen(text), "the job");
    }
    if (good && key->kind == MT_JOB_INTEGERS) good = read_integer(text, key->least, key->most, &integers[i]);
    if (good && key->kind == MT_JOB_NUMBERS) good = read_number(text, key->least, key->most, &numbers[i]);
    char entry[112]; /* 60 letters, 20 digits and the words between */
    snprintf(entry, sizeof entry, "'%.60s' at its entry %zu", text != NULL ? text : "a list or mapping", i + 1);
    if (!good) return refuse(key, entry, error);
  }
  if (key->kind == MT_JOB_TEXTS) *(mt_job_texts *)field = (mt_job_texts){(int32_t)count, texts};
  if (key->kind == MT_JOB_INTEGERS) *(mt_job_integers *)field = (mt_job_integers){(int32_t)count, integers};
  if (key->kind == MT_JOB_NUMBERS) *(mt_job_numbers *)field = (mt_job_numbers){(int32_t)count, numbers};
  return MOTET_OK;
}

motet_status mt_job_key_read(const mt_job_key *key, yaml_document_t *document, const yaml_node_t *node,
                             motet_error *error, mt_job *job) {
  bool list = key->kind >= MT_JOB_TEXTS;
  if (key->kind == MT_JOB_PHASES) return mt_job_phases_read(key, document, node, error, job);
  if (key->kind == MT_JOB_RATES)
    return mt_job_rates_read(key, document, node, error, (mt_job_rates *)(void *)((char *)job + key->offset));
  if (node->type == YAML_MAPPING_NODE)
    return refuse(key, key->kind == MT_JOB_TEXT ? "a mapping (a text with ': ' in it needs quotes)" : "a mapping",
                  error);
  if (list && node->type == YAML_SEQUENCE_NODE) return read_list(key, document, node, error, job);
  if (node->type == YAML_SEQUENCE_NODE) return refuse(key, "a list", error);
  const char *text = (const char *)node->data.scalar.value;
  bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  if (node->data.scalar.length != strlen(text)) return refuse(key, "a text with a zero byte", error);
  if (plain && (*text == 0 || mt_yaml_is_null(text))) return refuse(key, "left without a value", error);
  if (key->kind == MT_JOB_TEXTS && key->choices != NULL && strcmp(text, "all") == 0)
    return take_all(key, error, job);
  if (list) {
    char quoted[96];
    snprintf(quoted, sizeof quoted, "no list (in brackets it is one: [%.30s])", text);
    return refuse(key, quoted, error);
  }
  if (!plain && (key->kind == MT_JOB_INTEGER || key->kind == MT_JOB_NUMBER))
    return refuse(key, "a quoted text", error);
  return read_scalar(key, text, error, job);
}

motet_status mt_job_key_read_text(const mt_job_key *key, const char *text, motet_error *error, mt_job *job) {
  if (key->kind < MT_JOB_TEXTS) return read_scalar(key, text, error, job);
  yaml_document_t document;
  motet_status status = mt_yaml_load(text, strlen(text), NULL, NULL, &document);
  if (status != MOTET_OK) return refuse(key, text, error);
  const yaml_node_t *root = yaml_document_get_root_node(&document);
  status = root != NULL ? mt_job_key_read(key, &document, root, error, job) : refuse(key, "empty", error);
  yaml_document_delete(&document);
  return status;
}

size_t mt_job_key_bytes(const mt_job_key *key) {
  static const size_t sizes[MT_JOB_KINDS] = {
      [MT_JOB_TEXT] = sizeof(const char *),      [MT_JOB_INTEGER] = sizeof(int64_t),
      [MT_JOB_NUMBER] = sizeof(double),          [MT_JOB_CHOICE] = sizeof(int64_t),
      [MT_JOB_TEXTS] = sizeof(mt_job_texts),     [MT_JOB_INTEGERS] = sizeof(mt_job_integers),
      [MT_JOB_NUMBERS] = sizeof(mt_job_numbers), [MT_JOB_RATES] = sizeof(mt_job_rates),
      [MT_JOB_PHASES] = sizeof(int32_t),
  };
  return sizes[key->kind];
}

bool mt_job_key_remove(const mt_job_key *key, mt_job *job) {
  if (key->standard != NULL) return false;
  memset((char *)job + key->offset, 0, mt_job_key_bytes(key));
  return true;
}

/** A double-quoted YAML scalar. */
static void print_text(const char *value, mt_text *text) {
  mt_text_append(text, "\"");
  for (; *value != 0; value++) {
    unsigned char byte = (unsigned char)*value;
    if (byte == '"' || byte == '\\')
      mt_text_append(text, "\\%c", byte);
    else if (byte < 0x20)
      mt_text_append(text, "\\x%02x", byte);
    else
      mt_text_append(text, "%c", byte);
  }
  mt_text_append(text, "\"");
}

static void print_number(double value, mt_text *text) {
  char form[32];
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(form, sizeof form, "%.*g", digits, value);
    if (strtod(form, NULL) == value) break;
  }
  mt_text_append(text, "%s", form);
}

static void print_rates(const mt_job_rates *rates, mt_text *text) {
  bool own = false;
  for (int j = 0; j < MT_JOB_MODULES; j++) own |= !isnan(rates->modules[j]);
  if (!own && !isnan(rates->standard)) {
    print_number(rates->standard, text);
    return;
  }
  const char *between = "{";
  for (int j = 0; j <= MT_JOB_MODULES; j++) {
    double rate = j < MT_JOB_MODULES ? rates->modules[j] : rates->standard;
    if (isnan(rate)) continue;
    mt_text_append(text, "%s%s: ", between, j < MT_JOB_MODULES ? mt_job_modules[j] : "default");
    print_number(rate, text);
    between = ", ";
  }
  mt_text_append(text, "%s}", *between == '{' ? "{" : "");
}

bool mt_job_key_print(const mt_job_key *key, const mt_job *job, mt_text *text) {
  const void *field = (const char *)job + key->offset;
  switch (key->kind) {
  case MT_JOB_TEXT: {
    const char *value = *(const char *const *)field;
    if (value == NULL) return false;
    print_text(value, text);
    return true;
  }
  case MT_JOB_INTEGER: mt_text_append(text, "%lld", (long long)*(const int64_t *)field); return true;
  case MT_JOB_NUMBER: print_number(*(const double *)field, text); return true;
  case MT_JOB_CHOICE: {
    const char *at = key->choices;
    for (int64_t i = 0; i < *(const int64_t *)field; i++) at = strchr(at, '|') + 1;
    mt_text_append(text, "%.*s", (int)strcspn(at, "|"), at);
    return true;
  }
  case MT_JOB_RATES: print_rates(field, text); return true;
  case MT_JOB_PHASES: return mt_job_phases_print(job, text);
  default: break;
  }
  int32_t count = *(const int32_t *)field;
  if (count == 0 && key->standard == NULL) return false;
  mt_text_append(text, "[");
  for (int32_t i = 0; i < count; i++) {
    if (i > 0) mt_text_append(text, ", ");
    if (key->kind == MT_JOB_TEXTS) print_text(((const mt_job_texts *)field)->values[i], text);
    if (key->kind == MT_JOB_INTEGERS)
      mt_text_append(text, "%lld", (long long)((const mt_job_integers *)field)->values[i]);
    if (key->kind == MT_JOB_NUMBERS) print_number(((const mt_job_numbers *)field)->values[i], text);
  }
  mt_text_append(text, "]");
  return true;
}

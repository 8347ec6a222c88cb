#include "train/compare.h"

#include "base/array.h"
#include "base/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP_STEPS = 3 };

typedef MT_ARRAY(json_t *) line_array;

static motet_status malformed(const char *path, int line, motet_error *error) {
  mt_error_set(error, MOTET_ERROR_PARSE, "this is no line of step times as `motet train` writes them");
  mt_error_place(error, path, line);
  return MOTET_ERROR_PARSE;
}

static motet_status read_lines(const char *path, motet_error *error, line_array *lines) {
  char *text;
  size_t bytes;
  motet_status status = mt_file_read(path, error, &text, &bytes);
  if (status != MOTET_OK) return status;
  int number = 0;
  for (char *line = text, *end = NULL;
       status == MOTET_OK && (end = memchr(line, '\n', bytes - (size_t)(line - text))) != NULL; line = end + 1) {
    json_t *root = json_loadb(line, (size_t)(end - line), 0, NULL);
    number++;
    if (!json_is_object(root)) {
      json_decref(root);
      status = malformed(path, number, error);
    } else if (!MT_ARRAY_PUSH(lines, root)) {
      json_decref(root);
      status = mt_error_memory(error, bytes, "the steps");
    }
  }
  free(text);
  if (status == MOTET_OK && lines->count == 0) {
    mt_error_set(error, MOTET_ERROR_PARSE, "no step has been measured in this run");
    mt_error_place(error, path, 0);
    status = MOTET_ERROR_PARSE;
  }
  return status;
}

/** Medians of the two numbers that @p find gives for each line. */
static mt_comparison_pair medians(const line_array *lines, size_t first, double *scratch,
                                  const json_t *(*find)(const json_t *line, const void *context),
                                  const void *context) {
  mt_comparison_pair pair = {0};
  for (int which = 0; which < 2; which++) {
    for (size_t i = first; i < lines->count; i++)
      scratch[i - first] = json_number_value(json_array_get(find(lines->data[i], context), (size_t)which));
    *(which == 0 ? &pair.measured : &pair.simulated) = mt_median(scratch, lines->count - first);
  }
  return pair;
}

static const json_t *find_kind(const json_t *line, const void *name) {
  return json_object_get(json_object_get(line, "kinds"), name);
}

static const json_t *find_rank(const json_t *line, const void *rank) {
  return json_array_get(json_object_get(line, "ranks"), (size_t) * (const int32_t *)rank);
}

static motet_status summarize(const line_array *lines, mt_arena *arena, motet_error *error, mt_comparison *out) {
  size_t first = lines->count > 2 * WARM_UP_STEPS ? WARM_UP_STEPS : 0, count = lines->count - first;
  double *scratch = MT_ARENA_NEW(arena, double, count);
  size_t ranks = json_array_size(json_object_get(lines->data[0], "ranks"));
  *out = (mt_comparison){.steps = (int32_t)count, .rank_count = (int32_t)ranks};
  out->ranks = MT_ARENA_NEW(arena, mt_comparison_pair, ranks);
  if (scratch == NULL || out->ranks == NULL) return mt_error_memory(error, count * sizeof(double), "the steps");
  for (size_t i = 0; i < count; i++)
    scratch[i] = json_number_value(json_object_get(lines->data[first + i], "measured"));
  out->makespan.measured = mt_median(scratch, count);
  for (size_t i = 0; i < count; i++)
    scratch[i] = json_number_value(json_object_get(lines->data[first + i], "simulated"));
  out->makespan.simulated = mt_median(scratch, count);
  out->difference = out->makespan.simulated > 0 ? out->makespan.measured / out->makespan.simulated - 1 : 0;
  for (int kind = 0; kind < MOTET_INSTRUCTION_KINDS; kind++)
    out->kinds[kind] = medians(lines, first, scratch, find_kind, motet_instruction_name(kind));
  for (int32_t rank = 0; rank < out->rank_count; rank++)
    out->ranks[rank] = medians(lines, first, scratch, find_rank, &rank);
  return MOTET_OK;
}

/** What the kinds [first, last] took over what was simulated; 1 where a run has none of them. */
static double ratio_of(const mt_comparison *comparison, int first, int last) {
  double measured = 0, simulated = 0;
  for (int kind = first; kind <= last; kind++) {
    measured += comparison->kinds[kind].measured;
    simulated += comparison->kinds[kind].simulated;
  }
  return measured > 0 && simulated > 0 ? measured / simulated : 1;
}

void mt_comparison_calibrate(const mt_comparison *comparison, mt_layer_costs *costs) {
  const double forward = ratio_of(comparison, MOTET_FWD, MOTET_FWD),
               backward = ratio_of(comparison, MOTET_BWD, MOTET_BWD_W);
  for (int kind = 0; kind < MT_LAYER_KINDS; kind++)
    for (int pass = 0; pass < MT_PASSES; pass++)
      for (int feature = 0; feature < MT_COST_FEATURES; feature++)
        costs->seconds[kind][pass][feature] *= pass == MT_PASS_FORWARD ? forward : backward;
  costs->optimizer_seconds_per_parameter *= ratio_of(comparison, MOTET_OPTIM, MOTET_OPTIM);
}

motet_status mt_comparison_read(const char *path, mt_arena *arena, motet_error *error, mt_comparison *comparison) {
  const char *file = mt_arena_format(arena, "%s/timeline/steps.jsonl", path);
  if (file == NULL) return mt_error_memory(error, strlen(path), "a path");
  line_array lines = {0};
  motet_status status = read_lines(file, error, &lines);
  if (status == MOTET_OK) status = summarize(&lines, arena, error, comparison);
  for (size_t i = 0; i < lines.count; i++) json_decref(lines.data[i]);
  free(lines.data);
  return status;
}

#include "cost/unit.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS_MAX = 64 };

typedef struct scanner {
  const char *text;
  const char *at;
  const char *option; /* "--unit", for messages */
  motet_error *error;
} scanner;

static void skip_blanks(scanner *scan) {
  while (isspace((unsigned char)*scan->at)) scan->at++;
}

static motet_status complain(const scanner *scan, const char *wanted) {
  return mt_error_set(scan->error, MOTET_ERROR_PARSE, "%s: column %d: expected %s, found %s%.12s%s", scan->option,
                      (int)(scan->at - scan->text) + 1, wanted, *scan->at ? "'" : "the end", scan->at,
                      *scan->at ? "'" : "");
}

static motet_status scan_number(scanner *scan, double *number) {
  skip_blanks(scan);
  char *end;
  *number = strtod(scan->at, &end);
  if (end == scan->at || !isfinite(*number) || *number < 0)
    return complain(scan, "a finite number that is not negative");
  scan->at = end;
  return MOTET_OK;
}

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.' || c == '+'; }

/* The name in front of a colon, or "" where the unit starts with its first time. */
static motet_status scan_name(scanner *scan, mt_arena *arena, const char **name) {
  const char *begin = scan->at;
  while (is_name(*scan->at)) scan->at++;
  size_t length = (size_t)(scan->at - begin);
  skip_blanks(scan);
  if (*scan->at != ':') {
    scan->at = begin;
    *name = "";
    return MOTET_OK;
  }
  if (length == 0) return complain(scan, "the name of a module before ':'");
  scan->at++;
  *name = mt_arena_format(arena, "%.*s", (int)length, begin);
  return *name != NULL ? MOTET_OK : mt_error_memory(scan->error, length, "a unit name");
}

/* Times as they were written; a negative one was not. */
typedef struct times {
  double f, b, x, w;
} times;

static motet_status scan_times(scanner *scan, times *found) {
  *found = (times){-1, -1, -1, -1};
  for (;;) {
    skip_blanks(scan);
    double *target = *scan->at == 'f'   ? &found->f
                     : *scan->at == 'b' ? &found->b
                     : *scan->at == 'x' ? &found->x
                     : *scan->at == 'w' ? &found->w
                                        : NULL;
    if (target == NULL) return complain(scan, "a time f, b, x or w, as in 'f=1, b=2'");
    if (*target >= 0) return complain(scan, "each time once");
    scan->at++;
    skip_blanks(scan);
    if (*scan->at != '=') return complain(scan, "'='");
    scan->at++;
    motet_status status = scan_number(scan, target);
    if (status != MOTET_OK) return status;
    skip_blanks(scan);
    if (*scan->at != ',') return MOTET_OK;
    scan->at++;
  }
}

static motet_status settle(const scanner *scan, const times *found, mt_unit *unit) {
  const char *name = *unit->name != '\0' ? unit->name : "the unit";
  if ((found->x >= 0) != (found->w >= 0))
    return mt_error_set(scan->error, MOTET_ERROR_ARGUMENT,
                        "%s: %s: x and w stand for the two halves of a backward; give both", scan->option, name);
  if (found->b >= 0 && found->x >= 0 && fabs(found->b - found->x - found->w) > 1e-9 * (1 + found->b))
    return mt_error_set(scan->error, MOTET_ERROR_ARGUMENT, "%s: %s: b=%g is not x + w = %g; leave b out",
                        scan->option, name, found->b, found->x + found->w);
  unit->has_forward = found->f >= 0;
  unit->has_backward = found->b >= 0 || found->x >= 0;
  unit->forward = unit->has_forward ? found->f : 0;
  if (found->x >= 0) {
    unit->input = found->x;
    unit->weight = found->w;
    unit->backward = found->x + found->w;
  } else if (found->b >= 0) {
    unit->backward = found->b;
    unit->input = unit->weight = found->b / 2;
  }
  return MOTET_OK;
}

motet_status mt_unit_parse(mt_arena *arena, const char *text, motet_error *error, mt_unit **result,
                           int32_t *unit_count) {
  scanner scan = {.text = text, .at = text, .option = "--unit", .error = error};
  mt_unit *units = MT_ARENA_NEW(arena, mt_unit, UNITS_MAX);
  if (units == NULL) return mt_error_memory(error, sizeof *units * UNITS_MAX, "units");
  int32_t count = 0;
  for (;;) {
    skip_blanks(&scan);
    if (count == UNITS_MAX) return complain(&scan, "at most 64 units");
    mt_unit *unit = &units[count];
    times found;
    motet_status status = scan_name(&scan, arena, &unit->name);
    if (status == MOTET_OK) status = scan_times(&scan, &found);
    if (status == MOTET_OK) status = settle(&scan, &found, unit);
    if (status != MOTET_OK) return status;
    for (int32_t i = 0; i < count; i++)
      if (strcmp(units[i].name, unit->name) == 0)
        return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--unit: %s stands twice",
                            *unit->name != '\0' ? unit->name : "a unit without a name");
    count++;
    skip_blanks(&scan);
    if (*scan.at == ';')
      scan.at++;
    else if (*scan.at != '\0')
      return complain(&scan, "',' and another time, ';' and another unit, or the end");
    skip_blanks(&scan);
    if (*scan.at == '\0') break;
  }
  for (int32_t i = 0; i < count && count > 1; i++)
    if (*units[i].name == '\0')
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "--unit: with several units each needs a name, as in 'vision: f=1; llm: f=1, b=2'");
  *result = units;
  *unit_count = count;
  return MOTET_OK;
}

motet_status mt_unit_numbers(mt_arena *arena, const char *text, const char *what, motet_error *error,
                             double **result, int32_t *number_count) {
  size_t most = 1;
  for (const char *c = text; *c != '\0'; c++) most += *c == ',';
  scanner scan = {.text = text, .at = text, .option = what, .error = error};
  double *numbers = MT_ARENA_NEW(arena, double, most);
  if (numbers == NULL || most > INT32_MAX) return mt_error_memory(error, most * sizeof *numbers, what);
  int32_t count = 0;
  for (;;) {
    motet_status status = scan_number(&scan, &numbers[count]);
    if (status != MOTET_OK) return status;
    count++;
    skip_blanks(&scan);
    if (*scan.at == '\0') break;
    if (*scan.at != ',') return complain(&scan, "',' or the end");
    scan.at++;
  }
  *result = numbers;
  *number_count = count;
  return MOTET_OK;
}

/* A unit's forward and backward times for one microbatch. */
static mt_unit unit_times(const mt_unit_request *request, int32_t u, int32_t microbatch) {
  mt_unit unit = request->units[u];
  if (request->active != NULL && (request->active[microbatch] >> u & 1) == 0) return (mt_unit){.name = unit.name};
  if (request->encode == NULL || (request->varied >> u & 1) == 0) return unit;
  double forward = request->encode[microbatch % request->encode_count];
  double scale = unit.has_forward && unit.forward > 0 ? forward / unit.forward : 1.0;
  unit.forward = forward;
  unit.backward *= scale;
  unit.input *= scale;
  unit.weight *= scale;
  return unit;
}

motet_status mt_unit_table(mt_arena *arena, const mt_unit_request *request, motet_error *error,
                           mt_cost_table *table) {
  static const mt_cost_kind kinds[] = {MT_COST_FORWARD, MT_COST_BACKWARD, MT_COST_BACKWARD_X, MT_COST_BACKWARD_W,
                                       MT_COST_RECOMPUTE};
  enum { KINDS = sizeof kinds / sizeof *kinds };
  bool uniform = request->encode == NULL && request->active == NULL;
  int64_t columns = uniform ? 1 : request->microbatches;
  int64_t cells;
  if (__builtin_mul_overflow((int64_t)request->stage_count, columns, &cells))
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%d stages by %d microbatches are too many", request->stage_count,
                        request->microbatches);
  double *values[KINDS];
  for (int k = 0; k < KINDS; k++) {
    values[k] = MT_ARENA_NEW(arena, double, cells);
    if (values[k] == NULL) return mt_error_memory(error, (unsigned long long)cells * sizeof(double), "unit costs");
    table->seconds[kinds[k]] =
        (mt_cost_values){.values = values[k], .stage_stride = columns, .microbatch_stride = uniform ? 0 : 1};
  }
  for (int32_t i = 0; i < request->share_count; i++) {
    const mt_unit_share *share = &request->shares[i];
    for (int64_t m = 0; m < columns; m++) {
      mt_unit unit = unit_times(request, share->unit, (int32_t)m);
      int64_t cell = share->stage * columns + m;
      values[0][cell] += unit.forward * share->forward;
      values[1][cell] += unit.backward * share->trainable + unit.input * share->frozen;
      values[2][cell] += unit.input * (share->trainable + share->frozen);
      values[3][cell] += unit.weight * share->trainable;
      values[4][cell] += unit.forward * share->forward;
    }
  }
  return MOTET_OK;
}

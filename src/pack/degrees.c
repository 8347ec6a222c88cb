/* Sets of allowed degrees. */
#include "base/error.h"
#include "pack/cost.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int32_t mt_pack_degrees_usp(int32_t heads, int32_t rings, int32_t limit, int32_t *degrees) {
  int32_t count = 0;
  for (int32_t d = 1; d <= limit; d++) {
    bool allowed = false;
    for (int32_t ulysses = 1; ulysses <= d && ulysses <= heads && !allowed; ulysses++)
      allowed = d % ulysses == 0 && heads % ulysses == 0 && d / ulysses <= rings;
    if (allowed) degrees[count++] = d;
  }
  return count;
}

/* A whole number > 0 at *text, which moves behind it; 0 if there is none. */
static int32_t take_number(const char **text) {
  char *end;
  errno = 0;
  long value = **text >= '0' && **text <= '9' ? strtol(*text, &end, 10) : 0;
  if (value < 1 || value > INT32_MAX || errno != 0) return 0;
  *text = end;
  return (int32_t)value;
}

static motet_status bad(const char *text, motet_error *error) {
  return mt_error_set(
      error, MOTET_ERROR_ARGUMENT,
      "degrees '%s': all, pow2, divisors:28, list:1,2,3 (ascending) or usp:HEADS,RINGS belong there", text);
}

static motet_status take_list(const char *text, const char *at, int32_t limit, motet_error *error, int32_t *degrees,
                              int32_t *count) {
  for (int32_t last = 0;; at++) {
    int32_t degree = take_number(&at);
    if (degree <= last || (*at != ',' && *at != '\0')) return bad(text, error);
    last = degree;
    if (degree <= limit) degrees[(*count)++] = degree;
    if (*at == '\0') return MOTET_OK;
  }
}

motet_status mt_pack_degrees_parse(const char *text, int32_t limit, motet_error *error, int32_t **degrees,
                                   int32_t *count) {
  *degrees = malloc(((size_t)limit + 1) * sizeof **degrees);
  *count = 0;
  if (*degrees == NULL) return mt_error_memory(error, (size_t)limit * sizeof **degrees, "the degrees");
  motet_status status = MOTET_OK;
  const char *colon = strchr(text, ':'), *at = colon != NULL ? colon + 1 : "";
  if (strcmp(text, "all") == 0) {
    for (int32_t d = 1; d <= limit; d++) (*degrees)[(*count)++] = d;
  } else if (strcmp(text, "pow2") == 0) {
    for (int32_t d = 1; d <= limit; d *= 2) (*degrees)[(*count)++] = d;
  } else if (strncmp(text, "divisors:", 9) == 0) {
    int32_t whole = take_number(&at);
    if (whole == 0 || *at != '\0') status = bad(text, error);
    for (int32_t d = 1; status == MOTET_OK && d <= limit && d <= whole; d++)
      if (whole % d == 0) (*degrees)[(*count)++] = d;
  } else if (strncmp(text, "usp:", 4) == 0) {
    int32_t heads = take_number(&at), rings = heads > 0 && *at == ',' ? (at++, take_number(&at)) : 0;
    if (rings == 0 || *at != '\0')
      status = bad(text, error);
    else
      *count = mt_pack_degrees_usp(heads, rings, limit, *degrees);
  } else if (strncmp(text, "list:", 5) == 0) {
    status = take_list(text, at, limit, error, *degrees, count);
  } else {
    status = bad(text, error);
  }
  if (status == MOTET_OK && *count == 0)
    status = mt_error_set(error, MOTET_ERROR_ARGUMENT, "degrees '%s': none is at most the %d ranks", text, limit);
  if (status != MOTET_OK) {
    free(*degrees);
    *degrees = NULL;
  }
  return status;
}

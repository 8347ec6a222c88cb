#include "cli/program_file.h"

#include "base/text.h"
#include "program/json.h"
#include "program/pytorch_csv.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static motet_status parse_placement(const char *text, motet_error *error, motet_placement *placement) {
  *placement = MOTET_PLACEMENT_AUTO;
  if (text == NULL) return MOTET_OK;
  if (strcmp(text, "loop") == 0)
    *placement = MOTET_PLACEMENT_LOOP;
  else if (strcmp(text, "v") == 0)
    *placement = MOTET_PLACEMENT_V;
  else
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--placement: '%s' is neither 'loop' nor 'v'", text);
  return MOTET_OK;
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), part = strlen(end);
  return length > part && strcmp(text + length - part, end) == 0;
}

bool mt_program_file_is_job(const char *path) { return ends_with(path, ".yaml") || ends_with(path, ".yml"); }

motet_status mt_program_file_read(const char *path, const char *format, const char *placement, motet_error *error,
                                  mt_program_file *file) {
  *file = (mt_program_file){0};
  motet_placement where;
  motet_status status = parse_placement(placement, error, &where);
  if (status != MOTET_OK) return status;
  bool automatic = format == NULL || strcmp(format, "auto") == 0;
  if (!automatic && strcmp(format, "program") != 0 && strcmp(format, "pytorch-csv") != 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--format: '%s' is none of auto, program, pytorch-csv",
                        format);
  if (automatic && mt_program_file_is_job(path)) {
    mt_error_set(
        error, MOTET_ERROR_ARGUMENT,
        "a program or an order belongs here, and by its name this is a job: 'motet plan %s -o plan.json' makes "
        "its program",
        path);
    mt_error_place(error, path, 0);
    return MOTET_ERROR_ARGUMENT;
  }
  char *content;
  size_t bytes;
  status = mt_file_read(path, error, &content, &bytes);
  if (status != MOTET_OK) return status;
  const char *first = content;
  while (isspace((unsigned char)*first)) first++;
  bool json = automatic ? *first == '{' : strcmp(format, "program") == 0;
  file->explicit_transfers = !json && (strstr(content, "SEND") != NULL || strstr(content, "RECV") != NULL);
  if (json && placement != NULL)
    status = mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "--placement is for PyTorch orders; %s is a program and holds its own", path);
  else if (json)
    status = mt_program_parse(content, bytes, path, error, &file->program, &file->times);
  else
    status = mt_program_parse_pytorch_csv(content, bytes, path, where, error, &file->program);
  free(content);
  return status;
}

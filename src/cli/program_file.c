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

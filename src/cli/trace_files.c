#include "cli/trace_files.h"

#include "base/text.h"
#include "report/chakra_trace.h"
#include "report/hta_trace.h"
#include "report/transfers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef motet_status (*write_trace)(const mt_chrome_trace *trace, const char *path, motet_error *error);

static motet_status write_chrome(const mt_chrome_trace *trace, const char *path, motet_error *error) {
  mt_text text = {0};
  motet_status status = mt_report_chrome_trace(trace, error, &text);
  if (status == MOTET_OK) status = mt_file_write(path, text.data, text.length, error);
  mt_text_free(&text);
  return status;
}

static motet_status name_file(mt_text *name, const char *path, const char *between, int32_t rank, const char *end,
                              motet_error *error) {
  name->length = 0;
  mt_text_append(name, "%s%s%d%s", path, between, rank, end);
  return name->failed ? mt_error_memory(error, strlen(path), "a path") : MOTET_OK;
}

static motet_status write_hta(const mt_chrome_trace *trace, const char *path, motet_error *error) {
  if (mkdir(path, 0777) != 0 && errno != EEXIST) {
    motet_status status = mt_error_set(error, MOTET_ERROR_IO, "the folder cannot be made: %s", strerror(errno));
    mt_error_place(error, path, 0);
    return status;
  }
  int64_t *partners;
  motet_status status = mt_transfer_partners(trace->program, error, &partners);
  if (status != MOTET_OK) return status;
  mt_text name = {0}, text = {0};
  for (int32_t rank = 0; status == MOTET_OK && rank < trace->program->ranks; rank++) {
    text.length = 0;
    status = name_file(&name, path, "/rank-", rank, ".json", error);
    if (status == MOTET_OK) status = mt_report_hta_trace(trace, rank, partners, error, &text);
    if (status == MOTET_OK) status = mt_file_write(name.data, text.data, text.length, error);
  }
  mt_text_free(&name);
  mt_text_free(&text);
  free(partners);
  return status;
}

static motet_status write_chakra(const mt_chrome_trace *trace, const char *path, motet_error *error) {
  motet_status status = MOTET_OK;
  mt_text name = {0};
  for (int32_t rank = 0; status == MOTET_OK && rank < trace->program->ranks; rank++) {
    mt_column bytes = {0};
    status = name_file(&name, path, ".", rank, ".et", error);
    if (status == MOTET_OK) status = mt_report_chakra_trace(trace, rank, error, &bytes);
    if (status == MOTET_OK) status = mt_file_write(name.data, bytes.bytes.data, bytes.bytes.count, error);
    mt_column_free(&bytes);
  }
  mt_text_free(&name);
  return status;
}

static const struct {
  const char *name;
  write_trace write;
} formats[] = {{"chrome", write_chrome}, {"hta", write_hta}, {"chakra", write_chakra}};

static write_trace find(const char *format) {
  if (format == NULL) return formats[0].write;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (strcmp(formats[i].name, format) == 0) return formats[i].write;
  return NULL;
}

static motet_status check(const char *format, motet_error *error) {
  if (find(format) != NULL) return MOTET_OK;
  return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--trace-format: '%s' is none of chrome, hta, chakra", format);
}

motet_status mt_trace_format_choose(const char *path, bool hta, const char **format, motet_error *error) {
  motet_status status = check(*format, error);
  if (status != MOTET_OK) return status;
  if (path == NULL && (hta || *format != NULL))
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%s is a form of --trace, which is missing",
                        hta ? "--hta" : "--trace-format");
  if (hta && *format != NULL && strcmp(*format, "hta") != 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--hta and --trace-format %s are two forms of one trace",
                        *format);
  if (hta) *format = "hta";
  return MOTET_OK;
}

motet_status mt_trace_files_write(const mt_chrome_trace *trace, const char *format, const char *path,
                                  motet_error *error) {
  motet_status status = check(format, error);
  return status == MOTET_OK ? find(format)(trace, path, error) : status;
}

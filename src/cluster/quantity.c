#include "cluster/quantity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct unit {
  const char *name;
  double factor;
} unit;

static const unit bytes[] = {{"B", 1},
                             {"kB", 1e3},
                             {"KB", 1e3},
                             {"MB", 1e6},
                             {"GB", 1e9},
                             {"TB", 1e12},
                             {"PB", 1e15},
                             {"KiB", 1024.0},
                             {"MiB", 1048576.0},
                             {"GiB", 1073741824.0},
                             {"TiB", 1099511627776.0},
                             {NULL, 0}};
static const unit rates[] = {{"B/s", 1},
                             {"kB/s", 1e3},
                             {"KB/s", 1e3},
                             {"MB/s", 1e6},
                             {"GB/s", 1e9},
                             {"TB/s", 1e12},
                             {"MiB/s", 1048576.0},
                             {"GiB/s", 1073741824.0},
                             {"TiB/s", 1099511627776.0},
                             {"Mb/s", 0.125e6},
                             {"Gb/s", 0.125e9},
                             {"Tb/s", 0.125e12},
                             {"Mbit/s", 0.125e6},
                             {"Gbit/s", 0.125e9},
                             {"Tbit/s", 0.125e12},
                             {"Gbps", 0.125e9},
                             {NULL, 0}};
static const unit flops[] = {{"FLOP/s", 1},     {"MFLOP/s", 1e6},  {"GFLOP/s", 1e9},
                             {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}, {"GFLOPS", 1e9},
                             {"TFLOPS", 1e12},  {"PFLOPS", 1e15},  {NULL, 0}};
static const unit seconds[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};
static const unit none[] = {{"", 1}, {NULL, 0}};

static const struct {
  const unit *units;
  const char *example;
} kinds[MT_QUANTITIES] = {
    [MT_QUANTITY_NUMBER] = {none, "a number without unit, as in 8 or 0.8"},
    [MT_QUANTITY_BYTES] = {bytes, "bytes, as in 80GiB or 64GB"},
    [MT_QUANTITY_BYTES_A_SECOND] = {rates, "bytes or bits a second, as in 450GB/s or 400Gb/s"},
    [MT_QUANTITY_FLOPS] = {flops, "operations a second, as in 989TFLOP/s"},
    [MT_QUANTITY_SECONDS] = {seconds, "a time, as in 5us or 1.2ms"},
};

motet_status mt_quantity_parse(const char *text, mt_quantity kind, motet_error *error, double *value) {
  char *end;
  double number = (*text >= '0' && *text <= '9') || *text == '.' ? strtod(text, &end) : -1;
  if (!(number >= 0) || isinf(number) || strncmp(text, "0x", 2) == 0)
    return mt_error_set(error, MOTET_ERROR_PARSE, "'%.60s' is no number >= 0; %s belongs here", text,
                        kinds[kind].example);
  end += strspn(end, " ");
  for (const unit *u = kinds[kind].units; u->name != NULL; u++) {
    if (strcmp(end, u->name) != 0) continue;
    *value = number * u->factor;
    return MOTET_OK;
  }
  if (*end == '\0')
    return mt_error_set(error, MOTET_ERROR_PARSE, "'%.60s' has no unit; %s belongs here", text,
                        kinds[kind].example);
  return mt_error_set(error, MOTET_ERROR_PARSE, "'%.60s': the unit '%.20s' is not known here; %s belongs here",
                      text, end, kinds[kind].example);
}

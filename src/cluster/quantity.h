/** @file Numbers with units, as people write them: 80GiB, 400Gb/s, 989TFLOP/s, 5us. */
#ifndef MT_CLUSTER_QUANTITY_H
#define MT_CLUSTER_QUANTITY_H

#include "base/error.h"

typedef enum mt_quantity {
  MT_QUANTITY_NUMBER,
  MT_QUANTITY_BYTES,          /* B, kB, MB, GB, TB, PB by 1000; KiB, MiB, GiB, TiB by 1024 */
  MT_QUANTITY_BYTES_A_SECOND, /* those and bits (b, Gb, ...), a second: GB/s, GiB/s, Gb/s, Gbit/s */
  MT_QUANTITY_FLOPS,          /* GFLOP/s, TFLOP/s, PFLOP/s, or TFLOPS */
  MT_QUANTITY_SECONDS,        /* s, ms, us, ns */
  MT_QUANTITIES
} mt_quantity;

/** Reads all of @p text as a number >= 0 and a unit of @p kind; numbers without unit are refused where the kind has
 * units. The error says what would be right; place and key are the caller's. */
motet_status mt_quantity_parse(const char *text, mt_quantity kind, motet_error *error, double *value);

#endif

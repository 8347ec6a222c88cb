#include "cost/flops.h"

#include <math.h>

void mt_flops_sum(const mt_flops *flops, int32_t stage, int32_t module, double parts[MT_FLOPS_PARTS]) {
  for (int part = 0; part < MT_FLOPS_PARTS; part++) parts[part] = 0;
  for (int32_t i = 0; i < flops->piece_count; i++) {
    const mt_flops_piece *piece = &flops->pieces[i];
    if ((stage >= 0 && piece->stage != stage) || (module >= 0 && piece->module != module)) continue;
    for (int part = 0; part < MT_FLOPS_PARTS; part++)
      for (int32_t m = 0; m < flops->microbatch_count; m++) parts[part] += piece->parts[part][m];
  }
}

double mt_flops_total(const mt_flops *flops) {
  double parts[MT_FLOPS_PARTS];
  mt_flops_sum(flops, -1, -1, parts);
  return parts[MT_FLOPS_FORWARD] + parts[MT_FLOPS_INPUT] + parts[MT_FLOPS_WEIGHT];
}

double mt_flops_utilization(const mt_flops *flops, double total, int32_t ranks, double seconds) {
  double whole = flops->peak * ranks * seconds;
  return whole > 0 ? total / whole : NAN;
}

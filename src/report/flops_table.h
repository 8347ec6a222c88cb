/** @file A step's floating-point operations by module and region, for people and for scripts. */
#ifndef MT_REPORT_FLOPS_TABLE_H
#define MT_REPORT_FLOPS_TABLE_H

#include "base/text.h"
#include "cost/flops.h"
#include "sim/simulate.h"

#include <jansson.h>

/** Operations by module, their rate by region and what of the ranks' peak that is. Nothing where @p flops is NULL.
 */
void mt_flops_table_text(const motet_program *program, const mt_simulation *simulation, const mt_flops *flops,
                         mt_text *out);

/** {"total", "peak_per_second", "mfu", "busy_mfu", "modules": [..], "regions": [..]}: a new reference, null where
 * @p flops is NULL; NULL when memory is out. docs/commands.md describes it. */
json_t *mt_flops_table_json(const motet_program *program, const mt_simulation *simulation, const mt_flops *flops);

#endif

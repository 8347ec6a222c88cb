/** @file
 * A step's floating-point operations in a file, as runs keep them, and in words: by module and by region, with what
 * of the ranks' peak they are.
 */
#ifndef MT_REPORT_FLOPS_FILE_H
#define MT_REPORT_FLOPS_FILE_H

#include "base/arena.h"
#include "base/error.h"
#include "cost/flops.h"
#include "motet/program.h"

/** Format "motet-flops-1" (docs/formats/run.md). */
motet_status mt_flops_write(const mt_flops *flops, const char *path, motet_error *error);

/** Everything in @p arena. Errors name the file and what does not fit the program. */
motet_status mt_flops_read(mt_arena *arena, const char *path, const motet_program *program, motet_error *error,
                           const mt_flops **flops);

#endif

/** @file What makes a program safe to walk: every index and size in its range. */
#ifndef MT_PROGRAM_CHECK_H
#define MT_PROGRAM_CHECK_H

#include "base/error.h"
#include "motet/program.h"

/** Largest size in bytes that a program may state: sums over any number of them that fits in memory, and their
 * conversions to floating point, stay exact. */
#define MT_PROGRAM_BYTES_MAX ((int64_t)1 << 53)

/** Which fields an instruction of a kind uses. */
typedef enum mt_instruction_shape {
  MT_SHAPE_COMPUTE,    /* stage, microbatch, range */
  MT_SHAPE_TRANSFER,   /* buffer, peer a rank; stage, microbatch, range as the buffer's */
  MT_SHAPE_COLLECTIVE, /* buffer, peer a group; stage as the buffer's */
  MT_SHAPE_OPTIM,      /* none */
  MT_SHAPE_STEP_END    /* peer a group */
} mt_instruction_shape;

mt_instruction_shape mt_instruction_shape_of(int kind);

/** Checks every table and list. MOTET_ERROR_PARSE names the place as a key path in the program JSON, and rank and
 * instruction. */
motet_status mt_program_check(const motet_program *program, motet_error *error);

#endif

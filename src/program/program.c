#include "motet/program.h"

#include "base/arena.h"

static const char *const instruction_names[MOTET_INSTRUCTION_KINDS] = {
    [MOTET_FWD] = "FWD",
    [MOTET_BWD] = "BWD",
    [MOTET_BWD_X] = "BWD_X",
    [MOTET_BWD_W] = "BWD_W",
    [MOTET_RECOMPUTE] = "RECOMPUTE",
    [MOTET_SEND] = "SEND",
    [MOTET_RECV] = "RECV",
    [MOTET_WAIT] = "WAIT",
    [MOTET_REDUCE] = "REDUCE",
    [MOTET_REDUCE_SCATTER] = "REDUCE_SCATTER",
    [MOTET_ALL_GATHER] = "ALL_GATHER",
    [MOTET_ALL_REDUCE] = "ALL_REDUCE",
    [MOTET_OFFLOAD] = "OFFLOAD",
    [MOTET_FETCH] = "FETCH",
    [MOTET_LOAD] = "LOAD",
    [MOTET_OPTIM] = "OPTIM",
    [MOTET_STEP_END] = "STEP_END",
};

const char *motet_instruction_name(int kind) {
  return kind >= 0 && kind < MOTET_INSTRUCTION_KINDS ? instruction_names[kind] : NULL;
}

void motet_program_destroy(motet_program *program) {
  /* The program itself lies in its arena. */
  if (program != NULL) mt_arena_destroy(program->arena);
}

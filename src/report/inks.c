#include "report/inks.h"

#include <string.h>

/* Letters and colours of each set. Colours follow Okabe and Ito's palette, which colour-blind readers can tell
 * apart: blue and orange for the first sharded region, sky blue and yellow for the first replicated one; weight
 * gradients and recompute are chosen by the distances that dichromats see (tests/web/test_report.py). */
static const mt_ink set_inks[MT_INK_SETS][MT_INK_KINDS] = {
    {{'F', "F", "-", "─", {25, 31}, {231, 231}},
     {'B', "B", "=", "━", {214, 172}, {16, 16}},
     {'X', "X", "=", "━", {214, 172}, {16, 16}},
     {'W', "W", "~", "╌", {108, 65}, {16, 231}},
     {'R', "R", "-", "─", {88, 52}, {231, 231}}},
    {{'f', "f", "-", "─", {117, 153}, {16, 16}},
     {'b', "b", "=", "━", {228, 186}, {16, 16}},
     {'x', "x", "=", "━", {228, 186}, {16, 16}},
     {'w', "w", "~", "╌", {194, 151}, {16, 16}},
     {'r', "r", "-", "─", {135, 99}, {16, 16}}},
    {{'G', "G", "-", "─", {97, 61}, {231, 231}},
     {'C', "C", "=", "━", {211, 175}, {16, 16}},
     {'Y', "Y", "=", "━", {211, 175}, {16, 16}},
     {'V', "V", "~", "╌", {36, 29}, {16, 231}},
     {'S', "S", "-", "─", {88, 52}, {231, 231}}},
    {{'g', "g", "-", "─", {183, 141}, {16, 16}},
     {'c', "c", "=", "━", {223, 180}, {16, 16}},
     {'y', "y", "=", "━", {223, 180}, {16, 16}},
     {'v', "v", "~", "╌", {157, 115}, {16, 16}},
     {'s', "s", "-", "─", {135, 99}, {16, 16}}},
};

static const mt_ink optimizer_ink = {'O', "O", "-", "─", {240, 240}, {231, 231}};

/* Idle time is dim where the pipeline's shape asks for it and bright where something came late. */
static const mt_ink idle_inks[MT_IDLE_CAUSES + 1] = {
    [MT_IDLE_WARM_UP] = {'.', "·", ".", "·", {0, 0}, {244, 244}},
    [MT_IDLE_COOL_DOWN] = {',', ",", ",", ",", {0, 0}, {244, 244}},
    [MT_IDLE_STAGE_IMBALANCE] = {'!', "!", "!", "!", {0, 0}, {208, 208}},
    [MT_IDLE_MICROBATCH_VARIANCE] = {'%', "%", "%", "%", {0, 0}, {176, 176}},
    [MT_IDLE_COMMUNICATION] = {'>', ">", ">", ">", {0, 0}, {80, 80}},
    [MT_IDLE_DATA_PARALLEL_WAIT] = {'#', "#", "#", "#", {0, 0}, {148, 148}},
    [MT_IDLE_INPUT_STALL] = {'?', "?", "?", "?", {0, 0}, {227, 227}},
    [MT_IDLE_CAUSES] = {' ', " ", " ", " ", {0, 0}, {244, 244}},
};

static const char *const kind_names[MT_INK_KINDS] = {"forward", "backward", "input gradients", "weight gradients",
                                                     "recompute"};
static const char *const idle_names[MT_IDLE_CAUSES + 1] = {
    [MT_IDLE_WARM_UP] = "warm-up",
    [MT_IDLE_COOL_DOWN] = "cool-down",
    [MT_IDLE_STAGE_IMBALANCE] = "stage imbalance",
    [MT_IDLE_MICROBATCH_VARIANCE] = "microbatch variance",
    [MT_IDLE_COMMUNICATION] = "communication",
    [MT_IDLE_DATA_PARALLEL_WAIT] = "data-parallel wait",
    [MT_IDLE_INPUT_STALL] = "input stall",
    [MT_IDLE_CAUSES] = "idle",
};

void mt_inks_assign(const motet_program *program, int32_t *sets) {
  int32_t next[2] = {0, 1};
  for (int32_t region = 0; region < program->region_count; region++) {
    int kind = program->regions[region].replicated;
    sets[region] = -1;
    for (int32_t earlier = 0; earlier < region; earlier++)
      if (program->regions[earlier].replicated == program->regions[region].replicated &&
          strcmp(program->regions[earlier].name, program->regions[region].name) == 0)
        sets[region] = sets[earlier];
    if (sets[region] >= 0) continue;
    sets[region] = next[kind] % MT_INK_SETS;
    next[kind] += 2;
  }
}

int mt_inks_of(const motet_program *program, const int32_t *sets, const motet_instruction *instruction) {
  static const int kinds[] = {[MOTET_FWD] = MT_INK_FORWARD,
                              [MOTET_BWD] = MT_INK_BACKWARD,
                              [MOTET_BWD_X] = MT_INK_INPUT,
                              [MOTET_BWD_W] = MT_INK_WEIGHT,
                              [MOTET_RECOMPUTE] = MT_INK_RECOMPUTE};
  if (instruction->kind == MOTET_OPTIM) return MT_INK_OPTIMIZER;
  if (instruction->kind > MOTET_RECOMPUTE) return -1;
  return sets[program->stages[instruction->stage].region] * MT_INK_KINDS + kinds[instruction->kind];
}

mt_ink mt_inks_look(int ink) {
  if (ink < MT_INK_OPTIMIZER) return set_inks[ink / MT_INK_KINDS][ink % MT_INK_KINDS];
  return ink == MT_INK_OPTIMIZER ? optimizer_ink : idle_inks[ink - MT_INK_IDLE];
}

const char *mt_inks_name(int ink) {
  if (ink < MT_INK_OPTIMIZER) return kind_names[ink % MT_INK_KINDS];
  return ink == MT_INK_OPTIMIZER ? "optimizer" : idle_names[ink - MT_INK_IDLE];
}

/** @file The inside of the public motet_simulation handle, for this project's own commands. */
#ifndef MT_ORDER_UNIT_SIMULATION_H
#define MT_ORDER_UNIT_SIMULATION_H

#include "motet/simulate.h"
#include "sim/simulate.h"

/** What the handle is made of; lives as long as the handle. */
typedef struct mt_unit_simulation {
  const mt_simulation *simulation;
  const motet_verification *verification;
} mt_unit_simulation;

mt_unit_simulation mt_unit_simulation_inner(const motet_simulation *simulation);

/** The public form of mt_simulation.idle_by_cause. */
motet_idle mt_unit_idle(const double by_cause[MT_IDLE_CAUSES]);

#endif

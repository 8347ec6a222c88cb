/** @file What public plans and simulations on unit costs share. */
#ifndef MT_ORDER_UNIT_SIMULATION_H
#define MT_ORDER_UNIT_SIMULATION_H

#include "motet/simulate.h"
#include "sim/simulate.h"

/** The public form of mt_simulation.idle_by_cause. */
motet_idle mt_unit_idle(const double by_cause[MT_IDLE_CAUSES]);

#endif

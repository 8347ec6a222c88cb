/** @file Everything that libmotet offers: planning, proof and simulation. */
#ifndef MOTET_MOTET_H
#define MOTET_MOTET_H

#include "motet/pack.h"
#include "motet/plan.h"
#include "motet/program.h"
#include "motet/simulate.h"
#include "motet/status.h"

#endif

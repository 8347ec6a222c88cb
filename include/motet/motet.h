/** @file Everything that libmotet offers: planning, proof and simulation. */
#ifndef MOTET_MOTET_H
#define MOTET_MOTET_H

#include "motet/plan.h"
#include "motet/program.h"
#include "motet/status.h"

#endif

/** @file The tables of a lowered program: statement and placement, apart from lists and transfers. */
#ifndef MT_PROGRAM_TABLES_H
#define MT_PROGRAM_TABLES_H

#include "program/lower.h"

/** Fills statement, placement and sizes from the replicas; allocates from the program's arena. @p range_groups,
 * (program ranges, pipeline ranks) in @p scratch: the group that shares a range. */
motet_status mt_tables_fill(const mt_replica *replicas, mt_arena *scratch, motet_error *error,
                            motet_program *program, int32_t **range_groups);

/** Ranges, shares and the groups that share ranges: of the replicas' spreads. spread.c */
motet_status mt_tables_spread(const mt_replica *replicas, mt_arena *scratch, motet_error *error,
                              motet_program *program, int32_t **range_groups);

/** Whether a stage has a trainable layer. */
bool mt_stage_trains(const motet_program *program, int32_t stage);

#endif

/** @file
 * Judges of programs that know nothing of the verifier: a machine that runs the lists on symbolic values, one that
 * only looks for hangs, and memory by intervals.
 */
#ifndef MT_TESTS_PROGRAM_RUN_H
#define MT_TESTS_PROGRAM_RUN_H

#include "motet/program.h"

enum { RUN_REASON_SIZE = 160 };

/**
 * Runs the program as rendezvous machines, layer by layer on symbolic values (hashes), and says whether the step
 * comes out right: every layer computed once where its weights lie, all values defined when read, every rank's
 * weight gradients before the optimizer exactly the sum of the statement's contributions, all transfers matched in
 * order and waited for, all ranks at their ends, reduces behind the gradients that others wait for, memory under
 * the cap. What must come out is worked out from modules and layers, never from stages, edges or lists.
 * @return true if it does; else @p reason says what was wrong first.
 */
bool program_runs(const motet_program *program, char reason[RUN_REASON_SIZE]);

/** Whether the lists hang, given that transfers pair up in order. @p blocking: SEND and RECV block, with
 * @p capacity buffers a channel; else WAITs do. */
bool program_hangs(const motet_program *program, bool blocking, int32_t capacity);

/** Peaks of every rank from whole lifetimes: for programs that run. Activations count by share. */
void program_peaks(const motet_program *program, motet_rank_memory *memory);

#endif

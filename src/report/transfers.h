/** @file Which instructions are the two ends of one transfer. */
#ifndef MT_REPORT_TRANSFERS_H
#define MT_REPORT_TRANSFERS_H

#include "base/error.h"
#include "motet/program.h"

/**
 * For every instruction of the flat array the other end of its transfer, or -1: of a SEND the receiver's WAIT (its
 * RECV where it never waits), of a RECV and of its WAIT the SEND, of a sender's WAIT what its SEND has. The k-th
 * SEND of a buffer from one rank to another meets the k-th RECV there. The caller frees `*partners` with free().
 */
motet_status mt_transfer_partners(const motet_program *program, motet_error *error, int64_t **partners);

#endif

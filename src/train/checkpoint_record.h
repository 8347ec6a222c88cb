/** @file
 * A checkpoint's record of checksums, `checksums.json`: XXH3-64 of every tensor's bytes, taken from memory while
 * they were written, and of the small files that a resumed run reads. Bytes that a disk or a copy has changed since
 * are found by it. Checkpoints without a record are older than it.
 */
#ifndef MT_TRAIN_CHECKPOINT_RECORD_H
#define MT_TRAIN_CHECKPOINT_RECORD_H

#include "train/weights.h"

/** A checkpoint's `format` in trainer.json says whether there must be a record. */
#define MT_CHECKPOINT_FORMAT "motet-checkpoint-2"

/** Writes the record of the checkpoint in @p directory, whose other files are there; @p sums as of
 * mt_weights_save(), of all ranks together. */
motet_status mt_checkpoint_record_write(const mt_weights_owners *owners, const double *sums, const char *directory,
                                        motet_error *error);

/**
 * Holds part @p part of @p parts of the checkpoint's tensors, and all its small files, against the record. What
 * differs is an error that names file and tensor. Without @p moments the optimizer's files are not looked at.
 */
motet_status mt_checkpoint_record_check(const char *directory, bool moments, int32_t part, int32_t parts,
                                        motet_error *error);

#endif

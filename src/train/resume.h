/** @file Which checkpoint a run goes on from. */
#ifndef MT_TRAIN_RESUME_H
#define MT_TRAIN_RESUME_H

#include "train/loop.h"

enum { MT_RESUME_PATH_SIZE = 1024 };

/**
 * The checkpoint that `train.resume` asks for, the same on all ranks, which share out the check of its bytes: the
 * newest whole one (damaged ones are passed over, and the run says so), or the one that is named, which must be
 * whole. @p path is empty and @p step 0 where there is none.
 */
motet_status mt_resume_choose(const mt_job *job, const mt_train_options *options, motet_error *error,
                              char path[MT_RESUME_PATH_SIZE], int64_t *step);

#endif

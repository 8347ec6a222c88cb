/** @file Threads that share the work of one network's kernels, their scratch memory and their product library. */
#ifndef MT_TENSOR_TEAM_H
#define MT_TENSOR_TEAM_H

#include "base/error.h"
#include "tensor/onednn.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mt_team mt_team;

/** Work number @p index of a run; @p thread is below mt_team_threads(). */
typedef void (*mt_team_work)(void *context, int64_t index, int32_t thread);

/**
 * A team of @p threads, the caller's included: with 1 no thread is started. A team serves one caller at a time.
 * With more threads than free processors anything but 1 is slower.
 */
motet_status mt_team_create(int32_t threads, motet_error *error, mt_team **team);
void mt_team_destroy(mt_team *team);
int32_t mt_team_threads(const mt_team *team);

/**
 * Calls @p work once for every index below @p count and returns when all are done. Threads take indices as they
 * become free: results must not depend on who computes what, and then they do not depend on the number of threads.
 */
void mt_team_run(mt_team *team, int64_t count, mt_team_work work, void *context);

/** Scratch of at least @p shared_bytes for all and @p thread_bytes for each thread; what was there is lost if it
 * has to grow, otherwise nothing is allocated. */
motet_status mt_team_reserve(mt_team *team, size_t shared_bytes, size_t thread_bytes, motet_error *error);
void *mt_team_shared(const mt_team *team);
void *mt_team_own(const mt_team *team, int32_t thread);

/** The team's, for its threads by their numbers. */
mt_onednn *mt_team_onednn(const mt_team *team);

#endif

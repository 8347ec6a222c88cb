#include "train/resume.h"

#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** All ranks learn of the first rank's error among theirs. */
static motet_status share_verdict(mt_transport *transport, const mt_rank_group *everyone, motet_status own,
                                  motet_error *error, motet_error *verdict) {
  motet_error *all = NULL;
  verdict->status = own;
  if (transport->rank == 0) {
    all = calloc((size_t)transport->ranks, sizeof *all);
    if (all == NULL) return mt_error_memory(error, (size_t)transport->ranks * sizeof *all, "the ranks' answers");
  }
  motet_status status = mt_gather(transport, everyone, verdict, sizeof *verdict, all, error);
  for (int32_t rank = 0;
       status == MOTET_OK && all != NULL && verdict->status == MOTET_OK && rank < transport->ranks; rank++)
    *verdict = all[rank];
  if (status == MOTET_OK) status = mt_broadcast(transport, everyone, 0, verdict, sizeof *verdict, error);
  free(all);
  return status;
}

/** Every rank checks its part of the checkpoint; @p verdict is the same on all of them. */
static motet_status check(mt_transport *transport, const mt_rank_group *everyone, const char *path,
                          motet_error *error, motet_error *verdict) {
  motet_error_clear(verdict);
  motet_status own = mt_checkpoint_check(path, true, transport->rank, transport->ranks, verdict);
  return share_verdict(transport, everyone, own, error, verdict);
}

/** Rank 0 looks for the newest one below @p step; all get its path and step. */
static motet_status find_newest(const mt_job *job, mt_transport *transport, const mt_rank_group *everyone,
                                mt_arena *arena, motet_error *error, char path[MT_RESUME_PATH_SIZE],
                                int64_t *step) {
  const char *found = NULL;
  motet_status status = MOTET_OK;
  if (transport->rank == 0) status = mt_checkpoint_newest(job->output_dir, *step, arena, error, &found, step);
  memset(path, 0, MT_RESUME_PATH_SIZE);
  if (found != NULL && snprintf(path, MT_RESUME_PATH_SIZE, "%s", found) >= MT_RESUME_PATH_SIZE)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "the checkpoint's path is too long");
  if (status == MOTET_OK) status = mt_broadcast(transport, everyone, 0, path, MT_RESUME_PATH_SIZE, error);
  if (status == MOTET_OK) status = mt_broadcast(transport, everyone, 0, step, sizeof *step, error);
  return status;
}

static motet_status choose_newest(const mt_job *job, const mt_train_options *options, const mt_rank_group *everyone,
                                  mt_arena *arena, motet_error *error, char path[MT_RESUME_PATH_SIZE]) {
  int64_t step = INT64_MAX;
  for (;;) {
    motet_error verdict;
    motet_status status = find_newest(job, options->transport, everyone, arena, error, path, &step);
    if (status != MOTET_OK || path[0] == 0) return status;
    status = check(options->transport, everyone, path, error, &verdict);
    if (status != MOTET_OK || verdict.status == MOTET_OK) return status;
    if (verdict.status == MOTET_ERROR_MEMORY) {
      *error = verdict;
      return verdict.status;
    }
    const char *file = strstr(verdict.text, verdict.file) == NULL ? verdict.file : "";
    mt_train_say(options, "%s is passed over: %s%s%s", path, file, file[0] != 0 ? ": " : "", verdict.text);
  }
}

motet_status mt_resume_choose(const mt_job *job, const mt_train_options *options, motet_error *error,
                              char path[MT_RESUME_PATH_SIZE], int64_t *step) {
  mt_transport *transport = options->transport;
  const char *resume = job->train.resume;
  *step = 0;
  memset(path, 0, MT_RESUME_PATH_SIZE);
  if (strcmp(resume, "never") == 0) return MOTET_OK;
  mt_arena *arena = mt_arena_create();
  int32_t *ranks = arena != NULL ? MT_ARENA_NEW(arena, int32_t, transport->ranks) : NULL;
  motet_status status = MOTET_OK;
  if (ranks == NULL) {
    status = mt_error_memory(error, (size_t)transport->ranks * sizeof *ranks, "the ranks");
    goto done;
  }
  for (int32_t rank = 0; rank < transport->ranks; rank++) ranks[rank] = rank;
  const mt_rank_group everyone = {.count = transport->ranks, .ranks = ranks};
  if (strcmp(resume, "auto") == 0) {
    status = choose_newest(job, options, &everyone, arena, error, path);
  } else if (snprintf(path, MT_RESUME_PATH_SIZE, "%s", resume) >= MT_RESUME_PATH_SIZE) {
    status = mt_error_set(error, MOTET_ERROR_LIMIT, "the checkpoint's path is too long");
  } else {
    motet_error verdict;
    status = check(transport, &everyone, path, error, &verdict);
    if (status == MOTET_OK && verdict.status != MOTET_OK) *error = verdict, status = verdict.status;
  }
  mt_checkpoint_state state;
  if (status == MOTET_OK && path[0] != 0) {
    status = mt_checkpoint_read_state(path, error, &state);
    if (status == MOTET_OK) *step = state.step;
    if (status == MOTET_OK) mt_train_say(options, "resuming from %s", path);
  }
done:
  mt_arena_destroy(arena);
  return status;
}

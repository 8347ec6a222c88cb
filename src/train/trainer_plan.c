/* Planning of a run's steps, each while the one before it runs. */
#include "base/clock.h"
#include "base/thread.h"
#include "train/trainer.h"

#include <inttypes.h>

/** Which rows have their features in the cache: each rank looks for some, and all learn of it. */
static motet_status find_cached(mt_trainer *trainer, mt_planned_step *planned, motet_error *error) {
  int32_t rows = trainer->setup.rows;
  if (trainer->cache == NULL) return MOTET_OK;
  double *found = MT_ARENA_NEW(planned->arena, double, rows);
  if (found == NULL) return mt_error_memory(error, (size_t)rows * sizeof *found, "the rows that are cached");
  motet_status status = MOTET_OK;
  for (int32_t i = trainer->transport->rank; i < rows && status == MOTET_OK; i += trainer->transport->ranks) {
    bool has = false;
    if (planned->rows[i].tiles > 0) status = mt_feature_cache_has(trainer->cache, &planned->rows[i], error, &has);
    found[i] = has ? 1 : 0;
  }
  if (status == MOTET_OK)
    status = mt_all_reduce_doubles(trainer->transport, &trainer->writer.everyone, found, (size_t)rows,
                                   &trainer->scratch, error);
  for (int32_t i = 0; i < rows; i++) planned->microbatches[i].cached = found[i] > 0;
  return status;
}

/** The step's context groups, which a thread of its own has planned by now, and the next step's for it to plan. */
static motet_status group_rows(mt_trainer *trainer, mt_planned_step *planned, int64_t step, motet_error *error) {
  mt_grouping *grouping = trainer->grouping;
  motet_status status = MOTET_OK;
  if (grouping == NULL) return status;
  if (trainer->grouped_up_to <= step) status = mt_grouping_submit(grouping, planned->rows, error);
  if (status == MOTET_OK) status = mt_grouping_submit(grouping, planned->next_rows, error);
  trainer->grouped_up_to = step + 2;
  double before = mt_grouping_waited(grouping);
  if (status == MOTET_OK)
    status = mt_setup_grouped(&trainer->setup, trainer->setup.train, grouping, planned->arena, error,
                              &planned->rows, &planned->microbatches);
  planned->group_wait = mt_grouping_waited(grouping) - before;
  return status;
}

/** What planning needs of other ranks and of other threads: the step's rows, their groups, what is cached. */
static motet_status prepare(mt_trainer *trainer, int64_t step, mt_planned_step *planned, motet_error *error) {
  mt_planner_microbatch *next;
  mt_plan_free(&planned->plan);
  mt_arena_reset(planned->arena);
  planned->step = -1;
  motet_status status =
      mt_setup_rows(&trainer->setup, step, planned->arena, error, &planned->rows, &planned->microbatches);
  if (status == MOTET_OK)
    status = mt_setup_rows(&trainer->setup, step + 1, planned->arena, error, &planned->next_rows, &next);
  if (status == MOTET_OK) status = group_rows(trainer, planned, step, error);
  if (status == MOTET_OK) status = find_cached(trainer, planned, error);
  if (status != MOTET_OK) return mt_error_context(error, status, "planning of step %" PRId64, step + 1);
  planned->trainer = trainer;
  planned->step = step;
  return status;
}

/** The rest: reads what does not change while a step runs, and has the step's pictures decoded. */
static void *plan(void *argument) {
  static const motet_carried nothing;
  mt_planned_step *planned = argument;
  mt_trainer *trainer = planned->trainer;
  motet_error *error = &planned->error;
  const mt_planned_step *before = &trainer->planned[(planned->step + 1) % 2];
  const bool continues = before->step == planned->step - 1 && before->carried_count > 0;
  const double begin = mt_clock_thread_seconds();
  motet_status status = mt_planner_plan(
      trainer->setup.planner, MT_PLANNER_TRAIN, planned->microbatches, continues ? before->carried : &nothing,
      continues ? before->carried_count : 0, planned->arena, error, &planned->plan);
  if (status == MOTET_OK)
    status = mt_planner_carried(planned->plan.program, planned->arena, error, &planned->carried,
                                &planned->carried_count);
  if (status == MOTET_OK)
    status = mt_feed_prefetch(trainer->feed, planned->plan.program, trainer->transport->rank, planned->step,
                              planned->rows, planned->next_rows, error);
  planned->seconds = mt_clock_thread_seconds() - begin;
  planned->status = status;
  return NULL;
}

void mt_trainer_await(mt_planned_step *planned) {
  if (!planned->threaded) return;
  const double begin = mt_clock_seconds();
  mt_thread_set_idle(planned->thread, false);
  pthread_join(planned->thread, NULL);
  planned->threaded = false;
  planned->waited = mt_clock_seconds() - begin;
}

motet_status mt_trainer_plan_ahead(mt_trainer *trainer, int64_t step, motet_error *error) {
  mt_planned_step *planned = &trainer->planned[step % 2];
  motet_status status = prepare(trainer, step, planned, error);
  if (status != MOTET_OK) return status;
  planned->threaded = pthread_create(&planned->thread, NULL, plan, planned) == 0;
  if (planned->threaded && trainer->transport->processors > 0) mt_thread_set_idle(planned->thread, true);
  if (!planned->threaded) plan(planned);
  return MOTET_OK;
}

motet_status mt_trainer_plan(mt_trainer *trainer, int64_t step, motet_error *error, mt_planned_step **out) {
  mt_planned_step *planned = &trainer->planned[step % 2];
  *out = planned;
  if (planned->step != step) {
    motet_status status = prepare(trainer, step, planned, error);
    if (status != MOTET_OK) return status;
    planned->waited = 0;
    plan(planned);
  }
  mt_trainer_await(planned);
  if (planned->status == MOTET_OK) return MOTET_OK;
  *error = planned->error;
  planned->step = -1;
  return mt_error_context(error, planned->status, "planning of step %" PRId64, step + 1);
}

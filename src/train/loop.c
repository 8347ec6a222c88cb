#include "train/loop.h"

#include "base/clock.h"
#include "train/resume.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = 1024 };

/** The part of its largest value that the learning rate has in step @p step (from 1) of a phase. */
static double rate_factor(const mt_trainer *trainer, int64_t step) {
  const mt_job *job = trainer->job;
  int64_t rise = job->train.warmup_steps, all = trainer->part.end - trainer->part.begin;
  step -= trainer->part.begin;
  if (step <= rise) return (double)step / (double)rise;
  double done = all > rise ? (double)(step - rise - 1) / (double)(all - rise) : 0;
  switch (job->train.decay) {
  case MT_JOB_DECAY_LINEAR: return 1 - done;
  case MT_JOB_DECAY_COSINE: return 0.5 * (1 + cos(acos(-1.0) * done));
  default: return 1;
  }
}

/** What each module does in the step; returns the largest learning rate of those that train. */
static double fill_modules(const mt_trainer *trainer, int64_t step, mt_adamw_module modules[MT_NETWORK_MODULES]) {
  double largest = 0, factor = rate_factor(trainer, step);
  for (int32_t j = 0; j < MT_NETWORK_MODULES; j++) {
    modules[j] = (mt_adamw_module){0};
    if (trainer->moments_from[j] < 0) continue;
    double rate = mt_job_rate(trainer->job, j) * factor;
    modules[j] = (mt_adamw_module){.learning_rate = rate, .first_step = trainer->moments_from[j]};
    if (rate > largest) largest = rate;
  }
  return largest;
}

static bool asked_to_stop(const mt_trainer *trainer) {
  return trainer->options->stopped != NULL && *trainer->options->stopped != 0;
}

/** What a step has shown, for the records. */
typedef struct outcome {
  double loss, step_seconds;
  bool stop;
  int64_t tokens;
} outcome;

static motet_status run_program(mt_trainer *trainer, const mt_planned_step *planned, motet_error *error,
                                mt_step_result *result) {
  const mt_job *job = trainer->job;
  int64_t number = planned->step + 1;
  mt_adamw_module modules[MT_NETWORK_MODULES];
  double rate = fill_modules(trainer, number, modules);
  mt_step step = {.program = planned->plan.program,
                  .source = mt_feed_source(trainer->feed),
                  .number = number,
                  .optimizer = {.learning_rate = rate,
                                .modules = modules,
                                .beta1 = job->train.betas.values[0],
                                .beta2 = job->train.betas.values[1],
                                .epsilon = job->train.epsilon,
                                .weight_decay = job->train.weight_decay},
                  .clip_norm = job->train.clip_norm,
                  .sums = trainer->sums,
                  .cached_layers = trainer->cache != NULL ? mt_planner_cached_layers(trainer->setup.planner) : 0,
                  .sum_count = trainer->setup.rows + 1};
  mt_feed_set(trainer->feed, planned->step, planned->rows, planned->next_rows);
  mt_network_zero_gradients(trainer->network);
  trainer->sums[trainer->setup.rows] = asked_to_stop(trainer) ? 1 : 0;
  motet_status status = mt_trainer_agree(trainer, motet_program_digest(planned->plan.program), "program", error);
  return status == MOTET_OK ? mt_interpreter_run(trainer->interpreter, &step, error, result) : status;
}

static void tell(const mt_trainer *trainer, const mt_metrics_step *step) {
  const mt_job *job = trainer->job;
  int64_t done = step->step, steps = job->train.steps;
  if (done % job->train.log_every == 0 || done == steps) {
    double whole = step->measure->makespan * trainer->transport->ranks;
    char groups[64] = "";
    if (trainer->grouping != NULL)
      snprintf(groups, sizeof groups, "  planned in %.1f ms, waited %.2f ms", 1e3 * step->planning_seconds,
               1e3 * step->group_wait);
    mt_trainer_say(trainer,
                   "step %" PRId64 "/%" PRId64 "  loss %.4f  lr %.2e  norm %.3f  %.0f tokens/s  %.3f s  "
                   "idle %.0f%%  weights %016" PRIx64 "%s",
                   done, steps, step->loss, step->learning_rate, step->measure->gradient_norm,
                   (double)step->tokens / step->step_seconds, step->step_seconds,
                   whole > 0 ? 100 * (1 - step->measure->busy / whole) : 0.0, step->weights_digest, groups);
  }
  const mt_train_listener *listener = &trainer->options->listener;
  if (trainer->transport->rank == 0 && listener->progress != NULL)
    listener->progress(listener->context, done, steps, (double)(steps - done) * trainer->seconds_per_step);
}

static motet_status record(mt_trainer *trainer, const mt_planned_step *planned, const mt_step_result *result,
                           const outcome *seen, motet_error *error) {
  const mt_job *job = trainer->job;
  int64_t number = planned->step + 1;
  mt_step_measure measure = {0};
  mt_arena_reset(trainer->step_arena);
  const mt_prefetch_work before = trainer->decoded, now = mt_feed_decoded(trainer->feed);
  const mt_prefetch_work decoded = {now.tiles - before.tiles, now.seconds - before.seconds};
  trainer->decoded = now;
  motet_status status = mt_measure_gather(trainer->transport, planned->plan.program, result, &decoded,
                                          trainer->clock_offset, trainer->step_arena, error, &measure);
  bool keep =
      job->train.timeline_every > 0 && (number % job->train.timeline_every == 0 || number == job->train.steps);
  double *start = NULL, *finish = NULL;
  if (status == MOTET_OK && keep)
    status = mt_measure_timeline(trainer->transport, planned->plan.program, result, trainer->clock_offset,
                                 trainer->step_arena, error, &start, &finish);
  if (status != MOTET_OK || trainer->transport->rank != 0) return status;
  const mt_flops *flops = planned->plan.flops;
  mt_adamw_module modules[MT_NETWORK_MODULES];
  mt_metrics_step step = {
      .step = number,
      .loss = seen->loss,
      .learning_rate = fill_modules(trainer, number, modules),
      .step_seconds = seen->step_seconds,
      .tokens = seen->tokens,
      .weights_digest = result->weights_digest,
      .mfu = mt_flops_utilization(flops, mt_flops_total(flops), trainer->transport->ranks, measure.makespan),
      .planning_seconds = planned->seconds,
      .planning_wait = planned->waited,
      .group_wait = trainer->grouping != NULL ? planned->group_wait : NAN,
      .measure = &measure,
      .plan = &planned->plan,
  };
  status = mt_metrics_add(trainer->metrics, &step, error);
  if (status == MOTET_OK && keep)
    status = mt_metrics_timeline(trainer->metrics, number, &planned->plan, start, finish, error);
  if (status == MOTET_OK) tell(trainer, &step);
  return status;
}

static void note_step(const mt_trainer *trainer, int64_t number) {
  if (trainer->options->board == NULL) return;
  mt_board_place *place = mt_board_at(trainer->options->board, trainer->transport->rank);
  place->kind = -1;
  place->step = number;
  place->state = MT_BOARD_RUNNING;
}

static motet_status run_step(mt_trainer *trainer, int64_t index, motet_error *error, bool *stop) {
  const mt_job *job = trainer->job;
  int64_t number = index + 1;
  double begin = mt_clock_seconds();
  mt_planned_step *planned;
  mt_step_result result;
  note_step(trainer, number);
  motet_status status = mt_trainer_plan(trainer, index, error, &planned);
  /* The next step is planned while this one runs, and its pictures are decoded. */
  if (status == MOTET_OK && number < trainer->part.end) status = mt_trainer_plan_ahead(trainer, number, error);
  if (status == MOTET_OK) status = run_program(trainer, planned, error, &result);
  mt_trainer_await(&trainer->planned[number % 2]);
  if (status != MOTET_OK) return status;
  outcome seen = {.step_seconds = mt_clock_seconds() - begin};
  for (int32_t i = 0; i < trainer->setup.rows; i++) {
    seen.loss += trainer->sums[i];
    seen.tokens += planned->rows[i].tokens;
  }
  seen.stop = trainer->sums[trainer->setup.rows] > 0;
  if (!isfinite(seen.loss))
    return mt_error_set(error, MOTET_ERROR_FAILED,
                        "the loss of step %" PRId64 " is %g: a lower learning rate may help", number, seen.loss);
  double pace = trainer->seconds_per_step;
  trainer->seconds_per_step = pace == 0 ? seen.step_seconds : 0.9 * pace + 0.1 * seen.step_seconds;
  status = record(trainer, planned, &result, &seen, error);
  *stop = seen.stop && number < job->train.steps;
  return status;
}

static bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

static motet_status run_all(mt_trainer *trainer, motet_error *error) {
  const mt_job *job = trainer->job;
  motet_status status = MOTET_OK;
  for (int64_t index = trainer->first_step; index < trainer->part.end && status == MOTET_OK; index++) {
    bool stop = false;
    int64_t number = index + 1;
    status = run_step(trainer, index, error, &stop);
    if (status != MOTET_OK) break;
    if (!stop && trainer->setup.eval != NULL && is_due(job->train.eval_every, number)) {
      double loss;
      status = mt_trainer_evaluate(trainer, error, &loss);
      if (status == MOTET_OK) mt_trainer_say(trainer, "step %" PRId64 "  evaluation loss %.4f", number, loss);
      if (status == MOTET_OK && trainer->metrics != NULL)
        status = mt_metrics_evaluation(trainer->metrics, number, loss, error);
    }
    if (status == MOTET_OK && (stop || is_due(job->train.save_every, number) || number == trainer->part.end))
      status = mt_trainer_save(trainer, number, error);
    if (status == MOTET_OK && stop)
      return mt_error_set(error, MOTET_ERROR_INTERRUPTED, "stopped after step %" PRId64 "; the state is saved",
                          number);
  }
  return status;
}

static motet_status save_job(const mt_job *job, motet_error *error) {
  mt_text text = {0};
  mt_job_print(job, &text);
  char path[PATH_SIZE];
  motet_status status = MOTET_OK;
  if (text.failed || snprintf(path, sizeof path, "%s/job.yaml", job->output_dir) >= PATH_SIZE)
    status = mt_error_memory(error, text.length, "the job's text");
  if (status == MOTET_OK) status = mt_file_write(path, text.data, text.length, error);
  mt_text_free(&text);
  return status;
}

static void tell_phase(const mt_job *job, const mt_job *view, int32_t number, const mt_trainer_part *part,
                       const mt_train_options *options) {
  if (job->phase_count == 0) return;
  char modules[64] = "nothing";
  int length = 0;
  for (int32_t j = 0; j < MT_JOB_MODULES; j++)
    if (mt_job_trains(view, j))
      length += snprintf(modules + length, sizeof modules - (size_t)length, "%s%s", length > 0 ? ", " : "",
                         mt_job_modules[j]);
  mt_train_say(options, "phase %d of %d, steps %" PRId64 " to %" PRId64 ": %s under %s", (int)number + 1,
               (int)job->phase_count, part->begin + 1, part->end, modules, view->schedule);
}

/** Runs the phase of step @p step up to its end. Every phase is opened anew, from the checkpoint that the one
 * before it left: what another plan needs of weights and moments lies where it belongs, as after any resume. */
static motet_status run_phase(const mt_job *job, const mt_train_options *options, int64_t step,
                              char path[PATH_SIZE], motet_error *error, int64_t *end) {
  mt_job view;
  mt_trainer_part part = {.checkpoint = path[0] != 0 ? path : NULL};
  int32_t number = mt_job_phase_at(job, step, &view, &part.begin, &part.end);
  mt_trainer trainer;
  motet_status status = mt_trainer_open(&view, &part, options, error, &trainer);
  if (status == MOTET_OK && options->transport->rank == 0) status = save_job(job, error);
  if (status == MOTET_OK && options->transport->rank == 0 && options->listener.opened != NULL)
    options->listener.opened(options->listener.context, job);
  if (status == MOTET_OK && trainer.first_step >= job->train.steps)
    mt_train_say(options, "all %s done", mt_counted(job->train.steps, "step").text);
  else if (status == MOTET_OK)
    tell_phase(job, &view, number, &part, options);
  /* What the first step's plan is refused for is the user's input too. */
  mt_planned_step *first;
  if (status == MOTET_OK && trainer.first_step < part.end)
    status = mt_trainer_plan(&trainer, trainer.first_step, error, &first);
  if (status == MOTET_OK) {
    status = run_all(&trainer, error);
    /* Memory and, once all could be read, files are refused to one rank, which the error need not have known. */
    if ((status == MOTET_ERROR_MEMORY || status == MOTET_ERROR_IO) && error->rank < 0)
      error->rank = options->transport->rank;
    /* What was readable before the first step was the user's input; what fails now is a failure while running. */
    if (status != MOTET_OK && status != MOTET_ERROR_INTERRUPTED) status = error->status = MOTET_ERROR_FAILED;
  }
  if (status == MOTET_ERROR_MEMORY && error->rank < 0) error->rank = options->transport->rank;
  /* Messages under way would arrive in memory that closing gives back: the job ends before. */
  if (status != MOTET_OK && status != MOTET_ERROR_INTERRUPTED) mt_transport_fail(options->transport, error);
  mt_trainer_close(&trainer);
  *end = part.end;
  if (status == MOTET_OK && part.end < job->train.steps &&
      snprintf(path, PATH_SIZE, "%s/checkpoints/step-%" PRId64, job->output_dir, part.end) >= PATH_SIZE)
    status = mt_error_set(error, MOTET_ERROR_LIMIT, "output_dir is too long a path");
  return status;
}

motet_status mt_train_run(const mt_job *job, const mt_train_options *options, motet_error *error) {
  char path[MT_RESUME_PATH_SIZE];
  int64_t step = 0;
  motet_status status = mt_setup_check_phases(job, error);
  if (status == MOTET_OK) status = mt_resume_choose(job, options, error, path, &step);
  do {
    if (status == MOTET_OK) status = run_phase(job, options, step, path, error, &step);
  } while (status == MOTET_OK && step < job->train.steps);
  return status;
}

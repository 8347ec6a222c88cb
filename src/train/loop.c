#include "train/loop.h"

#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>

static double learning_rate(const mt_job *job, int64_t step) {
  double largest = job->train.learning_rate;
  int64_t rise = job->train.warmup_steps, all = job->train.steps;
  if (step <= rise) return largest * (double)step / (double)rise;
  double done = all > rise ? (double)(step - rise - 1) / (double)(all - rise) : 0;
  switch (job->train.decay) {
  case MT_JOB_DECAY_LINEAR: return largest * (1 - done);
  case MT_JOB_DECAY_COSINE: return largest * 0.5 * (1 + cos(acos(-1.0) * done));
  default: return largest;
  }
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
  mt_step step = {.program = planned->plan.program,
                  .source = mt_feed_source(trainer->feed),
                  .number = number,
                  .optimizer = {.learning_rate = learning_rate(job, number),
                                .beta1 = job->train.betas.values[0],
                                .beta2 = job->train.betas.values[1],
                                .epsilon = job->train.epsilon,
                                .weight_decay = job->train.weight_decay},
                  .clip_norm = job->train.clip_norm,
                  .sums = trainer->sums,
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
    mt_trainer_say(trainer,
                   "step %" PRId64 "/%" PRId64 "  loss %.4f  lr %.2e  norm %.3f  %.0f tokens/s  %.3f s  "
                   "idle %.0f%%  weights %016" PRIx64,
                   done, steps, step->loss, step->learning_rate, step->measure->gradient_norm,
                   (double)step->tokens / step->step_seconds, step->step_seconds,
                   whole > 0 ? 100 * (1 - step->measure->busy / whole) : 0.0, step->weights_digest);
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
  motet_status status = mt_measure_gather(trainer->transport, planned->plan.program, result, trainer->clock_offset,
                                          trainer->step_arena, error, &measure);
  bool keep =
      job->train.timeline_every > 0 && (number % job->train.timeline_every == 0 || number == job->train.steps);
  double *start = NULL, *finish = NULL;
  if (status == MOTET_OK && keep)
    status = mt_measure_timeline(trainer->transport, planned->plan.program, result, trainer->clock_offset,
                                 trainer->step_arena, error, &start, &finish);
  if (status != MOTET_OK || trainer->transport->rank != 0) return status;
  double peak = mt_planner_costs(trainer->setup.planner)->peak_operations_per_second;
  double operations = mt_planner_operations(trainer->setup.planner, planned->microbatches);
  mt_metrics_step step = {
      .step = number,
      .loss = seen->loss,
      .learning_rate = learning_rate(job, number),
      .step_seconds = seen->step_seconds,
      .tokens = seen->tokens,
      .weights_digest = result->weights_digest,
      .mfu = peak > 0 ? operations / (peak * trainer->transport->ranks * measure.makespan) : NAN,
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
  double begin = mt_interpreter_clock();
  mt_planned_step *planned, *ahead;
  mt_step_result result;
  note_step(trainer, number);
  motet_status status = mt_trainer_plan(trainer, index, error, &planned);
  /* The next step is planned before this one runs: its pictures are decoded meanwhile. */
  if (status == MOTET_OK && number < job->train.steps) status = mt_trainer_plan(trainer, number, error, &ahead);
  if (status == MOTET_OK) status = run_program(trainer, planned, error, &result);
  if (status != MOTET_OK) return status;
  outcome seen = {.step_seconds = mt_interpreter_clock() - begin};
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
  for (int64_t index = trainer->first_step; index < job->train.steps && status == MOTET_OK; index++) {
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
    if (status == MOTET_OK && (stop || is_due(job->train.save_every, number) || number == job->train.steps))
      status = mt_trainer_save(trainer, number, error);
    if (status == MOTET_OK && stop)
      return mt_error_set(error, MOTET_ERROR_INTERRUPTED, "stopped after step %" PRId64 "; the state is saved",
                          number);
  }
  return status;
}

motet_status mt_train_run(const mt_job *job, const mt_train_options *options, motet_error *error) {
  mt_trainer trainer;
  motet_status status = mt_trainer_open(job, options, error, &trainer);
  if (status == MOTET_OK && trainer.first_step >= job->train.steps)
    mt_trainer_say(&trainer, "all %" PRId64 " steps are done", job->train.steps);
  if (status == MOTET_OK) {
    status = run_all(&trainer, error);
    /* What was readable before the first step was the user's input; what fails now is a failure while running. */
    if (status != MOTET_OK && status != MOTET_ERROR_INTERRUPTED) status = error->status = MOTET_ERROR_FAILED;
  }
  mt_trainer_close(&trainer);
  return status;
}

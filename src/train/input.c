#include "train/input.h"

#include "sim/costs.h"

#include <math.h>

enum { ROUNDS = 4 }; /* a LOAD that waits moves other ranks' idle time, in which they decode */

void mt_input_features(const mt_dataset *dataset, const mt_row *row, double features[MT_INPUT_FEATURES]) {
  for (int i = 0; i < MT_INPUT_FEATURES; i++) features[i] = 0;
  for (int32_t s = 0; s < row->samples; s++) {
    const mt_sample *sample = mt_dataset_sample(dataset, row->sample[s]);
    for (int32_t i = 0; i < sample->images + sample->videos; i++) {
      const mt_medium_form *form = mt_dataset_medium_at(dataset, row->sample[s], i).form;
      features[0] += 1;
      features[1] += (double)form->width * form->height * (form->video ? form->frames : 1);
      features[2] += form->tiling.tiles;
    }
  }
}

double mt_input_seconds(const mt_decode_costs *costs, const mt_dataset *dataset, const mt_row *row) {
  if (!costs->measured) return 0;
  double features[MT_INPUT_FEATURES];
  mt_input_features(dataset, row, features);
  return features[0] * costs->medium_seconds + features[1] * costs->pixel_seconds +
         features[2] * costs->tile_seconds;
}

/** One rank's decoding, as a flow of work through its loads in their order, round and round. */
typedef struct stream {
  const mt_input_options *options;
  int32_t count;
  const double *sum; /* [count + 1] seconds of the loads before each */
  double ahead;      /* seconds of work done on loads that are still to come */
} stream;

/** Seconds of the @p count loads from number @p first on. */
static double work_between(const stream *this, int32_t first, int32_t count) {
  const double whole = this->sum[this->count];
  const int32_t end = first + count;
  return (double)(end / this->count) * whole + this->sum[end % this->count] - this->sum[first];
}

static void decode(stream *this, int32_t next, double seconds) {
  const double most = work_between(this, next % this->count, this->options->capacity);
  this->ahead = fmin(this->ahead + seconds, fmax(most, this->ahead));
}

static bool loads_pixels(const motet_program *program, const motet_instruction *instruction,
                         const mt_input_options *options) {
  return instruction->kind == MOTET_LOAD &&
         (program->stages[instruction->stage].inputs & MOTET_INPUT_PIXELS) != 0 &&
         options->seconds[instruction->microbatch] > 0;
}

/** One step of a rank as it was simulated; the waits of its loads go to @p waits. */
static void run_step(stream *this, const mt_plan *plan, int32_t rank, double *waits) {
  const motet_program *program = plan->program;
  const mt_input_options *options = this->options;
  const double beside = fmin(options->threads, options->spare_processors),
               alone = fmin(options->threads, options->spare_processors + 1.0);
  int32_t next = 0;
  for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
    const motet_instruction *instruction = &program->instructions[i];
    const double seconds = plan->simulation->finish[i] - plan->simulation->start[i];
    if (!loads_pixels(program, instruction, options)) {
      decode(this, next, seconds * (mt_sim_is_compute(instruction->kind) ? beside : alone));
      continue;
    }
    const double work = options->seconds[instruction->microbatch], missing = fmax(0, work - this->ahead);
    this->ahead = fmax(0, this->ahead - work);
    next++;
    decode(this, next, missing * (alone - 1));
    waits[instruction->stage * (int64_t)program->microbatch_count + instruction->microbatch] = missing;
  }
}

static motet_status find_waits(mt_arena *arena, const mt_input_options *options, const mt_plan *plan,
                               motet_error *error, double *waits) {
  const motet_program *program = plan->program;
  double *sum = MT_ARENA_NEW(arena, double, program->microbatch_count *(int64_t)program->stage_count + 1);
  if (sum == NULL) return mt_error_memory(error, (unsigned)program->microbatch_count, "a step's loads");
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    stream loads = {.options = options, .sum = sum};
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      const motet_instruction *instruction = &program->instructions[i];
      if (!loads_pixels(program, instruction, options)) continue;
      sum[loads.count + 1] = sum[loads.count] + options->seconds[instruction->microbatch];
      loads.count++;
    }
    if (loads.count == 0) continue;
    run_step(&loads, plan, rank, waits); /* what is ready at the beginning was decoded during the step before */
    run_step(&loads, plan, rank, waits);
  }
  return MOTET_OK;
}

motet_status mt_input_forecast(mt_arena *arena, const mt_input_options *options,
                               const mt_simulate_options *simulate, motet_error *error, mt_plan *plan) {
  const motet_program *program = plan->program;
  const int64_t cells = program->microbatch_count * (int64_t)program->stage_count;
  if (program->range_count > 1) return MOTET_OK; /* entry 0 is the whole row */
  double *waits = MT_ARENA_NEW(arena, double, cells);
  if (waits == NULL) return mt_error_memory(error, (unsigned long long)cells * sizeof *waits, "a step's loads");
  plan->costs.seconds[MT_COST_LOAD] =
      (mt_cost_values){.values = waits, .stage_stride = program->microbatch_count, .microbatch_stride = 1};
  motet_status status = MOTET_OK;
  for (int round = 0; round < ROUNDS && status == MOTET_OK; round++) {
    status = find_waits(arena, options, plan, error, waits);
    if (status == MOTET_OK) status = mt_simulate(arena, program, &plan->costs, simulate, error, &plan->simulation);
  }
  return status;
}

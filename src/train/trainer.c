#include "train/trainer.h"

#include "base/digest.h"
#include "tensor/backend.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(const mt_train_options *options, const char *format, va_list arguments) {
  const mt_train_listener *listener = &options->listener;
  if (options->transport->rank != 0 || listener->line == NULL) return;
  char text[2048];
  vsnprintf(text, sizeof text, format, arguments);
  listener->line(listener->context, text);
}

void mt_train_say(const mt_train_options *options, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(options, format, arguments);
  va_end(arguments);
}

void mt_trainer_say(const mt_trainer *trainer, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(trainer->options, format, arguments);
  va_end(arguments);
}

motet_status mt_trainer_agree(mt_trainer *trainer, uint64_t value, const char *what, motet_error *error) {
  /* Halves are exact as doubles, and so are their sums; equal sums of squares too leave equal numbers alone. */
  double low = (double)(uint32_t)value, high = (double)(value >> 32), ranks = trainer->transport->ranks;
  double sums[4] = {low, high, low * low, high * high};
  motet_status status =
      mt_all_reduce_doubles(trainer->transport, &trainer->writer.everyone, sums, 4, &trainer->scratch, error);
  if (status != MOTET_OK) return status;
  if (sums[0] == low * ranks && sums[1] == high * ranks) return MOTET_OK;
  return mt_error_set(error, MOTET_ERROR_FAILED,
                      "rank %d has another %s than other ranks (digest %016" PRIx64
                      "): they must see the same files and run the same program",
                      (int)trainer->transport->rank, what, value);
}

static motet_status make_arenas(mt_trainer *trainer, motet_error *error) {
  trainer->arena = mt_arena_create();
  trainer->step_arena = mt_arena_create();
  bool good = trainer->arena != NULL && trainer->step_arena != NULL;
  for (int i = 0; i < 2; i++) {
    trainer->planned[i] = (mt_planned_step){.arena = mt_arena_create(), .step = -1};
    good = good && trainer->planned[i].arena != NULL;
  }
  int32_t *ranks = good ? MT_ARENA_NEW(trainer->arena, int32_t, trainer->transport->ranks) : NULL;
  if (ranks == NULL) return mt_error_memory(error, sizeof *trainer, "the trainer");
  for (int32_t rank = 0; rank < trainer->transport->ranks; rank++) ranks[rank] = rank;
  trainer->writer.everyone = (mt_rank_group){.count = trainer->transport->ranks, .ranks = ranks};
  return MOTET_OK;
}

/** What of the data set will not be seen. */
static void tell_dropped(const mt_trainer *trainer, const mt_dataset *dataset, const char *key) {
  const int32_t dropped = dataset == NULL ? 0 : mt_dataset_dropped(dataset);
  if (dropped == 0) return;
  mt_trainer_say(trainer, "%s: %d of %d samples are longer than data.max_tokens %" PRId64 " and left out", key,
                 (int)dropped, (int)(dropped + mt_dataset_count(dataset)), trainer->job->data.max_tokens);
}

/** Numbers that a checkpoint holds of a layer: weights, and two moments of what trains. */
static int64_t checkpoint_numbers(const mt_model *model, const bool *trainable, int32_t layer) {
  return model->layers[layer].parameters * (trainable[layer] ? 3 : 1);
}

/**
 * Who writes which layer into a checkpoint: one of those that hold it, owners of a transposed encoder and
 * data-parallel replicas too, so that all have about as much to write. The largest layer first, each to the rank
 * with the least.
 */
static motet_status share_out(const mt_trainer *trainer, const bool *trainable, motet_error *error,
                              int32_t *layer_rank) {
  const mt_planner *planner = trainer->setup.planner;
  const mt_model *model = mt_planner_model(planner);
  int32_t layers = model->layer_count, ranks = trainer->transport->ranks;
  bool *held = MT_ARENA_NEW(trainer->arena, bool, (int64_t)layers *ranks);
  int64_t *written = MT_ARENA_NEW(trainer->arena, int64_t, ranks);
  if (held == NULL || written == NULL) return mt_error_memory(error, (size_t)layers * (size_t)ranks, "the trainer");
  for (int32_t rank = 0; rank < ranks; rank++) mt_planner_held(planner, rank, held + (int64_t)rank * layers);
  for (int32_t layer = 0; layer < layers; layer++) layer_rank[layer] = -1;
  for (int32_t round = 0; round < layers; round++) {
    int32_t largest = -1, least = -1;
    for (int32_t layer = 0; layer < layers; layer++)
      if (layer_rank[layer] < 0 && (largest < 0 || checkpoint_numbers(model, trainable, layer) >
                                                       checkpoint_numbers(model, trainable, largest)))
        largest = layer;
    for (int32_t rank = 0; rank < ranks; rank++)
      if (held[(int64_t)rank * layers + largest] && (least < 0 || written[rank] < written[least])) least = rank;
    layer_rank[largest] = least;
    written[least] += checkpoint_numbers(model, trainable, largest);
  }
  return MOTET_OK;
}

static motet_status fill_writer(mt_trainer *trainer, motet_error *error) {
  const mt_planner *planner = trainer->setup.planner;
  int32_t layers = mt_planner_model(planner)->layer_count;
  bool *trainable = MT_ARENA_NEW(trainer->arena, bool, layers);
  int32_t *layer_rank = MT_ARENA_NEW(trainer->arena, int32_t, layers);
  if (trainable == NULL || layer_rank == NULL)
    return mt_error_memory(error, (size_t)layers * sizeof *layer_rank, "the trainer");
  mt_planner_trainable(planner, trainable);
  motet_status status = share_out(trainer, trainable, error, layer_rank);
  if (status != MOTET_OK) return status;
  mt_checkpoint_writer *writer = &trainer->writer;
  writer->transport = trainer->transport;
  writer->network = trainer->network;
  writer->owners = (mt_weights_owners){
      .config = &trainer->setup.config, .trainable = trainable, .layer_rank = layer_rank, .layers = layers};
  writer->output_dir = trainer->job->output_dir;
  writer->config_path = trainer->setup.config_path;
  writer->tokenizer_path = trainer->setup.tokenizer_path;
  writer->keep = trainer->job->train.keep;
  return MOTET_OK;
}

static motet_status open_network(mt_trainer *trainer, motet_error *error) {
  const mt_setup *setup = &trainer->setup;
  int32_t layers = mt_planner_model(setup->planner)->layer_count;
  bool *held = MT_ARENA_NEW(trainer->arena, bool, layers), *trainable = MT_ARENA_NEW(trainer->arena, bool, layers);
  trainer->sums = MT_ARENA_NEW(trainer->arena, double, setup->rows + 1);
  if (held == NULL || trainable == NULL || trainer->sums == NULL)
    return mt_error_memory(error, (size_t)setup->rows * sizeof(double), "the trainer");
  mt_planner_held(setup->planner, trainer->transport->rank, held);
  mt_planner_trainable(setup->planner, trainable);
  motet_status status = mt_network_create(&setup->config, held, trainable, error, &trainer->network);
  if (status == MOTET_OK) status = mt_setup_network(setup, trainer->transport, trainer->network, error);
  if (status == MOTET_OK && trainer->job->deterministic == MT_JOB_DETERMINISTIC_EXACT)
    status = mt_network_sum_exactly(trainer->network, setup->rows * trainer->job->parallel.context, error);
  if (status != MOTET_OK) return status;
  mt_board *board = trainer->options->board;
  mt_interpreter_options options = {
      .config = &setup->config,
      .network = trainer->network,
      .transport = trainer->transport,
      .place = board != NULL ? mt_board_at(board, trainer->transport->rank) : NULL,
      .ulysses = (int32_t)trainer->job->context.ulysses,
  };
  const int32_t threads = (int32_t)trainer->job->data.decode_threads;
  status = mt_interpreter_create(&options, error, &trainer->interpreter);
  const bool beside = trainer->transport->processors > 0;
  if (status == MOTET_OK) status = mt_feed_create(setup->train, threads, beside, error, &trainer->feed);
  if (status == MOTET_OK && setup->eval != NULL)
    status = mt_feed_create(setup->eval, threads, beside, error, &trainer->eval_feed);
  if (status == MOTET_OK) status = mt_setup_grouping(setup, error, &trainer->grouping);
  if (status == MOTET_OK && setup->eval != NULL) status = mt_setup_grouping(setup, error, &trainer->eval_grouping);
  return status;
}

static motet_status check_state(const mt_trainer *trainer, const mt_checkpoint_state *state, const char *path,
                                motet_error *error) {
  const mt_job *job = trainer->job;
  mt_internvl config;
  motet_status status = mt_internvl_read(path, error, &config);
  if (status != MOTET_OK) return status;
  const char *number = mt_internvl_difference(&config, &trainer->setup.config);
  if (number != NULL) {
    mt_error_set(error, MOTET_ERROR_ARGUMENT,
                 "the checkpoint was made with another %s in the model's config.json, so its run cannot be "
                 "continued; give the old value, or another output_dir",
                 number);
    mt_error_place(error, path, 0);
    mt_error_key(error, job->model != NULL ? "model" : "config");
    return MOTET_ERROR_ARGUMENT;
  }
  const char *key = state->seed != job->train.seed                   ? "train.seed"
                    : state->global_batch != job->train.global_batch ? "train.global_batch"
                    : job->deterministic == MT_JOB_DETERMINISTIC_EXACT && state->rows != trainer->setup.rows
                        ? "train.microbatches times parallel.data"
                    : state->data_digest != mt_dataset_digest(trainer->setup.train) ? "data.train"
                                                                                    : NULL;
  if (key == NULL) return MOTET_OK;
  mt_error_set(
      error, MOTET_ERROR_ARGUMENT,
      "the checkpoint was made with another %s, so its run cannot be continued; give the old value, or start "
      "a new run from its weights with 'model: %s' and another output_dir",
      key, path);
  mt_error_place(error, path, 0);
  mt_error_key(error, key);
  return MOTET_ERROR_ARGUMENT;
}

static motet_status load_weights(mt_trainer *trainer, motet_error *error) {
  const mt_job *job = trainer->job;
  const char *path = trainer->part.checkpoint;
  mt_checkpoint_state state = {.moments_from = {-1, -1, -1}};
  motet_status status = MOTET_OK;
  if (path != NULL) {
    status = mt_checkpoint_read_state(path, error, &state);
    if (status == MOTET_OK) status = check_state(trainer, &state, path, error);
    if (status == MOTET_OK)
      status = mt_checkpoint_load(trainer->network, &trainer->setup.config, &state, path, error);
  } else if (job->init == MT_JOB_INIT_PRETRAINED) {
    status = mt_weights_load(trainer->network, job->model, error);
  } else {
    mt_network_initialize(trainer->network, (uint64_t)job->train.seed);
  }
  trainer->first_step = state.step;
  for (int32_t j = 0; j < MT_NETWORK_MODULES; j++) {
    bool fresh = state.moments_from[j] < 0;
    trainer->moments_from[j] = !mt_job_trains(job, j) ? -1 : fresh ? state.step : state.moments_from[j];
  }
  return status;
}

/** A digest of all that features depend on beside the picture: config, weights of the layers, element and kernels.
 */
static motet_status encoder_digest(mt_trainer *trainer, int32_t layers, motet_error *error, uint64_t *result) {
  double *sums = MT_ARENA_NEW(trainer->arena, double, 2 * (int64_t)layers);
  char *config;
  size_t bytes;
  if (sums == NULL) return mt_error_memory(error, 2 * (size_t)layers * sizeof *sums, "the encoder's digest");
  motet_status status = mt_file_read(trainer->setup.config_path, error, &config, &bytes);
  if (status != MOTET_OK) return status;
  mt_element element = mt_network_element(trainer->network);
  uint64_t whole[4] = {
      mt_digest_of(config, bytes), (uint64_t)layers, (uint64_t)element,
      mt_digest_of(mt_tensor_backend_cpu(element)->name, strlen(mt_tensor_backend_cpu(element)->name))};
  free(config);
  /* Ranks hold different layers: one of those that hold a layer tells its weights' digest, in halves that doubles
     hold exactly. */
  for (int32_t i = 0; i < mt_network_parameter_count(trainer->network); i++) {
    const mt_parameter *parameter = mt_network_parameter(trainer->network, i);
    if (parameter->layer >= layers ||
        trainer->writer.owners.layer_rank[parameter->layer] != trainer->transport->rank)
      continue;
    double *own = &sums[2 * parameter->layer];
    uint64_t before = (uint64_t)own[0] | (uint64_t)own[1] << 32;
    uint64_t both[2] = {before, mt_digest_of(parameter->value, (size_t)parameter->count * sizeof(float))};
    uint64_t value = mt_digest_of(both, sizeof both);
    own[0] = (double)(uint32_t)value;
    own[1] = (double)(value >> 32);
  }
  status = mt_all_reduce_doubles(trainer->transport, &trainer->writer.everyone, sums, 2 * (size_t)layers,
                                 &trainer->scratch, error);
  *result = mt_digest_of(whole, sizeof whole);
  for (int32_t i = 0; i < 2 * layers; i++) {
    uint64_t both[2] = {*result, (uint64_t)sums[i]};
    *result = mt_digest_of(both, sizeof both);
  }
  return status;
}

/** Opens the cache of features, where the job has one and there is something to keep in it. */
static motet_status open_cache(mt_trainer *trainer, motet_error *error) {
  int32_t layers = mt_planner_cached_layers(trainer->setup.planner);
  if (trainer->job->data.feature_cache == NULL) return MOTET_OK;
  if (layers == 0) {
    mt_trainer_say(trainer, "the encoder trains: its features are not cached");
    return MOTET_OK;
  }
  mt_batch one = {.tiles = 1};
  int64_t rows, columns;
  mt_network_output_shape(&trainer->setup.config, layers - 1, &one, &rows, &columns);
  mt_feature_cache_options options = {
      .directory = trainer->job->data.feature_cache,
      .dataset = trainer->setup.train,
      .tile_bytes = rows * columns * (int64_t)mt_element_bytes(mt_network_element(trainer->network))};
  motet_status status = encoder_digest(trainer, layers, error, &options.encoder);
  if (status == MOTET_OK) status = mt_feature_cache_create(&options, error, &trainer->cache);
  if (status == MOTET_OK) mt_feed_cache(trainer->feed, trainer->cache);
  return status;
}

/* A copy of the job file that is out of date on one host must not train. */
static motet_status agree_on_job(mt_trainer *trainer, motet_error *error) {
  mt_text text = {0};
  mt_job_print(trainer->job, &text);
  motet_status status = text.failed ? mt_error_memory(error, text.length, "the job's text")
                                    : mt_trainer_agree(trainer, mt_digest_of(text.data, text.length), "job", error);
  mt_text_free(&text);
  return status;
}

motet_status mt_trainer_open(const mt_job *job, const mt_trainer_part *part, const mt_train_options *options,
                             motet_error *error, mt_trainer *trainer) {
  *trainer = (mt_trainer){.job = job, .options = options, .transport = options->transport, .part = *part};
  motet_status status = make_arenas(trainer, error);
  if (status == MOTET_OK) status = agree_on_job(trainer, error);
  if (status == MOTET_OK) status = mt_setup_open(job, error, &trainer->setup);
  if (status == MOTET_OK && trainer->setup.ranks != trainer->transport->ranks)
    status = mt_error_set(error, MOTET_ERROR_ARGUMENT, "the job is for %d ranks, not %d", (int)trainer->setup.ranks,
                          (int)trainer->transport->ranks);
  if (status == MOTET_OK && trainer->setup.eval != NULL &&
      mt_dataset_count(trainer->setup.eval) < trainer->setup.rows)
    status = mt_error_set(error, MOTET_ERROR_ARGUMENT, "data.eval has %d samples; it needs one a microbatch, %d",
                          (int)mt_dataset_count(trainer->setup.eval), (int)trainer->setup.rows);
  if (status == MOTET_OK) {
    tell_dropped(trainer, trainer->setup.train, "data.train");
    tell_dropped(trainer, trainer->setup.eval, "data.eval");
  }
  if (status == MOTET_OK) status = open_network(trainer, error);
  if (status == MOTET_OK) status = fill_writer(trainer, error);
  if (status == MOTET_OK)
    status = mt_trainer_agree(trainer, mt_dataset_digest(trainer->setup.train), "training data set", error);
  if (status == MOTET_OK) status = load_weights(trainer, error);
  if (status == MOTET_OK) status = open_cache(trainer, error);
  if (status == MOTET_OK) status = mt_clock_offset(trainer->transport, error, &trainer->clock_offset);
  if (status == MOTET_OK && trainer->transport->rank == 0) {
    status = mt_metrics_open(job->output_dir, trainer->first_step, error, &trainer->metrics);
    if (status == MOTET_OK && job->train.tensorboard)
      status = mt_metrics_tensorboard(trainer->metrics, trainer->first_step, error);
  }
  return status;
}

void mt_trainer_close(mt_trainer *trainer) {
  for (int64_t i = 0; i < 2; i++) mt_trainer_await(&trainer->planned[i]);
  mt_metrics_close(trainer->metrics);
  mt_feed_destroy(trainer->feed);
  mt_feed_destroy(trainer->eval_feed);
  mt_feature_cache_destroy(trainer->cache);
  mt_grouping_destroy(trainer->grouping);
  mt_grouping_destroy(trainer->eval_grouping);
  mt_interpreter_destroy(trainer->interpreter);
  mt_network_destroy(trainer->network);
  mt_collective_scratch_free(&trainer->scratch);
  for (int i = 0; i < 2; i++) {
    mt_plan_free(&trainer->planned[i].plan);
    mt_arena_destroy(trainer->planned[i].arena);
  }
  mt_setup_close(&trainer->setup);
  mt_arena_destroy(trainer->step_arena);
  mt_arena_destroy(trainer->arena);
}

/** An evaluation that has no number is no reason to end the run, nor one to hide it. */
static void tell_evaluation(const mt_trainer *trainer, const mt_row *row, int32_t microbatch) {
  char origin[512];
  mt_dataset_origin(trainer->setup.eval, row, origin, sizeof origin);
  mt_trainer_say(trainer, "evaluation: the loss of microbatch %d is %g (%s)", (int)microbatch,
                 fabs(trainer->sums[microbatch]), origin);
}

/** One step's worth of evaluation samples; adds their losses and target tokens. */
static motet_status evaluate_batch(mt_trainer *trainer, int32_t first, int32_t count, motet_error *error,
                                   double *loss, double *targets) {
  mt_setup *setup = &trainer->setup;
  const mt_row *rows;
  mt_planner_microbatch *microbatches;
  mt_plan plan = {0};
  mt_arena_reset(trainer->step_arena);
  motet_status status =
      mt_dataset_plan_range(setup->eval, first, count, setup->rows, trainer->step_arena, error, &rows);
  if (status == MOTET_OK && trainer->eval_grouping != NULL)
    status = mt_grouping_submit(trainer->eval_grouping, rows, error);
  if (status == MOTET_OK)
    status = mt_setup_grouped(setup, setup->eval, trainer->eval_grouping, trainer->step_arena, error, &rows,
                              &microbatches);
  if (status == MOTET_OK)
    status = mt_planner_plan(setup->planner, MT_PLANNER_EVALUATE, microbatches, NULL, 0, trainer->step_arena, error,
                             &plan);
  if (status != MOTET_OK) return status;
  int64_t key = trainer->eval_key++;
  mt_feed_set(trainer->eval_feed, key, rows, NULL);
  status = mt_feed_prefetch(trainer->eval_feed, plan.program, trainer->transport->rank, key, rows, NULL, error);
  mt_step_result result;
  mt_step step = {.program = plan.program,
                  .source = mt_feed_source(trainer->eval_feed),
                  .sums = trainer->sums,
                  .sum_count = setup->rows,
                  .aside = true};
  if (status == MOTET_OK) status = mt_interpreter_run(trainer->interpreter, &step, error, &result);
  double batch_targets = 0, batch_loss = 0;
  for (int32_t i = 0; status == MOTET_OK && i < setup->rows; i++) {
    if (!isfinite(trainer->sums[i])) tell_evaluation(trainer, &rows[i], i);
    batch_targets += rows[i].targets;
    batch_loss += trainer->sums[i];
  }
  *loss += batch_loss * batch_targets;
  *targets += batch_targets;
  mt_plan_free(&plan);
  return status;
}

motet_status mt_trainer_evaluate(mt_trainer *trainer, motet_error *error, double *loss) {
  const mt_job *job = trainer->job;
  int32_t samples = mt_dataset_count(trainer->setup.eval), first = 0;
  double sum = 0, targets = 0;
  motet_status status = MOTET_OK;
  for (int64_t batch = 0; batch < job->train.eval_batches && status == MOTET_OK; batch++) {
    int32_t count = samples - first < job->train.global_batch ? samples - first : (int32_t)job->train.global_batch;
    if (count < trainer->setup.rows) break; /* every microbatch needs a sample */
    status = evaluate_batch(trainer, first, count, error, &sum, &targets);
    first += count;
  }
  *loss = targets > 0 ? sum / targets : NAN;
  return status == MOTET_OK ? status : mt_error_context(error, status, "evaluation");
}

motet_status mt_trainer_save(mt_trainer *trainer, int64_t step, motet_error *error) {
  const mt_job *job = trainer->job;
  mt_checkpoint_state state = {.step = step,
                               .seed = job->train.seed,
                               .global_batch = job->train.global_batch,
                               .rows = trainer->setup.rows,
                               .data_digest = mt_dataset_digest(trainer->setup.train)};
  memcpy(state.moments_from, trainer->moments_from, sizeof state.moments_from);
  mt_board *board = trainer->options->board;
  if (board != NULL) mt_board_at(board, trainer->transport->rank)->state = MT_BOARD_SAVING;
  motet_status status = mt_checkpoint_save(&trainer->writer, &state, error);
  if (board != NULL) mt_board_at(board, trainer->transport->rank)->state = MT_BOARD_RUNNING;
  if (status != MOTET_OK)
    return mt_error_context(error, status, "saving of the checkpoint after step %" PRId64, step);
  mt_trainer_say(trainer, "saved %s/checkpoints/step-%" PRId64, job->output_dir, step);
  return MOTET_OK;
}

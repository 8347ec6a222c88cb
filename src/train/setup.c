#include "train/setup.h"

#include "nn/context.h"
#include "program/lower.h"
#include "train/feed.h"
#include "train/input.h"

#include <string.h>
#include <sys/stat.h>

static motet_status read_modules(const mt_job_texts *names, const char *key, motet_error *error, bool modules[3]) {
  memset(modules, 0, 3 * sizeof *modules);
  for (int32_t i = 0; i < names->count; i++) {
    int module = 0;
    while (module < 3 && strcmp(names->values[i], mt_job_modules[module]) != 0) module++;
    if (module == 3) {
      motet_status status =
          mt_error_set(error, MOTET_ERROR_PARSE, "%s names '%s'; the model's modules are vision, projector, llm",
                       key, names->values[i]);
      mt_error_key(error, key);
      return status;
    }
    modules[module] = true;
  }
  return MOTET_OK;
}

/** @p path itself, or the file called @p name in it where it is a directory. */
static const char *file_of(mt_arena *arena, const char *path, const char *name) {
  struct stat status;
  bool directory = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
  return directory ? mt_arena_format(arena, "%s/%s", path, name) : mt_arena_text(arena, path);
}

static motet_status open_dataset(const mt_setup *setup, const char *path, motet_error *error,
                                 mt_dataset **dataset) {
  const mt_job *job = setup->job;
  mt_dataset_options options = {.images_root = job->data.images_root,
                                .system_prompt = job->data.system_prompt,
                                .max_tokens = (int32_t)job->data.max_tokens,
                                .video_frames = (int32_t)job->data.video_frames};
  motet_status status = mt_dataset_open(path, setup->tokenizer, &setup->config, &options, error, dataset);
  if (status == MOTET_OK && mt_dataset_count(*dataset) == 0) {
    status = mt_error_set(error, MOTET_ERROR_PARSE, "there is no sample in it%s",
                          mt_dataset_dropped(*dataset) > 0 ? " that has at most data.max_tokens tokens" : "");
    mt_error_place(error, path, 0);
  }
  return status;
}

static motet_status open_planner(mt_setup *setup, motet_error *error) {
  const mt_job *job = setup->job;
  mt_planner_options options = {.config = &setup->config,
                                .schedule = job->schedule,
                                .pipeline = (int32_t)job->parallel.pipeline,
                                .replicas = (int32_t)job->parallel.data,
                                .context = (int32_t)job->parallel.context,
                                .ulysses = (int32_t)job->context.ulysses,
                                .microbatches = (int32_t)job->train.microbatches,
                                .split = job->parallel.split.values,
                                .split_count = job->parallel.split.count,
                                .caches = job->data.feature_cache != NULL,
                                .exact = job->deterministic == MT_JOB_DETERMINISTIC_EXACT,
                                .element = setup->element,
                                .search_seconds = job->train.search_seconds,
                                .decode_threads = (int32_t)job->data.decode_threads,
                                .decode_rows = mt_feed_capacity((int32_t)job->data.decode_threads)};
  motet_status status = read_modules(&job->trainable, "trainable", error, options.trainable);
  if (status == MOTET_OK)
    status = read_modules(&job->memory.recompute, "memory.recompute", error, options.recompute);
  if (status == MOTET_OK && job->parallel.context > 1) {
    const mt_internvl_decoder *decoder = &setup->config.decoder;
    status = mt_context_check_heads(options.ulysses, decoder->heads, decoder->kv_heads, error);
    if (status != MOTET_OK) mt_error_key(error, "context.ulysses");
  }
  if (status != MOTET_OK) return status;
  if (job->profile != NULL)
    status = mt_layer_costs_read(job->profile, error, &options.costs);
  else
    mt_layer_costs_from_operations(&setup->config, &options.costs);
  return status == MOTET_OK ? mt_planner_create(&options, error, &setup->planner) : status;
}

/* Names the job's key that named a file which does not read; a line or key of the file itself says more. */
static motet_status named_by(const char *key, motet_error *error, motet_status status) {
  if (status != MOTET_OK && error != NULL && error->key[0] == '\0' && error->line == 0) mt_error_key(error, key);
  return status;
}

motet_status mt_setup_open(const mt_job *job, motet_error *error, mt_setup *setup) {
  *setup = (mt_setup){.job = job, .arena = mt_arena_create()};
  if (setup->arena == NULL) return mt_error_memory(error, sizeof *setup, "the job's set-up");
  const char *model = job->model != NULL ? job->model : job->config;
  const char *tokenizer = job->data.tokenizer != NULL ? job->data.tokenizer : job->model;
  setup->config_path = file_of(setup->arena, model, "config.json");
  setup->tokenizer_path = file_of(setup->arena, tokenizer, "tokenizer.json");
  if (setup->config_path == NULL || setup->tokenizer_path == NULL)
    return mt_error_memory(error, sizeof *setup, "the job's set-up");
  setup->ranks = (int32_t)(job->parallel.pipeline * job->parallel.data * job->parallel.context);
  setup->rows = (int32_t)(job->train.microbatches * job->parallel.data);
  setup->element = job->train.dtype == MT_JOB_DTYPE_BFLOAT16 ? MT_ELEMENT_BFLOAT16 : MT_ELEMENT_FLOAT32;
  motet_status status = named_by(job->model != NULL ? "model" : "config", error,
                                 mt_internvl_read(setup->config_path, error, &setup->config));
  if (status == MOTET_OK) status = open_planner(setup, error);
  if (status == MOTET_OK)
    status = named_by(job->data.tokenizer != NULL ? "data.tokenizer" : "model", error,
                      mt_tokenizer_read(setup->tokenizer_path, error, &setup->tokenizer));
  if (status != MOTET_OK) return status;
  if (mt_tokenizer_vocabulary(setup->tokenizer) > setup->config.decoder.vocabulary) {
    status =
        mt_error_set(error, MOTET_ERROR_PARSE, "the tokenizer has ids up to %d, but the model's vocabulary has %d",
                     (int)mt_tokenizer_vocabulary(setup->tokenizer) - 1, (int)setup->config.decoder.vocabulary);
    mt_error_place(error, setup->tokenizer_path, 0);
    return status;
  }
  status = named_by("data.train", error, open_dataset(setup, job->data.train, error, &setup->train));
  if (status == MOTET_OK && job->data.eval != NULL)
    status = named_by("data.eval", error, open_dataset(setup, job->data.eval, error, &setup->eval));
  return status;
}

motet_status mt_setup_check_phases(const mt_job *job, motet_error *error) {
  motet_status status = MOTET_OK;
  int64_t step = 0, begin;
  for (int32_t i = 0; i < job->phase_count && status == MOTET_OK; i++) {
    mt_job view;
    int32_t number = mt_job_phase_at(job, step, &view, &begin, &step);
    mt_setup setup = {.job = &view};
    status = mt_internvl_read(job->model != NULL ? job->model : job->config, error, &setup.config);
    if (status == MOTET_OK) status = open_planner(&setup, error);
    mt_planner_destroy(setup.planner);
    if (status != MOTET_OK) return mt_error_context(error, status, "phase %d", (int)number + 1);
  }
  return status;
}

void mt_setup_close(mt_setup *setup) {
  mt_planner_destroy(setup->planner);
  if (setup->train != NULL) mt_dataset_close(setup->train);
  if (setup->eval != NULL) mt_dataset_close(setup->eval);
  mt_tokenizer_destroy(setup->tokenizer);
  mt_arena_destroy(setup->arena);
  *setup = (mt_setup){0};
}

int32_t mt_setup_threads(const mt_setup *setup, const mt_transport *transport) {
  const int64_t asked = setup->job->train.threads;
  return asked > 0 ? (int32_t)asked : transport->threads > 0 ? transport->threads : 1;
}

motet_status mt_setup_network(const mt_setup *setup, const mt_transport *transport, mt_network *network,
                              motet_error *error) {
  return mt_network_use(network, setup->element, mt_setup_threads(setup, transport), error);
}

motet_status mt_setup_shapes(const mt_setup *setup, const mt_dataset *dataset, const mt_row *rows, int32_t count,
                             mt_arena *arena, motet_error *error, mt_planner_microbatch **out) {
  mt_planner_microbatch *microbatches = MT_ARENA_NEW(arena, mt_planner_microbatch, count);
  const mt_decode_costs *decode = &mt_planner_costs(setup->planner)->decode;
  if (microbatches == NULL) return mt_error_memory(error, (unsigned)count, "a step's rows");
  for (int32_t i = 0; i < count; i++)
    microbatches[i] = (mt_planner_microbatch){.batch = {.tokens = rows[i].tokens,
                                                        .segments = rows[i].samples,
                                                        .segment_begin = rows[i].segment_begin,
                                                        .tiles = rows[i].tiles,
                                                        .feature_rows = rows[i].feature_rows,
                                                        .loss_weight = rows[i].loss_weight},
                                              .targets = rows[i].targets,
                                              .decode_seconds = mt_input_seconds(decode, dataset, &rows[i])};
  *out = microbatches;
  return MOTET_OK;
}

motet_status mt_setup_rows(const mt_setup *setup, int64_t step, mt_arena *arena, motet_error *error,
                           const mt_row **rows, mt_planner_microbatch **microbatches) {
  const mt_job *job = setup->job;
  motet_status status = mt_dataset_plan(setup->train, (uint64_t)job->train.seed, step,
                                        (int32_t)job->train.global_batch, setup->rows, arena, error, rows);
  return status == MOTET_OK ? mt_setup_shapes(setup, setup->train, *rows, setup->rows, arena, error, microbatches)
                            : status;
}

motet_status mt_setup_grouping(const mt_setup *setup, motet_error *error, mt_grouping **grouping) {
  const mt_job *job = setup->job;
  *grouping = NULL;
  if (job->parallel.context < 2) return MOTET_OK;
  const mt_grouping_options options = {.config = &setup->config,
                                       .costs = mt_planner_costs(setup->planner),
                                       .width = (int32_t)job->parallel.context,
                                       .pipeline = (int32_t)job->parallel.pipeline,
                                       .fixed = job->context.degrees == MT_JOB_DEGREES_STATIC,
                                       .rank_tokens = job->context.rank_tokens,
                                       .rows = setup->rows,
                                       .replicas = (int32_t)job->parallel.data};
  return mt_grouping_create(&options, error, grouping);
}

/** Where a row's image features stand. */
static motet_status find_features(const mt_dataset *dataset, mt_arena *arena, motet_error *error, mt_row *row) {
  mt_batch batch = {0};
  if (row->tiles == 0) return MOTET_OK;
  motet_status status = mt_dataset_load(dataset, row, true, false, arena, error, &batch);
  row->feature_rows = batch.feature_rows;
  return status;
}

motet_status mt_setup_grouped(const mt_setup *setup, const mt_dataset *dataset, mt_grouping *grouping,
                              mt_arena *arena, motet_error *error, const mt_row **rows,
                              mt_planner_microbatch **microbatches) {
  if (grouping == NULL) return mt_setup_shapes(setup, dataset, *rows, setup->rows, arena, error, microbatches);
  mt_grouped_row *grouped;
  motet_status status = mt_grouping_take(grouping, *rows, arena, error, &grouped);
  if (status == MOTET_ERROR_ILLEGAL) mt_error_key(error, "context.rank_tokens");
  if (status != MOTET_OK) return status;
  mt_row *ordered = MT_ARENA_NEW(arena, mt_row, setup->rows);
  if (ordered == NULL) return mt_error_memory(error, (unsigned)setup->rows, "a step's rows");
  for (int32_t i = 0; i < setup->rows && status == MOTET_OK; i++) {
    ordered[i] = grouped[i].row;
    status = find_features(dataset, arena, error, &ordered[i]);
  }
  if (status == MOTET_OK)
    status = mt_setup_shapes(setup, dataset, ordered, setup->rows, arena, error, microbatches);
  for (int32_t i = 0; i < setup->rows && status == MOTET_OK; i++) {
    mt_planner_group *groups = MT_ARENA_NEW(arena, mt_planner_group, grouped[i].group_count);
    if (groups == NULL) return mt_error_memory(error, (unsigned)grouped[i].group_count, "context groups");
    for (int32_t g = 0; g < grouped[i].group_count; g++)
      groups[g] = (mt_planner_group){.segment_begin = grouped[i].groups[g].segment_begin,
                                     .segment_end = grouped[i].groups[g].segment_end,
                                     .degree = grouped[i].groups[g].degree,
                                     .context_ranks = grouped[i].groups[g].ranks};
    (*microbatches)[i].group_count = grouped[i].group_count;
    (*microbatches)[i].groups = groups;
  }
  *rows = ordered;
  return status;
}

motet_status mt_setup_plan(const mt_setup *setup, mt_arena *arena, motet_error *error, mt_plan *plan) {
  const mt_row *rows;
  mt_planner_microbatch *microbatches;
  mt_grouping *grouping = NULL;
  motet_status status = mt_setup_rows(setup, 0, arena, error, &rows, &microbatches);
  if (status == MOTET_OK) status = mt_setup_grouping(setup, error, &grouping);
  if (status == MOTET_OK && grouping != NULL) status = mt_grouping_submit(grouping, rows, error);
  if (status == MOTET_OK)
    status = mt_setup_grouped(setup, setup->train, grouping, arena, error, &rows, &microbatches);
  mt_grouping_destroy(grouping);
  if (status != MOTET_OK) return status;
  return mt_planner_plan(setup->planner, MT_PLANNER_TRAIN, microbatches, NULL, 0, arena, error, plan);
}

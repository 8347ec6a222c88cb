#include "search/job.h"

#include "base/text.h"

#include <string.h>

/* A YAML text in single quotes. */
static void append_text(mt_text *text, const char *key, const char *value) {
  mt_text_append(text, "%s: '", key);
  for (const char *c = value; *c != '\0'; c++) mt_text_append(text, *c == '\'' ? "''" : "%c", *c);
  mt_text_append(text, "'\n");
}

/* Modules that train, where each does as a whole. */
static void append_trainable(mt_text *text, const mt_model *model) {
  int32_t listed = 0;
  for (int32_t j = 0; j < model->module_count; j++)
    for (int32_t l = model->modules[j].layer_begin + 1; l < model->modules[j].layer_end; l++)
      if (model->layers[l].trainable != model->layers[l - 1].trainable) return;
  mt_text_append(text, "trainable: [");
  for (int32_t j = 0; j < model->module_count; j++)
    if (model->layers[model->modules[j].layer_begin].trainable)
      mt_text_append(text, "%s%s", listed++ > 0 ? ", " : "", model->modules[j].name);
  mt_text_append(text, "]\n");
}

/* Layers with a saving, as ranges. */
static void append_layers(mt_text *text, const char *key, const uint8_t *savings, int32_t layers,
                          mt_saving saving) {
  int32_t listed = 0;
  for (int32_t l = 0; l < layers; l++) {
    if (savings[l] != saving || (l > 0 && savings[l - 1] == saving)) continue;
    int32_t last = l;
    while (last + 1 < layers && savings[last + 1] == saving) last++;
    mt_text_append(text, listed++ > 0 ? ", " : "  %s: [", key);
    mt_text_append(text, last > l ? "%d-%d" : "%d", l, last);
  }
  if (listed > 0) mt_text_append(text, "]\n");
}

static void append_parallel(mt_text *text, const mt_search_space *space, const mt_search_result *result) {
  const mt_search_candidate *c = &result->best;
  const mt_search_plan *plan = &result->plan;
  int32_t layers = space->problem->architecture->model->layer_count;
  mt_text_append(text, "parallel:\n  tensor: %d\n", c->tensor);
  if (space->trunk > 0) mt_text_append(text, "  encoder_tensor: %d\n", c->encoder_tensor);
  mt_text_append(text, "  ulysses: %d\n  ring: %d\n  pipeline: %d\n  data: %d\n  expert: %d\n  zero: %d\n",
                 c->ulysses, c->ring, mt_search_cells(space, c), c->data, c->expert, c->zero);
  if (c->shard_devices > 0)
    mt_text_append(text, "  shard_group: %d\n  layered: true\n", c->shard_devices / c->tensor);
  if (plan->host_optimizer) mt_text_append(text, "  optimizer: host\n");
  mt_text_append(text, "  split: [");
  for (int32_t s = 0; s < plan->stage_count; s++)
    mt_text_append(text, "%s%d", s > 0 ? ", " : "", plan->stage_layers[s]);
  mt_text_append(text, "]\n");
  append_layers(text, "recompute_layers", plan->savings, layers, MT_SAVING_INPUT);
  append_layers(text, "offload_layers", plan->savings, layers, MT_SAVING_HOST);
}

/* Whether all samples are the one that the problem describes. */
static bool is_uniform(const mt_search_problem *problem) {
  return problem->trace == NULL && problem->distribution == NULL;
}

static void append_workload(mt_text *text, const mt_search_space *space, const mt_search_result *result,
                            const char *trace) {
  const mt_search_problem *problem = space->problem;
  mt_text_append(text, "workload:\n  samples: %d\n", result->best.microbatch);
  if (!is_uniform(problem)) {
    mt_text_append(text, "  ");
    append_text(text, "trace", trace);
    return;
  }
  mt_text_append(text, "  tokens: %lld\n", (long long)problem->tokens);
  const mt_picture *picture = &problem->picture;
  if (problem->picture_count == 1 && picture->frames > 1)
    mt_text_append(text, "  video: %dx%dx%d\n", picture->frames, picture->height, picture->width);
  else if (problem->picture_count > 0)
    mt_text_append(text, "  images: %dx%dx%d\n", problem->picture_count, picture->height, picture->width);
}

/* The samples of the replica, microbatch by microbatch. A clip has frames, a picture none. */
static void append_samples(mt_text *text, const mt_search_space *space, const mt_search_result *result) {
  const mt_workload_samples *data = &space->problem->data;
  const mt_search_batch *batch = mt_search_space_batch(space, result->best.microbatch);
  for (int32_t i = 0; i < result->best.microbatches; i++)
    for (int32_t k = 0; k < batch->samples; k++) {
      int32_t member = batch->members[(int64_t)result->plan.microbatch[i] * batch->samples + k], images = 0;
      const mt_workload_sample *sample = &data->samples[member];
      mt_text_append(text, "{\"tokens\": %lld", (long long)sample->tokens);
      for (int32_t p = 0; p < sample->picture_count; p++) {
        const mt_picture *picture = &data->pictures[sample->picture_begin + p];
        if (picture->frames > 1) continue;
        mt_text_append(text, "%s[%d, %d]", images++ > 0 ? ", " : ", \"images\": [", picture->height,
                       picture->width);
      }
      if (images > 0) mt_text_append(text, "]");
      for (int32_t p = 0; p < sample->picture_count; p++) {
        const mt_picture *picture = &data->pictures[sample->picture_begin + p];
        if (picture->frames > 1)
          mt_text_append(text, ", \"video\": [%d, %d, %d]", picture->frames, picture->height, picture->width);
      }
      mt_text_append(text, "}\n");
    }
}

motet_status mt_search_job_write(const mt_search_space *space, const mt_search_result *result, const char *path,
                                 motet_error *error) {
  const mt_search_problem *problem = space->problem;
  mt_text job = {0}, samples = {0}, trace = {0};
  mt_text_append(&trace, "%s.jsonl", path);
  append_text(&job, "config", problem->model_path);
  append_trainable(&job, problem->architecture->model);
  mt_text_append(&job, "cluster:\n  ");
  append_text(&job, "preset", problem->cluster_name);
  mt_text_append(&job, "  devices: %d\n  memory: %.0fB\n", problem->cluster.devices, problem->memory_bytes);
  append_text(&job, "schedule", result->plan.derivation->text);
  append_parallel(&job, space, result);
  append_workload(&job, space, result, trace.data != NULL ? trace.data : "");
  mt_text_append(&job, "train:\n  microbatches: %d\n", result->best.microbatches);
  if (!is_uniform(problem)) append_samples(&samples, space, result);
  motet_status status = job.failed || samples.failed || trace.failed
                            ? mt_error_memory(error, job.length + samples.length, "a job")
                            : mt_file_write(path, job.data, job.length, error);
  if (status == MOTET_OK && !is_uniform(problem))
    status = mt_file_write(trace.data, samples.data, samples.length, error);
  mt_text_free(&job);
  mt_text_free(&samples);
  mt_text_free(&trace);
  return status;
}

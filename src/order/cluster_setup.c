/* From a cluster job to model, cluster, degrees and shapes that fit together. */
#include "order/cluster_job.h"

#include "workload/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PICTURES_MAX = 65536 };

static motet_status refuse(const mt_cluster_job *job, const char *key, motet_error *error, motet_status status) {
  mt_cluster_job_place(job, key, error);
  mt_error_key(error, key);
  return status;
}

static motet_status read_model(mt_arena *arena, const mt_cluster_job *job, motet_error *error,
                               mt_cluster_setup *setup) {
  const char *path = job->model != NULL ? job->model : job->config;
  motet_status status = mt_architecture_read(arena, path, error, &setup->architecture);
  if (status != MOTET_OK) return status;
  mt_model *model = setup->architecture->model;
  if (job->trainable.count < 0) return MOTET_OK;
  for (int32_t l = 0; l < model->layer_count; l++) model->layers[l].trainable = false;
  for (int32_t t = 0; t < job->trainable.count; t++) {
    int32_t module = 0;
    while (module < model->module_count && strcmp(model->modules[module].name, job->trainable.values[t]) != 0)
      module++;
    if (module == model->module_count)
      return refuse(job, "trainable", error,
                    mt_error_set(error, MOTET_ERROR_PARSE,
                                 "trainable names '%.60s'; %s has no such module: 'motet model' lists them",
                                 job->trainable.values[t], setup->architecture->title));
    for (int32_t l = model->modules[module].layer_begin; l < model->modules[module].layer_end; l++)
      model->layers[l].trainable = true;
  }
  return MOTET_OK;
}

/* Encoders, where a model has them, go over all ranks; everything else is cut into stages. */
static motet_status choose_schedule(mt_arena *arena, const mt_cluster_job *job, motet_error *error,
                                    mt_cluster_setup *setup) {
  const mt_model *model = setup->architecture->model;
  bool encoders = false;
  const char *trunk = "";
  setup->schedule = job->schedule;
  if (job->schedule != NULL) return MOTET_OK;
  for (int32_t j = 0; j < model->module_count && trunk != NULL; j++) {
    const char *name = model->modules[j].name;
    bool encoder = strcmp(name, "vision") == 0 || strcmp(name, "projector") == 0;
    encoders |= encoder;
    if (!encoder) trunk = mt_arena_format(arena, "%s%s%s", trunk, *trunk != '\0' ? "+" : "", name);
  }
  if (trunk != NULL)
    setup->schedule =
        mt_arena_format(arena, encoders ? "<vision+projector: transpose, %s: 1f1b>" : "<%s: 1f1b>", trunk);
  return setup->schedule != NULL ? MOTET_OK : mt_error_memory(error, 64, "a schedule");
}

static bool is_file(const char *name) {
  size_t length = strlen(name);
  return strchr(name, '/') != NULL || (length > 5 && strcmp(name + length - 5, ".yaml") == 0);
}

static motet_status read_cluster(const mt_cluster_job *job, motet_error *error, mt_cluster *cluster) {
  double wanted = job->tensor * job->context * job->data * job->pipeline;
  motet_status status;
  if (job->ulysses > 0 || job->ring > 0)
    wanted = job->tensor * (job->ulysses > 0 ? job->ulysses : 1) * (job->ring > 0 ? job->ring : 1) * job->data *
             job->pipeline;
  bool file = job->cluster == job->cluster_file || is_file(job->cluster);
  double devices = job->devices > 0 ? job->devices : wanted;
  if (devices > 1e7)
    return refuse(job, "parallel", error,
                  mt_error_set(error, MOTET_ERROR_LIMIT, "%.0f devices are more than a cluster may have", devices));
  if (file) {
    status = mt_cluster_read(job->cluster, error, cluster);
    if (status != MOTET_OK) return status;
    if (job->devices > 0) status = mt_cluster_resize(cluster, (int32_t)devices, error);
    if (status != MOTET_OK) return refuse(job, "cluster.devices", error, status);
  } else {
    status = mt_cluster_preset(job->cluster, (int32_t)devices, error, cluster);
    if (status != MOTET_OK) return refuse(job, "cluster", error, status);
  }
  if (job->memory > 0) cluster->device.memory_bytes = job->memory;
  return MOTET_OK;
}

/* The largest Ulysses degree of which U * TP divides the KV heads inside the fast level; the ring has the rest
 * (design: docs/forecast.md). */
static void split_context(const mt_cluster_setup *setup, int32_t context, mt_parallel *parallel) {
  int64_t heads = 0;
  const mt_architecture *architecture = setup->architecture;
  for (int32_t j = 0; j < architecture->model->module_count; j++)
    if (architecture->facts[j].kv_heads > 0) heads = architecture->facts[j].kv_heads;
  int32_t fast = setup->cluster.levels[setup->cluster.fast_level].devices;
  parallel->ulysses = 1;
  for (int32_t u = 1; u <= context; u++)
    if (context % u == 0 && heads % ((int64_t)u * parallel->tensor) == 0 && (int64_t)u * parallel->tensor <= fast)
      parallel->ulysses = u;
  parallel->ring = context / parallel->ulysses;
}

static bool is(const char *text, const char *word) { return text != NULL && strcmp(text, word) == 0; }

static motet_status no_host_link(motet_error *error) {
  return mt_error_set(error, MOTET_ERROR_PARSE,
                      "nothing can be offloaded to host memory: the cluster states no host_bandwidth");
}

/* With a degree of their own, modules before the trunk share out their pictures over the rest of a cell. */
static motet_status place_encoders(const mt_cluster_job *job, motet_error *error, mt_cluster_setup *setup) {
  int32_t tensor = (int32_t)job->encoder_tensor, trunk = mt_architecture_trunk(setup->architecture);
  if (tensor == 0) return MOTET_OK;
  for (int32_t j = 0; j < trunk; j++) {
    mt_parallel *p = &setup->parallel[j];
    int32_t cell = mt_parallel_cell(p);
    if (cell % tensor != 0)
      return refuse(job, "parallel.encoder_tensor", error,
                    mt_error_set(error, MOTET_ERROR_PARSE,
                                 "parallel.encoder_tensor is %d, and must divide the %d devices of a pipeline rank",
                                 tensor, cell));
    p->shard_group = p->shard_group * p->tensor / tensor; /* the same devices */
    p->samples = cell / tensor;
    p->tensor = tensor;
    p->ulysses = p->ring = 1;
    p->sequence_parallel = p->tensor_overlap = false;
    motet_status status = mt_parallel_check(p, &setup->cluster, error);
    if (status != MOTET_OK) return refuse(job, "parallel.encoder_tensor", error, status);
  }
  return MOTET_OK;
}

/* Layers by number, from 0 over the whole model, or by ranges of them. */
static motet_status save_layers(const mt_cluster_job *job, const mt_cluster_job_list *list, const char *key,
                                mt_saving saving, motet_error *error, mt_cluster_setup *setup) {
  int32_t layers = setup->architecture->model->layer_count;
  for (int32_t i = 0; i < list->count; i++) {
    char *end;
    long first = strtol(list->values[i], &end, 10), last = first;
    bool good = end != list->values[i];
    if (good && *end == '-') {
      const char *second = end + 1;
      last = strtol(second, &end, 10);
      good = end != second;
    }
    if (!good || *end != '\0' || first < 0 || last < first || last >= layers)
      return refuse(job, key, error,
                    mt_error_set(error, MOTET_ERROR_PARSE,
                                 "%s has '%.40s', and must have numbers of layers from 0 to %d, or ranges as 3-7",
                                 key, list->values[i], layers - 1));
    if (saving == MT_SAVING_HOST && setup->cluster.device.host_bytes_per_second <= 0)
      return refuse(job, key, error, no_host_link(error));
    for (long l = first; l <= last; l++) setup->savings[l] = (uint8_t)saving;
  }
  return MOTET_OK;
}

static motet_status choose_degrees(mt_arena *arena, const mt_cluster_job *job, motet_error *error,
                                   mt_cluster_setup *setup) {
  mt_parallel all = mt_parallel_single();
  all.tensor = (int32_t)job->tensor;
  all.data = (int32_t)job->data;
  all.pipeline = (int32_t)job->pipeline;
  all.expert = (int32_t)job->expert;
  all.zero_level = (int32_t)job->zero;
  all.shard_group = (int32_t)job->shard_group;
  all.layered = is(job->layered, "true");
  all.host_optimizer = is(job->optimizer, "host");
  all.sequence_parallel = job->sequence != NULL ? is(job->sequence, "true") : all.tensor > 1;
  all.tensor_overlap = is(job->tensor_overlap, "true");
  all.overlap = !is(job->overlap, "false");
  all.stored_scores = is(job->attention, "stored");
  all.float32_gradients = is(job->gradients, "float32");
  all.float8 = is(job->precision, "float8");
  all.dispatch_copies = is(job->dispatch, "copies");
  all.routed_devices = job->routed_devices;
  all.routed_nodes = job->routed_nodes;
  all.eager = is(job->element_wise, "eager");
  if (all.float8 && setup->cluster.device.float8_flops <= 0)
    return refuse(job, "parallel.precision", error,
                  mt_error_set(error, MOTET_ERROR_PARSE,
                               "maps cannot be computed in float8: the cluster's device states no peak for it"));
  if (all.host_optimizer && setup->cluster.device.host_bytes_per_second <= 0)
    return refuse(job, "parallel.optimizer", error, no_host_link(error));
  if (all.tensor_overlap && !all.sequence_parallel)
    return refuse(job, "parallel.tensor_overlap", error,
                  mt_error_set(error, MOTET_ERROR_PARSE,
                               "an all-reduce does not go in chunks behind products: parallel.tensor_overlap needs "
                               "parallel.tensor above 1 and parallel.sequence"));
  if (job->ulysses > 0 || job->ring > 0) {
    all.ulysses = job->ulysses > 0 ? (int32_t)job->ulysses : 1;
    all.ring = job->ring > 0 ? (int32_t)job->ring : 1;
  } else {
    split_context(setup, (int32_t)job->context, &all);
  }
  if (job->context > 1 && (double)all.ulysses * all.ring != job->context)
    return refuse(job, "parallel.context", error,
                  mt_error_set(error, MOTET_ERROR_PARSE, "parallel.context is %.0f, but ulysses x ring are %d x %d",
                               job->context, all.ulysses, all.ring));
  motet_status status = mt_parallel_check(&all, &setup->cluster, error);
  if (status != MOTET_OK) return refuse(job, "parallel", error, status);
  status = mt_architecture_check_experts(setup->architecture, all.expert, error);
  if (status != MOTET_OK) return refuse(job, "parallel.expert", error, status);
  const mt_model *model = setup->architecture->model;
  setup->parallel = MT_ARENA_NEW(arena, mt_parallel, model->module_count);
  setup->savings = MT_ARENA_NEW(arena, uint8_t, model->layer_count);
  if (setup->parallel == NULL || setup->savings == NULL)
    return mt_error_memory(error, (unsigned)model->layer_count, "a job's layout");
  for (int32_t j = 0; j < model->module_count; j++) setup->parallel[j] = all;
  status = place_encoders(job, error, setup);
  if (status != MOTET_OK) return status;
  for (int32_t j = model->module_count - 1; j >= 0; j--) {
    const mt_parallel *p = &setup->parallel[j];
    status = mt_architecture_check_division(setup->architecture, j, p->tensor, p->ulysses, error);
    bool encoder = j < mt_architecture_trunk(setup->architecture);
    if (status != MOTET_OK)
      return refuse(job, encoder ? "parallel.encoder_tensor" : "parallel.tensor", error, status);
  }
  mt_saving saving = is(job->recompute, "full")        ? MT_SAVING_INPUT
                     : is(job->recompute, "selective") ? MT_SAVING_SELECTIVE
                     : is(job->recompute, "offload")   ? MT_SAVING_HOST
                                                       : MT_SAVING_ALL;
  if (saving == MT_SAVING_HOST && setup->cluster.device.host_bytes_per_second <= 0)
    return refuse(job, "parallel.recompute", error, no_host_link(error));
  for (int32_t l = 0; l < model->layer_count; l++)
    if (setup->architecture->designs[model->layers[l].kind].product_count > 1) setup->savings[l] = (uint8_t)saving;
  status = save_layers(job, &job->recompute_layers, "parallel.recompute_layers", MT_SAVING_INPUT, error, setup);
  if (status == MOTET_OK)
    status = save_layers(job, &job->offload_layers, "parallel.offload_layers", MT_SAVING_HOST, error, setup);
  return status;
}

static motet_status read_pictures(const mt_cluster_job *job, motet_error *error,
                                  const mt_architecture *architecture, mt_picture *picture, int32_t *count) {
  const char *text = job->video != NULL ? job->video : job->images;
  const char *key = job->video != NULL ? "workload.video" : "workload.images";
  *picture = architecture->usual_picture;
  *count = architecture->reads_pictures && !architecture->decodes_text ? 1 : 0;
  if (text == NULL || strcmp(text, "0") == 0) return MOTET_OK;
  int numbers[3], end = 0;
  if (sscanf(text, "%9dx%9dx%9d%n", &numbers[0], &numbers[1], &numbers[2], &end) != 3 || text[end] != '\0' ||
      numbers[0] < 1 || numbers[0] > PICTURES_MAX || numbers[1] < 1 || numbers[2] < 1)
    return refuse(job, key, error,
                  mt_error_set(error, MOTET_ERROR_PARSE,
                               "%s is '%.60s', and must be three whole numbers with an x between, as in 2x448x448",
                               key, text));
  *count = job->video != NULL ? 1 : numbers[0];
  *picture = (mt_picture){job->video != NULL ? numbers[0] : 1, numbers[1], numbers[2]};
  return MOTET_OK;
}

/* A microbatch of equal samples, each with its own pictures. */
static motet_status measure_alike(mt_arena *arena, const mt_cluster_job *job, motet_error *error,
                                  mt_cluster_setup *setup) {
  const mt_architecture *architecture = setup->architecture;
  mt_picture picture;
  int32_t each, samples = (int32_t)job->samples;
  motet_status status = read_pictures(job, error, architecture, &picture, &each);
  if (status != MOTET_OK) return status;
  if ((int64_t)samples * each > PICTURES_MAX)
    return refuse(job, "workload.samples", error,
                  mt_error_set(error, MOTET_ERROR_LIMIT, "more than %d pictures in a microbatch", PICTURES_MAX));
  bool lengths = architecture->decodes_text || job->tokens >= 0;
  int64_t tokens = job->tokens >= 0 ? (int64_t)job->tokens : architecture->usual_tokens;
  int32_t segment_count = !lengths ? 0 : architecture->decodes_text ? samples : samples * each;
  int64_t *segments = MT_ARENA_NEW(arena, int64_t, segment_count);
  mt_picture *pictures = MT_ARENA_NEW(arena, mt_picture, samples * each);
  if (segments == NULL || pictures == NULL)
    return mt_error_memory(error, (unsigned)segment_count * sizeof *segments, "a microbatch's shape");
  for (int32_t i = 0; i < segment_count; i++) segments[i] = tokens;
  for (int32_t i = 0; i < samples * each; i++) pictures[i] = picture;
  const mt_shape shape = {
      .segments = segments, .segment_count = segment_count, .pictures = pictures, .picture_count = samples * each};
  setup->extents_count = 1;
  setup->extents = MT_ARENA_NEW(arena, double, MT_EXTENTS);
  if (setup->extents == NULL) return mt_error_memory(error, MT_EXTENTS * sizeof(double), "a microbatch's shape");
  status = mt_architecture_measure(architecture, &shape, error, setup->extents);
  return status == MOTET_OK ? MOTET_OK : refuse(job, "workload", error, status);
}

/* The trace's samples in its order, so many a microbatch. */
static motet_status measure_trace(mt_arena *arena, const mt_cluster_job *job, motet_error *error,
                                  mt_cluster_setup *setup) {
  mt_workload_samples data;
  mt_workload_room room;
  int32_t each = (int32_t)job->samples;
  if (job->tokens >= 0 || job->images != NULL || job->video != NULL)
    return refuse(
        job, "workload.trace", error,
        mt_error_set(error, MOTET_ERROR_PARSE,
                     "workload.trace says what each sample has; tokens, images and video beside it do not"));
  motet_status status = mt_workload_samples_read(arena, job->trace, error, &data);
  if (status == MOTET_OK) status = mt_workload_samples_room(arena, &data, each, error, &room);
  if (status != MOTET_OK) return refuse(job, "workload.trace", error, status);
  if ((int64_t)setup->microbatches * each != data.count)
    return refuse(job, "workload.trace", error,
                  mt_error_set(error, MOTET_ERROR_PARSE,
                               "%s has %d samples, and must have those of a replica's %d microbatches of %d",
                               job->trace, data.count, setup->microbatches, each));
  setup->extents_count = setup->microbatches;
  setup->extents = MT_ARENA_NEW(arena, double, (int64_t)setup->microbatches *MT_EXTENTS);
  int32_t *which = MT_ARENA_NEW(arena, int32_t, each);
  if (setup->extents == NULL || which == NULL)
    return mt_error_memory(error, (unsigned)setup->microbatches * MT_EXTENTS * sizeof(double), "microbatches");
  for (int32_t m = 0; m < setup->microbatches && status == MOTET_OK; m++) {
    for (int32_t i = 0; i < each; i++) which[i] = m * each + i;
    status = mt_workload_samples_measure(setup->architecture, &data, which, each, &room, error,
                                         setup->extents + (int64_t)m * MT_EXTENTS);
  }
  return status == MOTET_OK ? MOTET_OK : refuse(job, "workload.trace", error, status);
}

static motet_status read_split(mt_arena *arena, const mt_cluster_job *job, motet_error *error,
                               mt_cluster_setup *setup) {
  if (job->split.count <= 0) return MOTET_OK;
  setup->split_count = job->split.count;
  setup->split = MT_ARENA_NEW(arena, int32_t, job->split.count);
  if (setup->split == NULL) return mt_error_memory(error, (unsigned)job->split.count * sizeof(int32_t), "a split");
  for (int32_t i = 0; i < job->split.count; i++) {
    char *end;
    long value = strtol(job->split.values[i], &end, 10);
    if (end == job->split.values[i] || *end != '\0' || value < 0 || value > 1000000)
      return refuse(job, "parallel.split", error,
                    mt_error_set(error, MOTET_ERROR_PARSE, "parallel.split: '%.40s' is not a number of layers",
                                 job->split.values[i]));
    setup->split[i] = (int32_t)value;
  }
  return MOTET_OK;
}

static motet_status count_microbatches(const mt_cluster_job *job, motet_error *error, mt_cluster_setup *setup) {
  double each = job->samples * job->data;
  setup->microbatches = job->microbatches > 0 ? (int32_t)job->microbatches : 1;
  if (job->global_batch == 0) return MOTET_OK;
  double microbatches = job->global_batch / each;
  if (job->microbatches > 0 && job->microbatches != microbatches)
    return refuse(
        job, "train.global_batch", error,
        mt_error_set(error, MOTET_ERROR_PARSE,
                     "train.global_batch is %.0f, and must be parallel.data (%.0f) x workload.samples (%.0f) x "
                     "train.microbatches (%.0f), %.0f samples",
                     job->global_batch, job->data, job->samples, job->microbatches, each * job->microbatches));
  if (microbatches != floor(microbatches) || microbatches > 100000)
    return refuse(
        job, "train.global_batch", error,
        mt_error_set(error, MOTET_ERROR_PARSE,
                     "train.global_batch is %.0f, and must be parallel.data (%.0f) x workload.samples (%.0f) x "
                     "a whole number of microbatches, at most 100000",
                     job->global_batch, job->data, job->samples));
  setup->microbatches = (int32_t)microbatches;
  return MOTET_OK;
}

motet_status mt_cluster_job_open(mt_arena *arena, const mt_cluster_job *job, motet_error *error,
                                 mt_cluster_setup *setup) {
  *setup = (mt_cluster_setup){.job = job};
  motet_status status = count_microbatches(job, error, setup);
  if (status == MOTET_OK) status = read_model(arena, job, error, setup);
  if (status == MOTET_OK) status = choose_schedule(arena, job, error, setup);
  if (status == MOTET_OK) status = read_cluster(job, error, &setup->cluster);
  if (status == MOTET_OK) status = choose_degrees(arena, job, error, setup);
  if (status == MOTET_OK) status = (job->trace != NULL ? measure_trace : measure_alike)(arena, job, error, setup);
  if (status == MOTET_OK) status = read_split(arena, job, error, setup);
  if (status != MOTET_OK) return status;
  setup->forecast = (mt_forecast){.architecture = setup->architecture,
                                  .cluster = &setup->cluster,
                                  .parallel = setup->parallel,
                                  .savings = setup->savings,
                                  .fit = mt_collective_fit_usual(),
                                  .microbatches = setup->microbatches};
  return MOTET_OK;
}

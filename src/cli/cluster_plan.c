#include "cli/cluster_plan.h"

#include "base/text.h"
#include "cli/present.h"
#include "order/cluster_plan.h"
#include "report/cluster_flops.h"
#include "report/words.h"

/* How the cells lie: encoders may divide theirs in another way. */
static const mt_parallel *trunk_of(const mt_cluster_setup *setup) {
  return &setup->parallel[mt_architecture_trunk(setup->architecture)];
}

static int32_t devices_of(const mt_cluster_setup *setup) {
  const mt_parallel *parallel = trunk_of(setup);
  return mt_parallel_cell(parallel) * parallel->data * parallel->pipeline;
}

/* What the replica's microbatches have of an extent together. */
static double total(const mt_cluster_setup *setup, mt_extent extent) {
  double sum = 0;
  for (int32_t m = 0; m < setup->microbatches; m++) sum += mt_cluster_extents(setup, m)[extent];
  return sum;
}

/* Tokens of text rows a second over all replicas, which have as many as the one that is planned; 0: a generator. */
static double throughput(const mt_cluster_setup *setup, const mt_plan *plan) {
  double seconds = plan->simulation->makespan;
  if (!setup->architecture->decodes_text || !(seconds > 0)) return 0;
  return total(setup, MT_ROWS_TEXT) * trunk_of(setup)->data / seconds;
}

/* What the document says beyond that of a schedule's plan. A rank is a cell of devices. */
static json_t *job_members(const mt_cluster_setup *setup, const mt_cluster_plan *made) {
  const mt_parallel *parallel = trunk_of(setup);
  json_t *members = json_object(), *cluster = json_object();
  double tokens = throughput(setup, &made->plan);
  json_object_set_new(cluster, "device", json_string(setup->cluster.device.name));
  json_object_set_new(cluster, "devices", json_integer(devices_of(setup)));
  json_object_set_new(cluster, "tokens_per_second", tokens > 0 ? json_real(tokens) : json_null());
  json_object_set_new(cluster, "tensor", json_integer(parallel->tensor));
  json_object_set_new(cluster, "ulysses", json_integer(parallel->ulysses));
  json_object_set_new(cluster, "ring", json_integer(parallel->ring));
  json_object_set_new(cluster, "data", json_integer(parallel->data));
  json_object_set_new(cluster, "pipeline", json_integer(parallel->pipeline));
  json_object_set_new(cluster, "expert", json_integer(parallel->expert));
  json_object_set_new(cluster, "memory_bytes", json_real(setup->cluster.device.memory_bytes));
  json_object_set_new(cluster, "host_bytes", json_real(made->host_bytes));
  json_object_set_new(members, "cluster", cluster);
  return members;
}

static void put_cluster(const mt_cluster_setup *setup, mt_text *out) {
  const mt_parallel *parallel = trunk_of(setup);
  const struct {
    const char *name;
    int32_t degree;
  } degrees[] = {{"tensor", parallel->tensor}, {"ulysses", parallel->ulysses},   {"ring", parallel->ring},
                 {"data", parallel->data},     {"pipeline", parallel->pipeline}, {"expert", parallel->expert}};
  int32_t devices = devices_of(setup);
  mt_text_append(out, "%d x %s:", devices, setup->cluster.device.name);
  for (size_t d = 0; d < sizeof degrees / sizeof *degrees; d++)
    if (degrees[d].degree > 1 || d == 4) mt_text_append(out, " %s %d,", degrees[d].name, degrees[d].degree);
  mt_text_append(out, " of which one replica is shown; a rank is %s",
                 mt_counted(mt_parallel_cell(parallel), "device").text);
  if (setup->job->devices > devices)
    mt_text_append(out, "; %.0f of the job's %.0f devices have no part", setup->job->devices - devices,
                   setup->job->devices);
}

/* Nothing for a generator. */
static void put_throughput(const mt_cluster_setup *setup, const mt_plan *plan, mt_text *out) {
  double tokens = throughput(setup, plan);
  if (!(tokens > 0)) return;
  mt_words_number(out, tokens, 4);
  mt_text_append(out, " tokens/s, ");
  mt_words_number(out, tokens / devices_of(setup), 4);
  mt_text_append(out, " a device; a microbatch has ");
  mt_words_number(out, total(setup, MT_ROWS_TEXT) / setup->microbatches, 6);
  mt_text_append(out, " tokens");
  double features = total(setup, MT_ROWS_FEATURES) / setup->microbatches;
  if (features > 0) {
    mt_text_append(out, ", ");
    mt_words_number(out, features, 6);
    mt_text_append(out, " of them picture features");
  }
  if (setup->extents_count > 1) mt_text_append(out, " (mean)");
}

static int present(const mt_cluster_setup *setup, const mt_cluster_plan *made, const mt_job_plan_options *options) {
  mt_text cluster = {0}, rate = {0}, out = {0};
  put_cluster(setup, &cluster);
  put_throughput(setup, &made->plan, &rate);
  if (!cluster.failed) mt_text_append(&out, "cluster     %s\n", cluster.data);
  if (rate.length > 0 && !rate.failed) mt_text_append(&out, "throughput  %s\n", rate.data);
  if (made->host_bytes > 0) mt_text_append(&out, "host memory %.1f GB a device at most\n", made->host_bytes / 1e9);
  mt_page_fact facts[] = {{"cluster", cluster.data}, {"throughput", rate.data}};
  mt_job_plan_options shown = *options;
  shown.facts = facts;
  shown.fact_count = rate.length > 0 ? 2 : 1;
  int code = cluster.failed || rate.failed || out.failed ? MT_EXIT_FAILURE
             : options->json                             ? MT_EXIT_DONE
                                                         : mt_cli_print(out.data);
  if (code == MT_EXIT_DONE)
    code = mt_job_plan_present(&made->plan, made->schedule, &shown, job_members(setup, made));
  mt_text_free(&cluster);
  mt_text_free(&rate);
  mt_text_free(&out);
  return code;
}

int mt_cluster_plan_present(const char *path, int override_count, char *const *overrides,
                            const mt_job_plan_options *options) {
  motet_error error;
  motet_error_clear(&error);
  mt_cluster_job job;
  mt_cluster_setup setup;
  mt_cluster_plan made = {0};
  mt_arena *arena = mt_arena_create();
  motet_status status = arena != NULL ? mt_cluster_job_read(arena, path, override_count, overrides, &error, &job)
                                      : mt_error_memory(&error, sizeof(void *), "a plan");
  if (status == MOTET_OK) status = mt_cluster_job_open(arena, &job, &error, &setup);
  if (status == MOTET_OK) status = mt_cluster_plan_make(arena, &setup, &error, &made);
  mt_flops *flops;
  if (status == MOTET_OK) status = mt_cluster_flops_make(arena, &setup, made.derivation, &error, &flops);
  if (status == MOTET_OK) made.plan.flops = flops;
  int code = status == MOTET_OK ? present(&setup, &made, options) : mt_cli_fail(&error, options->json);
  mt_plan_free(&made.plan);
  mt_arena_destroy(arena);
  return code;
}

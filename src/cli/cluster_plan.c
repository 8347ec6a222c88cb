#include "cli/cluster_plan.h"

#include "base/text.h"
#include "cli/present.h"
#include "order/cluster_plan.h"

/* How the cells lie: encoders may divide theirs in another way. */
static const mt_parallel *trunk_of(const mt_cluster_setup *setup) {
  return &setup->parallel[mt_architecture_trunk(setup->architecture)];
}

/* What the document says beyond that of a schedule's plan. A rank is a cell of devices. */
static json_t *job_members(const mt_cluster_setup *setup) {
  const mt_parallel *parallel = trunk_of(setup);
  json_t *members = json_object(), *cluster = json_object();
  json_object_set_new(cluster, "device", json_string(setup->cluster.device.name));
  json_object_set_new(cluster, "devices",
                      json_integer((json_int_t)mt_parallel_cell(parallel) * parallel->data * parallel->pipeline));
  json_object_set_new(cluster, "tensor", json_integer(parallel->tensor));
  json_object_set_new(cluster, "ulysses", json_integer(parallel->ulysses));
  json_object_set_new(cluster, "ring", json_integer(parallel->ring));
  json_object_set_new(cluster, "data", json_integer(parallel->data));
  json_object_set_new(cluster, "pipeline", json_integer(parallel->pipeline));
  json_object_set_new(cluster, "expert", json_integer(parallel->expert));
  json_object_set_new(cluster, "memory_bytes", json_real(setup->cluster.device.memory_bytes));
  json_object_set_new(members, "cluster", cluster);
  return members;
}

/* What the numbers below are about. */
static int print_cluster(const mt_cluster_setup *setup) {
  const mt_parallel *parallel = trunk_of(setup);
  const struct {
    const char *name;
    int32_t degree;
  } degrees[] = {{"tensor", parallel->tensor}, {"ulysses", parallel->ulysses},   {"ring", parallel->ring},
                 {"data", parallel->data},     {"pipeline", parallel->pipeline}, {"expert", parallel->expert}};
  int32_t cell = mt_parallel_cell(parallel);
  mt_text out = {0};
  mt_text_append(&out, "cluster     %d x %s:", cell * parallel->data * parallel->pipeline,
                 setup->cluster.device.name);
  for (size_t d = 0; d < sizeof degrees / sizeof *degrees; d++)
    if (degrees[d].degree > 1 || d == 4) mt_text_append(&out, " %s %d,", degrees[d].name, degrees[d].degree);
  mt_text_append(&out, " of which one replica is shown; a rank is %s\n", mt_counted(cell, "device").text);
  int code = out.failed ? MT_EXIT_FAILURE : mt_cli_print(out.data);
  mt_text_free(&out);
  return code;
}

static int present(const mt_cluster_setup *setup, const mt_cluster_plan *made, const mt_job_plan_options *options) {
  int code = options->json ? MT_EXIT_DONE : print_cluster(setup);
  if (code != MT_EXIT_DONE) return code;
  return mt_job_plan_present(&made->plan, made->schedule, options, job_members(setup));
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
  int code = status == MOTET_OK ? present(&setup, &made, options) : mt_cli_fail(&error, options->json);
  mt_plan_free(&made.plan);
  mt_arena_destroy(arena);
  return code;
}

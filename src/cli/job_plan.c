#include "cli/job_plan.h"

#include "cli/present.h"

int mt_job_plan_present(const mt_plan *plan, const char *schedule, const mt_job_plan_options *options,
                        json_t *extra) {
  mt_presentation presentation = {.report = {.program = plan->program,
                                             .simulation = plan->simulation,
                                             .verification = &plan->verification,
                                             .schedule = schedule,
                                             .flops = plan->flops,
                                             .bound = plan->bound},
                                  .program_path = options->program_path,
                                  .trace_path = options->trace_path,
                                  .trace_format = options->trace_format,
                                  .page_path = options->page_path,
                                  .facts = options->facts,
                                  .fact_count = options->fact_count,
                                  .costs = &plan->costs,
                                  .json = options->json,
                                  .summary = options->summary,
                                  .extra = extra};
  int code = mt_present(&presentation);
  json_decref(extra);
  return code;
}

#ifdef MOTET_WITH_RUNTIME

#include "train/setup.h"

/* Seconds without a profile are not to be taken for this machine's. */
static int print_costs(const mt_job *job) {
  if (job->profile != NULL) return MT_EXIT_DONE;
  return mt_cli_print(
      "costs       without a profile: 50 GFLOP/s a rank, right in ratios alone ('motet profile' measures)\n");
}

int mt_job_plan(const char *path, int override_count, char *const *overrides, const mt_job_plan_options *options) {
  motet_error error;
  motet_error_clear(&error);
  mt_job *job = NULL;
  mt_setup setup = {0};
  mt_plan plan = {0};
  mt_arena *arena = mt_arena_create();
  motet_status status = arena != NULL ? mt_job_read(path, override_count, overrides, &error, &job)
                                      : mt_error_memory(&error, sizeof(void *), "a plan");
  mt_job view = {0}; /* the first phase's, where there are several */
  int64_t begin, end;
  if (status == MOTET_OK) mt_job_phase_at(job, 0, &view, &begin, &end);
  if (status == MOTET_OK) status = mt_setup_open(&view, &error, &setup);
  if (status == MOTET_OK) status = mt_setup_plan(&setup, arena, &error, &plan);
  int code = status != MOTET_OK ? mt_cli_fail(&error, options->json)
             : options->json    ? MT_EXIT_DONE
                                : print_costs(&view);
  if (code == MT_EXIT_DONE) code = mt_job_plan_present(&plan, NULL, options, NULL);
  mt_plan_free(&plan);
  mt_setup_close(&setup);
  mt_job_destroy(job);
  mt_arena_destroy(arena);
  return code;
}

#else

#include "base/error.h"

int mt_job_plan(const char *path, int override_count, char *const *overrides, const mt_job_plan_options *options) {
  (void)override_count;
  (void)overrides;
  motet_error error;
  mt_error_set(&error, MOTET_ERROR_UNSUPPORTED,
               "%s is a job, and this motet was built without the training runtime", path);
  return mt_cli_fail(&error, options->json);
}

#endif

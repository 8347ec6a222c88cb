#include "base/text.h"
#include "cli/cluster_plan.h"
#include "cli/commands.h"
#include "cli/job_plan.h"
#include "cli/present.h"
#include "cli/search.h"
#include "cli/trace_files.h"
#include "cost/unit.h"
#include "order/cluster_job.h"
#include "order/unit_plan.h"

#include <string.h>

typedef struct plan_options {
  const char *schedule, *layout, *unit, *trainable, *encode, *split, *output, *csv, *trace, *trace_format, *report,
      *job;
  int64_t ranks, microbatches, replicas, bytes, memory_cap;
  double alpha, beta;
  double time_limit;
  bool json, summary, search, hta;
} plan_options;

static const mt_option options[] = {
    {"schedule", MT_OPTION_TEXT, offsetof(plan_options, schedule), "TEXT",
     "as in '<vision: transpose, llm: 1f1b>'"},
    {"layout", MT_OPTION_TEXT, offsetof(plan_options, layout), "TEXT",
     "Megatron-LM pipeline layout in place of a schedule, as in 'Et*3|(tt|)*29,m|L'; --unit gives times of one "
     "layer"},
    {"unit", MT_OPTION_TEXT, offsetof(plan_options, unit), "TEXT",
     "times per region, as in 'vision: f=1; llm: f=1, b=2'; x and w are the backward's input and weight gradients"},
    {"ranks", MT_OPTION_COUNT, offsetof(plan_options, ranks), "P", "ranks of one pipeline"},
    {"microbatches", MT_OPTION_COUNT, offsetof(plan_options, microbatches), "M", "microbatches of one pipeline"},
    {"replicas", MT_OPTION_COUNT, offsetof(plan_options, replicas), "D", "data-parallel pipelines (1)"},
    {"trainable", MT_OPTION_TEXT, offsetof(plan_options, trainable), "NAMES",
     "regions that train, separated by commas (those with backward times)"},
    {"encode", MT_OPTION_TEXT, offsetof(plan_options, encode), "TIMES",
     "forward times of the transposed or inline regions, repeated over the microbatches; 0: no data there"},
    {"split", MT_OPTION_TEXT, offsetof(plan_options, split), "COUNTS",
     "layers of each stage of the Sharded regions, separated by commas (even)"},
    {"alpha", MT_OPTION_NUMBER, offsetof(plan_options, alpha), "SECONDS", "latency of a transfer (0)"},
    {"beta", MT_OPTION_POSITIVE, offsetof(plan_options, beta), "BYTES/S", "bytes per second of a link (unlimited)"},
    {"bytes", MT_OPTION_INTEGER, offsetof(plan_options, bytes), "BYTES",
     "size of an activation and of its gradient (0)"},
    {"memory-cap", MT_OPTION_SIZE, offsetof(plan_options, memory_cap), "BYTES", "refuse a rank that needs more"},
    {"output", MT_OPTION_TEXT, offsetof(plan_options, output), "FILE", "write the program as JSON (short: -o)"},
    {"csv", MT_OPTION_TEXT, offsetof(plan_options, csv), "FILE",
     "write the order as PyTorch pipelining CSV, for schedules of Sharded regions alone"},
    {"trace", MT_OPTION_TEXT, offsetof(plan_options, trace), "FILE", "write the timeline for other tools"},
    {"trace-format", MT_OPTION_TEXT, offsetof(plan_options, trace_format), "chrome|hta|chakra",
     "form of --trace: one file for Perfetto (chrome), a folder for Holistic Trace Analysis, FILE.RANK.et files"},
    {"hta", MT_OPTION_FLAG, offsetof(plan_options, hta), NULL, "short for --trace-format hta"},
    {"report", MT_OPTION_TEXT, offsetof(plan_options, report), "FILE",
     "write the report's page (see 'motet help report')"},
    {"search", MT_OPTION_FLAG, offsetof(plan_options, search), NULL,
     "find degrees, schedule, layers and savings for the job's model, cluster and workload"},
    {"job", MT_OPTION_TEXT, offsetof(plan_options, job), "FILE",
     "write what --search finds as a job that 'motet plan' takes"},
    {"time-limit", MT_OPTION_POSITIVE, offsetof(plan_options, time_limit), "SECONDS",
     "end a search after so long with the best so far (none)"},
    {"summary", MT_OPTION_FLAG, offsetof(plan_options, summary), NULL, "leave out the timeline"},
    {"json", MT_OPTION_FLAG, offsetof(plan_options, json), NULL, "print one JSON document"},
};

/* Whole numbers of --split, from the same reader as --encode. */
static motet_status read_split(mt_arena *arena, const char *text, motet_error *error, motet_plan_options *plan) {
  double *numbers;
  motet_status status = mt_unit_numbers(arena, text, "--split", error, &numbers, &plan->split_count);
  if (status != MOTET_OK) return status;
  int32_t *split = MT_ARENA_NEW(arena, int32_t, plan->split_count);
  if (split == NULL) return mt_error_memory(error, (unsigned long long)plan->split_count * 4, "--split");
  for (int32_t i = 0; i < plan->split_count; i++) {
    if (numbers[i] > 1e6 || numbers[i] != (int32_t)numbers[i])
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--split: %g is not a number of layers", numbers[i]);
    split[i] = (int32_t)numbers[i];
  }
  plan->split = split;
  return MOTET_OK;
}

static motet_status read_plan(mt_arena *arena, const plan_options *chosen, motet_error *error,
                              motet_plan_options *plan) {
  bool work = chosen->schedule != NULL || chosen->layout != NULL;
  if (!work || chosen->unit == NULL || chosen->ranks == 0 || chosen->microbatches == 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "plan takes a job file, or --schedule, --unit, --ranks and --microbatches; missing: %s",
                        !work                  ? "--schedule"
                        : chosen->unit == NULL ? "--unit"
                        : chosen->ranks == 0   ? "--ranks"
                                               : "--microbatches");
  *plan = (motet_plan_options){.schedule = chosen->schedule,
                               .layout = chosen->layout,
                               .unit = chosen->unit,
                               .ranks = (int32_t)chosen->ranks,
                               .microbatches = (int32_t)chosen->microbatches,
                               .replicas = (int32_t)chosen->replicas,
                               .trainable = chosen->trainable,
                               .alpha_seconds = chosen->alpha,
                               .beta_bytes_per_second = chosen->beta,
                               .bytes = chosen->bytes,
                               .memory_cap_bytes = chosen->memory_cap};
  double *encode;
  motet_status status = MOTET_OK;
  if (chosen->encode != NULL) {
    status = mt_unit_numbers(arena, chosen->encode, "--encode", error, &encode, &plan->encode_count);
    if (status == MOTET_OK) plan->encode = encode;
  }
  if (status == MOTET_OK && chosen->split != NULL) status = read_split(arena, chosen->split, error, plan);
  return status;
}

static int run_units(const plan_options *chosen) {
  motet_error error;
  motet_error_clear(&error);
  mt_arena *arena = mt_arena_create();
  motet_plan_options request;
  motet_plan *plan = NULL;
  motet_status status = arena != NULL ? read_plan(arena, chosen, &error, &request)
                                      : mt_error_memory(&error, sizeof(void *), "a plan");
  if (status == MOTET_OK) status = motet_plan_create(&request, &error, &plan);
  int code;
  if (status == MOTET_OK) {
    const mt_plan *inner = mt_unit_plan_inner(plan);
    mt_presentation presentation = {.report = {.program = inner->program,
                                               .simulation = inner->simulation,
                                               .verification = &inner->verification,
                                               .schedule = motet_plan_get(plan)->schedule,
                                               .bound = inner->bound},
                                    .program_path = chosen->output,
                                    .csv_path = chosen->csv,
                                    .trace_path = chosen->trace,
                                    .trace_format = chosen->trace_format,
                                    .page_path = chosen->report,
                                    .costs = &inner->costs,
                                    .json = chosen->json,
                                    .summary = chosen->summary};
    code = mt_present(&presentation);
  } else {
    code = mt_cli_fail(&error, chosen->json);
  }
  motet_plan_destroy(plan);
  mt_arena_destroy(arena);
  return code;
}

/* Options of one manner of planning, given with another. */
static void check_manner(const mt_command *command, const plan_options *chosen, mt_options_given given, bool job,
                         motet_error *error) {
  static const struct {
    const char *names[8];
    const char *reason;
  } unit_options[] = {
      {{"schedule", "layout"}, "is for plans on unit costs; a job has the key schedule"},
      {{"unit"}, "is for plans on unit costs; a job has the key profile"},
      {{"ranks"}, "is for plans on unit costs; a job has the key parallel.pipeline"},
      {{"microbatches"}, "is for plans on unit costs; a job has the key train.microbatches"},
      {{"replicas"}, "is for plans on unit costs; a job has the key parallel.data"},
      {{"trainable"}, "is for plans on unit costs; a job has the key trainable"},
      {{"split"}, "is for plans on unit costs; a job has the key parallel.split"},
      {{"encode", "alpha", "beta", "bytes", "memory-cap", "csv"}, "is for plans on unit costs"},
  };
  static const char *const search[] = {"search", NULL}, *const time_limit[] = {"time-limit", NULL},
                           *const found[] = {"job", NULL};
  for (size_t i = 0; job && i < sizeof unit_options / sizeof *unit_options; i++)
    mt_cli_refuse_given(command, given, unit_options[i].names, unit_options[i].reason, error);
  if (!job) mt_cli_refuse_given(command, given, search, "takes a job file: motet plan JOB.yaml --search", error);
  if (chosen->search) return;
  mt_cli_refuse_given(command, given, time_limit, "is for --search", error);
  mt_cli_refuse_given(command, given, found, "is for --search, whose plan it writes as a job", error);
}

static int run(const mt_command *command, int argc, char **argv) {
  plan_options chosen = {0};
  motet_error error;
  motet_error_clear(&error);
  mt_options_given given;
  int words = mt_cli_parse(command, argc, argv, &chosen, &given, &error);
  if (words >= 0) check_manner(command, &chosen, given, words > 0, &error);
  if (error.status == MOTET_OK) mt_trace_format_choose(chosen.trace, chosen.hta, &chosen.trace_format, &error);
  if (error.status != MOTET_OK) return mt_cli_usage(command, &error, chosen.json);
  if (words == 0) return run_units(&chosen);
  mt_job_plan_options how = {.program_path = chosen.output,
                             .trace_path = chosen.trace,
                             .trace_format = chosen.trace_format,
                             .page_path = chosen.report,
                             .job_path = chosen.job,
                             .json = chosen.json,
                             .summary = chosen.summary};
  if (chosen.search) return mt_search_plan_job(argv[0], words - 1, argv + 1, chosen.time_limit, &how);
  if (mt_cluster_job_is(argv[0], words - 1, argv + 1))
    return mt_cluster_plan_present(argv[0], words - 1, argv + 1, &how);
  return mt_job_plan(argv[0], words - 1, argv + 1, &how);
}

const mt_command mt_command_plan = {
    .name = "plan",
    .arguments =
        "--schedule TEXT --unit TEXT --ranks P --microbatches M [options] | --layout TEXT --unit TEXT --ranks P "
        "--microbatches M [options] | JOB.yaml [key=value ...] [--search] [options]",
    .summary = "derive, order, prove and simulate a schedule",
    .details =
        "A schedule says for each region, one or several modules of the model, how it lies on the ranks of a\n"
        "pipeline. Sharded (1f1b, zb1p, zbv, ...): each rank has some of its layers, the usual pipeline.\n"
        "Transposed (transpose): every rank has all of its layers, and each microbatch is computed by one of\n"
        "them where that would idle. inline: it rides on a neighbour's first or last stage. docs/algebra.md\n"
        "has all of them.\n\n"
        "On unit costs: f and b are the forward and backward times of a whole rank's share for a Sharded\n"
        "region, and per microbatch for a transposed or inline one.\n\n"
        "For a job: the plan of its first step on measured costs (see 'motet help profile'); 'motet help job'\n"
        "lists its keys. For one with the key `cluster`: a step of one replica on forecasts for that cluster, a\n"
        "rank being a cell, the devices that tensor and context parallelism join (docs/formats/cluster-job.md).\n"
        "--search finds the best plan for its model, cluster and workload (docs/search.md).",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};

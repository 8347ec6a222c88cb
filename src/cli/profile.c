#include "train/profile.h"

#include "base/text.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "train/compare.h"

#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct profile_options {
  const char *output, *calibrate;
  bool json;
} profile_options;

static const mt_option options[] = {
    {"output", MT_OPTION_TEXT, offsetof(profile_options, output), "FILE",
     "write the profile there (profile.json; short: -o)"},
    {"calibrate", MT_OPTION_TEXT, offsetof(profile_options, calibrate), "RUN",
     "measure nothing: scale the profile that RUN was planned with by what its steps took"},
    {"json", MT_OPTION_FLAG, offsetof(profile_options, json), NULL, "print one JSON document, errors too"},
};

/* Says what was written: a document, or @p line. */
static motet_status tell(const profile_options *chosen, json_t *document, const char *line, motet_error *error) {
  char *dump = chosen->json ? json_dumps(document, JSON_INDENT(1)) : NULL;
  mt_text text = {0};
  mt_text_append(&text, "%s\n", chosen->json && dump != NULL ? dump : line);
  free(dump);
  json_decref(document);
  bool told = !text.failed && mt_cli_print(text.data) == MT_EXIT_DONE;
  mt_text_free(&text);
  return told ? MOTET_OK : mt_error_set(error, MOTET_ERROR_FAILED, "what was written where cannot be printed");
}

static motet_status write_costs(const mt_layer_costs *costs, const char *path, motet_error *error) {
  motet_status status = mt_layer_costs_write(costs, path, error);
  return status == MOTET_ERROR_IO ? (error->status = MOTET_ERROR_FAILED) : status; /* not unreadable input */
}

static motet_status profile(const mt_job *job, mt_transport *transport, mt_board *board,
                            const volatile int *stopped, void *context, motet_error *error) {
  (void)board, (void)stopped;
  const profile_options *chosen = context;
  mt_setup setup;
  mt_layer_costs costs;
  motet_status status = mt_setup_open(job, error, &setup);
  if (status == MOTET_OK) status = mt_profile_measure(&setup, transport, error, &costs);
  if (status == MOTET_OK && transport->rank == 0) {
    status = write_costs(&costs, chosen->output, error);
    mt_text line = {0};
    mt_text_append(&line, "wrote %s, measured with %s at once", chosen->output,
                   mt_counted(transport->ranks, "rank").text);
    if (status == MOTET_OK)
      status = tell(chosen, json_pack("{s:s, s:i}", "profile", chosen->output, "ranks", (int)transport->ranks),
                    line.data, error);
    mt_text_free(&line);
  }
  mt_setup_close(&setup);
  return status;
}

/** The profile that a run was planned with, scaled. */
static motet_status calibrate(const profile_options *chosen, motet_error *error) {
  mt_arena *arena = mt_arena_create();
  const char *path = arena != NULL ? mt_arena_format(arena, "%s/job.yaml", chosen->calibrate) : NULL;
  if (path == NULL) {
    mt_arena_destroy(arena);
    return mt_error_memory(error, strlen(chosen->calibrate), "a path");
  }
  mt_job *job = NULL;
  mt_comparison comparison;
  mt_layer_costs costs;
  motet_status status = mt_job_read(path, 0, NULL, error, &job);
  if (status == MOTET_OK && job->profile == NULL) {
    status = mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "the run was planned without a profile; `motet profile JOB.yaml` measures one");
    mt_error_place(error, path, 0);
    mt_error_key(error, "profile");
  }
  if (status == MOTET_OK) status = mt_comparison_read(chosen->calibrate, arena, error, &comparison);
  if (status == MOTET_OK) status = mt_layer_costs_read(job->profile, error, &costs);
  if (status == MOTET_OK) {
    mt_comparison_calibrate(&comparison, &costs);
    status = write_costs(&costs, chosen->output, error);
  }
  mt_text line = {0};
  if (status == MOTET_OK) {
    mt_text_append(&line, "wrote %s: %s, scaled by the medians of %s of %s", chosen->output, job->profile,
                   mt_counted(comparison.steps, "step").text, chosen->calibrate);
    status = tell(chosen,
                  json_pack("{s:s, s:s, s:s, s:i}", "profile", chosen->output, "scaled", job->profile, "run",
                            chosen->calibrate, "steps", (int)comparison.steps),
                  line.data, error);
  }
  mt_text_free(&line);
  mt_job_destroy(job);
  mt_arena_destroy(arena);
  return status;
}

static int run(const mt_command *command, int argc, char **argv) {
  profile_options chosen = {.output = "profile.json"};
  motet_error error;
  motet_error_clear(&error);
  mt_options_given given;
  int words = mt_cli_parse(command, argc, argv, &chosen, &given, &error);
  if (words == 0 && chosen.calibrate != NULL)
    return calibrate(&chosen, &error) == MOTET_OK ? MT_EXIT_DONE : mt_cli_fail(&error, chosen.json);
  if (words == 0) mt_error_set(&error, MOTET_ERROR_ARGUMENT, "profile takes a job file");
  if (words > 0 && chosen.calibrate != NULL)
    words = -1, mt_error_set(&error, MOTET_ERROR_ARGUMENT, "--calibrate takes the job of its run, and no other");
  if (words <= 0) return mt_cli_usage(command, &error, chosen.json);
  mt_job *job;
  if (mt_job_read(argv[0], words - 1, argv + 1, &error, &job) != MOTET_OK) return mt_cli_fail(&error, chosen.json);
  job->profile = NULL; /* it is being made */
  char **arguments = calloc((size_t)words + 5, sizeof *arguments), *output = strdup(chosen.output);
  int code = MT_EXIT_FAILURE;
  if (arguments != NULL && output != NULL) {
    static char name[] = "profile", option[] = "-o", json[] = "--json";
    mt_launch_options how = {.body = profile, .context = &chosen, .json = chosen.json};
    arguments[0] = name;
    arguments[1] = option;
    arguments[2] = output;
    memcpy(arguments + 3, argv, (size_t)words * sizeof *arguments);
    if (chosen.json) arguments[words + 3] = json;
    code = mt_launch(job, arguments, &how);
  }
  free(output);
  free(arguments);
  mt_job_destroy(job);
  return code;
}

const mt_command mt_command_profile = {
    .name = "profile",
    .arguments = "JOB.yaml [key=value ...] [-o FILE] [--json] | --calibrate RUN [-o FILE] [--json]",
    .summary = "measure what layers, optimizer and messages cost here",
    .details = "Measures over the shapes of the job's first steps, on all of its ranks at once, and fits a linear "
               "model a\n"
               "layer kind. A job uses it with 'profile: FILE'. What steps pay beyond layers measured alone a run "
               "has\n"
               "measured: --calibrate scales by it.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};

#include "train/compare.h"

#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "report/run.h"

#include <stddef.h>
#include <stdio.h>

typedef struct compare_options {
  bool json;
} compare_options;

static const mt_option options[] = {
    {"json", MT_OPTION_FLAG, offsetof(compare_options, json), NULL, "print one JSON document"},
};

static bool occurs(const mt_comparison_pair *pair) { return pair->measured > 0 || pair->simulated > 0; }

static void print_json(const mt_comparison *comparison, mt_text *text) {
  mt_text_append(
      text,
      "{\n \"measured\": %.9g,\n \"simulated\": %.9g,\n \"difference\": %.6g,\n \"steps\": %d,\n \"classes\": [",
      comparison->makespan.measured, comparison->makespan.simulated, comparison->difference,
      (int)comparison->steps);
  const char *separator = "";
  for (int kind = 0; kind < MOTET_INSTRUCTION_KINDS; kind++) {
    const mt_comparison_pair *pair = &comparison->kinds[kind];
    if (!occurs(pair)) continue;
    mt_text_append(text, "%s{\"kind\": \"%s\", \"measured\": %.9g, \"simulated\": %.9g}", separator,
                   motet_instruction_name(kind), pair->measured, pair->simulated);
    separator = ", ";
  }
  mt_text_append(text, "],\n \"ranks\": [");
  for (int32_t rank = 0; rank < comparison->rank_count; rank++)
    mt_text_append(text, "%s{\"rank\": %d, \"measured\": %.9g, \"simulated\": %.9g}", rank > 0 ? ", " : "",
                   (int)rank, comparison->ranks[rank].measured, comparison->ranks[rank].simulated);
  mt_text_append(text, "]\n}\n");
}

static void print_row(mt_text *text, const char *name, const mt_comparison_pair *pair) {
  char difference[16] = "";
  if (pair->simulated >= 5e-7) /* what the column shows as more than zero */
    snprintf(difference, sizeof difference, "%+.1f%%", 100 * (pair->measured / pair->simulated - 1));
  mt_text_append(text, "  %-12s %12.6f %12.6f %11s\n", name, pair->measured, pair->simulated, difference);
}

static void print_table(const mt_comparison *comparison, mt_text *text) {
  mt_text_append(text, "seconds, medians of %s\n  %-12s %12s %12s %11s\n",
                 mt_counted(comparison->steps, "step").text, "", "measured", "simulated", "difference");
  print_row(text, "makespan", &comparison->makespan);
  for (int32_t rank = 0; rank < comparison->rank_count; rank++) {
    char name[32];
    snprintf(name, sizeof name, "rank %d busy", (int)rank);
    print_row(text, name, &comparison->ranks[rank]);
  }
  for (int kind = 0; kind < MOTET_INSTRUCTION_KINDS; kind++)
    if (occurs(&comparison->kinds[kind])) print_row(text, motet_instruction_name(kind), &comparison->kinds[kind]);
}

static int run(const mt_command *command, int argc, char **argv) {
  compare_options chosen = {0};
  motet_error error;
  motet_error_clear(&error);
  mt_options_given given;
  int words = mt_cli_parse(command, argc, argv, &chosen, &given, &error);
  if (words >= 0 && words != 1)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "compare takes the output directory of one run");
  if (error.status != MOTET_OK) return mt_cli_usage(command, &error, chosen.json);
  if (!mt_run_is(argv[0])) {
    mt_error_set(
        &error, MOTET_ERROR_IO,
        "%s is no directory that 'motet train' has written timelines into; the output_dir of a run belongs here",
        argv[0]);
    mt_error_place(&error, argv[0], 0);
    return mt_cli_fail(&error, chosen.json);
  }
  mt_arena *arena = mt_arena_create();
  mt_comparison comparison;
  mt_text text = {0};
  motet_status status = arena != NULL ? mt_comparison_read(argv[0], arena, &error, &comparison)
                                      : mt_error_memory(&error, sizeof comparison, "the comparison");
  if (status == MOTET_OK) {
    if (chosen.json)
      print_json(&comparison, &text);
    else
      print_table(&comparison, &text);
    if (text.failed) status = mt_error_memory(&error, text.length, "the comparison");
  }
  int code = status == MOTET_OK ? mt_cli_print(text.data) : mt_cli_fail(&error, chosen.json);
  mt_text_free(&text);
  mt_arena_destroy(arena);
  return code;
}

const mt_command mt_command_compare = {
    .name = "compare",
    .arguments = "RUN [--json]",
    .summary = "set a run's measured steps beside their simulation",
    .details =
        "RUN is the output_dir of a `motet train`. Prints medians over the steps, of more than six without the\n"
        "first three.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};

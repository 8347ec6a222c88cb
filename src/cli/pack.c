#include "motet/pack.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "pack/cost.h"
#include "workload/trace.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pack_options {
  const char *cost, *batch, *scope, *degrees, *planner;
  int64_t ranks, memory_tokens, ranks_per_node, group_budget, count, seed;
  double deadline_ms;
  bool compare, json;
} pack_options;

static const mt_option options[] = {
    {"ranks", MT_OPTION_COUNT, offsetof(pack_options, ranks), "N", "ranks to cut into groups"},
    {"cost", MT_OPTION_TEXT, offsetof(pack_options, cost), "FILE",
     "coefficients of a group's time (JSON; docs/pack.md tells which and has a file)"},
    {"memory-tokens", MT_OPTION_SIZE, offsetof(pack_options, memory_tokens), "N",
     "tokens that one rank's memory takes; a group of d ranks takes d times as many"},
    {"batch", MT_OPTION_TEXT, offsetof(pack_options, batch), "n|all|auto",
     "n sequences a microbatch, in file order; all: one microbatch, what finds no room is left over; auto: as many "
     "microbatches as it takes [all]"},
    {"scope", MT_OPTION_TEXT, offsetof(pack_options, scope), "microbatch|global",
     "a barrier behind every microbatch, or none [microbatch]"},
    {"degrees", MT_OPTION_TEXT, offsetof(pack_options, degrees), "SET",
     "sizes that groups may have: all | pow2 | divisors:28 | list:1,2,3 | usp:HEADS,RINGS [all]"},
    {"ranks-per-node", MT_OPTION_COUNT, offsetof(pack_options, ranks_per_node), "N",
     "groups lie inside of nodes where they can [8]"},
    {"group-budget", MT_OPTION_COUNT, offsetof(pack_options, group_budget), "N",
     "most distinct rank sets of two ranks or more [no limit]"},
    {"planner", MT_OPTION_TEXT, offsetof(pack_options, planner), "NAME",
     "best, or a simpler one to compare with: bfd-dp | static:16 | pow2-greedy | lpt [best]"},
    {"deadline-ms", MT_OPTION_POSITIVE, offsetof(pack_options, deadline_ms), "MS",
     "effort of the search; counted, so that it is the same everywhere [1, more beyond 512 sequences]"},
    {"count", MT_OPTION_COUNT, offsetof(pack_options, count), "N", "sequences drawn from a distribution [512]"},
    {"seed", MT_OPTION_INTEGER, offsetof(pack_options, seed), "N", "of a distribution [1]"},
    {"compare", MT_OPTION_FLAG, offsetof(pack_options, compare), NULL, "a table of all planners on the same input"},
    {"json", MT_OPTION_FLAG, offsetof(pack_options, json), NULL, "print one JSON document"},
};

/* One planner's run. Seconds are of the second of two equal calls: a packer's first call makes its memory. */
typedef struct outcome {
  motet_packer *packer;
  const motet_pack_plan *plan; /* NULL: refused, for the reason in error */
  motet_error error;
  double seconds;
} outcome;

static motet_status bad_option(motet_error *error, const char *name, const char *value, const char *right) {
  return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--%s: '%s'; %s belongs there", name, value, right);
}

static bool whole_number(const char *text, int32_t *value) {
  char *end;
  long number = strtol(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || number < 1 || number > INT32_MAX) return false;
  *value = (int32_t)number;
  return true;
}

static motet_status read_planner(const char *text, motet_error *error, motet_pack_options *how) {
  static const struct {
    const char *name;
    motet_pack_planner planner;
  } names[] = {{"best", MOTET_PACK_BEST},
               {"bfd-dp", MOTET_PACK_BFD_DP},
               {"pow2-greedy", MOTET_PACK_POW2_GREEDY},
               {"lpt", MOTET_PACK_LPT}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(text, names[i].name) == 0) {
      how->planner = names[i].planner;
      return MOTET_OK;
    }
  how->planner = MOTET_PACK_STATIC;
  if (strncmp(text, "static:", 7) == 0 && whole_number(text + 7, &how->static_degree)) return MOTET_OK;
  return bad_option(error, "planner", text, "best, bfd-dp, static:16, pow2-greedy or lpt");
}

static motet_status read_words(const pack_options *chosen, motet_error *error, motet_pack_options *how) {
  if (strcmp(chosen->batch, "all") == 0)
    how->batch = MOTET_PACK_ALL;
  else if (strcmp(chosen->batch, "auto") == 0)
    how->batch = MOTET_PACK_AUTO;
  else if (whole_number(chosen->batch, &how->batch_size))
    how->batch = MOTET_PACK_FIXED;
  else
    return bad_option(error, "batch", chosen->batch, "a number of sequences, all or auto");
  if (strcmp(chosen->scope, "microbatch") == 0)
    how->scope = MOTET_PACK_MICROBATCH;
  else if (strcmp(chosen->scope, "global") == 0)
    how->scope = MOTET_PACK_GLOBAL;
  else
    return bad_option(error, "scope", chosen->scope, "microbatch or global");
  return read_planner(chosen->planner, error, how);
}

static motet_status read_numbers(const pack_options *chosen, motet_error *error, motet_pack_options *how) {
  if (chosen->ranks == 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--ranks is missing; the ranks that are cut into groups");
  if (chosen->ranks > MOTET_PACK_RANKS_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--ranks: %lld; a number from 1 to %d belongs there",
                        (long long)chosen->ranks, MOTET_PACK_RANKS_MAX);
  if (chosen->cost == NULL)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "--cost is missing; a file of cost coefficients belongs there");
  if (chosen->memory_tokens < 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--memory-tokens is missing; the tokens that one rank takes");
  how->ranks = (int32_t)chosen->ranks;
  how->memory_tokens = chosen->memory_tokens;
  how->ranks_per_node = (int32_t)chosen->ranks_per_node;
  how->group_budget = (int32_t)chosen->group_budget;
  how->deadline_ms = chosen->deadline_ms;
  return MOTET_OK;
}

static bool is_distribution(const char *word) { return strncmp(word, "distribution:", 13) == 0; }

static motet_status read_trace(const char *word, const pack_options *chosen, motet_error *error, mt_trace *trace) {
  if (!is_distribution(word)) return mt_trace_read(word, error, trace);
  mt_distribution distribution = {.name = word + 13,
                                  .count = (int32_t)chosen->count,
                                  .seed = (uint64_t)chosen->seed,
                                  .ranks = (int32_t)chosen->ranks,
                                  .memory_tokens = chosen->memory_tokens};
  return mt_distribution_draw(&distribution, error, trace);
}

static void plan_once(const motet_pack_options *how, const motet_pack_sequence *sequences, int32_t count,
                      outcome *result) {
  *result = (outcome){0};
  motet_error_clear(&result->error);
  if (motet_packer_create(how, &result->error, &result->packer) != MOTET_OK) return;
  if (motet_packer_plan(result->packer, sequences, count, &result->error, &result->plan) != MOTET_OK) return;
  if (how->group_budget > 0) return; /* a second plan would find the first one's rank sets */
  double begin = mt_clock_seconds();
  motet_packer_plan(result->packer, sequences, count, &result->error, &result->plan);
  result->seconds = mt_clock_seconds() - begin;
}

/* Names the line of the first sequence that is too long for any group. */
static motet_status check_lengths(const mt_trace *trace, const char *file, int64_t longest, motet_error *error) {
  for (int32_t i = 0; i < trace->count; i++) {
    const mt_trace_item *item = &trace->items[i];
    if (item->tokens <= longest) continue;
    mt_error_set(error, MOTET_ERROR_ILLEGAL,
                 "sequence '%.100s' has %lld tokens and fits no group: the widest allowed one takes %lld", item->id,
                 (long long)item->tokens, (long long)longest);
    mt_error_rule(error, "memory", -1, -1, -1);
    mt_error_place(error, file, item->line);
    return MOTET_ERROR_ILLEGAL;
  }
  return MOTET_OK;
}

static json_t *group_value(const motet_pack_plan *plan, const motet_pack_group *group, const mt_trace *trace) {
  json_t *ranks = json_array(), *names = json_array();
  for (int32_t r = 0; r < group->degree; r++)
    json_array_append_new(ranks, json_integer(plan->ranks[group->rank_first + r]));
  for (int32_t i = 0; i < group->sequence_count; i++)
    json_array_append_new(names, json_string(trace->items[plan->sequences[group->sequence_first + i]].id));
  return json_pack("{s:i, s:o, s:o, s:f, s:f}", "degree", group->degree, "ranks", ranks, "sequences", names,
                   "start", group->start, "seconds", group->seconds);
}

static double gap_of(const motet_pack_plan *plan) {
  return plan->lower_bound > 0 ? plan->value / plan->lower_bound - 1 : 0;
}

static json_t *plan_value(const motet_pack_plan *plan, const motet_packer *packer, double seconds,
                          const mt_trace *trace, const char *planner) {
  json_t *microbatches = json_array(), *deferred = json_array();
  for (int64_t m = 0; m < plan->microbatch_count; m++) {
    const motet_pack_microbatch *microbatch = &plan->microbatches[m];
    json_t *groups = json_array();
    for (int64_t g = 0; g < microbatch->group_count; g++)
      json_array_append_new(groups, group_value(plan, &plan->groups[microbatch->group_first + g], trace));
    json_array_append_new(microbatches, json_pack("{s:f, s:o}", "value", microbatch->value, "groups", groups));
  }
  for (int64_t i = 0; i < plan->deferred_count; i++)
    json_array_append_new(deferred, json_string(trace->items[plan->deferred[i]].id));
  char digest[MT_DIGEST_TEXT_SIZE];
  mt_digest_print(plan->digest, digest);
  motet_pack_pool pool;
  motet_packer_pool(packer, &pool);
  return json_pack("{s:b, s:s, s:f, s:f, s:f, s:s, s:f, s:s, s:o, s:o, s:i, s:I, s:f}", "accepted", 1, "planner",
                   planner, "value", plan->value, "lower_bound", plan->lower_bound, "gap", gap_of(plan), "stop",
                   motet_pack_stop_name(plan->stop), "plan_seconds", seconds, "digest", digest, "microbatches",
                   microbatches, "deferred", deferred, "distinct_groups", plan->distinct_groups, "group_hits",
                   (json_int_t)pool.hits, "seconds_lost_to_budget", plan->seconds_lost_to_budget);
}

static int print_document(json_t *document) {
  char *text = document != NULL ? json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
  int code = text != NULL && mt_cli_print(text) == MT_EXIT_DONE && mt_cli_print("\n") == MT_EXIT_DONE
                 ? MT_EXIT_DONE
                 : MT_EXIT_FAILURE;
  free(text);
  json_decref(document);
  return code;
}

/* "0-15,24": ascending ranks as runs. */
static void append_ranks(mt_text *text, const int32_t *ranks, int32_t count) {
  for (int32_t i = 0; i < count;) {
    int32_t end = i;
    while (end + 1 < count && ranks[end + 1] == ranks[end] + 1) end++;
    mt_text_append(text, end > i ? "%s%d-%d" : "%s%d", i > 0 ? "," : "", ranks[i], ranks[end]);
    i = end + 1;
  }
}

static void append_bar(mt_text *text, double share, int width, const mt_terminal *terminal) {
  int full = (int)floor(share * width + 0.5);
  for (int i = 0; i < width; i++)
    mt_text_append(text, "%s",
                   i < full            ? (terminal->unicode ? "\u2588" : "#")
                   : terminal->unicode ? "\u00b7"
                                       : ".");
}

static void append_group(mt_text *text, const motet_pack_plan *plan, const motet_pack_group *group, double whole,
                         const mt_trace *trace, const mt_terminal *terminal) {
  enum { RANKS_WIDTH = 16, BAR_WIDTH = 30, NAMED_MAX = 4 };
  mt_text ranks = {0};
  append_ranks(&ranks, plan->ranks + group->rank_first, group->degree);
  mt_text_append(text, "  %-*s %4d  ", RANKS_WIDTH, ranks.data != NULL ? ranks.data : "", group->degree);
  mt_text_free(&ranks);
  append_bar(text, whole > 0 ? group->seconds / whole : 0, BAR_WIDTH, terminal);
  mt_text_append(text, " %9.4g s", group->seconds);
  if (plan->microbatch_count == 1 && group->start > 0) mt_text_append(text, " from %.4g s", group->start);
  mt_text_append(text, "  %s:", mt_counted(group->tokens, "token").text);
  for (int32_t i = 0; i < group->sequence_count && i < NAMED_MAX; i++)
    mt_text_append(text, " %s", trace->items[plan->sequences[group->sequence_first + i]].id);
  if (group->sequence_count > NAMED_MAX) mt_text_append(text, " and %d more", group->sequence_count - NAMED_MAX);
  mt_text_append(text, "\n");
}

enum { GROUPS_SHOWN = 48, DEFERRED_SHOWN = 16 };

/* What a plan of the one microbatch, or of those of a fixed length, leaves for later. */
static void append_deferred(mt_text *text, const motet_pack_plan *plan, const mt_trace *trace) {
  if (plan->deferred_count == 0) return;
  mt_text_append(text, "\ndeferred, no room for %s:", mt_counted(plan->deferred_count, "sequence").text);
  for (int64_t i = 0; i < plan->deferred_count && i < DEFERRED_SHOWN; i++)
    mt_text_append(text, " %s", trace->items[plan->deferred[i]].id);
  if (plan->deferred_count > DEFERRED_SHOWN)
    mt_text_append(text, " and %lld more", (long long)(plan->deferred_count - DEFERRED_SHOWN));
  mt_text_append(text, "\n--batch auto makes as many microbatches as all of them need\n");
}

static int print_plan(const motet_pack_plan *plan, double seconds, const mt_trace *trace, const char *planner) {
  mt_terminal terminal = mt_terminal_find();
  mt_text text = {0};
  mt_text_append(&text, "%s: %.6g s", planner, plan->value);
  if (plan->deferred_count > 0)
    mt_text_append(&text, " for %lld of %s", (long long)(trace->count - plan->deferred_count),
                   mt_counted(trace->count, "sequence").text);
  mt_text_append(&text, ", proven bound %.6g s, gap %.2f %% (%s); planned in %.3g ms\n", plan->lower_bound,
                 100 * gap_of(plan), motet_pack_stop_name(plan->stop), 1e3 * seconds);
  for (int64_t m = 0; m < plan->microbatch_count; m++) {
    const motet_pack_microbatch *microbatch = &plan->microbatches[m];
    double busy = 0;
    for (int64_t g = 0; g < microbatch->group_count; g++) {
      const motet_pack_group *group = &plan->groups[microbatch->group_first + g];
      busy += group->degree * group->seconds;
    }
    mt_text_append(&text, "\nmicrobatch %lld: %.6g s, %s, %.6g busy rank-seconds\n  %-16s %4s\n", (long long)m,
                   microbatch->value, mt_counted(microbatch->group_count, "group").text, busy, "ranks", "d");
    for (int64_t g = 0; g < microbatch->group_count && g < GROUPS_SHOWN; g++)
      append_group(&text, plan, &plan->groups[microbatch->group_first + g], microbatch->value, trace, &terminal);
    if (microbatch->group_count > GROUPS_SHOWN)
      mt_text_append(&text, "  ... and %s more\n",
                     mt_counted(microbatch->group_count - GROUPS_SHOWN, "group").text);
  }
  append_deferred(&text, plan, trace);
  mt_text_append(&text, "\n%d distinct rank sets\n", plan->distinct_groups);
  int code = text.data != NULL && !text.failed ? mt_cli_print(text.data) : MT_EXIT_FAILURE;
  mt_text_free(&text);
  return code;
}

/* All planners on the same input. */
static int compare(const motet_pack_options *base, const motet_pack_sequence *sequences, const mt_trace *trace,
                   bool json) {
  static const char *const names[] = {"best", "bfd-dp", "static:16", "pow2-greedy", "lpt", "best, global"};
  enum { NAMES = sizeof names / sizeof *names };
  json_t *rows = json_array();
  mt_text text = {0};
  mt_text_append(&text, "%-12s %12s %12s %8s %9s %12s %10s\n", "planner", "seconds", "bound", "gap", "deferred",
                 "microbatches", "plan ms");
  for (int i = 0; i < NAMES; i++) {
    motet_pack_options how = *base;
    motet_error error;
    bool global = strcmp(names[i], "best, global") == 0;
    how.scope = global ? MOTET_PACK_GLOBAL : MOTET_PACK_MICROBATCH;
    how.static_degree = 0;
    read_planner(global ? "best" : names[i], &error, &how);
    outcome result;
    plan_once(&how, sequences, trace->count, &result);
    const motet_pack_plan *plan = result.plan;
    if (plan != NULL) {
      mt_text_append(&text, "%-12s %12.6g %12.6g %7.2f%% %9lld %12lld %10.3f\n", names[i], plan->value,
                     plan->lower_bound, 100 * gap_of(plan), (long long)plan->deferred_count,
                     (long long)plan->microbatch_count, 1e3 * result.seconds);
      json_array_append_new(rows,
                            json_pack("{s:s, s:b, s:f, s:f, s:f, s:I, s:I, s:f}", "planner", names[i], "accepted",
                                      1, "value", plan->value, "lower_bound", plan->lower_bound, "gap",
                                      gap_of(plan), "deferred", (json_int_t)plan->deferred_count, "microbatches",
                                      (json_int_t)plan->microbatch_count, "plan_seconds", result.seconds));
    } else {
      mt_text_append(&text, "%-12s refused: %s\n", names[i], result.error.text);
      json_array_append_new(
          rows, json_pack("{s:s, s:b, s:s}", "planner", names[i], "accepted", 0, "message", result.error.text));
    }
    motet_packer_destroy(result.packer);
  }
  int code;
  if (json)
    code = print_document(json_pack("{s:b, s:O}", "accepted", 1, "planners", rows));
  else
    code = text.data != NULL && !text.failed ? mt_cli_print(text.data) : MT_EXIT_FAILURE;
  json_decref(rows);
  mt_text_free(&text);
  return code;
}

static int plan_and_print(const motet_pack_options *how, const mt_trace *trace, const char *word,
                          const pack_options *chosen) {
  motet_pack_sequence *sequences = malloc(((size_t)trace->count + 1) * sizeof *sequences);
  if (sequences == NULL) return MT_EXIT_FAILURE;
  for (int32_t i = 0; i < trace->count; i++)
    sequences[i] = (motet_pack_sequence){trace->items[i].tokens, trace->items[i].area};
  int code;
  outcome result = {0};
  motet_error_clear(&result.error);
  motet_packer *probe = NULL; /* knows the longest sequence before anything is planned */
  motet_status status = motet_packer_create(how, &result.error, &probe);
  if (status == MOTET_OK) status = check_lengths(trace, word, motet_packer_longest(probe), &result.error);
  motet_packer_destroy(probe);
  if (status != MOTET_OK) {
    code = mt_cli_fail(&result.error, chosen->json);
  } else if (chosen->compare) {
    code = compare(how, sequences, trace, chosen->json);
  } else {
    plan_once(how, sequences, trace->count, &result);
    if (result.plan != NULL && result.plan->microbatch_count == 0 && result.plan->deferred_count > 0) {
      mt_error_set(&result.error, MOTET_ERROR_ILLEGAL,
                   "%s finds no room for any microbatch: %s deferred; accepted: more memory, wider groups or fewer "
                   "sequences a microbatch (--batch)",
                   chosen->planner, mt_counted(result.plan->deferred_count, "sequence").text);
      mt_error_rule(&result.error, "memory", -1, -1, -1);
      result.plan = NULL;
    }
    if (result.plan == NULL)
      code = mt_cli_fail(&result.error, chosen->json);
    else if (chosen->json)
      code = print_document(plan_value(result.plan, result.packer, result.seconds, trace, chosen->planner));
    else
      code = print_plan(result.plan, result.seconds, trace, chosen->planner);
    motet_packer_destroy(result.packer);
  }
  free(sequences);
  return code;
}

/* What would change nothing. */
static void check_use(const mt_command *command, const pack_options *chosen, mt_options_given given,
                      const char *word, motet_error *error) {
  static const char *const drawn[] = {"count", "seed", NULL}, *const compared[] = {"planner", "scope", NULL};
  if (!is_distribution(word))
    mt_cli_refuse_given(command, given, drawn, "is for a distribution; a trace file has its own sequences", error);
  if (chosen->compare)
    mt_cli_refuse_given(command, given, compared, "has no place beside --compare, which takes all of them", error);
}

static int run(const mt_command *command, int argc, char **argv) {
  pack_options chosen = {
      .batch = "all", .scope = "microbatch", .degrees = "all", .planner = "best", .ranks_per_node = 8, .seed = 1};
  motet_error error;
  motet_error_clear(&error);
  motet_pack_options how = {0};
  int32_t *degrees = NULL;
  mt_options_given given;
  int words = mt_cli_parse(command, argc, argv, &chosen, &given, &error);
  if (words >= 0 && words != 1)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "pack takes one TRACE.jsonl or distribution:NAME, not %d", words);
  if (error.status == MOTET_OK) check_use(command, &chosen, given, argv[0], &error);
  if (error.status == MOTET_OK) read_numbers(&chosen, &error, &how);
  if (error.status == MOTET_OK) read_words(&chosen, &error, &how);
  if (error.status == MOTET_OK)
    mt_pack_degrees_parse(chosen.degrees, how.ranks, &error, &degrees, &how.degree_count);
  how.degrees = degrees;
  if (error.status != MOTET_OK) return mt_cli_usage(command, &error, chosen.json);
  mt_trace trace = {0};
  int code;
  motet_status status = motet_pack_cost_read(chosen.cost, &error, &how.cost);
  if (status == MOTET_OK) status = read_trace(argv[0], &chosen, &error, &trace);
  if (status != MOTET_OK)
    code = mt_cli_fail(&error, chosen.json);
  else
    code = plan_and_print(&how, &trace, argv[0], &chosen);
  mt_trace_destroy(&trace);
  free(degrees);
  return code;
}

const mt_command mt_command_pack = {
    .name = "pack",
    .arguments = "TRACE.jsonl|distribution:NAME --ranks N --cost FILE --memory-tokens N [options]",
    .summary = "cut the ranks into context-parallel groups for sequences of any length",
    .details =
        "A trace has one sequence a line: {\"id\": \"a\", \"tokens\": 131072, \"area\": 8.59e9}; area, the\n"
        "query-key pairs that the mask keeps, is tokens^2/2 where it is left out. Distributions: burst-128k,\n"
        "burst-192k, burst-224k, internvid, msrvtt, openvid, wikipedia. The plan comes with a proven lower\n"
        "bound. Exit code 1: some sequence fits no group.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};

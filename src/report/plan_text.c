#include "report/plan_text.h"
#include "base/digest.h"
#include "report/flops_table.h"
#include "report/words.h"

#include <inttypes.h>
#include <math.h>

enum { KEY_COLUMNS = 12, DEFAULT_RANKS = 16, PATH_HEAD = 12, LEAST_BAR = 10, MOST_BAR = 40 };

static void put_key(mt_text *out, const char *key) {
  size_t from = out->length;
  mt_text_append(out, "%s", key);
  mt_words_pad(out, from, KEY_COLUMNS);
}

static void put_seconds(mt_text *out, double seconds, double largest) {
  mt_words_unit unit = mt_words_time_unit(largest);
  mt_words_number(out, seconds * unit.per_second, 6);
  mt_text_append(out, " %s", unit.name);
}

static void put_heading(const mt_report_plan *plan, mt_text *out) {
  const motet_program *program = plan->program;
  const mt_simulation *simulation = plan->simulation;
  char digest[MT_DIGEST_TEXT_SIZE];
  mt_digest_print(motet_program_digest(program), digest);
  const char *schedule = plan->schedule != NULL ? plan->schedule : program->schedule;
  if (schedule[0] != '\0') {
    put_key(out, "schedule");
    mt_text_append(out, "%s\n", schedule);
  }
  put_key(out, "program");
  mt_text_append(out, "%s, %s, %s, %s, digest %s\n", mt_counted(program->ranks, "rank").text,
                 mt_counted(program->microbatch_count, "microbatch").text,
                 mt_counted(program->rank_begin[program->ranks], "instruction").text,
                 plan->verification != NULL ? "verified" : "not verified", digest);
  put_key(out, "makespan");
  put_seconds(out, simulation->makespan, simulation->makespan);
  if (!isnan(plan->bound)) {
    mt_text_append(out, "; no order takes less than ");
    put_seconds(out, plan->bound, simulation->makespan);
    double gap = plan->bound > 0 ? simulation->makespan / plan->bound - 1.0 : 0.0;
    if (gap > 1e-12)
      mt_text_append(out, " (%.2f%% above that bound)", 100.0 * gap);
    else
      mt_text_append(out, " (optimal)");
  }
  mt_text_append(out, "\n");
  put_key(out, "bubble");
  mt_text_append(out, "%.2f%% of the makespan, %.2f%% of the worst rank's body\n", 100.0 * simulation->bubble_whole,
                 100.0 * simulation->bubble_stage);
  if (simulation->peak_features > 0) {
    put_key(out, "features");
    mt_text_append(out, "at most %d alive at once\n", simulation->peak_features);
  }
}

static void put_bar(mt_text *out, double share, int columns, bool unicode) {
  static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  int filled = (int)(share * columns * 8 + 0.5);
  for (int i = 0; i < (unicode ? filled / 8 : (filled + 4) / 8); i++)
    mt_text_append(out, "%s", unicode ? "█" : "#");
  if (unicode) mt_text_append(out, "%s", eighths[filled % 8]);
}

static void put_idle(const mt_report_plan *plan, const mt_plan_text_options *options, mt_text *out) {
  const mt_simulation *simulation = plan->simulation;
  double idle = 0.0;
  for (int32_t rank = 0; rank < plan->program->ranks; rank++) idle += simulation->ranks[rank].idle;
  put_key(out, "idle");
  mt_text_append(out, "%.2f%% of all rank time\n", 100.0 * simulation->idle_share);
  if (!(idle > 0)) return;
  int bar = (options->width > 0 ? options->width : 80) - 52;
  bar = bar < LEAST_BAR ? LEAST_BAR : bar > MOST_BAR ? MOST_BAR : bar;
  mt_words_unit unit = mt_words_time_unit(idle);
  for (int cause = 0; cause < MT_IDLE_CAUSES; cause++) {
    double seconds = simulation->idle_by_cause[cause];
    if (!(seconds > 1e-12 * idle)) continue; /* what rounding leaves is no cause */
    size_t from = out->length;
    mt_text_append(out, "  ");
    mt_words_key(out, mt_idle_cause_name((mt_idle_cause)cause));
    mt_words_pad(out, from, 24);
    mt_text_append(out, "%12.6g %-2s %5.1f%%  ", seconds * unit.per_second, unit.name, 100.0 * seconds / idle);
    put_bar(out, seconds / idle, bar, options->unicode);
    mt_text_append(out, "\n");
  }
}

/* Plans on abstract times know no sizes: a column of zeros says nothing. */
static bool has_sizes(const mt_report_plan *plan) {
  bool some = false;
  for (int32_t rank = 0; plan->verification != NULL && rank < plan->program->ranks; rank++)
    some = some || plan->verification->memory[rank].peak_bytes > 0;
  return some;
}

static void put_rank(const mt_report_plan *plan, int32_t rank, mt_words_unit unit, bool sizes, mt_text *out) {
  const mt_rank_result *result = &plan->simulation->ranks[rank];
  double makespan = plan->simulation->makespan;
  mt_text_append(out, "%6d %12.6g %12.6g %7.1f%%", rank, result->busy * unit.per_second,
                 result->idle * unit.per_second, makespan > 0 ? 100.0 * result->busy / makespan : 0.0);
  if (plan->verification != NULL) {
    const motet_rank_memory *memory = &plan->verification->memory[rank];
    mt_text_append(out, " %12.6g", memory->peak_activations);
    mt_text bytes = {0};
    if (sizes) mt_words_bytes(&bytes, memory->peak_bytes);
    if (bytes.data != NULL) mt_text_append(out, " %14s", bytes.data);
    mt_text_free(&bytes);
  }
  mt_text_append(out, "\n");
}

static void put_ranks(const mt_report_plan *plan, const mt_plan_text_options *options, mt_text *out) {
  int32_t ranks = plan->program->ranks, limit = options->rank_limit > 0 ? options->rank_limit : DEFAULT_RANKS;
  int32_t head = ranks > limit ? (limit + 1) / 2 : ranks, tail = ranks > limit ? limit / 2 : 0;
  mt_words_unit unit = mt_words_time_unit(plan->simulation->makespan);
  bool sizes = has_sizes(plan);
  mt_text_append(out, "\n%6s %9s %2s %9s %2s %8s", "rank", "busy", unit.name, "idle", unit.name, "busy");
  if (plan->verification != NULL) mt_text_append(out, " %12s", "activations");
  if (sizes) mt_text_append(out, " %14s", "peak memory");
  mt_text_append(out, "\n");
  for (int32_t rank = 0; rank < head; rank++) put_rank(plan, rank, unit, sizes, out);
  if (head + tail < ranks) mt_text_append(out, "%6s ranks %d to %d not listed\n", ":", head, ranks - tail - 1);
  for (int32_t rank = ranks - tail; rank < ranks; rank++) put_rank(plan, rank, unit, sizes, out);
}

static int32_t rank_of(const motet_program *program, int64_t place) {
  int32_t low = 0, high = program->ranks - 1;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (program->rank_begin[middle + 1] <= place)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void put_path(const mt_report_plan *plan, mt_text *out) {
  const mt_simulation *simulation = plan->simulation;
  if (simulation->critical_count == 0) return;
  mt_text_append(out, "\ncritical path, %s\n", mt_counted(simulation->critical_count, "instruction").text);
  int64_t i = 0;
  for (int rows = 0; i < simulation->critical_count && rows < PATH_HEAD; i++) {
    int64_t place = simulation->critical[i];
    int kind = plan->program->instructions[place].kind;
    if (kind == MOTET_SEND || kind == MOTET_RECV) continue; /* its WAIT, which follows, speaks for the transfer */
    mt_text_append(out, "  rank %-5d", rank_of(plan->program, place));
    if (simulation->finish != NULL) {
      mt_text_append(out, " ends at ");
      size_t from = out->length;
      put_seconds(out, simulation->finish[place], simulation->makespan);
      mt_words_pad(out, from, 14);
    }
    mt_text_append(out, " ");
    mt_words_instruction(out, plan->program, place);
    mt_text_append(out, "\n");
    rows++;
  }
  if (i < simulation->critical_count)
    mt_text_append(out, "  and %" PRId64 " more\n", simulation->critical_count - i);
}

void mt_report_plan_text(const mt_report_plan *plan, const mt_plan_text_options *options, mt_text *out) {
  static const mt_plan_text_options defaults = {0};
  if (options == NULL) options = &defaults;
  put_heading(plan, out);
  put_idle(plan, options, out);
  put_ranks(plan, options, out);
  if (plan->flops != NULL) mt_text_append(out, "\n");
  mt_flops_table_text(plan->program, plan->simulation, plan->flops, out);
  put_path(plan, out);
}

#include "report/document.h"
#include "base/digest.h"
#include "report/flops_table.h"
#include "report/words.h"

#include <stdbool.h>

/* Sets a member and reports whether that worked: jansson answers a failed value with a failed set. */
static bool set(json_t *object, const char *key, json_t *value) {
  return json_object_set_new(object, key, value) == 0;
}

json_t *mt_report_json_idle(const mt_simulation *simulation) {
  json_t *idle = json_object();
  for (int cause = 0; cause < MT_IDLE_CAUSES; cause++) {
    if (set(idle, mt_idle_cause_name((mt_idle_cause)cause), json_real(simulation->idle_by_cause[cause]))) continue;
    json_decref(idle);
    return NULL;
  }
  return idle;
}

static json_t *make_ranks(const mt_report_plan *plan) {
  json_t *ranks = json_array();
  for (int32_t rank = 0; rank < plan->program->ranks; rank++) {
    json_t *row = json_object();
    const mt_rank_result *result = &plan->simulation->ranks[rank];
    bool good =
        set(row, "busy", json_real(result->busy)) && set(row, "idle", json_real(result->idle)) &&
        set(row, "peak_bytes",
            plan->verification != NULL ? json_integer(plan->verification->memory[rank].peak_bytes) : json_null());
    if (json_array_append_new(ranks, row) == 0 && good) continue;
    json_decref(ranks);
    return NULL;
  }
  return ranks;
}

static json_t *make_activations(const mt_report_plan *plan) {
  if (plan->verification == NULL) return json_null();
  json_t *peaks = json_array();
  for (int32_t rank = 0; rank < plan->program->ranks; rank++) {
    if (json_array_append_new(peaks, json_real(plan->verification->memory[rank].peak_activations)) == 0) continue;
    json_decref(peaks);
    return NULL;
  }
  return peaks;
}

json_t *mt_report_json_plan(const mt_report_plan *plan) {
  const motet_program *program = plan->program;
  const mt_simulation *simulation = plan->simulation;
  char digest[MT_DIGEST_TEXT_SIZE];
  mt_digest_print(motet_program_digest(program), digest);
  json_t *document = json_object();
  bool good = set(document, "accepted", json_true()) &&
              set(document, "schedule", json_string(plan->schedule != NULL ? plan->schedule : program->schedule)) &&
              set(document, "digest", json_string(digest)) &&
              set(document, "makespan", json_real(simulation->makespan)) &&
              set(document, "step_seconds", json_real(simulation->makespan)) &&
              set(document, "bound", isnan(plan->bound) ? json_null() : json_real(plan->bound)) &&
              set(document, "verified", json_boolean(plan->verification != NULL)) &&
              set(document, "instructions", json_integer(program->rank_begin[program->ranks])) &&
              set(document, "bubble_whole", json_real(simulation->bubble_whole)) &&
              set(document, "bubble_stage", json_real(simulation->bubble_stage)) &&
              set(document, "idle_share", json_real(simulation->idle_share)) &&
              set(document, "idle_by_cause", mt_report_json_idle(simulation)) &&
              set(document, "peak_activations", make_activations(plan)) &&
              set(document, "flops", mt_flops_table_json(program, simulation, plan->flops)) &&
              set(document, "peak_features", json_integer(simulation->peak_features)) &&
              set(document, "ranks", make_ranks(plan)) &&
              set(document, "memory",
                  plan->verification != NULL ? mt_report_json_memory(program, plan->verification) : json_null());
  if (good) return document;
  json_decref(document);
  return NULL;
}

json_t *mt_report_json_memory(const motet_program *program, const motet_verification *verification) {
  json_t *rows = json_array();
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    const motet_rank_memory *memory = &verification->memory[rank];
    mt_text at = {0};
    if (memory->peak_instruction >= 0)
      mt_words_instruction(&at, program, program->rank_begin[rank] + memory->peak_instruction);
    json_t *row = json_object();
    bool good = set(row, "rank", json_integer(rank)) && set(row, "peak_bytes", json_integer(memory->peak_bytes)) &&
                set(row, "at", at.data != NULL ? json_string(at.data) : json_null());
    mt_text_free(&at);
    if (json_array_append_new(rows, row) == 0 && good) continue;
    json_decref(rows);
    return NULL;
  }
  return rows;
}

static json_t *make_event(const motet_program *program, int64_t place, int64_t index, double start, double finish) {
  const motet_instruction *instruction = &program->instructions[place];
  json_t *event = json_object();
  bool good = set(event, "instruction", json_integer(index)) &&
              set(event, "kind", json_string(motet_instruction_name(instruction->kind))) &&
              set(event, "stage", json_integer(instruction->stage)) &&
              set(event, "microbatch", json_integer(instruction->microbatch)) &&
              set(event, "start", json_real(start)) && set(event, "finish", json_real(finish));
  if (good) return event;
  json_decref(event);
  return NULL;
}

json_t *mt_report_json_timeline(const motet_program *program, const double *start, const double *finish) {
  json_t *ranks = json_array();
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    json_t *events = json_array();
    bool good = events != NULL;
    for (int64_t i = program->rank_begin[rank]; good && i < program->rank_begin[rank + 1]; i++)
      good = json_array_append_new(events,
                                   make_event(program, i, i - program->rank_begin[rank], start[i], finish[i])) == 0;
    if (json_array_append_new(ranks, events) == 0 && good) continue;
    json_decref(ranks);
    return NULL;
  }
  json_t *document = json_object();
  if (set(document, "ranks", ranks)) return document;
  json_decref(document);
  return NULL;
}

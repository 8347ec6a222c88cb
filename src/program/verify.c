#include "program/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const rule_names[MT_RULES] = {"completeness", "data_flow", "channels", "progress",
                                                 "collectives",  "memory",    "gradients"};

static void note(mt_verifier *verifier, mt_rule rule, int32_t rank, int64_t position, int32_t microbatch,
                 const char *format, va_list arguments) {
  char text[MOTET_ERROR_TEXT_SIZE];
  vsnprintf(text, sizeof text, format, arguments);
  motet_error *violation = &verifier->violations[rule];
  mt_error_set(violation, MOTET_ERROR_REFUSED, "%s", text);
  mt_error_rule(violation, rule_names[rule], rank, position, microbatch);
  verifier->violated[rule] = true;
}

motet_status mt_verify_refuse(mt_verifier *verifier, mt_rule rule, int32_t rank, int64_t position,
                              int32_t microbatch, const char *format, ...) {
  if (verifier->violated[rule]) return MOTET_ERROR_REFUSED;
  va_list arguments;
  va_start(arguments, format);
  note(verifier, rule, rank, position, microbatch, format, arguments);
  va_end(arguments);
  return MOTET_ERROR_REFUSED;
}

motet_status mt_verify_refuse_entry(mt_verifier *verifier, mt_rule rule, const char *table, int64_t index,
                                    const char *format, ...) {
  if (verifier->violated[rule]) return MOTET_ERROR_REFUSED;
  va_list arguments;
  va_start(arguments, format);
  note(verifier, rule, -1, -1, -1, format, arguments);
  va_end(arguments);
  char key[MOTET_ERROR_KEY_SIZE];
  snprintf(key, sizeof key, "%s[%lld]", table, (long long)index);
  mt_error_key(&verifier->violations[rule], key);
  return mt_error_context(&verifier->violations[rule], MOTET_ERROR_REFUSED, "%s", key);
}

const char *mt_verify_stage_text(const mt_verifier *verifier, int32_t stage, char text[MT_VERIFY_TEXT_SIZE]) {
  const motet_program *program = verifier->program;
  const motet_program_stage *entry = &program->stages[stage];
  const char *name = program->regions[entry->region].name;
  snprintf(text, MT_VERIFY_TEXT_SIZE, "stage %d (%.60s, slab %d)", stage, name != NULL ? name : "", entry->slab);
  return text;
}

const char *mt_verify_instruction_text(const mt_verifier *verifier, const motet_instruction *instruction,
                                       char text[MT_VERIFY_TEXT_SIZE]) {
  const motet_program *program = verifier->program;
  const char *name = motet_instruction_name(instruction->kind);
  switch (instruction->kind) {
  case MOTET_SEND:
  case MOTET_RECV:
  case MOTET_WAIT: {
    bool gradient = program->buffers[instruction->buffer].kind == MOTET_BUFFER_GRADIENT;
    bool receives = instruction->kind == MOTET_RECV || (instruction->flags & MOTET_FLAG_RECV) != 0;
    const char *direction = instruction->kind != MOTET_WAIT ? "" : receives ? " receive" : " send";
    snprintf(text, MT_VERIFY_TEXT_SIZE, "%s%s of the %s of stage %d, microbatch %d, %s rank %d", name, direction,
             gradient ? "gradient" : "activation", instruction->stage, instruction->microbatch,
             receives ? "from" : "to", instruction->peer);
    break;
  }
  case MOTET_REDUCE:
  case MOTET_REDUCE_SCATTER:
  case MOTET_ALL_GATHER:
  case MOTET_ALL_REDUCE:
  case MOTET_STEP_END: snprintf(text, MT_VERIFY_TEXT_SIZE, "%s of group %d", name, instruction->peer); break;
  case MOTET_OPTIM: snprintf(text, MT_VERIFY_TEXT_SIZE, "%s", name); break;
  default:
    snprintf(text, MT_VERIFY_TEXT_SIZE, "%s of stage %d, microbatch %d%s", name, instruction->stage,
             instruction->microbatch, (instruction->flags & MOTET_FLAG_JOINED) != 0 ? ", joined" : "");
  }
  return text;
}

void *mt_verify_array(mt_verifier *verifier, size_t count, size_t size) {
  void *memory = mt_arena_array(verifier->arena, count, size);
  if (memory == NULL) {
    unsigned long long bytes;
    if (__builtin_mul_overflow((unsigned long long)count, (unsigned long long)size, &bytes)) bytes = UINT64_MAX;
    mt_error_memory(verifier->error, bytes, "verification");
  }
  return memory;
}

/* While items are added, begin[key + 1] is where the key's next item goes; when all are in, it is where the next
 * key's begin. */
motet_status mt_verify_lists_start(mt_verifier *verifier, mt_verify_lists *lists, int32_t keys) {
  lists->begin = mt_verify_array(verifier, (size_t)keys + 2, sizeof *lists->begin);
  return lists->begin != NULL ? MOTET_OK : MOTET_ERROR_MEMORY;
}

motet_status mt_verify_lists_room(mt_verifier *verifier, mt_verify_lists *lists, int32_t keys) {
  for (int32_t key = 0; key <= keys; key++) lists->begin[key + 1] += lists->begin[key];
  lists->items = mt_verify_array(verifier, (size_t)lists->begin[keys + 1], sizeof *lists->items);
  return lists->items != NULL ? MOTET_OK : MOTET_ERROR_MEMORY;
}

bool mt_verify_member(const motet_program *program, int32_t group, int32_t rank) {
  const int32_t *ranks = program->group_ranks + program->groups[group].first;
  int32_t low = 0, high = program->groups[group].count;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (ranks[middle] < rank) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < program->groups[group].count && ranks[low] == rank;
}

/* What is judged after which pass. The collectives' sequences come before progress: a collective that lacks a
 * member hangs, and the missing member is the better thing to say. */
static const struct {
  motet_status (*run)(mt_verifier *verifier);
  mt_rule rule;
} passes[] = {
    {mt_verify_tables, MT_RULE_DATA_FLOW},
    {mt_verify_ranges, MT_RULE_COMPLETENESS},
    {mt_verify_statement, MT_RULE_COMPLETENESS},
    {mt_verify_edges, MT_RULE_COMPLETENESS},
    {mt_verify_completeness, MT_RULE_COMPLETENESS},
    {mt_verify_joined, MT_RULE_COMPLETENESS},
    {mt_verify_flow, MT_RULE_DATA_FLOW},
    {mt_verify_channels, MT_RULE_CHANNELS},
    {mt_verify_collectives, MT_RULE_COLLECTIVES},
    {mt_verify_progress, MT_RULE_PROGRESS},
    {NULL, MT_RULE_MEMORY},
    {NULL, MT_RULE_GRADIENTS},
    {mt_verify_blocking, MT_RULE_PROGRESS},
};

/* The violation of lowest rule; a pass that gave up has noted one. */
static motet_status report(const mt_verifier *verifier) {
  for (int rule = 0; rule < MT_RULES; rule++) {
    if (!verifier->violated[rule]) continue;
    if (verifier->error != NULL) *verifier->error = verifier->violations[rule];
    break;
  }
  return MOTET_ERROR_REFUSED;
}

static motet_status run_passes(mt_verifier *verifier) {
  for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) {
    motet_status status = passes[i].run != NULL ? passes[i].run(verifier) : MOTET_OK;
    if (status == MOTET_ERROR_REFUSED) return report(verifier);
    if (status != MOTET_OK) return status;
    if (!verifier->violated[passes[i].rule]) continue;
    if (verifier->error != NULL) *verifier->error = verifier->violations[passes[i].rule];
    return MOTET_ERROR_REFUSED;
  }
  return MOTET_OK;
}

/* Hands the ranks' memory out, where the walk has come so far. */
static motet_status publish_memory(const mt_verifier *verifier) {
  if (verifier->verification == NULL || verifier->memory == NULL) return MOTET_OK;
  size_t ranks = (size_t)verifier->program->ranks;
  motet_rank_memory *memory = malloc(ranks * sizeof *memory);
  if (memory == NULL) return mt_error_memory(verifier->error, ranks * sizeof *memory, "verification");
  memcpy(memory, verifier->memory, ranks * sizeof *memory);
  verifier->verification->memory = memory;
  return MOTET_OK;
}

motet_status motet_verify(const motet_program *program, const motet_verify_options *options, motet_error *error,
                          motet_verification *verification) {
  motet_error_clear(error);
  if (verification != NULL) *verification = (motet_verification){0};
  if (program == NULL) return mt_error_set(error, MOTET_ERROR_ARGUMENT, "there is no program to verify");
  mt_arena *arena = mt_arena_create();
  mt_verifier *verifier = arena != NULL ? mt_arena_array(arena, 1, sizeof *verifier) : NULL;
  if (verifier == NULL) {
    mt_arena_destroy(arena);
    return mt_error_memory(error, sizeof *verifier, "verification");
  }
  verifier->program = program;
  if (options != NULL) verifier->options = *options;
  verifier->verification = verification;
  verifier->error = error;
  verifier->arena = arena;
  motet_status status = run_passes(verifier);
  motet_status published = publish_memory(verifier);
  if (status == MOTET_OK) status = published;
  free(verifier->collectives.data);
  mt_arena_destroy(arena);
  return status;
}

void motet_verification_free(motet_verification *verification) {
  if (verification == NULL) return;
  free(verification->memory);
  free(verification->cycle);
  *verification = (motet_verification){0};
}

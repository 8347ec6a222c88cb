#include "report/chrome_trace.h"
#include "report/words.h"

#include <inttypes.h>

typedef struct writer {
  const mt_chrome_trace *trace;
  const motet_program *program;
  int32_t pipeline; /* ranks of a replica */
  bool first;
  mt_text *out;
} writer;

/* Length of the well-formed UTF-8 sequence at `at` (RFC 3629: shortest form, no surrogates), or 0. */
static int utf8_length(const unsigned char *at) {
  static const struct {
    unsigned char first, last, second_low, second_high;
    int length;
  } forms[] = {{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
               {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
               {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
  if (*at < 0x80) return 1;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (*at < forms[i].first || *at > forms[i].last) continue;
    if (at[1] < forms[i].second_low || at[1] > forms[i].second_high) return 0;
    for (int k = 2; k < forms[i].length; k++)
      if ((at[k] & 0xc0) != 0x80) return 0;
    return forms[i].length;
  }
  return 0;
}

void mt_report_json_string(mt_text *out, const char *text) {
  const unsigned char *at = (const unsigned char *)text;
  mt_text_append(out, "\"");
  while (*at != '\0') {
    int length = utf8_length(at);
    if (length == 0)
      mt_text_append(out, "\\ufffd");
    else if (*at == '"' || *at == '\\')
      mt_text_append(out, "\\%c", *at);
    else if (*at < 0x20 || *at == 0x7f)
      mt_text_append(out, "\\u%04x", *at);
    else
      mt_text_bytes(out, (const char *)at, (size_t)length);
    at += length == 0 ? 1 : length;
  }
  mt_text_append(out, "\"");
}

/* Begins an event; its closing brace is the caller's. */
static void begin_event(writer *w, char phase, int32_t rank) {
  mt_text_append(w->out, "%s\n{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d", w->first ? "" : ",", phase, rank / w->pipeline,
                 rank);
  w->first = false;
}

/* Trace times are microseconds. */
static void put_time(writer *w, const char *key, double seconds) {
  mt_text_append(w->out, ",\"%s\":%.17g", key, seconds * 1e6);
}

static void put_metadata(writer *w) {
  for (int32_t rank = 0; rank < w->program->ranks; rank++) {
    if (rank % w->pipeline == 0) {
      begin_event(w, 'M', rank);
      mt_text_append(w->out, ",\"name\":\"process_name\",\"args\":{\"name\":\"replica %d\"}}", rank / w->pipeline);
    }
    begin_event(w, 'M', rank);
    mt_text_append(w->out, ",\"name\":\"thread_name\",\"args\":{\"name\":\"rank %d\"}}", rank);
    begin_event(w, 'M', rank);
    mt_text_append(w->out, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}", rank);
  }
}

static const char *category(int kind) {
  if (kind == MOTET_FWD || kind == MOTET_RECOMPUTE) return "forward";
  if (kind <= MOTET_BWD_W) return "backward";
  if (kind == MOTET_OPTIM) return "optimizer";
  if (kind == MOTET_LOAD) return "load";
  if (kind == MOTET_WAIT || kind == MOTET_STEP_END) return "wait";
  return kind == MOTET_OFFLOAD || kind == MOTET_FETCH ? "offload" : "collective";
}

static const char *cause_at(const writer *w, int64_t place) {
  const uint8_t *causes = w->trace->idle_cause;
  return causes != NULL && causes[place] < MT_IDLE_CAUSES ? mt_idle_cause_name((mt_idle_cause)causes[place]) : NULL;
}

static void put_name(writer *w, const motet_instruction *instruction) {
  mt_text name = {0};
  mt_text_append(&name, "%s", motet_instruction_name(instruction->kind));
  if (instruction->stage >= 0) {
    mt_text_append(&name, " ");
    mt_words_stage(&name, w->program, instruction->stage);
  }
  if (instruction->microbatch >= 0) mt_text_append(&name, " #%d", instruction->microbatch);
  mt_text_append(w->out, ",\"name\":");
  mt_report_json_string(w->out, name.data != NULL ? name.data : "");
  mt_text_free(&name);
}

static void put_arguments(writer *w, int32_t rank, int64_t place) {
  const motet_instruction *instruction = &w->program->instructions[place];
  mt_text_append(w->out, ",\"args\":{\"instruction\":%" PRId64, place - w->program->rank_begin[rank]);
  if (instruction->stage >= 0) {
    const motet_program_stage *stage = &w->program->stages[instruction->stage];
    mt_text_append(w->out, ",\"stage\":%d,\"slab\":%d,\"region\":", instruction->stage, stage->slab);
    mt_report_json_string(w->out, w->program->regions[stage->region].name);
  }
  if (instruction->microbatch >= 0) mt_text_append(w->out, ",\"microbatch\":%d", instruction->microbatch);
  if (instruction->kind == MOTET_WAIT) mt_text_append(w->out, ",\"peer\":%d", instruction->peer);
  if (instruction->flags & MOTET_FLAG_NEXT) mt_text_append(w->out, ",\"next_step\":true");
  if (instruction->flags & MOTET_FLAG_JOINED) mt_text_append(w->out, ",\"joined\":true");
  const char *cause = cause_at(w, place);
  if (cause != NULL) mt_text_append(w->out, ",\"cause\":\"%s\"", cause);
  mt_text_append(w->out, "}}");
}

static void put_complete(writer *w, int32_t rank, int64_t place) {
  const motet_instruction *instruction = &w->program->instructions[place];
  double start = w->trace->start[place], finish = w->trace->finish[place];
  if (!(finish > start)) return;
  begin_event(w, 'X', rank);
  put_name(w, instruction);
  mt_text_append(w->out, ",\"cat\":\"%s\"", category(instruction->kind));
  put_time(w, "ts", start);
  put_time(w, "dur", finish - start);
  put_arguments(w, rank, place);
}

/* An arrow's end: viewers tie it to the slice that encloses its time. */
static void put_flow(writer *w, char phase, int32_t rank, int64_t place, double seconds) {
  const motet_instruction *instruction = &w->program->instructions[place];
  int32_t source = phase == 's' ? rank : instruction->peer, destination = phase == 's' ? instruction->peer : rank;
  begin_event(w, phase, rank);
  mt_text_append(w->out, ",\"name\":\"%s\",\"cat\":\"transfer\",\"id\":\"%d.%d.%d\"",
                 w->program->buffers[instruction->buffer].kind == MOTET_BUFFER_GRADIENT ? "gradient" : "activation",
                 instruction->buffer, source, destination);
  put_time(w, "ts", seconds);
  mt_text_append(w->out, "%s}", phase == 'f' ? ",\"bp\":\"e\"" : "");
}

static bool is_compute(const writer *w, int64_t place) {
  int kind = w->program->instructions[place].kind;
  return (kind <= MOTET_RECOMPUTE || kind == MOTET_OPTIM) && w->trace->finish[place] > w->trace->start[place];
}

/* Arrows leave the compute before a SEND near its end and reach the compute after a receive's WAIT at its start. */
static void put_flows(writer *w, int32_t rank) {
  int64_t begin = w->program->rank_begin[rank], end = w->program->rank_begin[rank + 1];
  const double *start = w->trace->start, *finish = w->trace->finish;
  int64_t producer = -1;
  for (int64_t i = begin; i < end; i++) {
    if (is_compute(w, i)) producer = i;
    if (w->program->instructions[i].kind == MOTET_SEND && producer >= 0)
      put_flow(w, 's', rank, i, finish[producer] - 0.01 * (finish[producer] - start[producer]));
  }
  int64_t consumer = -1;
  for (int64_t i = end - 1; i >= begin; i--) {
    if (is_compute(w, i)) consumer = i;
    if (w->program->instructions[i].kind == MOTET_WAIT && (w->program->instructions[i].flags & MOTET_FLAG_RECV) &&
        consumer >= 0)
      put_flow(w, 'f', rank, i, start[consumer]);
  }
}

static void put_memory(writer *w, int32_t rank) {
  const mt_memory_timeline *memory = w->trace->memory;
  for (int64_t i = memory->begin[rank]; i < memory->begin[rank + 1]; i++) {
    begin_event(w, 'C', rank);
    mt_text_append(w->out, ",\"name\":\"memory of rank %d\"", rank);
    put_time(w, "ts", memory->steps[i].seconds);
    mt_text_append(w->out, ",\"args\":{\"bytes\":%" PRId64 "}}", memory->steps[i].bytes);
  }
}

motet_status mt_report_chrome_trace(const mt_chrome_trace *trace, motet_error *error, mt_text *out) {
  const motet_program *program = trace->program;
  int32_t pipeline = program->replicas > 0 ? program->ranks / program->replicas : program->ranks;
  writer w = {
      .trace = trace, .program = program, .pipeline = pipeline > 0 ? pipeline : 1, .first = true, .out = out};
  mt_text_append(out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"schedule\":");
  mt_report_json_string(out, program->schedule);
  if (trace->title != NULL) {
    mt_text_append(out, ",\"title\":");
    mt_report_json_string(out, trace->title);
  }
  mt_text_append(out, "},\"traceEvents\":[");
  put_metadata(&w);
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) put_complete(&w, rank, i);
    put_flows(&w, rank);
    if (trace->memory != NULL) put_memory(&w, rank);
  }
  mt_text_append(out, "\n]}\n");
  return out->failed ? mt_error_memory(error, out->length, "trace") : MOTET_OK;
}

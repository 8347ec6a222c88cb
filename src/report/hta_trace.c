#include "report/hta_trace.h"

#include "report/words.h"

#include <inttypes.h>

/* Threads and streams of a profile: one of the host, one for compute, one for communication. */
enum { HOST_THREAD = 1, COMPUTE_STREAM = 7, COMMUNICATION_STREAM = 20 };

typedef struct writer {
  const mt_chrome_trace *trace;
  const motet_program *program;
  const int64_t *partners;
  int32_t rank;
  int64_t correlation; /* ties a kernel to its launch */
  mt_text *out;
} writer;

static const char *collective_kernel(int kind) {
  switch (kind) {
  case MOTET_REDUCE: return "ncclDevKernel_Reduce_Sum_bf16_RING_LL";
  case MOTET_REDUCE_SCATTER: return "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL";
  case MOTET_ALL_GATHER: return "ncclDevKernel_AllGather_RING_LL";
  case MOTET_ALL_REDUCE: return "ncclDevKernel_AllReduce_Sum_bf16_RING_LL";
  default: return NULL;
  }
}

static void put_name(writer *w, const motet_instruction *instruction) {
  mt_text name = {0};
  mt_text_append(&name, "%s", motet_instruction_name(instruction->kind));
  if (instruction->stage >= 0) {
    mt_text_append(&name, " ");
    mt_words_stage(&name, w->program, instruction->stage);
  }
  mt_report_json_string(w->out, name.data != NULL ? name.data : "");
  if (name.failed) w->out->failed = true;
  mt_text_free(&name);
}

static void put_span(writer *w, double start, double finish) {
  mt_text_append(w->out, ",\"ts\":%.3f,\"dur\":%.3f", start * 1e6, (finish - start) * 1e6);
}

/* A kernel on a stream, and the host's call that launched it at the same time. */
static void put_kernel(writer *w, const motet_instruction *instruction, const char *kernel, int stream,
                       double start, double finish) {
  if (!(finish > start)) return;
  w->correlation++;
  mt_text_append(w->out,
                 ",\n{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":%d,\"tid\":%d",
                 w->rank, HOST_THREAD);
  put_span(w, start, start);
  mt_text_append(w->out, ",\"args\":{\"correlation\":%" PRId64 "}},\n{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":",
                 w->correlation);
  if (kernel != NULL)
    mt_text_append(w->out, "\"%s\"", kernel);
  else
    put_name(w, instruction);
  mt_text_append(w->out, ",\"pid\":%d,\"tid\":%d", w->rank, stream);
  put_span(w, start, finish);
  mt_text_append(w->out, ",\"args\":{\"device\":%d,\"stream\":%d,\"correlation\":%" PRId64, w->rank, stream,
                 w->correlation);
  if (instruction->microbatch >= 0) mt_text_append(w->out, ",\"microbatch\":%d", instruction->microbatch);
  mt_text_append(w->out, "}}");
}

static void put_instruction(writer *w, int64_t place) {
  const motet_instruction *instruction = &w->program->instructions[place];
  double start = w->trace->start[place], finish = w->trace->finish[place];
  int kind = instruction->kind;
  if (kind <= MOTET_RECOMPUTE || kind == MOTET_OPTIM) {
    put_kernel(w, instruction, NULL, COMPUTE_STREAM, start, finish);
  } else if (kind == MOTET_WAIT && (instruction->flags & MOTET_FLAG_RECV) != 0 && w->partners[place] >= 0) {
    /* Communication is what is left of the wait once the sender has posted; before that the rank is idle. */
    double posted = w->trace->finish[w->partners[place]];
    put_kernel(w, instruction, "ncclDevKernel_SendRecv", COMMUNICATION_STREAM, posted > start ? posted : start,
               finish);
  } else if (collective_kernel(kind) != NULL) {
    put_kernel(w, instruction, collective_kernel(kind), COMMUNICATION_STREAM, start, finish);
  } else if (kind == MOTET_OFFLOAD || kind == MOTET_FETCH) {
    put_kernel(w, instruction,
               kind == MOTET_OFFLOAD ? "Memcpy DtoH (Device -> Pinned)" : "Memcpy HtoD (Pinned -> Device)",
               COMPUTE_STREAM, start, finish);
  }
}

motet_status mt_report_hta_trace(const mt_chrome_trace *trace, int32_t rank, const int64_t *partners,
                                 motet_error *error, mt_text *out) {
  const motet_program *program = trace->program;
  int64_t begin = program->rank_begin[rank], end = program->rank_begin[rank + 1];
  writer w = {.trace = trace, .program = program, .partners = partners, .rank = rank, .out = out};
  /* Readers look for the rank with a pattern that wants a blank behind the colon. */
  mt_text_append(
      out,
      "{\"schemaVersion\":1,\"distributedInfo\":{\"backend\":\"nccl\",\n\"rank\": %d,\n\"world_size\":%d},"
      "\"deviceProperties\":[],\"traceEvents\":[\n"
      "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#1\",\"pid\":%d,\"tid\":%d",
      rank, program->ranks, rank, HOST_THREAD);
  put_span(&w, 0.0, end > begin ? trace->finish[end - 1] : 0.0);
  mt_text_append(out, ",\"args\":{}}");
  for (int64_t i = begin; i < end; i++) put_instruction(&w, i);
  mt_text_append(out, "\n]}\n");
  return out->failed ? mt_error_memory(error, out->length, "trace") : MOTET_OK;
}

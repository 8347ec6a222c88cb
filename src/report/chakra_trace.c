#include "report/chakra_trace.h"

#include "report/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA_VERSION "0.0.4"

/* Numbers of the schema: fields of the messages Node and AttributeProto, node types, collectives. */
enum { VARINT = 0, BYTES = 2 };
enum { METADATA_VERSION = 1 };
enum {
  NODE_ID = 1,
  NODE_NAME = 2,
  NODE_TYPE = 3,
  NODE_DATA_DEPS = 5,
  NODE_START = 6,
  NODE_DURATION = 7,
  NODE_ATTR = 10
};
enum { ATTR_NAME = 1, ATTR_INT32 = 7, ATTR_INT64 = 9, ATTR_UINT64 = 13, ATTR_BOOL = 27, ATTR_STRING = 29 };
enum {
  MEM_LOAD_NODE = 2,
  MEM_STORE_NODE = 3,
  COMP_NODE = 4,
  COMM_SEND_NODE = 5,
  COMM_RECV_NODE = 6,
  COMM_COLL_NODE = 7
};
enum { ALL_REDUCE = 0, REDUCE = 1, ALL_GATHER = 2, REDUCE_SCATTER = 7, BARRIER = 9 };

typedef struct writer {
  const mt_chrome_trace *trace;
  const motet_program *program;
  int32_t rank;
  mt_column *out, node, attribute, dependencies;
  int64_t last;             /* the node that the rank's next blocking one stands behind; 0: none */
  int64_t *posted;          /* [buffers] node of the last post of the buffer on this rank */
  MT_ARRAY(int64_t) waited; /* transfers that the next blocking node has waited for */
  bool failed;
} writer;

static void put_key(mt_column *message, int field, int wire) {
  mt_column_unsigned(message, (uint64_t)(field << 3 | wire));
}

static void put_number(mt_column *message, int field, uint64_t value) {
  put_key(message, field, VARINT);
  mt_column_unsigned(message, value);
}

static void put_bytes(mt_column *message, int field, const uint8_t *bytes, size_t count) {
  put_key(message, field, BYTES);
  mt_column_unsigned(message, count);
  for (size_t i = 0; i < count; i++) mt_column_byte(message, bytes[i]);
}

static void put_text(mt_column *message, int field, const char *text) {
  put_bytes(message, field, (const uint8_t *)text, strlen(text));
}

static void clear(mt_column *message) { message->bytes.count = 0; }

/* Negative numbers of a protobuf int32 or int64 are those of 64 bits. */
static void put_attribute(writer *w, const char *name, int field, int64_t value) {
  clear(&w->attribute);
  put_text(&w->attribute, ATTR_NAME, name);
  put_number(&w->attribute, field, (uint64_t)value);
  put_bytes(&w->node, NODE_ATTR, w->attribute.bytes.data, w->attribute.bytes.count);
}

static void put_text_attribute(writer *w, const char *name, const char *text) {
  clear(&w->attribute);
  put_text(&w->attribute, ATTR_NAME, name);
  put_text(&w->attribute, ATTR_STRING, text);
  put_bytes(&w->node, NODE_ATTR, w->attribute.bytes.data, w->attribute.bytes.count);
}

static void put_message(writer *w, const mt_column *message) {
  mt_column_unsigned(w->out, message->bytes.count);
  for (size_t i = 0; i < message->bytes.count; i++) mt_column_byte(w->out, message->bytes.data[i]);
}

/* A node's id is the instruction's place in its list, from 1. */
static int64_t begin_node(writer *w, int64_t place, int type, bool blocking) {
  int64_t id = place - w->program->rank_begin[w->rank] + 1;
  mt_text name = {0};
  mt_words_instruction(&name, w->program, place);
  clear(&w->node);
  put_number(&w->node, NODE_ID, (uint64_t)id);
  put_text(&w->node, NODE_NAME, name.data != NULL ? name.data : "");
  if (name.failed) w->failed = true;
  mt_text_free(&name);
  put_number(&w->node, NODE_TYPE, (uint64_t)type);
  clear(&w->dependencies);
  if (w->last > 0) mt_column_unsigned(&w->dependencies, (uint64_t)w->last);
  for (size_t i = 0; blocking && i < w->waited.count; i++)
    mt_column_unsigned(&w->dependencies, (uint64_t)w->waited.data[i]);
  if (w->dependencies.bytes.count > 0)
    put_bytes(&w->node, NODE_DATA_DEPS, w->dependencies.bytes.data, w->dependencies.bytes.count);
  double start = w->trace->start[place], finish = w->trace->finish[place];
  put_number(&w->node, NODE_START, (uint64_t)(start * 1e6 + 0.5));
  bool own =
      type == COMP_NODE || type == MEM_LOAD_NODE || type == MEM_STORE_NODE; /* the network says the others' */
  if (own) put_number(&w->node, NODE_DURATION, (uint64_t)((finish - start) * 1e6 + 0.5));
  put_attribute(w, "is_cpu_op", ATTR_BOOL, 0);
  if (blocking) {
    w->waited.count = 0;
    w->last = id;
  }
  return id;
}

static int64_t bytes_of(const writer *w, const motet_instruction *instruction) {
  return instruction->buffer >= 0 ? w->program->buffers[instruction->buffer].bytes : 0;
}

static void put_transfer(writer *w, int64_t place) {
  const motet_instruction *instruction = &w->program->instructions[place];
  bool send = instruction->kind == MOTET_SEND;
  w->posted[instruction->buffer] = begin_node(w, place, send ? COMM_SEND_NODE : COMM_RECV_NODE, false);
  put_attribute(w, "comm_src", ATTR_INT32, send ? w->rank : instruction->peer);
  put_attribute(w, "comm_dst", ATTR_INT32, send ? instruction->peer : w->rank);
  put_attribute(w, "comm_tag", ATTR_INT32, instruction->buffer);
  put_attribute(w, "comm_size", ATTR_INT64, bytes_of(w, instruction));
  put_message(w, &w->node);
}

static void put_collective(writer *w, int64_t place) {
  static const int types[MOTET_INSTRUCTION_KINDS] = {[MOTET_REDUCE] = REDUCE,
                                                     [MOTET_REDUCE_SCATTER] = REDUCE_SCATTER,
                                                     [MOTET_ALL_GATHER] = ALL_GATHER,
                                                     [MOTET_ALL_REDUCE] = ALL_REDUCE,
                                                     [MOTET_STEP_END] = BARRIER};
  const motet_instruction *instruction = &w->program->instructions[place];
  char group[16];
  snprintf(group, sizeof group, "%d", instruction->peer);
  begin_node(w, place, COMM_COLL_NODE, true);
  put_attribute(w, "comm_type", ATTR_INT64, types[instruction->kind]);
  put_attribute(w, "comm_size", ATTR_INT64, bytes_of(w, instruction));
  put_text_attribute(w, "pg_name", group);
  put_message(w, &w->node);
}

static void put_own(writer *w, int64_t place) {
  const motet_instruction *instruction = &w->program->instructions[place];
  int kind = instruction->kind;
  bool memory = kind == MOTET_LOAD || kind == MOTET_FETCH || kind == MOTET_OFFLOAD;
  begin_node(w, place, !memory ? COMP_NODE : kind == MOTET_OFFLOAD ? MEM_STORE_NODE : MEM_LOAD_NODE, true);
  if (memory) {
    const motet_size_table *saved = &w->program->saved_bytes;
    int64_t bytes = kind == MOTET_LOAD || saved->values == NULL
                        ? 0
                        : saved->values[instruction->stage * saved->stage_stride +
                                        instruction->microbatch * saved->microbatch_stride];
    put_attribute(w, "tensor_size", ATTR_UINT64, bytes);
  }
  put_message(w, &w->node);
}

static void put_instruction(writer *w, int64_t place) {
  const motet_instruction *instruction = &w->program->instructions[place];
  int kind = instruction->kind;
  if (kind == MOTET_SEND || kind == MOTET_RECV) {
    put_transfer(w, place);
  } else if (kind == MOTET_WAIT) {
    int64_t post = w->posted[instruction->buffer];
    if (post > 0 && !MT_ARRAY_PUSH(&w->waited, post)) w->failed = true;
  } else if (kind == MOTET_STEP_END || (kind >= MOTET_REDUCE && kind <= MOTET_ALL_REDUCE)) {
    put_collective(w, place);
  } else {
    put_own(w, place);
  }
}

motet_status mt_report_chakra_trace(const mt_chrome_trace *trace, int32_t rank, motet_error *error,
                                    mt_column *out) {
  writer w = {.trace = trace, .program = trace->program, .rank = rank, .out = out};
  w.posted = calloc((size_t)trace->program->buffer_count + 1, sizeof *w.posted);
  if (w.posted == NULL) return mt_error_memory(error, sizeof *w.posted, "a trace");
  put_text(&w.node, METADATA_VERSION, SCHEMA_VERSION);
  put_message(&w, &w.node);
  for (int64_t i = trace->program->rank_begin[rank]; i < trace->program->rank_begin[rank + 1]; i++)
    put_instruction(&w, i);
  bool failed = w.failed || w.node.failed || w.attribute.failed || w.dependencies.failed || out->failed;
  free(w.posted);
  free(w.waited.data);
  mt_column_free(&w.node);
  mt_column_free(&w.attribute);
  mt_column_free(&w.dependencies);
  return failed ? mt_error_memory(error, out->bytes.count, "a trace") : MOTET_OK;
}

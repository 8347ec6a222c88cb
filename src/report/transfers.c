#include "report/transfers.h"

#include <stdbool.h>
#include <stdlib.h>

typedef struct matcher {
  const motet_program *program;
  int64_t *partners;
  int64_t *head,
      *tail;       /* [buffers] instructions of a buffer that nothing has met yet, in program order; -1: none */
  int64_t *next;   /* [instructions] */
  int32_t *sender; /* [instructions] rank of a SEND */
} matcher;

static void forget(matcher *m) {
  for (int64_t buffer = 0; buffer < m->program->buffer_count; buffer++) m->head[buffer] = m->tail[buffer] = -1;
}

static void append(matcher *m, int64_t buffer, int64_t place) {
  m->next[place] = -1;
  if (m->head[buffer] >= 0)
    m->next[m->tail[buffer]] = place;
  else
    m->head[buffer] = place;
  m->tail[buffer] = place;
}

static void take(matcher *m, int64_t buffer, int64_t before, int64_t place) {
  if (before >= 0)
    m->next[before] = m->next[place];
  else
    m->head[buffer] = m->next[place];
  if (m->tail[buffer] == place) m->tail[buffer] = before;
}

static void list_sends(matcher *m) {
  const motet_program *program = m->program;
  forget(m);
  for (int32_t rank = 0; rank < program->ranks; rank++)
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      m->partners[i] = -1;
      if (program->instructions[i].kind != MOTET_SEND) continue;
      m->sender[i] = rank;
      append(m, program->instructions[i].buffer, i);
    }
}

/* Each RECV takes the first SEND of its buffer and channel that is left. */
static void match_receives(matcher *m, int32_t rank) {
  const motet_program *program = m->program;
  for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
    const motet_instruction *receive = &program->instructions[i];
    if (receive->kind != MOTET_RECV) continue;
    int64_t before = -1, send = m->head[receive->buffer];
    for (; send >= 0; before = send, send = m->next[send])
      if (m->sender[send] == receive->peer && program->instructions[send].peer == rank) break;
    if (send < 0) continue;
    take(m, receive->buffer, before, send);
    m->partners[i] = send;
    m->partners[send] = i;
  }
}

/* Each WAIT takes the first post of its buffer, channel and direction on its rank that is left. */
static void match_waits(matcher *m, int32_t rank, bool receives) {
  const motet_program *program = m->program;
  int kind = receives ? MOTET_RECV : MOTET_SEND;
  for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
    const motet_instruction *wait = &program->instructions[i];
    if (wait->kind == kind) append(m, wait->buffer, i);
    if (wait->kind != MOTET_WAIT || ((wait->flags & MOTET_FLAG_RECV) != 0) != receives) continue;
    int64_t before = -1, post = m->head[wait->buffer];
    for (; post >= 0; before = post, post = m->next[post])
      if (program->instructions[post].peer == wait->peer) break;
    if (post < 0) continue;
    take(m, wait->buffer, before, post);
    m->partners[i] = m->partners[post];
    if (receives && m->partners[i] >= 0) m->partners[m->partners[i]] = i;
  }
  /* Posts without a WAIT are of no use to other ranks. */
  for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
    if (program->instructions[i].kind != kind) continue;
    m->head[program->instructions[i].buffer] = m->tail[program->instructions[i].buffer] = -1;
  }
}

motet_status mt_transfer_partners(const motet_program *program, motet_error *error, int64_t **partners) {
  size_t count = (size_t)program->rank_begin[program->ranks], buffers = (size_t)program->buffer_count;
  matcher m = {.program = program,
               .partners = calloc(count + 1, sizeof(int64_t)),
               .head = calloc(buffers + 1, sizeof(int64_t)),
               .tail = calloc(buffers + 1, sizeof(int64_t)),
               .next = calloc(count + 1, sizeof(int64_t)),
               .sender = calloc(count + 1, sizeof(int32_t))};
  motet_status status = MOTET_OK;
  if (m.partners == NULL || m.head == NULL || m.tail == NULL || m.next == NULL || m.sender == NULL) {
    status = mt_error_memory(error, count * 2 * sizeof(int64_t), "the ends of transfers");
  } else {
    list_sends(&m);
    for (int32_t rank = 0; rank < program->ranks; rank++) match_receives(&m, rank);
    forget(&m);
    for (int32_t rank = 0; rank < program->ranks; rank++) match_waits(&m, rank, true);
    for (int32_t rank = 0; rank < program->ranks; rank++) match_waits(&m, rank, false);
    *partners = m.partners;
    m.partners = NULL;
  }
  free(m.partners);
  free(m.head);
  free(m.tail);
  free(m.next);
  free(m.sender);
  return status;
}

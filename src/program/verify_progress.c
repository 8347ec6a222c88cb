/* Rule 4: the lists run to their ends as machines that meet. Posts do not block; a WAIT blocks until the other end
 * is posted; a collective, and compute that a group shares, until all members are there. Which machine runs first
 * makes no difference to where they come to stand, so that one run decides. In the blocking reading SEND and RECV
 * block instead, and WAIT does not.
 */
#include "program/verify.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct machine {
  mt_verifier *verifier;
  bool blocking;
  const int32_t *buffered_behind; /* [buffers] blocking, with buffers: the receive that frees a place for the send,
                                     as buffer, or -1 where there is one from the start; else NULL */
  int32_t *position;              /* [ranks] next instruction */
  int32_t *awaited;               /* [ranks] rank that it waits for, or -1 */
  int32_t *needed;                /* [ranks] position that the awaited rank must reach */
  int32_t *awaited_group;         /* [ranks] group that it stands in, or -1 */
  int32_t *first_waiter, *next_waiter; /* [ranks] who waits for a rank */
  int32_t *lowest_needed;              /* [ranks] least position that somebody waits for */
  int32_t *arrived, *group_waiter;     /* [groups] members there, the last of them (linked by next_waiter) */
  int32_t *ready, ready_count;         /* [ranks] ranks to run */
} machine;

enum { NOBODY = -1 };

static bool machine_make(machine *m, mt_verifier *verifier, bool blocking) {
  size_t ranks = (size_t)verifier->program->ranks, groups = (size_t)verifier->program->group_count;
  *m = (machine){.verifier = verifier, .blocking = blocking};
  int32_t **arrays[] = {&m->position,     &m->awaited,     &m->needed,        &m->awaited_group,
                        &m->first_waiter, &m->next_waiter, &m->lowest_needed, &m->ready};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
    *arrays[i] = mt_verify_array(verifier, ranks, sizeof **arrays[i]);
    if (*arrays[i] == NULL) return false;
  }
  m->arrived = mt_verify_array(verifier, groups, sizeof *m->arrived);
  m->group_waiter = mt_verify_array(verifier, groups, sizeof *m->group_waiter);
  if (m->arrived == NULL || m->group_waiter == NULL) return false;
  for (size_t i = 0; i < ranks; i++) {
    m->awaited[i] = m->awaited_group[i] = m->first_waiter[i] = NOBODY;
    m->lowest_needed[i] = INT32_MAX;
    m->ready[i] = (int32_t)(ranks - 1 - i); /* a stack: rank 0 runs first */
  }
  for (size_t i = 0; i < groups; i++) m->group_waiter[i] = NOBODY;
  m->ready_count = (int32_t)ranks;
  return true;
}

/* The position that the peer must reach before @p instruction may be passed; 0 where it does not block. Stored
 * positions count from 1, so that "has passed the post" is "has reached the stored position". */
static int32_t needed_position(const machine *m, const motet_instruction *instruction) {
  if (instruction->kind != MOTET_WAIT && instruction->kind != MOTET_SEND && instruction->kind != MOTET_RECV)
    return 0;
  const mt_verify_transfer *transfers = m->verifier->transfers;
  const mt_verify_transfer *transfer = &transfers[instruction->buffer];
  if (!m->blocking) {
    if (instruction->kind != MOTET_WAIT) return 0;
    return (instruction->flags & MOTET_FLAG_RECV) != 0 ? transfer->send_position : transfer->recv_position;
  }
  if (instruction->kind == MOTET_WAIT) return 0;
  if (instruction->kind == MOTET_RECV) return transfer->send_position - 1;
  if (m->buffered_behind == NULL) return transfer->recv_position - 1;
  int32_t behind = m->buffered_behind[instruction->buffer];
  return behind < 0 ? 0 : transfers[behind].recv_position;
}

/* Joins the group's collective. True where this was the last member: all are sent on. */
static bool join_group(machine *m, int32_t rank, int32_t group) {
  if (++m->arrived[group] < m->verifier->program->groups[group].count) {
    m->awaited_group[rank] = group;
    m->next_waiter[rank] = m->group_waiter[group];
    m->group_waiter[group] = rank;
    return false;
  }
  for (int32_t member = m->group_waiter[group]; member != NOBODY; member = m->next_waiter[member]) {
    m->awaited_group[member] = NOBODY;
    m->position[member]++;
    m->ready[m->ready_count++] = member;
  }
  m->arrived[group] = 0;
  m->group_waiter[group] = NOBODY;
  return true;
}

/* Runs a rank until it blocks or ends. */
static void run_rank(machine *m, int32_t rank) {
  const motet_program *p = m->verifier->program;
  const motet_instruction *list = p->instructions + p->rank_begin[rank];
  int32_t length = (int32_t)(p->rank_begin[rank + 1] - p->rank_begin[rank]);
  int32_t *position = &m->position[rank];
  while (*position < length) {
    const motet_instruction *instruction = &list[*position];
    bool collective = instruction->kind >= MOTET_REDUCE && instruction->kind <= MOTET_ALL_REDUCE;
    if (collective || instruction->kind == MOTET_STEP_END || mt_is_shared(p, instruction)) {
      if (!join_group(m, rank, instruction->peer)) return;
      ++*position;
      continue;
    }
    int32_t needed = needed_position(m, instruction), peer = instruction->peer;
    if (needed > 0 && m->position[peer] < needed) {
      m->awaited[rank] = peer;
      m->needed[rank] = needed;
      m->next_waiter[rank] = m->first_waiter[peer];
      m->first_waiter[peer] = rank;
      if (needed < m->lowest_needed[peer]) m->lowest_needed[peer] = needed;
      return;
    }
    ++*position;
  }
}

/* Sends on those who waited for a position that @p rank has reached. */
static void wake_waiters(machine *m, int32_t rank) {
  if (m->position[rank] < m->lowest_needed[rank]) return;
  int32_t waiter = m->first_waiter[rank];
  m->first_waiter[rank] = NOBODY;
  m->lowest_needed[rank] = INT32_MAX;
  while (waiter != NOBODY) {
    int32_t next = m->next_waiter[waiter];
    if (m->needed[waiter] <= m->position[rank]) {
      m->awaited[waiter] = NOBODY;
      m->ready[m->ready_count++] = waiter;
    } else {
      m->next_waiter[waiter] = m->first_waiter[rank];
      m->first_waiter[rank] = waiter;
      if (m->needed[waiter] < m->lowest_needed[rank]) m->lowest_needed[rank] = m->needed[waiter];
    }
    waiter = next;
  }
}

/* Runs all; the first rank that is left standing, or NOBODY. */
static int32_t run_machine(machine *m) {
  const motet_program *p = m->verifier->program;
  while (m->ready_count > 0) {
    int32_t rank = m->ready[--m->ready_count];
    run_rank(m, rank);
    wake_waiters(m, rank);
  }
  for (int32_t rank = 0; rank < p->ranks; rank++) {
    if (m->position[rank] < p->rank_begin[rank + 1] - p->rank_begin[rank]) return rank;
  }
  return NOBODY;
}

/* Whom a standing rank waits for: a member that has not come, of a group. */
static int32_t awaited_rank(const machine *m, int32_t rank) {
  const motet_program *p = m->verifier->program;
  int32_t group = m->awaited_group[rank];
  if (group == NOBODY) return m->awaited[rank];
  for (int32_t i = 0; i < p->groups[group].count; i++) {
    int32_t member = p->group_ranks[p->groups[group].first + i];
    if (m->awaited_group[member] != group) return member;
  }
  return NOBODY;
}

/* Follows the waiting from @p rank until it closes. The ranks of the cycle, the lowest first, are left in
 * @p cycle ([ranks]); their number is returned, 0 where somebody waits for a rank that has ended. */
static int32_t find_cycle(const machine *m, int32_t rank, int32_t *cycle, int32_t *seen) {
  int32_t steps = 0;
  while (rank != NOBODY && seen[rank] == 0) {
    seen[rank] = ++steps;
    cycle[steps - 1] = rank;
    rank = awaited_rank(m, rank);
  }
  if (rank == NOBODY) return 0;
  int32_t begin = seen[rank] - 1, count = steps - begin, lowest = begin;
  for (int32_t i = begin; i < steps; i++) {
    if (cycle[i] < cycle[lowest]) lowest = i;
  }
  /* `seen` is not needed any more: it takes the turned cycle. */
  for (int32_t i = 0; i < count; i++) seen[i] = cycle[begin + (lowest - begin + i) % count];
  for (int32_t i = 0; i < count; i++) cycle[i] = seen[i];
  return count;
}

static motet_status publish_cycle(machine *m, const int32_t *cycle, int32_t count) {
  motet_verification *verification = m->verifier->verification;
  if (verification == NULL || count == 0) return MOTET_OK;
  size_t bytes = 2 * (size_t)count * sizeof *verification->cycle;
  verification->cycle = malloc(bytes);
  if (verification->cycle == NULL) return mt_error_memory(m->verifier->error, bytes, "the waiting cycle");
  verification->cycle_count = count;
  for (int32_t i = 0; i < count; i++) {
    verification->cycle[2 * i] = cycle[i];
    verification->cycle[2 * i + 1] = m->position[cycle[i]];
  }
  return MOTET_OK;
}

/* The first members of the cycle in words. */
static void describe_cycle(const machine *m, const int32_t *cycle, int32_t count, char *text, size_t size) {
  const motet_program *p = m->verifier->program;
  size_t length = 0;
  text[0] = '\0';
  for (int32_t i = 0; i < count && i < 4; i++) {
    char words[MT_VERIFY_TEXT_SIZE];
    int32_t rank = cycle[i];
    mt_verify_instruction_text(m->verifier, &p->instructions[p->rank_begin[rank] + m->position[rank]], words);
    int written = snprintf(text + length, size - length, "%srank %d stands at instruction %d (%s)",
                           i > 0 ? ", which waits: " : "", rank, m->position[rank], words);
    if (written < 0 || (size_t)written >= size - length) return;
    length += (size_t)written;
  }
}

/* Runs one reading. @p count is the cycle's length, 0 without a cycle; @p standing a rank that stands, or NOBODY.
 */
static motet_status judge(machine *m, int32_t *standing, int32_t **cycle, int32_t *count) {
  size_t ranks = (size_t)m->verifier->program->ranks;
  *count = 0;
  *standing = run_machine(m);
  if (*standing == NOBODY) return MOTET_OK;
  int32_t *seen = mt_verify_array(m->verifier, ranks, sizeof *seen);
  *cycle = mt_verify_array(m->verifier, ranks, sizeof **cycle);
  if (seen == NULL || *cycle == NULL) return MOTET_ERROR_MEMORY;
  *count = find_cycle(m, *standing, *cycle, seen);
  return publish_cycle(m, *cycle, *count);
}

/* Buffers only ever make a WAIT for a send shorter: what finishes without them finishes with them. */
motet_status mt_verify_progress(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  machine m;
  int32_t standing, count, *cycle;
  if (!machine_make(&m, verifier, false)) return MOTET_ERROR_MEMORY;
  motet_status status = judge(&m, &standing, &cycle, &count);
  if (status != MOTET_OK || standing == NOBODY) return status;
  int32_t rank = count > 0 ? cycle[0] : standing;
  char text[MOTET_ERROR_TEXT_SIZE / 2];
  describe_cycle(&m, count > 0 ? cycle : &standing, count > 0 ? count : 1, text, sizeof text);
  return mt_verify_refuse(
      verifier, MT_RULE_PROGRESS, rank, m.position[rank],
      p->instructions[p->rank_begin[rank] + m.position[rank]].microbatch,
      "hangs with transfers posted and no send buffered, %d ranks waiting in a circle: %s, which "
      "waits for the first; the posts must stand before these WAITs on the other side",
      count, text);
}

/* Sends of one rank to another, while `rank` is the sender + 1. */
typedef struct channel {
  int32_t rank, last; /* the last buffer sent */
  int32_t behind;     /* the one `capacity` before it */
} channel;

/* For every buffer the one whose receive frees the place that its send takes: `capacity` before it on its
 * channel. */
static motet_status find_buffered(mt_verifier *verifier, int32_t capacity, int32_t *behind) {
  const motet_program *p = verifier->program;
  channel *channels = mt_verify_array(verifier, (size_t)p->ranks, sizeof *channels);
  int32_t *next = mt_verify_array(verifier, (size_t)p->buffer_count, sizeof *next);
  if (channels == NULL || next == NULL) return MOTET_ERROR_MEMORY;
  for (int32_t rank = 0; rank < p->ranks; rank++) {
    for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
      if (p->instructions[i].kind != MOTET_SEND) continue;
      int32_t buffer = p->instructions[i].buffer, number = verifier->transfers[buffer].send_number;
      channel *sent = &channels[p->instructions[i].peer];
      if (sent->rank != rank + 1) {
        *sent = (channel){.rank = rank + 1, .last = buffer, .behind = buffer};
      } else {
        next[sent->last] = buffer;
        sent->last = buffer;
        if (number > capacity) sent->behind = next[sent->behind];
      }
      behind[buffer] = number >= capacity ? sent->behind : -1;
    }
  }
  return MOTET_OK;
}

motet_status mt_verify_blocking(mt_verifier *verifier) {
  if (!verifier->options.check_blocking || verifier->verification == NULL) return MOTET_OK;
  machine m;
  int32_t standing, count, *cycle;
  if (!machine_make(&m, verifier, true)) return MOTET_ERROR_MEMORY;
  if (verifier->options.capacity > 0) {
    int32_t *behind = mt_verify_array(verifier, (size_t)verifier->program->buffer_count, sizeof *behind);
    if (behind == NULL || find_buffered(verifier, verifier->options.capacity, behind) != MOTET_OK)
      return MOTET_ERROR_MEMORY;
    m.buffered_behind = behind;
  }
  motet_status status = judge(&m, &standing, &cycle, &count);
  if (status == MOTET_OK) verifier->verification->blocking_hangs = standing != NOBODY;
  return status;
}

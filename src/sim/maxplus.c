/* The (max,+) form: the finish of every instruction and transfer is the largest finish among what it waits for,
 * plus its own duration. Dependencies are written out first, by sorting, and the recurrence then runs once in
 * topological order; nothing of the event engine takes part. */
#include "sim/costs.h"
#include "sim/simulate.h"

#include <stdlib.h>

/* A transfer's two ends and waits are matched by position among their likes: same buffer, same direction. */
typedef struct transfer_end {
  int32_t buffer, source, destination;
  int32_t role; /* 0 SEND, 1 RECV, 2 WAIT for the send, 3 WAIT for the receive */
  int64_t instruction;
  int64_t ordinal; /* among ends alike, in list order */
} transfer_end;

enum { ROLES = 4 };

typedef struct graph {
  const motet_program *program;
  int64_t instructions, transfers, meetings, nodes; /* nodes: instructions, then transfers, then meetings */
  int64_t *extra;               /* [instructions] node behind a SEND, RECV; meeting node of a collective; else -1 */
  int64_t *waits;               /* [2 x transfers] WAIT instructions of the two sides, or -1 */
  int32_t *missing;             /* [nodes] predecessors not yet finished */
  double *finish;               /* [nodes] largest predecessor so far, then the finish */
  double *duration;             /* [nodes] */
  int64_t *joins_begin, *joins; /* [meetings + 1] and the collective instructions of each meeting */
  uint8_t *last;                /* [instructions] the rank's list ends here */
  int64_t *ready, ready_count;  /* stack of nodes whose predecessors are finished */
} graph;

static int compare_ends(const void *left, const void *right) {
  const transfer_end *a = left, *b = right;
  if (a->buffer != b->buffer) return a->buffer < b->buffer ? -1 : 1;
  if (a->source != b->source) return a->source < b->source ? -1 : 1;
  if (a->destination != b->destination) return a->destination < b->destination ? -1 : 1;
  if (a->ordinal != b->ordinal) return a->ordinal < b->ordinal ? -1 : 1;
  if (a->role != b->role) return a->role < b->role ? -1 : 1;
  return (a->instruction > b->instruction) - (a->instruction < b->instruction);
}

static int compare_ends_by_role(const void *left, const void *right) {
  const transfer_end *a = left, *b = right;
  if (a->buffer != b->buffer) return a->buffer < b->buffer ? -1 : 1;
  if (a->source != b->source) return a->source < b->source ? -1 : 1;
  if (a->destination != b->destination) return a->destination < b->destination ? -1 : 1;
  if (a->role != b->role) return a->role < b->role ? -1 : 1;
  return (a->instruction > b->instruction) - (a->instruction < b->instruction);
}

static bool same_channel(const transfer_end *a, const transfer_end *b) {
  return a->buffer == b->buffer && a->source == b->source && a->destination == b->destination;
}

static int64_t collect_ends(const motet_program *program, transfer_end *ends) {
  int64_t count = 0;
  for (int32_t rank = 0; rank < program->ranks; rank++)
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      const motet_instruction *at = &program->instructions[i];
      int32_t role = at->kind == MOTET_SEND   ? 0
                     : at->kind == MOTET_RECV ? 1
                     : at->kind == MOTET_WAIT ? ((at->flags & MOTET_FLAG_RECV) != 0 ? 3 : 2)
                                              : -1;
      if (role < 0) continue;
      bool outgoing = role == 0 || role == 2;
      if (ends != NULL)
        ends[count] = (transfer_end){.buffer = at->buffer,
                                     .source = outgoing ? rank : at->peer,
                                     .destination = outgoing ? at->peer : rank,
                                     .role = role,
                                     .instruction = i};
      count++;
    }
  return count;
}

/* Sorts the ends so that those of one transfer stand together: k-th SEND, k-th RECV, k-th WAITs of a channel. */
static int64_t match_ends(transfer_end *ends, int64_t count) {
  qsort(ends, (size_t)count, sizeof *ends, compare_ends_by_role);
  for (int64_t i = 1; i < count; i++)
    if (same_channel(&ends[i], &ends[i - 1]) && ends[i].role == ends[i - 1].role)
      ends[i].ordinal = ends[i - 1].ordinal + 1;
  qsort(ends, (size_t)count, sizeof *ends, compare_ends);
  int64_t transfers = 0;
  for (int64_t i = 0; i < count; i++)
    transfers += i == 0 || !same_channel(&ends[i], &ends[i - 1]) || ends[i].ordinal != ends[i - 1].ordinal;
  return transfers;
}

static void link_transfers(graph *g, const mt_cost_table *table, const transfer_end *ends, int64_t count) {
  int64_t transfer = -1;
  for (int64_t i = 0; i < count; i++) {
    if (i == 0 || !same_channel(&ends[i], &ends[i - 1]) || ends[i].ordinal != ends[i - 1].ordinal) {
      int64_t node = g->instructions + ++transfer;
      g->waits[2 * transfer] = g->waits[2 * transfer + 1] = -1;
      g->missing[node] = 2; /* an end that no list posts keeps its waits from ever finishing */
      g->duration[node] = mt_sim_transfer_seconds(&table->links, ends[i].source, ends[i].destination,
                                                  g->program->buffers[ends[i].buffer].bytes);
    }
    if (ends[i].role < 2) {
      g->extra[ends[i].instruction] = g->instructions + transfer;
    } else {
      g->waits[2 * transfer + ends[i].role - 2] = ends[i].instruction;
      g->missing[ends[i].instruction]++;
    }
  }
}

/* The k-th collective or shared compute of every member of a group is one meeting. */
static motet_status link_meetings(mt_arena *arena, graph *g, const mt_sim_costs *costs, motet_error *error) {
  const mt_cost_table *table = costs->table;
  const motet_program *program = g->program;
  int64_t groups = program->group_count;
  int64_t *most = MT_ARENA_NEW(arena, int64_t, groups + 1), *seen = MT_ARENA_NEW(arena, int64_t, groups);
  int32_t *touched = MT_ARENA_NEW(arena, int32_t, groups);
  if (most == NULL || seen == NULL || touched == NULL) goto memory;
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t i = 0; i < groups; i++) touched[i] = -1;
    for (int32_t rank = 0; rank < program->ranks; rank++)
      for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
        const motet_instruction *at = &program->instructions[i];
        bool shared = mt_is_shared(program, at);
        if (!mt_sim_is_collective(at->kind) && !shared) continue;
        if (touched[at->peer] != rank) seen[at->peer] = 0;
        touched[at->peer] = rank;
        int64_t ordinal = seen[at->peer]++;
        if (pass == 0) {
          if (seen[at->peer] > most[at->peer + 1]) most[at->peer + 1] = seen[at->peer];
          continue;
        }
        int64_t node = g->instructions + g->transfers + most[at->peer] + ordinal;
        int64_t bytes = at->kind == MOTET_STEP_END ? 0 : mt_sim_buffer_bytes(program, at);
        double seconds = shared ? mt_sim_seconds(costs, rank, at)
                                : mt_sim_collective_seconds(&table->links, program, at->peer, at->kind, bytes);
        if (seconds > g->duration[node]) g->duration[node] = seconds;
        g->extra[i] = node;
        g->missing[node] = program->groups[at->peer].count;
      }
    if (pass == 1) break;
    for (int64_t i = 0; i < groups; i++) most[i + 1] += most[i];
    g->meetings = most[groups];
    g->nodes = g->instructions + g->transfers + g->meetings;
    g->missing = MT_ARENA_NEW(arena, int32_t, g->nodes);
    g->finish = MT_ARENA_NEW(arena, double, g->nodes);
    g->duration = MT_ARENA_NEW(arena, double, g->nodes);
    if (g->missing == NULL || g->finish == NULL || g->duration == NULL) goto memory;
  }
  return MOTET_OK;
memory:
  return mt_error_memory(error, (unsigned long long)g->nodes * sizeof(double), "(max,+) recurrence");
}

static motet_status link_lists(mt_arena *arena, graph *g, const mt_sim_costs *costs, motet_error *error) {
  const motet_program *program = g->program;
  int64_t first_meeting = g->instructions + g->transfers;
  g->last = MT_ARENA_NEW(arena, uint8_t, g->instructions);
  g->joins_begin = MT_ARENA_NEW(arena, int64_t, g->meetings + 2);
  g->joins = MT_ARENA_NEW(arena, int64_t, g->instructions);
  g->ready = MT_ARENA_NEW(arena, int64_t, g->nodes);
  if (g->last == NULL || g->joins_begin == NULL || g->joins == NULL || g->ready == NULL)
    return mt_error_memory(error, (unsigned long long)g->nodes * sizeof(int64_t), "(max,+) recurrence");
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    int64_t begin = program->rank_begin[rank], end = program->rank_begin[rank + 1];
    for (int64_t i = begin; i < end; i++) {
      g->duration[i] = mt_sim_seconds(costs, rank, &program->instructions[i]);
      if (i > begin) g->missing[i]++;
      if (g->extra[i] >= first_meeting) g->joins_begin[g->extra[i] - first_meeting + 2]++;
    }
    if (end > begin) g->last[end - 1] = 1;
  }
  for (int64_t meeting = 0; meeting < g->meetings; meeting++)
    g->joins_begin[meeting + 2] += g->joins_begin[meeting + 1];
  for (int64_t i = 0; i < g->instructions; i++)
    if (g->extra[i] >= first_meeting) g->joins[g->joins_begin[g->extra[i] - first_meeting + 1]++] = i;
  return MOTET_OK;
}

static void feed(graph *g, int64_t node, double finish) {
  if (finish > g->finish[node]) g->finish[node] = finish;
  if (--g->missing[node] == 0) g->ready[g->ready_count++] = node;
}

static void feed_next(graph *g, int64_t instruction) {
  if (!g->last[instruction]) feed(g, instruction + 1, g->finish[instruction]);
}

/* Runs the recurrence; the number of instructions that finished. */
static int64_t run(graph *g) {
  int64_t done = 0, first_meeting = g->instructions + g->transfers;
  for (int32_t rank = 0; rank < g->program->ranks; rank++) {
    int64_t begin = g->program->rank_begin[rank];
    if (begin < g->program->rank_begin[rank + 1] && g->missing[begin] == 0) g->ready[g->ready_count++] = begin;
  }
  while (g->ready_count > 0) {
    int64_t node = g->ready[--g->ready_count];
    if (node < g->instructions && g->extra[node] >= first_meeting) { /* arrives; ends when the meeting does */
      feed(g, g->extra[node], g->finish[node]);
      continue;
    }
    g->finish[node] += g->duration[node];
    if (node < g->instructions) {
      done++;
      if (g->extra[node] >= 0) feed(g, g->extra[node], g->finish[node]);
      feed_next(g, node);
    } else if (node < first_meeting) {
      for (int side = 0; side < 2; side++) {
        int64_t wait = g->waits[2 * (node - g->instructions) + side];
        if (wait >= 0) feed(g, wait, g->finish[node]);
      }
    } else {
      for (int64_t at = g->joins_begin[node - first_meeting]; at < g->joins_begin[node - first_meeting + 1]; at++) {
        g->finish[g->joins[at]] = g->finish[node];
        done++;
        feed_next(g, g->joins[at]);
      }
    }
  }
  return done;
}

motet_status mt_simulate_max_plus(mt_arena *arena, const motet_program *program, const mt_cost_table *table,
                                  motet_error *error, double *makespan, double *finish) {
  const mt_links *links = &table->links;
  if (links->shared_nic && links->ranks_per_node > 0 && program->ranks > links->ranks_per_node)
    return mt_error_set(error, MOTET_ERROR_UNSUPPORTED,
                        "a (max,+) recurrence cannot state links that transfers share; simulate instead");
  graph g = {.program = program, .instructions = program->rank_begin[program->ranks]};
  mt_sim_costs costs;
  motet_status status = mt_sim_costs_make(arena, program, table, error, &costs);
  if (status != MOTET_OK) return status;

  int64_t ends_count = collect_ends(program, NULL);
  transfer_end *ends = MT_ARENA_NEW(arena, transfer_end, ends_count);
  g.extra = MT_ARENA_NEW(arena, int64_t, g.instructions);
  if (ends == NULL || g.extra == NULL) goto memory;
  for (int64_t i = 0; i < g.instructions; i++) g.extra[i] = -1;
  collect_ends(program, ends);
  g.transfers = match_ends(ends, ends_count);
  g.waits = MT_ARENA_NEW(arena, int64_t, 2 * g.transfers);
  if (g.waits == NULL) goto memory;
  status = link_meetings(arena, &g, &costs, error);
  if (status != MOTET_OK) return status;
  link_transfers(&g, table, ends, ends_count);
  status = link_lists(arena, &g, &costs, error);
  if (status != MOTET_OK) return status;

  int64_t done = run(&g);
  if (done < g.instructions)
    return mt_error_set(error, MOTET_ERROR_FAILED, "the program hangs: %lld of %lld instructions can never run",
                        (long long)(g.instructions - done), (long long)g.instructions);
  *makespan = 0.0;
  for (int64_t i = 0; i < g.instructions; i++) {
    if (g.finish[i] > *makespan) *makespan = g.finish[i];
    if (finish != NULL) finish[i] = g.finish[i];
  }
  return MOTET_OK;
memory:
  return mt_error_memory(error, (unsigned long long)ends_count * sizeof(transfer_end), "(max,+) recurrence");
}

#include "sim/memory.h"

#include "base/array.h"
#include "program/columns.h"

#include <inttypes.h>
#include <stdlib.h>

enum { NEVER = -1, TO_THE_END = -2 };

/* Bytes held on a rank from the start of instruction `birth` to the end of instruction `last`. Joined instructions
 * are one computation: what one of them makes or reads is there from the first one's start to the last one's end.
 */
typedef struct interval {
  int64_t bytes;
  int64_t birth, last; /* flat indices; last may be NEVER (nobody uses it: not held at all) or TO_THE_END */
  int32_t rank;
} interval;

typedef struct edge_lists {
  int32_t *begin; /* [stages + 1] */
  int32_t *edges;
} edge_lists;

/* Which interval a piece of data has now: index + 1, or 0. */
typedef struct ledger {
  const motet_program *program;
  MT_ARRAY(interval) intervals;
  edge_lists in, out;
  int32_t columns;
  int32_t *first_column;               /* [microbatches + 1] */
  int32_t *saved, *output;             /* [stages x columns] */
  int32_t *arrived, *arrived_gradient; /* [edges x columns] received here */
  int32_t *made_gradient;              /* [edges x columns] made here, on its way back along the edge */
  int32_t rank;
  int64_t first, last; /* flat indices: the instruction, or the first and last of those joined with it */
  bool failed;
} ledger;

static int64_t table_bytes(const motet_size_table *table, int32_t stage, int32_t column) {
  if (table->values == NULL) return 0;
  return table->values[stage * table->stage_stride + column * table->microbatch_stride];
}

static bool list_edges(mt_arena *arena, const motet_program *program, bool incoming, edge_lists *lists) {
  lists->begin = MT_ARENA_NEW(arena, int32_t, (size_t)program->stage_count + 2);
  lists->edges = MT_ARENA_NEW(arena, int32_t, program->edge_count);
  if (lists->begin == NULL || lists->edges == NULL) return false;
  for (int round = 0; round < 2; round++) { /* counts, then places: begin[s + 1] runs through the part of s */
    for (int32_t edge = 0; edge < program->edge_count; edge++) {
      int32_t stage = incoming ? program->edges[edge].to : program->edges[edge].from;
      if (round == 0)
        lists->begin[stage + 2]++;
      else
        lists->edges[lists->begin[stage + 1]++] = edge;
    }
    for (int32_t stage = 0; round == 0 && stage < program->stage_count; stage++)
      lists->begin[stage + 2] += lists->begin[stage + 1];
  }
  return true;
}

/* What the instruction makes. */
static int32_t open_interval(ledger *l, int64_t bytes, int64_t last) {
  interval fresh = {.bytes = bytes, .birth = l->first, .last = last, .rank = l->rank};
  if (l->intervals.count >= INT32_MAX - 1 || !MT_ARRAY_PUSH(&l->intervals, fresh)) {
    l->failed = true;
    return 0;
  }
  return (int32_t)l->intervals.count;
}

/* The instruction uses data that lie on this rank; false where they do not lie here. */
static bool use(ledger *l, int32_t slot) {
  if (slot == 0 || l->intervals.data[slot - 1].rank != l->rank) return false;
  l->intervals.data[slot - 1].last = l->last;
  return true;
}

static int64_t cell(const ledger *l, int32_t row, int32_t column) { return (int64_t)row * l->columns + column; }

static bool replicated(const ledger *l, int32_t stage) {
  return l->program->regions[l->program->stages[stage].region].replicated;
}

/* A column, and the end of those whose parts make up what stands in it: a replicated stage's microbatch is whole.
 */
typedef struct place_in {
  int32_t column, end;
} place_in;

static place_in place_of(const ledger *l, const motet_instruction *instruction) {
  if (instruction->range == 0 && l->program->share_count > 0)
    return (place_in){l->first_column[instruction->microbatch], l->first_column[instruction->microbatch + 1]};
  int32_t column = mt_column_of(l->program, l->rank, instruction);
  if (column < 0) column = 0; /* no member: nothing that a verified program has */
  return (place_in){column, column + 1};
}

static int64_t whole_bytes(const motet_size_table *table, int32_t stage, place_in at) {
  int64_t bytes = 0;
  for (int32_t column = at.column; column < at.end; column++) bytes += table_bytes(table, stage, column);
  return bytes;
}

/* The column of a piece's producer or consumer. */
static int32_t home(const ledger *l, const motet_instruction *instruction, int32_t stage, int32_t piece) {
  return replicated(l, stage) ? l->first_column[instruction->microbatch] : piece;
}

/* Whether a piece flows along an edge: a share without features reads nothing of what an encoder makes. */
static bool flows(const ledger *l, int32_t edge, int32_t piece) {
  const motet_program_edge *ends = &l->program->edges[edge];
  return l->program->share_count == 0 || l->program->shares[piece].features > 0 || !replicated(l, ends->from) ||
         replicated(l, ends->to);
}

static void read_inputs(ledger *l, const motet_instruction *instruction) {
  place_in at = place_of(l, instruction);
  for (int32_t i = l->in.begin[instruction->stage]; i < l->in.begin[instruction->stage + 1]; i++) {
    int32_t edge = l->in.edges[i], from = l->program->edges[edge].from;
    for (int32_t piece = at.column; piece < at.end; piece++)
      if (flows(l, edge, piece) && !use(l, l->arrived[cell(l, edge, piece)]))
        use(l, l->output[cell(l, from, home(l, instruction, from, piece))]);
  }
}

static void walk_forward(ledger *l, const motet_instruction *instruction) {
  int32_t stage = instruction->stage;
  place_in at = place_of(l, instruction);
  int64_t saved = whole_bytes(&l->program->saved_bytes, stage, at);
  int64_t output = whole_bytes(&l->program->output_bytes, stage, at);
  bool next = (instruction->flags & MOTET_FLAG_NEXT) != 0;
  int32_t saved_interval = open_interval(l, saved, l->last);
  int32_t output_interval = open_interval(l, output, next ? TO_THE_END : NEVER);
  if (next) return;
  l->saved[cell(l, stage, at.column)] = saved_interval;
  l->output[cell(l, stage, at.column)] = output_interval;
  read_inputs(l, instruction);
}

/* Saved activations come back: computed again, or from the host. */
static void walk_restore(ledger *l, const motet_instruction *instruction) {
  place_in at = place_of(l, instruction);
  int64_t bytes = whole_bytes(&l->program->saved_bytes, instruction->stage, at);
  l->saved[cell(l, instruction->stage, at.column)] = open_interval(l, bytes, l->last);
  if (instruction->kind == MOTET_RECOMPUTE) read_inputs(l, instruction);
}

static void use_saved(ledger *l, const motet_instruction *instruction) {
  use(l, l->saved[cell(l, instruction->stage, place_of(l, instruction).column)]);
}

static void walk_backward(ledger *l, const motet_instruction *instruction) {
  int32_t stage = instruction->stage;
  place_in own = place_of(l, instruction);
  use_saved(l, instruction);
  for (int32_t i = l->out.begin[stage]; i < l->out.begin[stage + 1]; i++)
    for (int32_t piece = own.column; piece < own.end; piece++) {
      int64_t at = cell(l, l->out.edges[i], piece);
      if (!flows(l, l->out.edges[i], piece)) continue;
      if (!use(l, l->arrived_gradient[at])) use(l, l->made_gradient[at]);
    }
  for (int32_t i = l->in.begin[stage]; i < l->in.begin[stage + 1]; i++) {
    int32_t edge = l->in.edges[i];
    for (int32_t piece = own.column; piece < own.end; piece++) {
      int64_t bytes = table_bytes(&l->program->output_bytes, l->program->edges[edge].from, piece);
      l->made_gradient[cell(l, edge, piece)] = open_interval(l, bytes, NEVER);
    }
  }
}

static void walk_transfer(ledger *l, const motet_instruction *instruction) {
  const motet_buffer *buffer = &l->program->buffers[instruction->buffer];
  if (buffer->kind != MOTET_BUFFER_ACTIVATION && buffer->kind != MOTET_BUFFER_GRADIENT) return;
  bool gradient = buffer->kind == MOTET_BUFFER_GRADIENT;
  int32_t from = l->program->edges[buffer->edge].from;
  int32_t piece = buffer->range > 0 ? l->program->ranges[buffer->range].first_share + buffer->member
                                    : l->first_column[instruction->microbatch];
  int64_t at = cell(l, buffer->edge, piece);
  if (instruction->kind == MOTET_RECV) {
    int64_t bytes = table_bytes(&l->program->output_bytes, from, piece);
    (gradient ? l->arrived_gradient : l->arrived)[at] = open_interval(l, bytes, TO_THE_END);
  } else if (instruction->kind == MOTET_WAIT && (instruction->flags & MOTET_FLAG_RECV) == 0) {
    use(l, gradient ? l->made_gradient[at] : l->output[cell(l, from, home(l, instruction, from, piece))]);
  }
}

static void walk_list(ledger *l, int32_t rank) {
  const motet_program *program = l->program;
  l->rank = rank;
  int64_t begin = program->rank_begin[rank];
  l->first = begin;
  for (int32_t i = 0; i < program->carried_count; i++) {
    const motet_carried *carried = &program->carried[i];
    if (carried->rank != rank) continue;
    place_in at = {l->first_column[carried->microbatch], l->first_column[carried->microbatch + 1]};
    int64_t bytes = whole_bytes(&program->output_bytes, carried->stage, at);
    l->output[cell(l, carried->stage, at.column)] = open_interval(l, bytes, NEVER);
  }
  for (int64_t i = begin; i < program->rank_begin[rank + 1]; i++) {
    const motet_instruction *at = &program->instructions[i];
    if (i == begin || (at[-1].flags & MOTET_FLAG_JOINED) == 0) {
      l->first = l->last = i;
      while (l->last + 1 < program->rank_begin[rank + 1] &&
             (program->instructions[l->last].flags & MOTET_FLAG_JOINED) != 0)
        l->last++;
    }
    switch (at->kind) {
    case MOTET_FWD: walk_forward(l, at); break;
    case MOTET_BWD:
    case MOTET_BWD_X: walk_backward(l, at); break;
    case MOTET_BWD_W:
    case MOTET_OFFLOAD: use_saved(l, at); break;
    case MOTET_RECOMPUTE:
    case MOTET_FETCH: walk_restore(l, at); break;
    case MOTET_SEND:
    case MOTET_RECV:
    case MOTET_WAIT: walk_transfer(l, at); break;
    default: break;
    }
  }
}

static bool make_slots(mt_arena *arena, const motet_program *program, ledger *l) {
  size_t columns = (size_t)mt_column_count(program);
  l->columns = mt_column_count(program);
  l->first_column = MT_ARENA_NEW(arena, int32_t, (size_t)program->microbatch_count + 1);
  if (l->first_column == NULL) return false;
  for (int32_t m = 0; m <= program->microbatch_count; m++) l->first_column[m] = mt_column_first(program, m);
  size_t stages = (size_t)program->stage_count, edges = (size_t)program->edge_count;
  if (columns > 0 && (stages > SIZE_MAX / columns || edges > SIZE_MAX / columns)) return false;
  l->saved = MT_ARENA_NEW(arena, int32_t, stages * columns);
  l->output = MT_ARENA_NEW(arena, int32_t, stages * columns);
  l->arrived = MT_ARENA_NEW(arena, int32_t, edges * columns);
  l->arrived_gradient = MT_ARENA_NEW(arena, int32_t, edges * columns);
  l->made_gradient = MT_ARENA_NEW(arena, int32_t, edges * columns);
  return l->saved != NULL && l->output != NULL && l->arrived != NULL && l->arrived_gradient != NULL &&
         l->made_gradient != NULL && list_edges(arena, program, true, &l->in) &&
         list_edges(arena, program, false, &l->out);
}

/* Weights, gradients and optimizer state: there from beginning to end. */
static bool add_static(const motet_program *program, int64_t *fixed) {
  for (int32_t stage = 0; stage < program->stage_count; stage++) {
    const motet_group *group = &program->groups[program->stages[stage].group];
    for (int32_t i = 0; i < group->count; i++) {
      int64_t *of = &fixed[program->group_ranks[group->first + i]];
      if (__builtin_add_overflow(*of, program->static_bytes[stage], of)) return false;
    }
  }
  return true;
}

static bool add_intervals(const ledger *l, int64_t *take, int64_t *give) {
  for (size_t i = 0; i < l->intervals.count; i++) {
    const interval *held = &l->intervals.data[i];
    if (held->last == NEVER) continue;
    if (__builtin_add_overflow(take[held->birth], held->bytes, &take[held->birth])) return false;
    if (held->last != TO_THE_END && __builtin_add_overflow(give[held->last], held->bytes, &give[held->last]))
      return false;
  }
  return true;
}

/* Dates the changes of one rank: `take` is what an instruction adds, `give` what it leaves behind. */
static bool date_rank(const motet_program *program, int32_t rank, int64_t fixed, const double *start,
                      const double *finish, const int64_t *take, const int64_t *give,
                      mt_memory_timeline *timeline) {
  int64_t live = fixed, peak = fixed, at = timeline->begin[rank];
  timeline->steps[at++] = (mt_memory_step){0.0, live};
  for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
    if (take[i] != 0) {
      if (__builtin_add_overflow(live, take[i], &live)) return false;
      timeline->steps[at++] = (mt_memory_step){start[i], live};
      if (live > peak) peak = live;
    }
    if (give[i] == 0) continue;
    live -= give[i];
    timeline->steps[at++] = (mt_memory_step){finish[i], live};
  }
  timeline->begin[rank + 1] = at;
  timeline->peak_bytes[rank] = peak;
  return true;
}

motet_status mt_memory_timeline_make(mt_arena *arena, const motet_program *program, const double *start,
                                     const double *finish, motet_error *error, mt_memory_timeline **result) {
  size_t ranks = (size_t)program->ranks, count = (size_t)program->rank_begin[ranks];
  ledger l = {.program = program};
  motet_status status = MOTET_OK;
  mt_memory_timeline *timeline = MT_ARENA_NEW(arena, mt_memory_timeline, 1);
  int64_t *fixed = MT_ARENA_NEW(arena, int64_t, ranks);
  int64_t *take = MT_ARENA_NEW(arena, int64_t, count), *give = MT_ARENA_NEW(arena, int64_t, count);
  if (timeline == NULL || fixed == NULL || take == NULL || give == NULL || !make_slots(arena, program, &l))
    goto memory;
  timeline->begin = MT_ARENA_NEW(arena, int64_t, ranks + 1);
  timeline->steps = MT_ARENA_NEW(arena, mt_memory_step, 2 * count + ranks);
  timeline->peak_bytes = MT_ARENA_NEW(arena, int64_t, ranks);
  if (timeline->begin == NULL || timeline->steps == NULL || timeline->peak_bytes == NULL) goto memory;

  for (int32_t rank = 0; rank < program->ranks; rank++) walk_list(&l, rank);
  if (l.failed) goto memory;
  bool fits = add_static(program, fixed) && add_intervals(&l, take, give);
  for (int32_t rank = 0; fits && rank < program->ranks; rank++)
    fits = date_rank(program, rank, fixed[rank], start, finish, take, give, timeline);
  if (!fits)
    status = mt_error_set(error, MOTET_ERROR_LIMIT,
                          "the program's sizes add up to more than %" PRId64 " bytes a rank", INT64_MAX);
  else
    *result = timeline;
  goto done;
memory:
  status = mt_error_memory(error, count * sizeof(mt_memory_step), "memory timeline");
done:
  free(l.intervals.data);
  return status;
}

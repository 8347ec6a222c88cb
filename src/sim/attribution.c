#include "sim/attribution.h"

#include "base/array.h"
#include "sim/chain.h"

#include <stdlib.h>

enum { BODY_KINDS = MOTET_RECOMPUTE + 1, CHAIN_LIMIT = 4096 };

typedef struct attribution {
  const mt_sim_costs *costs;
  const motet_program *program;
  const mt_trace *trace;
  mt_simulation *simulation;
  double *median;        /* [stages x BODY_KINDS] seconds of a stage's compute over its microbatches */
  double *load;          /* [ranks] the medians of a rank's body instructions, added up */
  int64_t *latest_begin; /* [meetings] */
  double *latest;        /* latest arrival of each replica at a meeting, at the place of its first member */
} attribution;

/* The part of a rank's list in which idle time is neither warm-up nor cool-down: instructions in
 * [steady_begin, steady_end). */
typedef struct idle_windows {
  int64_t steady_begin, steady_end;
  bool compute; /* the rank computes something at all */
} idle_windows;

static bool is_body(const motet_program *program, const motet_instruction *instruction) {
  return instruction->kind < BODY_KINDS && !program->regions[program->stages[instruction->stage].region].replicated;
}

static motet_status find_medians(mt_arena *arena, attribution *a, motet_error *error) {
  const motet_program *program = a->program;
  size_t cells = (size_t)program->stage_count * BODY_KINDS;
  int64_t count = program->rank_begin[program->ranks];
  int64_t *begin = MT_ARENA_NEW(arena, int64_t, cells + 1);
  a->median = MT_ARENA_NEW(arena, double, cells);
  if (begin == NULL || a->median == NULL) return mt_error_memory(error, cells * sizeof(double), "medians");
  for (int64_t i = 0; i < count; i++) {
    const motet_instruction *instruction = &program->instructions[i];
    if (instruction->kind < BODY_KINDS) begin[(int64_t)instruction->stage * BODY_KINDS + instruction->kind + 1]++;
  }
  for (size_t cell = 0; cell < cells; cell++) begin[cell + 1] += begin[cell];
  double *seconds = MT_ARENA_NEW(arena, double, begin[cells]);
  int64_t *filled = MT_ARENA_NEW(arena, int64_t, cells);
  if (seconds == NULL || filled == NULL)
    return mt_error_memory(error, (unsigned long long)begin[cells] * sizeof(double), "medians");
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      const motet_instruction *instruction = &program->instructions[i];
      if (instruction->kind >= BODY_KINDS) continue;
      int64_t cell = (int64_t)instruction->stage * BODY_KINDS + instruction->kind;
      seconds[begin[cell] + filled[cell]++] = mt_sim_seconds(a->costs, rank, instruction);
    }
  }
  for (size_t cell = 0; cell < cells; cell++) {
    int64_t entries = begin[cell + 1] - begin[cell];
    if (entries == 0) continue;
    /* Equal times, the usual case, need no sorting. */
    bool alike = true;
    for (int64_t i = 1; alike && i < entries; i++) alike = seconds[begin[cell]] == seconds[begin[cell] + i];
    if (!alike) qsort(seconds + begin[cell], (size_t)entries, sizeof *seconds, mt_compare_doubles);
    a->median[cell] = seconds[begin[cell] + (entries - 1) / 2];
  }
  return MOTET_OK;
}

static motet_status find_loads(mt_arena *arena, attribution *a, motet_error *error) {
  const motet_program *program = a->program;
  a->load = MT_ARENA_NEW(arena, double, program->ranks);
  if (a->load == NULL) return mt_error_memory(error, sizeof(double) * (size_t)program->ranks, "loads");
  for (int32_t rank = 0; rank < program->ranks; rank++)
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      const motet_instruction *instruction = &program->instructions[i];
      if (is_body(program, instruction))
        a->load[rank] += a->median[(int64_t)instruction->stage * BODY_KINDS + instruction->kind];
    }
  return MOTET_OK;
}

static int32_t replica_of(const motet_program *program, int32_t rank) {
  int32_t pipeline_ranks = program->replicas > 0 ? program->ranks / program->replicas : program->ranks;
  return pipeline_ranks > 0 ? rank / pipeline_ranks : 0;
}

/* Where the latest arrival of `rank`'s replica at a meeting is kept: the place of the replica's first member. */
static int64_t replica_slot(const attribution *a, int64_t meeting, int32_t rank) {
  const motet_group *group = &a->program->groups[a->trace->meetings.data[meeting].group];
  const int32_t *ranks = a->program->group_ranks + group->first;
  int32_t replica = replica_of(a->program, rank), low = 0, high = group->count;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (replica_of(a->program, ranks[middle]) < replica)
      low = middle + 1;
    else
      high = middle;
  }
  return a->latest_begin[meeting] + low;
}

static motet_status find_arrivals(mt_arena *arena, attribution *a, motet_error *error) {
  const motet_program *program = a->program;
  int64_t slots = 0, meetings = (int64_t)a->trace->meetings.count;
  a->latest_begin = MT_ARENA_NEW(arena, int64_t, meetings);
  if (a->latest_begin == NULL) return mt_error_memory(error, sizeof(int64_t) * (size_t)meetings, "arrivals");
  for (int64_t meeting = 0; meeting < meetings; meeting++) {
    a->latest_begin[meeting] = slots;
    slots += program->groups[a->trace->meetings.data[meeting].group].count;
  }
  a->latest = MT_ARENA_NEW(arena, double, slots);
  if (a->latest == NULL) return mt_error_memory(error, sizeof(double) * (size_t)slots, "arrivals");
  for (int32_t rank = 0; rank < program->ranks; rank++)
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      if (!mt_sim_is_collective(program->instructions[i].kind)) continue;
      int64_t slot = replica_slot(a, a->trace->link[i], rank);
      if (a->trace->start[i] > a->latest[slot]) a->latest[slot] = a->trace->start[i];
    }
  return MOTET_OK;
}

static idle_windows find_windows(const motet_program *program, int32_t rank) {
  int64_t first_backward = -1, first_body_forward = -1, first_compute = -1;
  int64_t last_body_forward = -1, last_forward = -1, last_compute = -1;
  for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
    const motet_instruction *instruction = &program->instructions[i];
    if (instruction->kind >= BODY_KINDS) continue;
    if (first_compute < 0) first_compute = i;
    last_compute = i;
    if (mt_sim_is_backward(instruction->kind) && first_backward < 0) first_backward = i;
    if (instruction->kind != MOTET_FWD) continue;
    last_forward = i;
    if (!is_body(program, instruction)) continue;
    if (first_body_forward < 0) first_body_forward = i;
    last_body_forward = i;
  }
  int64_t begin = first_backward >= 0       ? first_backward
                  : first_body_forward >= 0 ? first_body_forward
                                            : first_compute;
  int64_t end = last_body_forward >= 0 ? last_body_forward : last_forward >= 0 ? last_forward : last_compute;
  return (idle_windows){.steady_begin = begin, .steady_end = end, .compute = last_compute >= 0};
}

/* What a chain's element contributes to each cause: see docs/simulation.md. */
static void weigh(const attribution *a, int32_t waiting, const mt_chain_element *element, double length,
                  double weights[MT_IDLE_CAUSES]) {
  const motet_instruction *instruction = &a->program->instructions[element->instruction];
  int kind = instruction->kind;
  if (kind == MOTET_LOAD) {
    weights[MT_IDLE_INPUT_STALL] += length;
  } else if (mt_sim_is_collective(kind)) {
    weights[MT_IDLE_DATA_PARALLEL_WAIT] += length;
  } else if (kind == MOTET_WAIT || kind == MOTET_OFFLOAD || kind == MOTET_FETCH) {
    weights[MT_IDLE_COMMUNICATION] += length;
  } else if (kind < BODY_KINDS) {
    double whole = element->to - element->from;
    double median = a->median[(int64_t)instruction->stage * BODY_KINDS + kind];
    double excess = whole > median ? length * (1.0 - median / whole) : 0.0;
    double slower = 1.0; /* work of a replicated stage stands in the producer's way in full */
    if (is_body(a->program, instruction)) {
      double producer = a->load[element->rank], own = a->load[waiting];
      slower = producer > own ? 1.0 - own / producer : 0.0;
    }
    weights[MT_IDLE_MICROBATCH_VARIANCE] += excess;
    weights[MT_IDLE_STAGE_IMBALANCE] += (length - excess) * slower;
  }
}

/* Shares `seconds` of waiting out over the causes on the chain that ends with the late post, back to the waiting
 * rank or to `since`, the beginning of its last stretch of work. */
static void share_out(const attribution *a, int32_t waiting, mt_chain chain, double since, double seconds,
                      double parts[MT_IDLE_CAUSES]) {
  double weights[MT_IDLE_CAUSES] = {0}, total = 0.0;
  mt_chain_element element;
  for (int steps = 0; steps < CHAIN_LIMIT && chain.rank != waiting && mt_chain_back(&chain, &element); steps++) {
    if (element.to <= since) break;
    weigh(a, waiting, &element, element.to - (element.from > since ? element.from : since), weights);
  }
  for (int cause = 0; cause < MT_IDLE_CAUSES; cause++) total += weights[cause];
  if (!(total > 0)) {
    parts[MT_IDLE_STAGE_IMBALANCE] += seconds;
    return;
  }
  for (int cause = 0; cause < MT_IDLE_CAUSES; cause++) parts[cause] += seconds * (weights[cause] / total);
}

static void split_wait(const attribution *a, int32_t rank, int64_t place, double since,
                       double parts[MT_IDLE_CAUSES]) {
  const mt_transfer *transfer = mt_trace_transfer(a->trace, a->trace->link[place]);
  double start = a->trace->start[place], finish = a->trace->finish[place];
  bool send_late = transfer->send_seconds >= transfer->receive_seconds;
  double ready = send_late ? transfer->send_seconds : transfer->receive_seconds;
  double under_way = finish - (ready > start ? ready : start);
  parts[MT_IDLE_COMMUNICATION] += under_way;
  if (!(ready > start)) return;
  mt_chain chain = {.program = a->program,
                    .trace = a->trace,
                    .place = send_late ? transfer->send : transfer->receive,
                    .rank = send_late ? transfer->source : transfer->destination};
  share_out(a, rank, chain, since, finish - start - under_way, parts);
}

/* Idle time inside instruction `place`, by cause. */
static void split_idle(const attribution *a, int32_t rank, const idle_windows *windows, int64_t place, double since,
                       double parts[MT_IDLE_CAUSES]) {
  double start = a->trace->start[place], seconds = a->trace->finish[place] - start;
  int kind = a->program->instructions[place].kind;
  if (kind == MOTET_LOAD) {
    parts[MT_IDLE_INPUT_STALL] += seconds;
  } else if (!windows->compute) {
    parts[MT_IDLE_STAGE_IMBALANCE] += seconds;
  } else if (place < windows->steady_begin) {
    parts[MT_IDLE_WARM_UP] += seconds;
  } else if (place > windows->steady_end) {
    double pipeline = seconds;
    if (mt_sim_is_collective(
            kind)) { /* waiting for one's own pipeline cools down; the rest is data parallelism's */
      double own = a->latest[replica_slot(a, a->trace->link[place], rank)];
      pipeline = own - start < seconds ? own - start : seconds; /* measured clocks may put it behind the end */
    }
    parts[MT_IDLE_COOL_DOWN] += pipeline;
    parts[MT_IDLE_DATA_PARALLEL_WAIT] += seconds - pipeline;
  } else if (kind == MOTET_WAIT) {
    split_wait(a, rank, place, since, parts);
  } else if (mt_sim_is_collective(kind)) {
    parts[MT_IDLE_DATA_PARALLEL_WAIT] += seconds;
  } else {
    parts[MT_IDLE_COMMUNICATION] += seconds;
  }
}

/* Before shared compute a rank waits for the group's other members, as replicas wait for one another. */
static void wait_for_members(const attribution *a, const idle_windows *windows, int64_t place, double seconds) {
  double *causes = a->simulation->idle_by_cause;
  causes[place < windows->steady_begin ? MT_IDLE_WARM_UP
         : place > windows->steady_end ? MT_IDLE_COOL_DOWN
                                       : MT_IDLE_DATA_PARALLEL_WAIT] += seconds;
}

static void attribute_rank(const attribution *a, int32_t rank) {
  const motet_program *program = a->program;
  double *causes = a->simulation->idle_by_cause;
  idle_windows windows = find_windows(program, rank);
  double since = 0.0; /* end of the rank's previous idle time */
  for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
    a->simulation->idle_cause[i] = MT_IDLE_CAUSES;
    double before = i > program->rank_begin[rank] ? a->trace->finish[i - 1] : 0.0;
    if (mt_is_shared(program, &program->instructions[i]) && !a->trace->measured && a->trace->start[i] > before) {
      wait_for_members(a, &windows, i, a->trace->start[i] - before);
      since = a->trace->start[i];
    }
    if (mt_sim_is_compute(program->instructions[i].kind) || !(a->trace->finish[i] > a->trace->start[i])) continue;
    double parts[MT_IDLE_CAUSES] = {0};
    split_idle(a, rank, &windows, i, since, parts);
    int largest = 0;
    for (int cause = 0; cause < MT_IDLE_CAUSES; cause++) {
      causes[cause] += parts[cause];
      if (parts[cause] > parts[largest]) largest = cause;
    }
    a->simulation->idle_cause[i] = (uint8_t)largest;
    since = a->trace->finish[i];
  }
  causes[windows.compute ? MT_IDLE_COOL_DOWN : MT_IDLE_STAGE_IMBALANCE] +=
      a->trace->makespan - a->trace->ranks[rank].end;
}

motet_status mt_attribute_idle(mt_arena *arena, const mt_sim_costs *costs, const mt_trace *trace,
                               motet_error *error, mt_simulation *simulation) {
  const motet_program *program = costs->program;
  attribution a = {.costs = costs, .program = program, .trace = trace, .simulation = simulation};
  simulation->idle_cause = MT_ARENA_NEW(arena, uint8_t, program->rank_begin[program->ranks]);
  if (simulation->idle_cause == NULL)
    return mt_error_memory(error, (unsigned long long)program->rank_begin[program->ranks], "idle causes");
  motet_status status = find_medians(arena, &a, error);
  if (status == MOTET_OK) status = find_loads(arena, &a, error);
  if (status == MOTET_OK) status = find_arrivals(arena, &a, error);
  if (status != MOTET_OK) return status;
  for (int32_t rank = 0; rank < program->ranks; rank++) attribute_rank(&a, rank);
  return MOTET_OK;
}

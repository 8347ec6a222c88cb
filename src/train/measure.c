#include "train/measure.h"

#include "base/clock.h"

#include <sys/resource.h>

enum { CLOCK_ROUNDS = 32, TAG_CLOCK = MT_TAG_TRANSFER + MT_TAG_TRANSFERS, TAG_TIMES };

bool mt_measure_is_compute(int kind) {
  return kind == MOTET_FWD || kind == MOTET_BWD || kind == MOTET_BWD_X || kind == MOTET_BWD_W ||
         kind == MOTET_RECOMPUTE || kind == MOTET_OPTIM;
}

static motet_status send_now(mt_transport *transport, int32_t peer, int32_t tag, const void *data, size_t bytes,
                             motet_error *error) {
  mt_transfer *transfer = NULL;
  motet_status status = mt_transport_send(transport, peer, tag, data, bytes, error, &transfer);
  return status == MOTET_OK ? mt_transport_wait(transport, transfer, error) : status;
}

static motet_status recv_now(mt_transport *transport, int32_t peer, int32_t tag, void *data, size_t bytes,
                             motet_error *error) {
  mt_transfer *transfer = NULL;
  motet_status status = mt_transport_recv(transport, peer, tag, data, bytes, error, &transfer);
  return status == MOTET_OK ? mt_transport_wait(transport, transfer, error) : status;
}

/* Cristian's method: the round trip that took least bounds the error best; the answer was read halfway. */
static motet_status ask_for_time(mt_transport *transport, motet_error *error, double *offset) {
  double least = -1;
  for (int round = 0; round < CLOCK_ROUNDS; round++) {
    double theirs, before = mt_clock_seconds();
    char question = 0;
    motet_status status = send_now(transport, 0, TAG_CLOCK, &question, 1, error);
    if (status == MOTET_OK) status = recv_now(transport, 0, TAG_CLOCK, &theirs, sizeof theirs, error);
    if (status != MOTET_OK) return status;
    double after = mt_clock_seconds();
    if (least >= 0 && after - before >= least) continue;
    least = after - before;
    *offset = theirs - (before + after) / 2;
  }
  return MOTET_OK;
}

static motet_status answer_with_time(mt_transport *transport, int32_t rank, motet_error *error) {
  motet_status status = MOTET_OK;
  for (int round = 0; round < CLOCK_ROUNDS && status == MOTET_OK; round++) {
    char question;
    status = recv_now(transport, rank, TAG_CLOCK, &question, 1, error);
    double own = mt_clock_seconds();
    if (status == MOTET_OK) status = send_now(transport, rank, TAG_CLOCK, &own, sizeof own, error);
  }
  return status;
}

motet_status mt_clock_offset(mt_transport *transport, motet_error *error, double *offset) {
  *offset = 0;
  if (transport->local_ranks == transport->ranks) return MOTET_OK; /* one machine, one clock */
  if (transport->rank != 0) return ask_for_time(transport, error, offset);
  motet_status status = MOTET_OK;
  for (int32_t rank = 1; rank < transport->ranks && status == MOTET_OK; rank++)
    status = answer_with_time(transport, rank, error);
  return status;
}

static mt_rank_group everyone(const mt_transport *transport, mt_arena *arena) {
  int32_t *ranks = MT_ARENA_NEW(arena, int32_t, transport->ranks);
  for (int32_t rank = 0; ranks != NULL && rank < transport->ranks; rank++) ranks[rank] = rank;
  return (mt_rank_group){.number = 0, .count = transport->ranks, .ranks = ranks};
}

static mt_rank_measure own_measure(const mt_transport *transport, const motet_program *program,
                                   const mt_step_result *result, double offset) {
  const motet_instruction *list = program->instructions + program->rank_begin[transport->rank];
  int64_t count = program->rank_begin[transport->rank + 1] - program->rank_begin[transport->rank];
  mt_rank_measure own = {.gradient_norm = result->gradient_norm, .activation_bytes = result->peak_bytes};
  for (int64_t i = 0; i < count; i++) {
    double seconds = result->finish[i] - result->start[i];
    own.kinds[list[i].kind] += seconds;
    if (mt_measure_is_compute(list[i].kind)) own.busy += seconds;
  }
  /* The optimizer begins with a wait for the other ranks' part of the gradient's norm. */
  own.kinds[MOTET_OPTIM] -= result->optimizer_wait;
  own.kinds[MOTET_WAIT] += result->optimizer_wait;
  own.busy -= result->optimizer_wait;
  if (count > 0) {
    own.first = result->start[0] + offset;
    own.last = result->finish[count - 1] + offset;
  }
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) == 0) own.resident_bytes = (int64_t)usage.ru_maxrss * 1024;
  return own;
}

motet_status mt_measure_gather(mt_transport *transport, const motet_program *program, const mt_step_result *result,
                               const mt_prefetch_work *decoded, double offset, mt_arena *arena, motet_error *error,
                               mt_step_measure *measure) {
  mt_rank_group group = everyone(transport, arena);
  mt_rank_measure own = own_measure(transport, program, result, offset);
  own.decoded = *decoded;
  mt_rank_measure *all = MT_ARENA_NEW(arena, mt_rank_measure, transport->ranks);
  if (group.ranks == NULL || all == NULL) return mt_error_memory(error, sizeof own, "the measured times");
  motet_status status = mt_gather(transport, &group, &own, sizeof own, all, error);
  if (status != MOTET_OK || transport->rank != 0) return status;
  *measure = (mt_step_measure){.ranks = all};
  double first = all[0].first, last = all[0].last;
  for (int32_t rank = 0; rank < transport->ranks; rank++) {
    const mt_rank_measure *one = &all[rank];
    if (one->first < first) first = one->first;
    if (one->last > last) last = one->last;
    if (one->gradient_norm > measure->gradient_norm) measure->gradient_norm = one->gradient_norm;
    if (one->activation_bytes > measure->activation_bytes) measure->activation_bytes = one->activation_bytes;
    if (one->resident_bytes > measure->resident_bytes) measure->resident_bytes = one->resident_bytes;
    measure->busy += one->busy;
    measure->decoded.tiles += one->decoded.tiles;
    measure->decoded.seconds += one->decoded.seconds;
    if (one->kinds[MOTET_LOAD] > measure->input_stall) measure->input_stall = one->kinds[MOTET_LOAD];
    for (int kind = 0; kind < MOTET_INSTRUCTION_KINDS; kind++) measure->kinds[kind] += one->kinds[kind];
  }
  measure->makespan = last - first;
  return MOTET_OK;
}

static motet_status receive_times(mt_transport *transport, const motet_program *program, double *start,
                                  double *finish, motet_error *error) {
  motet_status status = MOTET_OK;
  for (int32_t rank = 1; rank < transport->ranks && status == MOTET_OK; rank++) {
    int64_t begin = program->rank_begin[rank];
    size_t bytes = (size_t)(program->rank_begin[rank + 1] - begin) * sizeof(double);
    double offset = 0;
    status = recv_now(transport, rank, TAG_TIMES, &offset, sizeof offset, error);
    if (status == MOTET_OK) status = recv_now(transport, rank, TAG_TIMES, start + begin, bytes, error);
    if (status == MOTET_OK) status = recv_now(transport, rank, TAG_TIMES, finish + begin, bytes, error);
    for (int64_t i = begin; i < program->rank_begin[rank + 1]; i++) start[i] += offset, finish[i] += offset;
  }
  return status;
}

motet_status mt_measure_timeline(mt_transport *transport, const motet_program *program,
                                 const mt_step_result *result, double offset, mt_arena *arena, motet_error *error,
                                 double **start, double **finish) {
  int64_t own = program->rank_begin[transport->rank + 1] - program->rank_begin[transport->rank];
  if (transport->rank != 0) {
    motet_status status = send_now(transport, 0, TAG_TIMES, &offset, sizeof offset, error);
    size_t bytes = (size_t)own * sizeof(double);
    if (status == MOTET_OK) status = send_now(transport, 0, TAG_TIMES, result->start, bytes, error);
    return status == MOTET_OK ? send_now(transport, 0, TAG_TIMES, result->finish, bytes, error) : status;
  }
  int64_t all = program->rank_begin[program->ranks];
  *start = MT_ARENA_NEW(arena, double, all);
  *finish = MT_ARENA_NEW(arena, double, all);
  if (*start == NULL || *finish == NULL)
    return mt_error_memory(error, (unsigned long long)all * sizeof(double), "a timeline");
  for (int64_t i = 0; i < own; i++) (*start)[i] = result->start[i], (*finish)[i] = result->finish[i];
  motet_status status = receive_times(transport, program, *start, *finish, error);
  double first = all > 0 ? (*start)[0] : 0;
  for (int64_t i = 0; i < all; i++)
    if ((*start)[i] < first) first = (*start)[i];
  for (int64_t i = 0; i < all; i++) (*start)[i] -= first, (*finish)[i] -= first;
  return status;
}

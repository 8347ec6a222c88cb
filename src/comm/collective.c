#include "comm/collective.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 4 << 20 }; /* a reduction's piece a rank: bounds the scratch */

static int32_t own_index(const mt_transport *transport, const mt_rank_group *group) {
  for (int32_t i = 0; i < group->count; i++)
    if (group->ranks[i] == transport->rank) return i;
  return -1;
}

static motet_status check_member(const mt_transport *transport, const mt_rank_group *group, motet_error *error,
                                 int32_t *own) {
  *own = own_index(transport, group);
  if (*own >= 0) return MOTET_OK;
  return mt_error_set(error, MOTET_ERROR_ARGUMENT, "rank %d is no member of group %d", (int)transport->rank,
                      (int)group->number);
}

static int32_t tag_of(const mt_rank_group *group) { return MT_TAG_COLLECTIVE + group->number % MT_TAG_COLLECTIVES; }

void mt_collective_scratch_free(mt_collective_scratch *scratch) {
  free(scratch->data);
  *scratch = (mt_collective_scratch){0};
}

static motet_status reserve(mt_collective_scratch *scratch, size_t bytes, motet_error *error) {
  if (scratch->bytes >= bytes) return MOTET_OK;
  free(scratch->data);
  *scratch = (mt_collective_scratch){.data = malloc(bytes)};
  if (scratch->data == NULL) return mt_error_memory(error, bytes, "a reduction's scratch");
  scratch->bytes = bytes;
  return MOTET_OK;
}

/** Transfers that are posted together; `posted` of them have to be waited for even after an error. */
typedef struct batch {
  mt_transfer **transfers; /* [2 * members] */
  int32_t posted;
} batch;

static motet_status wait_all(mt_transport *transport, batch *transfers, motet_error *error) {
  motet_status status = MOTET_OK;
  for (int32_t i = 0; i < transfers->posted && status == MOTET_OK; i++)
    status = mt_transport_wait(transport, transfers->transfers[i], error);
  transfers->posted = 0;
  return status;
}

static motet_status post_send(mt_transport *transport, int32_t peer, int32_t tag, const void *data, size_t bytes,
                              batch *transfers, motet_error *error) {
  if (bytes == 0) return MOTET_OK;
  mt_transfer **slot = &transfers->transfers[transfers->posted];
  motet_status status = mt_transport_send(transport, peer, tag, data, bytes, error, slot);
  if (status == MOTET_OK) transfers->posted++;
  return status;
}

static motet_status post_recv(mt_transport *transport, int32_t peer, int32_t tag, void *data, size_t bytes,
                              batch *transfers, motet_error *error) {
  if (bytes == 0) return MOTET_OK;
  mt_transfer **slot = &transfers->transfers[transfers->posted];
  motet_status status = mt_transport_recv(transport, peer, tag, data, bytes, error, slot);
  if (status == MOTET_OK) transfers->posted++;
  return status;
}

static void add_floats(void *sum, const void *part, size_t count) {
  float *to = sum;
  const float *from = part;
  for (size_t i = 0; i < count; i++) to[i] += from[i];
}

static void add_doubles(void *sum, const void *part, size_t count) {
  double *to = sum;
  const double *from = part;
  for (size_t i = 0; i < count; i++) to[i] += from[i];
}

typedef struct element {
  size_t size;
  void (*add)(void *sum, const void *part, size_t count);
} element;

/** Element i of [0, count) is summed by member m where begin(m) <= i < begin(m + 1). */
static size_t share_begin(size_t count, int32_t members, int32_t member) {
  size_t each = count / (size_t)members, rest = count % (size_t)members, m = (size_t)member;
  return m * each + (m < rest ? m : rest);
}

/**
 * One piece: each member collects its share of the piece from all, sums it in the group's order and hands the
 * sum to all. Traffic per rank is that of a ring, 2 (n-1)/n of the data, in two steps instead of 2 (n-1).
 */
static motet_status reduce_piece(mt_transport *transport, const mt_rank_group *group, int32_t own,
                                 const element *kind, char *values, size_t count, char *scratch, batch *transfers,
                                 motet_error *error) {
  int32_t members = group->count, tag = tag_of(group);
  size_t size = kind->size;
  size_t begin = share_begin(count, members, own), mine = share_begin(count, members, own + 1) - begin;
  motet_status status = MOTET_OK;
  for (int32_t i = 0; i < members && status == MOTET_OK; i++)
    if (i != own)
      status = post_recv(transport, group->ranks[i], tag, scratch + (size_t)i * mine * size, mine * size, transfers,
                         error);
  for (int32_t i = 0; i < members && status == MOTET_OK; i++) {
    if (i == own) continue;
    size_t from = share_begin(count, members, i), to = share_begin(count, members, i + 1);
    status = post_send(transport, group->ranks[i], tag, values + from * size, (to - from) * size, transfers, error);
  }
  if (status == MOTET_OK) status = wait_all(transport, transfers, error);
  if (status != MOTET_OK) return status;

  memcpy(scratch + (size_t)own * mine * size, values + begin * size, mine * size);
  memcpy(values + begin * size, scratch, mine * size);
  for (int32_t i = 1; i < members; i++) kind->add(values + begin * size, scratch + (size_t)i * mine * size, mine);

  for (int32_t i = 0; i < members && status == MOTET_OK; i++) {
    if (i == own) continue;
    size_t from = share_begin(count, members, i), to = share_begin(count, members, i + 1);
    status = post_recv(transport, group->ranks[i], tag, values + from * size, (to - from) * size, transfers, error);
  }
  for (int32_t i = 0; i < members && status == MOTET_OK; i++)
    if (i != own)
      status = post_send(transport, group->ranks[i], tag, values + begin * size, mine * size, transfers, error);
  return status == MOTET_OK ? wait_all(transport, transfers, error) : status;
}

static motet_status all_reduce(mt_transport *transport, const mt_rank_group *group, const element *kind,
                               char *values, size_t count, mt_collective_scratch *scratch, motet_error *error) {
  int32_t own;
  motet_status status = check_member(transport, group, error, &own);
  if (status != MOTET_OK || group->count < 2 || count == 0) return status;
  size_t members = (size_t)group->count;
  size_t piece = members * (PIECE_BYTES / kind->size);
  if (piece > count) piece = count;
  size_t share = piece / members + 1;
  batch transfers = {.transfers = calloc(2 * members, sizeof(mt_transfer *))};
  if (transfers.transfers == NULL)
    return mt_error_memory(error, 2 * members * sizeof(mt_transfer *), "a reduction's transfers");
  status = reserve(scratch, share * members * kind->size, error);
  for (size_t done = 0; done < count && status == MOTET_OK; done += piece) {
    size_t part = count - done < piece ? count - done : piece;
    status = reduce_piece(transport, group, own, kind, values + done * kind->size, part, scratch->data, &transfers,
                          error);
  }
  free(transfers.transfers);
  return status;
}

motet_status mt_all_reduce_floats(mt_transport *transport, const mt_rank_group *group, float *values, size_t count,
                                  mt_collective_scratch *scratch, motet_error *error) {
  static const element kind = {.size = sizeof(float), .add = add_floats};
  return all_reduce(transport, group, &kind, (char *)values, count, scratch, error);
}

motet_status mt_all_reduce_doubles(mt_transport *transport, const mt_rank_group *group, double *values,
                                   size_t count, mt_collective_scratch *scratch, motet_error *error) {
  static const element kind = {.size = sizeof(double), .add = add_doubles};
  return all_reduce(transport, group, &kind, (char *)values, count, scratch, error);
}

static motet_status exchange(mt_transport *transport, int32_t to, int32_t from, int32_t tag, motet_error *error) {
  char out = 0, in = 0;
  mt_transfer *sent = NULL, *received = NULL;
  motet_status status = mt_transport_recv(transport, from, tag, &in, 1, error, &received);
  if (status == MOTET_OK) status = mt_transport_send(transport, to, tag, &out, 1, error, &sent);
  if (status == MOTET_OK) status = mt_transport_wait(transport, received, error);
  if (status == MOTET_OK) status = mt_transport_wait(transport, sent, error);
  return status;
}

/* Dissemination: after step k everyone has heard, through others, from the 2^(k+1) members before it. */
motet_status mt_barrier(mt_transport *transport, const mt_rank_group *group, motet_error *error) {
  int32_t own;
  motet_status status = check_member(transport, group, error, &own);
  for (int32_t step = 1; step < group->count && status == MOTET_OK; step *= 2) {
    int32_t to = (own + step) % group->count, from = (own - step + group->count) % group->count;
    status = exchange(transport, group->ranks[to], group->ranks[from], tag_of(group), error);
  }
  return status;
}

motet_status mt_broadcast(mt_transport *transport, const mt_rank_group *group, int32_t root, void *data,
                          size_t bytes, motet_error *error) {
  int32_t own;
  motet_status status = check_member(transport, group, error, &own);
  if (status != MOTET_OK || group->count < 2 || bytes == 0) return status;
  /* A binomial tree over positions relative to the root. */
  int32_t members = group->count, position = (own - root + members) % members, step = 1;
  mt_transfer *transfer = NULL;
  while (step < members && (position & step) == 0) step *= 2;
  if (position != 0) {
    int32_t parent = (position - step + root) % members;
    status = mt_transport_recv(transport, group->ranks[parent], tag_of(group), data, bytes, error, &transfer);
    if (status == MOTET_OK) status = mt_transport_wait(transport, transfer, error);
  }
  for (step /= 2; step > 0 && status == MOTET_OK; step /= 2) {
    if (position + step >= members) continue;
    int32_t child = (position + step + root) % members;
    status = mt_transport_send(transport, group->ranks[child], tag_of(group), data, bytes, error, &transfer);
    if (status == MOTET_OK) status = mt_transport_wait(transport, transfer, error);
  }
  return status;
}

motet_status mt_gather(mt_transport *transport, const mt_rank_group *group, const void *own_data, size_t bytes,
                       void *all, motet_error *error) {
  int32_t own;
  motet_status status = check_member(transport, group, error, &own);
  if (status != MOTET_OK || bytes == 0) return status;
  mt_transfer *transfer = NULL;
  if (own != 0) {
    status = mt_transport_send(transport, group->ranks[0], tag_of(group), own_data, bytes, error, &transfer);
    return status == MOTET_OK ? mt_transport_wait(transport, transfer, error) : status;
  }
  memcpy(all, own_data, bytes);
  batch transfers = {.transfers = calloc((size_t)group->count, sizeof(mt_transfer *))};
  if (transfers.transfers == NULL)
    return mt_error_memory(error, (size_t)group->count * sizeof(mt_transfer *), "a gather's transfers");
  for (int32_t i = 1; i < group->count && status == MOTET_OK; i++)
    status = post_recv(transport, group->ranks[i], tag_of(group), (char *)all + (size_t)i * bytes, bytes,
                       &transfers, error);
  if (status == MOTET_OK) status = wait_all(transport, &transfers, error);
  free(transfers.transfers);
  return status;
}

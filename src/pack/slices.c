/* Slice tables: which chunks of which sequence a rank computes. */
#include "base/error.h"
#include "pack/packer.h"

static int64_t between(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

static motet_status no_memory(size_t count, motet_error *error) {
  return mt_error_memory(error, count * sizeof(motet_pack_slice), "slice tables");
}

/* Tokens of a chunk: the sequence padded to 2 * degree equal ones. */
static int64_t chunk_of(int64_t tokens, int64_t degree) { return (tokens + 2 * degree - 1) / (2 * degree); }

static void slice_group(motet_packer *packer, const motet_pack_sequence *sequences, int64_t index) {
  motet_pack_group *group = &packer->groups.data[index];
  const int32_t *members = packer->sequences.data + group->sequence_first;
  group->cumulative_first = (int64_t)packer->cumulative.count;
  int64_t *cumulative = packer->cumulative.data + group->cumulative_first;
  cumulative[0] = 0;
  for (int32_t i = 0; i < group->sequence_count; i++)
    cumulative[i + 1] = cumulative[i] + 2 * chunk_of(sequences[members[i]].tokens, group->degree);
  packer->cumulative.count += (size_t)group->sequence_count + 1;
  for (int32_t position = 0; position < group->degree; position++) {
    motet_pack_part part = {.group = index,
                            .rank = packer->ranks.data[group->rank_first + position],
                            .position = position,
                            .slice_first = (int64_t)packer->slices.count};
    for (int32_t i = 0; i < group->sequence_count; i++) {
      int64_t tokens = sequences[members[i]].tokens, chunk = chunk_of(tokens, group->degree);
      int64_t first = position * chunk, second = (2 * (int64_t)group->degree - 1 - position) * chunk;
      motet_pack_slice slice = {.sequence = members[i],
                                .chunk = (int32_t)chunk,
                                .first_begin = first,
                                .second_begin = second,
                                .first_tokens = (int32_t)between(tokens - first, 0, chunk),
                                .second_tokens = (int32_t)between(tokens - second, 0, chunk)};
      part.loss_numerator += slice.first_tokens + slice.second_tokens;
      packer->slices.data[packer->slices.count++] = slice;
    }
    packer->parts.data[packer->parts.count++] = part;
  }
}

motet_status mt_pack_slice_all(motet_packer *packer, const motet_pack_sequence *sequences, motet_error *error) {
  size_t parts = 0, slices = 0, groups = packer->groups.count;
  for (size_t g = 0; g < groups; g++) {
    size_t degree = (size_t)packer->groups.data[g].degree;
    parts += degree;
    slices += degree * (size_t)packer->groups.data[g].sequence_count;
  }
  packer->parts.count = packer->slices.count = packer->cumulative.count = 0;
  if (!mt_array_reserve((void **)&packer->parts.data, &packer->parts.capacity, parts, sizeof *packer->parts.data) ||
      !mt_array_reserve((void **)&packer->slices.data, &packer->slices.capacity, slices,
                        sizeof *packer->slices.data) ||
      !mt_array_reserve((void **)&packer->cumulative.data, &packer->cumulative.capacity,
                        packer->sequences.count + groups, sizeof *packer->cumulative.data))
    return no_memory(slices, error);
  for (size_t g = 0; g < groups; g++) slice_group(packer, sequences, (int64_t)g);
  return MOTET_OK;
}

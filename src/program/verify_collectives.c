/* Rule 5: all members of a group issue the same collectives in the same order, whatever their data hold. Compute of
 * a token range that a group shares is one of them. */
#include "program/verify.h"

#include <stdio.h>

static bool same(const mt_verify_collective *a, const mt_verify_collective *b) {
  return a->kind == b->kind && a->buffer == b->buffer && a->stage == b->stage && a->range == b->range;
}

/* "ALL_REDUCE of buffer 3", "FWD of stage 2, range 5". */
static const char *describe(const mt_verify_collective *collective, char text[MT_VERIFY_TEXT_SIZE]) {
  const char *name = motet_instruction_name(collective->kind);
  if (collective->range > 0)
    snprintf(text, MT_VERIFY_TEXT_SIZE, "%s of stage %d, range %d", name, collective->stage, collective->range);
  else
    snprintf(text, MT_VERIFY_TEXT_SIZE, "%s of buffer %d", name, collective->buffer);
  return text;
}

/* One member's collectives of a group against the first member's. */
static motet_status compare_member(mt_verifier *verifier, const int32_t *first, int64_t first_count,
                                   const int32_t *other, int64_t other_count, int32_t group, int32_t member) {
  const mt_verify_collective *all = verifier->collectives.data;
  int32_t leader = all[first[0]].rank;
  for (int64_t i = 0; i < first_count || i < other_count; i++) {
    const mt_verify_collective *a = i < first_count ? &all[first[i]] : NULL;
    const mt_verify_collective *b = i < other_count ? &all[other[i]] : NULL;
    if (a != NULL && b != NULL && same(a, b)) continue;
    if (b == NULL)
      return mt_verify_refuse(
          verifier, MT_RULE_COLLECTIVES, member, -1, -1,
          "rank %d lacks collective %lld of group %d, %s at instruction %d of rank %d: every member "
          "must take part, with or without data",
          member, (long long)i, group, motet_instruction_name(a->kind), a->position, leader);
    if (a == NULL)
      return mt_verify_refuse(
          verifier, MT_RULE_COLLECTIVES, member, b->position, -1,
          "%s is collective %lld of group %d on rank %d, and rank %d has only %lld: every member "
          "must take part",
          motet_instruction_name(b->kind), (long long)i, group, member, leader, (long long)first_count);
    char texts[2][MT_VERIFY_TEXT_SIZE];
    return mt_verify_refuse(verifier, MT_RULE_COLLECTIVES, member, b->position, -1,
                            "collective %lld of group %d is %s on rank %d and %s on rank %d (instruction %d): all "
                            "members must issue them in one order",
                            (long long)i, group, describe(b, texts[0]), member, describe(a, texts[1]), leader,
                            a->position);
  }
  return MOTET_OK;
}

/* The group's collectives lie by member; a member that issues none is found missing. */
static motet_status compare_group(mt_verifier *verifier, int32_t group, const int32_t *items, int64_t count) {
  const motet_program *p = verifier->program;
  const mt_verify_collective *all = verifier->collectives.data;
  const int32_t *members = p->group_ranks + p->groups[group].first;
  const int32_t *first = items;
  int64_t first_count = 0;
  while (first_count < count && all[items[first_count]].rank == all[items[0]].rank) first_count++;
  int64_t next = 0;
  for (int32_t i = 0; i < p->groups[group].count; i++) {
    int64_t begin = next;
    while (next < count && all[items[next]].rank == members[i]) next++;
    motet_status status =
        compare_member(verifier, first, first_count, items + begin, next - begin, group, members[i]);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

motet_status mt_verify_collectives(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  if (verifier->violated[MT_RULE_COLLECTIVES]) return MOTET_OK; /* the walk found one already */
  if (verifier->collectives.count > INT32_MAX)
    return mt_error_set(verifier->error, MOTET_ERROR_LIMIT, "%zu collectives are beyond 32 bits",
                        verifier->collectives.count);
  mt_verify_lists lists;
  if (mt_verify_lists_start(verifier, &lists, p->group_count) != MOTET_OK) return MOTET_ERROR_MEMORY;
  int32_t count = (int32_t)verifier->collectives.count;
  for (int32_t i = 0; i < count; i++) mt_verify_lists_count(&lists, verifier->collectives.data[i].group);
  if (mt_verify_lists_room(verifier, &lists, p->group_count) != MOTET_OK) return MOTET_ERROR_MEMORY;
  for (int32_t i = 0; i < count; i++) mt_verify_lists_add(&lists, verifier->collectives.data[i].group, i);
  for (int32_t group = 0; group < p->group_count; group++) {
    int64_t begin = lists.begin[group], end = lists.begin[group + 1];
    if (begin == end) continue;
    motet_status status = compare_group(verifier, group, lists.items + begin, end - begin);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

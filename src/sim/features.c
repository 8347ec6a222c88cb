#include "sim/features.h"

#include <stdlib.h>

typedef struct change {
  double seconds;
  int32_t replica;
  int32_t step; /* -1 before +1 at the same time: a feature lives up to, and not at, its consumer's end */
} change;

motet_status mt_features_make(mt_arena *arena, const motet_program *program, motet_error *error,
                              mt_features *features) {
  int32_t stages = program->stage_count, edges = program->edge_count;
  *features = (mt_features){.program = program};
  features->slot = MT_ARENA_NEW(arena, int32_t, stages);
  features->consumed_begin = MT_ARENA_NEW(arena, int32_t, (size_t)stages + 1);
  features->consumed = MT_ARENA_NEW(arena, int32_t, edges);
  if (features->slot == NULL || features->consumed_begin == NULL || features->consumed == NULL) goto memory;
  for (int32_t stage = 0; stage < stages; stage++)
    features->slot[stage] =
        program->regions[program->stages[stage].region].replicated ? features->replicated_count++ : -1;
  for (int32_t edge = 0; edge < edges; edge++)
    if (features->slot[program->edges[edge].from] >= 0) features->consumed_begin[program->edges[edge].to + 1]++;
  for (int32_t stage = 0; stage < stages; stage++)
    features->consumed_begin[stage + 1] += features->consumed_begin[stage];
  for (int32_t edge = edges - 1; edge >= 0; edge--) { /* fills each stage's part from its end */
    int32_t slot = features->slot[program->edges[edge].from], to = program->edges[edge].to;
    if (slot >= 0) features->consumed[--features->consumed_begin[to + 1]] = slot;
  }
  /* Filling moved every begin to its place, one entry late: [to + 1] now holds the begin of `to`. */
  for (int32_t stage = 0; stage < stages; stage++)
    features->consumed_begin[stage] = features->consumed_begin[stage + 1];
  int32_t total = 0;
  for (int32_t edge = 0; edge < edges; edge++) total += features->slot[program->edges[edge].from] >= 0;
  features->consumed_begin[stages] = total;

  size_t count = (size_t)features->replicated_count * (size_t)program->microbatch_count;
  features->birth = MT_ARENA_NEW(arena, double, count);
  features->death = MT_ARENA_NEW(arena, double, count);
  features->next_birth = MT_ARENA_NEW(arena, double, count);
  if (features->birth == NULL || features->death == NULL || features->next_birth == NULL) goto memory;
  for (size_t i = 0; i < count; i++) features->birth[i] = features->death[i] = features->next_birth[i] = -1.0;
  for (int32_t i = 0; i < program->carried_count; i++) {
    const motet_carried *carried = &program->carried[i];
    if (features->slot[carried->stage] >= 0)
      features->birth[(int64_t)features->slot[carried->stage] * program->microbatch_count + carried->microbatch] =
          0;
  }
  return MOTET_OK;
memory:
  return mt_error_memory(error, (unsigned long long)stages * sizeof(int32_t), "features");
}

static int compare_changes(const void *left, const void *right) {
  const change *a = left, *b = right;
  if (a->replica != b->replica) return a->replica < b->replica ? -1 : 1;
  if (a->seconds < b->seconds || a->seconds > b->seconds) return a->seconds < b->seconds ? -1 : 1;
  return (a->step > b->step) - (a->step < b->step);
}

motet_status mt_features_peak(mt_arena *arena, const mt_features *features, double makespan, motet_error *error,
                              int32_t *peak) {
  *peak = 0;
  int32_t microbatches = features->program->microbatch_count;
  size_t count = (size_t)features->replicated_count * (size_t)microbatches, used = 0;
  if (count == 0) return MOTET_OK;
  change *changes = MT_ARENA_NEW(arena, change, 4 * count);
  if (changes == NULL) return mt_error_memory(error, 4ULL * count * sizeof *changes, "features");
  for (size_t i = 0; i < count; i++) {
    int32_t replica = features->program->microbatches[i % (size_t)microbatches].replica;
    double death = features->death[i] < 0 ? makespan : features->death[i];
    if (features->birth[i] >= 0 && death > features->birth[i]) {
      changes[used++] = (change){features->birth[i], replica, 1};
      changes[used++] = (change){death, replica, -1};
    }
    if (features->next_birth[i] >= 0) changes[used++] = (change){features->next_birth[i], replica, 1};
  }
  qsort(changes, used, sizeof *changes, compare_changes);
  int32_t alive = 0;
  for (size_t i = 0; i < used; i++) {
    if (i > 0 && changes[i].replica != changes[i - 1].replica) alive = 0;
    alive += changes[i].step;
    if (alive > *peak) *peak = alive;
  }
  return MOTET_OK;
}

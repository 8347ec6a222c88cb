#include "search/batch.h"

#include <stdlib.h>
#include <string.h>

typedef struct by_load {
  double load;
  int32_t index;
} by_load;

static int compare_loads(const void *left, const void *right) {
  const by_load *a = left, *b = right;
  if (a->load != b->load) return a->load > b->load ? -1 : 1;
  return (a->index > b->index) - (a->index < b->index);
}

void mt_search_deal_loads(const double *load, int32_t count, int32_t bins, int32_t each, double *sum, int32_t *held,
                          int32_t *owner) {
  for (int32_t b = 0; b < bins; b++) sum[b] = 0.0, held[b] = 0;
  for (int32_t i = 0; i < count; i++) {
    int32_t lightest = -1;
    for (int32_t b = 0; b < bins; b++)
      if (held[b] < each && (lightest < 0 || sum[b] < sum[lightest])) lightest = b;
    owner[i] = lightest;
    if (lightest < 0) continue;
    sum[lightest] += load[i];
    held[lightest]++;
  }
}

static double forward_operations(const mt_architecture *architecture, const double *extents) {
  double sum = 0.0;
  mt_layer_cost cost = {0};
  const mt_model *model = architecture->model;
  for (int32_t l = 0; l < model->layer_count; l++) {
    bool alike = l > 0 && model->layers[l].kind == model->layers[l - 1].kind &&
                 model->layers[l].module == model->layers[l - 1].module;
    if (!alike) mt_architecture_cost(architecture, l, extents, 1, &cost);
    sum += cost.forward_flops;
  }
  return sum;
}

typedef struct packer {
  mt_arena *arena;
  const mt_architecture *architecture;
  const mt_workload_samples *data;
  motet_error *error;
  mt_workload_room room;
} packer;

static motet_status measure(const packer *p, const int32_t *samples, int32_t count, double *extents) {
  return mt_workload_samples_measure(p->architecture, p->data, samples, count, &p->room, p->error, extents);
}

/* Samples by their load, heaviest first. */
static motet_status sort_samples(packer *p, by_load *order) {
  double extents[MT_EXTENTS];
  const mt_workload_samples *data = p->data;
  for (int32_t i = 0; i < data->count; i++) {
    bool same = i > 0 && data->samples[i].tokens == data->samples[i - 1].tokens &&
                data->samples[i].picture_begin == data->samples[i - 1].picture_begin &&
                data->samples[i].picture_count == data->samples[i - 1].picture_count;
    order[i] = (by_load){same ? order[i - 1].load : 0.0, i};
    if (same) continue;
    motet_status status = measure(p, &i, 1, extents);
    if (status != MOTET_OK) return mt_error_context(p->error, status, "sample %d", i + 1);
    order[i].load = forward_operations(p->architecture, extents);
  }
  qsort(order, (size_t)data->count, sizeof *order, compare_loads);
  return MOTET_OK;
}

static void find_kinds(mt_search_batch *batch) {
  for (int32_t g = 0; g < batch->count; g++) {
    int32_t k = batch->kinds;
    /* Sorted by load: equal ones are neighbours. */
    while (k > 0 && batch->load[batch->first[k - 1]] == batch->load[g] &&
           memcmp(batch->extents[batch->first[k - 1]], batch->extents[g], sizeof batch->extents[g]) != 0)
      k--;
    bool known = k > 0 && batch->load[batch->first[k - 1]] == batch->load[g];
    batch->kind[g] = known ? k - 1 : batch->kinds;
    if (!known) batch->first[batch->kinds++] = g;
    batch->number[batch->kind[g]] += 1.0;
  }
}

motet_status mt_search_batch_make(mt_arena *arena, const mt_architecture *architecture,
                                  const mt_workload_samples *data, int32_t samples, motet_error *error,
                                  mt_search_batch *batch) {
  int32_t count = data->count / samples;
  packer p = {.arena = arena, .architecture = architecture, .data = data, .error = error};
  motet_status status = mt_workload_samples_room(arena, data, samples, error, &p.room);
  if (status != MOTET_OK) return status;
  by_load *order = MT_ARENA_NEW(arena, by_load, data->count), *groups = MT_ARENA_NEW(arena, by_load, count);
  double *load = MT_ARENA_NEW(arena, double, data->count), *sum = MT_ARENA_NEW(arena, double, count);
  int32_t *held = MT_ARENA_NEW(arena, int32_t, count), *owner = MT_ARENA_NEW(arena, int32_t, data->count);
  int32_t *members = MT_ARENA_NEW(arena, int32_t, (int64_t)count * samples);
  double(*extents)[MT_EXTENTS] = mt_arena_array(arena, (size_t)count, sizeof *extents);
  *batch = (mt_search_batch){.samples = samples,
                             .count = count,
                             .extents = mt_arena_array(arena, (size_t)count, sizeof *extents),
                             .members = MT_ARENA_NEW(arena, int32_t, (int64_t)count * samples),
                             .load = MT_ARENA_NEW(arena, double, count),
                             .kind = MT_ARENA_NEW(arena, int32_t, count),
                             .first = MT_ARENA_NEW(arena, int32_t, count),
                             .number = MT_ARENA_NEW(arena, double, count)};
  if (order == NULL || groups == NULL || load == NULL || sum == NULL || held == NULL || owner == NULL ||
      members == NULL || extents == NULL || batch->members == NULL || batch->extents == NULL ||
      batch->load == NULL || batch->kind == NULL || batch->first == NULL || batch->number == NULL)
    return mt_error_memory(error, (unsigned long long)data->count * 256, "microbatches");
  status = sort_samples(&p, order);
  if (status != MOTET_OK) return status;
  for (int32_t i = 0; i < data->count; i++) load[i] = order[i].load;
  mt_search_deal_loads(load, count * samples, count, samples, sum, held, owner);
  for (int32_t g = 0; g < count; g++) held[g] = 0;
  for (int32_t i = 0; i < count * samples; i++) members[owner[i] * samples + held[owner[i]]++] = order[i].index;
  for (int32_t g = 0; g < count && status == MOTET_OK; g++) {
    status = measure(&p, members + (int64_t)g * samples, samples, extents[g]);
    groups[g] = (by_load){forward_operations(architecture, extents[g]), g};
  }
  if (status != MOTET_OK) return status;
  qsort(groups, (size_t)count, sizeof *groups, compare_loads);
  for (int32_t g = 0; g < count; g++) {
    batch->load[g] = groups[g].load;
    memcpy(batch->extents[g], extents[groups[g].index], sizeof *extents);
    memcpy(batch->members + (int64_t)g * samples, members + (int64_t)groups[g].index * samples,
           (size_t)samples * sizeof *members);
  }
  find_kinds(batch);
  return MOTET_OK;
}

const int32_t *mt_search_batch_owners(mt_arena *arena, mt_search_batch *batch, int32_t data) {
  for (int32_t i = 0; i < batch->deal_count; i++)
    if (batch->deals[i].data == data) return batch->deals[i].owner;
  double *sum = MT_ARENA_NEW(arena, double, data);
  int32_t *held = MT_ARENA_NEW(arena, int32_t, data), *owner = MT_ARENA_NEW(arena, int32_t, batch->count);
  if (sum == NULL || held == NULL || owner == NULL) return NULL;
  mt_search_deal_loads(batch->load, batch->count, data, batch->count / data, sum, held, owner);
  if (batch->deal_count < MT_SEARCH_DEALS) batch->deals[batch->deal_count++] = (mt_search_deal){data, owner};
  return owner;
}

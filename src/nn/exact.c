/*
 * Exact sums of gradients. A float32 number is cut at two fixed places into a multiple of 2^-22 and a multiple of
 * 2^-58 (what is below is rounded away, number by number); multiples of one power of two add up in doubles without
 * rounding as long as the sums stay below 2^53 multiples. So every order and grouping of the additions, on one rank
 * or many, gives the same bits. After Demmel, Ahrens and Nguyen, Efficient Reproducible Floating Point Summation
 * (2016), with bins that are fixed beforehand instead of found from the data.
 */
#include "nn/exact.h"

#include <math.h>
#include <string.h>

enum { HIGH_PLACE = 22, LOW_PLACE = 58, ADDENDS_MOST_BITS = 17 };

/* 1.5 * 2^(52 - place): adding it and taking it away again rounds to multiples of 2^-place. */
static const double high_rounder = 0x1.8p30, low_rounder = 0x1.8p-6;
_Static_assert(52 - HIGH_PLACE == 30 && 52 - LOW_PLACE == -6, "the rounders belong to the places");

typedef struct run {
  size_t begin, floats; /* in the gradients' memory */
} run;

struct mt_exact {
  mt_network_memory high, low; /* doubles, laid out as the gradients */
  double *high_sums, *low_sums;
  double largest; /* of an addend */
  run *layers;    /* [layers] the layer's own gradients */
};

/* A head that shares the embedding's matrix here adds to the embedding's gradient too. */
static bool shares_matrix(const mt_network *network, int32_t layer) {
  const int32_t embed = network->config.vision.layers + 2;
  const mt_held_layer *own = &network->layers[layer];
  return own->kind == MT_INTERNVL_HEAD && own->trainable && network->layers[embed].held &&
         own->gradient[MT_HEAD_WEIGHT] == network->layers[embed].gradient[MT_TOKEN_EMBED_WEIGHT];
}

static void find_runs(mt_network *network) {
  mt_exact *exact = network->exact;
  for (int32_t i = 0; i < network->parameter_count; i++) {
    const mt_parameter *parameter = &network->parameters[i];
    run *own = &exact->layers[parameter->layer];
    if (parameter->gradient == NULL) continue;
    size_t begin = (size_t)(parameter->gradient - network->gradients.data);
    if (own->floats == 0) own->begin = begin;
    own->floats = begin + (size_t)parameter->count - own->begin; /* parameters lie in the order of layers */
  }
}

motet_status mt_network_sum_exactly(mt_network *network, int64_t addends, motet_error *error) {
  if (addends < 1 || addends > INT64_C(1) << ADDENDS_MOST_BITS)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "exact sums take up to %lld microbatches a step, not %lld",
                        (long long)1 << ADDENDS_MOST_BITS, (long long)addends);
  mt_exact *exact = MT_ARENA_NEW(network->arena, mt_exact, 1);
  if (exact != NULL) exact->layers = MT_ARENA_NEW(network->arena, run, network->layer_count);
  if (exact == NULL || exact->layers == NULL) return mt_error_memory(error, sizeof *exact, "exact sums");
  network->exact = exact;
  /* A tied weight gets two addends a microbatch: 2 * addends * largest <= 2^31. */
  exact->largest = 0x1p30 / (double)addends;
  if (exact->largest > 0x1p29) exact->largest = 0x1p29; /* where the rounder works */
  mt_network_memory *const memories[] = {&exact->high, &exact->low};
  for (int i = 0; i < 2; i++) {
    void *memory;
    memories[i]->bytes = 2 * network->gradients.bytes;
    MT_TRY(mt_memory_map(memories[i]->bytes, false, "exact sums of gradients", error, &memory));
    memories[i]->data = memory;
  }
  exact->high_sums = (double *)(void *)exact->high.data;
  exact->low_sums = (double *)(void *)exact->low.data;
  find_runs(network);
  return MOTET_OK;
}

bool mt_network_sums_exactly(const mt_network *network) { return network->exact != NULL; }

void mt_network_exact_sums(mt_network *network, int32_t index, double **high, double **low) {
  const size_t at = (size_t)(network->parameters[index].gradient - network->gradients.data);
  *high = network->exact->high_sums + at;
  *low = network->exact->low_sums + at;
}

/** Numbers of one run that a thread works on at a time. */
enum { PART_FLOATS = 1 << 15 };

typedef struct part_work {
  mt_network *network;
  const run *own;
} part_work;

static run part_of(const part_work *work, int64_t index) {
  const size_t begin = (size_t)index * PART_FLOATS, left = work->own->floats - begin;
  return (run){.begin = work->own->begin + begin, .floats = left < PART_FLOATS ? left : PART_FLOATS};
}

static void for_parts(mt_network *network, const run *own, mt_team_work task) {
  part_work work = {.network = network, .own = own};
  mt_team_run(network->device.team, (int64_t)((own->floats + PART_FLOATS - 1) / PART_FLOATS), task, &work);
}

static void round_part(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const part_work *work = context;
  const mt_exact *exact = work->network->exact;
  const run part = part_of(work, index);
  float *gradient = work->network->gradients.data + part.begin;
  const double *high = exact->high_sums + part.begin, *low = exact->low_sums + part.begin;
  for (size_t i = 0; i < part.floats; i++) gradient[i] = (float)(high[i] + low[i]);
}

void mt_network_round_sums(mt_network *network) {
  for (int32_t layer = 0; layer < network->layer_count; layer++)
    for_parts(network, &network->exact->layers[layer], round_part);
}

void mt_exact_free(mt_exact *exact) {
  if (exact == NULL) return;
  mt_memory_unmap(exact->high.data, exact->high.bytes);
  mt_memory_unmap(exact->low.data, exact->low.bytes);
}

void mt_exact_zero(mt_exact *exact) {
  if (exact->high.bytes == 0) return;
  memset(exact->high.data, 0, exact->high.bytes);
  memset(exact->low.data, 0, exact->low.bytes);
}

static void zero(mt_network *network, const run *own) {
  mt_parallel_zero(&network->device, (int64_t)own->floats, network->gradients.data + own->begin);
}

static void add_part(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const part_work *work = context;
  const mt_exact *exact = work->network->exact;
  const run part = part_of(work, index);
  const float *gradient = work->network->gradients.data + part.begin;
  double *high = exact->high_sums + part.begin, *low = exact->low_sums + part.begin;
  const double largest = exact->largest;
  for (size_t i = 0; i < part.floats; i++) {
    const double value = (double)gradient[i];
    const double upper = (value + high_rounder) - high_rounder;
    const double lower = (value - upper + low_rounder) - low_rounder;
    /* What could round a sum makes it no number, whatever the order; so does what is no number itself. */
    high[i] += fabs(value) <= largest ? upper : (double)NAN;
    low[i] += lower;
  }
}

static void add(mt_network *network, const run *own) { for_parts(network, own, add_part); }

void mt_exact_begin(mt_network *network, int32_t layer) {
  if (network->exact == NULL || !network->layers[layer].trainable) return;
  zero(network, &network->exact->layers[layer]);
  if (shares_matrix(network, layer)) zero(network, &network->exact->layers[network->config.vision.layers + 2]);
}

void mt_exact_end(mt_network *network, int32_t layer) {
  if (network->exact == NULL || !network->layers[layer].trainable) return;
  add(network, &network->exact->layers[layer]);
  if (shares_matrix(network, layer)) add(network, &network->exact->layers[network->config.vision.layers + 2]);
}

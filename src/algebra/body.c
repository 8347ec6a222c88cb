#include "algebra/body.h"

#include <stdbool.h>

/* The k-th forward of every rank. Microbatches go in groups of one per rank; a group passes chunk 0, then chunk
 * 1, and so on (Megatron-LM's interleaved order, arXiv 2104.04473 section 2.2). With one chunk: 0, 1, 2, ... */
static mt_body_step forward(const mt_body_shape *shape, int64_t k) {
  int64_t group = (int64_t)shape->ranks * shape->chunks;
  int64_t inside = k % group;
  return (mt_body_step){.chunk = (int32_t)(inside / shape->ranks),
                        .microbatch = (int32_t)(k / group * shape->ranks + inside % shape->ranks)};
}

static mt_body_step backward(const mt_body_shape *shape, int64_t k) {
  mt_body_step step = forward(shape, k);
  step.chunk = shape->chunks - 1 - step.chunk;
  step.kind = MT_BODY_BACKWARD;
  return step;
}

/* Appends a step unless it is of one of the first `surplus` microbatches; the others are numbered from there. */
static int64_t put(mt_body_step step, int32_t surplus, mt_body_step *steps, int64_t count) {
  step.microbatch -= surplus;
  if (step.microbatch >= 0) steps[count++] = step;
  return count;
}

/* So many forwards more that every backward of the last chunk has `ahead` more of that chunk's forwards before it.
 * Whole groups bring as many microbatches as there are ranks; a part of one may need all chunks of its group. */
static int64_t forwards_ahead(const mt_body_shape *shape) {
  int64_t groups = shape->ahead / shape->ranks, rest = shape->ahead % shape->ranks;
  int64_t chunks_before = rest > 0 ? (int64_t)shape->ranks * (shape->chunks - 1) : 0;
  return groups * shape->ranks * shape->chunks + rest + chunks_before;
}

/* How many steps of forward() from the k-th on are struck out, which are those of the first `surplus` microbatches.
 */
static int64_t struck(const mt_body_shape *shape, int32_t surplus, int64_t k) {
  int64_t place = k % shape->ranks;
  return k < (int64_t)shape->ranks * shape->chunks && place < surplus ? surplus - place : 0;
}

/* 1F1B over any number of chunks: a warm-up of forwards, then one forward and one backward in turn, then the
 * remaining backwards.
 *
 * Where the ranks do not divide the microbatches, the order is that of the next multiple with the surplus struck
 * out. It cannot hang: events depend on events of the same microbatch alone, so every dependency between the
 * remaining events was already met by the full order, and leaving events out of an acyclic order closes no cycle.
 * (The plain formula with a short group does hang, as with 4 ranks, 3 chunks and 5 microbatches.) The surplus is
 * taken from the first group, where the step is shorter by it than from the last. With one chunk this is the usual
 * 1F1B for any number of microbatches. */
int64_t mt_body_1f1b(const mt_body_shape *shape, int32_t rank, mt_body_step *steps) {
  int64_t groups = ((int64_t)shape->microbatches + shape->ranks - 1) / shape->ranks;
  int64_t total = groups * shape->ranks * shape->chunks;
  int32_t surplus = (int32_t)(groups * shape->ranks - shape->microbatches);
  int64_t after = shape->ranks - 1 - rank; /* ranks behind this one */
  int64_t warm_up = shape->chunks == 1 ? after : 2 * after + (int64_t)(shape->chunks - 1) * shape->ranks;
  warm_up += forwards_ahead(shape);
  if (warm_up > total) warm_up = total;
  int64_t count = 0;
  for (int64_t k = -warm_up; k < total; k++) {
    /* Few microbatches on many ranks: what is struck out is most, and passed over in leaps. */
    int64_t no_forward = k + warm_up < total ? struck(shape, surplus, k + warm_up) : total - k;
    int64_t no_backward = k >= 0 ? struck(shape, surplus, k) : -k;
    int64_t leap = no_forward < no_backward ? no_forward : no_backward;
    if (leap > 1) k += leap - 1;
    if (k + warm_up < total) count = put(forward(shape, k + warm_up), surplus, steps, count);
    if (k >= 0) count = put(backward(shape, k), surplus, steps, count);
  }
  return count;
}

/* All forwards, then all backwards (arXiv 1811.06965); several chunks pass one after the other. */
int64_t mt_body_gpipe(const mt_body_shape *shape, int32_t rank, mt_body_step *steps) {
  (void)rank;
  int64_t count = 0;
  for (int32_t c = 0; c < shape->chunks; c++)
    for (int32_t m = 0; m < shape->microbatches; m++) steps[count++] = (mt_body_step){.chunk = c, .microbatch = m};
  for (int32_t c = shape->chunks - 1; c >= 0; c--)
    for (int32_t m = 0; m < shape->microbatches; m++)
      steps[count++] = (mt_body_step){.chunk = c, .microbatch = m, .kind = MT_BODY_BACKWARD};
  return count;
}

/* What a rank of DualPipeV has done so far. */
typedef struct dual {
  mt_body_step *steps;
  int64_t count, weighed;  /* steps; of them, those whose weight gradients, if any, have been written */
  int32_t surplus, struck; /* input gradients left out whose weight gradients are to be left out too */
  int32_t next[4];         /* microbatch of each pass below */
} dual;

enum { FORWARD_0, FORWARD_1, BACKWARD_0, BACKWARD_1 }; /* kind and chunk */

static void dual_forward(dual *d, int32_t chunk) {
  mt_body_step step = {chunk, d->next[FORWARD_0 + chunk]++, MT_BODY_FORWARD};
  d->count = put(step, d->surplus, d->steps, d->count);
}

static void dual_backward(dual *d, int32_t chunk, bool split) {
  mt_body_step step = {chunk, d->next[BACKWARD_0 + chunk]++, split ? MT_BODY_INPUT : MT_BODY_BACKWARD};
  if (split && step.microbatch < d->surplus) d->struck++;
  d->count = put(step, d->surplus, d->steps, d->count);
}

/* The weight gradients of the oldest input gradient that still lacks them. */
static void dual_weight(dual *d) {
  if (d->struck > 0) {
    d->struck--;
    return;
  }
  while (d->steps[d->weighed].kind != MT_BODY_INPUT) d->weighed++;
  mt_body_step step = d->steps[d->weighed++];
  step.kind = MT_BODY_WEIGHT;
  d->steps[d->count++] = step;
}

/* Of `rounds` rounds, each with one step of every pass in `passes` (a bit each), passes over the first ones that
 * are struck out whole, and says how many they are: few microbatches on many ranks are not to take the time of
 * many. */
static int32_t dual_leap(dual *d, int32_t rounds, unsigned passes) {
  for (int pass = FORWARD_0; pass <= BACKWARD_1; pass++) {
    int32_t left = d->surplus > d->next[pass] ? d->surplus - d->next[pass] : 0;
    if ((passes >> pass & 1) != 0 && left < rounds) rounds = left;
  }
  for (int pass = FORWARD_0; pass <= BACKWARD_1; pass++)
    if ((passes >> pass & 1) != 0) d->next[pass] += rounds;
  return rounds;
}

/* DualPipeV, the V-shaped half of DualPipe (arXiv 2412.19437 section 3.2.1, and its authors' public description):
 * in the steady part a forward of one chunk stands beside a backward of the other, so that the exchanges of one can
 * hide behind the compute of the other. It takes two microbatches a rank to fill; fewer are the order of that many
 * with the surplus struck out, as for 1F1B. */
int64_t mt_body_dualpipev(const mt_body_shape *shape, int32_t rank, mt_body_step *steps) {
  enum { F0 = 1 << FORWARD_0, F1 = 1 << FORWARD_1, B0 = 1 << BACKWARD_0, B1 = 1 << BACKWARD_1 };
  int32_t ranks = shape->ranks, after = ranks - 1 - rank, upto = rank + 1;
  int32_t filled = shape->microbatches < 2 * ranks ? 2 * ranks : shape->microbatches;
  int32_t steady = filled - 2 * ranks + upto;
  dual d = {.steps = steps, .surplus = filled - shape->microbatches};
  for (int32_t i = dual_leap(&d, 2 * after, F0); i < 2 * after; i++) dual_forward(&d, 0);
  for (int32_t i = dual_leap(&d, upto, F0 | F1); i < upto; i++) {
    dual_forward(&d, 0);
    dual_forward(&d, 1);
  }
  for (int32_t i = dual_leap(&d, after, B1 | F1); i < after; i++) {
    dual_backward(&d, 1, true);
    dual_weight(&d);
    dual_forward(&d, 1);
  }
  for (int32_t i = dual_leap(&d, steady, F0 | B1 | F1 | B0); i < steady; i++) {
    dual_forward(&d, 0);
    dual_backward(&d, 1, false);
    dual_forward(&d, 1);
    dual_backward(&d, 0, false);
  }
  for (int32_t i = dual_leap(&d, after, B1 | F1 | B0); i < after; i++) {
    dual_backward(&d, 1, false);
    dual_forward(&d, 1);
    dual_backward(&d, 0, false);
  }
  /* The second half of what remains is split: the ranks before wait for the input gradients alone. */
  int32_t passed = 2 * dual_leap(&d, upto, B1 | B0);
  if (passed > upto) d.struck += passed - upto;
  for (int32_t i = passed; i < 2 * upto; i++) dual_backward(&d, 1 - i % 2, i >= upto);
  for (int32_t i = 0; i < after; i++) {
    if (d.struck > 0) i += dual_leap(&d, after - i, B0);
    if (i == after) break;
    dual_weight(&d);
    dual_backward(&d, 0, true);
  }
  int32_t left_out = d.struck < upto ? d.struck : upto;
  d.struck -= left_out;
  for (int32_t i = left_out; i < upto; i++) dual_weight(&d);
  return d.count;
}

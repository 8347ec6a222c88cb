/** @file The machine of program_run.c: its state, and what its parts share. */
#ifndef MT_TESTS_PROGRAM_MACHINE_H
#define MT_TESTS_PROGRAM_MACHINE_H

#include "program_run.h"

#include "base/array.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t value;

/* Values of layers under way, 0 where there is none, and for gradients from how many readers they come. */
typedef struct bundle {
  bool there;
  bool data;       /* with what an empty stage has loaded and passes on */
  value *values;   /* [layers] */
  int32_t *counts; /* [layers] */
} bundle;

typedef struct post {
  int32_t buffer;
  bool waited;
  bundle content; /* of a send */
} post;

typedef MT_ARRAY(post) posts;

typedef struct machine {
  const motet_program *p;
  char *reason;
  bool bad;
  int32_t L, S, M, E, R;
  int32_t *layer_module, *layer_stage; /* [L] */
  value *forward, *gradient;           /* [M][L] what must come out */
  value *weights;                      /* [S] */
  value *tied;                         /* [ties] */
  /* State by rank. */
  bundle *outputs;                   /* [R][S][M] */
  bundle *arrived, *made, *returned; /* [R][E][M] activations received, gradients made, gradients received */
  value *stash;                      /* [R][S][M][L] gradients of the layers' outputs, for BWD_W */
  uint8_t *saved, *loaded, *x_done, *next_loaded; /* [R][S][M] */
  value *sums;                                    /* [R][S] */
  uint8_t *scattered;                             /* [R][S] reduced by parts, the new weights not gathered yet */
  value *tied_sums;                               /* [R][ties] */
  int32_t *forwards;                              /* [M][L] */
  posts *sends, *receives;                        /* [R][R] by source and destination */
  int64_t *position;                              /* [R] */
  int32_t *optimizers, *ended;                    /* [R] */
  int32_t *arrivals;                              /* [groups] */
  int64_t *joined;                                /* [R] position of the collective that it has joined, or -1 */
  int32_t *leader;                                /* [groups] first to arrive */
  MT_ARRAY(void *) memory;
} machine;

static inline void *take(machine *m, int64_t count, size_t size) {
  void *memory = calloc((size_t)count + 1, size);
  if (memory == NULL || !MT_ARRAY_PUSH(&m->memory, memory)) abort();
  return memory;
}

#define TAKE(m, type, count) ((type *)take((m), (int64_t)(count), sizeof(type)))

static inline bool wrong(machine *m, const char *format, ...) {
  if (m->bad) return false;
  m->bad = true;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(m->reason, RUN_REASON_SIZE, format, arguments);
  va_end(arguments);
  return false;
}

static inline value mix(value a, value b) {
  value x = a * UINT64_C(0x9e3779b97f4a7c15) + b + UINT64_C(0x632be59bd9b4e019);
  x = (x ^ (x >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
  return (x ^ (x >> 29)) | 1;
}

static inline value mix3(value a, value b, value c) { return mix(mix(a, b), c); }

static inline int64_t at3(const machine *m, int32_t rank, int32_t i, int32_t microbatch, int32_t n) {
  return ((int64_t)rank * n + i) * m->M + microbatch;
}

static inline int64_t cell(const machine *m, int32_t rank, int32_t stage, int32_t microbatch) {
  return at3(m, rank, stage, microbatch, m->S);
}

static inline int64_t link_at(const machine *m, int32_t rank, int32_t edge, int32_t microbatch) {
  return at3(m, rank, edge, microbatch, m->E);
}

static inline bool inside(int32_t index, int64_t count) { return index >= 0 && index < count; }

static inline bool has(const motet_program *p, int32_t group, int32_t rank) {
  for (int32_t i = 0; i < p->groups[group].count; i++) {
    if (p->group_ranks[p->groups[group].first + i] == rank) return true;
  }
  return false;
}

static inline bool live(const machine *m, int32_t layer, int32_t microbatch) {
  const motet_program_microbatch *data = &m->p->microbatches[microbatch];
  return (data->present & ~data->cached) >> m->layer_module[layer] & 1;
}

/* Adds up @p visit(source layer) over the layers that feed @p layer; cached ones through @p cached. */
static inline value input_of(const machine *m, int32_t layer, int32_t microbatch, const value *values,
                             bool *missing) {
  const motet_program *p = m->p;
  int32_t module = m->layer_module[layer];
  value sum = 0;
  if (layer > p->modules[module].layer_begin) {
    if (values[layer - 1] == 0) *missing = true;
    return values[layer - 1];
  }
  for (int32_t i = 0; i < p->module_edge_count; i++) {
    if (p->module_edges[i].to != module) continue;
    int32_t from = p->module_edges[i].from, last = p->modules[from].layer_end - 1;
    const motet_program_microbatch *data = &p->microbatches[microbatch];
    if ((data->present >> from & 1) == 0) continue;
    if (data->cached >> from & 1) {
      sum += mix3(77, (value)last, (value)microbatch);
      continue;
    }
    if (values[last] == 0) *missing = true;
    sum += values[last];
  }
  return sum;
}

static inline bool feeds(const machine *m, int32_t from, int32_t to) {
  const motet_program *p = m->p;
  if (m->layer_module[from] == m->layer_module[to]) return to == from + 1;
  if (from != p->modules[m->layer_module[from]].layer_end - 1 || to != p->modules[m->layer_module[to]].layer_begin)
    return false;
  for (int32_t i = 0; i < p->module_edge_count; i++) {
    if (p->module_edges[i].from == m->layer_module[from] && p->module_edges[i].to == m->layer_module[to])
      return true;
  }
  return false;
}

static inline value value_of(int32_t layer, int32_t microbatch, value input) {
  return mix3((value)layer + 1, (value)microbatch, input);
}

/* The gradient that reader @p to gives back for the output of @p from. */
static inline value given_back(int32_t from, int32_t to, value gradient, value output) {
  return mix3(mix((value)from, (value)to), gradient, output);
}

static inline value contribution(int32_t layer, int32_t microbatch, value gradient, value output) {
  return mix3(mix((value)layer, (value)microbatch), gradient, output);
}

/** Whether everything can be looked up, and every layer has one stage; fills layer_module and layer_stage. */
bool machine_check_tables(machine *m);

/** Fills forward, gradient, weights and tied: what must come out, from modules and layers alone. */
void machine_work_out(machine *m);

/** Whether the instruction's indices exist and agree with its buffer. */
bool machine_check_instruction(machine *m, const motet_instruction *i);

#endif

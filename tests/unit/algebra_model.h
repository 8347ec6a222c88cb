/** @file Helpers of the algebra's tests: small models from a text, derivations in one call. */
#ifndef TESTS_ALGEBRA_MODEL_H
#define TESTS_ALGEBRA_MODEL_H

#include "algebra/derive.h"
#include "motet/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A model from a text such as "vision:ffff projector:t llm:ffff | 0-2 1-2": a letter a layer, t for trainable,
 * and after '|' the module edges (without it: a chain). */
static inline mt_model *model_of(mt_arena *arena, const char *text) {
  char buffer[512];
  assert_true(strlen(text) < sizeof buffer);
  strcpy(buffer, text);
  const char *names[MT_MODEL_MODULES_MAX];
  const char *flags[MT_MODEL_MODULES_MAX];
  int32_t layers[MT_MODEL_MODULES_MAX];
  bool trainable[MT_MODEL_MODULES_MAX] = {false};
  int32_t count = 0;
  char *state = NULL, *edges = strchr(buffer, '|');
  if (edges != NULL) *edges++ = '\0';
  for (char *part = strtok_r(buffer, " ", &state); part != NULL; part = strtok_r(NULL, " ", &state)) {
    char *colon = strchr(part, ':');
    assert_non_null(colon);
    *colon = '\0';
    names[count] = part;
    flags[count] = colon + 1;
    layers[count++] = (int32_t)strlen(colon + 1);
  }
  motet_error error;
  mt_model *model = NULL;
  assert_int_equal(mt_model_abstract(arena, count, names, layers, trainable, &error, &model), MOTET_OK);
  for (int32_t m = 0; m < count; m++)
    for (int32_t l = 0; l < layers[m]; l++)
      model->layers[model->modules[m].layer_begin + l].trainable = flags[m][l] == 't';
  if (edges == NULL) return model;
  model->edges = MT_ARENA_NEW(arena, mt_module_edge, 64);
  assert_non_null(model->edges);
  model->edge_count = 0;
  for (char *part = strtok_r(edges, " ", &state); part != NULL; part = strtok_r(NULL, " ", &state)) {
    mt_module_edge edge;
    assert_int_equal(sscanf(part, "%d-%d", &edge.from, &edge.to), 2);
    model->edges[model->edge_count++] = edge;
  }
  return model;
}

static inline motet_status try_derive(mt_arena *arena, const mt_model *model, const char *schedule, int32_t ranks,
                                      int32_t microbatches, motet_error *error, mt_derivation **derivation) {
  mt_schedule *parsed = NULL;
  motet_status status = mt_schedule_parse(arena, schedule, error, &parsed);
  if (status != MOTET_OK) return status;
  mt_derive_request request = {.model = model, .schedule = parsed, .ranks = ranks, .microbatches = microbatches};
  return mt_derive(arena, &request, error, derivation);
}

static inline mt_derivation *derive_of(mt_arena *arena, const char *model, const char *schedule, int32_t ranks,
                                       int32_t microbatches) {
  motet_error error;
  mt_derivation *derivation = NULL;
  if (try_derive(arena, model_of(arena, model), schedule, ranks, microbatches, &error, &derivation) != MOTET_OK)
    fail_msg("%s on %s: %s", schedule, model, error.text);
  return derivation;
}

#endif

#include "algebra/derive.h"

#include "algebra/build.h"
#include "motet/program.h"

#include <string.h>

enum { MODULES_MAX = MT_MODEL_MODULES_MAX };

bool mt_stage_active(const mt_derivation *derivation, int32_t stage, int32_t microbatch) {
  return (derivation->stages[stage].modules & derivation->present[microbatch] & ~derivation->cached[microbatch]) !=
         0;
}

bool mt_stage_held(const mt_derivation *derivation, int32_t stage, int32_t rank) {
  const mt_stage *place = &derivation->stages[stage];
  const mt_region *region = &derivation->regions[place->region];
  int32_t inside = rank - region->first_rank;
  if (inside < 0 || inside >= region->pipeline * region->data) return false;
  return place->rank < 0 || (rank - place->rank) % region->pipeline == 0;
}

/* The schedule after normalisation: named terms, and side by side what has the same neighbours. */
static motet_status print_canonical(mt_build *build) {
  mt_derivation *d = build->result;
  const char **names = MT_ARENA_NEW(build->arena, const char *, d->model->module_count);
  mt_term *terms = MT_ARENA_NEW(build->arena, mt_term, d->region_count);
  if (names == NULL || terms == NULL) return mt_error_memory(build->error, sizeof *terms, "the schedule's text");
  int32_t branches = 0;
  for (int32_t r = 0; r < d->region_count; r++) {
    const mt_region *region = &d->regions[r];
    for (int32_t m = region->module_begin; m < region->module_end; m++) names[m] = d->model->modules[m].name;
    terms[r] = (mt_term){.module_count = region->module_end - region->module_begin,
                         .modules = &names[region->module_begin],
                         .skeleton = region->skeleton};
    if (r == 0 || build->region_before[r] != build->region_before[r - 1] ||
        build->region_after[r] != build->region_after[r - 1])
      continue;
    if (terms[r - 1].branch == 0) terms[r - 1].branch = ++branches;
    terms[r].branch = terms[r - 1].branch;
  }
  d->text = mt_schedule_print(build->arena, &(mt_schedule){.term_count = d->region_count, .terms = terms});
  return d->text != NULL ? MOTET_OK : mt_error_memory(build->error, 1, "the schedule's text");
}

static motet_status check_request(const mt_derive_request *request, motet_error *error) {
  enum { RANKS_MAX = 1 << 20, MICROBATCHES_MAX = 1 << 24 };
  if (request->ranks < 1 || request->ranks > RANKS_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d ranks; accepted: 1 to %d", request->ranks, RANKS_MAX);
  if (request->microbatches < 1 || request->microbatches > MICROBATCHES_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d microbatches; accepted: 1 to %d", request->microbatches,
                        MICROBATCHES_MAX);
  if (request->model->module_count < 1 || request->model->module_count > MODULES_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d modules; accepted: 1 to %d", request->model->module_count,
                        MODULES_MAX);
  return MOTET_OK;
}

static motet_status copy_data(mt_build *build) {
  const mt_derive_request *request = build->request;
  mt_derivation *d = build->result;
  uint64_t *present = MT_ARENA_NEW(build->arena, uint64_t, d->microbatches);
  uint64_t *cached = MT_ARENA_NEW(build->arena, uint64_t, d->microbatches);
  if (present == NULL || cached == NULL)
    return mt_error_memory(build->error, (unsigned long long)d->microbatches * sizeof *present, "microbatches");
  uint64_t all = UINT64_MAX >> (64 - request->model->module_count);
  for (int32_t m = 0; m < d->microbatches; m++) {
    present[m] = request->present != NULL ? request->present[m] & all : all;
    cached[m] = request->cached != NULL ? request->cached[m] & all : 0;
  }
  d->present = present;
  d->cached = cached;
  return MOTET_OK;
}

static bool allocate(mt_build *build) {
  int32_t modules = build->request->model->module_count;
  build->result = MT_ARENA_NEW(build->arena, mt_derivation, 1);
  uint64_t *sets = MT_ARENA_NEW(build->arena, uint64_t, 4 * modules);
  int32_t *numbers = MT_ARENA_NEW(build->arena, int32_t, 3 * modules);
  build->host_left = MT_ARENA_NEW(build->arena, bool, modules);
  build->layouts = MT_ARENA_NEW(build->arena, mt_layout, modules);
  mt_region *regions = MT_ARENA_NEW(build->arena, mt_region, modules);
  if (build->result == NULL || sets == NULL || numbers == NULL || build->host_left == NULL ||
      build->layouts == NULL || regions == NULL)
    return false;
  build->module_before = sets;
  build->module_after = sets + modules;
  build->region_before = sets + 2 * modules;
  build->region_after = sets + 3 * modules;
  build->branch = numbers;
  build->host_region = numbers + modules;
  build->first_stage = numbers + 2 * modules;
  *build->result = (mt_derivation){.ranks = build->request->ranks,
                                   .microbatches = build->request->microbatches,
                                   .model = build->request->model,
                                   .regions = regions};
  return true;
}

motet_status mt_derive(mt_arena *arena, const mt_derive_request *request, motet_error *error,
                       mt_derivation **derivation) {
  motet_status status = check_request(request, error);
  if (status != MOTET_OK) return status;
  mt_build build = {.arena = arena, .request = request, .error = error};
  if (!allocate(&build)) return mt_error_memory(error, sizeof(mt_derivation), "a derivation");
  status = copy_data(&build);
  if (status == MOTET_OK) status = mt_build_bind(&build);
  if (status == MOTET_OK) status = mt_build_judge(&build);
  if (status == MOTET_OK) status = mt_build_ranks(&build);
  if (status == MOTET_OK) status = print_canonical(&build);
  if (status == MOTET_OK) status = mt_build_place(&build);
  if (status != MOTET_OK) return status;
  mt_build_gates(build.result);
  for (int32_t s = 0; s < build.result->stage_count; s++) {
    mt_stage *stage = &build.result->stages[s];
    stage->recompute = (stage->modules & request->recompute) != 0 && stage->gate != MT_GATE_NONE &&
                       stage->layer_begin < stage->layer_end;
  }
  status = mt_build_body(&build);
  if (status == MOTET_OK) *derivation = build.result;
  return status;
}

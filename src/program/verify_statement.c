/* What the statement requires, worked out from modules, layers and masks alone: whether the stages tile the layers,
 * which stages have work for a microbatch, what trains. */
#include "program/verify.h"

#include <math.h>

/* More held stages than this an instruction are a sign of damage (see verify_tables.c). */
enum { HELD_AN_INSTRUCTION = 64, HELD_ALWAYS = 1 << 20 };

static motet_status check_modules(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  int32_t next = 0;
  for (int32_t i = 0; i < p->module_count; i++) {
    const motet_program_module *module = &p->modules[i];
    if (module->layer_begin != next || module->layer_end <= next || module->layer_end > p->layer_count)
      return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "modules", i,
                                    "layers [%d, %d): must be at least one, begin at %d and end by %d",
                                    module->layer_begin, module->layer_end, next, p->layer_count);
    next = module->layer_end;
  }
  if (next != p->layer_count)
    return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "modules", p->module_count - 1,
                                  "ends at layer %d, the model at %d: layers belong to a module each", next,
                                  p->layer_count);
  return MOTET_OK;
}

/* Every layer in exactly one stage. */
static motet_status tile_layers(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  for (int32_t layer = 0; layer < p->layer_count; layer++) verifier->layer_stage[layer] = -1;
  for (int32_t i = 0; i < p->stage_count; i++) {
    for (int32_t layer = p->stages[i].layer_begin; layer < p->stages[i].layer_end; layer++) {
      if (verifier->layer_stage[layer] != -1)
        return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "stages", i,
                                      "layer %d is in stage %d already: stages must tile the layers exactly", layer,
                                      verifier->layer_stage[layer]);
      verifier->layer_stage[layer] = i;
      if (p->layer_trainable[layer] != 0) verifier->trainable[i] = 1;
    }
  }
  for (int32_t layer = 0; layer < p->layer_count; layer++) {
    if (verifier->layer_stage[layer] == -1)
      return mt_verify_refuse(verifier, MT_RULE_COMPLETENESS, -1, -1, -1,
                              "layer %d is in no stage: stages must tile the %d layers exactly", layer,
                              p->layer_count);
  }
  return MOTET_OK;
}

static motet_status assign_modules(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  uint64_t *region_modules = mt_verify_array(verifier, (size_t)p->region_count, sizeof *region_modules);
  if (region_modules == NULL) return MOTET_ERROR_MEMORY;
  for (int32_t i = 0; i < p->module_count; i++) {
    for (int32_t layer = p->modules[i].layer_begin; layer < p->modules[i].layer_end; layer++)
      verifier->stage_modules[verifier->layer_stage[layer]] |= UINT64_C(1) << i;
  }
  for (int32_t i = 0; i < p->stage_count; i++) region_modules[p->stages[i].region] |= verifier->stage_modules[i];
  for (int32_t i = 0; i < p->stage_count; i++) {
    if (verifier->stage_modules[i] == 0) verifier->stage_modules[i] = region_modules[p->stages[i].region];
    if (!p->regions[p->stages[i].region].replicated)
      verifier->share_units[i] = llround(p->stages[i].share * (double)MT_SHARE_UNIT);
  }
  for (int32_t i = 0; i < p->microbatch_count; i++)
    verifier->live[i] = p->microbatches[i].present & ~p->microbatches[i].cached;
  return MOTET_OK;
}

static motet_status list_held_stages(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  int64_t total = 0;
  for (int32_t i = 0; i < p->stage_count; i++) total += p->groups[p->stages[i].group].count;
  if ((total - HELD_ALWAYS) / HELD_AN_INSTRUCTION > p->rank_begin[p->ranks] + p->ranks)
    return mt_error_set(verifier->error, MOTET_ERROR_LIMIT,
                        "ranks hold %lld stages in all, far more than the %lld instructions can serve",
                        (long long)total, (long long)p->rank_begin[p->ranks]);
  mt_verify_lists *held = &verifier->held;
  if (mt_verify_lists_start(verifier, held, p->ranks) != MOTET_OK) return MOTET_ERROR_MEMORY;
  for (int round = 0; round < 2; round++) {
    if (round == 1 && mt_verify_lists_room(verifier, held, p->ranks) != MOTET_OK) return MOTET_ERROR_MEMORY;
    for (int32_t i = 0; i < p->stage_count; i++) {
      motet_group group = p->groups[p->stages[i].group];
      for (int32_t j = 0; j < group.count; j++) {
        int32_t rank = p->group_ranks[group.first + j];
        if (round == 0) {
          mt_verify_lists_count(held, rank);
        } else {
          mt_verify_lists_add(held, rank, i);
        }
      }
    }
  }
  return MOTET_OK;
}

static motet_status list_carried(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  mt_verify_lists *carried = &verifier->carried;
  if (mt_verify_lists_start(verifier, carried, p->ranks) != MOTET_OK) return MOTET_ERROR_MEMORY;
  for (int32_t i = 0; i < p->carried_count; i++) mt_verify_lists_count(carried, p->carried[i].rank);
  if (mt_verify_lists_room(verifier, carried, p->ranks) != MOTET_OK) return MOTET_ERROR_MEMORY;
  for (int32_t i = 0; i < p->carried_count; i++) mt_verify_lists_add(carried, p->carried[i].rank, i);
  return MOTET_OK;
}

/* The ranks of either group, ascending: counted, or added to the tie's list. */
static void merge_groups(mt_verifier *verifier, int32_t tie, bool add) {
  const motet_program *p = verifier->program;
  motet_group a = p->groups[p->stages[p->ties[tie].first_stage].group];
  motet_group b = p->groups[p->stages[p->ties[tie].second_stage].group];
  int32_t i = 0, j = 0;
  while (i < a.count || j < b.count) {
    int32_t left = i < a.count ? p->group_ranks[a.first + i] : INT32_MAX;
    int32_t right = j < b.count ? p->group_ranks[b.first + j] : INT32_MAX;
    if (add) {
      mt_verify_lists_add(&verifier->tie_ranks, tie, left < right ? left : right);
    } else {
      mt_verify_lists_count(&verifier->tie_ranks, tie);
    }
    if (left <= right) i++;
    if (right <= left) j++;
  }
}

/* The weight that a tie shares belongs to the last layer of its second stage (the head) and to the first layer of
 * that layer's module (the embedding), which the first stage must hold. It trains in both or in neither. */
static motet_status judge_tie(mt_verifier *verifier, int32_t tie, bool *trains) {
  const motet_program *p = verifier->program;
  const motet_program_stage *second = &p->stages[p->ties[tie].second_stage];
  int32_t head = second->layer_end - 1, module = 0;
  if (second->layer_begin == second->layer_end)
    return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "ties", tie,
                                  "stage %d has no layer and so no weight to share", p->ties[tie].second_stage);
  while (p->modules[module].layer_end <= head) module++;
  int32_t embedding = p->modules[module].layer_begin;
  if (verifier->layer_stage[embedding] != p->ties[tie].first_stage)
    return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "ties", tie,
                                  "shares the weight of layer %d, which lies in stage %d and not in %d", embedding,
                                  verifier->layer_stage[embedding], p->ties[tie].first_stage);
  *trains = p->layer_trainable[head] != 0;
  if (*trains != (p->layer_trainable[embedding] != 0))
    return mt_verify_refuse_entry(
        verifier, MT_RULE_COMPLETENESS, "ties", tie,
        "shares the weight of layers %d and %d, of which one trains: must both, or neither", embedding, head);
  return MOTET_OK;
}

/* Ties that train have their gradients added up over all ranks that hold either stage; a tie inside one stage needs
 * nothing. */
static motet_status list_ties(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  mt_verify_lists *ties = &verifier->ties, *ranks = &verifier->tie_ranks;
  if (mt_verify_lists_start(verifier, ties, p->stage_count) != MOTET_OK ||
      mt_verify_lists_start(verifier, ranks, p->tie_count) != MOTET_OK)
    return MOTET_ERROR_MEMORY;
  for (int round = 0; round < 2; round++) {
    if (round == 1 && (mt_verify_lists_room(verifier, ties, p->stage_count) != MOTET_OK ||
                       mt_verify_lists_room(verifier, ranks, p->tie_count) != MOTET_OK))
      return MOTET_ERROR_MEMORY;
    for (int32_t i = 0; i < p->tie_count; i++) {
      int32_t first = p->ties[i].first_stage, second = p->ties[i].second_stage;
      bool trains = false;
      if (judge_tie(verifier, i, &trains) != MOTET_OK) return MOTET_ERROR_REFUSED;
      if (first == second || !trains) continue;
      merge_groups(verifier, i, round == 1);
      if (round == 0) {
        mt_verify_lists_count(ties, first);
        mt_verify_lists_count(ties, second);
      } else {
        mt_verify_lists_add(ties, first, i);
        mt_verify_lists_add(ties, second, i);
      }
    }
  }
  return MOTET_OK;
}

motet_status mt_verify_statement(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  size_t stages = (size_t)p->stage_count;
  verifier->layer_stage = mt_verify_array(verifier, (size_t)p->layer_count, sizeof *verifier->layer_stage);
  verifier->stage_modules = mt_verify_array(verifier, stages, sizeof *verifier->stage_modules);
  verifier->live = mt_verify_array(verifier, (size_t)p->microbatch_count, sizeof *verifier->live);
  verifier->trainable = mt_verify_array(verifier, stages, 1);
  verifier->upstream = mt_verify_array(verifier, stages, 1);
  verifier->asks = mt_verify_array(verifier, stages, 1);
  verifier->share_units = mt_verify_array(verifier, stages, sizeof *verifier->share_units);
  if (verifier->layer_stage == NULL || verifier->stage_modules == NULL || verifier->live == NULL ||
      verifier->trainable == NULL || verifier->upstream == NULL || verifier->asks == NULL ||
      verifier->share_units == NULL)
    return MOTET_ERROR_MEMORY;
  motet_status status = check_modules(verifier);
  if (status == MOTET_OK) status = tile_layers(verifier);
  if (status == MOTET_OK) status = assign_modules(verifier);
  if (status == MOTET_OK) status = list_held_stages(verifier);
  if (status == MOTET_OK) status = list_carried(verifier);
  if (status == MOTET_OK) status = list_ties(verifier);
  return status;
}

#include "pack/packer.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Trials a millisecond on one core of a common server; what a plan may spend is counted in these. */
static const double TRIALS_PER_MS = 90e3;
static const double DEADLINE_MS_MAX = 1e7;
enum { SEQUENCES_PER_MS = 512 }; /* of the default deadline */
static const int64_t MEMORY_TOKENS_MAX = (int64_t)1 << 40;

static motet_status check(const motet_pack_options *options, motet_error *error) {
  if (options->ranks < 1 || options->ranks > MOTET_PACK_RANKS_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d ranks; 1 to %d can be planned", options->ranks,
                        MOTET_PACK_RANKS_MAX);
  if (options->memory_tokens < 1 || options->memory_tokens > MEMORY_TOKENS_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "memory of %lld tokens a rank; it must be 1 to 2^40",
                        (long long)options->memory_tokens);
  if (options->planner == MOTET_PACK_STATIC &&
      (options->static_degree < 1 || options->static_degree > options->ranks))
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "static degree %d; it must be 1 to the %d ranks",
                        options->static_degree, options->ranks);
  if (options->batch == MOTET_PACK_FIXED && options->batch_size < 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d sequences a microbatch; it must be at least 1",
                        options->batch_size);
  if (options->group_budget < 0 || options->ranks_per_node < 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a group budget and ranks per node must not be negative");
  if (!(options->deadline_ms >= 0 && options->deadline_ms <= DEADLINE_MS_MAX))
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a deadline of %g ms; it must be 0 to %g",
                        options->deadline_ms, DEADLINE_MS_MAX);
  if (options->scope == MOTET_PACK_GLOBAL && options->planner != MOTET_PACK_BEST)
    return mt_error_set(error, MOTET_ERROR_UNSUPPORTED,
                        "the global scope is planned by `best` alone; `%s` plans "
                        "microbatches",
                        motet_pack_planner_name(options->planner));
  return MOTET_OK;
}

static motet_status build_base_table(motet_packer *packer, motet_error *error) {
  packer->base_degrees = MT_ARENA_NEW(packer->fixed_arena, int32_t, packer->table.count);
  if (packer->base_degrees == NULL) return mt_error_memory(error, 0, "the base degrees");
  for (int32_t i = 0; i < packer->table.count; i++) {
    int32_t degree = packer->table.rows[i].degree;
    if (mt_pack_sets_base(&packer->sets, degree)) packer->base_degrees[packer->base_degree_count++] = degree;
  }
  if (packer->base_degree_count == 0)
    return mt_error_set(error, MOTET_ERROR_ILLEGAL,
                        "a budget of %d rank sets needs an allowed degree of 1 or a power of two from %d on",
                        packer->options.group_budget, packer->sets.base_least);
  return mt_pack_table_build(packer->fixed_arena, &packer->options.cost, packer->base_degrees,
                             packer->base_degree_count, packer->options.ranks, error, &packer->base_table);
}

motet_status motet_packer_create(const motet_pack_options *options, motet_error *error, motet_packer **result) {
  *result = NULL;
  motet_status status = check(options, error);
  if (status != MOTET_OK) return status;
  motet_packer *packer = calloc(1, sizeof *packer);
  if (packer == NULL) return mt_error_memory(error, sizeof *packer, "a packer");
  packer->options = *options;
  packer->fixed_arena = mt_arena_create();
  packer->batch_arena = mt_arena_create();
  bool sets_made =
      mt_pack_sets_create(options->ranks, options->ranks_per_node, options->group_budget, &packer->sets);
  if (packer->fixed_arena == NULL || packer->batch_arena == NULL || !sets_made) {
    status = mt_error_memory(error, 0, "a packer");
    goto fail;
  }
  const int32_t *degrees = options->degree_count > 0 ? options->degrees : NULL;
  status = mt_pack_table_build(packer->fixed_arena, &options->cost, degrees, options->degree_count, options->ranks,
                               error, &packer->table);
  if (status != MOTET_OK) goto fail;
  packer->options.degrees = NULL; /* the table has them */
  packer->longest = packer->table.rows[packer->table.count - 1].degree * options->memory_tokens;
  if (options->group_budget > 0) status = build_base_table(packer, error);
  if (status != MOTET_OK) goto fail;
  *result = packer;
  return MOTET_OK;
fail:
  motet_packer_destroy(packer);
  return status;
}

void motet_packer_destroy(motet_packer *packer) {
  if (packer == NULL) return;
  mt_pack_solver_destroy(&packer->solver);
  mt_pack_solver_destroy(&packer->base_solver);
  mt_pack_sets_destroy(&packer->sets);
  mt_arena_destroy(packer->fixed_arena);
  mt_arena_destroy(packer->batch_arena);
  free(packer->microbatches.data);
  free(packer->groups.data);
  free(packer->ranks.data);
  free(packer->sequences.data);
  free(packer->deferred.data);
  free(packer->parts.data);
  free(packer->slices.data);
  free(packer->cumulative.data);
  free(packer->canonical.data);
  free(packer);
}

int64_t motet_packer_longest(const motet_packer *packer) { return packer->longest; }

/* Arrays for `count` sequences; made anew, half again as large, only when a batch is larger than any before. */
static motet_status reserve(motet_packer *packer, int32_t count, motet_error *error) {
  if (count <= packer->capacity) return MOTET_OK;
  int32_t capacity = count < INT32_MAX / 2 ? count + count / 2 : count;
  if (capacity < 64) capacity = 64;
  packer->capacity = 0;
  mt_pack_solver_destroy(&packer->solver);
  mt_pack_solver_destroy(&packer->base_solver);
  mt_arena_reset(packer->batch_arena);
  mt_arena *arena = packer->batch_arena;
  packer->members = MT_ARENA_NEW(arena, int32_t, capacity);
  packer->spare = MT_ARENA_NEW(arena, int32_t, capacity);
  packer->microbatch_of = MT_ARENA_NEW(arena, int32_t, capacity);
  packer->floors = MT_ARENA_NEW(arena, double, capacity);
  packer->cut_work = MT_ARENA_NEW(arena, double, capacity);
  packer->cut_tokens = MT_ARENA_NEW(arena, int64_t, capacity);
  packer->is_deferred = MT_ARENA_NEW(arena, bool, capacity);
  packer->keys = MT_ARENA_NEW(arena, double, capacity);
  packer->group_order = MT_ARENA_NEW(arena, int32_t, capacity);
  packer->group_degree = MT_ARENA_NEW(arena, int32_t, capacity);
  packer->sorted = MT_ARENA_NEW(arena, int32_t, capacity);
  packer->group_first = MT_ARENA_NEW(arena, int64_t, capacity);
  packer->group_copy = MT_ARENA_NEW(arena, motet_pack_group, capacity);
  bool made = packer->members != NULL && packer->spare != NULL && packer->microbatch_of != NULL &&
              packer->cut_work != NULL && packer->cut_tokens != NULL && packer->floors != NULL &&
              packer->is_deferred != NULL && packer->keys != NULL && packer->group_order != NULL &&
              packer->group_degree != NULL && packer->sorted != NULL && packer->group_first != NULL &&
              packer->group_copy != NULL;
  made = made && mt_pack_solver_create(arena, &packer->table, packer->options.ranks, packer->options.memory_tokens,
                                       capacity, &packer->solver);
  if (packer->options.group_budget > 0)
    made = made && mt_pack_solver_create(arena, &packer->base_table, packer->options.ranks,
                                         packer->options.memory_tokens, capacity, &packer->base_solver);
  if (packer->options.scope == MOTET_PACK_GLOBAL)
    made = made && mt_pack_timeline_create(arena, capacity, packer->options.ranks, &packer->timeline);
  if (!made) return mt_error_memory(error, (unsigned long long)capacity * 256, "a batch of sequences");
  packer->capacity = capacity;
  return MOTET_OK;
}

static motet_status check_sequences(const motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                                    motet_error *error) {
  for (int32_t k = 0; k < count; k++) {
    const motet_pack_sequence *sequence = &sequences[k];
    if (sequence->tokens < 1)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "sequence %d has %lld tokens; it needs at least 1", k,
                          (long long)sequence->tokens);
    if (!(sequence->area >= 0 && sequence->area <= 1e30))
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "sequence %d has area %g; it must be 0 to 1e30", k,
                          sequence->area);
    if (sequence->tokens > packer->longest) {
      mt_error_set(
          error, MOTET_ERROR_ILLEGAL,
          "sequence %d of %lld tokens fits no group: the widest allowed one has %d ranks of %lld tokens, so "
          "%lld tokens would fit",
          k, (long long)sequence->tokens, packer->table.rows[packer->table.count - 1].degree,
          (long long)packer->options.memory_tokens, (long long)packer->longest);
      mt_error_rule(error, "memory", -1, -1, -1);
      return MOTET_ERROR_ILLEGAL;
    }
  }
  return MOTET_OK;
}

mt_pack_work mt_pack_work_for(const motet_packer *packer, double share) {
  return (mt_pack_work){0, (int64_t)(packer->deadline_ms * share * TRIALS_PER_MS)};
}

motet_status mt_pack_plan_microbatch(motet_packer *packer, const motet_pack_sequence *sequences,
                                     const int32_t *members, int32_t count, double share, motet_error *error,
                                     bool *fits) {
  mt_pack_solution solution;
  mt_pack_placing placing;
  mt_pack_work work = mt_pack_work_for(packer, share);
  mt_pack_solver_load(&packer->solver, sequences, members, count);
  *fits = mt_pack_solve(&packer->solver, packer->options.planner, packer->options.static_degree, &work, &solution);
  if (!*fits) return MOTET_OK;
  motet_status status = mt_pack_emit(packer, &packer->solver, &solution, members, &placing, error);
  if (status != MOTET_OK) return status;
  if (placing == MT_PACK_PLACED) {
    packer->plan.stop =
        packer->microbatches.count == 1 || packer->plan.stop < solution.stop ? solution.stop : packer->plan.stop;
    return MOTET_OK;
  }
  /* The rank sets are used up: plan with degrees that the base family can place. */
  mt_pack_work again = mt_pack_work_for(packer, share);
  mt_pack_solution bent;
  mt_pack_solver_load(&packer->base_solver, sequences, members, count);
  *fits = mt_pack_solve(&packer->base_solver, MOTET_PACK_BEST, 0, &again, &bent);
  if (!*fits) return MOTET_OK;
  double free_value = solution.value, bound = solution.bound;
  bent.bound = bound;
  status = mt_pack_emit(packer, &packer->base_solver, &bent, members, &placing, error);
  if (status != MOTET_OK) return status;
  packer->plan.seconds_lost_to_budget += bent.value - free_value;
  packer->plan.stop = bent.stop;
  return MOTET_OK;
}

/* As above; sequences that do not fit are deferred, last ones first. */
static motet_status plan_or_defer(motet_packer *packer, const motet_pack_sequence *sequences, int32_t *members,
                                  int32_t count, double share, motet_error *error) {
  int64_t room = packer->options.memory_tokens * packer->options.ranks;
  int32_t kept = 0;
  for (int32_t i = 0; i < count; i++) { /* in file order, whoever finds memory */
    int32_t sequence = members[i];
    if (sequences[sequence].tokens <= room) {
      room -= sequences[sequence].tokens;
      members[kept++] = sequence;
    } else {
      packer->is_deferred[sequence] = true;
    }
  }
  for (int32_t drop = 1; kept > 0; drop *= 2) {
    bool fits;
    motet_status status = mt_pack_plan_microbatch(packer, sequences, members, kept, share, error, &fits);
    if (status != MOTET_OK || fits) return status;
    for (int32_t i = 0; i < drop && kept > 0; i++) packer->is_deferred[members[--kept]] = true;
  }
  return MOTET_OK;
}

static motet_status plan_global(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                                motet_error *error) {
  for (int32_t k = 0; k < count; k++) packer->members[k] = k;
  mt_pack_solution solution;
  mt_pack_work work = mt_pack_work_for(packer, 1);
  mt_pack_solver_load(&packer->solver, sequences, packer->members, count);
  if (!mt_pack_solve_global(&packer->solver, &packer->timeline, &work, &solution))
    return mt_error_set(error, MOTET_ERROR_ILLEGAL,
                        "the allowed degrees leave some sequence no place on the %d ranks", packer->options.ranks);
  packer->plan.stop = solution.stop;
  packer->plan.lower_bound = solution.bound;
  return mt_pack_emit_global(packer, &solution, packer->members, error);
}

static motet_status plan_batches(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                                 motet_error *error) {
  int32_t size = packer->options.batch == MOTET_PACK_FIXED ? packer->options.batch_size : count;
  for (int32_t begin = 0; begin < count; begin += size) {
    int32_t here = count - begin < size ? count - begin : size;
    for (int32_t i = 0; i < here; i++) packer->members[i] = begin + i;
    motet_status status = plan_or_defer(packer, sequences, packer->members, here, (double)here / count, error);
    if (status != MOTET_OK) return status;
    if (here < size) break;
  }
  for (size_t m = 0; m < packer->microbatches.count; m++)
    packer->plan.lower_bound += packer->microbatches.data[m].lower_bound;
  return MOTET_OK;
}

static motet_status finish(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                           motet_error *error) {
  motet_pack_plan *plan = &packer->plan;
  plan->value = mt_pack_sum_of_values(packer);
  if (plan->lower_bound > plan->value) plan->lower_bound = plan->value;
  for (int32_t k = 0; k < count; k++) {
    if (packer->is_deferred[k] && !MT_ARRAY_PUSH(&packer->deferred, k))
      return mt_error_memory(error, (size_t)count * sizeof(int32_t), "the deferred sequences");
    if (!packer->is_deferred[k]) plan->loss_denominator += sequences[k].tokens;
  }
  motet_status status = mt_pack_slice_all(packer, sequences, error);
  if (status != MOTET_OK) return status;
  bool made;
  plan->digest = mt_pack_digest(packer, &made);
  if (!made) return mt_error_memory(error, 0, "the digest");
  plan->planner = packer->options.planner;
  plan->microbatch_count = (int64_t)packer->microbatches.count;
  plan->group_count = (int64_t)packer->groups.count;
  plan->deferred_count = (int64_t)packer->deferred.count;
  plan->part_count = (int64_t)packer->parts.count;
  plan->microbatches = packer->microbatches.data;
  plan->groups = packer->groups.data;
  plan->ranks = packer->ranks.data;
  plan->sequences = packer->sequences.data;
  plan->deferred = packer->deferred.data;
  plan->parts = packer->parts.data;
  plan->slices = packer->slices.data;
  plan->cumulative = packer->cumulative.data;
  packer->seconds_total += plan->value;
  packer->seconds_lost += plan->seconds_lost_to_budget;
  packer->plans++;
  return MOTET_OK;
}

motet_status motet_packer_plan(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                               motet_error *error, const motet_pack_plan **plan) {
  *plan = NULL;
  if (count < 0) return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d sequences", count);
  motet_status status = check_sequences(packer, sequences, count, error);
  if (status == MOTET_OK) status = reserve(packer, count, error);
  if (status != MOTET_OK) return status;
  packer->deadline_ms = packer->options.deadline_ms;
  if (packer->deadline_ms <= 0)
    packer->deadline_ms = count > SEQUENCES_PER_MS ? (double)count / SEQUENCES_PER_MS : 1;
  packer->plan = (motet_pack_plan){.stop = MOTET_PACK_STOP_BOUND};
  mt_pack_forget_microbatches(packer);
  packer->deferred.count = 0;
  if (count > 0) memset(packer->is_deferred, 0, (size_t)count * sizeof *packer->is_deferred);
  if (count > 0) {
    if (packer->options.scope == MOTET_PACK_GLOBAL)
      status = plan_global(packer, sequences, count, error);
    else if (packer->options.batch == MOTET_PACK_AUTO)
      status = mt_pack_plan_auto(packer, sequences, count, error);
    else
      status = plan_batches(packer, sequences, count, error);
  }
  if (status == MOTET_OK) status = finish(packer, sequences, count, error);
  if (status == MOTET_OK) *plan = &packer->plan;
  return status;
}

void motet_packer_pool(const motet_packer *packer, motet_pack_pool *pool) {
  *pool = (motet_pack_pool){.made = packer->sets.made,
                            .hits = packer->sets.hits,
                            .seconds_lost = packer->seconds_lost,
                            .seconds = packer->seconds_total};
}

int32_t motet_packer_pool_set(const motet_packer *packer, int64_t index, int32_t *ranks) {
  const mt_pack_sets *sets = &packer->sets;
  if (index < 0 || index >= sets->made) return 0;
  const uint64_t *bits = sets->bits.data + index * sets->words;
  int32_t count = 0;
  for (int32_t rank = 0; rank < sets->ranks; rank++)
    if ((bits[rank / 64] >> (rank % 64)) & 1) {
      if (ranks != NULL) ranks[count] = rank;
      count++;
    }
  return count;
}

static const char *const planner_names[] = {"best", "bfd-dp", "static", "pow2-greedy", "lpt"};
static const char *const stop_names[] = {"bound", "exhausted", "local optimum", "work", "baseline"};

const char *motet_pack_planner_name(motet_pack_planner planner) {
  return (unsigned)planner < sizeof planner_names / sizeof *planner_names ? planner_names[planner] : "?";
}

const char *motet_pack_stop_name(motet_pack_stop stop) {
  return (unsigned)stop < sizeof stop_names / sizeof *stop_names ? stop_names[stop] : "?";
}

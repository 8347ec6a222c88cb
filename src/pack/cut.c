/* Cutting a batch into microbatches with a barrier behind each. */
#include "base/error.h"
#include "pack/packer.h"

#include <math.h>
#include <string.h>

static const double TRIAL_SHARE = 0.1; /* of the effort, for each way to cut that is tried */
static const double FULL_SHARE = 0.95; /* of the memory, that packs without much trouble */

void mt_pack_forget_microbatches(motet_packer *packer) {
  packer->microbatches.count = packer->groups.count = packer->ranks.count = packer->sequences.count = 0;
  packer->plan.distinct_groups = 0;
  packer->plan.seconds_lost_to_budget = 0;
}

/* How a batch is cut into microbatches. */
typedef struct cut {
  int32_t microbatches;
  bool spread;  /* work spread evenly over them; else runs by work, so that the longest lie side by side */
  double lean;  /* of runs: how far the first one is below an equal part of the tokens, 0 to 1: to what the others
                   can just hold. The long sequences in it then find more ranks. */
  double share; /* of the effort */
} cut;

/* Fills packer->microbatch_of: runs by work of about equal memory, the longest first. */
static bool cut_runs(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count, int64_t tokens,
                     const cut *how) {
  int64_t whole = packer->options.memory_tokens * packer->options.ranks;
  int32_t at = 0;
  for (int32_t m = 0; m < how->microbatches && at < count; m++) {
    int32_t left = how->microbatches - m;
    int64_t fair = tokens / left + (tokens % left != 0), taken = 0;
    if (m == 0 && left > 1) {
      double held = FULL_SHARE * (double)whole * (left - 1), rest = (double)tokens - held;
      fair -= (int64_t)(how->lean * ((double)fair - (rest > 0 ? rest : 0)));
    }
    for (; at < count; at++) {
      int64_t next = sequences[packer->members[at]].tokens;
      if (taken + next > whole || (left > 1 && taken > 0 && taken + next / 2 > fair)) break;
      packer->microbatch_of[packer->members[at]] = m;
      taken += next;
    }
    tokens -= taken;
  }
  return at == count;
}

/* As above: each sequence, longest first, to the microbatch of least work that has memory for it. */
static bool cut_evenly(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count, const cut *how) {
  int64_t whole = packer->options.memory_tokens * packer->options.ranks;
  double *work = packer->cut_work;
  int64_t *taken = packer->cut_tokens;
  for (int32_t m = 0; m < how->microbatches; m++) {
    work[m] = 0;
    taken[m] = 0;
  }
  for (int32_t i = 0; i < count; i++) {
    const motet_pack_sequence *sequence = &sequences[packer->members[i]];
    int32_t chosen = -1;
    for (int32_t m = 0; m < how->microbatches; m++)
      if (taken[m] + sequence->tokens <= whole && (chosen < 0 || work[m] < work[chosen])) chosen = m;
    if (chosen < 0) return false;
    packer->microbatch_of[packer->members[i]] = chosen;
    taken[chosen] += sequence->tokens;
    work[chosen] += packer->table.linear * (double)sequence->tokens + packer->table.attention * sequence->area;
  }
  return true;
}

static bool make_cut(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count, int64_t tokens,
                     const cut *how) {
  return how->spread ? cut_evenly(packer, sequences, count, how) : cut_runs(packer, sequences, count, tokens, how);
}

/* Lists microbatch m's sequences, ascending, in packer->spare; returns their number. */
static int32_t gather(motet_packer *packer, int32_t count, int32_t m) {
  int32_t here = 0;
  for (int32_t k = 0; k < count; k++)
    if (packer->microbatch_of[k] == m) packer->spare[here++] = k;
  return here;
}

/* Cuts and plans; `*fits` is false if memory or the planner asks for more microbatches. */
static motet_status plan_cut(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                             int64_t tokens, const cut *how, motet_error *error, bool *fits) {
  mt_pack_forget_microbatches(packer);
  *fits = make_cut(packer, sequences, count, tokens, how);
  for (int32_t m = 0; m < how->microbatches && *fits; m++) {
    int32_t here = gather(packer, count, m);
    if (here == 0) continue;
    motet_status status = mt_pack_plan_microbatch(packer, sequences, packer->spare, here,
                                                  how->share / how->microbatches, error, fits);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

double mt_pack_sum_of_values(const motet_packer *packer) {
  double value = 0;
  for (size_t m = 0; m < packer->microbatches.count; m++) value += packer->microbatches.data[m].value;
  return value;
}

/* A cut's promise: the sum of its microbatches' plain bounds, which the planner comes close to where memory is not
 * tight. @p fill: the share of its memory that the fullest microbatch takes. */
static double promise_of(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count, const cut *how,
                         double *fill) {
  double *work = packer->cut_work, *floors = packer->keys, sum = 0;
  int64_t *taken = packer->cut_tokens, most = 0;
  for (int32_t m = 0; m < how->microbatches; m++) {
    work[m] = floors[m] = 0;
    taken[m] = 0;
  }
  for (int32_t k = 0; k < count; k++) {
    int32_t m = packer->microbatch_of[k];
    work[m] += packer->table.linear * (double)sequences[k].tokens + packer->table.attention * sequences[k].area;
    taken[m] += sequences[k].tokens;
    if (packer->floors[k] > floors[m]) floors[m] = packer->floors[k];
  }
  for (int32_t m = 0; m < how->microbatches; m++) {
    double even = packer->table.fixed + work[m] / packer->options.ranks;
    sum += even > floors[m] ? even : floors[m];
    if (taken[m] > most) most = taken[m];
  }
  *fill = (double)most / ((double)packer->options.memory_tokens * packer->options.ranks);
  return sum;
}

/* The most promising cuts: one that may be tight and two that are not. */
enum { CUTS_TRIED = 3 };

static int choose_cuts(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count, int64_t tokens,
                       int32_t least, cut chosen[CUTS_TRIED]) {
  static const cut ways[] = {{.lean = 0}, {.lean = 0.3}, {.lean = 0.6}, {.lean = 1}, {.spread = true}};
  enum { MORE_MAX = 3, WAYS = sizeof ways / sizeof *ways };
  double promises[CUTS_TRIED] = {INFINITY, INFINITY, INFINITY};
  for (int32_t m = least; m <= least + MORE_MAX && m <= count; m++)
    for (int way = 0; way < WAYS; way++) {
      cut trial = {m, ways[way].spread, ways[way].lean, TRIAL_SHARE};
      double fill;
      if (!make_cut(packer, sequences, count, tokens, &trial)) continue;
      double promise = promise_of(packer, sequences, count, &trial, &fill);
      int place = fill > FULL_SHARE ? 0 : promise < promises[1] ? 1 : 2;
      if (promise >= promises[place]) continue;
      if (place == 1) {
        chosen[2] = chosen[1];
        promises[2] = promises[1];
      }
      chosen[place] = trial;
      promises[place] = promise;
    }
  int kept = 0;
  for (int i = 0; i < CUTS_TRIED; i++)
    if (promises[i] < INFINITY) chosen[kept++] = chosen[i];
  return kept;
}

/* What a cut comes to without placing anything; INFINITY if memory or the planner asks for more microbatches. */
static double try_cut(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count, int64_t tokens,
                      const cut *how) {
  if (!make_cut(packer, sequences, count, tokens, how)) return INFINITY;
  double sum = 0;
  for (int32_t m = 0; m < how->microbatches; m++) {
    int32_t here = gather(packer, count, m);
    if (here == 0) continue;
    mt_pack_solution solution;
    mt_pack_work work = mt_pack_work_for(packer, how->share / how->microbatches);
    mt_pack_solver_load(&packer->solver, sequences, packer->spare, here);
    if (!mt_pack_solve(&packer->solver, packer->options.planner, packer->options.static_degree, &work, &solution))
      return INFINITY;
    sum += solution.value;
  }
  return sum;
}

/* The first number of microbatches, in runs, that the planner can pack. */
static motet_status first_cut(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                              int64_t tokens, int32_t least, motet_error *error, cut *found) {
  for (int32_t m = least; m <= count; m++) {
    *found = (cut){.microbatches = m, .share = 1};
    if (try_cut(packer, sequences, count, tokens, found) < INFINITY) return MOTET_OK;
  }
  mt_error_set(error, MOTET_ERROR_ILLEGAL, "the planner %s places some sequence in no microbatch, not even alone",
               motet_pack_planner_name(packer->options.planner));
  mt_error_rule(error, "memory", -1, -1, -1);
  return MOTET_ERROR_ILLEGAL;
}

/* A cut's value for the published baseline, without its own search for degrees (the heap's are as good); INFINITY
 * if it does not fit. */
static double baseline_value(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                             int64_t tokens, const cut *how) {
  if (!make_cut(packer, sequences, count, tokens, how)) return INFINITY;
  double sum = 0;
  for (int32_t m = 0; m < how->microbatches; m++) {
    int32_t here = gather(packer, count, m);
    mt_pack_work work = {0};
    mt_pack_state *state = &packer->solver.states[0];
    mt_pack_solver_load(&packer->solver, sequences, packer->spare, here);
    mt_pack_best_fit(&packer->solver.problem, packer->solver.by_tokens, &packer->solver.scratch, &work, state);
    if (!mt_pack_state_allocate(state, &packer->solver.problem, &packer->solver.scratch)) return INFINITY;
    sum += mt_pack_state_value(state);
  }
  return sum;
}

/* Where the baseline's own cut (the first that it can pack) beats what was found, the search starts from it. */
static void consider_baseline(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                              int64_t tokens, int32_t least, double best, cut *chosen) {
  for (int32_t m = least; m <= count; m++) {
    cut trial = {.microbatches = m};
    double value = baseline_value(packer, sequences, count, tokens, &trial);
    if (value == INFINITY && m * packer->table.fixed < best) continue;
    if (value < best) *chosen = trial;
    return;
  }
}

static motet_status search_cut(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                               int64_t tokens, int32_t least, motet_error *error, cut *chosen) {
  cut trials[CUTS_TRIED];
  for (int32_t k = 0; k < count; k++) packer->floors[k] = mt_pack_floor(&packer->solver.problem, k);
  int tried = choose_cuts(packer, sequences, count, tokens, least, trials);
  double best = INFINITY;
  *chosen = (cut){0};
  for (int i = 0; i < tried; i++) {
    double value = try_cut(packer, sequences, count, tokens, &trials[i]);
    if (value >= best) continue;
    best = value;
    *chosen = trials[i];
  }
  consider_baseline(packer, sequences, count, tokens, least, best, chosen);
  if (chosen->microbatches > 0) return MOTET_OK;
  return first_cut(packer, sequences, count, tokens, least, error, chosen);
}

/* As few microbatches as memory asks for, or some more where that is faster. */
motet_status mt_pack_plan_auto(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                               motet_error *error) {
  int64_t whole = packer->options.memory_tokens * packer->options.ranks, tokens = 0;
  for (int32_t k = 0; k < count; k++) {
    tokens += sequences[k].tokens;
    packer->members[k] = k;
  }
  mt_pack_solver_load(&packer->solver, sequences, packer->members, count);
  memcpy(packer->members, packer->solver.order, (size_t)count * sizeof *packer->members);
  double bound = mt_pack_solver_bound_barriers(&packer->solver);
  int32_t least = (int32_t)((tokens + whole - 1) / whole);
  cut chosen;
  motet_status status = packer->options.planner == MOTET_PACK_BEST
                            ? search_cut(packer, sequences, count, tokens, least, error, &chosen)
                            : first_cut(packer, sequences, count, tokens, least, error, &chosen);
  if (status != MOTET_OK) return status;
  bool fits;
  chosen.share = 1;
  packer->plan.lower_bound = bound;
  status = plan_cut(packer, sequences, count, tokens, &chosen, error, &fits);
  if (status != MOTET_OK || fits) return status;
  mt_error_set(error, MOTET_ERROR_ILLEGAL,
               "a budget of %d rank sets leaves degrees that cannot pack these sequences; a larger budget would",
               packer->options.group_budget);
  mt_error_rule(error, "group_budget", -1, -1, -1);
  return MOTET_ERROR_ILLEGAL;
}

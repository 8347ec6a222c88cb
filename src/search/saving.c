#include "search/saving.h"

#include <math.h>
#include <string.h>

/* Of what is too much so much is given up: open microbatches are counted as they usually are. */
static const double OVER = 1.05;

/* What giving up its activations costs each layer, for the heaviest microbatch. */
static void set_prices(mt_search_savings *s) {
  const mt_search_problem *problem = s->space->problem;
  const mt_model *model = problem->architecture->model;
  const bool open[MT_SAVINGS] = {[MT_SAVING_ALL] = true,
                                 [MT_SAVING_INPUT] = mt_search_may_save(problem, MT_SEARCH_RECOMPUTE),
                                 [MT_SAVING_HOST] = mt_search_may_save(problem, MT_SEARCH_OFFLOAD)};
  mt_forecast forecast = *s->forecast;
  forecast.savings = s->tried;
  memset(s->tried, MT_SAVING_ALL, (size_t)model->layer_count);
  for (int32_t l = 0; l < model->layer_count; l++) {
    double seconds[MT_SAVINGS], gain = fmax((double)(s->saved[l] - s->kept[l]), 1.0);
    for (int k = 0; k < MT_SAVINGS; k++) {
      mt_layer_forecast f;
      seconds[k] = INFINITY;
      if (!open[k]) continue;
      s->tried[l] = (uint8_t)k;
      mt_forecast_layer(&forecast, l, s->extents, &f);
      seconds[k] = f.forward_exchange + f.recompute + f.recompute_exchange + f.input_exchange + f.weight_exchange;
    }
    s->tried[l] = MT_SAVING_ALL;
    bool host = seconds[MT_SAVING_HOST] < seconds[MT_SAVING_INPUT];
    s->again[l] = (seconds[MT_SAVING_INPUT] - seconds[MT_SAVING_ALL]) / gain;
    s->cheapest[l] = host ? MT_SAVING_HOST : open[MT_SAVING_INPUT] ? MT_SAVING_INPUT : MT_SAVING_ALL;
    s->price[l] = host ? (seconds[MT_SAVING_HOST] - seconds[MT_SAVING_ALL]) / gain : s->again[l];
  }
}

motet_status mt_search_savings_open(mt_search_savings *s, motet_error *error) {
  int32_t layers = s->space->problem->architecture->model->layer_count;
  if (s->price != NULL) return MOTET_OK;
  s->cheapest = MT_ARENA_NEW(s->arena, uint8_t, layers);
  s->tried = MT_ARENA_NEW(s->arena, uint8_t, layers);
  s->price = MT_ARENA_NEW(s->arena, double, layers);
  s->again = MT_ARENA_NEW(s->arena, double, layers);
  s->host = MT_ARENA_NEW(s->arena, double, s->derivation->ranks);
  if (s->cheapest == NULL || s->tried == NULL || s->price == NULL || s->again == NULL || s->host == NULL)
    return mt_error_memory(error, (unsigned long long)layers * sizeof(double), "what layers may give up");
  set_prices(s);
  const motet_rank_memory none = {0}; /* of microbatches: no layer has given up anything yet */
  for (int32_t r = 0; r < s->derivation->ranks; r++)
    s->host[r] = mt_host_bytes_of(s->derivation, s->in_host, &none, r);
  return MOTET_OK;
}

/* The layer of a cell whose activations cost least to give up, and the microbatches that are open at its stage; -1:
 * there is none left. */
static int32_t find_cheapest(const mt_search_savings *s, int32_t rank, int32_t *open) {
  int32_t cheapest = -1;
  for (int32_t i = 0; i < s->derivation->stage_count; i++) {
    const mt_stage *place = &s->derivation->stages[i];
    if (!mt_stage_held(s->derivation, i, rank) || place->first_trainable < 0) continue;
    for (int32_t l = place->first_trainable; l < place->layer_end; l++) {
      if (s->of[l] != MT_SAVING_ALL || s->cheapest[l] == MT_SAVING_ALL) continue;
      if (cheapest >= 0 && !(s->price[l] < s->price[cheapest])) continue;
      cheapest = l;
      *open = s->open > 0 ? s->open : s->candidate->pipeline - place->slab % s->candidate->pipeline;
    }
  }
  if (*open > s->candidate->microbatches) *open = s->candidate->microbatches;
  return cheapest;
}

/* Layers of a cell's stages give up their activations, cheapest first, until what they no longer hold covers what
 * is over; into host memory as long as there is room. False: nothing is left to give up. */
static bool give_up(mt_search_savings *s, int32_t rank, double over) {
  double room = s->space->problem->cluster.device.host_memory_bytes;
  bool any = false;
  while (over > 0) {
    int32_t open = 1, layer = find_cheapest(s, rank, &open);
    if (layer < 0) break;
    double bytes = fmax((double)(s->saved[layer] - s->kept[layer]), 0) * open;
    bool host = s->cheapest[layer] == MT_SAVING_HOST;
    if (host && room > 0 && s->host[rank] + bytes > room) {
      s->cheapest[layer] = isinf(s->again[layer]) ? MT_SAVING_ALL : MT_SAVING_INPUT;
      s->price[layer] = s->again[layer];
      continue;
    }
    s->of[layer] = s->cheapest[layer];
    s->host[rank] += host ? bytes : 0;
    over -= bytes;
    any = true;
  }
  return any;
}

bool mt_search_savings_make_room(mt_search_savings *s, const motet_rank_memory *memory) {
  double cap = s->space->problem->memory_bytes;
  bool any = false;
  for (int32_t r = 0; r < s->derivation->ranks; r++) {
    double over = (double)memory[r].peak_bytes - cap;
    if (over > 0) any |= give_up(s, r, over * OVER);
  }
  return any;
}

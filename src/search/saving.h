/** @file
 * What the cells of a plan give up where they hold more than a device has: layers compute their activations again
 * or keep them in host memory. What costs least a byte goes first.
 */
#ifndef MT_SEARCH_SAVING_H
#define MT_SEARCH_SAVING_H

#include "order/forecast_costs.h"
#include "search/candidate.h"

typedef struct mt_search_savings {
  mt_arena *arena;
  const mt_search_space *space;
  const mt_search_candidate *candidate;
  const mt_derivation *derivation;
  const mt_forecast *forecast;  /* of the plan */
  const mt_host_bytes *in_host; /* of the plan */
  const double *extents;        /* of its heaviest microbatch */
  const int64_t *saved, *kept;  /* [layers] of a microbatch, whole; with the saving */
  int32_t open;                 /* microbatches that a rank may hold; 0: 1F1B's */
  uint8_t *of;                  /* [layers] mt_saving */

  uint8_t *cheapest, *tried; /* [layers] the saving that costs least; tried ones */
  double *price;             /* [layers] what that costs: seconds a byte */
  double *again;             /* [layers] what computing again costs, the same; infinite: not allowed */
  double *host;              /* [cells] bytes in host memory */
} mt_search_savings;

/** Makes what is in the second half, where it is not made yet. */
motet_status mt_search_savings_open(mt_search_savings *savings, motet_error *error);

/** For cells that hold more than the problem's, by the plan's @p memory [cells]. False: nothing is left to give up.
 */
bool mt_search_savings_make_room(mt_search_savings *savings, const motet_rank_memory *memory);

#endif

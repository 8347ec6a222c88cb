/* A stable merge sort: qsort() is neither stable nor free of allocation. */
#include "pack/search.h"

#include <string.h>

enum { RUN = 16 };

void mt_pack_sort(const double *keys, int32_t count, int32_t *items, int32_t *spare) {
  for (int32_t begin = 0; begin < count; begin += RUN) {
    int32_t end = begin + RUN < count ? begin + RUN : count;
    for (int32_t i = begin + 1; i < end; i++) {
      int32_t item = items[i], at = i;
      for (; at > begin && keys[items[at - 1]] < keys[item]; at--) items[at] = items[at - 1];
      items[at] = item;
    }
  }
  int32_t *from = items, *to = spare;
  for (int64_t width = RUN; width < count; width *= 2) {
    for (int64_t begin = 0; begin < count; begin += 2 * width) {
      int64_t middle = begin + width < count ? begin + width : count;
      int64_t end = begin + 2 * width < count ? begin + 2 * width : count;
      int64_t left = begin, right = middle;
      for (int64_t out = begin; out < end; out++)
        to[out] =
            left < middle && (right >= end || keys[from[left]] >= keys[from[right]]) ? from[left++] : from[right++];
    }
    int32_t *swap = from;
    from = to;
    to = swap;
  }
  if (from != items) memcpy(items, from, (size_t)count * sizeof *items);
}

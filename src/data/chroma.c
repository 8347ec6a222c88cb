#include "data/chroma.h"

void mt_chroma_enlarge(const uint8_t *source, ptrdiff_t source_stride, int32_t width, int32_t height, bool tall,
                       uint8_t *target, ptrdiff_t target_stride) {
  int32_t columns = (width + 1) / 2, rows = tall ? (height + 1) / 2 : height;
  /* Sums are in fourths, in sixteenths where both directions are doubled. Even places round up, odd ones down, so
     that no direction drifts; libjpeg's one-directional form has it the other way round. */
  int near_weight = tall ? 3 : 1, shift = tall ? 4 : 2, even = tall ? 8 : 1, odd = tall ? 7 : 2;
  for (int32_t y = 0; y < height; y++) {
    int32_t own = tall ? y / 2 : y, other = tall ? own + (y % 2 == 0 ? -1 : 1) : own;
    if (other < 0 || other >= rows) other = own;
    const uint8_t *near_row = source + own * source_stride, *far_row = source + other * source_stride;
    uint8_t *line = target + y * target_stride;
    for (int32_t x = 0; x < width; x++) {
      int32_t near_x = x / 2, far_x = near_x + (x % 2 == 0 ? -1 : 1);
      if (far_x < 0 || far_x >= columns) far_x = near_x;
      int near_sum = near_weight * near_row[near_x], far_sum = near_weight * near_row[far_x];
      if (tall) {
        near_sum += far_row[near_x];
        far_sum += far_row[far_x];
      }
      line[x] = (uint8_t)((3 * near_sum + far_sum + (x % 2 == 0 ? even : odd)) >> shift);
    }
  }
}

/* A video from arbitrary bytes: what is counted and decoded has the sizes that were promised, or is refused. */
#include "data/video.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static motet_status check(void *context, int32_t part, const mt_image *image, motet_error *error) {
  (void)error;
  int32_t *next = context;
  if (part != *next || image->width < 1 || image->height < 1 || image->rgb == NULL) abort();
  ++*next;
  return MOTET_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  mt_video video;
  if (mt_video_probe_memory(data, size, "fuzz", &error, &video) != MOTET_OK) return 0;
  if (video.frames < 1 || video.width < 1 || video.height < 1) abort();
  if ((int64_t)video.width * video.height > 1 << 16) return 0; /* slow, and no different */
  int32_t next = 0, parts = video.frames < 3 ? video.frames : 3;
  motet_status status = mt_video_read_memory(data, size, "fuzz", video.frames, parts, check, &next, &error);
  if (status == MOTET_OK && next != parts) abort();
  return 0;
}

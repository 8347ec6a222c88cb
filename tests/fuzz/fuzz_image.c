/* A picture from arbitrary bytes: what is decoded has the size that its header promised. */
#include "data/image.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  mt_image image;
  if (mt_image_decode(data, size, "fuzz", &error, &image) != MOTET_OK) {
    if (image.rgb != NULL) abort();
    return 0;
  }
  volatile unsigned sum = 0; /* every byte is read */
  for (size_t i = 0; i < (size_t)image.width * (size_t)image.height * 3; i++) sum = sum + image.rgb[i];
  mt_image_free(&image);
  return 0;
}

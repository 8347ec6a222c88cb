/* A safetensors file from arbitrary bytes: every tensor that is accepted must lie inside the file. */
#include "tensor/safetensors.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  mt_safetensors *tensors;
  if (mt_safetensors_parse(data, size, "fuzz", &error, &tensors) != MOTET_OK) return 0;
  for (int64_t i = 0; i < mt_safetensors_count(tensors); i++) {
    const mt_safetensor *tensor = mt_safetensors_at(tensors, i);
    const uint8_t *begin = tensor->data;
    if (begin < data || tensor->bytes > size || begin > data + (size - tensor->bytes)) abort();
    if (mt_safetensors_find(tensors, tensor->name) != tensor) abort();
    float value;
    if (tensor->count > 0) (void)mt_safetensor_floats(tensor, tensor->count - 1, 1, &error, &value);
  }
  mt_safetensors_close(tensors);
  return 0;
}

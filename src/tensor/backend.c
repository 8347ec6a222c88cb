#include "tensor/backend.h"

#include "tensor/kernels/kernels.h"

#include <stddef.h>

typedef struct choice {
  const mt_tensor_backend *backend;
  bool (*runs)(void);
} choice;

static bool always(void) { return true; }

#ifdef MT_KERNELS_X86
static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static bool has_avx512(void) {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
static bool has_avx512bf16(void) { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif

/* Of each element slowest first. */
static const choice choices[] = {
    {&mt_tensor_backend_generic, always},
    {&mt_tensor_backend_generic_bfloat16, always},
#ifdef MT_KERNELS_X86
    {&mt_tensor_backend_avx2, has_avx2},
    {&mt_tensor_backend_avx2_bfloat16, has_avx2},
    {&mt_tensor_backend_avx512, has_avx512},
    {&mt_tensor_backend_avx512_bfloat16, has_avx512},
    {&mt_tensor_backend_avx512bf16_bfloat16, has_avx512bf16},
#endif
};

int mt_tensor_backend_list(const mt_tensor_backend *backends[], int maximum) {
  int count = 0;
  for (size_t i = 0; i < sizeof choices / sizeof *choices && count < maximum; i++)
    if (choices[i].runs()) backends[count++] = choices[i].backend;
  return count;
}

const mt_tensor_backend *mt_tensor_backend_cpu(mt_element element) {
  const mt_tensor_backend *best = NULL;
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
    if (choices[i].backend->element == element && choices[i].runs()) best = choices[i].backend;
  return best;
}

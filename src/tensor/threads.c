#include "tensor/threads.h"

#include <dlfcn.h>
#include <stddef.h>

/*
 * oneDNN brings its own OpenMP library along. Asking the process for its functions reaches that one; linking to
 * OpenMP here would, with another compiler, bring a second one, whose count nobody reads.
 */
void mt_threads_set(int count) {
  void (*set)(int);
  *(void **)&set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  if (set != NULL && count >= 1) set(count);
}

int mt_threads_get(void) {
  int (*get)(void);
  *(void **)&get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
  return get != NULL ? get() : 1;
}

#include "tensor/onednn.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>

struct mt_onednn {
  void (*set_threads)(int); /* of the library's OpenMP; NULL: it has none */
};

motet_status mt_onednn_create(motet_error *error, mt_onednn **result) {
  *result = NULL;
  mt_onednn *library = calloc(1, sizeof *library);
  if (library == NULL) return mt_error_memory(error, sizeof *library, "oneDNN's state");
  /* oneDNN brings its own OpenMP along. Asking the process for the function reaches that one; linking to OpenMP
     here would, with another compiler, bring a second one, whose count nobody reads. */
  *(void **)&library->set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  *result = library;
  return MOTET_OK;
}

void mt_onednn_destroy(mt_onednn *library) { free(library); }

void mt_onednn_hold_signals(sigset_t *before) {
  sigset_t held;
  sigfillset(&held);
  /* What a thread brings upon itself cannot wait. */
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&held, own[i]);
  pthread_sigmask(SIG_BLOCK, &held, before);
}

/* The count belongs to the calling thread. */
static void use_one_thread(const mt_onednn *library) {
  if (library->set_threads != NULL) library->set_threads(1);
}

bool mt_onednn_multiply(mt_onednn *library, const mt_onednn_product *p) {
  use_one_thread(library);
  return dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', p->m, p->n, p->k, 1.0F, p->a,
                    p->a_stride, p->b, p->b_stride, p->accumulate ? 1.0F : 0.0F, p->c, p->c_stride) == dnnl_success;
}

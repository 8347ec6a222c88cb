#include "tensor/onednn.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>

struct mt_onednn {
  void (*set_threads)(int); /* of the library's OpenMP; NULL: it has none */
  int32_t threads;
  dnnl_engine_t engine;
  dnnl_stream_t *stream;       /* [threads] */
  dnnl_primitive_t product[4]; /* by transpose_a + 2 * transpose_b, for any shape */
};

static motet_status refused(motet_error *error, dnnl_status_t status, const char *what) {
  return mt_error_set(error, status == dnnl_out_of_memory ? MOTET_ERROR_MEMORY : MOTET_ERROR_FAILED,
                      "oneDNN cannot make %s: code %d", what, (int)status);
}

motet_status mt_onednn_create(int32_t threads, motet_error *error, mt_onednn **result) {
  *result = NULL;
  mt_onednn *library = calloc(1, sizeof *library);
  if (library == NULL) return mt_error_memory(error, sizeof *library, "oneDNN's state");
  library->threads = threads;
  /* oneDNN brings its own OpenMP along. Asking the process for the function reaches that one; linking to OpenMP
     here would, with another compiler, bring a second one, whose count nobody reads. */
  *(void **)&library->set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  *result = library;
  return MOTET_OK;
}

void mt_onednn_destroy(mt_onednn *library) {
  if (library == NULL) return;
  for (int i = 0; i < 4; i++)
    if (library->product[i] != NULL) dnnl_primitive_destroy(library->product[i]);
  for (int32_t i = 0; library->stream != NULL && i < library->threads; i++)
    if (library->stream[i] != NULL) dnnl_stream_destroy(library->stream[i]);
  if (library->engine != NULL) dnnl_engine_destroy(library->engine);
  free(library->stream);
  free(library);
}

bool mt_onednn_has_bfloat16(void) {
  /* Instruction sets are bit sets: a later one contains the earlier ones. */
  const unsigned wanted = dnnl_cpu_isa_avx512_core_bf16;
  return ((unsigned)dnnl_get_effective_cpu_isa() & wanted) == wanted;
}

/* (rows, columns) as stored, or transposed: whichever stride is not 1 is told when the product runs. */
static dnnl_status_t describe(dnnl_memory_desc_t *description, dnnl_data_type_t type, int64_t rows, int64_t columns,
                              int64_t stride, bool transposed) {
  dnnl_dims_t dims = {rows, columns}, strides = {transposed ? 1 : stride, transposed ? stride : 1};
  return dnnl_memory_desc_init_by_strides(description, 2, dims, type, strides);
}

static dnnl_status_t make_product(dnnl_engine_t engine, bool transpose_a, bool transpose_b,
                                  dnnl_primitive_t *primitive) {
  const int64_t any = DNNL_RUNTIME_DIM_VAL;
  dnnl_memory_desc_t a, b, c;
  dnnl_matmul_desc_t product;
  dnnl_primitive_desc_t description;
  dnnl_status_t status = describe(&a, dnnl_bf16, any, any, any, transpose_a);
  if (status == dnnl_success) status = describe(&b, dnnl_bf16, any, any, any, transpose_b);
  if (status == dnnl_success) status = describe(&c, dnnl_f32, any, any, any, false);
  if (status == dnnl_success) status = dnnl_matmul_desc_init(&product, &a, &b, NULL, &c);
  if (status == dnnl_success) status = dnnl_primitive_desc_create(&description, &product, NULL, engine, NULL);
  if (status != dnnl_success) return status;
  status = dnnl_primitive_create(primitive, description);
  dnnl_primitive_desc_destroy(description);
  return status;
}

motet_status mt_onednn_prepare_bfloat16(mt_onednn *library, motet_error *error) {
  if (library->stream != NULL) return MOTET_OK;
  dnnl_status_t status = dnnl_engine_create(&library->engine, dnnl_cpu, 0);
  for (int i = 0; i < 4 && status == dnnl_success; i++)
    status = make_product(library->engine, (i & 1) != 0, (i & 2) != 0, &library->product[i]);
  if (status != dnnl_success) return refused(error, status, "products of bfloat16");
  library->stream = calloc((size_t)library->threads, sizeof *library->stream);
  if (library->stream == NULL)
    return mt_error_memory(error, (size_t)library->threads * sizeof *library->stream, "oneDNN's streams");
  for (int32_t i = 0; i < library->threads && status == dnnl_success; i++)
    status = dnnl_stream_create(&library->stream[i], library->engine, dnnl_stream_default_flags);
  return status == dnnl_success ? MOTET_OK : refused(error, status, "a stream");
}

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

bool mt_onednn_multiply_bfloat16(mt_onednn *library, int32_t thread, const mt_onednn_product *p) {
  use_one_thread(library);
  dnnl_memory_desc_t a, b, c;
  if (describe(&a, dnnl_bf16, p->m, p->k, p->a_stride, p->transpose_a) != dnnl_success ||
      describe(&b, dnnl_bf16, p->k, p->n, p->b_stride, p->transpose_b) != dnnl_success ||
      describe(&c, dnnl_f32, p->m, p->n, p->c_stride, false) != dnnl_success)
    return false;
  dnnl_exec_arg_t arguments[3] = {{DNNL_ARG_SRC, NULL}, {DNNL_ARG_WEIGHTS, NULL}, {DNNL_ARG_DST, NULL}};
  /* The library does not write its factors, but has no words for that. */
  bool made =
      dnnl_memory_create(&arguments[0].memory, &a, library->engine, (void *)(uintptr_t)p->a) == dnnl_success &&
      dnnl_memory_create(&arguments[1].memory, &b, library->engine, (void *)(uintptr_t)p->b) == dnnl_success &&
      dnnl_memory_create(&arguments[2].memory, &c, library->engine, p->c) == dnnl_success;
  bool done = made &&
              dnnl_primitive_execute(library->product[p->transpose_a + 2 * p->transpose_b], library->stream[thread],
                                     3, arguments) == dnnl_success &&
              dnnl_stream_wait(library->stream[thread]) == dnnl_success;
  for (int i = 0; i < 3; i++)
    if (arguments[i].memory != NULL) dnnl_memory_destroy(arguments[i].memory);
  return done;
}

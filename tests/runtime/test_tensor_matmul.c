/* Products against their definition, with every table and any number of threads; teams. */
#include "kernel_case.h"
#include "tensor/matmul.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

typedef struct product_case {
  int64_t m, n, k;
} product_case;

static const product_case product_cases[] = {{13, 21, 9},    {1, 1, 1},     {12, 32, 256}, {25, 65, 513},
                                             {7, 3, 0},      {130, 40, 3},  {6, 300, 770}, {2, 17, 600},
                                             {121, 257, 31}, {7, 131, 2051}};

/* More rows than are converted at a time. */
static const product_case long_case = {4200, 2, 2051};

/* One product of a case against its definition: every transposition, type and addition that `kind` says. */
static void check_product(const mt_tensor_backend *backend, mt_team *team, const product_case *p, int kind) {
  const bool ta = kind & 1, tb = kind & 2, add = kind & 4, a_float = kind & 8, b_float = kind & 16,
             c_float = kind & 32, extras = kind & 64;
  const int64_t a_stride = (ta ? p->m : p->k) + 3, b_stride = (tb ? p->k : p->n) + 5, c_stride = p->n + 2;
  const int64_t a_count = (ta ? p->k : p->m) * a_stride, b_count = (tb ? p->n : p->k) * b_stride;
  const int64_t c_count = p->m * c_stride;
  float *a = fresh("a", a_count), *b = fresh("b", b_count), *start = fresh("c", c_count);
  float *bias = fresh("bias", p->n), *scale = fresh("scale", p->n), *base = fresh("base", c_count);
  round_floats(backend, a, a_count), round_floats(backend, b, b_count);
  round_floats(backend, base, c_count), round_floats(backend, start, c_count);
  void *stored_a = elements_of(backend, a, a_count), *stored_b = elements_of(backend, b, b_count);
  void *stored_base = elements_of(backend, base, c_count), *stored = elements_of(backend, start, c_count);
  float *c = fresh("c", c_count);
  memcpy(c, start, (size_t)c_count * sizeof *c);
  const mt_matmul product = {.transpose_a = ta,
                             .transpose_b = tb,
                             .a_float = a_float,
                             .b_float = b_float,
                             .c_float = c_float,
                             .accumulate = add,
                             .m = p->m,
                             .n = p->n,
                             .k = p->k,
                             .a = a_float ? a : stored_a,
                             .b = b_float ? b : stored_b,
                             .c = c_float ? c : stored,
                             .a_stride = a_stride,
                             .b_stride = b_stride,
                             .c_stride = c_stride,
                             .bias = extras ? bias : NULL,
                             .scale = extras ? scale : NULL,
                             .base = extras ? stored_base : NULL,
                             .base_stride = c_stride};
  motet_error error;
  assert_int_equal(mt_matmul_run(backend, team, &product, &error), MOTET_OK);
  if (!c_float) floats_of(backend, stored, c_count, c);
  double *wanted = zeros(p->m * p->n);
  float *found = fresh("found", p->m * p->n);
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++) {
      double sum = 0;
      for (int64_t q = 0; q < p->k; q++)
        sum += (double)(ta ? a[q * a_stride + i] : a[i * a_stride + q]) *
               (double)(tb ? b[j * b_stride + q] : b[q * b_stride + j]);
      if (extras) sum = (sum + (double)bias[j]) * (double)scale[j] + (double)base[i * c_stride + j];
      if (add) sum += (double)start[i * c_stride + j];
      wanted[i * p->n + j] = sum;
      found[i * p->n + j] = c[i * c_stride + j];
    }
  close_to(backend, "a product", found, wanted, p->m * p->n, c_float ? 2e-6 : tolerance_of(backend, 2e-6));
  for (int64_t i = 0; i < c_count; i++) /* nothing beside the product is touched */
    if (i % c_stride >= p->n) assert_true(c[i] == start[i]);
  free(a), free(b), free(start), free(bias), free(scale), free(base), free(c), free(found), free(wanted);
  free(stored_a), free(stored_b), free(stored_base), free(stored);
}

static void test_products(void **state) {
  (void)state;
  mt_team *team;
  motet_error error;
  assert_int_equal(mt_team_create(2, &error, &team), MOTET_OK);
  FOR_BACKENDS for (size_t i = 0; i < sizeof product_cases / sizeof *product_cases; i++) {
    for (int kind = 0; kind < 128; kind += i < 2 ? 1 : 9) check_product(BACKEND, team, &product_cases[i], kind);
  }
  FOR_BACKENDS if (BACKEND->element == MT_ELEMENT_BFLOAT16) {
    check_product(BACKEND, team, &long_case, 1);
    check_product(BACKEND, team, &long_case, 8);
  }
  mt_team_destroy(team);
}

/* c (m, n) = a (m, k) b^T, b (n, k), all of float32. */
static mt_matmul rows_by_rows(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c) {
  return (mt_matmul){.transpose_b = true,
                     .a_float = true,
                     .b_float = true,
                     .c_float = true,
                     .m = m,
                     .n = n,
                     .k = k,
                     .a = a,
                     .b = b,
                     .c = c,
                     .a_stride = k,
                     .b_stride = k,
                     .c_stride = n};
}

/* The same bits with any number of threads. */
static void test_products_do_not_depend_on_threads(void **state) {
  (void)state;
  enum { M = 530, N = 790, K = 300 }; /* several blocks of the result */
  float *a = fresh("a", M * K), *b = fresh("b", N * K);
  FOR_BACKENDS {
    float *first = fresh("", M * N), *other = fresh("", M * N);
    mt_matmul product = rows_by_rows(M, N, K, a, b, first);
    motet_error error;
    for (int32_t threads = 1; threads <= 4; threads++) {
      mt_team *team;
      assert_int_equal(mt_team_create(threads, &error, &team), MOTET_OK);
      product.c = threads == 1 ? first : other;
      assert_int_equal(mt_matmul_run(BACKEND, team, &product, &error), MOTET_OK);
      if (threads > 1) assert_memory_equal(first, other, M * N * sizeof *first);
      mt_team_destroy(team);
    }
    free(first), free(other);
  }
  free(a), free(b);
}

typedef struct tally {
  _Atomic int32_t times[1000];
  _Atomic int32_t threads_seen; /* bit set */
} tally;

static void count_index(void *context, int64_t index, int32_t thread) {
  tally *t = context;
  t->times[index]++;
  t->threads_seen |= 1 << thread;
}

static void test_team_does_everything_once(void **state) {
  (void)state;
  for (int32_t threads = 1; threads <= 4; threads++) {
    motet_error error;
    mt_team *team;
    assert_int_equal(mt_team_create(threads, &error, &team), MOTET_OK);
    assert_int_equal(mt_team_threads(team), threads);
    static tally t;
    memset(&t, 0, sizeof t);
    for (int run = 0; run < 300; run++) {
      const int64_t count = run * 7 % 41;
      for (int i = 0; i < 50; i++) t.times[i] = 0;
      mt_team_run(team, count, count_index, &t);
      for (int i = 0; i < 50; i++) assert_int_equal(t.times[i], i < count ? 1 : 0);
    }
    assert_true(t.threads_seen < 1 << threads);
    assert_int_equal(mt_team_reserve(team, 1000, 100, &error), MOTET_OK);
    void *shared = mt_team_shared(team);
    for (int32_t i = 0; i < threads; i++) memset(mt_team_own(team, i), i, 100);
    assert_int_equal(mt_team_reserve(team, 900, 50, &error), MOTET_OK);
    assert_ptr_equal(mt_team_shared(team), shared);
    for (int32_t i = 0; i < threads; i++) assert_int_equal(((unsigned char *)mt_team_own(team, i))[99], i);
    mt_team_destroy(team);
  }
  motet_error error;
  mt_team *none;
  assert_int_equal(mt_team_create(0, &error, &none), MOTET_ERROR_ARGUMENT);
}

static volatile uintptr_t stack_begin, stack_end;
static volatile sig_atomic_t handled, elsewhere;

static void note_frame(int number) {
  (void)number;
  const uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
  handled++;
  if (frame < stack_begin || frame >= stack_end) elsewhere++;
}

/* A signal's handler runs on the stack of the thread it came to, never on memory that a kernel uses as one. */
static void test_signals_keep_to_the_stack(void **state) {
  (void)state;
  enum { M = 96, N = 64, K = 300 };
  pthread_attr_t attributes;
  void *begin;
  size_t bytes;
  assert_int_equal(pthread_getattr_np(pthread_self(), &attributes), 0);
  assert_int_equal(pthread_attr_getstack(&attributes, &begin, &bytes), 0);
  pthread_attr_destroy(&attributes);
  stack_begin = (uintptr_t)begin, stack_end = stack_begin + bytes;
  float *a = fresh("a", M * K), *b = fresh("b", N * K), *c = fresh("", M * N);
  const mt_matmul product = rows_by_rows(M, N, K, a, b, c);
  struct sigaction action = {.sa_handler = note_frame};
  sigemptyset(&action.sa_mask);
  sigaction(SIGALRM, &action, NULL);
  for (int32_t threads = 1; threads <= 2; threads++) {
    motet_error error;
    mt_team *team;
    assert_int_equal(mt_team_create(threads, &error, &team), MOTET_OK);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 200}, {0, 200}}, NULL);
    handled = 0;
    while (handled < 100) assert_int_equal(mt_matmul_run(backends[0], team, &product, &error), MOTET_OK);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    mt_team_destroy(team);
  }
  assert_int_equal(elsewhere, 0);
  free(a), free(b), free(c);
}

int main(void) {
  backend_count = mt_tensor_backend_list(backends, 8);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_products),
      cmocka_unit_test(test_products_do_not_depend_on_threads),
      cmocka_unit_test(test_team_does_everything_once),
      cmocka_unit_test(test_signals_keep_to_the_stack),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

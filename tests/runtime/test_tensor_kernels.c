/* Every table of kernels that this processor runs against plain loops in double precision. */
#include "kernel_case.h"
#include "tensor/memory.h"
#include "tensor/parallel.h"

/* bfloat16 is float32's upper half, rounded to nearest, ties to even (IEEE 754's rule on 16 bits). */
static void test_elements(void **state) {
  (void)state;
  static const struct {
    uint32_t from, to;
  } cases[] = {{0x3f800000, 0x3f800000}, {0x3f808000, 0x3f800000}, {0x3f818000, 0x3f820000},
               {0x3f808001, 0x3f810000}, {0x7f7fffff, 0x7f800000}, {0xff800000, 0xff800000},
               {0x80000000, 0x80000000}, {0x3effffff, 0x3f000000}};
  enum { COUNT = sizeof cases / sizeof *cases };
  FOR_BACKENDS {
    if (BACKEND->element != MT_ELEMENT_BFLOAT16) continue;
    float in[COUNT + 1], out[COUNT + 1];
    uint16_t stored[COUNT + 1];
    for (int i = 0; i < COUNT; i++) memcpy(&in[i], &cases[i].from, 4);
    in[COUNT] = NAN;
    BACKEND->add_floats(COUNT + 1, in, NULL, stored);
    BACKEND->to_floats(COUNT + 1, stored, out);
    for (int i = 0; i < COUNT; i++) {
      uint32_t bits;
      memcpy(&bits, &out[i], 4);
      assert_int_equal(bits, cases[i].to);
      assert_int_equal(stored[i], cases[i].to >> 16);
    }
    assert_true(isnan(out[COUNT]));
  }
}

typedef struct attention_case {
  int32_t heads, kv_heads, head_dim, segments;
  int32_t lengths[6];
  bool causal;
} attention_case;

/* Output, and with `dy` the gradients, row by row from the definition. Rows are (q heads, k heads, v heads). */
static void attend(const attention_case *c, const float *qkv, const float *dy, double *out, double *gradient) {
  const int32_t d = c->head_dim, width = (c->heads + 2 * c->kv_heads) * d, wide = c->heads * d;
  const double scale = 1.0 / sqrt(d);
  int32_t begin = 0;
  for (int32_t s = 0; s < c->segments; begin += c->lengths[s++])
    for (int32_t h = 0; h < c->heads; h++) {
      const int32_t kv = h / (c->heads / c->kv_heads), qc = h * d, kc = (c->heads + kv) * d,
                    vc = (c->heads + c->kv_heads + kv) * d;
      for (int32_t i = 0; i < c->lengths[s]; i++) {
        const int32_t seen = c->causal ? i + 1 : c->lengths[s];
        const float *q = qkv + (int64_t)(begin + i) * width + qc;
        double *p = zeros(seen), *dp = zeros(seen), top = -1e300, sum = 0, dot = 0;
        for (int32_t j = 0; j < seen; j++) {
          for (int32_t x = 0; x < d; x++) p[j] += scale * (double)q[x] * (double)qkv[(begin + j) * width + kc + x];
          top = p[j] > top ? p[j] : top;
        }
        for (int32_t j = 0; j < seen; j++) sum += p[j] = exp(p[j] - top);
        for (int32_t j = 0; j < seen; j++) {
          p[j] /= sum;
          for (int32_t x = 0; x < d; x++) {
            const double v = (double)qkv[(begin + j) * width + vc + x];
            out[(begin + i) * wide + qc + x] += p[j] * v;
            dp[j] += v * (double)dy[(begin + i) * wide + qc + x];
          }
          dot += p[j] * dp[j];
        }
        for (int32_t j = 0; j < seen; j++)
          for (int32_t x = 0; x < d; x++) {
            const double ds = p[j] * (dp[j] - dot) * scale;
            gradient[(begin + i) * width + qc + x] += ds * (double)qkv[(begin + j) * width + kc + x];
            gradient[(begin + j) * width + kc + x] += ds * (double)q[x];
            gradient[(begin + j) * width + vc + x] += p[j] * (double)dy[(begin + i) * wide + qc + x];
          }
        free(p), free(dp);
      }
    }
}

static const attention_case attention_cases[] = {
    {6, 2, 6, 4, {1, 33, 64, 65}, true},     {4, 4, 16, 2, {130, 2}, false}, {2, 1, 80, 1, {97}, true},
    {3, 3, 128, 2, {31, 32}, false},         {8, 2, 64, 1, {257}, true},     {1, 1, 2, 3, {5, 1, 70}, false},
    {5, 1, 20, 6, {1, 1, 1, 1, 1, 1}, true},
};

static void test_attention(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof attention_cases / sizeof *attention_cases; i++) {
    const attention_case *c = &attention_cases[i];
    int32_t begin[7] = {0};
    for (int32_t s = 0; s < c->segments; s++) begin[s + 1] = begin[s] + c->lengths[s];
    const int64_t rows = begin[c->segments], wide = c->heads * c->head_dim, narrow = c->kv_heads * c->head_dim;
    const int64_t width = wide + 2 * narrow;
    float *qkv = fresh("qkv", rows * width), *dy = fresh("dy", rows * wide), *before = fresh("", rows * width);
    for (int64_t e = 0; e < rows * wide / 2; e++)
      qkv[e] *=
          4; /* some sharp rows: scores near 100 have 6e-6 of rounding, which the exponential makes relative */
    round_to_bfloat16(qkv, rows * width), round_to_bfloat16(dy, rows * wide);
    double *wanted = zeros(rows * wide), *wanted_gradient = zeros(rows * width);
    attend(c, qkv, dy, wanted, wanted_gradient);
    FOR_BACKENDS for (int32_t threads = 1; threads <= 2; threads++) {
      /* the same bits wherever the arrays lie, with one thread and with two */
      const size_t size = mt_element_bytes(BACKEND->element);
      char *stored = elements_of(BACKEND, qkv, rows * width), *moved = malloc((size_t)(rows * width + 1) * size);
      char *stored_dy = elements_of(BACKEND, dy, rows * wide);
      char *out = malloc((size_t)(rows * wide) * size), *gradient = malloc((size_t)(rows * width) * size);
      float *log_sum = malloc((size_t)(rows * c->heads) * sizeof *log_sum);
      char *base = moved + (threads == 2 ? size : 0);
      memcpy(base, stored, (size_t)(rows * width) * size);
      motet_error error;
      mt_team *team;
      assert_int_equal(mt_team_create(threads, &error, &team), MOTET_OK);
      const mt_device device = {BACKEND, team};
      const mt_attention attention = {.query = base,
                                      .key = base + (size_t)wide * size,
                                      .value = base + (size_t)(wide + narrow) * size,
                                      .query_stride = width,
                                      .key_stride = width,
                                      .value_stride = width,
                                      .heads = c->heads,
                                      .kv_heads = c->kv_heads,
                                      .head_dim = c->head_dim,
                                      .segments = c->segments,
                                      .segment_begin = begin,
                                      .causal = c->causal,
                                      .scale = 1.0F / sqrtf((float)c->head_dim)};
      assert_int_equal(mt_parallel_attention_forward(&device, &attention, out, wide, log_sum, &error), MOTET_OK);
      float *found = fresh("found", rows * width);
      floats_of(BACKEND, out, rows * wide, found);
      close_to(BACKEND, "attention", found, wanted, rows * wide, tolerance_of(BACKEND, 2e-5));
      const mt_attention_gradients gradients = {.output = out,
                                                .output_gradient = stored_dy,
                                                .output_stride = wide,
                                                .output_gradient_stride = wide,
                                                .log_sum = log_sum,
                                                .query = gradient,
                                                .key = gradient + (size_t)wide * size,
                                                .value = gradient + (size_t)(wide + narrow) * size,
                                                .query_stride = width,
                                                .key_stride = width,
                                                .value_stride = width};
      assert_int_equal(mt_parallel_attention_backward(&device, &attention, &gradients, &error), MOTET_OK);
      floats_of(BACKEND, gradient, rows * width, found);
      /* bfloat16: the output that comes back is rounded by up to 2^-9, which its product with dy takes into every
         score's gradient of the row, and the keys, up to 15 of them added with one sign, into the queries' */
      close_to(BACKEND, "attention's gradient", found, wanted_gradient, rows * width,
               BACKEND->element == MT_ELEMENT_BFLOAT16 ? 0.03 : 5e-5);
      if (threads == 1)
        memcpy(before, gradient, (size_t)(rows * width) * size);
      else
        assert_memory_equal(before, gradient, (size_t)(rows * width) * size);
      mt_team_destroy(team);
      free(stored), free(stored_dy), free(moved), free(out), free(gradient), free(log_sum), free(found);
    }
    free(qkv), free(dy), free(before), free(wanted), free(wanted_gradient);
  }
}

static void test_norm(void **state) {
  (void)state;
  enum { ROWS = 5, STRIDE = 50 };
  FOR_BACKENDS for (int kind = 0; kind < 4; kind++) {
    const bool rms = kind & 1;
    const int64_t columns = kind & 2 ? 48 : 37;
    float *x = fresh("x", ROWS * STRIDE), *w = fresh("w", columns), *bias = fresh("bias", columns);
    float *dy = fresh("dy", ROWS * STRIDE), *residual = fresh("residual", ROWS * STRIDE);
    float y[ROWS * STRIDE], dx[ROWS * STRIDE], dw[64] = {0}, db[64] = {0};
    double wy[ROWS * 64], wdx[ROWS * 64], wdw[64] = {0}, wdb[64] = {0};
    for (int64_t e = 0; e < ROWS * STRIDE; e++) x[e] = 3.0F + 2.0F * x[e];
    round_to_bfloat16(x, ROWS * STRIDE), round_to_bfloat16(dy, ROWS * STRIDE);
    round_to_bfloat16(residual, ROWS * STRIDE);
    void *stored_x = elements_of(BACKEND, x, ROWS * STRIDE), *stored_dy = elements_of(BACKEND, dy, ROWS * STRIDE);
    void *stored_residual = elements_of(BACKEND, residual, ROWS * STRIDE);
    void *stored_y = elements_of(BACKEND, x, ROWS * STRIDE), *stored_dx = elements_of(BACKEND, x, ROWS * STRIDE);
    const mt_norm norm = {.rms = rms,
                          .epsilon = 1e-3F,
                          .rows = ROWS,
                          .columns = columns,
                          .input = stored_x,
                          .stride = STRIDE,
                          .weight = w,
                          .bias = rms ? NULL : bias};
    BACKEND->norm_forward(&norm, stored_y);
    BACKEND->norm_backward(&norm, stored_dy, stored_residual, stored_dx, dw, rms ? NULL : db);
    floats_of(BACKEND, stored_y, ROWS * STRIDE, y), floats_of(BACKEND, stored_dx, ROWS * STRIDE, dx);
    float fy[ROWS * 64], fdx[ROWS * 64];
    const double n = (double)columns;
    for (int64_t r = 0; r < ROWS; r++) {
      const float *row = x + r * STRIDE, *d = dy + r * STRIDE;
      double mean = 0, variance = 0, sum_g = 0, sum_gh = 0;
      for (int64_t c = 0; c < columns && !rms; c++) mean += (double)row[c] / n;
      for (int64_t c = 0; c < columns; c++) variance += pow((double)row[c] - mean, 2) / n;
      const double inverse = 1 / sqrt(variance + (double)norm.epsilon);
      for (int64_t c = 0; c < columns; c++) {
        const double h = ((double)row[c] - mean) * inverse, g = (double)d[c] * (double)w[c];
        wy[r * columns + c] = h * (double)w[c] + (rms ? 0 : (double)bias[c]);
        wdw[c] += (double)d[c] * h;
        wdb[c] += (double)d[c];
        sum_g += rms ? 0 : g, sum_gh += g * h;
      }
      for (int64_t c = 0; c < columns; c++) {
        const double h = ((double)row[c] - mean) * inverse, g = (double)d[c] * (double)w[c];
        wdx[r * columns + c] = (double)residual[r * STRIDE + c] + inverse * (g - sum_g / n - h * sum_gh / n);
        fy[r * columns + c] = y[r * STRIDE + c];
        fdx[r * columns + c] = dx[r * STRIDE + c];
      }
    }
    close_to(BACKEND, "norm", fy, wy, ROWS * columns, tolerance_of(BACKEND, 1e-6));
    close_to(BACKEND, "norm's input gradient", fdx, wdx, ROWS * columns, tolerance_of(BACKEND, 1e-5));
    close_to(BACKEND, "norm's weight gradient", dw, wdw, columns, 1e-5);
    if (!rms) close_to(BACKEND, "norm's bias gradient", db, wdb, columns, 1e-6);
    /* in place over its own input, and without the weights' gradients */
    BACKEND->norm_backward(&norm, stored_dy, stored_residual, stored_dy, NULL, NULL);
    floats_of(BACKEND, stored_dy, ROWS * STRIDE, dy);
    for (int64_t r = 0; r < ROWS; r++)
      assert_memory_equal(dy + r * STRIDE, dx + r * STRIDE, (size_t)columns * sizeof *dx);
    free(stored_x), free(stored_dy), free(stored_residual), free(stored_y), free(stored_dx);
    free(x), free(w), free(bias), free(dy), free(residual);
  }
}

static void test_activations(void **state) {
  (void)state;
  enum { COUNT = 1003 };
  float x[2 * COUNT], y[COUNT], slope[COUNT], up[2 * COUNT], seed[COUNT], again[COUNT];
  double wy[COUNT], wslope[COUNT], wup[2 * COUNT];
  FOR_BACKENDS {
    for (int i = 0; i < COUNT; i++) {
      x[i] = -12.0F + 24.0F * (float)i / COUNT;
      round_to_bfloat16(&x[i], 1);
      slope[i] = 1.0F;
      const double v = (double)x[i], phi = 0.5 * erfc(-v / sqrt(2));
      wy[i] = v * phi;
      wslope[i] = phi + v * exp(-v * v / 2) / sqrt(2 * acos(-1.0));
    }
    void *in = elements_of(BACKEND, x, COUNT), *out = elements_of(BACKEND, x, COUNT);
    void *gradient = elements_of(BACKEND, slope, COUNT), *repeated = elements_of(BACKEND, x, COUNT);
    BACKEND->gelu_forward(COUNT, in, out);
    BACKEND->gelu_backward(COUNT, in, gradient, repeated);
    floats_of(BACKEND, out, COUNT, y), floats_of(BACKEND, gradient, COUNT, slope);
    floats_of(BACKEND, repeated, COUNT, again);
    assert_memory_equal(y, again, sizeof y);
    for (int i = 0; i < COUNT; i++) {
      assert_true(fabs((double)y[i] - wy[i]) < tolerance_of(BACKEND, 1e-6) * (1 + fabs(wy[i])));
      assert_true(fabs((double)slope[i] - wslope[i]) < tolerance_of(BACKEND, 2e-6));
    }
    free(in), free(out), free(gradient), free(repeated);
    for (int i = 0; i < COUNT; i++) { /* one row: gates -100 .. 100, then ups */
      x[i] = -100.0F + 200.0F * (float)i / COUNT;
      round_to_bfloat16(&x[i], 1);
      x[COUNT + i] = 0.5F + (float)(i % 7);
      seed[i] = 1.0F + (float)(i % 3);
      const double g = (double)x[i], u = (double)x[COUNT + i], s = 1 / (1 + exp(-g));
      wy[i] = g * s * u;
      wup[i] = (double)seed[i] * u * (s + g * s * (1 - s));
      wup[COUNT + i] = (double)seed[i] * g * s;
    }
    void *pair = elements_of(BACKEND, x, 2 * COUNT), *pair_gradient = elements_of(BACKEND, x, 2 * COUNT);
    out = elements_of(BACKEND, x, COUNT), repeated = elements_of(BACKEND, x, COUNT);
    void *dy = elements_of(BACKEND, seed, COUNT);
    BACKEND->swiglu_forward(1, COUNT, pair, out);
    BACKEND->swiglu_backward(1, COUNT, pair, dy, pair_gradient, repeated);
    floats_of(BACKEND, out, COUNT, y), floats_of(BACKEND, repeated, COUNT, again);
    floats_of(BACKEND, pair_gradient, 2 * COUNT, up);
    assert_memory_equal(y, again, sizeof y);
    close_to(BACKEND, "swiglu", y, wy, COUNT, tolerance_of(BACKEND, 1e-6));
    close_to(BACKEND, "swiglu's gate gradient", up, wup, COUNT, tolerance_of(BACKEND, 1e-6));
    close_to(BACKEND, "swiglu's up gradient", up + COUNT, wup + COUNT, COUNT, tolerance_of(BACKEND, 1e-6));
    free(pair), free(pair_gradient), free(out), free(repeated), free(dy);
  }
}

/* What is not a number must come out of every activation and of the loss: a diverged run has to show. */
static void test_not_a_number_stays(void **state) {
  (void)state;
  FOR_BACKENDS {
    float x[32], y[32], log_sum[1];
    int32_t target = 3;
    for (int i = 0; i < 32; i++) x[i] = i == 5 ? NAN : 1.0F;
    void *in = elements_of(BACKEND, x, 32), *out = elements_of(BACKEND, x, 32);
    BACKEND->gelu_forward(32, in, out);
    floats_of(BACKEND, out, 32, y);
    assert_true(isnan(y[5]) && !isnan(y[4]));
    BACKEND->swiglu_forward(1, 16, in, out);
    floats_of(BACKEND, out, 16, y);
    assert_true(isnan(y[5]) && !isnan(y[4]));
    free(in), free(out);
    assert_true(isnan(BACKEND->cross_entropy_forward(1, 32, x, &target, log_sum)));
  }
}

static void test_rotary(void **state) {
  (void)state;
  enum { ROWS = 7, HEADS = 3, DIM = 22, STRIDE = 70, HALF = DIM / 2 };
  float cosines[ROWS * HALF], sines[ROWS * HALF], *x = fresh("x", ROWS * STRIDE), rows[ROWS * STRIDE];
  round_to_bfloat16(x, ROWS * STRIDE);
  for (int p = 0; p < ROWS; p++)
    for (int c = 0; c < HALF; c++) {
      cosines[p * HALF + c] = (float)cos(p * pow(10000.0, -2.0 * c / DIM));
      sines[p * HALF + c] = (float)sin(p * pow(10000.0, -2.0 * c / DIM));
    }
  FOR_BACKENDS {
    void *stored = elements_of(BACKEND, x, ROWS * STRIDE);
    BACKEND->rotary(stored, STRIDE, HEADS, DIM, 2, ROWS, cosines, sines, false);
    floats_of(BACKEND, stored, ROWS * STRIDE, rows);
    double wanted[ROWS * STRIDE];
    for (int i = 0; i < ROWS * STRIDE; i++) wanted[i] = (double)x[i];
    for (int r = 2; r < ROWS; r++) /* positions begin at the segment's first row, 2 */
      for (int h = 0; h < HEADS; h++)
        for (int c = 0; c < HALF; c++) {
          const double angle = (r - 2) * pow(10000.0, -2.0 * c / DIM);
          const double lo = (double)x[r * STRIDE + h * DIM + c], hi = (double)x[r * STRIDE + h * DIM + HALF + c];
          wanted[r * STRIDE + h * DIM + c] = lo * cos(angle) - hi * sin(angle);
          wanted[r * STRIDE + h * DIM + HALF + c] = hi * cos(angle) + lo * sin(angle);
        }
    close_to(BACKEND, "rotary", rows, wanted, ROWS * STRIDE, tolerance_of(BACKEND, 1e-6));
    BACKEND->rotary(stored, STRIDE, HEADS, DIM, 2, ROWS, cosines, sines, true);
    floats_of(BACKEND, stored, ROWS * STRIDE, rows);
    free(stored);
    for (int i = 0; i < ROWS * STRIDE; i++) wanted[i] = (double)x[i];
    close_to(BACKEND, "rotary and back", rows, wanted, ROWS * STRIDE, 2 * tolerance_of(BACKEND, 5e-7));
  }
  free(x);
}

static void test_cross_entropy(void **state) {
  (void)state;
  enum { ROWS = 3, COLUMNS = 5003 };
  const int32_t targets[ROWS] = {0, 5002, 17};
  float *logits = fresh("logits", ROWS * COLUMNS), *gradient = malloc(ROWS * COLUMNS * sizeof *gradient),
        log_sum[ROWS];
  for (int i = 0; i < COLUMNS; i++) logits[i] = logits[i] * 20 + 300, logits[COLUMNS + i] -= 500;
  double *wanted = zeros(ROWS * COLUMNS), loss = 0;
  for (int r = 0; r < ROWS; r++) {
    double top = -1e300, sum = 0;
    for (int c = 0; c < COLUMNS; c++) top = fmax(top, (double)logits[r * COLUMNS + c]);
    for (int c = 0; c < COLUMNS; c++) sum += exp((double)logits[r * COLUMNS + c] - top);
    loss += top + log(sum) - (double)logits[r * COLUMNS + targets[r]];
    for (int c = 0; c < COLUMNS; c++)
      wanted[r * COLUMNS + c] =
          0.25 * (exp((double)logits[r * COLUMNS + c] - top) / sum - (c == targets[r] ? 1.0 : 0.0));
  }
  FOR_BACKENDS {
    assert_true(fabs(BACKEND->cross_entropy_forward(ROWS, COLUMNS, logits, targets, log_sum) / loss - 1) < 1e-6);
    memcpy(gradient, logits, ROWS * COLUMNS * sizeof *gradient);
    BACKEND->cross_entropy_backward(ROWS, COLUMNS, gradient, targets, log_sum, 0.25F);
    close_to(BACKEND, "cross-entropy's gradient", gradient, wanted, ROWS * COLUMNS, 1e-4);
  }
  free(logits), free(gradient), free(wanted);
}

static void test_row_and_column_operations(void **state) {
  (void)state;
  enum { ROWS = 6, COLUMNS = 35 };
  float *x = fresh("x", ROWS * COLUMNS), *base = fresh("base", ROWS * COLUMNS), *v = fresh("v", COLUMNS);
  round_to_bfloat16(x, ROWS * COLUMNS);
  double wanted[ROWS * COLUMNS], sums[COLUMNS];
  FOR_BACKENDS {
    float out[ROWS * COLUMNS], totals[COLUMNS];
    void *stored = elements_of(BACKEND, x, ROWS * COLUMNS), *result = elements_of(BACKEND, x, ROWS * COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++) wanted[i] = (double)v[i % COLUMNS] * (double)x[i];
    BACKEND->scale_columns(ROWS, COLUMNS, v, stored, result);
    floats_of(BACKEND, result, ROWS * COLUMNS, out);
    close_to(BACKEND, "scale_columns", out, wanted, ROWS * COLUMNS, tolerance_of(BACKEND, 1e-6));
    for (int i = 0; i < ROWS * COLUMNS; i++) wanted[i] = (double)base[i] + (double)x[i];
    memcpy(out, base, sizeof out);
    BACKEND->add_to_floats(ROWS * COLUMNS, stored, out);
    close_to(BACKEND, "add_to_floats", out, wanted, ROWS * COLUMNS, 1e-6);
    BACKEND->add_floats(ROWS * COLUMNS, base, stored, result);
    floats_of(BACKEND, result, ROWS * COLUMNS, out);
    close_to(BACKEND, "add_floats", out, wanted, ROWS * COLUMNS, tolerance_of(BACKEND, 1e-6));
    memcpy(totals, v, sizeof totals);
    BACKEND->add_column_sums(ROWS, COLUMNS, stored, COLUMNS, totals);
    free(stored), free(result);
    for (int c = 0; c < COLUMNS; c++) {
      sums[c] = (double)v[c];
      for (int r = 0; r < ROWS; r++) sums[c] += (double)x[r * COLUMNS + c];
    }
    close_to(BACKEND, "add_column_sums", totals, sums, COLUMNS, 1e-6);
    double squares = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++) squares += (double)x[i] * (double)x[i];
    assert_true(fabs(BACKEND->square_sum(ROWS * COLUMNS, x) / squares - 1) < 1e-6);
  }
  free(x), free(base), free(v);
}

/* y = scale * (x W' + b), loss = sum of dy y: gradients by their definition. */
static void test_scaled_linear_gradients(void **state) {
  (void)state;
  enum { OUT = 5, IN = 19 };
  float *product = fresh("product", OUT * IN), *sums = fresh("sums", OUT), *w = fresh("w", OUT * IN);
  float *bias = fresh("bias", OUT), *scale = fresh("scale", OUT);
  FOR_BACKENDS {
    float dw[OUT * IN], db[OUT], ds[OUT];
    double wdw[OUT * IN], wdb[OUT], wds[OUT];
    for (int i = 0; i < OUT * IN; i++) dw[i] = 1.0F;
    for (int o = 0; o < OUT; o++) {
      db[o] = ds[o] = 1.0F;
      wdb[o] = 1 + (double)scale[o] * (double)sums[o];
      wds[o] = 1 + (double)bias[o] * (double)sums[o];
      for (int i = 0; i < IN; i++) {
        wdw[o * IN + i] = 1 + (double)scale[o] * (double)product[o * IN + i];
        wds[o] += (double)w[o * IN + i] * (double)product[o * IN + i];
      }
    }
    BACKEND->scaled_linear_gradients(OUT, IN, product, sums, w, bias, scale, dw, db, ds);
    close_to(BACKEND, "scaled weight gradient", dw, wdw, OUT * IN, 1e-6);
    close_to(BACKEND, "scaled bias gradient", db, wdb, OUT, 1e-6);
    close_to(BACKEND, "scale gradient", ds, wds, OUT, 1e-6);
  }
  free(product), free(sums), free(w), free(bias), free(scale);
}

/* Loshchilov and Hutter's AdamW in the framework's order: decay, moments, correction. */
static void test_adamw(void **state) {
  (void)state;
  enum { COUNT = 37, STEPS = 5 };
  const double rate = 0.01, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-6, decay = 0.1, scale = 0.5;
  FOR_BACKENDS for (int decays = 0; decays < 2; decays++) {
    float *value = fresh("value", COUNT), first[COUNT] = {0}, second[COUNT] = {0};
    double w[COUNT], m[COUNT] = {0}, v[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) w[i] = (double)value[i];
    for (int step = 1; step <= STEPS; step++) {
      char name[16];
      snprintf(name, sizeof name, "g%d", step);
      float *g = fresh(name, COUNT);
      const mt_adamw_step one = {(float)rate,
                                 (float)beta1,
                                 (float)beta2,
                                 (float)epsilon,
                                 (float)decay,
                                 (float)scale,
                                 (float)(1 - pow(beta1, step)),
                                 (float)sqrt(1 - pow(beta2, step))};
      BACKEND->adamw(COUNT, &one, decays, value, g, first, second);
      for (int i = 0; i < COUNT; i++) {
        const double x = scale * (double)g[i];
        if (decays) w[i] *= 1 - rate * decay;
        m[i] = beta1 * m[i] + (1 - beta1) * x;
        v[i] = beta2 * v[i] + (1 - beta2) * x * x;
        w[i] -= rate * m[i] / (1 - pow(beta1, step)) / (sqrt(v[i] / (1 - pow(beta2, step))) + epsilon);
      }
      free(g);
    }
    close_to(BACKEND, "adamw's weights", value, w, COUNT, 1e-6);
    close_to(BACKEND, "adamw's first moment", first, m, COUNT, 1e-6);
    close_to(BACKEND, "adamw's second moment", second, v, COUNT, 1e-6);
    free(value);
  }
}

static void test_memory_is_zero_aligned_and_reused(void **state) {
  (void)state;
  motet_error error;
  const size_t sizes[] = {1, 4096, 5000, (2 << 20) - 1, (2 << 20) + 1, 9 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void *memory;
    assert_int_equal(mt_memory_map(sizes[i], i % 2 == 0, "a test", &error, &memory), MOTET_OK);
    assert_int_equal((uintptr_t)memory % 64, 0);
    unsigned char *bytes = memory;
    assert_true(bytes[0] == 0 && bytes[sizes[i] - 1] == 0);
    memset(memory, 1, sizes[i]);
    mt_memory_unmap(memory, sizes[i]);
  }
  void *none;
  assert_int_equal(mt_memory_map(SIZE_MAX - 5, false, "a test", &error, &none), MOTET_ERROR_MEMORY);
  mt_workspace workspace = {0};
  assert_int_equal(mt_workspace_reserve(&workspace, 1000, &error), MOTET_OK);
  float *first = mt_workspace_take(&workspace, 17), *second = mt_workspace_take(&workspace, 100);
  assert_int_equal(second - first, 32);
  workspace.used = 0;
  assert_int_equal(mt_workspace_reserve(&workspace, 1000, &error), MOTET_OK);
  assert_ptr_equal(mt_workspace_take(&workspace, 1), first);
  mt_workspace_free(&workspace);
}

int main(void) {
  backend_count = mt_tensor_backend_list(backends, 8);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_elements),
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_norm),
      cmocka_unit_test(test_activations),
      cmocka_unit_test(test_not_a_number_stays),
      cmocka_unit_test(test_rotary),
      cmocka_unit_test(test_cross_entropy),
      cmocka_unit_test(test_row_and_column_operations),
      cmocka_unit_test(test_scaled_linear_gradients),
      cmocka_unit_test(test_adamw),
      cmocka_unit_test(test_memory_is_zero_aligned_and_reused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

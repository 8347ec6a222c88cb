#include "tensor/parallel.h"

#include <string.h>

enum {
  PART_ELEMENTS = 32768, /* work of some microseconds: less than waking another thread is worth */
  PART_COLUMNS = 128,
  NORM_ROWS = 32, /* of a part whose sums are kept apart */
  LOSS_ROWS = 8,
  SUMS = 256 /* parts whose sums are kept until they are added, in order */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

static int64_t part_rows(int64_t columns) {
  const int64_t rows = PART_ELEMENTS / (columns > 0 ? columns : 1);
  return rows > 0 ? rows : 1;
}

/* `offset` elements on. */
static void *at(const mt_device *device, const void *array, int64_t offset) {
  const char *base = array;
  return (void *)(uintptr_t)(base + offset * (int64_t)mt_element_bytes(device->backend->element));
}

/* Element-wise work over rows of columns; what a kernel does not know stays 0. */
typedef struct row_work {
  const mt_device *device;
  int64_t rows, columns, part;
  const void *input, *other;
  void *output, *second_output;
  const float *scale, *log_sum;
  float *floats;
  const int32_t *targets;
  float weight;
} row_work;

static void run_rows(row_work *work, mt_team_work task) {
  if (work->part == 0) work->part = part_rows(work->columns);
  mt_team_run(work->device->team, parts(work->rows, work->part), task, work);
}

/* ---- attention: a key and value head of a segment is the unit */

typedef struct attention_work {
  const mt_device *device;
  const mt_attention *attention;
  const mt_attention_gradients *gradients;
  void *output;
  int64_t output_stride;
  float *log_sum;
} attention_work;

static void attend(void *context, int64_t index, int32_t thread) {
  const attention_work *work = context;
  const int32_t heads = work->attention->kv_heads, segment = (int32_t)(index / heads);
  float *scratch = mt_team_own(work->device->team, thread);
  if (work->gradients == NULL)
    work->device->backend->attention_forward(work->attention, segment, (int32_t)(index % heads), scratch,
                                             work->output, work->output_stride, work->log_sum);
  else
    work->device->backend->attention_backward(work->attention, work->gradients, segment, (int32_t)(index % heads),
                                              scratch);
}

static motet_status run_attention(attention_work *work, motet_error *error) {
  const mt_attention *attention = work->attention;
  int32_t longest = 0;
  const int32_t *keys = attention->key_begin != NULL ? attention->key_begin : attention->segment_begin;
  for (int32_t s = 0; s < attention->segments; s++) {
    const int32_t length = keys[s + 1] - keys[s];
    longest = length > longest ? length : longest;
  }
  const size_t floats = work->device->backend->attention_scratch(attention->head_dim, longest);
  motet_status status = mt_team_reserve(work->device->team, 0, floats * sizeof(float), error);
  if (status == MOTET_OK)
    mt_team_run(work->device->team, (int64_t)attention->segments * attention->kv_heads, attend, work);
  return status;
}

motet_status mt_parallel_attention_forward(const mt_device *device, const mt_attention *attention, void *output,
                                           int64_t output_stride, float *log_sum, motet_error *error) {
  attention_work work = {device, attention, NULL, output, output_stride, log_sum};
  return run_attention(&work, error);
}

motet_status mt_parallel_attention_backward(const mt_device *device, const mt_attention *attention,
                                            const mt_attention_gradients *gradients, motet_error *error) {
  attention_work work = {device, attention, gradients, NULL, 0, NULL};
  return run_attention(&work, error);
}

typedef struct merge_work {
  const mt_device *device;
  int64_t rows, part_stride, output_stride;
  int32_t head_dim;
  const void *part;
  void *output;
  const float *part_log_sum;
  float *log_sum;
} merge_work;

static void merge_head(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const merge_work *work = context;
  const int64_t column = index * work->head_dim, first = index * work->rows;
  work->device->backend->attention_merge(work->rows, 1, work->head_dim, at(work->device, work->part, column),
                                         work->part_stride, work->part_log_sum + first,
                                         at(work->device, work->output, column), work->output_stride,
                                         work->log_sum + first);
}

void mt_parallel_attention_merge(const mt_device *device, int64_t rows, int32_t heads, int32_t head_dim,
                                 const void *part, int64_t part_stride, const float *part_log_sum, void *output,
                                 int64_t output_stride, float *log_sum) {
  merge_work work = {device, rows, part_stride, output_stride, head_dim, part, output, part_log_sum, log_sum};
  mt_team_run(device->team, heads, merge_head, &work);
}

/* ---- norms */

typedef struct norm_work {
  const mt_device *device;
  mt_norm norm;
  int64_t part;
  const void *output_gradient, *residual;
  void *output, *input_gradient;
  float *sums; /* (parts, 2, columns) weight's and bias's */
  float *weight_gradient, *bias_gradient;
} norm_work;

static mt_norm norm_part(const norm_work *work, int64_t index) {
  mt_norm part = work->norm;
  part.input = at(work->device, part.input, index * work->part * part.stride);
  part.rows = smaller(work->part, part.rows - index * work->part);
  return part;
}

static void normalise(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const norm_work *work = context;
  const mt_norm part = norm_part(work, index);
  work->device->backend->norm_forward(&part, at(work->device, work->output, index * work->part * part.stride));
}

void mt_parallel_norm_forward(const mt_device *device, const mt_norm *norm, void *output) {
  norm_work work = {.device = device, .norm = *norm, .part = part_rows(norm->columns), .output = output};
  mt_team_run(device->team, parts(norm->rows, work.part), normalise, &work);
}

static void differentiate_norm(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const norm_work *work = context;
  const mt_norm part = norm_part(work, index);
  const int64_t offset = index * work->part * part.stride;
  float *weight = NULL, *bias = NULL;
  if (work->sums != NULL) {
    weight = work->sums + index * 2 * part.columns;
    memset(weight, 0, (size_t)(2 * part.columns) * sizeof *weight);
    bias = work->bias_gradient == NULL ? NULL : weight + part.columns;
  }
  work->device->backend->norm_backward(
      &part, at(work->device, work->output_gradient, offset),
      work->residual == NULL ? NULL : at(work->device, work->residual, offset),
      work->input_gradient == NULL ? NULL : at(work->device, work->input_gradient, offset), weight, bias);
}

static void add_norm_sums(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const norm_work *work = context;
  const int64_t columns = work->norm.columns, end = smaller(columns, (index + 1) * PART_COLUMNS);
  for (int64_t p = 0; p < parts(work->norm.rows, work->part); p++) {
    const float *weight = work->sums + p * 2 * columns, *bias = weight + columns;
    for (int64_t c = index * PART_COLUMNS; c < end; c++) work->weight_gradient[c] += weight[c];
    for (int64_t c = index * PART_COLUMNS; work->bias_gradient != NULL && c < end; c++)
      work->bias_gradient[c] += bias[c];
  }
}

motet_status mt_parallel_norm_backward(const mt_device *device, const mt_norm *norm, const void *output_gradient,
                                       const void *residual, void *input_gradient, float *weight_gradient,
                                       float *bias_gradient, motet_error *error) {
  norm_work work = {.device = device,
                    .norm = *norm,
                    .part = NORM_ROWS,
                    .output_gradient = output_gradient,
                    .residual = residual,
                    .input_gradient = input_gradient,
                    .weight_gradient = weight_gradient,
                    .bias_gradient = bias_gradient};
  const int64_t count = parts(norm->rows, work.part);
  if (weight_gradient != NULL) {
    motet_status status =
        mt_team_reserve(device->team, (size_t)(count * 2 * norm->columns) * sizeof(float), 0, error);
    if (status != MOTET_OK) return status;
    work.sums = mt_team_shared(device->team);
  }
  mt_team_run(device->team, count, differentiate_norm, &work);
  if (weight_gradient != NULL) mt_team_run(device->team, parts(norm->columns, PART_COLUMNS), add_norm_sums, &work);
  return MOTET_OK;
}

/* ---- rotary positions */

typedef struct rotary_work {
  const mt_device *device;
  void *rows;
  int64_t stride, part;
  int32_t heads, head_dim, begin, end;
  const float *cosines, *sines;
  bool inverse;
} rotary_work;

static void rotate(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const rotary_work *work = context;
  const int64_t skipped = index * work->part, angles = skipped * (work->head_dim / 2);
  const int32_t begin = work->begin + (int32_t)skipped;
  work->device->backend->rotary(work->rows, work->stride, work->heads, work->head_dim, begin,
                                (int32_t)smaller(work->end, begin + work->part), work->cosines + angles,
                                work->sines + angles, work->inverse);
}

void mt_parallel_rotary(const mt_device *device, void *rows, int64_t stride, int32_t heads, int32_t head_dim,
                        int32_t begin, int32_t end, const float *cosines, const float *sines, bool inverse) {
  rotary_work work = {device,  rows,  stride, part_rows((int64_t)heads * head_dim), heads, head_dim, begin, end,
                      cosines, sines, inverse};
  mt_team_run(device->team, parts(end - begin, work.part), rotate, &work);
}

/* ---- activations */

static void gelu_forward(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const row_work *w = context;
  const int64_t begin = index * w->part;
  w->device->backend->gelu_forward(smaller(w->part, w->rows - begin), at(w->device, w->input, begin),
                                   at(w->device, w->output, begin));
}

void mt_parallel_gelu_forward(const mt_device *device, int64_t count, const void *input, void *output) {
  row_work work = {.device = device, .rows = count, .columns = 1, .input = input, .output = output};
  run_rows(&work, gelu_forward);
}

static void gelu_backward(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const row_work *w = context;
  const int64_t begin = index * w->part;
  w->device->backend->gelu_backward(smaller(w->part, w->rows - begin), at(w->device, w->input, begin),
                                    at(w->device, w->output, begin),
                                    w->second_output == NULL ? NULL : at(w->device, w->second_output, begin));
}

void mt_parallel_gelu_backward(const mt_device *device, int64_t count, const void *input, void *gradient,
                               void *output) {
  row_work work = {
      .device = device, .rows = count, .columns = 1, .input = input, .output = gradient, .second_output = output};
  run_rows(&work, gelu_backward);
}

static void swiglu_forward(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const row_work *w = context;
  const int64_t begin = index * w->part, first = begin * w->columns;
  w->device->backend->swiglu_forward(smaller(w->part, w->rows - begin), w->columns,
                                     at(w->device, w->input, 2 * first), at(w->device, w->output, first));
}

void mt_parallel_swiglu_forward(const mt_device *device, int64_t rows, int64_t columns, const void *gate_up,
                                void *output) {
  row_work work = {.device = device, .rows = rows, .columns = columns, .input = gate_up, .output = output};
  run_rows(&work, swiglu_forward);
}

static void swiglu_backward(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const row_work *w = context;
  const int64_t begin = index * w->part, first = begin * w->columns;
  w->device->backend->swiglu_backward(smaller(w->part, w->rows - begin), w->columns,
                                      at(w->device, w->input, 2 * first), at(w->device, w->other, first),
                                      at(w->device, w->output, 2 * first),
                                      w->second_output == NULL ? NULL : at(w->device, w->second_output, first));
}

void mt_parallel_swiglu_backward(const mt_device *device, int64_t rows, int64_t columns, const void *gate_up,
                                 const void *output_gradient, void *gate_up_gradient, void *output) {
  row_work work = {.device = device,
                   .rows = rows,
                   .columns = columns,
                   .input = gate_up,
                   .other = output_gradient,
                   .output = gate_up_gradient,
                   .second_output = output};
  run_rows(&work, swiglu_backward);
}

/* ---- rows and columns */

typedef struct column_work {
  const mt_device *device;
  int64_t rows, columns, stride;
  const void *data;
  float *sums;
} column_work;

static void add_columns(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const column_work *w = context;
  const int64_t column = index * PART_COLUMNS;
  w->device->backend->add_column_sums(w->rows, smaller(PART_COLUMNS, w->columns - column),
                                      at(w->device, w->data, column), w->stride, w->sums + column);
}

void mt_parallel_add_column_sums(const mt_device *device, int64_t rows, int64_t columns, const void *data,
                                 int64_t stride, float *sums) {
  column_work work = {device, rows, columns, stride, data, sums};
  mt_team_run(device->team, parts(columns, PART_COLUMNS), add_columns, &work);
}

static void scale_rows(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const row_work *w = context;
  const int64_t begin = index * w->part, first = begin * w->columns;
  w->device->backend->scale_columns(smaller(w->part, w->rows - begin), w->columns, w->scale,
                                    at(w->device, w->input, first), at(w->device, w->output, first));
}

void mt_parallel_scale_columns(const mt_device *device, int64_t rows, int64_t columns, const float *scale,
                               const void *data, void *output) {
  row_work work = {
      .device = device, .rows = rows, .columns = columns, .scale = scale, .input = data, .output = output};
  run_rows(&work, scale_rows);
}

typedef struct scaled_work {
  const mt_device *device;
  int64_t rows, columns, part;
  const float *product, *sums, *weight, *bias, *scale;
  float *weight_gradient, *bias_gradient, *scale_gradient;
} scaled_work;

static void differentiate_scaled(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const scaled_work *w = context;
  const int64_t row = index * w->part, first = row * w->columns;
  w->device->backend->scaled_linear_gradients(
      smaller(w->part, w->rows - row), w->columns, w->product + first, w->sums + row, w->weight + first,
      w->bias + row, w->scale + row, w->weight_gradient + first, w->bias_gradient + row, w->scale_gradient + row);
}

void mt_parallel_scaled_linear_gradients(const mt_device *device, int64_t rows, int64_t columns,
                                         const float *product, const float *sums, const float *weight,
                                         const float *bias, const float *scale, float *weight_gradient,
                                         float *bias_gradient, float *scale_gradient) {
  scaled_work work = {device, rows, columns, part_rows(columns), product,       sums,
                      weight, bias, scale,   weight_gradient,    bias_gradient, scale_gradient};
  mt_team_run(device->team, parts(rows, work.part), differentiate_scaled, &work);
}

/* ---- loss */

static void lose(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const row_work *w = context;
  const int64_t begin = index * w->part;
  double *sums = w->output;
  sums[index] = w->device->backend->cross_entropy_forward(smaller(w->part, w->rows - begin), w->columns,
                                                          (const float *)w->input + begin * w->columns,
                                                          w->targets + begin, w->floats + begin);
}

double mt_parallel_cross_entropy_forward(const mt_device *device, int64_t rows, int64_t columns,
                                         const float *logits, const int32_t *targets, float *log_sum) {
  double sum = 0;
  for (int64_t begin = 0; begin < rows; begin += LOSS_ROWS * SUMS) {
    double sums[SUMS];
    row_work work = {.device = device,
                     .rows = smaller(LOSS_ROWS * SUMS, rows - begin),
                     .columns = columns,
                     .part = LOSS_ROWS,
                     .input = logits + begin * columns,
                     .targets = targets + begin,
                     .floats = log_sum + begin,
                     .output = sums};
    run_rows(&work, lose);
    for (int64_t i = 0; i < parts(work.rows, LOSS_ROWS); i++) sum += sums[i];
  }
  return sum;
}

static void differentiate_loss(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const row_work *w = context;
  const int64_t begin = index * w->part;
  w->device->backend->cross_entropy_backward(smaller(w->part, w->rows - begin), w->columns,
                                             w->floats + begin * w->columns, w->targets + begin, w->log_sum + begin,
                                             w->weight);
}

void mt_parallel_cross_entropy_backward(const mt_device *device, int64_t rows, int64_t columns, float *logits,
                                        const int32_t *targets, const float *log_sum, float weight) {
  row_work work = {.device = device,
                   .rows = rows,
                   .columns = columns,
                   .part = LOSS_ROWS,
                   .floats = logits,
                   .targets = targets,
                   .log_sum = log_sum,
                   .weight = weight};
  run_rows(&work, differentiate_loss);
}

/* ---- optimizer */

typedef struct optimizer_work {
  const mt_device *device;
  int64_t count;
  const mt_adamw_step *step;
  bool decay;
  float *value, *first, *second;
  const float *gradient;
  double *sums;
} optimizer_work;

static void optimise(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const optimizer_work *w = context;
  const int64_t begin = index * PART_ELEMENTS;
  w->device->backend->adamw(smaller(PART_ELEMENTS, w->count - begin), w->step, w->decay, w->value + begin,
                            w->gradient + begin, w->first + begin, w->second + begin);
}

void mt_parallel_adamw(const mt_device *device, int64_t count, const mt_adamw_step *step, bool decay, float *value,
                       const float *gradient, float *first, float *second) {
  optimizer_work work = {.device = device,
                         .count = count,
                         .step = step,
                         .decay = decay,
                         .value = value,
                         .gradient = gradient,
                         .first = first,
                         .second = second};
  mt_team_run(device->team, parts(count, PART_ELEMENTS), optimise, &work);
}

static void add_squares(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const optimizer_work *w = context;
  const int64_t begin = index * PART_ELEMENTS;
  w->sums[index] = w->device->backend->square_sum(smaller(PART_ELEMENTS, w->count - begin), w->gradient + begin);
}

double mt_parallel_square_sum(const mt_device *device, int64_t count, const float *data) {
  const int64_t piece = (int64_t)PART_ELEMENTS * SUMS;
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += piece) {
    double sums[SUMS];
    optimizer_work work = {
        .device = device, .count = smaller(piece, count - begin), .gradient = data + begin, .sums = sums};
    mt_team_run(device->team, parts(work.count, PART_ELEMENTS), add_squares, &work);
    for (int64_t i = 0; i < parts(work.count, PART_ELEMENTS); i++) sum += sums[i];
  }
  return sum;
}

static void clear(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const optimizer_work *w = context;
  const int64_t begin = index * PART_ELEMENTS;
  memset(w->value + begin, 0, (size_t)smaller(PART_ELEMENTS, w->count - begin) * sizeof *w->value);
}

void mt_parallel_zero(const mt_device *device, int64_t count, float *data) {
  optimizer_work work = {.device = device, .count = count, .value = data};
  mt_team_run(device->team, parts(count, PART_ELEMENTS), clear, &work);
}

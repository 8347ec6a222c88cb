/*
 * Attention by blocks with online softmax (Dao et al., FlashAttention-2, 2023): no matrix of scores is kept. Heads
 * and segments are packed into zero-padded blocks first, so that the products inside have no ragged edges.
 *
 *   forward   S = scale Q K', P = exp(S - max), O = P V / sum;        log_sum = max + log sum
 *   backward  P = exp(S - log_sum), dV += P' dO, dP = dO V', dS = scale P (dP - D), D = row sums of dO O,
 *             dQ += dS K, dK += dS' Q
 */
#include "tensor/kernels/kernels.h"
#include "tensor/kernels/vector.h"

#include <math.h>

enum { QUERY_BLOCK = 32, KEY_BLOCK = 64, ROUND = 16 };

/* Rows of one register tile: with two vectors of columns each it fills half to all of the registers. */
#if MT_VECTOR_BYTES == 64
#define TILE_ROWS 8
#define FOR_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#else
#define TILE_ROWS 4
#define FOR_ROWS(X) X(0) X(1) X(2) X(3)
#endif

static int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/* c (TILE_ROWS, 2 vectors) = or += a (TILE_ROWS, k) b (k, 2 vectors); a[i, p] lies at a[i * a_row + p * a_step]. */
static void tile_wide(int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t b_stride,
                      float *c, int64_t c_stride, bool accumulate) {
#define DECLARE(i) vec x##i = splat(0.0F), y##i = splat(0.0F);
#define LOAD(i) x##i = load(c + i * c_stride), y##i = load(c + i * c_stride + LANES);
#define MULTIPLY(i)                                                                                                \
  {                                                                                                                \
    const vec s = splat(a[i * a_row + p * a_step]);                                                                \
    x##i += s * left;                                                                                              \
    y##i += s * right;                                                                                             \
  }
#define STORE(i) store(c + i * c_stride, x##i), store(c + i * c_stride + LANES, y##i);
  FOR_ROWS(DECLARE)
  if (accumulate) {
    FOR_ROWS(LOAD)
  }
  for (int64_t p = 0; p < k; p++) {
    const vec left = load(b + p * b_stride), right = load(b + p * b_stride + LANES);
    FOR_ROWS(MULTIPLY)
  }
  FOR_ROWS(STORE)
#undef DECLARE
#undef LOAD
#undef MULTIPLY
#undef STORE
}

/* The same for one vector of columns. */
static void tile_narrow(int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t b_stride,
                        float *c, int64_t c_stride, bool accumulate) {
#define DECLARE(i) vec x##i = splat(0.0F);
#define LOAD(i) x##i = load(c + i * c_stride);
#define MULTIPLY(i) x##i += splat(a[i * a_row + p * a_step]) * left;
#define STORE(i) store(c + i * c_stride, x##i);
  FOR_ROWS(DECLARE)
  if (accumulate) {
    FOR_ROWS(LOAD)
  }
  for (int64_t p = 0; p < k; p++) {
    const vec left = load(b + p * b_stride);
    FOR_ROWS(MULTIPLY)
  }
  FOR_ROWS(STORE)
#undef DECLARE
#undef LOAD
#undef MULTIPLY
#undef STORE
}

/* c (m, n) = or += a (m, k) b (k, n); m is a multiple of TILE_ROWS, n of LANES. */
static void multiply(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b,
                     int64_t b_stride, float *c, int64_t c_stride, bool accumulate) {
  int64_t column = 0;
  for (; column + 2 * LANES <= n; column += 2 * LANES)
    for (int64_t row = 0; row < m; row += TILE_ROWS)
      tile_wide(k, a + row * a_row, a_row, a_step, b + column, b_stride, c + row * c_stride + column, c_stride,
                accumulate);
  for (; column < n; column += LANES)
    for (int64_t row = 0; row < m; row += TILE_ROWS)
      tile_narrow(k, a + row * a_row, a_row, a_step, b + column, b_stride, c + row * c_stride + column, c_stride,
                  accumulate);
}

/* target (padded_rows, width) = scale * source (rows, columns), zero outside. */
static void pack(const element *source, int64_t stride, int64_t rows, int64_t columns, float scale, float *target,
                 int64_t padded_rows, int64_t width) {
  for (int64_t r = 0; r < padded_rows; r++) {
    float *to = target + r * width;
    int64_t filled = r < rows ? columns : 0;
    for (int64_t c = 0; c < filled; c += LANES) /* the width is whole vectors */
      store(to + c, load_elements(source + r * stride + c, filled - c) * splat(scale));
    const int64_t whole = round_up(filled, LANES);
    memset(to + whole, 0, (size_t)(width - whole) * sizeof *to);
  }
}

/* Blocks of KEY_BLOCK rows, each transposed: target (blocks, width, KEY_BLOCK), zero outside. */
static void pack_transposed(const element *source, int64_t stride, int64_t rows, int64_t columns, float *target,
                            int64_t width) {
  for (int64_t begin = 0; begin < rows; begin += KEY_BLOCK, target += width * KEY_BLOCK) {
    int64_t count = rows - begin < KEY_BLOCK ? rows - begin : KEY_BLOCK;
    memset(target, 0, (size_t)(width * KEY_BLOCK) * sizeof *target);
    for (int64_t r = 0; r < count; r++)
      for (int64_t c = 0; c < columns; c += LANES) {
        float lanes[LANES];
        store(lanes, load_elements(source + (begin + r) * stride + c, columns - c));
        for (int64_t i = 0; i < LANES && c + i < columns; i++) target[(c + i) * KEY_BLOCK + r] = lanes[i];
      }
  }
}

/* A segment: its queries' first row and number, its keys' likewise. */
typedef struct span {
  int64_t query, key;
  int32_t queries, keys;
} span;

static span span_of(const mt_attention *attention, int32_t segment) {
  const int32_t *rows = attention->segment_begin + segment;
  const int32_t *keys = attention->key_begin != NULL ? attention->key_begin + segment : rows;
  return (span){.query = rows[0], .key = keys[0], .queries = rows[1] - rows[0], .keys = keys[1] - keys[0]};
}

/* Keys of the segment that its query number `query` sees: the first ones. */
static int32_t limit_of(const mt_attention *attention, const span *segment, int32_t query) {
  int32_t limit = segment->keys;
  if (attention->visible != NULL)
    limit = attention->visible[segment->query + query];
  else if (attention->causal)
    limit = query + 1;
  return limit < segment->keys ? limit : segment->keys;
}

/* How many of them are in the block from `key_begin`. */
static int32_t visible(const mt_attention *attention, const span *segment, int32_t query, int32_t key_begin) {
  int32_t count = limit_of(attention, segment, query) - key_begin;
  return count < 0 ? 0 : count > KEY_BLOCK ? KEY_BLOCK : count;
}

/* Columns of a block of keys of which @p left are to come: what no row of queries sees is left out by whole
 * vectors. */
static int32_t seen_of(int32_t left) { return left >= KEY_BLOCK ? KEY_BLOCK : (left + LANES - 1) / LANES * LANES; }

static ivec lanes_below(int32_t count) {
  int32_t lanes[LANES];
  for (int32_t i = 0; i < LANES; i++) lanes[i] = i < count ? -1 : 0;
  ivec mask;
  memcpy(&mask, lanes, sizeof mask);
  return mask;
}

size_t MT_KERNEL(attention_scratch)(int32_t head_dim, int32_t longest) {
  size_t width = (size_t)round_up(head_dim, ROUND), length = (size_t)round_up(longest, KEY_BLOCK);
  return 5 * length * width + (size_t)3 * QUERY_BLOCK * width + (size_t)2 * QUERY_BLOCK * KEY_BLOCK +
         (size_t)2 * QUERY_BLOCK;
}

/* One block of scores becomes exponentials; running maximum and sum of each row follow, and its output is scaled
 * back where the maximum grew. */
static void online_softmax(const mt_attention *attention, const span *segment, int32_t query_begin, int32_t rows,
                           int32_t key_begin, int32_t seen, float *scores, float *maximum, float *sum,
                           float *output, int64_t width) {
  for (int32_t r = 0; r < rows; r++) {
    float *row = scores + (int64_t)r * KEY_BLOCK;
    int32_t count = visible(attention, segment, query_begin + r, key_begin);
    if (count == 0) { /* perhaps nothing was seen yet, and there is no maximum to take away */
      memset(row, 0, KEY_BLOCK * sizeof *row);
      continue;
    }
    for (int32_t j = count / LANES * LANES; count < seen && j < seen; j += LANES)
      store(row + j, choose(lanes_below(count - j), load(row + j), splat(-INFINITY)));
    vec top = load(row);
    for (int32_t j = LANES; j < seen; j += LANES) top = larger(top, load(row + j));
    float highest = lane_maximum(top);
    if (highest > maximum[r]) {
      float factor = exponential_one(maximum[r] - highest);
      maximum[r] = highest;
      sum[r] *= factor;
      float *o = output + r * width;
      for (int64_t c = 0; c < width; c += LANES) store(o + c, load(o + c) * splat(factor));
    }
    vec total = splat(0.0F);
    for (int32_t j = 0; j < seen; j += LANES) {
      vec p = exponential(load(row + j) - splat(maximum[r]));
      store(row + j, p);
      total += p;
    }
    sum[r] += lane_sum(total);
  }
}

/* A row of an array of heads: its elements of the head that begins at `column`. */
static const element *head_of(const void *rows, int64_t stride, int64_t row, int64_t column) {
  return (const element *)rows + row * stride + column;
}

void MT_KERNEL(attention_forward)(const mt_attention *attention, int32_t segment, int32_t kv_head, float *scratch,
                                  void *output, int64_t output_stride, float *log_sum) {
  const int32_t dim = attention->head_dim, group = attention->heads / attention->kv_heads;
  const int64_t width = round_up(dim, ROUND), all_rows = attention->segment_begin[attention->segments];
  const span this = span_of(attention, segment);
  const int64_t kv_column = (int64_t)kv_head * dim, padded = round_up(this.keys, KEY_BLOCK);
  float *const queries = scratch, *const result = queries + QUERY_BLOCK * width;
  float *const scores = result + QUERY_BLOCK * width, *const maximum = scores + QUERY_BLOCK * KEY_BLOCK;
  float *const sum = maximum + QUERY_BLOCK, *const keys = sum + QUERY_BLOCK, *const values = keys + padded * width;
  pack_transposed(head_of(attention->key, attention->key_stride, this.key, kv_column), attention->key_stride,
                  this.keys, dim, keys, width);
  pack(head_of(attention->value, attention->value_stride, this.key, kv_column), attention->value_stride, this.keys,
       dim, 1.0F, values, padded, width);
  for (int32_t head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (int32_t begin = 0; begin < this.queries; begin += QUERY_BLOCK) {
      const int32_t rows = this.queries - begin < QUERY_BLOCK ? this.queries - begin : QUERY_BLOCK;
      const int64_t row = this.query + begin, column = (int64_t)head * dim;
      pack(head_of(attention->query, attention->query_stride, row, column), attention->query_stride, rows, dim,
           attention->scale, queries, QUERY_BLOCK, width);
      memset(result, 0, (size_t)(QUERY_BLOCK * width) * sizeof *result);
      for (int32_t r = 0; r < QUERY_BLOCK; r++) maximum[r] = -INFINITY, sum[r] = 0;
      const int32_t end = limit_of(attention, &this, begin + rows - 1);
      for (int32_t key = 0; key < end; key += KEY_BLOCK) {
        const int32_t seen = seen_of(end - key);
        multiply(QUERY_BLOCK, seen, width, queries, width, 1, keys + key * width, KEY_BLOCK, scores, KEY_BLOCK,
                 false);
        online_softmax(attention, &this, begin, rows, key, seen, scores, maximum, sum, result, width);
        multiply(QUERY_BLOCK, width, seen, scores, KEY_BLOCK, 1, values + key * width, width, result, width, true);
      }
      for (int32_t r = 0; r < rows; r++) {
        element *to = (element *)output + (row + r) * output_stride + column;
        const vec inverse = splat(sum[r] > 0 || isnan(sum[r]) ? 1.0F / sum[r] : 0.0F);
        for (int32_t c = 0; c < dim; c += LANES)
          store_elements(to + c, dim - c, load(result + r * width + c) * inverse);
        log_sum[head * all_rows + row + r] = maximum[r] + logf(sum[r]);
      }
    }
}

/* Where the pieces of backward's scratch lie; the first four cover the segment, the others one block of queries. */
typedef struct pieces {
  int64_t width;
  float *keys, *keys_transposed, *values_transposed, *key_gradient, *value_gradient;
  float *queries, *output_gradient, *query_gradient, *probabilities, *score_gradient, *dots, *log_sum;
} pieces;

static pieces divide(float *scratch, int64_t padded, int64_t width) {
  pieces p = {.width = width};
  float **const segment[] = {&p.keys, &p.keys_transposed, &p.values_transposed, &p.key_gradient, &p.value_gradient};
  float **const block[] = {&p.queries, &p.output_gradient, &p.query_gradient};
  for (int i = 0; i < 5; i++, scratch += padded * width) *segment[i] = scratch;
  for (int i = 0; i < 3; i++, scratch += QUERY_BLOCK * width) *block[i] = scratch;
  p.probabilities = scratch;
  p.score_gradient = p.probabilities + QUERY_BLOCK * KEY_BLOCK;
  p.dots = p.score_gradient + QUERY_BLOCK * KEY_BLOCK;
  p.log_sum = p.dots + QUERY_BLOCK;
  return p;
}

/* scores -> probabilities, output gradient times values -> score gradient; rows and keys not seen become 0. */
static void softmax_backward(const mt_attention *attention, const pieces *p, const span *segment,
                             int32_t query_begin, int32_t rows, int32_t key_begin, int32_t seen) {
  const vec scale = splat(attention->scale);
  for (int32_t r = 0; r < QUERY_BLOCK; r++) {
    float *row = p->probabilities + (int64_t)r * KEY_BLOCK, *gradient = p->score_gradient + (int64_t)r * KEY_BLOCK;
    int32_t count = r < rows ? visible(attention, segment, query_begin + r, key_begin) : 0;
    if (count == 0) {
      memset(row, 0, KEY_BLOCK * sizeof *row);
      memset(gradient, 0, KEY_BLOCK * sizeof *gradient);
      continue;
    }
    const vec log_sum = splat(p->log_sum[r]), dots = splat(p->dots[r]);
    for (int32_t j = 0; j < seen; j += LANES) {
      vec x = exponential(load(row + j) * scale - log_sum);
      if (count - j < LANES) x = choose(lanes_below(count - j), x, splat(0.0F));
      store(row + j, x);
      store(gradient + j, x * (load(gradient + j) - dots) * scale);
    }
  }
}

static void backward_block(const mt_attention *attention, const pieces *p, const span *segment, int32_t begin,
                           int32_t rows) {
  const int64_t width = p->width;
  const int32_t end = limit_of(attention, segment, begin + rows - 1);
  memset(p->query_gradient, 0, (size_t)(QUERY_BLOCK * width) * sizeof(float));
  for (int32_t key = 0; key < end; key += KEY_BLOCK) {
    const int64_t at = key * width;
    const int32_t seen = seen_of(end - key); /* whole vectors are whole tiles of rows too */
    multiply(QUERY_BLOCK, seen, width, p->queries, width, 1, p->keys_transposed + at, KEY_BLOCK, p->probabilities,
             KEY_BLOCK, false);
    multiply(QUERY_BLOCK, seen, width, p->output_gradient, width, 1, p->values_transposed + at, KEY_BLOCK,
             p->score_gradient, KEY_BLOCK, false);
    softmax_backward(attention, p, segment, begin, rows, key, seen);
    multiply(QUERY_BLOCK, width, seen, p->score_gradient, KEY_BLOCK, 1, p->keys + at, width, p->query_gradient,
             width, true);
    multiply(seen, width, QUERY_BLOCK, p->score_gradient, 1, KEY_BLOCK, p->queries, width, p->key_gradient + at,
             width, true);
    multiply(seen, width, QUERY_BLOCK, p->probabilities, 1, KEY_BLOCK, p->output_gradient, width,
             p->value_gradient + at, width, true);
  }
}

/* The rows of one head back from their padded place, from `row` on. */
static void unpack(const float *source, int64_t width, int64_t rows, int64_t columns, void *target, int64_t stride,
                   int64_t row, int64_t column, bool accumulate) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c += LANES) {
      element *to = (element *)target + (row + r) * stride + column + c;
      vec x = load(source + r * width + c);
      if (accumulate) x += load_elements(to, columns - c);
      store_elements(to, columns - c, x);
    }
}

void MT_KERNEL(attention_backward)(const mt_attention *attention, const mt_attention_gradients *gradients,
                                   int32_t segment, int32_t kv_head, float *scratch) {
  const int32_t dim = attention->head_dim, group = attention->heads / attention->kv_heads;
  const int64_t width = round_up(dim, ROUND), all_rows = attention->segment_begin[attention->segments];
  const span this = span_of(attention, segment);
  const int64_t kv_column = (int64_t)kv_head * dim, padded = round_up(this.keys, KEY_BLOCK);
  const pieces p = divide(scratch, padded, width);
  const element *key = head_of(attention->key, attention->key_stride, this.key, kv_column);
  const element *value = head_of(attention->value, attention->value_stride, this.key, kv_column);
  pack(key, attention->key_stride, this.keys, dim, 1.0F, p.keys, padded, width);
  pack_transposed(key, attention->key_stride, this.keys, dim, p.keys_transposed, width);
  pack_transposed(value, attention->value_stride, this.keys, dim, p.values_transposed, width);
  memset(p.key_gradient, 0, (size_t)(padded * width) * sizeof(float));
  memset(p.value_gradient, 0, (size_t)(padded * width) * sizeof(float));
  for (int32_t head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (int32_t begin = 0; begin < this.queries; begin += QUERY_BLOCK) {
      const int32_t rows = this.queries - begin < QUERY_BLOCK ? this.queries - begin : QUERY_BLOCK;
      const int64_t row = this.query + begin, column = (int64_t)head * dim;
      pack(head_of(attention->query, attention->query_stride, row, column), attention->query_stride, rows, dim,
           1.0F, p.queries, QUERY_BLOCK, width);
      pack(head_of(gradients->output_gradient, gradients->output_gradient_stride, row, column),
           gradients->output_gradient_stride, rows, dim, 1.0F, p.output_gradient, QUERY_BLOCK, width);
      for (int32_t r = 0; r < rows; r++) {
        const element *o = head_of(gradients->output, gradients->output_stride, row + r, column);
        vec dot = splat(0.0F);
        for (int64_t c = 0; c < dim; c += LANES)
          dot += load_elements(o + c, dim - c) * load(p.output_gradient + r * width + c);
        p.dots[r] = lane_sum(dot);
        p.log_sum[r] = gradients->log_sum[head * all_rows + row + r];
      }
      backward_block(attention, &p, &this, begin, rows);
      unpack(p.query_gradient, width, rows, dim, gradients->query, gradients->query_stride, row, column,
             gradients->accumulate);
    }
  unpack(p.key_gradient, width, this.keys, dim, gradients->key, gradients->key_stride, this.key, kv_column,
         gradients->accumulate);
  unpack(p.value_gradient, width, this.keys, dim, gradients->value, gradients->value_stride, this.key, kv_column,
         gradients->accumulate);
}

void MT_KERNEL(attention_merge)(int64_t rows, int32_t heads, int32_t head_dim, const void *part,
                                int64_t part_stride, const float *part_log_sum, void *output, int64_t output_stride,
                                float *log_sum) {
  for (int64_t r = 0; r < rows; r++)
    for (int32_t head = 0; head < heads; head++) {
      const float own = log_sum[head * rows + r], other = part_log_sum[head * rows + r];
      if (other == -INFINITY) continue;
      const float top = own > other ? own : other;
      const float own_share = expf(own - top), other_share = expf(other - top), sum = own_share + other_share;
      const vec keep = splat(own_share / sum), take = splat(other_share / sum);
      element *to = (element *)output + r * output_stride + (int64_t)head * head_dim;
      const element *from = head_of(part, part_stride, r, (int64_t)head * head_dim);
      for (int32_t c = 0; c < head_dim; c += LANES)
        store_elements(to + c, head_dim - c,
                       load_elements(to + c, head_dim - c) * keep + load_elements(from + c, head_dim - c) * take);
      log_sum[head * rows + r] = top + logf(sum);
    }
}

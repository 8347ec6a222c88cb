/*
 * Attention by blocks with online softmax (Dao et al., FlashAttention-2, 2023): no matrix of scores is kept. Heads
 * and segments are packed into zero-padded blocks first, so that the products inside have no ragged edges.
 *
 *   forward   S = scale Q K', P = exp(S - max), O = P V / sum;        log_sum = max + log sum
 *   backward  P = exp(S - log_sum), dV += P' dO, dP = dO V', dS = scale P (dP - D), D = row sums of dO O,
 *             dQ += dS K, dK += dS' Q
 *
 * Where the products' factors are bfloat16, P and dS are rounded to it on their way into them; scores, sums and
 * results are float32.
 */
#include "tensor/kernels/block.h"

#include <math.h>

enum { QUERY_BLOCK = 32, KEY_BLOCK = 64, ROUND = 16 };

static int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/* Keys or values as the right factor of scores: target (blocks, width / GROUP, KEY_BLOCK, GROUP), zero outside. */
static void pack_keys(const element *source, int64_t stride, int64_t rows, int64_t columns, factor *target,
                      int64_t width) {
  for (int64_t begin = 0; begin < rows; begin += KEY_BLOCK, target += width * KEY_BLOCK)
    pack_transposed(source + begin * stride, false, stride, rows - begin, columns, target, KEY_BLOCK, width);
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

/* Where the pieces of scratch lie. Those of the segment cover its keys, padded to whole blocks, by the width of a
 * head; the others cover one block of queries. */
typedef struct pieces {
  int64_t width;
  factor *keys, *keys_across, *values, *values_across; /* right factors; across: of scores */
  factor *queries, *queries_right, *output_gradient, *output_gradient_right;
  factor *weights, *weights_across, *gradient, *gradient_across; /* of P and of dS */
  float *scores, *score_gradient;                                /* (QUERY_BLOCK, KEY_BLOCK) */
  float *result;                                                 /* (QUERY_BLOCK, width): output or dQ */
  float *key_gradient, *value_gradient;                          /* of the segment */
  float *maximum, *sum, *dots, *log_sum;                         /* [QUERY_BLOCK] */
} pieces;

static float *cut(float *data, size_t *used, size_t floats) {
  float *piece = data == NULL ? NULL : data + *used;
  *used += (floats + ROUND - 1) / ROUND * ROUND;
  return piece;
}

static factor *cut_factors(float *data, size_t *used, size_t count) {
  return (factor *)(void *)cut(data, used, (count * sizeof(factor) + sizeof(float) - 1) / sizeof(float));
}

/* Cuts scratch, or counts what it takes with `data` NULL. */
static size_t divide(float *data, int64_t padded, int64_t width, pieces *p) {
  const size_t segment = (size_t)(padded * width), block = (size_t)QUERY_BLOCK * (size_t)width;
  const size_t square = (size_t)QUERY_BLOCK * KEY_BLOCK;
  size_t used = 0;
  *p = (pieces){.width = width};
  factor **const of_segment[] = {&p->keys, &p->keys_across, &p->values, &p->values_across};
  for (int i = 0; i < 4; i++) *of_segment[i] = cut_factors(data, &used, segment);
  p->key_gradient = cut(data, &used, segment);
  p->value_gradient = cut(data, &used, segment);
  p->queries = cut_factors(data, &used, block);
  p->output_gradient = cut_factors(data, &used, block);
  p->result = cut(data, &used, block);
  p->scores = cut(data, &used, square);
  p->score_gradient = cut(data, &used, square);
  float **const of_rows[] = {&p->maximum, &p->sum, &p->dots, &p->log_sum};
  for (int i = 0; i < 4; i++) *of_rows[i] = cut(data, &used, QUERY_BLOCK);
#ifdef MT_BFLOAT16_INSTRUCTIONS
  p->queries_right = cut_factors(data, &used, block);
  p->output_gradient_right = cut_factors(data, &used, block);
  factor **const of_square[] = {&p->weights, &p->weights_across, &p->gradient, &p->gradient_across};
  for (int i = 0; i < 4; i++) *of_square[i] = cut_factors(data, &used, square);
#else /* one by one, rows are groups, and scores become factors in place */
  p->queries_right = p->queries;
  p->output_gradient_right = p->output_gradient;
  p->weights = p->weights_across = p->scores;
  p->gradient = p->gradient_across = p->score_gradient;
#endif
  return used;
}

size_t MT_KERNEL(attention_scratch)(int32_t head_dim, int32_t longest) {
  pieces p;
  return divide(NULL, round_up(longest, KEY_BLOCK), round_up(head_dim, ROUND), &p);
}

/* One block of scores becomes exponentials; running maximum and sum of each row follow, and its output is scaled
 * back where the maximum grew. */
static void online_softmax(const mt_attention *attention, const span *segment, const pieces *p, int32_t query_begin,
                           int32_t rows, int32_t key_begin, int32_t seen) {
  const vec scale = splat(attention->scale);
  for (int32_t r = 0; r < QUERY_BLOCK; r++) {
    float *row = p->scores + (int64_t)r * KEY_BLOCK;
    factor *weights = p->weights + (int64_t)r * KEY_BLOCK;
    const int32_t count = r < rows ? visible(attention, segment, query_begin + r, key_begin) : 0;
    if (count == 0) { /* perhaps nothing was seen yet, and there is no maximum to take away */
      memset(weights, 0, KEY_BLOCK * sizeof *weights);
      continue;
    }
    vec top = splat(-INFINITY);
    for (int32_t j = 0; j < seen; j += LANES) {
      vec x = load(row + j) * scale;
      if (count - j < LANES) x = choose(lanes_below(count - j), x, splat(-INFINITY));
      store(row + j, x);
      top = larger(top, x);
    }
    const float highest = lane_maximum(top);
    if (highest > p->maximum[r]) {
      const float shrink = exponential_one(p->maximum[r] - highest);
      p->maximum[r] = highest;
      p->sum[r] *= shrink;
      float *o = p->result + r * p->width;
      for (int64_t c = 0; c < p->width; c += LANES) store(o + c, load(o + c) * splat(shrink));
    }
    const vec maximum = splat(p->maximum[r]);
    vec total = splat(0.0F);
    for (int32_t j = 0; j < seen; j += LANES) {
      const vec x = exponential(load(row + j) - maximum);
      store_factors(weights + j, x);
      total += x;
    }
    p->sum[r] += lane_sum(total);
  }
}

/* A row of an array of heads: its elements of the head that begins at `column`. */
static const element *head_of(const void *rows, int64_t stride, int64_t row, int64_t column) {
  return (const element *)rows + row * stride + column;
}

static void forward_block(const mt_attention *attention, const pieces *p, const span *segment, int32_t begin,
                          int32_t rows) {
  const int64_t width = p->width;
  const int32_t end = limit_of(attention, segment, begin + rows - 1);
  memset(p->result, 0, (size_t)(QUERY_BLOCK * width) * sizeof(float));
  for (int32_t r = 0; r < QUERY_BLOCK; r++) p->maximum[r] = -INFINITY, p->sum[r] = 0;
  for (int32_t key = 0; key < end; key += KEY_BLOCK) {
    const int32_t seen = seen_of(end - key);
    multiply(QUERY_BLOCK, seen, width, p->queries, width, GROUP, p->keys_across + key * width, KEY_BLOCK, p->scores,
             KEY_BLOCK, false);
    online_softmax(attention, segment, p, begin, rows, key, seen);
    multiply(QUERY_BLOCK, width, seen, p->weights, KEY_BLOCK, GROUP, p->values + key * width, width, p->result,
             width, true);
  }
}

void MT_KERNEL(attention_forward)(const mt_attention *attention, int32_t segment, int32_t kv_head, float *scratch,
                                  void *output, int64_t output_stride, float *log_sum) {
  const int32_t dim = attention->head_dim, group = attention->heads / attention->kv_heads;
  const int64_t width = round_up(dim, ROUND), all_rows = attention->segment_begin[attention->segments];
  const span this = span_of(attention, segment);
  const int64_t kv_column = (int64_t)kv_head * dim, padded = round_up(this.keys, KEY_BLOCK);
  pieces p;
  divide(scratch, padded, width, &p);
  pack_keys(head_of(attention->key, attention->key_stride, this.key, kv_column), attention->key_stride, this.keys,
            dim, p.keys_across, width);
  pack_groups(head_of(attention->value, attention->value_stride, this.key, kv_column), false,
              attention->value_stride, this.keys, dim, p.values, padded, width);
  for (int32_t head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (int32_t begin = 0; begin < this.queries; begin += QUERY_BLOCK) {
      const int32_t rows = this.queries - begin < QUERY_BLOCK ? this.queries - begin : QUERY_BLOCK;
      const int64_t row = this.query + begin, column = (int64_t)head * dim;
      pack_rows(head_of(attention->query, attention->query_stride, row, column), attention->query_stride, rows, dim,
                p.queries, QUERY_BLOCK, width);
      forward_block(attention, &p, &this, begin, rows);
      for (int32_t r = 0; r < rows; r++) {
        element *to = (element *)output + (row + r) * output_stride + column;
        const vec inverse = splat(p.sum[r] > 0 || isnan(p.sum[r]) ? 1.0F / p.sum[r] : 0.0F);
        for (int32_t c = 0; c < dim; c += LANES)
          store_elements(to + c, dim - c, load(p.result + r * width + c) * inverse);
        log_sum[head * all_rows + row + r] = p.maximum[r] + logf(p.sum[r]);
      }
    }
}

/* P and dS of one vector of scores of row `r`, of which `count` are seen; both 0 behind those. */
KERNEL_INLINE vec weights_of(const pieces *p, int32_t r, int32_t j, int32_t count, vec scale, vec *gradient) {
  const int64_t at = (int64_t)r * KEY_BLOCK + j;
  vec x = exponential(load(p->scores + at) * scale - splat(p->log_sum[r]));
  if (count - j < LANES) x = choose(lanes_below(count - j), x, splat(0.0F));
  *gradient = x * (load(p->score_gradient + at) - splat(p->dots[r])) * scale;
  return x;
}

/* scores -> P, output gradient times values -> dS; rows and keys not seen become 0. */
static void softmax_backward(const mt_attention *attention, const pieces *p, const span *segment,
                             int32_t query_begin, int32_t rows, int32_t key_begin, int32_t seen) {
  const vec scale = splat(attention->scale);
  for (int32_t r = 0; r < QUERY_BLOCK; r += GROUP) {
    int32_t count[GROUP];
    for (int g = 0; g < GROUP; g++)
      count[g] = r + g < rows ? visible(attention, segment, query_begin + r + g, key_begin) : 0;
    for (int32_t j = 0; j < seen; j += LANES) {
      vec weights[GROUP], gradient[GROUP];
      for (int g = 0; g < GROUP; g++) {
        weights[g] = weights_of(p, r + g, j, count[g], scale, &gradient[g]);
        store_factors(p->gradient + (int64_t)(r + g) * KEY_BLOCK + j, gradient[g]);
      }
      store_groups(p->weights_across + (int64_t)r * KEY_BLOCK + j * GROUP, weights);
      store_groups(p->gradient_across + (int64_t)r * KEY_BLOCK + j * GROUP, gradient);
    }
  }
}

static void backward_block(const mt_attention *attention, const pieces *p, const span *segment, int32_t begin,
                           int32_t rows) {
  const int64_t width = p->width;
  const int32_t end = limit_of(attention, segment, begin + rows - 1);
  memset(p->result, 0, (size_t)(QUERY_BLOCK * width) * sizeof(float));
  for (int32_t key = 0; key < end; key += KEY_BLOCK) {
    const int64_t at = key * width, across = (int64_t)KEY_BLOCK * GROUP;
    const int32_t seen = seen_of(end - key); /* whole vectors are whole tiles of rows too */
    multiply(QUERY_BLOCK, seen, width, p->queries, width, GROUP, p->keys_across + at, KEY_BLOCK, p->scores,
             KEY_BLOCK, false);
    multiply(QUERY_BLOCK, seen, width, p->output_gradient, width, GROUP, p->values_across + at, KEY_BLOCK,
             p->score_gradient, KEY_BLOCK, false);
    softmax_backward(attention, p, segment, begin, rows, key, seen);
    multiply(QUERY_BLOCK, width, seen, p->gradient, KEY_BLOCK, GROUP, p->keys + at, width, p->result, width, true);
    multiply(seen, width, QUERY_BLOCK, p->gradient_across, GROUP, across, p->queries_right, width,
             p->key_gradient + at, width, true);
    multiply(seen, width, QUERY_BLOCK, p->weights_across, GROUP, across, p->output_gradient_right, width,
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

/* A block of rows as the left factor of products and, where that is another layout, as the right one. */
static void pack_both(const element *source, int64_t stride, int64_t rows, int64_t columns, factor *left,
                      factor *right, int64_t width) {
  pack_rows(source, stride, rows, columns, left, QUERY_BLOCK, width);
  if (right != left) pack_groups(source, false, stride, rows, columns, right, QUERY_BLOCK, width);
}

/* D and log_sum of a block's rows; those behind them get numbers that do no harm. */
static void read_rows(const mt_attention_gradients *gradients, const pieces *p, const element *output_gradient,
                      int64_t row, int64_t column, int32_t rows, int32_t dim, const float *log_sum) {
  for (int32_t r = 0; r < QUERY_BLOCK; r++) {
    p->dots[r] = p->log_sum[r] = 0;
    if (r >= rows) continue;
    const element *o = head_of(gradients->output, gradients->output_stride, row + r, column);
    const element *d = output_gradient + r * gradients->output_gradient_stride;
    vec dot = splat(0.0F);
    for (int64_t c = 0; c < dim; c += LANES) dot += load_elements(o + c, dim - c) * load_elements(d + c, dim - c);
    p->dots[r] = lane_sum(dot);
    p->log_sum[r] = log_sum[row + r];
  }
}

void MT_KERNEL(attention_backward)(const mt_attention *attention, const mt_attention_gradients *gradients,
                                   int32_t segment, int32_t kv_head, float *scratch) {
  const int32_t dim = attention->head_dim, group = attention->heads / attention->kv_heads;
  const int64_t width = round_up(dim, ROUND), all_rows = attention->segment_begin[attention->segments];
  const span this = span_of(attention, segment);
  const int64_t kv_column = (int64_t)kv_head * dim, padded = round_up(this.keys, KEY_BLOCK);
  pieces p;
  divide(scratch, padded, width, &p);
  const element *key = head_of(attention->key, attention->key_stride, this.key, kv_column);
  const element *value = head_of(attention->value, attention->value_stride, this.key, kv_column);
  pack_groups(key, false, attention->key_stride, this.keys, dim, p.keys, padded, width);
  pack_keys(key, attention->key_stride, this.keys, dim, p.keys_across, width);
  pack_keys(value, attention->value_stride, this.keys, dim, p.values_across, width);
  memset(p.key_gradient, 0, (size_t)(padded * width) * sizeof(float));
  memset(p.value_gradient, 0, (size_t)(padded * width) * sizeof(float));
  for (int32_t head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (int32_t begin = 0; begin < this.queries; begin += QUERY_BLOCK) {
      const int32_t rows = this.queries - begin < QUERY_BLOCK ? this.queries - begin : QUERY_BLOCK;
      const int64_t row = this.query + begin, column = (int64_t)head * dim;
      const element *output_gradient =
          head_of(gradients->output_gradient, gradients->output_gradient_stride, row, column);
      pack_both(head_of(attention->query, attention->query_stride, row, column), attention->query_stride, rows, dim,
                p.queries, p.queries_right, width);
      pack_both(output_gradient, gradients->output_gradient_stride, rows, dim, p.output_gradient,
                p.output_gradient_right, width);
      read_rows(gradients, &p, output_gradient, row, column, rows, dim, gradients->log_sum + head * all_rows);
      backward_block(attention, &p, &this, begin, rows);
      unpack(p.result, width, rows, dim, gradients->query, gradients->query_stride, row, column,
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

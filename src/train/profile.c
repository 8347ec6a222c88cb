#include "train/profile.h"

#include "base/array.h"
#include "base/clock.h"
#include "comm/collective.h"
#include "nn/network.h"
#include "train/fit.h"
#include "train/input.h"
#include "train/interpreter.h"
#include "train/pool.h"

#include <stdlib.h>
#include <string.h>

enum {
  STEPS_SEEN = 8,
  SHAPES_MOST = 5,
  ROWS_DECODED = 20,
  REPEATS = 7,
  DECODINGS = 3,
  BLOCKS_MOST = 4,
  PRODUCT_SIZE = 512
};

typedef struct shape {
  const mt_row *row;
  mt_batch batch; /* loaded */
} shape;

typedef struct profiler {
  const mt_setup *setup;
  mt_transport *transport;
  mt_rank_group everyone;
  mt_arena *arena;
  mt_pool *pool;
  mt_network *trained, *frozen;
  int32_t shape_count, row_count;
  shape shapes[SHAPES_MOST];
  const mt_row **rows; /* [row_count] of the first steps, the shortest first */
  mt_collective_scratch scratch;
} profiler;

/** What is timed: layers [begin, end) in one direction. */
typedef struct trial {
  mt_network *network;
  int32_t begin, end;
  bool backward, input_gradient;
} trial;

static motet_status make_network(profiler *this, bool train, motet_error *error, mt_network **network) {
  const mt_internvl *config = &this->setup->config;
  int32_t layers = mt_internvl_layer_count(config);
  bool *held = MT_ARENA_NEW(this->arena, bool, layers), *trainable = MT_ARENA_NEW(this->arena, bool, layers);
  if (held == NULL || trainable == NULL) return mt_error_memory(error, (unsigned)layers, "the profile's network");
  for (int32_t layer = 0; layer < layers; layer++) {
    int32_t block;
    mt_internvl_kind kind = mt_internvl_layer_kind(config, layer, &block);
    bool is_block = kind == MT_INTERNVL_VISION_BLOCK || kind == MT_INTERNVL_DECODER_BLOCK;
    held[layer] = !is_block || block < BLOCKS_MOST;
    trainable[layer] = train;
  }
  motet_status status = mt_network_create(config, held, trainable, error, network);
  if (status == MOTET_OK) status = mt_setup_network(this->setup, this->transport, *network, error);
  if (status == MOTET_OK) mt_network_initialize(*network, 1);
  return status;
}

static int by_tokens(const void *left, const void *right) {
  const mt_row *a = *(const mt_row *const *)left, *b = *(const mt_row *const *)right;
  if (a->tokens != b->tokens) return a->tokens < b->tokens ? -1 : 1;
  return (a->tiles > b->tiles) - (a->tiles < b->tiles);
}

/** Rows of the first steps, spread over their lengths: what training will see. */
static motet_status choose_shapes(profiler *this, motet_error *error) {
  int32_t rows = this->setup->rows, all = rows * STEPS_SEEN;
  const mt_row **list = MT_ARENA_NEW(this->arena, const mt_row *, all);
  if (list == NULL) return mt_error_memory(error, (unsigned)all, "the profile's shapes");
  motet_status status = MOTET_OK;
  for (int32_t step = 0; step < STEPS_SEEN && status == MOTET_OK; step++) {
    const mt_row *planned;
    mt_planner_microbatch *microbatches;
    status = mt_setup_rows(this->setup, step, this->arena, error, &planned, &microbatches);
    for (int32_t i = 0; i < rows && status == MOTET_OK; i++) list[step * rows + i] = &planned[i];
  }
  if (status != MOTET_OK) return status;
  qsort(list, (size_t)all, sizeof *list, by_tokens);
  this->rows = list;
  this->row_count = all;
  for (int32_t i = 0; i < SHAPES_MOST && status == MOTET_OK; i++) {
    const mt_row *row = list[(int64_t)i * (all - 1) / (SHAPES_MOST - 1)];
    if (this->shape_count > 0 && this->shapes[this->shape_count - 1].row == row) continue;
    shape *chosen = &this->shapes[this->shape_count++];
    chosen->row = row;
    status = mt_dataset_load(this->setup->train, row, true, row->tiles > 0, this->arena, error, &chosen->batch);
  }
  return status;
}

static int64_t output_bytes(const profiler *this, int32_t layer, const mt_batch *batch) {
  int64_t rows, columns;
  if (layer < 0) return 0;
  mt_network_output_shape(&this->setup->config, layer, batch, &rows, &columns);
  return rows * columns * (int64_t)mt_element_bytes(this->setup->element);
}

/** Takes a buffer of small numbers for the activation that leaves @p layer; NULL where there is none. */
static motet_status take(profiler *this, int32_t layer, const mt_batch *batch, motet_error *error, void **buffer) {
  int64_t bytes = output_bytes(this, layer, batch);
  *buffer = NULL;
  if (bytes == 0) return MOTET_OK;
  *buffer = mt_pool_take(this->pool, bytes);
  if (*buffer == NULL) return mt_error_memory(error, (unsigned long long)bytes, "an activation");
  const mt_tensor_backend *backend = mt_tensor_backend_cpu(this->setup->element);
  int64_t size = (int64_t)mt_element_bytes(backend->element), piece = 17;
  for (int64_t i = 0; i < bytes / size; i += piece) {
    float values[17];
    for (int k = 0; k < 17; k++) values[k] = 0.01F * (float)(k - 8);
    if (bytes / size - i < piece) piece = bytes / size - i;
    backend->add_floats(piece, values, NULL, (char *)*buffer + i * size);
  }
  return MOTET_OK;
}

static motet_status run_once(profiler *this, const trial *what, const mt_batch *batch, const void *input,
                             void *output, const void *output_gradient, void *input_gradient, motet_error *error,
                             double *seconds) {
  const mt_internvl *config = &this->setup->config;
  mt_arena *arena = mt_pool_arena_take(this->pool, 0);
  if (arena == NULL) return mt_error_memory(error, 0, "saved activations");
  mt_saved *saved = NULL;
  double loss = 0, begin = mt_clock_seconds();
  bool last = what->end == mt_internvl_layer_count(config);
  motet_status status =
      mt_network_forward(what->network, what->begin, what->end, batch, input, last ? NULL : output, what->backward,
                         what->backward ? what->begin : -1, arena, error, &saved, &loss);
  double middle = mt_clock_seconds();
  *seconds = middle - begin;
  if (status == MOTET_OK && what->backward) {
    middle = mt_clock_seconds();
    status = mt_network_backward(what->network, what->begin, what->end, what->begin, batch, saved,
                                 last ? NULL : output_gradient, input_gradient, error);
    *seconds = mt_clock_seconds() - middle;
  }
  mt_pool_arena_give(this->pool, arena);
  return status;
}

/** The mean over ranks of each rank's median, so that all ranks know one number. */
static motet_status agree_on(profiler *this, double *times, int32_t count, motet_error *error, double *seconds) {
  *seconds = mt_median(times, (size_t)count);
  motet_status status = mt_all_reduce_doubles(this->transport, &this->everyone, seconds, 1, &this->scratch, error);
  *seconds /= this->transport->ranks;
  return status;
}

static motet_status time_trial(profiler *this, const trial *what, const mt_batch *batch, motet_error *error,
                               double *seconds) {
  void *input, *output, *output_gradient, *input_gradient = NULL;
  double times[REPEATS];
  motet_status status = take(this, what->begin - 1, batch, error, &input);
  if (status == MOTET_OK) status = take(this, what->end - 1, batch, error, &output);
  if (status == MOTET_OK) status = take(this, what->end - 1, batch, error, &output_gradient);
  if (status == MOTET_OK && what->input_gradient)
    status = take(this, what->begin - 1, batch, error, &input_gradient);
  if (status == MOTET_OK) status = mt_barrier(this->transport, &this->everyone, error);
  for (int i = -2; i < REPEATS && status == MOTET_OK; i++)
    status =
        run_once(this, what, batch, input, output, output_gradient, input_gradient, error, &times[i < 0 ? 0 : i]);
  if (status != MOTET_OK) return status;
  mt_pool_give(this->pool, input);
  mt_pool_give(this->pool, output);
  mt_pool_give(this->pool, output_gradient);
  mt_pool_give(this->pool, input_gradient);
  return agree_on(this, times, REPEATS, error, seconds);
}

/** The layers of a kind that are run in one go: as many blocks as are held, for caches to be as in training. */
static void find_layers(const profiler *this, mt_internvl_kind kind, int32_t *begin, int32_t *end) {
  const mt_internvl *config = &this->setup->config;
  int32_t layers = mt_internvl_layer_count(config), block;
  *begin = 0;
  while (mt_internvl_layer_kind(config, *begin, &block) != kind) ++*begin;
  *end = *begin + 1;
  while (*end < layers && mt_internvl_layer_kind(config, *end, &block) == kind && *end - *begin < BLOCKS_MOST)
    ++*end;
}

static trial make_trial(const profiler *this, mt_internvl_kind kind, mt_layer_pass pass) {
  trial what = {.network = pass == MT_PASS_BACKWARD_X ? this->frozen : this->trained,
                .backward = pass != MT_PASS_FORWARD,
                .input_gradient = pass == MT_PASS_BACKWARD || pass == MT_PASS_BACKWARD_X};
  find_layers(this, kind, &what.begin, &what.end);
  if (pass == MT_PASS_BACKWARD_W) what.end = what.begin + 1; /* only the first trainable layer spares its input's */
  return what;
}

/** What a kind's time may depend on. */
static uint32_t features_of(mt_internvl_kind kind) {
  switch (kind) {
  case MT_INTERNVL_VISION_EMBED:
  case MT_INTERNVL_VISION_BLOCK:
  case MT_INTERNVL_PROJECTOR: return 1u << MT_COST_FIXED | 1u << MT_COST_TILES;
  case MT_INTERNVL_TOKEN_EMBED: return 1u << MT_COST_FIXED | 1u << MT_COST_TOKENS | 1u << MT_COST_TILES;
  case MT_INTERNVL_DECODER_BLOCK: return 1u << MT_COST_FIXED | 1u << MT_COST_TOKENS | 1u << MT_COST_AREA;
  case MT_INTERNVL_HEAD: return 1u << MT_COST_FIXED | 1u << MT_COST_TOKENS | 1u << MT_COST_TARGETS;
  }
  return 1u << MT_COST_FIXED;
}

static motet_status measure_pass(profiler *this, mt_internvl_kind kind, mt_layer_pass pass, motet_error *error,
                                 double coefficients[MT_COST_FEATURES]) {
  double features[SHAPES_MOST * MT_COST_FEATURES], targets[SHAPES_MOST], fitted[MT_COST_FEATURES];
  int32_t rows = 0, used[MT_COST_FEATURES], count = 0;
  bool image = kind <= MT_INTERNVL_PROJECTOR;
  for (int32_t i = 0; i < MT_COST_FEATURES; i++)
    if ((features_of(kind) >> i & 1) != 0) used[count++] = i;
  trial what = make_trial(this, kind, pass);
  for (int32_t s = 0; s < this->shape_count; s++) {
    const shape *measured = &this->shapes[s];
    double all[MT_COST_FEATURES];
    if (image && measured->row->tiles == 0) continue;
    mt_cost_features(&measured->batch, measured->row->targets, all);
    motet_status status = time_trial(this, &what, &measured->batch, error, &targets[rows]);
    if (status != MOTET_OK) return status;
    targets[rows] /= what.end - what.begin;
    if (targets[rows] < 1e-9) targets[rows] = 1e-9; /* nothing to do, measured as nothing */
    for (int32_t i = 0; i < count; i++) features[rows * count + i] = all[used[i]];
    rows++;
  }
  memset(coefficients, 0, MT_COST_FEATURES * sizeof *coefficients);
  if (rows == 0) return MOTET_OK; /* a job without pictures */
  motet_status status = mt_fit(features, targets, rows, count, error, fitted);
  for (int32_t i = 0; i < count && status == MOTET_OK; i++) coefficients[used[i]] = fitted[i];
  return status;
}

/** Files to tiles, row by row, on one thread of each rank. */
static motet_status measure_decoding(profiler *this, motet_error *error, mt_decode_costs *costs) {
  const mt_dataset *dataset = this->setup->train;
  double features[ROWS_DECODED * MT_INPUT_FEATURES], targets[ROWS_DECODED], fitted[MT_INPUT_FEATURES];
  int32_t measured = 0;
  motet_status status = MOTET_OK;
  for (int32_t i = 0; i < ROWS_DECODED && status == MOTET_OK; i++) {
    const mt_row *row = this->rows[(int64_t)i * (this->row_count - 1) / (ROWS_DECODED - 1)];
    if (row->tiles == 0) continue;
    float *pixels = mt_pool_take(this->pool, row->tiles * mt_dataset_tile_floats(dataset) * (int64_t)sizeof(float));
    if (pixels == NULL) return mt_error_memory(error, (unsigned)row->tiles, "a row's pixels");
    double times[DECODINGS];
    status = mt_barrier(this->transport, &this->everyone, error);
    for (int k = 0; k < DECODINGS && status == MOTET_OK; k++) {
      const double begin = mt_clock_seconds();
      status = mt_dataset_pixels(dataset, row, error, pixels);
      times[k] = mt_clock_seconds() - begin;
    }
    mt_pool_give(this->pool, pixels);
    mt_input_features(dataset, row, &features[measured * MT_INPUT_FEATURES]);
    if (status == MOTET_OK) status = agree_on(this, times, DECODINGS, error, &targets[measured++]);
  }
  *costs = (mt_decode_costs){.measured = true};
  if (status != MOTET_OK || measured == 0) return status;
  status = mt_fit(features, targets, measured, MT_INPUT_FEATURES, error, fitted);
  if (status == MOTET_OK) *costs = (mt_decode_costs){fitted[0], fitted[1], fitted[2], .measured = true};
  return status;
}

static motet_status measure_optimizer(profiler *this, motet_error *error, double *seconds_per_parameter) {
  double times[REPEATS], parameters = 0, seconds;
  for (int32_t i = 0; i < mt_network_parameter_count(this->trained); i++)
    parameters += (double)mt_network_parameter(this->trained, i)->count;
  mt_adamw options = {.learning_rate = 1e-6, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8};
  mt_network_zero_gradients(this->trained);
  motet_status status = mt_barrier(this->transport, &this->everyone, error);
  for (int i = -2; i < REPEATS && status == MOTET_OK; i++) {
    double begin = mt_clock_seconds();
    status = mt_network_adamw(this->trained, &options, i + 3, 1.0, error);
    times[i < 0 ? 0 : i] = mt_clock_seconds() - begin;
  }
  if (status == MOTET_OK) status = agree_on(this, times, REPEATS, error, &seconds);
  if (status == MOTET_OK) *seconds_per_parameter = seconds / parameters;
  return status;
}

/** Square products of the job's elements, on the trained network's threads. */
static motet_status measure_products(profiler *this, motet_error *error, double *operations_per_second) {
  size_t count = (size_t)PRODUCT_SIZE * PRODUCT_SIZE, bytes = count * mt_element_bytes(this->setup->element);
  float *taken = mt_pool_take(this->pool, (int64_t)(3 * bytes));
  char *memory = (char *)taken;
  if (taken == NULL) return mt_error_memory(error, 3 * bytes, "a matrix product");
  memset(memory, 0, 3 * bytes);
  mt_matmul product = {.m = PRODUCT_SIZE,
                       .n = PRODUCT_SIZE,
                       .k = PRODUCT_SIZE,
                       .a = memory,
                       .b = memory + bytes,
                       .c = memory + 2 * bytes,
                       .a_stride = PRODUCT_SIZE,
                       .b_stride = PRODUCT_SIZE,
                       .c_stride = PRODUCT_SIZE};
  double times[REPEATS], seconds;
  motet_status status = mt_barrier(this->transport, &this->everyone, error);
  for (int i = -2; i < REPEATS && status == MOTET_OK; i++) {
    double begin = mt_clock_seconds();
    status = mt_network_multiply(this->trained, &product, error);
    times[i < 0 ? 0 : i] = mt_clock_seconds() - begin;
  }
  mt_pool_give(this->pool, taken);
  if (status == MOTET_OK) status = agree_on(this, times, REPEATS, error, &seconds);
  if (status == MOTET_OK) *operations_per_second = 2.0 * PRODUCT_SIZE * PRODUCT_SIZE * PRODUCT_SIZE / seconds;
  return status;
}

/** Half a round trip between neighbours; ranks pair up, so that all are busy. */
static motet_status time_message(profiler *this, size_t bytes, float *memory, motet_error *error, double *seconds) {
  int32_t rank = this->transport->rank, peer = rank ^ 1;
  double times[REPEATS] = {0};
  motet_status status = mt_barrier(this->transport, &this->everyone, error);
  for (int i = -2; i < REPEATS && status == MOTET_OK && peer < this->transport->ranks; i++) {
    double begin = mt_clock_seconds();
    for (int leg = 0; leg < 2 && status == MOTET_OK; leg++) {
      mt_transfer *transfer = NULL;
      status = leg == (rank & 1)
                   ? mt_transport_send(this->transport, peer, MT_TAG_TRANSFER, memory, bytes, error, &transfer)
                   : mt_transport_recv(this->transport, peer, MT_TAG_TRANSFER, memory, bytes, error, &transfer);
      if (status == MOTET_OK) status = mt_transport_wait(this->transport, transfer, error);
    }
    times[i < 0 ? 0 : i] = (mt_clock_seconds() - begin) / 2;
  }
  if (status != MOTET_OK) return status;
  /* An odd rank out has measured nothing; the mean is over those that have. */
  int32_t paired = this->transport->ranks / 2 * 2;
  status = agree_on(this, times, REPEATS, error, seconds);
  *seconds *= (double)this->transport->ranks / paired;
  return status;
}

static motet_status measure_link(profiler *this, motet_error *error, mt_link *link) {
  static const size_t sizes[] = {64, 4096, 65536, 1 << 20, 8 << 20};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  *link = (mt_link){0};
  if (this->transport->ranks < 2) return MOTET_OK;
  float *memory = mt_pool_take(this->pool, (int64_t)sizes[SIZES - 1]);
  if (memory == NULL) return mt_error_memory(error, sizes[SIZES - 1], "a message");
  double features[SIZES * 2], targets[SIZES], fitted[2];
  motet_status status = MOTET_OK;
  for (int i = 0; i < SIZES && status == MOTET_OK; i++) {
    status = time_message(this, sizes[i], memory, error, &targets[i]);
    features[2 * i] = 1;
    features[2 * i + 1] = (double)sizes[i];
  }
  mt_pool_give(this->pool, memory);
  if (status == MOTET_OK) status = mt_fit(features, targets, SIZES, 2, error, fitted);
  if (status == MOTET_OK)
    *link = (mt_link){.latency_seconds = fitted[0], .bytes_per_second = fitted[1] > 0 ? 1 / fitted[1] : 0};
  return status;
}

static motet_status measure_all(profiler *this, motet_error *error, mt_layer_costs *costs) {
  motet_status status = choose_shapes(this, error);
  if (status == MOTET_OK) status = measure_decoding(this, error, &costs->decode);
  if (status == MOTET_OK) status = make_network(this, true, error, &this->trained);
  if (status == MOTET_OK) status = make_network(this, false, error, &this->frozen);
  for (int kind = MT_INTERNVL_VISION_EMBED; kind < MT_LAYER_KINDS && status == MOTET_OK; kind++)
    for (int pass = 0; pass < MT_PASSES && status == MOTET_OK; pass++)
      status = measure_pass(this, (mt_internvl_kind)kind, (mt_layer_pass)pass, error, costs->seconds[kind][pass]);
  if (status == MOTET_OK) status = measure_optimizer(this, error, &costs->optimizer_seconds_per_parameter);
  if (status == MOTET_OK) status = measure_products(this, error, &costs->peak_operations_per_second);
  return status == MOTET_OK ? measure_link(this, error, &costs->link) : status;
}

motet_status mt_profile_measure(const mt_setup *setup, mt_transport *transport, motet_error *error,
                                mt_layer_costs *costs) {
  profiler this = {.setup = setup, .transport = transport, .arena = mt_arena_create(), .pool = mt_pool_create()};
  motet_status status = MOTET_OK;
  int32_t *ranks = this.arena != NULL ? MT_ARENA_NEW(this.arena, int32_t, transport->ranks) : NULL;
  *costs = (mt_layer_costs){.measured = true};
  const int32_t spare = transport->processors - mt_setup_threads(setup, transport);
  costs->spare_processors = spare > 0 ? spare : 0;
  if (ranks == NULL || this.pool == NULL) {
    status = mt_error_memory(error, sizeof this, "the profile");
  } else {
    for (int32_t rank = 0; rank < transport->ranks; rank++) ranks[rank] = rank;
    this.everyone = (mt_rank_group){.count = transport->ranks, .ranks = ranks};
    status = measure_all(&this, error, costs);
  }
  mt_network_destroy(this.trained);
  mt_network_destroy(this.frozen);
  mt_collective_scratch_free(&this.scratch);
  mt_pool_destroy(this.pool);
  mt_arena_destroy(this.arena);
  return status;
}

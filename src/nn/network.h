/** @file
 * The network: weights, gradients and optimizer state of the layers that this rank holds, and forward and
 * backward over contiguous runs of layers. It knows layers, not stages, ranks or schedules.
 */
#ifndef MT_NN_NETWORK_H
#define MT_NN_NETWORK_H

#include "base/arena.h"
#include "base/error.h"
#include "model/internvl.h"
#include "nn/batch.h"
#include "tensor/backend.h"

#include <stddef.h>

typedef struct mt_network mt_network;

/** A weight as users and files know it. Data are float32, row-major, owned by the network. */
typedef struct mt_parameter {
  const char *name;  /* HuggingFace name in the config's own form, as published files have it */
  const char *alias; /* the same weight as newer tools write it; NULL if there is none */
  int32_t layer;     /* model layer, numbered as mt_internvl_model() does */
  int32_t dims;
  int64_t shape[4];
  int64_t count;
  mt_internvl_grouping grouping; /* the order of its rows in files */
  bool trainable;
  bool decay; /* weight decay applies: matrices, not biases and norms */
  float *value;
  float *gradient; /* NULL if frozen */
} mt_parameter;

/**
 * @p held: one flag a model layer; only held layers get memory. @p trainable: one flag a layer. With tied
 * embeddings, a rank that holds the head alone gets a copy of the embedding as the head's weight, under the
 * embedding's name and with the head's layer; its gradient must be added to the first stage's by the caller. A rank
 * that holds both has one parameter, the embedding's. Then both layers train or neither does.
 *
 * A network is used by one thread at a time, and computes in float32 on that thread alone unless told otherwise.
 */
motet_status mt_network_create(const mt_internvl *config, const bool *held, const bool *trainable,
                               motet_error *error, mt_network **network);
void mt_network_destroy(mt_network *network);

/**
 * What activations are stored as from now on, and how many threads compute. With bfloat16, activations and their
 * gradients are bfloat16, saved, passed on and as factors of products; weights are rounded to it where they are
 * factors. All sums, weights, their gradients and the optimizer stay float32. Results are the same bits with any
 * number of threads. Not between a forward and its backward.
 */
motet_status mt_network_use(mt_network *network, mt_element element, int32_t threads, motet_error *error);
mt_element mt_network_element(const mt_network *network);

/** A product by the network's kernels and threads: for measurements. */
motet_status mt_network_multiply(mt_network *network, const mt_matmul *product, motet_error *error);

int32_t mt_network_parameter_count(const mt_network *network);
mt_parameter *mt_network_parameter(mt_network *network, int32_t index);

/** Random weights, stream named by each parameter's name: the same values whichever layers are held. */
void mt_network_initialize(mt_network *network, uint64_t seed);
void mt_network_zero_gradients(mt_network *network);

/** Shape of the activation that leaves @p layer for this batch: vision (tiles * (patches + 1), hidden), projector
 * (tiles * tokens_per_tile, decoder hidden), decoder (tokens, hidden), head (0, 0). */
void mt_network_output_shape(const mt_internvl *config, int32_t layer, const mt_batch *batch, int64_t *rows,
                             int64_t *columns);

/** Bytes that forward over the layers takes from its arena, until the arena is reset after backward: exact, the
 * memory forecast uses it. 0 where nothing will run backward (@p first_trainable negative). */
int64_t mt_network_saved_bytes(const mt_internvl *config, mt_element element, const bool *trainable,
                               int32_t layer_begin, int32_t layer_end, int32_t first_trainable,
                               const mt_batch *batch);

/** Saved activations of one (stage, microbatch); lives in the arena given to forward. */
typedef struct mt_saved mt_saved;

/**
 * Runs layers [layer_begin, layer_end). Activations and their gradients are elements of the network. Layers of the
 * image modules do nothing for a batch without tiles.
 * @param input  activation entering, NULL where the first layer reads the batch (vision embeddings); the token
 *               embedding takes the image features, or NULL where the batch has no tiles
 * @param output (rows, columns) of the last layer; NULL after the head
 * @param keep   whether a backward will follow; @p first_trainable: the layer down to which it will run
 * @param loss   added to when the head is among the layers: loss_weight times the summed token losses; one number
 *               for each of the batch's parts
 */
motet_status mt_network_forward(mt_network *network, int32_t layer_begin, int32_t layer_end, const mt_batch *batch,
                                const void *input, void *output, bool keep, int32_t first_trainable,
                                mt_arena *arena, motet_error *error, mt_saved **saved, double *loss);

/** Forward again, for a backward whose saved activations were dropped: as mt_network_forward() with `keep`, without
 * output and loss. What it saves has the same bits. */
motet_status mt_network_restore(mt_network *network, int32_t layer_begin, int32_t layer_end, const mt_batch *batch,
                                const void *input, int32_t first_trainable, mt_arena *arena, motet_error *error,
                                mt_saved **saved);

/**
 * Runs the layers backward, from the last down to @p first_trainable, adding weight gradients of trainable layers.
 * @param output_gradient NULL behind the head
 * @param input_gradient  written if not NULL: gradient of forward's input (for the token embedding: of the image
 *                        features)
 */
motet_status mt_network_backward(mt_network *network, int32_t layer_begin, int32_t layer_end,
                                 int32_t first_trainable, const mt_batch *batch, mt_saved *saved,
                                 const void *output_gradient, void *input_gradient, motet_error *error);

/** Weight gradients that a split backward has put off. */
typedef struct mt_deferred mt_deferred;

/** Bytes of memory that mt_network_backward_inputs() takes for them. */
int64_t mt_network_deferred_bytes(const mt_internvl *config, mt_element element, const bool *trainable,
                                  int32_t layer_begin, int32_t layer_end, int32_t first_trainable,
                                  const mt_batch *batch);

/**
 * The first half of a split backward: as mt_network_backward(), but the products that give matrices their gradients
 * are put off. @p memory (aligned to 64 bytes) takes what they need; it and @p saved must stay until
 * mt_network_backward_weights(), which computes them. Together they add the same numbers as mt_network_backward().
 */
motet_status mt_network_backward_inputs(mt_network *network, int32_t layer_begin, int32_t layer_end,
                                        int32_t first_trainable, const mt_batch *batch, mt_saved *saved,
                                        const void *output_gradient, void *input_gradient, void *memory,
                                        motet_error *error, mt_deferred **deferred);
motet_status mt_network_backward_weights(mt_network *network, const mt_batch *batch, const mt_deferred *deferred,
                                         motet_error *error);

enum { MT_NETWORK_MODULES = 3 }; /* vision, projector, language model */

/** The module of a layer. */
int32_t mt_network_module(const mt_internvl *config, int32_t layer);

/** What is a module's own in an optimizer step. */
typedef struct mt_adamw_module {
  double learning_rate;
  int64_t first_step; /* optimizer steps done when its moments began; they are corrected for the steps since */
} mt_adamw_module;

typedef struct mt_adamw {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  const mt_adamw_module *modules; /* [MT_NETWORK_MODULES]; NULL: all have `learning_rate`, from step 0 */
} mt_adamw;

/** One AdamW step over the trainable parameters with `gradient_scale` applied first (clipping). @p step counts
 * from 1. */
motet_status mt_network_adamw(mt_network *network, const mt_adamw *options, int64_t step, double gradient_scale,
                              motet_error *error);

/** Sum of the squares of a trainable parameter's gradient; 0 if it is frozen. Sums over parameters, in their order,
 * make the gradient's norm; count a tied weight once. */
double mt_network_gradient_square_sum(const mt_network *network, int32_t index);

/**
 * From now on gradients are summed exactly: what each microbatch adds to a weight's gradient is cut to multiples of
 * 2^-58 and added without any rounding, so that the sum does not depend on the order, nor on which ranks added
 * what. Costs 16 bytes a trainable parameter. A gradient of one microbatch beyond 2^30 / @p addends makes the sum
 * NaN.
 * @param addends microbatches of a step over all ranks, 2^17 at most
 */
motet_status mt_network_sum_exactly(mt_network *network, int64_t addends, motet_error *error);
bool mt_network_sums_exactly(const mt_network *network);

/** The exact sums of a trainable parameter, [count] each: sums of these over ranks are exact in doubles. */
void mt_network_exact_sums(mt_network *network, int32_t index, double **high, double **low);

/** Rounds the exact sums, once each, to the gradients that norm and optimizer read. */
void mt_network_round_sums(mt_network *network);

/** First and second moments of a trainable parameter, for checkpoints: [count] floats each. */
void mt_network_moments(mt_network *network, int32_t index, float **first, float **second);

#endif

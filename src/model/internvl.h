/** @file
 * The InternVL family from its config.json, in both published forms: the original `internvl_chat`
 * (vision_config, llm_config, downsample_ratio, select_layer, ...) and the `-hf` form (vision_config, text_config,
 * ...). Layers in forward order, module by module:
 *
 *   vision:    embeddings, block 0 .. n-1
 *   projector: one layer (pixel shuffle, LayerNorm, linear, GELU, linear)
 *   llm:       token embedding and merge of image features, block 0 .. m-1, head (final norm, logits, loss)
 */
#ifndef MT_MODEL_INTERNVL_H
#define MT_MODEL_INTERNVL_H

#include "model/model.h"

#include <stddef.h>

typedef enum mt_internvl_kind {
  MT_INTERNVL_VISION_EMBED = 1,
  MT_INTERNVL_VISION_BLOCK,
  MT_INTERNVL_PROJECTOR,
  MT_INTERNVL_TOKEN_EMBED,
  MT_INTERNVL_DECODER_BLOCK,
  MT_INTERNVL_HEAD
} mt_internvl_kind;

typedef struct mt_internvl_vision {
  int32_t layers; /* blocks that run: num_hidden_layers, less those behind vision_select_layer */
  int32_t hidden, intermediate, heads;
  int32_t image_size, patch_size, channels;
  float norm_epsilon;
  bool rms_norm; /* norm_type "rms_norm"; else LayerNorm with bias */
  bool qkv_bias;
  bool qk_norm;
} mt_internvl_vision;

/** What files call a decoder's weights, and how they join them. */
typedef enum mt_internvl_names {
  MT_INTERNVL_NAMES_LLAMA,    /* Llama, Qwen2, Qwen3: q, k and v apart, gate and up apart */
  MT_INTERNVL_NAMES_INTERNLM2 /* wqkv with the heads of a group side by side; w1, w3, w2 */
} mt_internvl_names;

/** How a conversation becomes text: see data/chat.c. */
typedef enum mt_internvl_template {
  MT_INTERNVL_TEMPLATE_INTERNVL2_5,
  MT_INTERNVL_TEMPLATE_HERMES2,
  MT_INTERNVL_TEMPLATE_INTERNLM2
} mt_internvl_template;

typedef struct mt_internvl_decoder {
  mt_internvl_names names;
  int32_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocabulary;
  float norm_epsilon;
  double rope_theta;
  double rope_factor;    /* rope_scaling "dynamic": beyond max_positions the base grows by it; 0: none */
  int32_t max_positions; /* max_position_embeddings; 0 if the config does not say */
  bool attention_bias;   /* Qwen2: on q, k, v; not on o */
  bool qk_norm;          /* Qwen3: RMSNorm over each head of q and k, with one weight for all heads */
  bool tied_embeddings;
} mt_internvl_decoder;

typedef struct mt_internvl {
  mt_internvl_template template;
  bool hf_form; /* the transformers form: names of weights and keys differ, the mathematics do not */
  mt_internvl_vision vision;
  mt_internvl_decoder decoder;
  float downsample_ratio;      /* 0.5: pixel shuffle 2 x 2 */
  int32_t vision_select_layer; /* -1: the last block's output */
  int32_t tokens_per_tile;     /* (image_size / patch_size * downsample_ratio)^2 */
  int32_t image_token;         /* id of the image context token, -1 if the config does not say (tokenizer then) */
  int32_t min_tiles, max_tiles;
  bool use_thumbnail;
} mt_internvl;

enum { MT_INTERNVL_WEIGHTS_MAX = 20, MT_INTERNVL_SLOTS_MAX = 16 };

/* What the kernels take: a slot is one matrix or vector. Several named weights may fill one slot, one after another
 * (q, k and v; gate and up): then the slot is their concatenation along the rows. */
enum { MT_VISION_EMBED_CLASS, MT_VISION_EMBED_POSITION, MT_VISION_EMBED_PATCH, MT_VISION_EMBED_PATCH_BIAS };
enum {
  MT_VISION_BLOCK_NORM1,
  MT_VISION_BLOCK_NORM1_BIAS,
  MT_VISION_BLOCK_QKV,
  MT_VISION_BLOCK_QKV_BIAS,
  MT_VISION_BLOCK_Q_NORM,
  MT_VISION_BLOCK_K_NORM,
  MT_VISION_BLOCK_OUT,
  MT_VISION_BLOCK_OUT_BIAS,
  MT_VISION_BLOCK_SCALE1,
  MT_VISION_BLOCK_NORM2,
  MT_VISION_BLOCK_NORM2_BIAS,
  MT_VISION_BLOCK_UP,
  MT_VISION_BLOCK_UP_BIAS,
  MT_VISION_BLOCK_DOWN,
  MT_VISION_BLOCK_DOWN_BIAS,
  MT_VISION_BLOCK_SCALE2
};
enum {
  MT_PROJECTOR_NORM,
  MT_PROJECTOR_NORM_BIAS,
  MT_PROJECTOR_IN,
  MT_PROJECTOR_IN_BIAS,
  MT_PROJECTOR_OUT,
  MT_PROJECTOR_OUT_BIAS
};
enum { MT_TOKEN_EMBED_WEIGHT };
enum {
  MT_DECODER_BLOCK_NORM1,
  MT_DECODER_BLOCK_QKV,
  MT_DECODER_BLOCK_QKV_BIAS,
  MT_DECODER_BLOCK_Q_NORM,
  MT_DECODER_BLOCK_K_NORM,
  MT_DECODER_BLOCK_OUT,
  MT_DECODER_BLOCK_NORM2,
  MT_DECODER_BLOCK_GATE_UP,
  MT_DECODER_BLOCK_DOWN
};
enum { MT_HEAD_NORM, MT_HEAD_WEIGHT };

/**
 * The order of a matrix's rows in files, where it is not that in memory. In memory the heads of q come first, then
 * those of k, then those of v; in files (InternLM2's wqkv) a group follows another: the `queries` heads of q that
 * share a key, the key, the value. All blocks have `rows` rows. groups 0: files have the order of memory.
 */
typedef struct mt_internvl_grouping {
  int32_t groups, queries;
  int64_t rows;
} mt_internvl_grouping;

/** The block in memory that is block @p block in files. */
static inline int64_t mt_internvl_memory_block(const mt_internvl_grouping *grouping, int64_t block) {
  const int64_t groups = grouping->groups, queries = grouping->queries;
  const int64_t group = block / (queries + 2), place = block % (queries + 2);
  return place < queries ? group * queries + place : groups * (queries + place - queries) + group;
}

/** A weight of a layer as files know it. */
typedef struct mt_internvl_weight {
  char name[96];  /* in the published files of the config's own form */
  char alias[96]; /* the same weight as newer tools write it; empty if there is none */
  int32_t slot;
  int32_t dims;
  int64_t shape[4];
  int64_t count;
  mt_internvl_grouping grouping;
  bool decay; /* weight decay applies: matrices, not biases, norms, scales and positions */
} mt_internvl_weight;

int32_t mt_internvl_layer_count(const mt_internvl *config);
/** Kind of a model layer, and its number among the blocks of its kind (0 for the others). */
mt_internvl_kind mt_internvl_layer_kind(const mt_internvl *config, int32_t layer, int32_t *block);
/** The weights of @p layer in memory order, by slot; returns their count. The head of a model with tied embeddings
 * has its norm alone: its matrix is the token embedding's. */
int32_t mt_internvl_weights(const mt_internvl *config, int32_t layer,
                            mt_internvl_weight weights[MT_INTERNVL_WEIGHTS_MAX]);
/** Side of one pixel shuffle square: 1 / downsample_ratio. */
int32_t mt_internvl_shuffle(const mt_internvl *config);

/** Reads `path` (a config.json or a directory that holds one). Errors name file, line where known, and key. */
motet_status mt_internvl_read(const char *path, motet_error *error, mt_internvl *config);

/** The same from a config's text; @p name stands for the file in errors. */
motet_status mt_internvl_parse(const void *data, size_t bytes, const char *name, motet_error *error,
                               mt_internvl *config);

/** What the first number is in which the models' computations differ ("decoder.rope_theta"); NULL if in none. */
const char *mt_internvl_difference(const mt_internvl *one, const mt_internvl *other);

/** The planning view: modules, layers with names and exact parameter counts. @p trainable: one flag a module
 * (vision, projector, llm). */
motet_status mt_internvl_model(mt_arena *arena, const mt_internvl *config, const bool trainable[3],
                               motet_error *error, mt_model **model);

#endif

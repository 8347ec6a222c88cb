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

typedef enum mt_internvl_kind {
  MT_INTERNVL_VISION_EMBED = 1,
  MT_INTERNVL_VISION_BLOCK,
  MT_INTERNVL_PROJECTOR,
  MT_INTERNVL_TOKEN_EMBED,
  MT_INTERNVL_DECODER_BLOCK,
  MT_INTERNVL_HEAD
} mt_internvl_kind;

typedef struct mt_internvl_vision {
  int32_t layers, hidden, intermediate, heads;
  int32_t image_size, patch_size, channels;
  float norm_epsilon;
  bool rms_norm; /* norm_type "rms_norm"; else LayerNorm with bias */
  bool qkv_bias;
  bool qk_norm;
} mt_internvl_vision;

typedef struct mt_internvl_decoder {
  int32_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocabulary;
  float norm_epsilon;
  double rope_theta;
  bool attention_bias; /* Qwen2: on q, k, v; not on o */
  bool tied_embeddings;
} mt_internvl_decoder;

typedef struct mt_internvl {
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

/** Reads `path` (a config.json or a directory that holds one). Errors name file, line where known, and key. */
motet_status mt_internvl_read(const char *path, motet_error *error, mt_internvl *config);

/** The planning view: modules, layers with names and exact parameter counts. @p trainable: one flag a module
 * (vision, projector, llm). */
motet_status mt_internvl_model(mt_arena *arena, const mt_internvl *config, const bool trainable[3],
                               motet_error *error, mt_model **model);

#endif

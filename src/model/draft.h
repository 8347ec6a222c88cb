/** @file
 * An architecture while a family's functions read it: keys of the config on one side, modules, layers and their
 * designs on the other. The first error stays; readers ask for all they need and are told at the end.
 */
#ifndef MT_MODEL_DRAFT_H
#define MT_MODEL_DRAFT_H

#include "base/array.h"
#include "model/architecture.h"
#include "model/json.h"

/* Beyond these no model exists; a larger number is a slip of the pen, and products of two of them fit 64 bits. */
enum {
  MT_LAYERS_MAX = 4096,
  MT_WIDTH_MAX = 1 << 20,
  MT_HEADS_MAX = 4096,
  MT_VOCABULARY_MAX = 1 << 26,
  MT_EXPERTS_MAX = 1 << 16,
  MT_SIDE_MAX = 1 << 14
};

enum { MT_DRAFT_MODULES = 8, MT_DRAFT_DESIGNS = 256 };

typedef struct mt_draft {
  mt_arena *arena;
  mt_json *json;
  mt_architecture *result;
  MT_ARRAY(mt_layer) layers;
  mt_layer_design designs[MT_DRAFT_DESIGNS];
  mt_module modules[MT_DRAFT_MODULES];
  bool trainable[MT_DRAFT_MODULES];
  mt_module_facts facts[MT_DRAFT_MODULES];
  mt_module_edge edges[MT_DRAFT_MODULES];
  int32_t design_count, module_count, edge_count;
  int32_t block; /* number of the next numbered layer of the last module */
} mt_draft;

/* Values of `prefix.key`, or of `key` where the prefix is empty. Whole numbers lie in [1, maximum]. */
int64_t mt_draft_integer(mt_draft *draft, const char *prefix, const char *key, int64_t maximum);
int64_t mt_draft_integer_or(mt_draft *draft, const char *prefix, const char *key, int64_t maximum,
                            int64_t fallback);
/** From 0. */
int64_t mt_draft_count_or(mt_draft *draft, const char *prefix, const char *key, int64_t maximum, int64_t fallback);
bool mt_draft_flag(mt_draft *draft, const char *prefix, const char *key, bool fallback);
const char *mt_draft_text(mt_draft *draft, const char *prefix, const char *key, const char *fallback);
bool mt_draft_has(mt_draft *draft, const char *prefix, const char *key);
/** The key is there and its value is null, which to most readers is as if it were not. */
bool mt_draft_is_null(mt_draft *draft, const char *prefix, const char *key);
/** A list of whole numbers in [minimum, maximum], at most @p most; absent: none. Returns their count. */
int32_t mt_draft_list(mt_draft *draft, const char *prefix, const char *key, int64_t minimum, int64_t maximum,
                      int32_t most, int64_t *values);
/** A square's side: a whole number, or a pair of equal ones. */
int64_t mt_draft_square(mt_draft *draft, const char *prefix, const char *key, int64_t fallback);
/** Fails at `prefix.patch_size` unless a picture holds a patch. What is left beside whole patches is cut off. */
void mt_draft_holds(mt_draft *draft, const char *prefix, int64_t patch, int64_t image);
/** Fails at `prefix.key` unless @p divisor divides @p whole. */
void mt_draft_divides(mt_draft *draft, const char *prefix, const char *key, int64_t divisor, int64_t whole,
                      const char *what);
motet_status mt_draft_fail(mt_draft *draft, motet_status status, const char *prefix, const char *key,
                           const char *text);

/** Starts a module; returns its facts to fill. */
mt_module_facts *mt_draft_module(mt_draft *draft, const char *name, uint32_t inputs, bool trainable);
/** A new kind of layer, zeroed. Never NULL: after a failure it is a scratch one. */
mt_layer_design *mt_draft_design(mt_draft *draft, const char *name);
/** Appends @p count layers of @p design to the last module. Named "module.suffix", or numbered where @p suffix is
 * NULL, or as the module itself where it is "". */
void mt_draft_layers(mt_draft *draft, const mt_layer_design *design, int64_t count, const char *suffix);
/** Data flow from module @p from to module @p to, by number. */
void mt_draft_edge(mt_draft *draft, int32_t from, int32_t to);

/** A block of a transformer, as far as families share one. */
typedef struct mt_block {
  mt_extent rows, area;
  int64_t hidden, heads, kv_heads, head_width, intermediate;
  int norm_tensors; /* 1: root mean square, 2: LayerNorm with shift */
  bool qkv_bias, out_bias, mlp_bias;
  bool gated;          /* gate, up, down; else up, down */
  int qk_norm_tensors; /* 0: none */
  bool qk_norm_whole;  /* over all heads' values together; else head by head */
  bool layer_scale;
} mt_block;

/** Norm, attention with its projections, and their biases. */
void mt_block_attention(mt_layer_design *design, const mt_block *block);
/** Norm and feed-forward. */
void mt_block_feed_forward(mt_layer_design *design, const mt_block *block);
/** Both, and the residual row as output. */
void mt_block_design(mt_layer_design *design, const mt_block *block);

/** A causal decoder of text: token embedding, blocks, head. */
typedef struct mt_decoder {
  int64_t layers;
  mt_block block;
  int64_t vocabulary;
  bool tied;
  int64_t experts, experts_per_token, expert_width, sparse_step;
  int64_t window, windowed_from; /* tokens that blocks from that one on look back on; 0: all do on everything */
  const char *prefix;
} mt_decoder;

/** Reads the decoder's keys under @p prefix. @p tied: what the top of a nested config says. */
void mt_decoder_read(mt_draft *draft, const char *prefix, const char *kind, mt_decoder *decoder);
/** The module "llm". The first blocks hand on @p carried sets of picture features, one fewer each (deepstack). */
void mt_decoder_append(mt_draft *draft, const mt_decoder *decoder, int64_t carried);
/** Table row and loss: final norm and logits. */
void mt_decoder_head(mt_draft *draft, const mt_decoder *decoder, const char *suffix);

/** Text's part of a measure: rows and causal area of the segments. */
motet_status mt_measure_text(const mt_architecture *architecture, const mt_shape *shape, motet_error *error,
                             double *extents);
/** Text and square tiles of a fixed side (InternVL, Idefics3, LLaVA). */
mt_measure mt_measure_tiles;
/** Text and pictures in patches of their own size (Qwen-VL). */
mt_measure mt_measure_patches;
/** Latents of pictures or clips, with captions. */
mt_measure mt_measure_latents;
/** An encoder's row and a decoder's of the same segments. */
mt_measure mt_measure_pair;

/** The encoder of T5 1.1 and its kin: layers appended to the last module. */
typedef struct mt_t5 {
  int64_t layers, hidden, heads, head_width, intermediate, vocabulary, buckets;
  bool gated;
} mt_t5;
void mt_t5_encoder(mt_draft *draft, const mt_t5 *t5);
extern const mt_t5 mt_t5_xxl_multilingual;

typedef void mt_family_read(mt_draft *draft);
mt_family_read mt_family_text, mt_family_gpt2, mt_family_deepseek, mt_family_qwen2_vl, mt_family_qwen2_5_vl,
    mt_family_qwen3_vl, mt_family_internvl, mt_family_llava, mt_family_idefics3, mt_family_mt5, mt_family_dit,
    mt_family_cogvideox, mt_family_wan, mt_family_open_sora;

#endif

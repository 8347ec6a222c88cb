/** @file
 * Architectures: from a published config.json to modules, layers, exact parameter counts and costs.
 *
 * One row of the table in architecture.c and one file of functions (family_*.c) make an architecture. A layer's
 * kind is its index in `designs`. Reading needs no weights and no network.
 */
#ifndef MT_MODEL_ARCHITECTURE_H
#define MT_MODEL_ARCHITECTURE_H

#include "model/design.h"
#include "model/model.h"

#include <stddef.h>

/** What planning asks of a module beside its layers; 0 where it has none. */
typedef struct mt_module_facts {
  int64_t hidden, heads, kv_heads,
      head_width; /* heads limit tensor and Ulysses parallelism, kv_heads before them */
  int64_t intermediate;
  int64_t experts, experts_per_token, expert_width; /* of its routed layers */
  int64_t vocabulary;
  int64_t unused_parameters; /* in the published weights, but never computed with: blocks behind the chosen one */
  bool auxiliary;            /* helps training only (multi-token prediction); published counts leave it out */
} mt_module_facts;

/** Height and width in pixels; frames 1 for a picture. */
typedef struct mt_picture {
  int32_t frames, height, width;
} mt_picture;

/** The data of one microbatch. */
typedef struct mt_shape {
  const int64_t *segments; /* tokens of each packed segment, features of its pictures included */
  int32_t segment_count;   /* generators: captions, one a picture; 0: the length the model pads to */
  const mt_picture *pictures;
  int32_t picture_count;
} mt_shape;

typedef struct mt_architecture mt_architecture;

/** Rows and areas of a shape. @p extents has MT_EXTENTS entries, zero at the start. */
typedef motet_status mt_measure(const mt_architecture *architecture, const mt_shape *shape, motet_error *error,
                                double *extents);

/** How pictures become patches, features or latents: what the family's measure reads. */
typedef struct mt_picture_rules {
  int64_t patch, merge, frame_patch; /* pixels a side; patches a side of a feature; frames of a patch */
  int64_t window;                    /* patches a side of an attention window, 0: none */
  int64_t side;                      /* pixels of a tile's or a fixed picture's side, 0: any size */
  int64_t extra_tokens;              /* class tokens a tile */
  int64_t extra_features;            /* of these, handed on beside the patches */
  int64_t minimum_tiles, maximum_tiles;
  bool thumbnail;
  int64_t longest;           /* the longer side is scaled to this, in pixels, 0: not */
  int64_t compression;       /* pixels a side of a latent; frames: frame_compression */
  int64_t frame_compression; /* 0: pictures alone */
  int64_t condition_tokens;  /* what captions are padded to */
  int64_t sparse_parts;      /* of a sparse block, 0: none */
  int64_t minimum_pixels, maximum_pixels;
} mt_picture_rules;

struct mt_architecture {
  const char *name; /* "qwen2_5_vl" */
  const char *title;
  mt_model *model;
  mt_module_facts *facts; /* [module_count] */
  mt_layer_design *designs;
  int32_t design_count;
  mt_picture_rules rules;
  bool decodes_text; /* has a row of tokens; else it generates pictures from conditions */
  bool reads_pictures;
  mt_picture usual_picture; /* what the model is made for; frames 0: none */
  int64_t usual_tokens;
  int64_t
      sliding_window; /* tokens that a block of MT_AREA_SLIDING looks back on, itself included; 0: no such block */
  mt_measure *measure;
};

/** Reads @p path, a config.json or a directory that holds one, or two of them with " + " between: the encoders of
 * the first before the decoder of the second. Everything is trainable but what the architecture keeps frozen by
 * nature (a generator's text encoder and autoencoder). Everything lives in @p arena. */
motet_status mt_architecture_read(mt_arena *arena, const char *path, motet_error *error,
                                  mt_architecture **architecture);

/** The same from a config's text; @p name stands for the file in errors. */
motet_status mt_architecture_parse(mt_arena *arena, const void *data, size_t bytes, const char *name,
                                   motet_error *error, mt_architecture **architecture);

/** The encoders of one model before the decoder of another, the last layer before it resized to the decoder's
 * width. MOTET_ERROR_UNSUPPORTED where the first has no encoder of pictures, or the second is no decoder of text
 * alone. */
motet_status mt_architecture_compose(mt_arena *arena, const mt_architecture *encoder,
                                     const mt_architecture *decoder, motet_error *error,
                                     mt_architecture **architecture);

/** The module that reads the text, or, of a generator, the last: the one that the others feed, or hang on. */
int32_t mt_architecture_trunk(const mt_architecture *architecture);

/** Names of the known architectures, comma separated, as error messages list them. */
const char *mt_architecture_known(mt_arena *arena);

/** Counts what a microbatch has of every extent. @p extents: MT_EXTENTS entries. */
motet_status mt_architecture_measure(const mt_architecture *architecture, const mt_shape *shape, motet_error *error,
                                     double extents[MT_EXTENTS]);

/** Costs of one layer for one microbatch on one device, without any parallelism but experts'. */
typedef struct mt_layer_cost {
  double forward_flops, input_flops, weight_flops;
  double recompute_flops;     /* restores what a dropped layer saved: its forward */
  double attention_flops;     /* of the forward: what selective recomputation repeats */
  double worst_forward_flops; /* where routing sends as much as it can to one device's experts */
  int64_t saved_bytes;        /* kept from forward to backward */
  int64_t passed_bytes;       /* the same if the weights are frozen and only a gradient passes */
  int64_t saved_row_bytes;    /* of saved_bytes: whole rows, which tensor parallelism alone does not divide */
  int64_t passed_row_bytes;   /* of passed_bytes */
  int64_t output_bytes;
} mt_layer_cost;

/** @p expert_parallel devices share the routed experts of a layer, each bringing a microbatch of this size; 1:
 * none. */
void mt_architecture_cost(const mt_architecture *architecture, int32_t layer, const double extents[MT_EXTENTS],
                          int32_t expert_parallel, mt_layer_cost *cost);

/** MOTET_ERROR_ARGUMENT where @p expert_parallel devices cannot share the routed experts evenly, or there are none.
 */
motet_status mt_architecture_check_experts(const mt_architecture *architecture, int32_t expert_parallel,
                                           motet_error *error);

/** MOTET_ERROR_ARGUMENT where @p tensor devices cannot divide the maps of @p module evenly, or they and @p ulysses
 * its attention's heads. */
motet_status mt_architecture_check_division(const mt_architecture *architecture, int32_t module, int32_t tensor,
                                            int32_t ulysses, motet_error *error);

/** Rows that routing may send to one of @p expert_parallel devices, to those that it brings: the worst case. */
double mt_architecture_worst_routing(const mt_module_facts *facts, int32_t expert_parallel);

/** Of @p bytes, of which @p row_bytes are whole rows, what one of @p tensor_parallel devices keeps: the rest is
 * divided, and with sequence parallelism everything (arXiv 2205.05198, table 2). */
int64_t mt_architecture_share(int64_t bytes, int64_t row_bytes, int32_t tensor_parallel, bool sequence_parallel);

/** Parameters of a module as published, those not computed with included. */
int64_t mt_architecture_module_parameters(const mt_architecture *architecture, int32_t module);

/** Parameters as published: every module but auxiliary ones. */
int64_t mt_architecture_parameters(const mt_architecture *architecture);

#endif

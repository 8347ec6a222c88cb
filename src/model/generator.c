#include "model/generator.h"

#include <motet/program.h>

void mt_generator_norm(mt_layer_design *design, mt_extent rows, int64_t width, int tensors) {
  mt_design_norm(design, rows, width, 1, tensors);
  mt_design_keep(design, rows, width);
}

void mt_generator_gate(mt_layer_design *design, mt_extent rows, int64_t width) {
  mt_design_keep(design, rows, width);
}

void mt_generator_embedding(mt_layer_design *design, mt_extent rows, int64_t in, int64_t width, int64_t out) {
  mt_design_linear(design, rows, in, width, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_activation(design, rows, width, 1);
  mt_design_linear(design, rows, width, out, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
}

void mt_generator_cross(mt_layer_design *design, const mt_cross *cross) {
  int64_t inner = cross->heads * cross->head_width;
  int bias = cross->bias ? MT_LINEAR_BIAS : 0;
  mt_design_linear(design, MT_ROWS_LATENT, cross->hidden, inner, bias | MT_LINEAR_SAVES);
  mt_design_linear(design, MT_ROWS_CONDITION, cross->condition, inner, bias);
  mt_design_linear(design, MT_ROWS_CONDITION, cross->condition, inner, bias);
  if (cross->qk_norm) {
    mt_design_head_norm(design, MT_ROWS_LATENT, inner, 1, 1);
    mt_design_head_norm(design, MT_ROWS_CONDITION, inner, 1, 1);
  }
  mt_attention attention = {.queries = MT_ROWS_LATENT,
                            .keys = MT_ROWS_CONDITION,
                            .area = MT_AREA_CROSS,
                            .heads = cross->heads,
                            .kv_heads = cross->heads,
                            .key_width = cross->head_width,
                            .value_width = cross->head_width};
  mt_design_attention(design, &attention);
  mt_design_linear(design, MT_ROWS_LATENT, inner, cross->hidden, MT_LINEAR_BIAS | MT_LINEAR_SPLIT);
  mt_design_residual(design, MT_ROWS_LATENT, cross->hidden);
}

void mt_generator_module(mt_draft *draft, const mt_block *block) {
  mt_module_facts *facts = mt_draft_module(draft, "dit", MOTET_INPUT_PIXELS, true);
  *facts = (mt_module_facts){.hidden = block->hidden,
                             .heads = block->heads,
                             .kv_heads = block->kv_heads,
                             .head_width = block->head_width,
                             .intermediate = block->intermediate};
}

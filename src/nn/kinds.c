#include "nn/layer.h"

const mt_layer_kind *mt_layer_kind_of(mt_internvl_kind kind) {
  static const mt_layer_kind *const kinds[] = {
      [MT_INTERNVL_VISION_EMBED] = &mt_layer_vision_embed,   [MT_INTERNVL_VISION_BLOCK] = &mt_layer_vision_block,
      [MT_INTERNVL_PROJECTOR] = &mt_layer_projector,         [MT_INTERNVL_TOKEN_EMBED] = &mt_layer_token_embed,
      [MT_INTERNVL_DECODER_BLOCK] = &mt_layer_decoder_block, [MT_INTERNVL_HEAD] = &mt_layer_head,
  };
  return kinds[kind];
}

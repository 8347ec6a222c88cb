#include "data/prompt.h"

#include "data/chat.h"
#include "data/image.h"

#include <stdlib.h>
#include <string.h>

/* The user's turn as the chat template takes it. */
static motet_status make_conversation(const mt_prompt_options *options, mt_text *text, motet_error *error,
                                      mt_conversation *conversation) {
  mt_turn own = {MT_ROLE_USER, options->text, strlen(options->text)};
  bool good = MT_ARRAY_PUSH(&conversation->turns, own);
  for (int32_t i = 0; i < options->image_count && good; i++)
    good = MT_ARRAY_PUSH(&conversation->images, options->images[i]);
  if (!good) return mt_error_memory(error, sizeof own, "a prompt");
  size_t markers = mt_conversation_markers(conversation), images = conversation->images.count;
  if (markers == images) return MOTET_OK;
  if (markers > 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "the prompt has %zu " MT_IMAGE_MARKER ", but there are %zu pictures: it needs as many, or "
                        "none to have them in front",
                        markers, images);
  for (size_t i = 0; i < images; i++) mt_text_append(text, MT_IMAGE_MARKER "\n");
  mt_text_append(text, "%s", options->text);
  if (text->failed) return mt_error_memory(error, own.bytes, "a prompt");
  conversation->turns.data[0] = (mt_turn){MT_ROLE_USER, text->data, text->length};
  return MOTET_OK;
}

/* Decodes the pictures and cuts them, one behind the other. */
static motet_status read_pictures(const mt_internvl *config, const mt_prompt_options *options, motet_error *error,
                                  int32_t *tiles, mt_prompt *prompt) {
  const mt_internvl shared = mt_tiling_share(config, (size_t)options->image_count);
  const size_t side = (size_t)config->vision.image_size, tile_floats = 3 * side * side;
  motet_status status = MOTET_OK;
  for (int32_t i = 0; i < options->image_count && status == MOTET_OK; i++) {
    mt_image image;
    status = mt_image_read(options->images[i], error, &image);
    if (status != MOTET_OK) return status;
    const mt_tiling tiling = mt_tiling_choose(&shared, image.width, image.height);
    size_t floats = (size_t)(prompt->tiles + tiling.tiles) * tile_floats;
    float *pixels = realloc(prompt->pixels, floats * sizeof *pixels);
    if (pixels == NULL) {
      status = mt_error_memory(error, floats * sizeof *pixels, options->images[i]);
    } else {
      prompt->pixels = pixels;
      status = mt_image_tiles(config, &image, &tiling, error, pixels + (size_t)prompt->tiles * tile_floats);
    }
    tiles[i] = tiling.tiles;
    prompt->tiles += tiling.tiles;
    mt_image_free(&image);
  }
  return status;
}

motet_status mt_prompt_make(const mt_tokenizer *tokenizer, const mt_internvl *config,
                            const mt_prompt_options *options, motet_error *error, mt_prompt *prompt) {
  *prompt = (mt_prompt){0};
  mt_chat chat;
  mt_conversation conversation = {0};
  mt_text text = {0};
  int32_t *tiles = calloc((size_t)options->image_count + 1, sizeof *tiles);
  motet_status status = tiles == NULL ? mt_error_memory(error, sizeof *tiles, "a prompt")
                                      : mt_chat_create(tokenizer, config, error, &chat);
  if (status == MOTET_OK) status = make_conversation(options, &text, error, &conversation);
  if (status == MOTET_OK) status = read_pictures(config, options, error, tiles, prompt);
  if (status == MOTET_OK)
    status = mt_chat_encode(&chat, &conversation, options->system, tiles, error, &prompt->tokens, NULL);
  if (status == MOTET_OK) status = mt_chat_open_answer(&chat, error, &prompt->tokens);
  free(tiles);
  mt_text_free(&text);
  mt_conversation_free(&conversation);
  return status;
}

void mt_prompt_free(mt_prompt *prompt) {
  free(prompt->tokens.data);
  free(prompt->pixels);
  *prompt = (mt_prompt){0};
}

#include "data/prompt.h"

#include "data/chat.h"
#include "data/medium.h"

#include <stdlib.h>
#include <string.h>

/* The user's turn with its pictures and videos, as the chat template takes it. */
static motet_status make_conversation(const mt_prompt_options *options, motet_error *error,
                                      mt_conversation *conversation) {
  const mt_turn turn = {.role = MT_ROLE_USER, .text = options->text, .bytes = strlen(options->text)};
  bool good = MT_ARRAY_PUSH(&conversation->turns, turn);
  for (int32_t i = 0; i < options->image_count && good; i++)
    good = MT_ARRAY_PUSH(&conversation->images, options->images[i]);
  for (int32_t i = 0; i < options->video_count && good; i++)
    good = MT_ARRAY_PUSH(&conversation->videos, options->videos[i]);
  if (!good) return mt_error_memory(error, sizeof turn, "a prompt");
  motet_status status = mt_conversation_place(conversation, error);
  return status == MOTET_OK ? status : mt_error_context(error, status, "the prompt");
}

/* Decodes pictures and videos, one behind the other. */
static motet_status read_media(const mt_internvl *config, const mt_conversation *conversation, int32_t video_frames,
                               motet_error *error, int32_t *tiles, mt_prompt *prompt) {
  const mt_internvl shared = mt_tiling_share(config, conversation->images.count);
  const size_t side = (size_t)config->vision.image_size, tile_floats = 3 * side * side;
  for (size_t i = 0; i < conversation->media.count; i++) {
    const char *path = conversation->media.data[i].path;
    mt_medium_form form;
    motet_status status =
        mt_medium_probe(&shared, path, conversation->media.data[i].video, video_frames, error, &form);
    if (status != MOTET_OK) return status;
    size_t floats = (size_t)(prompt->tiles + form.tiling.tiles) * tile_floats;
    float *pixels = realloc(prompt->pixels, floats * sizeof *pixels);
    if (pixels == NULL) return mt_error_memory(error, floats * sizeof *pixels, path);
    prompt->pixels = pixels;
    status = mt_medium_load(config, path, &form, error, pixels + (size_t)prompt->tiles * tile_floats);
    if (status != MOTET_OK) return status;
    tiles[i] = form.tiling.tiles;
    prompt->tiles += form.tiling.tiles;
  }
  return MOTET_OK;
}

motet_status mt_prompt_make(const mt_tokenizer *tokenizer, const mt_internvl *config,
                            const mt_prompt_options *options, motet_error *error, mt_prompt *prompt) {
  *prompt = (mt_prompt){0};
  mt_chat chat;
  mt_conversation conversation = {0};
  int32_t *tiles = calloc((size_t)options->image_count + (size_t)options->video_count + 1, sizeof *tiles);
  motet_status status = tiles == NULL ? mt_error_memory(error, sizeof *tiles, "a prompt")
                                      : mt_chat_create(tokenizer, config, error, &chat);
  if (status == MOTET_OK) status = make_conversation(options, error, &conversation);
  if (status == MOTET_OK) status = read_media(config, &conversation, options->video_frames, error, tiles, prompt);
  if (status == MOTET_OK)
    status = mt_chat_encode(&chat, &conversation, options->system, tiles, error, &prompt->tokens, NULL);
  if (status == MOTET_OK) status = mt_chat_open_answer(&chat, error, &prompt->tokens);
  free(tiles);
  mt_conversation_free(&conversation);
  return status;
}

void mt_prompt_free(mt_prompt *prompt) {
  free(prompt->tokens.data);
  free(prompt->pixels);
  *prompt = (mt_prompt){0};
}

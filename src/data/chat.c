#include "data/chat.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const ROLE_NAMES[] = {
    [MT_ROLE_SYSTEM] = "system", [MT_ROLE_USER] = "user", [MT_ROLE_ASSISTANT] = "assistant"};

/* What templates differ in. */
static const struct {
  const char *first; /* a token in front, if the tokenizer has it */
  bool end_newline;
} TEMPLATES[] = {[MT_INTERNVL_TEMPLATE_INTERNVL2_5] = {NULL, true},
                 [MT_INTERNVL_TEMPLATE_HERMES2] = {NULL, false},
                 [MT_INTERNVL_TEMPLATE_INTERNLM2] = {"<s>", false}};

static motet_status no_memory(motet_error *error) { return mt_error_memory(error, 0, "a conversation's tokens"); }

static motet_status encode(const mt_chat *chat, const char *text, size_t bytes, motet_error *error,
                           mt_tokens *tokens) {
  return bytes == 0 ? MOTET_OK : mt_tokenizer_encode(chat->tokenizer, text, bytes, error, tokens);
}

motet_status mt_chat_open_answer(const mt_chat *chat, motet_error *error, mt_tokens *tokens) {
  static const char opening[] = "assistant\n";
  if (!MT_ARRAY_PUSH(tokens, chat->turn_begin)) return no_memory(error);
  return encode(chat, opening, strlen(opening), error, tokens);
}

motet_status mt_chat_create(const mt_tokenizer *tokenizer, const mt_internvl *config, motet_error *error,
                            mt_chat *chat) {
  *chat = (mt_chat){.tokenizer = tokenizer,
                    .turn_begin = mt_tokenizer_find(tokenizer, "<|im_start|>"),
                    .turn_end = mt_tokenizer_find(tokenizer, "<|im_end|>"),
                    .image_begin = mt_tokenizer_find(tokenizer, "<img>"),
                    .image_end = mt_tokenizer_find(tokenizer, "</img>"),
                    .image_context = mt_tokenizer_find(tokenizer, "<IMG_CONTEXT>"),
                    .first = -1,
                    .end_newline = TEMPLATES[config->template].end_newline,
                    .tokens_per_tile = config->tokens_per_tile};
  if (TEMPLATES[config->template].first != NULL)
    chat->first = mt_tokenizer_find(tokenizer, TEMPLATES[config->template].first);
  if (chat->turn_begin < 0 || chat->turn_end < 0)
    return mt_error_set(error, MOTET_ERROR_UNSUPPORTED, "the tokenizer has no %s, which the chat template needs",
                        chat->turn_begin < 0 ? "<|im_start|>" : "<|im_end|>");
  if (mt_tokenizer_vocabulary(tokenizer) > config->decoder.vocabulary)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "the tokenizer has %" PRId32 " tokens, the model's vocabulary only %" PRId32,
                        mt_tokenizer_vocabulary(tokenizer), config->decoder.vocabulary);
  if (config->image_token >= 0 && chat->image_context >= 0 && config->image_token != chat->image_context)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "<IMG_CONTEXT> is token %" PRId32 " of the tokenizer, but token %" PRId32 " of the model",
                        chat->image_context, config->image_token);
  mt_tokens opening = {0};
  motet_status status = mt_chat_open_answer(chat, error, &opening);
  chat->opening_tokens = (int32_t)opening.count;
  free(opening.data);
  return status;
}

static motet_status push_image(const mt_chat *chat, int32_t tiles, motet_error *error, mt_tokens *tokens) {
  if (chat->image_begin < 0 || chat->image_end < 0 || chat->image_context < 0)
    return mt_error_set(error, MOTET_ERROR_UNSUPPORTED,
                        "the tokenizer has no <img>, </img> or <IMG_CONTEXT>, which pictures need");
  int64_t count = (int64_t)tiles * chat->tokens_per_tile;
  if (!mt_array_reserve((void **)&tokens->data, &tokens->capacity, tokens->count + (size_t)count + 2,
                        sizeof *tokens->data))
    return no_memory(error);
  tokens->data[tokens->count++] = chat->image_begin;
  for (int64_t i = 0; i < count; i++) tokens->data[tokens->count++] = chat->image_context;
  tokens->data[tokens->count++] = chat->image_end;
  return MOTET_OK;
}

/* Encodes the text that has gathered in front of a picture, and empties it. The pictures' tokens part the text like
 * the added tokens they are, so that what lies between can be encoded by itself. */
static motet_status flush(const mt_chat *chat, mt_text *gathered, motet_error *error, mt_tokens *tokens) {
  motet_status status =
      gathered->failed ? no_memory(error) : encode(chat, gathered->data, gathered->length, error, tokens);
  gathered->length = 0;
  return status;
}

/* A video is its frames, each a picture of one tile with its number in front, as InternVL's processor writes them.
 */
static motet_status push_video(const mt_chat *chat, int32_t frames, mt_text *gathered, motet_error *error,
                               mt_tokens *tokens) {
  motet_status status = MOTET_OK;
  for (int32_t f = 0; f < frames && status == MOTET_OK; f++) {
    mt_text_append(gathered, "%sFrame%" PRId32 ": ", f > 0 ? "\n" : "", f + 1);
    status = flush(chat, gathered, error, tokens);
    if (status == MOTET_OK) status = push_image(chat, 1, error, tokens);
  }
  return status;
}

/* The text between the turn's marks, behind what has gathered. */
static motet_status push_text(const mt_chat *chat, const mt_turn *turn, mt_text *gathered, const int32_t **tiles,
                              motet_error *error, mt_tokens *tokens) {
  const char *text = turn->text, *end = text + turn->bytes, *marker;
  motet_status status = MOTET_OK;
  bool video;
  while (status == MOTET_OK && turn->role == MT_ROLE_USER &&
         (marker = mt_marker_find(text, (size_t)(end - text), &video)) != NULL) {
    mt_text_bytes(gathered, text, (size_t)(marker - text));
    if (video) {
      status = push_video(chat, *(*tiles)++, gathered, error, tokens);
    } else {
      status = flush(chat, gathered, error, tokens);
      if (status == MOTET_OK) status = push_image(chat, *(*tiles)++, error, tokens);
    }
    text = marker + MT_MARKER_BYTES;
  }
  mt_text_bytes(gathered, text, (size_t)(end - text));
  return status == MOTET_OK ? flush(chat, gathered, error, tokens) : status;
}

/* Marks the tokens from `begin` on: all but the opening and what stands behind the end, if the turn is the
 * assistant's. */
static bool push_marks(const mt_chat *chat, const mt_turn *turn, size_t begin, size_t learnt_end, size_t end,
                       mt_marks *targets) {
  for (size_t i = begin; i < end; i++) {
    bool target = turn->role == MT_ROLE_ASSISTANT && !turn->unlearnt && i >= begin + (size_t)chat->opening_tokens &&
                  i < learnt_end;
    if (!MT_ARRAY_PUSH(targets, target)) return false;
  }
  return true;
}

static motet_status push_turn(const mt_chat *chat, const mt_turn *turn, const int32_t **tiles, motet_error *error,
                              mt_tokens *tokens, mt_marks *targets) {
  size_t begin = tokens->count;
  mt_text text = {0};
  mt_text_append(&text, "%s\n", ROLE_NAMES[turn->role]);
  motet_status status = !MT_ARRAY_PUSH(tokens, chat->turn_begin) ? no_memory(error) : MOTET_OK;
  if (status == MOTET_OK) status = push_text(chat, turn, &text, tiles, error, tokens);
  if (status == MOTET_OK && !MT_ARRAY_PUSH(tokens, chat->turn_end)) status = no_memory(error);
  size_t learnt_end = tokens->count;
  if (status == MOTET_OK && chat->end_newline) status = encode(chat, "\n", 1, error, tokens);
  if (status == MOTET_OK && targets != NULL && !push_marks(chat, turn, begin, learnt_end, tokens->count, targets))
    status = no_memory(error);
  mt_text_free(&text);
  return status;
}

/* A text that spells <IMG_CONTEXT> out would ask for features that no picture gives. */
static motet_status check_images(const mt_chat *chat, int64_t wanted, const mt_tokens *tokens, size_t begin,
                                 motet_error *error) {
  int64_t found = 0;
  for (size_t i = begin; i < tokens->count; i++) found += tokens->data[i] == chat->image_context;
  if (chat->image_context < 0 || found == wanted) return MOTET_OK;
  return mt_error_set(error, MOTET_ERROR_PARSE,
                      "the text spells out <IMG_CONTEXT>; " MT_IMAGE_MARKER " is the word for a picture");
}

motet_status mt_chat_encode(const mt_chat *chat, const mt_conversation *conversation, const char *system,
                            const int32_t *tiles, motet_error *error, mt_tokens *tokens, mt_marks *targets) {
  size_t begin = tokens->count;
  int64_t image_tokens = 0;
  for (size_t i = 0; i < conversation->media.count; i++) image_tokens += (int64_t)tiles[i] * chat->tokens_per_tile;
  if (image_tokens > INT32_MAX / 2)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%" PRId64 " image tokens in one sample", image_tokens);
  motet_status status = MOTET_OK;
  const mt_turn *turns = conversation->turns.data;
  if (chat->first >= 0 &&
      (!MT_ARRAY_PUSH(tokens, chat->first) || (targets != NULL && !MT_ARRAY_PUSH(targets, false))))
    status = no_memory(error);
  if (status == MOTET_OK && system != NULL && (conversation->turns.count == 0 || turns[0].role != MT_ROLE_SYSTEM)) {
    const mt_turn own = {.role = MT_ROLE_SYSTEM, .text = system, .bytes = strlen(system)};
    status = push_turn(chat, &own, &tiles, error, tokens, targets);
  }
  for (size_t i = 0; i < conversation->turns.count && status == MOTET_OK; i++)
    status = push_turn(chat, &turns[i], &tiles, error, tokens, targets);
  return status == MOTET_OK ? check_images(chat, image_tokens, tokens, begin, error) : status;
}

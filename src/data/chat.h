/** @file
 * The chat templates of the InternVL family: conversations to tokens. That of InternVL 2.5 and 3, `internvl2_5`, is
 * the chatml of Qwen2:
 *
 *     <|im_start|>system\n...<|im_end|>\n
 *     <|im_start|>user\n<img><IMG_CONTEXT>...</img>\nWhat is this?<|im_end|>\n
 *     <|im_start|>assistant\nA cat.<|im_end|>\n
 *
 * Those of InternVL 2 have no newline behind <|im_end|>: `Hermes-2`, and `internlm2-chat`, where <s> stands in
 * front.
 */
#ifndef MT_DATA_CHAT_H
#define MT_DATA_CHAT_H

#include "data/conversation.h"
#include "data/tokenizer.h"
#include "model/internvl.h"

#include <stdbool.h>
#include <stdint.h>

/** The template's tokens in a tokenizer. Image tokens are -1 where it has none: good for text. */
typedef struct mt_chat {
  const mt_tokenizer *tokenizer;
  int32_t turn_begin, turn_end;
  int32_t image_begin, image_end, image_context;
  int32_t first;    /* in front of everything; -1: nothing */
  bool end_newline; /* behind <|im_end|> */
  int32_t tokens_per_tile;
  int32_t opening_tokens; /* of "<|im_start|>assistant\n" */
} mt_chat;

typedef MT_ARRAY(bool) mt_marks;

/** Finds the tokens, and checks that the tokenizer's ids fit the model's vocabulary. */
motet_status mt_chat_create(const mt_tokenizer *tokenizer, const mt_internvl *config, motet_error *error,
                            mt_chat *chat);

/**
 * Appends the tokens of @p conversation, and to @p targets (may be NULL) a mark for each: whether it is learnt.
 * These are the assistant's words with their <|im_end|>, not the opening in front nor a newline behind it, as
 * InternVL's training code has it. Turns are encoded one by one.
 * @param system NULL, or the text of a system turn for conversations without one
 * @param tiles  [media] tiles of each picture, frames of each video (one tile each)
 */
motet_status mt_chat_encode(const mt_chat *chat, const mt_conversation *conversation, const char *system,
                            const int32_t *tiles, motet_error *error, mt_tokens *tokens, mt_marks *targets);

/** Appends the opening of the assistant's turn. */
motet_status mt_chat_open_answer(const mt_chat *chat, motet_error *error, mt_tokens *tokens);

#endif

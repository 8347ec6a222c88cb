/** @file
 * Byte-level BPE as HuggingFace's `tokenizer.json` describes it (GPT-2, Qwen2, Llama 3 and kin).
 *
 * Supported: model BPE (merges as texts or pairs, `ignore_merges`); normalizer NFC, NFD, NFKC, NFKD, sequences of
 * them, or none; pre-tokenizer ByteLevel, or Split (behaviour Isolated, a regular expression or a text) followed by
 * ByteLevel; added tokens with their flags. Whatever else a file asks for is refused with its key. The
 * post-processor is not applied: encoding gives what HuggingFace gives with add_special_tokens = False.
 */
#ifndef MT_DATA_TOKENIZER_H
#define MT_DATA_TOKENIZER_H

#include "base/array.h"
#include "base/error.h"
#include "base/text.h"

#include <stdint.h>

typedef struct mt_tokenizer mt_tokenizer;

typedef MT_ARRAY(int32_t) mt_tokens;

/** Reads @p path, a `tokenizer.json` or a directory that holds one. Errors name file, line or key. The tokenizer is
 * read-only afterwards: threads may share it. */
motet_status mt_tokenizer_read(const char *path, motet_error *error, mt_tokenizer **tokenizer);

/** As mt_tokenizer_read(), from memory; @p name stands for the file in errors. */
motet_status mt_tokenizer_parse(const char *json, size_t bytes, const char *name, motet_error *error,
                                mt_tokenizer **tokenizer);

void mt_tokenizer_destroy(mt_tokenizer *tokenizer);

/** One more than the largest id. */
int32_t mt_tokenizer_vocabulary(const mt_tokenizer *tokenizer);

/** The id of the token with the content @p text ("<|im_end|>"), or -1. */
int32_t mt_tokenizer_find(const mt_tokenizer *tokenizer, const char *text);

/**
 * Appends the ids of @p text (@p bytes of UTF-8, zero bytes allowed) to @p tokens, whose memory the caller frees.
 * Added tokens are recognised in the text. Time O(n log n). Text that is not UTF-8 is refused with the place of the
 * first wrong byte, and nothing is appended.
 */
motet_status mt_tokenizer_encode(const mt_tokenizer *tokenizer, const char *text, size_t bytes, motet_error *error,
                                 mt_tokens *tokens);

/** Appends the text of @p ids to @p text. Bytes that do not form UTF-8 (half a character) become U+FFFD.
 * @p skip_special leaves special tokens out. An id that does not exist is an error. */
motet_status mt_tokenizer_decode(const mt_tokenizer *tokenizer, const int32_t *ids, size_t count, bool skip_special,
                                 motet_error *error, mt_text *text);

#endif

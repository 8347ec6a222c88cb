/* A tokenizer file and a text from arbitrary bytes: the first zero byte parts them. Must neither crash nor leak,
 * and what was encoded must decode. */
#include "data/tokenizer.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const KNOWN =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"aba\":3,\"\xc4\xa0\":4},"
    "\"merges\":[\"a b\",\"ab a\"]},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    "\"added_tokens\":[{\"id\":5,\"content\":\"<x>\",\"lstrip\":true,\"special\":true}]}";

static void encode_with(const char *json, size_t json_bytes, const char *text, size_t bytes) {
  motet_error error;
  mt_tokenizer *tokenizer;
  if (mt_tokenizer_parse(json, json_bytes, "fuzz", &error, &tokenizer) != MOTET_OK) return;
  mt_tokens tokens = {0};
  mt_text decoded = {0};
  if (mt_tokenizer_encode(tokenizer, text, bytes, &error, &tokens) == MOTET_OK &&
      mt_tokenizer_decode(tokenizer, tokens.data, tokens.count, false, &error, &decoded) != MOTET_OK)
    abort();
  mt_text_free(&decoded);
  free(tokens.data);
  mt_tokenizer_destroy(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *text = (const char *)data;
  const char *end = size == 0 ? NULL : memchr(text, '\0', size);
  size_t json_bytes = end == NULL ? size : (size_t)(end - text);
  const char *rest = end == NULL ? text : end + 1;
  encode_with(text, json_bytes, rest, size - (size_t)(rest - text));
  encode_with(KNOWN, strlen(KNOWN), text, size);
  return 0;
}

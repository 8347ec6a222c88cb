/* Questions to a model from arbitrary bytes: the text, and how many pictures it speaks of. Image tokens are as many
 * as the tiles ask for, whatever the text spells out. */
#include "data/prompt.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tokenizer_json[] =
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<|im_start|>\",\"special\":true},{\"id\":4,\"content\":\"<|im_end|>"
    "\"},"
    "{\"id\":5,\"content\":\"<img>\"},{\"id\":6,\"content\":\"</img>\"},{\"id\":7,\"content\":\"<IMG_CONTEXT>\"}],"
    "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,\"vocab\":{\"?\":0,\"a\":1,\"aa\":2},"
    "\"merges\":[\"a a\"]}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const mt_internvl config = {.vision = {.image_size = 2},
                                     .decoder = {.vocabulary = 8},
                                     .tokens_per_tile = 1,
                                     .image_token = -1,
                                     .min_tiles = 1,
                                     .max_tiles = 2};
  motet_error error;
  mt_tokenizer *tokenizer;
  if (mt_tokenizer_parse(tokenizer_json, sizeof tokenizer_json - 1, "t.json", &error, &tokenizer) != MOTET_OK)
    abort();
  if (size > 0) {
    char *text = malloc(size);
    if (text == NULL) abort();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    const mt_prompt_options options = {.text = text, .system = data[0] & 4 ? text : NULL};
    mt_prompt prompt;
    if (mt_prompt_make(tokenizer, &config, &options, &error, &prompt) == MOTET_OK) {
      if (prompt.tiles != 0 || prompt.pixels != NULL || prompt.tokens.count < 4) abort();
      for (size_t t = 0; t < prompt.tokens.count; t++)
        if (prompt.tokens.data[t] == 7 || prompt.tokens.data[t] < 0 || prompt.tokens.data[t] > 7) abort();
    }
    mt_prompt_free(&prompt);
    free(text);
  }
  mt_tokenizer_destroy(tokenizer);
  return 0;
}

/* What the tests of data sets share: a model's numbers, its tokenizer, opening a file that is good. */
#ifndef MOTET_TESTS_RUNTIME_DATASET_CASE_H
#define MOTET_TESTS_RUNTIME_DATASET_CASE_H

#include "base/text.h"
#include "data/dataset.h"
#include "data/image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PICTURES MOTET_TEST_DATA "/image/pictures"

static const mt_internvl CONFIG = {
    .vision = {.image_size = 14},
    .decoder = {.vocabulary = 1000},
    .tokens_per_tile = 4,
    .image_token = -1,
    .min_tiles = 1,
    .max_tiles = 6,
    .use_thumbnail = true,
};
enum { TILE_FLOATS = 3 * 14 * 14 };

static mt_tokenizer *TOKENIZER;

static int load_tokenizer(void **state) {
  (void)state;
  motet_error error;
  return mt_tokenizer_read(MOTET_TEST_DATA "/tokenizer/qwen2.json", &error, &TOKENIZER) == MOTET_OK ? 0 : -1;
}

static int drop_tokenizer(void **state) {
  (void)state;
  mt_tokenizer_destroy(TOKENIZER);
  return 0;
}

static mt_dataset *open_with(const mt_tokenizer *tokenizer, const mt_internvl *config, const char *path,
                             const char *system) {
  const mt_dataset_options options = {.images_root = PICTURES, .system_prompt = system};
  motet_error error;
  mt_dataset *dataset;
  if (mt_dataset_open(path, tokenizer, config, &options, &error, &dataset) != MOTET_OK) fail_msg("%s", error.text);
  return dataset;
}

static mt_dataset *open_good(const char *path, const char *system) {
  return open_with(TOKENIZER, &CONFIG, path, system);
}

#endif

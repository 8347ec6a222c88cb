/* A Megatron-LM layout from arbitrary bytes. What is accepted adds up, and written out symbol by symbol it is the
 * same layout. */
#include "algebra/megatron_layout.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Kinds stand in forward order, so that counts and split give every stage's letters back. */
static void write_out(const mt_megatron_layout *layout, mt_text *text) {
  int32_t kind = 0, left = layout->layers[0];
  for (int32_t s = 0; s < layout->stage_count; s++) {
    if (s > 0) mt_text_append(text, "|");
    for (int32_t l = 0; l < layout->split[s]; l++) {
      while (left == 0) left = layout->layers[++kind];
      mt_text_append(text, "%s", mt_megatron_letters[kind]);
      left--;
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  char *text = malloc(size + 1);
  mt_arena *arena = mt_arena_create();
  if (text == NULL || arena == NULL) abort();
  memcpy(text, data, size);
  text[size] = '\0';
  mt_megatron_layout *layout = NULL, *again = NULL;
  if (mt_megatron_layout_parse(arena, text, &error, &layout) != MOTET_OK) {
    if (error.text[0] == '\0') abort();
  } else {
    int64_t layers = 0, stages = 0;
    for (int32_t kind = 0; kind < MT_MEGATRON_KINDS; kind++) layers += layout->layers[kind];
    for (int32_t s = 0; s < layout->stage_count; s++) stages += layout->split[s];
    if (layers != stages || layout->layers[MT_MEGATRON_EMBEDDING] != 1 || layout->layers[MT_MEGATRON_LOSS] != 1)
      abort();
    mt_text written = {0};
    write_out(layout, &written);
    if (mt_megatron_layout_parse(arena, written.data, &error, &again) != MOTET_OK) abort();
    if (again->stage_count != layout->stage_count ||
        memcmp(again->split, layout->split, (size_t)layout->stage_count * sizeof *layout->split) != 0 ||
        memcmp(again->layers, layout->layers, sizeof layout->layers) != 0)
      abort();
    int32_t chunks;
    for (int32_t ranks = 1; ranks <= 4; ranks++) (void)mt_megatron_layout_judge(layout, ranks, &error, &chunks);
    mt_text_free(&written);
  }
  mt_arena_destroy(arena);
  free(text);
  return 0;
}

/* A trace and a cost-like text from arbitrary bytes: what is accepted must be within its limits and can be planned.
 */
#include "motet/pack.h"
#include "workload/trace.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PLANNED_MAX = 200 };

static void plan(const mt_trace *trace) {
  motet_pack_sequence sequences[PLANNED_MAX];
  int32_t count = trace->count < PLANNED_MAX ? trace->count : PLANNED_MAX;
  for (int32_t i = 0; i < count; i++)
    sequences[i] = (motet_pack_sequence){trace->items[i].tokens, trace->items[i].area};
  motet_pack_options options = {
      .ranks = 16,
      .memory_tokens = 8192,
      .batch = MOTET_PACK_AUTO,
      .deadline_ms = 0.1,
      .cost = {.attention_seconds_per_area = 1e-8, .linear_seconds_per_token = 2e-4, .fixed_seconds = 0.5}};
  motet_packer *packer;
  const motet_pack_plan *made;
  if (motet_packer_create(&options, NULL, &packer) != MOTET_OK) abort();
  motet_status status = motet_packer_plan(packer, sequences, count, NULL, &made);
  if (status == MOTET_OK && (made->deferred_count > 0 || !(made->lower_bound <= made->value))) abort();
  if (status != MOTET_OK && status != MOTET_ERROR_ILLEGAL) abort();
  motet_packer_destroy(packer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  mt_trace trace;
  motet_error_clear(&error);
  if (mt_trace_parse((const char *)data, size, "fuzz", &error, &trace) != MOTET_OK) {
    if (error.text[0] == '\0' || error.line < 1) abort();
    return 0;
  }
  for (int32_t i = 0; i < trace.count; i++) {
    const mt_trace_item *item = &trace.items[i];
    if (item->tokens < 1 || !(item->area >= 0) || item->id[0] == '\0' || item->line < 1) abort();
  }
  plan(&trace);
  mt_trace_destroy(&trace);
  return 0;
}

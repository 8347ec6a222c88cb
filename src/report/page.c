#include "report/page.h"
#include "report/web_files.h"

#include <string.h>

/* Text inside of an element. */
static void put_escaped(mt_text *out, const char *text) {
  for (; *text != '\0'; text++) {
    if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
      mt_text_append(out, "&#%d;", *text);
    else
      mt_text_bytes(out, text, 1);
  }
}

static motet_status put_part(const mt_page *page, const char *name, motet_error *error, mt_text *out) {
  if (strcmp(name, "title") == 0) {
    put_escaped(out, page->title != NULL ? page->title : "Motet");
    return MOTET_OK;
  }
  if (strcmp(name, "style") == 0) {
    mt_text_bytes(out, (const char *)mt_web_style, mt_web_style_bytes);
    return MOTET_OK;
  }
  if (strcmp(name, "script") == 0) {
    mt_text_bytes(out, (const char *)mt_web_script, mt_web_script_bytes);
    return MOTET_OK;
  }
  if (strcmp(name, "sources") == 0) {
    mt_text_append(out, page->live != NULL ? " 'self' file:" : ""); /* a page of a file has no origin of its own */
    return MOTET_OK;
  }
  return mt_report_page_data(page, error, out);
}

/* The frame holds its parts' places as {{title}}, {{sources}} (of scripts beside its own), {{style}}, {{data}} and
 * {{script}}. */
motet_status mt_report_page(const mt_page *page, motet_error *error, mt_text *out) {
  static const char *const parts[] = {"title", "sources", "style", "data", "script"};
  const char *at = (const char *)mt_web_frame, *end = at + mt_web_frame_bytes;
  motet_status status = MOTET_OK;
  while (status == MOTET_OK && at < end) {
    const char *open = memchr(at, '{', (size_t)(end - at));
    if (open == NULL) open = end;
    mt_text_bytes(out, at, (size_t)(open - at));
    at = open;
    if (at == end) break;
    size_t part = 0, length = 0;
    for (; part < sizeof parts / sizeof *parts; part++) {
      length = strlen(parts[part]);
      if ((size_t)(end - at) >= length + 4 && strncmp(at, "{{", 2) == 0 &&
          strncmp(at + 2, parts[part], length) == 0 && strncmp(at + 2 + length, "}}", 2) == 0)
        break;
    }
    if (part == sizeof parts / sizeof *parts) {
      mt_text_bytes(out, at++, 1);
      continue;
    }
    status = put_part(page, parts[part], error, out);
    at += length + 4;
  }
  if (status == MOTET_OK && out->failed) status = mt_error_memory(error, out->length, "the report");
  return status;
}

static bool has_sizes(const mt_memory_timeline *memory, int32_t ranks) {
  for (int32_t rank = 0; rank < ranks; rank++)
    if (memory->peak_bytes[rank] > 0) return true;
  return false;
}

motet_status mt_page_memory(mt_arena *arena, const motet_program *program, motet_error *error,
                            mt_page_timeline *timeline) {
  const mt_simulation *simulation = timeline->simulation;
  mt_memory_timeline *memory;
  motet_status status =
      mt_memory_timeline_make(arena, program, simulation->start, simulation->finish, error, &memory);
  if (status != MOTET_OK) return status;
  timeline->memory = memory;
  timeline->memory_counts = !has_sizes(memory, program->ranks);
  if (!timeline->memory_counts) return MOTET_OK;
  /* The same program with activations for bytes. */
  motet_program counted = *program;
  int64_t *held = MT_ARENA_NEW(arena, int64_t, program->stage_count);
  if (held == NULL) return mt_error_memory(error, sizeof *held, "held activations");
  for (int32_t stage = 0; stage < program->stage_count; stage++)
    if (!program->regions[program->stages[stage].region].replicated)
      held[stage] = (int64_t)(program->stages[stage].share * MT_PAGE_ACTIVATION + 0.5);
  counted.saved_bytes = (motet_size_table){held, 1, 0};
  counted.output_bytes = (motet_size_table){NULL, 0, 0};
  status = mt_memory_timeline_make(arena, &counted, simulation->start, simulation->finish, error, &memory);
  if (status == MOTET_OK) timeline->memory = memory;
  return status;
}

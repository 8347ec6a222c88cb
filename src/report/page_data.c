/* The page's data: one JSON document, and columns as base64 in script elements of their own that it names. */
#include "base/digest.h"
#include "report/chrome_trace.h"
#include "report/inks.h"
#include "report/page.h"
#include "report/page_columns.h"
#include "report/page_history.h"
#include "report/transfers.h"
#include "report/words.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Times are whole numbers of ticks, this many in a makespan. */
#define TICKS 1073741824.0

enum {
  CODE_RECV = 1 << 5,    /* bits of a kind column above the kind: WAIT for a receive */
  CODE_JOINED = 1 << 5,  /* the same bit of compute: joined with the next */
  CODE_NEXT = 1 << 6,    /* of the next step */
  CODE_GRADIENT = 1 << 7 /* a transfer of a gradient */
};

_Static_assert((int)MOTET_INSTRUCTION_KINDS <= (int)CODE_RECV, "kinds fit below the flags");

typedef struct writer {
  const mt_page *page;
  mt_text json, columns;
  int next_column;
} writer;

/* JSON inside of a script element: nothing in it may look like the element's end or a comment's beginning. */
static void put_text(writer *w, const char *text) {
  mt_text plain = {0};
  mt_report_json_string(&plain, text != NULL ? text : "");
  for (size_t i = 0; i < plain.length; i++) {
    char c = plain.data[i];
    if (c == '<' || c == '>' || c == '&')
      mt_text_append(&w->json, "\\u%04x", (unsigned)c);
    else
      mt_text_bytes(&w->json, &c, 1);
  }
  if (plain.failed) w->json.failed = true;
  mt_text_free(&plain);
}

static void put_key(writer *w, const char *key) { mt_text_append(&w->json, ",\"%s\":", key); }

static void put_number(writer *w, const char *key, double value) {
  put_key(w, key);
  if (isfinite(value))
    mt_text_append(&w->json, "%.17g", value);
  else
    mt_text_append(&w->json, "null");
}

static void put_named_text(writer *w, const char *key, const char *text) {
  put_key(w, key);
  put_text(w, text);
}

/* The column goes into an element of its own; the document names it. */
static void put_column(writer *w, const char *key, mt_column *column) {
  put_key(w, key);
  mt_text_append(&w->json, "\"column-%d\"", w->next_column);
  mt_text_append(&w->columns, "<script type=\"text/plain\" id=\"column-%d\">", w->next_column++);
  mt_column_print(column, &w->columns);
  mt_text_append(&w->columns, "</script>\n");
  if (column->failed) w->columns.failed = true;
  mt_column_free(column);
}

static int64_t ticks_of(double seconds, double makespan) {
  if (!(seconds > 0) || !(makespan > 0)) return 0;
  double ticks = round(seconds / makespan * TICKS);
  return ticks < 4 * TICKS - 1 ? (int64_t)ticks : (int64_t)(4 * TICKS) - 1; /* 32 bits there */
}

/* The stage at this rank's end of a transfer: what made the data, or what reads them. */
static int32_t stage_of(const motet_program *program, const motet_instruction *instruction, bool *gradient) {
  *gradient = false;
  if (instruction->kind < MOTET_SEND || instruction->kind > MOTET_WAIT || instruction->buffer < 0)
    return instruction->stage;
  const motet_buffer *buffer = &program->buffers[instruction->buffer];
  if (buffer->edge < 0 || (buffer->kind != MOTET_BUFFER_ACTIVATION && buffer->kind != MOTET_BUFFER_GRADIENT))
    return instruction->stage;
  *gradient = buffer->kind == MOTET_BUFFER_GRADIENT;
  bool receives = instruction->kind == MOTET_RECV ||
                  (instruction->kind == MOTET_WAIT && (instruction->flags & MOTET_FLAG_RECV));
  const motet_program_edge *edge = &program->edges[buffer->edge];
  return receives != *gradient ? edge->to : edge->from;
}

static motet_status put_instructions(writer *w, const motet_program *program, motet_error *error) {
  int64_t count = program->rank_begin[program->ranks];
  mt_column kind = {0}, stage = {0}, microbatch = {0}, partner = {0}, begin = {0};
  int64_t *partners;
  motet_status status = mt_transfer_partners(program, error, &partners);
  if (status != MOTET_OK) return status;
  for (int64_t i = 0; i < count; i++) {
    const motet_instruction *instruction = &program->instructions[i];
    bool gradient;
    mt_column_difference(&stage, stage_of(program, instruction, &gradient));
    mt_column_difference(&microbatch, instruction->microbatch);
    mt_column_byte(&kind, (uint8_t)(instruction->kind | (instruction->flags & MOTET_FLAG_RECV ? CODE_RECV : 0) |
                                    (instruction->flags & MOTET_FLAG_NEXT ? CODE_NEXT : 0) |
                                    (instruction->flags & MOTET_FLAG_JOINED ? CODE_JOINED : 0) |
                                    (gradient ? CODE_GRADIENT : 0)));
    mt_column_signed(&partner, partners[i] >= 0 ? partners[i] - i : 0);
  }
  for (int32_t rank = 0; rank <= program->ranks; rank++) mt_column_difference(&begin, program->rank_begin[rank]);
  free(partners);
  put_column(w, "rank_begin", &begin);
  put_column(w, "kind", &kind);
  put_column(w, "stage", &stage);
  put_column(w, "microbatch", &microbatch);
  put_column(w, "partner", &partner);
  return MOTET_OK;
}

static void put_tables(writer *w, const motet_program *program) {
  int32_t *sets = calloc((size_t)program->region_count + 1, sizeof *sets);
  if (sets == NULL) {
    w->json.failed = true;
    return;
  }
  mt_inks_assign(program, sets);
  put_key(w, "regions");
  for (int32_t i = 0; i < program->region_count; i++) {
    const motet_program_region *region = &program->regions[i];
    mt_text_append(&w->json, "%s{\"set\":%d,\"replicated\":%s", i > 0 ? "," : "[", sets[i],
                   region->replicated ? "true" : "false");
    put_named_text(w, "name", region->name);
    put_named_text(w, "skeleton", region->skeleton);
    mt_text_append(&w->json, "}");
  }
  free(sets);
  mt_text_append(&w->json, "%s]", program->region_count > 0 ? "" : "[");
  put_key(w, "stages");
  for (int32_t i = 0; i < program->stage_count; i++) {
    const motet_program_stage *stage = &program->stages[i];
    mt_text_append(&w->json, "%s[%d,%d,%d,%d]", i > 0 ? "," : "[", stage->region, stage->slab, stage->layer_begin,
                   stage->layer_end);
  }
  mt_text_append(&w->json, "%s]", program->stage_count > 0 ? "" : "[");
  put_key(w, "modules");
  for (int32_t i = 0; i < program->module_count; i++) {
    const motet_program_module *module = &program->modules[i];
    bool trains = false;
    for (int32_t layer = module->layer_begin; layer < module->layer_end; layer++)
      trains = trains || program->layer_trainable[layer] != 0;
    mt_text_append(&w->json, "%s{\"layers\":[%d,%d],\"trains\":%s", i > 0 ? "," : "[", module->layer_begin,
                   module->layer_end, trains ? "true" : "false");
    put_named_text(w, "name", module->name);
    mt_text_append(&w->json, "}");
  }
  mt_text_append(&w->json, "%s]", program->module_count > 0 ? "" : "[");
}

static void put_times(writer *w, const motet_program *program, const mt_simulation *simulation) {
  mt_column gap = {0}, duration = {0}, cause = {0}, critical = {0};
  double makespan = simulation->makespan;
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    int64_t before = 0;
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      int64_t start = ticks_of(simulation->start[i], makespan), finish = ticks_of(simulation->finish[i], makespan);
      mt_column_signed(&gap, start - before);
      mt_column_unsigned(&duration, (uint64_t)(finish > start ? finish - start : 0));
      mt_column_byte(&cause, simulation->idle_cause != NULL ? simulation->idle_cause[i] : MT_IDLE_CAUSES);
      before = finish > start ? finish : start;
    }
  }
  for (int64_t i = 0; i < simulation->critical_count; i++) mt_column_difference(&critical, simulation->critical[i]);
  put_column(w, "gap", &gap);
  put_column(w, "duration", &duration);
  put_column(w, "cause", &cause);
  put_column(w, "critical", &critical);
}

static void put_memory(writer *w, const motet_program *program, const mt_page_timeline *timeline) {
  const mt_memory_timeline *memory = timeline->memory;
  if (memory == NULL) return;
  mt_column begin = {0}, time = {0}, bytes = {0};
  for (int32_t rank = 0; rank <= program->ranks; rank++) mt_column_difference(&begin, memory->begin[rank]);
  for (int64_t i = 0; i < memory->begin[program->ranks]; i++) {
    mt_column_difference(&time, ticks_of(memory->steps[i].seconds, timeline->simulation->makespan));
    mt_column_difference(&bytes, memory->steps[i].bytes);
  }
  put_key(w, "memory");
  mt_text_append(&w->json, "{\"activation\":%d", timeline->memory_counts ? MT_PAGE_ACTIVATION : 0);
  put_column(w, "begin", &begin);
  put_column(w, "time", &time);
  put_column(w, "bytes", &bytes);
  mt_text_append(&w->json, "}");
}

static void put_timeline(writer *w, const motet_program *program, const mt_page_timeline *timeline) {
  const mt_simulation *simulation = timeline->simulation;
  mt_text_append(&w->json, "{\"ticks\":%.0f", TICKS);
  put_named_text(w, "title", timeline->title);
  put_number(w, "makespan", simulation->makespan);
  put_number(w, "idle_share", simulation->idle_share);
  put_number(w, "bubble_whole", simulation->bubble_whole);
  put_number(w, "bubble_stage", simulation->bubble_stage);
  put_number(w, "peak_features", simulation->peak_features);
  put_key(w, "idle_by_cause");
  for (int cause = 0; cause < MT_IDLE_CAUSES; cause++)
    mt_text_append(&w->json, "%s%.17g", cause > 0 ? "," : "[",
                   isfinite(simulation->idle_by_cause[cause]) ? simulation->idle_by_cause[cause] : 0.0);
  mt_text_append(&w->json, "]");
  put_key(w, "busy");
  for (int32_t rank = 0; rank < program->ranks; rank++)
    mt_text_append(&w->json, "%s%.17g", rank > 0 ? "," : "[", simulation->ranks[rank].busy);
  mt_text_append(&w->json, "%s]", program->ranks > 0 ? "" : "[");
  put_times(w, program, simulation);
  put_memory(w, program, timeline);
  mt_text_append(&w->json, "}");
}

static void put_peaks(writer *w, const mt_page_side *side) {
  if (side->verification == NULL) return;
  put_key(w, "peaks");
  for (int32_t rank = 0; rank < side->program->ranks; rank++) {
    const motet_rank_memory *memory = &side->verification->memory[rank];
    mt_text_append(&w->json, "%s[%" PRId64 ",%" PRId64 ",%.17g,%d]", rank > 0 ? "," : "[", memory->peak_bytes,
                   memory->peak_instruction, memory->peak_activations, memory->peak_features);
  }
  mt_text_append(&w->json, "%s]", side->program->ranks > 0 ? "" : "[");
}

static void put_what_if(writer *w, const mt_page_side *side) {
  put_key(w, "what_if");
  mt_text_append(&w->json, "[");
  for (int32_t i = 0; i < side->what_if_count; i++) {
    mt_text_append(&w->json, "%s{\"row\":%d", i > 0 ? "," : "", i);
    put_named_text(w, "change", side->what_if[i].change);
    put_number(w, "makespan", side->what_if[i].makespan);
    put_number(w, "before", side->what_if[i].before);
    mt_text_append(&w->json, "}");
  }
  mt_text_append(&w->json, "]");
}

/* Sums by piece as they are; what each stage does for each microbatch as whole numbers of `unit` operations. */
static void put_flops(writer *w, const motet_program *program, const mt_flops *flops) {
  if (flops == NULL) return;
  int64_t cells = (int64_t)program->stage_count * program->microbatch_count;
  double largest = 0, *values = calloc((size_t)cells * MT_FLOPS_PARTS + 1, sizeof *values);
  if (values == NULL) {
    w->json.failed = true;
    return;
  }
  put_key(w, "flops");
  mt_text_append(&w->json, "{\"pieces\":[");
  for (int32_t i = 0; i < flops->piece_count; i++) {
    const mt_flops_piece *piece = &flops->pieces[i];
    mt_text_append(&w->json, "%s[%d,%d", i > 0 ? "," : "", piece->stage, piece->module);
    for (int part = 0; part < MT_FLOPS_PARTS; part++) {
      double sum = 0, *row = values + part * cells + (int64_t)piece->stage * program->microbatch_count;
      for (int32_t m = 0; m < program->microbatch_count; m++) {
        sum += piece->parts[part][m];
        row[m] += piece->parts[part][m];
        if (row[m] > largest) largest = row[m];
      }
      mt_text_append(&w->json, ",%.9g", sum);
    }
    mt_text_append(&w->json, "]");
  }
  mt_text_append(&w->json, "]");
  double unit = largest > 0 ? largest / (1 << 21) : 1; /* numbers of three bytes */
  put_number(w, "peak", flops->peak);
  put_number(w, "unit", unit);
  static const char *const names[MT_FLOPS_PARTS] = {"forward", "input", "weight"};
  for (int part = 0; part < MT_FLOPS_PARTS; part++) {
    mt_column column = {0};
    for (int64_t i = 0; i < cells; i++)
      mt_column_unsigned(&column, (uint64_t)(values[part * cells + i] / unit + 0.5));
    put_column(w, names[part], &column);
  }
  mt_text_append(&w->json, "}");
  free(values);
}

static motet_status put_program(writer *w, const mt_page_side *side, motet_error *error) {
  const motet_program *program = side->program;
  char digest[MT_DIGEST_TEXT_SIZE];
  mt_digest_print(motet_program_digest(program), digest);
  mt_text_append(&w->json, ",\"ranks\":%d,\"replicas\":%d,\"microbatches\":%d,\"verified\":%s", program->ranks,
                 program->replicas, program->microbatch_count, side->verification != NULL ? "true" : "false");
  put_named_text(w, "schedule", program->schedule);
  put_named_text(w, "digest", digest);
  put_number(w, "bound", side->bound);
  put_tables(w, program);
  put_peaks(w, side);
  put_what_if(w, side);
  put_flops(w, program, side->flops);
  motet_status status = put_instructions(w, program, error);
  if (status != MOTET_OK) return status;
  put_key(w, "timelines");
  for (int32_t i = 0; i < side->timeline_count; i++) {
    mt_text_append(&w->json, i > 0 ? "," : "[");
    put_timeline(w, program, &side->timelines[i]);
  }
  mt_text_append(&w->json, "%s]", side->timeline_count > 0 ? "" : "[");
  return MOTET_OK;
}

static motet_status put_side(writer *w, const mt_page_side *side, motet_error *error) {
  mt_text_append(&w->json, "{\"title\":");
  put_text(w, side->title);
  if (side->history != NULL) {
    put_key(w, "history");
    mt_page_history(side->history, (mt_page_history_after){0}, &w->json);
  }
  motet_status status = side->program != NULL ? put_program(w, side, error) : MOTET_OK;
  mt_text_append(&w->json, "}");
  return status;
}

/* The terminal's colours, as the red, green and blue of the 256-colour table's cube and greys. */
static uint32_t color_of(uint8_t color) {
  static const uint8_t levels[] = {0, 95, 135, 175, 215, 255};
  if (color < 16) return 0;
  if (color >= 232) return (uint32_t)(8 + 10 * (color - 232)) * 0x10101;
  int cell = color - 16;
  return (uint32_t)levels[cell / 36] << 16 | (uint32_t)levels[cell / 6 % 6] << 8 | levels[cell % 6];
}

/* Idle time on light and on dark ground: greys where the pipeline's shape asks for it, colours where something came
 * late, each of another lightness, so that they can be told apart without their hues. */
static const uint32_t idle_colors[MT_IDLE_CAUSES + 1][2] = {
    [MT_IDLE_WARM_UP] = {0xc9ced6, 0x444b57},         [MT_IDLE_COOL_DOWN] = {0xdfe3e8, 0x343a44},
    [MT_IDLE_STAGE_IMBALANCE] = {0xd55e00, 0xff8700}, [MT_IDLE_MICROBATCH_VARIANCE] = {0xcc79a7, 0xff9ecb},
    [MT_IDLE_COMMUNICATION] = {0x5b3a99, 0xb39ddb},   [MT_IDLE_DATA_PARALLEL_WAIT] = {0x69e187, 0x96f096},
    [MT_IDLE_INPUT_STALL] = {0xe0c400, 0xffff5f},     [MT_IDLE_CAUSES] = {0xe9edf2, 0x2a2f38},
};

/* [name, letter, colour of even and of odd microbatches (of light and dark ground for idle inks), of letters] */
static void put_inks(writer *w) {
  put_key(w, "inks");
  for (int ink = 0; ink < MT_INKS; ink++) {
    mt_ink look = mt_inks_look(ink);
    uint32_t colors[2] = {color_of(look.background[0]), color_of(look.background[1])};
    for (int i = 0; i < 2 && ink >= MT_INK_IDLE; i++) colors[i] = idle_colors[ink - MT_INK_IDLE][i];
    mt_text_append(&w->json, "%s[\"%s\",\"%c\",%u,%u,%u,%u]", ink > 0 ? "," : "[", mt_inks_name(ink), look.letter,
                   colors[0], colors[1], color_of(look.foreground[0]), color_of(look.foreground[1]));
  }
  mt_text_append(&w->json, "],\"ink\":{\"sets\":%d,\"kinds\":%d,\"optimizer\":%d,\"idle\":%d,\"unknown\":%d}",
                 MT_INK_SETS, MT_INK_KINDS, MT_INK_OPTIMIZER, MT_INK_IDLE, MT_INK_IDLE_UNKNOWN);
}

static void put_words(writer *w) {
  put_key(w, "kinds");
  for (int kind = 0; kind < MOTET_INSTRUCTION_KINDS; kind++)
    mt_text_append(&w->json, "%s\"%s\"", kind > 0 ? "," : "[", motet_instruction_name(kind));
  mt_text_append(&w->json, "]");
  put_key(w, "facts");
  mt_text_append(&w->json, "[");
  for (int32_t i = 0; i < w->page->fact_count; i++) {
    mt_text_append(&w->json, i > 0 ? ",[" : "[");
    put_text(w, w->page->facts[i].name);
    mt_text_append(&w->json, ",");
    put_text(w, w->page->facts[i].value);
    mt_text_append(&w->json, "]");
  }
  mt_text_append(&w->json, "]");
  put_named_text(w, "message", w->page->message);
  const mt_page_live *live = w->page->live;
  if (live == NULL) return;
  put_key(w, "live");
  mt_text_append(&w->json, "{\"page\":%" PRId64, live->page);
  put_number(w, "seconds", live->seconds);
  put_named_text(w, "file", live->file);
  mt_text_append(&w->json, "}");
}

motet_status mt_report_page_data(const mt_page *page, motet_error *error, mt_text *out) {
  writer w = {.page = page};
  motet_status status = MOTET_OK;
  mt_text_append(&w.json, "{\"format\":\"motet-report-2\"");
  put_named_text(&w, "title", page->title);
  put_inks(&w);
  put_words(&w);
  put_key(&w, "sides");
  for (int32_t i = 0; status == MOTET_OK && i < page->side_count; i++) {
    mt_text_append(&w.json, i > 0 ? "," : "[");
    status = put_side(&w, &page->sides[i], error);
  }
  mt_text_append(&w.json, "]}");
  if (status == MOTET_OK && (w.json.failed || w.columns.failed))
    status = mt_error_memory(error, w.json.length + w.columns.length, "the report's data");
  if (status == MOTET_OK) {
    mt_text_bytes(out, w.columns.data != NULL ? w.columns.data : "", w.columns.length);
    mt_text_append(out, "<script type=\"application/json\" id=\"data\">");
    mt_text_bytes(out, w.json.data, w.json.length);
    mt_text_append(out, "</script>\n");
    if (out->failed) status = mt_error_memory(error, out->length, "the report");
  }
  mt_text_free(&w.json);
  mt_text_free(&w.columns);
  return status;
}

/* The grammar. Groups do not nest, so that no text can exhaust the stack; commas count for nothing.
 *
 *   layout = { symbol [ "*" number ] | "(" symbol [ "*" number ] { symbol [ "*" number ] } ")" "*" number }
 *   symbol = "E" | "t" | "m" | "L" | "|"
 */
#include "algebra/megatron_layout.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

enum { BORDER = MT_MEGATRON_KINDS, SYMBOLS_MAX = 1 << 16 };

const char *const mt_megatron_letters[MT_MEGATRON_KINDS] = {"E", "t", "m", "L"};

typedef struct symbol {
  int32_t kind; /* mt_megatron_kind or BORDER */
  int32_t column;
} symbol;

typedef struct parser {
  const char *text;
  size_t at;
  motet_error *error;
  MT_ARRAY(symbol) symbols;
} parser;

static char next(parser *p) {
  while (p->text[p->at] == ',') p->at++;
  return p->text[p->at];
}

static motet_status complain(parser *p, const char *expected) {
  char found = next(p);
  if (found == '\0')
    return mt_error_set(p->error, MOTET_ERROR_PARSE, "layout: column %zu: expected %s, found the end", p->at + 1,
                        expected);
  return mt_error_set(p->error, MOTET_ERROR_PARSE, "layout: column %zu: expected %s, found '%.8s'", p->at + 1,
                      expected, p->text + p->at);
}

static int32_t kind_of(char c) {
  if (c == '|') return BORDER;
  for (int32_t kind = 0; kind < MT_MEGATRON_KINDS; kind++)
    if (c == mt_megatron_letters[kind][0]) return kind;
  return -1;
}

/* The number behind a '*', at most SYMBOLS_MAX. */
static motet_status parse_count(parser *p, int32_t *count) {
  *count = 0;
  if (next(p) < '0' || next(p) > '9') return complain(p, "a number behind '*'");
  for (char c = next(p); c >= '0' && c <= '9'; c = next(p)) {
    *count = *count * 10 + (c - '0');
    if (*count > SYMBOLS_MAX)
      return mt_error_set(p->error, MOTET_ERROR_LIMIT, "layout: column %zu: more than %d repetitions", p->at + 1,
                          SYMBOLS_MAX);
    p->at++;
  }
  if (next(p) == '*') return complain(p, "one '*' behind a symbol or a group");
  return MOTET_OK;
}

/* Makes the symbols from `begin` on stand `count` times. */
static motet_status repeat(parser *p, size_t begin, int32_t count) {
  size_t length = p->symbols.count - begin;
  if (count == 0) p->symbols.count = begin;
  if (count < 2) return MOTET_OK;
  if (length > SYMBOLS_MAX || begin + length * (size_t)count > SYMBOLS_MAX)
    return mt_error_set(p->error, MOTET_ERROR_LIMIT, "layout: column %zu: more than %d layers and borders", p->at,
                        SYMBOLS_MAX);
  size_t needed = begin + length * (size_t)count;
  if (!mt_array_reserve((void **)&p->symbols.data, &p->symbols.capacity, needed, sizeof *p->symbols.data))
    return mt_error_memory(p->error, needed * sizeof *p->symbols.data, "a layout");
  for (; p->symbols.count < needed; p->symbols.count += length)
    memcpy(p->symbols.data + p->symbols.count, p->symbols.data + begin, length * sizeof *p->symbols.data);
  return MOTET_OK;
}

/* A symbol with its repetition. */
static motet_status parse_symbol(parser *p, const char *expected) {
  int32_t kind = kind_of(next(p)), count = 1;
  if (kind < 0) return complain(p, expected);
  size_t begin = p->symbols.count;
  if (begin >= SYMBOLS_MAX)
    return mt_error_set(p->error, MOTET_ERROR_LIMIT, "layout: more than %d layers and borders", SYMBOLS_MAX);
  if (!MT_ARRAY_PUSH(&p->symbols, (symbol){kind, (int32_t)p->at + 1}))
    return mt_error_memory(p->error, (begin + 1) * sizeof *p->symbols.data, "a layout");
  p->at++;
  if (next(p) != '*') return MOTET_OK;
  p->at++;
  motet_status status = parse_count(p, &count);
  return status == MOTET_OK ? repeat(p, begin, count) : status;
}

static motet_status parse_group(parser *p) {
  p->at++; /* '(' */
  size_t begin = p->symbols.count;
  motet_status status;
  do status = parse_symbol(p, "E, t, m, L or '|' in the group (groups do not nest)");
  while (status == MOTET_OK && next(p) != ')');
  if (status != MOTET_OK) return status;
  p->at++;
  if (next(p) != '*') return complain(p, "'*' and a number behind a group, as in (tt|)*4");
  p->at++;
  int32_t count;
  status = parse_count(p, &count);
  return status == MOTET_OK ? repeat(p, begin, count) : status;
}

static motet_status misplaced(parser *p, const symbol *at, const char *what) {
  return mt_error_set(p->error, MOTET_ERROR_PARSE,
                      "layout: column %d: %s; a layout is one E, decoder layers t, MTP layers m and one L, in this "
                      "order, with '|' between stages",
                      at->column, what);
}

/* One E at the very front, one L at the very end, t before m. */
static motet_status check_order(parser *p) {
  size_t count = p->symbols.count;
  int32_t last = -1;
  for (size_t i = 0; i < count; i++) {
    const symbol *at = &p->symbols.data[i];
    if (at->kind == BORDER) continue;
    if (last < 0 && at->kind != MT_MEGATRON_EMBEDDING) return misplaced(p, at, "the first layer is not E");
    if (last == at->kind && at->kind == MT_MEGATRON_EMBEDDING) return misplaced(p, at, "a second E");
    if (last == MT_MEGATRON_LOSS)
      return misplaced(p, at, at->kind == MT_MEGATRON_LOSS ? "a second L" : "a layer behind L");
    if (last > at->kind)
      return misplaced(p, at, at->kind == MT_MEGATRON_EMBEDDING ? "a second E" : "a decoder layer t behind m");
    last = at->kind;
  }
  if (last == MT_MEGATRON_LOSS) return MOTET_OK;
  symbol end = {.column = (int32_t)p->at + 1};
  return misplaced(p, &end, "the last layer is not L");
}

static motet_status fill(parser *p, mt_arena *arena, mt_megatron_layout **result) {
  mt_megatron_layout *layout = MT_ARENA_NEW(arena, mt_megatron_layout, 1);
  int32_t stages = 1;
  for (size_t i = 0; i < p->symbols.count; i++) stages += p->symbols.data[i].kind == BORDER;
  if (layout != NULL) layout->split = MT_ARENA_NEW(arena, int32_t, stages);
  if (layout == NULL || layout->split == NULL)
    return mt_error_memory(p->error, (unsigned long long)stages * sizeof(int32_t), "a layout");
  layout->stage_count = stages;
  layout->mtp_first = layout->mtp_last = -1;
  int32_t stage = 0;
  for (size_t i = 0; i < p->symbols.count; i++) {
    int32_t kind = p->symbols.data[i].kind;
    if (kind == BORDER) {
      stage++;
      continue;
    }
    layout->split[stage]++;
    layout->layers[kind]++;
    if (kind != MT_MEGATRON_MTP) continue;
    if (layout->mtp_first < 0) layout->mtp_first = stage;
    layout->mtp_last = stage;
  }
  *result = layout;
  return MOTET_OK;
}

motet_status mt_megatron_layout_parse(mt_arena *arena, const char *text, motet_error *error,
                                      mt_megatron_layout **layout) {
  parser p = {.text = text, .error = error};
  motet_status status = MOTET_OK;
  if (strlen(text) > SYMBOLS_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "layout: more than %d characters", SYMBOLS_MAX);
  while (status == MOTET_OK && next(&p) != '\0')
    status = next(&p) == '(' ? parse_group(&p) : parse_symbol(&p, "E, t, m, L, '|' or '('");
  if (status == MOTET_OK) status = check_order(&p);
  if (status == MOTET_OK) status = fill(&p, arena, layout);
  free(p.symbols.data);
  return status;
}

static motet_status refuse(motet_error *error) {
  mt_error_rule(error, "layout", -1, -1, -1);
  return MOTET_ERROR_ILLEGAL;
}

motet_status mt_megatron_layout_judge(const mt_megatron_layout *layout, int32_t ranks, motet_error *error,
                                      int32_t *virtual_stages) {
  if (layout->stage_count % ranks != 0) {
    mt_error_set(error, MOTET_ERROR_ILLEGAL,
                 "the layout has %d stages, which %d ranks cannot share evenly; accepted: a number of stages that "
                 "is a multiple of the ranks",
                 layout->stage_count, ranks);
    return refuse(error);
  }
  *virtual_stages = layout->stage_count / ranks;
  if (layout->mtp_first < 0) return MOTET_OK;
  if (layout->mtp_first != layout->mtp_last) {
    mt_error_set(error, MOTET_ERROR_ILLEGAL,
                 "the layout has MTP layers m in stages %d and %d; accepted: all of them in one stage",
                 layout->mtp_first, layout->mtp_last);
    return refuse(error);
  }
  if (layout->mtp_first < layout->stage_count - ranks) {
    mt_error_set(error, MOTET_ERROR_ILLEGAL,
                 "the layout has its MTP layers m in stage %d, which is not the last chunk of its rank; accepted: "
                 "one of the last %d stages, %d to %d",
                 layout->mtp_first, ranks, layout->stage_count - ranks, layout->stage_count - 1);
    return refuse(error);
  }
  return MOTET_OK;
}

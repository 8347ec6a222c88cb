/* The grammar, without recursion (branches do not nest), so that no text can exhaust the stack:
 *
 *   schedule = "<" element { "," element } ">"
 *   element  = term | "(" term "|" term { "|" term } ")"
 *   term     = [ module { "+" module } ":" ] skeleton
 *   skeleton = word [ "(" [ option { "," option } ] ")" ]
 *   option   = word "=" ( word | number )
 */
#include "algebra/skeleton.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 1 << 16, QUOTED_BYTES_MAX = 40 };

typedef struct token {
  size_t begin, length; /* a length of zero: no word stands here */
} token;

typedef struct parser {
  mt_arena *arena;
  motet_error *error;
  const char *text;
  size_t length, at;
  int32_t branches;
  MT_ARRAY(mt_term) terms;
  MT_ARRAY(token) names;
} parser;

static bool is_word_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static void skip_space(parser *p) {
  while (p->at < p->length && is_space(p->text[p->at])) p->at++;
}

static char next(parser *p) {
  skip_space(p);
  return p->text[p->at]; /* zero at the end */
}

static bool accept(parser *p, char c) {
  if (next(p) != c) return false;
  p->at++;
  return true;
}

static token word(parser *p) {
  skip_space(p);
  token found = {p->at, 0};
  while (p->at < p->length && is_word_byte(p->text[p->at])) p->at++;
  found.length = p->at - found.begin;
  return found;
}

/* Quotes bytes of the text, shortened and with unprintable bytes written in hexadecimal. */
static void quote(const parser *p, token part, mt_text *quoted) {
  size_t count = part.length < QUOTED_BYTES_MAX ? part.length : QUOTED_BYTES_MAX;
  mt_text_append(quoted, "'");
  for (size_t i = 0; i < count; i++) {
    unsigned char c = (unsigned char)p->text[part.begin + i];
    if (c >= 0x20 && c < 0x7f)
      mt_text_append(quoted, "%c", c);
    else
      mt_text_append(quoted, "\\x%02x", c);
  }
  mt_text_append(quoted, part.length > count ? "...'" : "'");
}

/* Finishes an error text: everything after the column is in @p message, which is freed. */
static motet_status fail(parser *p, motet_status status, size_t at, mt_text *message) {
  if (message->failed)
    mt_error_memory(p->error, message->length, "an error message");
  else
    mt_error_set(p->error, status, "schedule, column %zu: %s", at + 1, message->data);
  mt_error_key(p->error, "schedule");
  mt_text_free(message);
  return status;
}

static motet_status expected(parser *p, const char *what) {
  mt_text message = {0};
  mt_text_append(&message, "expected %s, found ", what);
  skip_space(p);
  size_t at = p->at;
  if (at >= p->length) {
    mt_text_append(&message, "the end");
  } else {
    token found = word(p);
    if (found.length == 0) found.length = 1;
    quote(p, found, &message);
  }
  return fail(p, MOTET_ERROR_PARSE, at, &message);
}

static motet_status bad_skeleton(parser *p, token name) {
  mt_text message = {0};
  quote(p, name, &message);
  mt_text_append(&message, " is no skeleton; accepted: ");
  mt_skeleton_list(&message);
  return fail(p, MOTET_ERROR_PARSE, name.begin, &message);
}

static motet_status bad_option(parser *p, token name, mt_skeleton_kind kind, const char *problem) {
  mt_text message = {0};
  quote(p, name, &message);
  mt_text_append(&message, " %s %s; accepted: ", problem, mt_skeleton_rows[kind].name);
  mt_skeleton_list_options(&message, kind);
  return fail(p, MOTET_ERROR_PARSE, name.begin, &message);
}

static motet_status bad_value(parser *p, token value, const mt_skeleton_option *option) {
  mt_text message = {0};
  if (value.length == 0) value.length = value.begin < p->length ? 1 : 0;
  quote(p, value, &message);
  mt_text_append(&message, " is no value of %s; accepted: ", option->name);
  if (option->words == NULL)
    mt_text_append(&message, "a number from %d to %d", option->minimum, option->maximum);
  else
    for (int32_t w = 0; w < option->word_count; w++)
      mt_text_append(&message, "%s%s", w > 0 ? ", " : "", option->words[w]);
  return fail(p, MOTET_ERROR_PARSE, value.begin, &message);
}

/* The value of an option, or -1. */
static int32_t read_value(const parser *p, token value, const mt_skeleton_option *option) {
  const char *text = p->text + value.begin;
  if (option->words != NULL) {
    for (int32_t w = 0; w < option->word_count; w++)
      if (strlen(option->words[w]) == value.length && memcmp(option->words[w], text, value.length) == 0) return w;
    return -1;
  }
  if (value.length == 0) return -1;
  int64_t number = 0;
  for (size_t i = 0; i < value.length; i++) {
    if (text[i] < '0' || text[i] > '9') return -1;
    number = number * 10 + (text[i] - '0');
    if (number > option->maximum) return -1;
  }
  return number >= option->minimum ? (int32_t)number : -1;
}

static motet_status parse_option(parser *p, mt_skeleton_kind kind, int32_t values[MT_SKELETON_OPTIONS]) {
  token name = word(p);
  if (name.length == 0) return expected(p, "the name of an option or ')'");
  int found = -1;
  for (int i = 0; i < MT_SKELETON_OPTIONS; i++) {
    const mt_skeleton_option *option = &mt_skeleton_options[i];
    if (mt_skeleton_knows(option, kind) && strlen(option->name) == name.length &&
        memcmp(option->name, p->text + name.begin, name.length) == 0)
      found = i;
  }
  if (found < 0) return bad_option(p, name, kind, "is no option of");
  if (values[found] >= 0) return bad_option(p, name, kind, "is given twice to");
  if (!accept(p, '=')) return expected(p, "'=' and a value");
  token value = word(p);
  values[found] = read_value(p, value, &mt_skeleton_options[found]);
  if (values[found] < 0) return bad_value(p, value, &mt_skeleton_options[found]);
  return MOTET_OK;
}

static motet_status check_dedicate(parser *p, token name, const mt_skeleton *skeleton) {
  mt_text message = {0};
  if (skeleton->ranks < 1) {
    mt_text_append(&message, "dedicate does not say how many ranks; accepted: dedicate(ranks=2)");
    return fail(p, MOTET_ERROR_PARSE, name.begin, &message);
  }
  if (skeleton->ranks % skeleton->data != 0) {
    mt_text_append(&message, "%d ranks do not make data=%d pipelines of one length; accepted: a divisor of %d",
                   skeleton->ranks, skeleton->data, skeleton->ranks);
    return fail(p, MOTET_ERROR_PARSE, name.begin, &message);
  }
  if (skeleton->kind != MT_SKELETON_1F1B && skeleton->virtual_stages != mt_skeleton_chunks(skeleton->kind)) {
    mt_text_append(&message, "virtual is an option of inner=1f1b; %s has %d chunks a rank",
                   mt_skeleton_rows[skeleton->kind].name, mt_skeleton_chunks(skeleton->kind));
    return fail(p, MOTET_ERROR_PARSE, name.begin, &message);
  }
  return MOTET_OK;
}

static motet_status parse_skeleton(parser *p, token name, mt_skeleton *skeleton) {
  int kind = mt_skeleton_find(p->text + name.begin, name.length);
  if (kind < 0) return bad_skeleton(p, name);
  int32_t values[MT_SKELETON_OPTIONS];
  for (int i = 0; i < MT_SKELETON_OPTIONS; i++) values[i] = -1;
  if (accept(p, '(') && !accept(p, ')')) {
    do {
      motet_status status = parse_option(p, (mt_skeleton_kind)kind, values);
      if (status != MOTET_OK) return status;
    } while (accept(p, ','));
    if (!accept(p, ')')) return expected(p, "',' or ')' after an option");
  }
  *skeleton = mt_skeleton_standard((mt_skeleton_kind)kind);
  for (int i = 0; i < MT_SKELETON_OPTIONS; i++) {
    const mt_skeleton_option *option = &mt_skeleton_options[i];
    if (!mt_skeleton_knows(option, (mt_skeleton_kind)kind)) continue;
    /* Defaults again: they may depend on the options before. */
    option->set(skeleton, values[i] >= 0 ? values[i] : option->standard(skeleton));
  }
  return kind == MT_SKELETON_DEDICATE ? check_dedicate(p, name, skeleton) : MOTET_OK;
}

static motet_status keep_names(parser *p, mt_term *term) {
  const char **modules = MT_ARENA_NEW(p->arena, const char *, p->names.count);
  if (modules == NULL) return mt_error_memory(p->error, p->names.count * sizeof *modules, "module names");
  for (size_t i = 0; i < p->names.count; i++) {
    token name = p->names.data[i];
    char *copy = MT_ARENA_NEW(p->arena, char, name.length + 1);
    if (copy == NULL) return mt_error_memory(p->error, name.length + 1, "a module name");
    memcpy(copy, p->text + name.begin, name.length);
    modules[i] = copy;
  }
  term->modules = modules;
  term->module_count = (int32_t)p->names.count;
  return MOTET_OK;
}

static motet_status parse_term(parser *p, int32_t branch) {
  char c = next(p);
  mt_term term = {.branch = branch, .column = (int32_t)p->at + 1};
  if (c == '(' && branch > 0) return expected(p, "a term (branches do not nest)");
  token name = word(p);
  if (name.length == 0) return expected(p, "a skeleton or a module name");
  p->names.count = 0;
  c = next(p);
  if (c == '+' || c == ':') {
    if (!MT_ARRAY_PUSH(&p->names, name)) return mt_error_memory(p->error, sizeof name, "module names");
    while (accept(p, '+')) {
      name = word(p);
      if (name.length == 0) return expected(p, "a module name after '+'");
      if (!MT_ARRAY_PUSH(&p->names, name)) return mt_error_memory(p->error, sizeof name, "module names");
    }
    if (!accept(p, ':')) return expected(p, "'+' or ':' after a module name");
    motet_status status = keep_names(p, &term);
    if (status != MOTET_OK) return status;
    name = word(p);
    if (name.length == 0) return expected(p, "a skeleton after ':'");
  }
  motet_status status = parse_skeleton(p, name, &term.skeleton);
  if (status != MOTET_OK) return status;
  if (!MT_ARRAY_PUSH(&p->terms, term)) return mt_error_memory(p->error, sizeof term, "a schedule's terms");
  return MOTET_OK;
}

static motet_status parse_element(parser *p) {
  if (!accept(p, '(')) return parse_term(p, 0);
  int32_t branch = ++p->branches, count = 0;
  do {
    motet_status status = parse_term(p, branch);
    if (status != MOTET_OK) return status;
    count++;
  } while (accept(p, '|'));
  if (count < 2) return expected(p, "'|' and another branch");
  if (!accept(p, ')')) return expected(p, "'|' or ')' after a branch");
  return MOTET_OK;
}

static motet_status parse_all(parser *p) {
  if (!accept(p, '<')) return expected(p, "'<' at the schedule's begin");
  do {
    motet_status status = parse_element(p);
    if (status != MOTET_OK) return status;
  } while (accept(p, ','));
  if (!accept(p, '>')) return expected(p, "',' or '>' after a term");
  skip_space(p);
  if (p->at < p->length) return expected(p, "the end after '>'");
  return MOTET_OK;
}

motet_status mt_schedule_parse(mt_arena *arena, const char *text, motet_error *error, mt_schedule **result) {
  parser p = {.arena = arena, .error = error, .text = text, .length = strnlen(text, TEXT_BYTES_MAX + 1)};
  if (p.length > TEXT_BYTES_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "the schedule's text is longer than %d bytes", TEXT_BYTES_MAX);
  motet_status status = parse_all(&p);
  if (status == MOTET_OK) {
    mt_schedule *schedule = MT_ARENA_NEW(arena, mt_schedule, 1);
    mt_term *terms = MT_ARENA_NEW(arena, mt_term, p.terms.count);
    if (schedule == NULL || terms == NULL) {
      status = mt_error_memory(error, p.terms.count * sizeof *terms, "a schedule's terms");
    } else {
      memcpy(terms, p.terms.data, p.terms.count * sizeof *terms);
      *schedule = (mt_schedule){.term_count = (int32_t)p.terms.count, .terms = terms};
      *result = schedule;
    }
  }
  free(p.terms.data);
  free(p.names.data);
  return status;
}

static void append_term(mt_text *text, const mt_term *term) {
  for (int32_t i = 0; i < term->module_count; i++)
    mt_text_append(text, "%s%s", term->modules[i], i + 1 < term->module_count ? "+" : ": ");
  mt_skeleton_append(text, &term->skeleton);
}

char *mt_schedule_print(mt_arena *arena, const mt_schedule *schedule) {
  mt_text text = {0};
  mt_text_append(&text, "<");
  for (int32_t i = 0; i < schedule->term_count; i++) {
    const mt_term *term = &schedule->terms[i];
    bool inside = term->branch > 0 && i > 0 && schedule->terms[i - 1].branch == term->branch;
    bool goes_on =
        term->branch > 0 && i + 1 < schedule->term_count && schedule->terms[i + 1].branch == term->branch;
    mt_text_append(&text, "%s%s", i == 0 ? "" : inside ? " | " : ", ", term->branch > 0 && !inside ? "(" : "");
    append_term(&text, term);
    if (term->branch > 0 && !goes_on) mt_text_append(&text, ")");
  }
  mt_text_append(&text, ">");
  char *copy = text.failed ? NULL : mt_arena_text(arena, text.data);
  mt_text_free(&text);
  return copy;
}

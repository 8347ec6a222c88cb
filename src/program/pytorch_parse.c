#include "program/pytorch_csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct action_name {
  const char *name;
  mt_csv_kind kind;
  bool microbatch; /* a microbatch number follows */
} action_name;

/* The first name of a kind is the one that is written. */
static const action_name action_names[] = {
    {"F", MT_CSV_FORWARD, true},
    {"B", MT_CSV_BACKWARD, true},
    {"I", MT_CSV_BACKWARD_INPUT, true},
    {"W", MT_CSV_BACKWARD_WEIGHT, true},
    {"SEND_F", MT_CSV_SEND_FORWARD, true},
    {"RECV_F", MT_CSV_RECEIVE_FORWARD, true},
    {"SEND_B", MT_CSV_SEND_BACKWARD, true},
    {"RECV_B", MT_CSV_RECEIVE_BACKWARD, true},
    {"WAIT_SEND_F", MT_CSV_WAIT_SEND_FORWARD, true},
    {"WAIT_SEND_B", MT_CSV_WAIT_SEND_BACKWARD, true},
    {"FORWARD", MT_CSV_FORWARD, true},
    {"FULL_BACKWARD", MT_CSV_BACKWARD, true},
    {"BACKWARD_INPUT", MT_CSV_BACKWARD_INPUT, true},
    {"BACKWARD_WEIGHT", MT_CSV_BACKWARD_WEIGHT, true},
    {"UNSHARD", MT_CSV_SHARDING, false},
    {"RESHARD", MT_CSV_SHARDING, false},
    {"REDUCE_GRAD", MT_CSV_SHARDING, false},
    {"WAIT_REDUCE_GRAD", MT_CSV_SHARDING, false},
    {"OVERLAP_F_B", MT_CSV_OVERLAP, false},
};
enum { ACTION_NAMES = sizeof action_names / sizeof action_names[0] };

const char *mt_csv_name(mt_csv_kind kind) {
  for (int i = 0; i < ACTION_NAMES; i++)
    if (action_names[i].kind == kind) return action_names[i].name;
  return NULL;
}

void mt_csv_table_free(mt_csv_table *table) {
  free(table->actions.data);
  free(table->row_begin.data);
  *table = (mt_csv_table){0};
}

typedef struct parser {
  const char *path;
  const char *at, *end;
  int32_t line, cell;
  mt_csv_table *table;
  motet_error *error;
} parser;

static motet_status place(const parser *this, motet_status status) {
  char key[32];
  snprintf(key, sizeof key, "cell %d", this->cell);
  mt_error_place(this->error, this->path, this->line);
  mt_error_key(this->error, key);
  return status;
}

static motet_status bad_action(const parser *this, const char *text, size_t length, const char *problem) {
  int shown = length > 40 ? 40 : (int)length;
  return place(this, mt_error_set(this->error, MOTET_ERROR_PARSE,
                                  "line %d, cell %d: \"%.*s%s\" %s; an action is stage, name, microbatch, such as "
                                  "0F3, 2RECV_B1 or 1UNSHARD",
                                  this->line, this->cell, shown, text, length > 40 ? "..." : "", problem));
}

/* A number without sign; false where there is none or it is too large. */
static bool parse_number(const char **at, const char *end, int32_t *number) {
  const char *begin = *at;
  int64_t value = 0;
  for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
    value = value * 10 + (**at - '0');
    if (value > INT32_MAX) return false;
  }
  *number = (int32_t)value;
  return *at > begin;
}

static const action_name *find_name(const char *text, size_t length) {
  for (int i = 0; i < ACTION_NAMES; i++)
    if (strlen(action_names[i].name) == length && memcmp(action_names[i].name, text, length) == 0)
      return &action_names[i];
  return NULL;
}

static void trim(const char **text, const char **end) {
  while (*text < *end && (**text == ' ' || **text == '\t')) ++*text;
  while (*text < *end && ((*end)[-1] == ' ' || (*end)[-1] == '\t')) --*end;
}

static motet_status parse_single(parser *this, const char *text, const char *end) {
  size_t length = (size_t)(end - text);
  mt_csv_action action = {
      .microbatch = -1, .row = (int32_t)this->table->row_begin.count - 1, .line = this->line, .cell = this->cell};
  const char *at = text;
  if (!parse_number(&at, end, &action.stage)) return bad_action(this, text, length, "does not begin with a stage");
  const char *name = at;
  while (at < end && ((*at >= 'A' && *at <= 'Z') || *at == '_')) at++;
  const action_name *found = find_name(name, (size_t)(at - name));
  if (found == NULL || found->kind == MT_CSV_OVERLAP) return bad_action(this, text, length, "names no action");
  action.kind = found->kind;
  if (found->microbatch && !parse_number(&at, end, &action.microbatch))
    return bad_action(this, text, length, "has no microbatch");
  if (at < end) return bad_action(this, text, length, "goes on behind the action");
  if (!MT_ARRAY_PUSH(&this->table->actions, action))
    return mt_error_memory(this->error, this->table->actions.count * sizeof action, "actions");
  return MOTET_OK;
}

/* One cell: blank, an action, or (action;action)OVERLAP_F_B, which runs its parts one after the other. */
static motet_status parse_cell(parser *this, const char *text, const char *end) {
  trim(&text, &end);
  if (text == end) return MOTET_OK;
  if (*text != '(') return parse_single(this, text, end);
  const char *close = memchr(text, ')', (size_t)(end - text));
  if (close == NULL) return bad_action(this, text, (size_t)(end - text), "lacks its closing bracket");
  const action_name *name = find_name(close + 1, (size_t)(end - close - 1));
  if (name == NULL || name->kind != MT_CSV_OVERLAP)
    return bad_action(this, text, (size_t)(end - text), "is not an OVERLAP_F_B of the actions in brackets");
  for (const char *part = text + 1; part < close;) {
    const char *stop = memchr(part, ';', (size_t)(close - part));
    if (stop == NULL) stop = close;
    const char *next = stop < close ? stop + 1 : close, *last = stop;
    trim(&part, &last);
    motet_status status = parse_single(this, part, last);
    if (status != MOTET_OK) return status;
    part = next;
  }
  return MOTET_OK;
}

/* The content of a cell: quotes may stand around it; inside them a doubled quote would be a quote, which no action
 * has. Leaves the parser at the separator. */
static motet_status take_cell(parser *this) {
  const char *text = this->at, *end;
  while (text < this->end && (*text == ' ' || *text == '\t')) text++;
  if (text < this->end && *text == '"') {
    end = memchr(text + 1, '"', (size_t)(this->end - text - 1));
    if (end == NULL) return bad_action(this, text, 1, "begins a quoted cell that does not end");
    this->at = end + 1;
    while (this->at < this->end && (*this->at == ' ' || *this->at == '\t')) this->at++;
    if (this->at < this->end && *this->at != ',' && *this->at != '\r' && *this->at != '\n')
      return bad_action(this, text, (size_t)(this->at - text + 1), "goes on behind the closing quote");
    return parse_cell(this, text + 1, end);
  }
  while (this->at < this->end && *this->at != ',' && *this->at != '\r' && *this->at != '\n') this->at++;
  return parse_cell(this, text, this->at > text ? this->at : text);
}

static motet_status take_row(parser *this) {
  this->cell = 0;
  for (;;) {
    if (this->cell == INT32_MAX) return mt_error_set(this->error, MOTET_ERROR_LIMIT, "a row has too many cells");
    this->cell++;
    motet_status status = take_cell(this);
    if (status != MOTET_OK) return status;
    if (this->at == this->end) return MOTET_OK;
    char separator = *this->at++;
    if (separator == ',') continue;
    if (separator == '\r' && this->at < this->end && *this->at == '\n') this->at++;
    return MOTET_OK;
  }
}

motet_status mt_csv_parse(const char *path, const char *data, size_t bytes, motet_error *error,
                          mt_csv_table *table) {
  parser this = {.path = path, .at = data, .end = data + bytes, .table = table, .error = error};
  if (bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) this.at += 3;
  size_t last = 0; /* rows up to the last one with an action */
  while (this.at < this.end) {
    if (this.line == INT32_MAX) return mt_error_set(error, MOTET_ERROR_LIMIT, "%s has too many lines", path);
    this.line++;
    if (!MT_ARRAY_PUSH(&table->row_begin, (int64_t)table->actions.count))
      return mt_error_memory(error, table->row_begin.count * sizeof(int64_t), "rows");
    motet_status status = take_row(&this);
    if (status != MOTET_OK) return status;
    if ((int64_t)table->actions.count > table->row_begin.data[table->row_begin.count - 1])
      last = table->row_begin.count;
  }
  /* Blank lines at the end are no ranks. */
  table->row_begin.count = last;
  if (last == 0) {
    mt_error_set(error, MOTET_ERROR_PARSE, "%s holds no action; one row a rank is expected, such as 0F0,0B0", path);
    mt_error_place(error, path, 1);
    return MOTET_ERROR_PARSE;
  }
  if (!MT_ARRAY_PUSH(&table->row_begin, (int64_t)table->actions.count))
    return mt_error_memory(error, table->row_begin.count * sizeof(int64_t), "rows");
  return MOTET_OK;
}

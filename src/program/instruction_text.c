#include "program/check.h"
#include "program/json.h"

#include <string.h>

const char *mt_buffer_kind_name(int kind) {
  static const char *const names[] = {
      [MOTET_BUFFER_ACTIVATION] = "ACTIVATION",
      [MOTET_BUFFER_GRADIENT] = "GRADIENT",
      [MOTET_BUFFER_WEIGHT_GRADIENT] = "WEIGHT_GRADIENT",
      [MOTET_BUFFER_TIED_GRADIENT] = "TIED_GRADIENT",
      [MOTET_BUFFER_PARAMETER] = "PARAMETER",
  };
  return kind >= 0 && kind <= MOTET_BUFFER_PARAMETER ? names[kind] : NULL;
}

const char *mt_input_name(uint32_t bit) {
  switch (bit) {
  case MOTET_INPUT_PIXELS: return "pixels";
  case MOTET_INPUT_TOKENS: return "tokens";
  case MOTET_INPUT_LABELS: return "labels";
  default: return NULL;
  }
}

/* A field that an instruction states only where it differs from what its kind implies. */
typedef struct named_field {
  const char *name;
  size_t offset;
} named_field;

static const named_field named_fields[] = {
    {"stage", offsetof(motet_instruction, stage)},
    {"microbatch", offsetof(motet_instruction, microbatch)},
    {"range", offsetof(motet_instruction, range)},
    {"group", offsetof(motet_instruction, peer)},
};
static const struct {
  const char *word;
  int flag;
} flag_words[] = {{"recv", MOTET_FLAG_RECV}, {"next", MOTET_FLAG_NEXT}, {"joined", MOTET_FLAG_JOINED}};

enum { NAMED_FIELDS = sizeof named_fields / sizeof named_fields[0] };

/* The fields that follow the kind as bare numbers, by shape. */
static const size_t positional[][2] = {
    [MT_SHAPE_COMPUTE] = {offsetof(motet_instruction, stage), offsetof(motet_instruction, microbatch)},
    [MT_SHAPE_TRANSFER] = {offsetof(motet_instruction, buffer), offsetof(motet_instruction, peer)},
    [MT_SHAPE_COLLECTIVE] = {offsetof(motet_instruction, buffer), offsetof(motet_instruction, peer)},
    [MT_SHAPE_STEP_END] = {offsetof(motet_instruction, peer), 0},
};
static const int positional_count[] = {
    [MT_SHAPE_COMPUTE] = 2, [MT_SHAPE_TRANSFER] = 2, [MT_SHAPE_COLLECTIVE] = 2, [MT_SHAPE_STEP_END] = 1};

static int32_t get_field(const motet_instruction *instruction, size_t offset) {
  int32_t value;
  memcpy(&value, (const char *)instruction + offset, sizeof value);
  return value;
}

static void set_field(motet_instruction *instruction, size_t offset, int32_t value) {
  memcpy((char *)instruction + offset, &value, sizeof value);
}

/* The instruction that kind and positional fields imply. */
static motet_instruction implied(const motet_program *program, const motet_instruction *stated) {
  motet_instruction full = {.kind = stated->kind, .stage = -1, .microbatch = -1, .buffer = -1, .peer = -1};
  mt_instruction_shape shape = mt_instruction_shape_of(stated->kind);
  for (int i = 0; i < positional_count[shape]; i++)
    set_field(&full, positional[shape][i], get_field(stated, positional[shape][i]));
  if (shape != MT_SHAPE_TRANSFER && shape != MT_SHAPE_COLLECTIVE) return full;
  const motet_buffer *buffer = &program->buffers[full.buffer];
  full.stage = buffer->stage;
  full.microbatch = buffer->microbatch;
  full.range = buffer->range;
  return full;
}

void mt_instruction_append(mt_text *text, const motet_program *program, const motet_instruction *instruction) {
  mt_instruction_shape shape = mt_instruction_shape_of(instruction->kind);
  mt_text_append(text, "%s", motet_instruction_name(instruction->kind));
  for (int i = 0; i < positional_count[shape]; i++)
    mt_text_append(text, " %d", get_field(instruction, positional[shape][i]));
  for (size_t i = 0; i < sizeof flag_words / sizeof *flag_words; i++)
    if (instruction->flags & flag_words[i].flag) mt_text_append(text, " %s", flag_words[i].word);
  motet_instruction usual = implied(program, instruction);
  for (int f = 0; f < NAMED_FIELDS; f++) {
    int32_t value = get_field(instruction, named_fields[f].offset);
    if (value != get_field(&usual, named_fields[f].offset))
      mt_text_append(text, " %s=%d", named_fields[f].name, value);
  }
}

/* The next word of *text, separated by single spaces; its length, 0 at the end. */
static size_t next_word(const char **text, const char **word) {
  if (**text == ' ') ++*text;
  *word = *text;
  while (**text != '\0' && **text != ' ') ++*text;
  return (size_t)(*text - *word);
}

static bool parse_integer(const char *word, size_t length, int32_t *value) {
  bool negative = length > 0 && *word == '-';
  int64_t number = 0;
  if (negative) word++, length--;
  if (length == 0 || length > 10) return false;
  for (size_t i = 0; i < length; i++) {
    if (word[i] < '0' || word[i] > '9') return false;
    number = number * 10 + (word[i] - '0');
  }
  if (number > INT32_MAX) return false;
  *value = negative ? -(int32_t)number : (int32_t)number;
  return true;
}

static bool word_is(const char *word, size_t length, const char *name) {
  return strlen(name) == length && memcmp(word, name, length) == 0;
}

/* A word behind the positional fields: a flag, or name=value. */
static const char *parse_extra(const char *word, size_t length, motet_instruction *instruction) {
  for (size_t i = 0; i < sizeof flag_words / sizeof *flag_words; i++) {
    if (!word_is(word, length, flag_words[i].word)) continue;
    if (instruction->flags & flag_words[i].flag) return "a flag stands twice";
    instruction->flags = (uint8_t)(instruction->flags | flag_words[i].flag);
    return NULL;
  }
  const char *equals = memchr(word, '=', length);
  if (equals == NULL) return "a word is none of: recv, next, joined, stage=n, microbatch=n, range=n, group=n";
  for (int f = 0; f < NAMED_FIELDS; f++) {
    int32_t value;
    if (!word_is(word, (size_t)(equals - word), named_fields[f].name)) continue;
    if (!parse_integer(equals + 1, length - (size_t)(equals + 1 - word), &value)) return "a value is no integer";
    set_field(instruction, named_fields[f].offset, value);
    return NULL;
  }
  return "a name before = is none of: stage, microbatch, range, group";
}

const char *mt_instruction_parse(const motet_program *program, const char *text, motet_instruction *instruction) {
  const char *word;
  size_t length = next_word(&text, &word);
  motet_instruction stated = {.stage = -1, .microbatch = -1, .buffer = -1, .peer = -1};
  int kind = 0;
  while (kind < MOTET_INSTRUCTION_KINDS && !word_is(word, length, motet_instruction_name(kind))) kind++;
  if (kind == MOTET_INSTRUCTION_KINDS) return "it begins with no instruction kind";
  stated.kind = (uint8_t)kind;
  mt_instruction_shape shape = mt_instruction_shape_of(kind);
  for (int i = 0; i < positional_count[shape]; i++) {
    int32_t value;
    length = next_word(&text, &word);
    if (!parse_integer(word, length, &value)) return "its kind must be followed by its numbers";
    set_field(&stated, positional[shape][i], value);
  }
  bool buffered = shape == MT_SHAPE_TRANSFER || shape == MT_SHAPE_COLLECTIVE;
  if (buffered && (stated.buffer < 0 || stated.buffer >= program->buffer_count))
    return "its buffer is not in the buffer table";
  *instruction = implied(program, &stated);
  while (*text != '\0') {
    length = next_word(&text, &word);
    if (length == 0) return "words are separated by single spaces";
    const char *wrong = parse_extra(word, length, instruction);
    if (wrong != NULL) return wrong;
  }
  return NULL;
}

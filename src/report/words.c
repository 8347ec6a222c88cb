#include "report/words.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void mt_words_stage(mt_text *text, const motet_program *program, int32_t stage) {
  const motet_program_stage *of = &program->stages[stage];
  const motet_program_region *region = &program->regions[of->region];
  mt_text_append(text, "%s", region->name);
  if (!region->replicated) mt_text_append(text, ".%d", of->slab);
}

void mt_words_instruction(mt_text *text, const motet_program *program, int64_t place) {
  const motet_instruction *instruction = &program->instructions[place];
  mt_text_append(text, "%s", motet_instruction_name(instruction->kind));
  if (instruction->stage >= 0) {
    mt_text_append(text, " of ");
    mt_words_stage(text, program, instruction->stage);
  }
  if (instruction->microbatch >= 0) mt_text_append(text, ", microbatch %d", instruction->microbatch);
  if (instruction->kind == MOTET_SEND) mt_text_append(text, ", to rank %d", instruction->peer);
  if (instruction->kind == MOTET_RECV) mt_text_append(text, ", from rank %d", instruction->peer);
  if (instruction->kind == MOTET_WAIT)
    mt_text_append(text, ", %s rank %d", (instruction->flags & MOTET_FLAG_RECV) != 0 ? "from" : "to",
                   instruction->peer);
  if (instruction->flags & MOTET_FLAG_NEXT) mt_text_append(text, " of the next step");
  if (instruction->flags & MOTET_FLAG_JOINED) mt_text_append(text, ", joined with the next");
}

void mt_words_key(mt_text *text, const char *key) {
  for (; *key != '\0'; key++) mt_text_append(text, "%c", *key == '_' ? ' ' : *key);
}

void mt_words_bytes(mt_text *text, int64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = (double)bytes;
  size_t unit = 0;
  for (; fabs(value) >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++) value /= 1024;
  mt_words_number(text, value, 4);
  mt_text_append(text, " %s", units[unit]);
}

void mt_words_flops(mt_text *text, double flops) {
  static const char *const units[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
  size_t unit = 0;
  for (; fabs(flops) >= 1000 && unit + 1 < sizeof units / sizeof *units; unit++) flops /= 1000;
  mt_words_number(text, flops, 4);
  mt_text_append(text, " %sFLOP", units[unit]);
}

mt_words_unit mt_words_time_unit(double largest) {
  if (largest >= 1.0 || !(largest > 0)) return (mt_words_unit){"s", 1.0};
  if (largest >= 1e-3) return (mt_words_unit){"ms", 1e3};
  return (mt_words_unit){"us", 1e6};
}

void mt_words_number(mt_text *text, double value, int digits) {
  char buffer[64];
  double size = fabs(value);
  if (size > 0 && (size < 1e-4 || size >= 1e15)) {
    mt_text_append(text, "%.*g", digits, value);
    return;
  }
  int before = size >= 1 ? (int)floor(log10(size)) + 1 : size > 0 ? (int)floor(log10(size)) + 2 : 1;
  snprintf(buffer, sizeof buffer, "%.*f", before >= digits ? 0 : digits - before, value);
  if (strchr(buffer, '.') != NULL) {
    size_t length = strlen(buffer);
    while (buffer[length - 1] == '0') buffer[--length] = '\0';
    if (buffer[length - 1] == '.') buffer[--length] = '\0';
  }
  mt_text_append(text, "%s", strcmp(buffer, "-0") == 0 ? "0" : buffer);
}

int mt_words_columns(const char *text) {
  int columns = 0;
  for (; *text != '\0'; text++) columns += ((unsigned char)*text & 0xc0) != 0x80;
  return columns;
}

void mt_words_pad(mt_text *text, size_t from, int columns) {
  int there = text->data != NULL && text->length > from ? mt_words_columns(text->data + from) : 0;
  for (; there < columns; there++) mt_text_append(text, " ");
}

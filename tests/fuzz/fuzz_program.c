/* Program JSON from arbitrary bytes. What is accepted must be safe to walk: to hash, to verify and to write; and
 * what was written, times too, must be read as the same program. */
#include "program/json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  motet_program *program, *again;
  mt_program_times times, times_again;
  if (mt_program_parse((const char *)data, size, "fuzz", &error, &program, &times) != MOTET_OK) {
    if (error.text[0] == '\0' || program != NULL) abort();
    return 0;
  }
  mt_text text = {0};
  if (mt_program_print(program, &times, &error, &text) != MOTET_OK) abort();
  if (mt_program_parse(text.data, text.length, "written", &error, &again, &times_again) != MOTET_OK) abort();
  if (times.known != times_again.known) abort();
  if (motet_program_digest(program) != motet_program_digest(again)) abort();
  const motet_verify_options options = {.check_blocking = true};
  motet_verification verification;
  (void)motet_verify(program, &options, &error, &verification);
  motet_verification_free(&verification);
  mt_text_free(&text);
  motet_program_destroy(again);
  motet_program_destroy(program);
  return 0;
}

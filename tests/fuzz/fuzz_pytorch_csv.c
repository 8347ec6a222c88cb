/* A PyTorch pipelining CSV from arbitrary bytes. What is accepted can be written as program JSON and as CSV, and
 * the CSV, read again, is written the same. */
#include "program/json.h"
#include "program/pytorch_csv.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  motet_program *program, *again;
  if (mt_program_parse_pytorch_csv((const char *)data, size, "fuzz", MOTET_PLACEMENT_AUTO, &error, &program) !=
      MOTET_OK) {
    if (error.text[0] == '\0' || program != NULL) abort();
    return 0;
  }
  mt_text json = {0}, first = {0}, second = {0};
  if (mt_program_print(program, NULL, &error, &json) != MOTET_OK) abort();
  if (mt_program_print_pytorch_csv(program, true, &error, &first) != MOTET_OK) abort();
  if (mt_program_parse_pytorch_csv(first.data, first.length, "written", MOTET_PLACEMENT_AUTO, &error, &again) !=
          MOTET_OK ||
      mt_program_print_pytorch_csv(again, true, &error, &second) != MOTET_OK)
    abort();
  /* Ranks without work at the end are not told apart from blank lines. */
  size_t same = second.length < first.length ? second.length : first.length;
  if (memcmp(first.data, second.data, same) != 0 || second.length > first.length ||
      strspn(first.data + same, "\r\n") != first.length - same)
    abort();
  const motet_verify_options options = {.check_blocking = true};
  motet_verification verification;
  (void)motet_verify(program, &options, &error, &verification);
  motet_verification_free(&verification);
  mt_text_free(&json);
  mt_text_free(&first);
  mt_text_free(&second);
  motet_program_destroy(again);
  motet_program_destroy(program);
  return 0;
}

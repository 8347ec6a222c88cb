/* Right programs are accepted, whoever makes them. */
#include "program_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DRAWS = 3000 };

static void test_drawn_programs_are_accepted(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < DRAWS; seed++) {
    mt_random random = mt_random_stream(seed, "accepts");
    motet_program *program = program_draw(&random);
    motet_error error;
    motet_status status = motet_verify(program, NULL, &error, NULL);
    if (status != MOTET_OK)
      fail_msg("seed %llu: %s: %s (rank %d, instruction %lld)", (unsigned long long)seed, error.rule, error.text,
               error.rank, error.instruction);
    program_free(program);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_drawn_programs_are_accepted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

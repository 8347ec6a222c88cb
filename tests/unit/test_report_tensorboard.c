#include "report/tensorboard.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* RFC 3720, appendix B.4. */
static void test_crc32c(void **state) {
  (void)state;
  unsigned char bytes[32] = {0};
  assert_int_equal(mt_crc32c(bytes, 32), 0x8a9136aau);
  memset(bytes, 0xff, sizeof bytes);
  assert_int_equal(mt_crc32c(bytes, 32), 0x62a8ab43u);
  for (unsigned char i = 0; i < 32; i++) bytes[i] = i;
  assert_int_equal(mt_crc32c(bytes, 32), 0x46dd794eu);
  for (unsigned char i = 0; i < 32; i++) bytes[i] = (unsigned char)(31 - i);
  assert_int_equal(mt_crc32c(bytes, 32), 0x113fdb5cu);
  assert_int_equal(mt_crc32c("123456789", 9), 0xe3069283u); /* the check value of the catalogues */
}

/* Wire form by hand: field number times eight plus wire type, then the value. */
static void test_event_bytes(void **state) {
  (void)state;
  static const unsigned char expected[] = {
      0x09, 0,    0,    0,    0,    0,   0, 0xf8, 0x3f, /* 1, a double: 1.5 */
      0x10, 0xac, 0x02,                                 /* 2, a varint: 300 */
      0x2a, 0x0d,                                       /* 5, 13 bytes: the summary */
      0x0a, 0x0b,                                       /* 1, 11 bytes: a value */
      0x0a, 4,    'l',  'o',  's',  's',                /* 1, 4 bytes: the tag */
      0x15, 0,    0,    0x20, 0xc0,                     /* 2, a float: -2.5 */
  };
  const mt_tensorboard_scalar scalars[] = {{"loss", -2.5}, {"mfu", NAN}};
  mt_text event = {0};
  mt_tensorboard_event(&event, 1.5, 300, scalars, 2);
  assert_int_equal(event.length, sizeof expected);
  assert_memory_equal(event.data, expected, sizeof expected);
  mt_text_free(&event);
}

static void test_record_frame(void **state) {
  (void)state;
  mt_text record = {0};
  mt_tensorboard_record(&record, "123456789", 9);
  assert_int_equal(record.length, 8 + 4 + 9 + 4);
  assert_memory_equal(record.data, "\x09\0\0\0\0\0\0\0", 8);
  assert_memory_equal(record.data + 12, "123456789", 9);
  uint32_t found = 0;
  for (int i = 0; i < 4; i++) found |= (uint32_t)(unsigned char)record.data[21 + i] << 8 * i;
  uint32_t turned = found - 0xa282ead8u;
  assert_int_equal(turned >> 17 | turned << 15, 0xe3069283u);
  mt_text_free(&record);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_crc32c),
      cmocka_unit_test(test_event_bytes),
      cmocka_unit_test(test_record_frame),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

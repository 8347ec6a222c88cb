#include "data/tokenizer.h"
#include "data/unicode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <jansson.h>

static mt_tokenizer *tokenizer_of(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/tokenizer/%s.json", MOTET_TEST_DATA, name);
  motet_error error;
  mt_tokenizer *tokenizer;
  if (mt_tokenizer_read(path, &error, &tokenizer) != MOTET_OK) fail_msg("%s", error.text);
  return tokenizer;
}

static void check_decoding(const mt_tokenizer *tokenizer, const json_t *ids, bool skip, const json_t *expected) {
  int32_t given[4096];
  size_t count = json_array_size(ids);
  assert_true(count <= 4096);
  for (size_t i = 0; i < count; i++) given[i] = (int32_t)json_integer_value(json_array_get(ids, i));
  mt_text text = {0};
  motet_error error;
  assert_int_equal(mt_tokenizer_decode(tokenizer, given, count, skip, &error, &text), MOTET_OK);
  if (text.length != json_string_length(expected) ||
      (text.length > 0 && memcmp(text.data, json_string_value(expected), text.length) != 0))
    fail_msg("decoded '%s', the reference '%s'", text.data, json_string_value(expected));
  mt_text_free(&text);
}

/* Ids and texts that HuggingFace's tokenizers computed: tools/make_tokenizer_fixtures.py. */
static void check_cases(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/tokenizer/%s_cases.json", MOTET_TEST_DATA, name);
  json_error_t where;
  json_t *cases = json_load_file(path, JSON_ALLOW_NUL, &where);
  assert_true(json_array_size(cases) > 100);
  mt_tokenizer *tokenizer = tokenizer_of(name);
  int wrong = 0;
  for (size_t i = 0; i < json_array_size(cases); i++) {
    const json_t *item = json_array_get(cases, i), *text = json_object_get(item, "text"),
                 *ids = json_object_get(item, "ids");
    mt_tokens tokens = {0};
    motet_error error;
    assert_int_equal(
        mt_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), &error, &tokens),
        MOTET_OK);
    bool same = tokens.count == json_array_size(ids);
    for (size_t t = 0; same && t < tokens.count; t++)
      same = tokens.data[t] == json_integer_value(json_array_get(ids, t));
    if (!same) {
      wrong++;
      print_error("%s, text %zu: \"%s\"\n  got", name, i, json_string_value(text));
      for (size_t t = 0; t < tokens.count; t++) print_error(" %d", (int)tokens.data[t]);
      print_error("\n  not");
      for (size_t t = 0; t < json_array_size(ids); t++)
        print_error(" %d", (int)json_integer_value(json_array_get(ids, t)));
      print_error("\n");
    }
    free(tokens.data);
    check_decoding(tokenizer, ids, false, json_object_get(item, "decoded"));
    check_decoding(tokenizer, ids, true, json_object_get(item, "plain"));
  }
  assert_int_equal(wrong, 0);
  mt_tokenizer_destroy(tokenizer);
  json_decref(cases);
}

static void test_qwen2_form(void **state) {
  (void)state;
  check_cases("qwen2");
}

static void test_gpt2_form(void **state) {
  (void)state;
  check_cases("gpt2");
}

static void test_llama3_form(void **state) {
  (void)state;
  check_cases("llama3");
}

static void test_internlm2_form(void **state) {
  (void)state;
  check_cases("internlm2");
}

static void test_metaspace_form(void **state) {
  (void)state;
  check_cases("metaspace");
}

static void test_finds_tokens(void **state) {
  (void)state;
  mt_tokenizer *tokenizer = tokenizer_of("qwen2");
  assert_int_equal(mt_tokenizer_vocabulary(tokenizer), 660);
  assert_int_equal(mt_tokenizer_find(tokenizer, "<|endoftext|>"), 654);
  assert_int_equal(mt_tokenizer_find(tokenizer, "<IMG_CONTEXT>"), 659);
  assert_int_equal(mt_tokenizer_find(tokenizer, "<IMG"), -1);
  mt_tokens tokens = {0};
  motet_error error;
  int32_t the = mt_tokenizer_find(tokenizer, " the");
  assert_true(the >= 0);
  assert_int_equal(mt_tokenizer_encode(tokenizer, " the", 4, &error, &tokens), MOTET_OK);
  assert_int_equal(tokens.count, 1);
  assert_int_equal(tokens.data[0], the);
  /* What is not UTF-8 is refused, and nothing is appended. */
  assert_int_equal(mt_tokenizer_encode(tokenizer, "ok \xc3(", 5, &error, &tokens), MOTET_ERROR_PARSE);
  assert_non_null(strstr(error.text, "place 3"));
  assert_int_equal(tokens.count, 1);
  mt_text text = {0};
  assert_int_equal(mt_tokenizer_decode(tokenizer, (int32_t[]){660}, 1, false, &error, &text), MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_tokenizer_decode(tokenizer, (int32_t[]){-1}, 1, false, &error, &text), MOTET_ERROR_ARGUMENT);
  mt_text_free(&text);
  free(tokens.data);
  mt_tokenizer_destroy(tokenizer);
}

/* Half characters, as generation produces them, against the Unicode standard's practice (table 3-8). */
static void test_replaces_ill_formed_bytes(void **state) {
  (void)state;
  static const struct {
    const char *bytes, *text;
  } cases[] = {
      {"a\xf0\x9f\x91", "a\xef\xbf\xbd"},
      {"\xf0\x9f\x91x", "\xef\xbf\xbdx"},
      {"\x80\xbf", "\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\x41"},
      {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42",
       "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\x41\xef\xbf\xbd\xef\xbf\xbd\x42"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mt_text text = {0};
    mt_unicode_append_lossy(&text, cases[i].bytes, strlen(cases[i].bytes));
    assert_string_equal(text.data, cases[i].text);
    mt_text_free(&text);
  }
}

#define BYTE_LEVEL "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define MODEL(rest) "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}," rest "}"
#define PLAIN MODEL("\"merges\":[\"a b\"]")

static void test_refuses_what_it_does_not_know(void **state) {
  (void)state;
  static const struct {
    const char *json, *key, *text;
  } cases[] = {
      {"{", "", "not JSON"},
      {"{}", "model.type", "(none)"},
      {"{\"model\":{\"type\":\"Unigram\"}}", "model.type", "Unigram"},
      {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1}}", "dropout", "dropout"},
      {"{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true}," BYTE_LEVEL "}", "byte_fallback", "byte_fallback"},
      {"{" MODEL("\"byte_fallback\":true,\"merges\":[]") "}", "byte_fallback", "without a token <0x00>"},
      {"{" MODEL("\"byte_fallback\":7,\"merges\":[]") ",\"pre_tokenizer\":{\"type\":\"Metaspace\"}}",
       "byte_fallback", "neither"},
      {"{\"model\":{\"type\":\"BPE\",\"vocab\":[]}}", "model.vocab", "vocab"},
      {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "model.vocab", "two tokens have the id 0"},
      {"{\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", "", "duplicate"},
      {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "model.vocab", "id of token"},
      {"{\"model\":{\"vocab\":{\"a\":1e3},\"merges\":[]}}", "model.vocab", "id of token"},
      {"{\"model\":{\"vocab\":{\"a\":4194304},\"merges\":[]}}", "model.vocab", "id of token"},
      {"{\"model\":{\"vocab\":{\"a\":0}}}", "model.merges", "merges"},
      {"{" MODEL("\"merges\":[\"ab\"]") "}", "model.merges[0]", "neither"},
      {"{" MODEL("\"merges\":[\"a b\",\"a b c\"]") "}", "model.merges[1]", "neither"},
      {"{" MODEL("\"merges\":[[\"a\"]]") "}", "model.merges[0]", "neither"},
      {"{" MODEL("\"merges\":[[\"a\",7]]") "}", "model.merges[0]", "neither"},
      {"{" MODEL("\"merges\":[\"c a\"]") "}", "model.merges[0]", "starts with"},
      {"{" MODEL("\"merges\":[\"a c\"]") "}", "model.merges[0]", "ends with"},
      {"{" MODEL("\"merges\":[\"b a\"]") "}", "model.merges[0]", "gives"},
      {"{" PLAIN ",\"normalizer\":{\"type\":\"Lowercase\"}}", "normalizer", "Lowercase"},
      {"{" PLAIN "}", "pre_tokenizer", "(none)"},
      {"{" PLAIN ",\"pre_tokenizer\":{\"type\":\"Metaspace\"}}", "pre_tokenizer", "Metaspace"},
      {"{" PLAIN ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[]}}", "pre_tokenizer",
       "sequence of 0"},
      {"{" PLAIN ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":"
       "\"Removed\",\"pattern\":{\"String\":\" \"}},{\"type\":\"ByteLevel\"}]}}",
       "pre_tokenizer", "Removed"},
      {"{" PLAIN ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":"
       "\"Isolated\",\"pattern\":{\"Regex\":\"(\"}},{\"type\":\"ByteLevel\"}]}}",
       "pre_tokenizer", "is wrong"},
      {"{" PLAIN ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":"
       "\"Isolated\",\"pattern\":{\"Regex\":\"\\\\h\"}},{\"type\":\"ByteLevel\"}]}}",
       "pre_tokenizer", "\\h"},
      {"{" PLAIN "," BYTE_LEVEL ",\"added_tokens\":{}}", "added_tokens", "not a list"},
      {"{" PLAIN "," BYTE_LEVEL ",\"added_tokens\":[{\"content\":\"<x>\"}]}", "added_tokens",
       "id of added token 0"},
      {"{" PLAIN "," BYTE_LEVEL ",\"added_tokens\":[{\"id\":3,\"content\":\"\"}]}", "added_tokens[0]", "content"},
      {"{" PLAIN "," BYTE_LEVEL ",\"added_tokens\":[{\"id\":2,\"content\":\"<x>\"}]}", "added_tokens[0]",
       "contradicts"},
      {"{" PLAIN "," BYTE_LEVEL ",\"added_tokens\":[{\"id\":3,\"content\":\"ab\"}]}", "added_tokens[0]",
       "contradicts"},
      {"{" PLAIN "," BYTE_LEVEL ",\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"lstrip\":1}]}", "lstrip",
       "neither"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    motet_error error;
    motet_error_clear(&error);
    mt_tokenizer *tokenizer = (mt_tokenizer *)&error;
    motet_status status = mt_tokenizer_parse(cases[i].json, strlen(cases[i].json), "t.json", &error, &tokenizer);
    if (status == MOTET_OK || strstr(error.text, cases[i].text) == NULL || strcmp(error.key, cases[i].key) != 0)
      fail_msg("%s: status %d, key '%s', text '%s'", cases[i].json, status, error.key, error.text);
    assert_string_equal(error.file, "t.json");
    assert_null(tokenizer);
  }
  motet_error error;
  mt_tokenizer *tokenizer;
  assert_int_equal(mt_tokenizer_read("/nonexistent", &error, &tokenizer), MOTET_ERROR_IO);
  const char *json = "{" PLAIN "," BYTE_LEVEL "}";
  assert_int_equal(mt_tokenizer_parse(json, strlen(json), "t.json", &error, &tokenizer), MOTET_OK);
  mt_tokens tokens = {0};
  assert_int_equal(mt_tokenizer_encode(tokenizer, "abab", 4, &error, &tokens), MOTET_OK);
  assert_int_equal(tokens.count, 2);
  assert_int_equal(mt_tokenizer_encode(tokenizer, "abc", 3, &error, &tokens), MOTET_ERROR_PARSE);
  assert_non_null(strstr(error.text, "0x63"));
  free(tokens.data);
  mt_tokenizer_destroy(tokenizer);
}

/* One word of a million letters: quadratic merging would take minutes. */
static void test_long_words_are_fast(void **state) {
  (void)state;
  mt_tokenizer *tokenizer = tokenizer_of("qwen2");
  enum { LETTERS = 1000000 };
  char *word = malloc(LETTERS);
  for (int i = 0; i < LETTERS; i++) word[i] = "the"[i % 3];
  mt_tokens tokens = {0};
  motet_error error;
  clock_t start = clock();
  assert_int_equal(mt_tokenizer_encode(tokenizer, word, LETTERS, &error, &tokens), MOTET_OK);
  assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 20);
  mt_text text = {0};
  assert_int_equal(mt_tokenizer_decode(tokenizer, tokens.data, tokens.count, false, &error, &text), MOTET_OK);
  assert_int_equal(text.length, LETTERS);
  assert_memory_equal(text.data, word, LETTERS);
  mt_text_free(&text);
  free(tokens.data);
  free(word);
  mt_tokenizer_destroy(tokenizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_qwen2_form),
      cmocka_unit_test(test_gpt2_form),
      cmocka_unit_test(test_llama3_form),
      cmocka_unit_test(test_internlm2_form),
      cmocka_unit_test(test_metaspace_form),
      cmocka_unit_test(test_finds_tokens),
      cmocka_unit_test(test_replaces_ill_formed_bytes),
      cmocka_unit_test(test_refuses_what_it_does_not_know),
      cmocka_unit_test(test_long_words_are_fast),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

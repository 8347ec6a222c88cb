#include "base/text.h"
#include "data/tokenizer.h"
#include "data/tokenizer_form.h"
#include "data/unicode.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_VOCABULARY = 1 << 22 };

/* The expression of ByteLevel's own cutting (GPT-2). */
static const char *const BYTE_LEVEL_PATTERN =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* at_fault(error, name, key, status, format, ...): an error with file and key. */
#define at_fault(error, name, key, ...) (place_error((error), (name), (key), mt_error_set((error), __VA_ARGS__)))

static motet_status place_error(motet_error *error, const char *name, const char *key, motet_status status) {
  mt_error_place(error, name, 0);
  mt_error_key(error, key);
  return status;
}

static motet_status no_memory(motet_error *error) { return mt_error_memory(error, 0, "a tokenizer"); }

/* A boolean field, `fallback` where it is absent or null. */
static motet_status read_flag(const json_t *object, const char *key, bool fallback, const char *name,
                              motet_error *error, bool *flag) {
  const json_t *value = json_object_get(object, key);
  *flag = fallback;
  if (value == NULL || json_is_null(value)) return MOTET_OK;
  if (!json_is_boolean(value))
    return at_fault(error, name, key, MOTET_ERROR_PARSE, "\"%s\" in %s is neither true nor false", key, name);
  *flag = json_is_true(value);
  return MOTET_OK;
}

static const char *type_of(const json_t *object) {
  const char *type = json_string_value(json_object_get(object, "type"));
  return type == NULL ? "(none)" : type;
}

/* ---- normalizer ---- */

static motet_status read_normalizer(mt_tokenizer *tokenizer, const json_t *normalizer, int depth,
                                    motet_error *error) {
  static const struct {
    const char *type;
    int options;
  } forms[] = {{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
               {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
               {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
               {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  if (normalizer == NULL || json_is_null(normalizer)) return MOTET_OK;
  const char *type = type_of(normalizer);
  if (strcmp(type, "Sequence") == 0 && depth == 0) {
    const json_t *parts = json_object_get(normalizer, "normalizers");
    for (size_t i = 0; i < json_array_size(parts); i++) {
      motet_status status = read_normalizer(tokenizer, json_array_get(parts, i), depth + 1, error);
      if (status != MOTET_OK) return status;
    }
    return MOTET_OK;
  }
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (strcmp(type, forms[i].type) == 0 && tokenizer->form_count < MT_TOKENIZER_MAX_STEPS) {
      tokenizer->forms[tokenizer->form_count++] = (utf8proc_option_t)forms[i].options;
      return MOTET_OK;
    }
  return at_fault(error, tokenizer->name, "normalizer", MOTET_ERROR_UNSUPPORTED,
                  "%s: the normalizer %s is not supported; NFC, NFD, NFKC, NFKD, Sequence and null are",
                  tokenizer->name, type);
}

/* ---- pre-tokenizer ---- */

/*
 * Rewrites a pattern of Oniguruma (Ruby's syntax, as HuggingFace reads it) for PCRE2. White space is spelt out,
 * since PCRE2 counts U+180E in; escapes whose meaning differs are refused. False, with the letter, for these.
 */
static bool translate_pattern(const char *pattern, size_t bytes, mt_text *target, char *refused) {
  static const char spaces[] = "\\x{9}-\\x{d}\\x{85}\\p{Z}";
  bool in_class = false;
  for (size_t i = 0; i < bytes; i++) {
    char letter = pattern[i];
    if (letter != '\\' || i + 1 == bytes) {
      if (letter == '[') in_class = true;
      if (letter == ']') in_class = false;
      mt_text_bytes(target, &letter, 1);
      continue;
    }
    char escaped = pattern[++i];
    bool is_letter = (escaped >= 'a' && escaped <= 'z') || (escaped >= 'A' && escaped <= 'Z');
    if (escaped == 's' || (escaped == 'S' && !in_class)) {
      mt_text_append(target, in_class ? "%s%s%s" : "[%s%s%s", escaped == 'S' ? "^" : "", spaces,
                     in_class ? "" : "]");
    } else if (is_letter && strchr("dDnrtfvxpP", escaped) == NULL) {
      *refused = escaped;
      return false;
    } else {
      mt_text_bytes(target, pattern + i - 1, 2);
    }
  }
  return true;
}

/* Text that is matched as it stands. */
static void quote_pattern(const char *text, size_t bytes, mt_text *target) {
  for (size_t i = 0; i < bytes; i++) {
    if (strchr("\\^$.[]|()?*+{}#-", text[i]) != NULL && text[i] != '\0') mt_text_bytes(target, "\\", 1);
    mt_text_bytes(target, text + i, 1);
  }
}

static motet_status compile(mt_tokenizer *tokenizer, const char *pattern, size_t bytes, motet_error *error) {
  const char *key = "pre_tokenizer";
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (context == NULL) return no_memory(error);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int reason;
  PCRE2_SIZE place;
  pcre2_code *code =
      pcre2_compile((PCRE2_SPTR)pattern, bytes, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &reason, &place, context);
  pcre2_compile_context_free(context);
  if (code == NULL) {
    PCRE2_UCHAR text[128];
    pcre2_get_error_message(reason, text, sizeof text);
    return at_fault(error, tokenizer->name, key, MOTET_ERROR_PARSE, "%s: the expression \"%.200s\" is wrong: %s",
                    tokenizer->name, pattern, (const char *)text);
  }
  /* Where there is no compiler for this processor the interpreter matches the same. */
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  tokenizer->steps[tokenizer->step_count++].code = code;
  return MOTET_OK;
}

static motet_status read_split(mt_tokenizer *tokenizer, const json_t *split, motet_error *error) {
  const char *name = tokenizer->name, *key = "pre_tokenizer";
  const json_t *pattern = json_object_get(split, "pattern"), *regex = json_object_get(pattern, "Regex"),
               *plain = json_object_get(pattern, "String"), *source = regex != NULL ? regex : plain;
  const char *behavior = json_string_value(json_object_get(split, "behavior"));
  if (!json_is_string(source) || json_string_length(source) == 0)
    return at_fault(error, name, key, MOTET_ERROR_PARSE, "%s: a Split without \"Regex\" or \"String\"", name);
  if (behavior == NULL || strcmp(behavior, "Isolated") != 0)
    return at_fault(error, name, key, MOTET_ERROR_UNSUPPORTED,
                    "%s: Split's behavior %s is not supported; Isolated is", name,
                    behavior == NULL ? "(none)" : behavior);
  /* "invert" swaps what is matched and what is not: both are kept, so that it changes nothing. */
  mt_text translated = {0};
  char refused = 0;
  if (regex == NULL)
    quote_pattern(json_string_value(source), json_string_length(source), &translated);
  else if (!translate_pattern(json_string_value(source), json_string_length(source), &translated, &refused))
    refused = refused == 0 ? '?' : refused;
  motet_status status;
  if (refused != 0)
    status = at_fault(error, name, key, MOTET_ERROR_UNSUPPORTED,
                      "%s: \\%c in the expression \"%.200s\" is not supported", name, refused,
                      json_string_value(source));
  else
    status = translated.failed ? no_memory(error) : compile(tokenizer, translated.data, translated.length, error);
  mt_text_free(&translated);
  return status;
}

static motet_status read_byte_level(mt_tokenizer *tokenizer, const json_t *byte_level, motet_error *error) {
  bool prefix, cut;
  motet_status status = read_flag(byte_level, "add_prefix_space", true, tokenizer->name, error, &prefix);
  if (status == MOTET_OK) status = read_flag(byte_level, "use_regex", true, tokenizer->name, error, &cut);
  if (status != MOTET_OK) return status;
  if (prefix) tokenizer->steps[tokenizer->step_count++].code = NULL;
  if (!cut) return MOTET_OK;
  mt_text translated = {0};
  char refused;
  (void)translate_pattern(BYTE_LEVEL_PATTERN, strlen(BYTE_LEVEL_PATTERN), &translated, &refused);
  status = translated.failed ? no_memory(error) : compile(tokenizer, translated.data, translated.length, error);
  mt_text_free(&translated);
  return status;
}

static motet_status read_pre_tokenizer(mt_tokenizer *tokenizer, const json_t *pre_tokenizer, motet_error *error) {
  const char *name = tokenizer->name, *key = "pre_tokenizer";
  bool sequence = strcmp(type_of(pre_tokenizer), "Sequence") == 0;
  const json_t *parts = json_object_get(pre_tokenizer, "pretokenizers");
  size_t count = sequence ? json_array_size(parts) : 1;
  /* ByteLevel takes two steps and comes last, once. */
  if (count == 0 || count > MT_TOKENIZER_MAX_STEPS - 1)
    return at_fault(error, name, key, MOTET_ERROR_UNSUPPORTED,
                    "%s: a sequence of %zu pre-tokenizers; 1 to %d are supported", name, count,
                    MT_TOKENIZER_MAX_STEPS - 1);
  for (size_t i = 0; i < count; i++) {
    const json_t *part = sequence ? json_array_get(parts, i) : pre_tokenizer;
    const char *type = type_of(part);
    bool last = i + 1 == count;
    motet_status status;
    if (strcmp(type, "ByteLevel") == 0 && last)
      status = read_byte_level(tokenizer, part, error);
    else if (strcmp(type, "Split") == 0 && !last)
      status = read_split(tokenizer, part, error);
    else
      return at_fault(error, name, key, MOTET_ERROR_UNSUPPORTED,
                      "%s: pre-tokenizer %s at place %zu; Split and, as the last one, ByteLevel are supported",
                      name, type, i);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

/* ---- vocabulary and merges ---- */

static motet_status check_model(const json_t *model, const char *name, motet_error *error) {
  static const char *const must_be_empty[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
  const char *type = type_of(model);
  /* Older files do not name the type. */
  if (!json_is_object(model) || (strcmp(type, "BPE") != 0 && strcmp(type, "(none)") != 0))
    return at_fault(error, name, "model.type", MOTET_ERROR_UNSUPPORTED, "%s: model %s is not supported; BPE is",
                    name, type);
  for (size_t i = 0; i < sizeof must_be_empty / sizeof *must_be_empty; i++) {
    const json_t *value = json_object_get(model, must_be_empty[i]);
    bool empty = value == NULL || json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0);
    if (!empty)
      return at_fault(error, name, must_be_empty[i], MOTET_ERROR_UNSUPPORTED, "%s: model.%s is not supported", name,
                      must_be_empty[i]);
  }
  bool fallback;
  motet_status status = read_flag(model, "byte_fallback", false, name, error, &fallback);
  if (status == MOTET_OK && fallback)
    return at_fault(error, name, "byte_fallback", MOTET_ERROR_UNSUPPORTED,
                    "%s: model.byte_fallback is not supported", name);
  return status;
}

static bool is_id(const json_t *value) {
  return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) < MAX_VOCABULARY;
}

/* One more than the largest id of vocabulary and added tokens, and checks that ids are ids. */
static motet_status count_ids(const json_t *vocab, const json_t *added, const char *name, motet_error *error,
                              int32_t *vocabulary) {
  json_int_t largest = -1;
  const char *token;
  json_t *id;
  if (!json_is_object(vocab))
    return at_fault(error, name, "model.vocab", MOTET_ERROR_PARSE, "%s has no object model.vocab", name);
  if (added != NULL && !json_is_array(added) && !json_is_null(added))
    return at_fault(error, name, "added_tokens", MOTET_ERROR_PARSE, "%s: added_tokens is not a list", name);
  json_object_foreach((json_t *)vocab, token, id) {
    if (!is_id(id))
      return at_fault(error, name, "model.vocab", MOTET_ERROR_PARSE,
                      "%s: the id of token \"%.100s\" is not a number from 0 to %d", name, token,
                      MAX_VOCABULARY - 1);
    if (json_integer_value(id) > largest) largest = json_integer_value(id);
  }
  for (size_t i = 0; i < json_array_size(added); i++) {
    id = json_object_get(json_array_get(added, i), "id");
    if (!is_id(id))
      return at_fault(error, name, "added_tokens", MOTET_ERROR_PARSE,
                      "%s: the id of added token %zu is not a number from 0 to %d", name, i, MAX_VOCABULARY - 1);
    if (json_integer_value(id) > largest) largest = json_integer_value(id);
  }
  *vocabulary = (int32_t)largest + 1;
  return MOTET_OK;
}

static motet_status read_vocabulary(mt_tokenizer *tokenizer, const json_t *vocab, motet_error *error) {
  const char *token;
  json_t *value;
  json_object_foreach((json_t *)vocab, token, value) {
    int32_t id = (int32_t)json_integer_value(value);
    size_t bytes = strlen(token);
    mt_token *place = &tokenizer->tokens[id];
    if (place->text != NULL)
      return at_fault(error, tokenizer->name, "model.vocab", MOTET_ERROR_PARSE,
                      "%s: two tokens have the id %" PRId32 ", one is \"%.100s\"", tokenizer->name, id, token);
    unsigned char *text = mt_arena_array(tokenizer->arena, bytes + 1, 1);
    if (text == NULL || bytes > INT32_MAX) return no_memory(error);
    ptrdiff_t length = mt_unicode_bytes_of_token(token, bytes, text);
    if (length < 0) { /* not in the alphabet: an added token that stands in the vocabulary too */
      memcpy(text, token, bytes + 1);
      length = (ptrdiff_t)bytes;
    } else {
      text[length] = '\0';
      if (length == 1) tokenizer->bpe.byte_ids[text[0]] = id;
    }
    *place = (mt_token){.text = (const char *)text, .bytes = (int32_t)length};
  }
  return MOTET_OK;
}

/* The halves of a merge, in either form; false if it is neither. */
static bool merge_halves(const json_t *merge, mt_text *left, mt_text *right) {
  left->length = right->length = 0;
  const char *first = json_string_value(json_array_get(merge, 0)),
             *second = json_string_value(json_array_get(merge, 1));
  if (json_is_array(merge)) {
    if (json_array_size(merge) != 2 || first == NULL || second == NULL) return false;
    mt_text_bytes(left, first, strlen(first));
    mt_text_bytes(right, second, strlen(second));
    return true;
  }
  const char *text = json_string_value(merge), *space = text == NULL ? NULL : strchr(text, ' ');
  if (space == NULL || strchr(space + 1, ' ') != NULL) return false;
  mt_text_bytes(left, text, (size_t)(space - text));
  mt_text_bytes(right, space + 1, strlen(space + 1));
  return true;
}

static motet_status read_merges(mt_tokenizer *tokenizer, const json_t *merges, const json_t *vocab,
                                motet_error *error) {
  mt_text left = {0}, right = {0};
  motet_status status = MOTET_OK;
  size_t count = json_array_size(merges);
  for (size_t i = 0; i < count && status == MOTET_OK; i++) {
    char key[40];
    snprintf(key, sizeof key, "model.merges[%zu]", i);
    if (!merge_halves(json_array_get(merges, i), &left, &right)) {
      status = at_fault(error, tokenizer->name, key, MOTET_ERROR_PARSE,
                        "%s: merge %zu is neither \"a b\" nor [\"a\", \"b\"]", tokenizer->name, i);
      break;
    }
    const json_t *first = left.failed ? NULL : json_object_get(vocab, left.data),
                 *second = right.failed ? NULL : json_object_get(vocab, right.data);
    size_t half = left.length;
    mt_text_bytes(&left, right.data, right.length);
    const json_t *whole = left.failed ? NULL : json_object_get(vocab, left.data);
    if (left.failed || right.failed)
      status = no_memory(error);
    else if (first == NULL || second == NULL || whole == NULL)
      status = at_fault(error, tokenizer->name, key, MOTET_ERROR_PARSE,
                        "%s: merge %zu (\"%.*s\" with \"%s\") %s is not in the vocabulary", tokenizer->name, i,
                        (int)(half < 100 ? half : 100), left.data, right.data,
                        first == NULL    ? "starts with what"
                        : second == NULL ? "ends with what"
                                         : "gives what");
    else
      mt_bpe_add(&tokenizer->bpe, (mt_bpe_merge){.left = (int32_t)json_integer_value(first),
                                                 .right = (int32_t)json_integer_value(second),
                                                 .rank = (int32_t)i,
                                                 .merged = (int32_t)json_integer_value(whole)});
  }
  mt_text_free(&left);
  mt_text_free(&right);
  return status;
}

static motet_status read_model(mt_tokenizer *tokenizer, const json_t *model, const json_t *added,
                               motet_error *error) {
  const char *name = tokenizer->name;
  const json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
  motet_status status = check_model(model, name, error);
  if (status == MOTET_OK) status = read_flag(model, "ignore_merges", false, name, error, &tokenizer->ignore_merges);
  if (status == MOTET_OK) status = count_ids(vocab, added, name, error, &tokenizer->vocabulary);
  if (status != MOTET_OK) return status;
  if (!json_is_array(merges) || json_array_size(merges) > INT32_MAX)
    return at_fault(error, name, "model.merges", MOTET_ERROR_PARSE, "%s has no list model.merges", name);
  tokenizer->tokens = MT_ARENA_NEW(tokenizer->arena, mt_token, tokenizer->vocabulary);
  if (tokenizer->tokens == NULL || !mt_bpe_create(&tokenizer->bpe, json_array_size(merges)))
    return no_memory(error);
  status = read_vocabulary(tokenizer, vocab, error);
  return status != MOTET_OK ? status : read_merges(tokenizer, merges, vocab, error);
}

/* ---- added tokens ---- */

static int compare_added(const void *left, const void *right) {
  const mt_added_token *a = left, *b = right;
  unsigned char first = (unsigned char)a->text[0], other = (unsigned char)b->text[0];
  if (first != other) return first < other ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return (a->id > b->id) - (a->id < b->id);
}

static void group_added(mt_added_tokens *added) {
  if (added->count > 1) qsort(added->tokens, (size_t)added->count, sizeof *added->tokens, compare_added);
  int32_t place = 0;
  for (int first = 0; first <= 256; first++) {
    added->begin[first] = place;
    while (first < 256 && place < added->count && (unsigned char)added->tokens[place].text[0] == first) place++;
  }
}

/* The text that is looked for behind the normalizer is the normalised one. */
static motet_status keep_added(mt_tokenizer *tokenizer, mt_added_token token, bool normalized, motet_error *error) {
  mt_added_tokens *group = normalized ? &tokenizer->normalized : &tokenizer->raw;
  if (normalized) {
    const char *text;
    size_t bytes;
    void *owned;
    if (!mt_tokenizer_normalize(tokenizer, token.text, (size_t)token.bytes, &text, &bytes, &owned))
      return no_memory(error);
    char *copy = mt_arena_array(tokenizer->arena, bytes + 1, 1);
    if (copy != NULL) memcpy(copy, text, bytes);
    free(owned);
    if (copy == NULL) return no_memory(error);
    token.text = copy;
    token.bytes = (int32_t)bytes;
  }
  if (token.bytes > 0) group->tokens[group->count++] = token;
  return MOTET_OK;
}

static motet_status read_added(mt_tokenizer *tokenizer, const json_t *entry, size_t index, const json_t *vocab,
                               motet_error *error) {
  const char *name = tokenizer->name;
  char key[40];
  snprintf(key, sizeof key, "added_tokens[%zu]", index);
  const json_t *content = json_object_get(entry, "content");
  if (!json_is_string(content) || json_string_length(content) == 0 || json_string_length(content) > INT32_MAX)
    return at_fault(error, name, key, MOTET_ERROR_PARSE, "%s: added token %zu has no text \"content\"", name,
                    index);
  const char *text = json_string_value(content);
  mt_added_token token = {.id = (int32_t)json_integer_value(json_object_get(entry, "id")),
                          .bytes = (int32_t)json_string_length(content)};
  bool special, normalized;
  motet_status status = read_flag(entry, "special", false, name, error, &special);
  if (status == MOTET_OK) status = read_flag(entry, "normalized", !special, name, error, &normalized);
  if (status == MOTET_OK) status = read_flag(entry, "lstrip", false, name, error, &token.left_strip);
  if (status == MOTET_OK) status = read_flag(entry, "rstrip", false, name, error, &token.right_strip);
  if (status == MOTET_OK) status = read_flag(entry, "single_word", false, name, error, &token.single_word);
  if (status != MOTET_OK) return status;
  const json_t *known = json_object_get(vocab, text);
  mt_token *place = &tokenizer->tokens[token.id];
  bool same = known != NULL ? json_integer_value(known) == token.id : place->text == NULL;
  if (!same)
    return at_fault(error, name, key, MOTET_ERROR_PARSE,
                    "%s: the id %" PRId32 " of the added token \"%.100s\" contradicts the vocabulary", name,
                    token.id, text);
  token.text = mt_arena_text(tokenizer->arena, text);
  if (token.text == NULL) return no_memory(error);
  *place = (mt_token){.text = token.text, .bytes = token.bytes, .special = special};
  return keep_added(tokenizer, token, normalized, error);
}

static motet_status read_all_added(mt_tokenizer *tokenizer, const json_t *added, const json_t *vocab,
                                   motet_error *error) {
  size_t count = json_array_size(added);
  tokenizer->raw.tokens = MT_ARENA_NEW(tokenizer->arena, mt_added_token, count);
  tokenizer->normalized.tokens = MT_ARENA_NEW(tokenizer->arena, mt_added_token, count);
  if (tokenizer->raw.tokens == NULL || tokenizer->normalized.tokens == NULL) return no_memory(error);
  for (size_t i = 0; i < count; i++) {
    motet_status status = read_added(tokenizer, json_array_get(added, i), i, vocab, error);
    if (status != MOTET_OK) return status;
  }
  group_added(&tokenizer->raw);
  group_added(&tokenizer->normalized);
  return MOTET_OK;
}

/* ---- the whole ---- */

/* Sorting ids by their tokens' texts needs the texts: they are put beside the id for the sort. */
typedef struct named_id {
  mt_token token;
  int32_t id;
} named_id;

static int compare_named(const void *left, const void *right) {
  const named_id *a = left, *b = right;
  size_t common = (size_t)(a->token.bytes < b->token.bytes ? a->token.bytes : b->token.bytes);
  int order = memcmp(a->token.text, b->token.text, common);
  if (order != 0) return order;
  if (a->token.bytes != b->token.bytes) return a->token.bytes < b->token.bytes ? -1 : 1;
  return (a->id > b->id) - (a->id < b->id);
}

static motet_status index_texts(mt_tokenizer *tokenizer, motet_error *error) {
  named_id *named = calloc((size_t)tokenizer->vocabulary + 1, sizeof *named);
  tokenizer->by_text = MT_ARENA_NEW(tokenizer->arena, int32_t, tokenizer->vocabulary);
  if (named == NULL || tokenizer->by_text == NULL) {
    free(named);
    return no_memory(error);
  }
  for (int32_t id = 0; id < tokenizer->vocabulary; id++)
    if (tokenizer->tokens[id].text != NULL) named[tokenizer->named++] = (named_id){tokenizer->tokens[id], id};
  qsort(named, (size_t)tokenizer->named, sizeof *named, compare_named);
  for (int32_t i = 0; i < tokenizer->named; i++) tokenizer->by_text[i] = named[i].id;
  free(named);
  return MOTET_OK;
}

static motet_status read_root(mt_tokenizer *tokenizer, const json_t *root, motet_error *error) {
  const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
  motet_status status = read_model(tokenizer, model, added, error);
  if (status == MOTET_OK) status = read_normalizer(tokenizer, json_object_get(root, "normalizer"), 0, error);
  if (status == MOTET_OK) status = read_pre_tokenizer(tokenizer, json_object_get(root, "pre_tokenizer"), error);
  if (status == MOTET_OK) status = read_all_added(tokenizer, added, json_object_get(model, "vocab"), error);
  if (status == MOTET_OK) status = index_texts(tokenizer, error);
  return status;
}

motet_status mt_tokenizer_parse(const char *json, size_t bytes, const char *name, motet_error *error,
                                mt_tokenizer **tokenizer) {
  *tokenizer = NULL;
  mt_tokenizer *made = calloc(1, sizeof *made);
  if (made != NULL) made->arena = mt_arena_create();
  if (made != NULL && made->arena != NULL) made->name = mt_arena_text(made->arena, name);
  if (made == NULL || made->name == NULL) {
    mt_tokenizer_destroy(made);
    return no_memory(error);
  }
  json_error_t where;
  json_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &where);
  motet_status status;
  if (root == NULL) {
    status = mt_error_set(error, MOTET_ERROR_PARSE, "%s is not JSON: %s", name, where.text);
    mt_error_place(error, name, where.line);
  } else {
    status = read_root(made, root, error);
  }
  json_decref(root);
  if (status == MOTET_OK)
    *tokenizer = made;
  else
    mt_tokenizer_destroy(made);
  return status;
}

motet_status mt_tokenizer_read(const char *path, motet_error *error, mt_tokenizer **tokenizer) {
  *tokenizer = NULL;
  mt_text file = {0};
  struct stat information;
  bool directory = stat(path, &information) == 0 && S_ISDIR(information.st_mode);
  mt_text_append(&file, directory ? "%s/tokenizer.json" : "%s", path);
  if (file.failed) return no_memory(error);
  char *json;
  size_t bytes;
  motet_status status = mt_file_read(file.data, error, &json, &bytes);
  if (status == MOTET_OK) {
    status = mt_tokenizer_parse(json, bytes, file.data, error, tokenizer);
    free(json);
  }
  mt_text_free(&file);
  return status;
}

void mt_tokenizer_destroy(mt_tokenizer *tokenizer) {
  if (tokenizer == NULL) return;
  for (int32_t i = 0; i < tokenizer->step_count; i++) pcre2_code_free(tokenizer->steps[i].code);
  mt_bpe_free(&tokenizer->bpe);
  mt_arena_destroy(tokenizer->arena);
  free(tokenizer);
}

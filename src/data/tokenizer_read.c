#include "data/tokenizer_read.h"
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

/* The expression of ByteLevel's own cutting (GPT-2). */
static const char *const BYTE_LEVEL_PATTERN =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

motet_status mt_tokenizer_place(motet_error *error, const char *name, const char *key, motet_status status) {
  mt_error_place(error, name, 0);
  mt_error_key(error, key);
  return status;
}

static motet_status no_memory(motet_error *error) { return mt_error_memory(error, 0, "a tokenizer"); }

motet_status mt_tokenizer_flag(const json_t *object, const char *key, bool fallback, const char *name,
                               motet_error *error, bool *flag) {
  const json_t *value = json_object_get(object, key);
  *flag = fallback;
  if (value == NULL || json_is_null(value)) return MOTET_OK;
  if (!json_is_boolean(value))
    return at_fault(error, name, key, MOTET_ERROR_PARSE, "\"%s\" in %s is neither true nor false", key, name);
  *flag = json_is_true(value);
  return MOTET_OK;
}

const char *mt_tokenizer_type(const json_t *object) {
  const char *type = json_string_value(json_object_get(object, "type"));
  return type == NULL ? "(none)" : type;
}

/* ---- normalizer ---- */

static bool is_text(const json_t *value, const char *wanted) {
  return json_is_string(value) && strcmp(json_string_value(value), wanted) == 0;
}

/* Vocabularies of characters: the mark in front, and for each space. */
static bool marks_spaces(mt_tokenizer *tokenizer, const json_t *normalizer, const char *type) {
  if (strcmp(type, "Prepend") == 0 && is_text(json_object_get(normalizer, "prepend"), MT_TOKENIZER_SPACE))
    return tokenizer->characters.prepend = true;
  return strcmp(type, "Replace") == 0 &&
         is_text(json_object_get(json_object_get(normalizer, "pattern"), "String"), " ") &&
         is_text(json_object_get(normalizer, "content"), MT_TOKENIZER_SPACE);
}

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
  const char *type = mt_tokenizer_type(normalizer);
  if (strcmp(type, "Sequence") == 0 && depth == 0) {
    const json_t *parts = json_object_get(normalizer, "normalizers");
    for (size_t i = 0; i < json_array_size(parts); i++) {
      motet_status status = read_normalizer(tokenizer, json_array_get(parts, i), depth + 1, error);
      if (status != MOTET_OK) return status;
    }
    return MOTET_OK;
  }
  if (tokenizer->characters.used && marks_spaces(tokenizer, normalizer, type)) return MOTET_OK;
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
  motet_status status = mt_tokenizer_flag(byte_level, "add_prefix_space", true, tokenizer->name, error, &prefix);
  if (status == MOTET_OK) status = mt_tokenizer_flag(byte_level, "use_regex", true, tokenizer->name, error, &cut);
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

/* Of a vocabulary of characters: none, or one that marks the spaces and cuts nothing. */
static motet_status read_metaspace(mt_tokenizer *tokenizer, const json_t *metaspace, motet_error *error) {
  if (metaspace == NULL || json_is_null(metaspace)) return MOTET_OK;
  const char *name = tokenizer->name, *key = "pre_tokenizer";
  const char *scheme = json_string_value(json_object_get(metaspace, "prepend_scheme"));
  bool split;
  motet_status status = mt_tokenizer_flag(metaspace, "split", true, name, error, &split);
  if (status != MOTET_OK) return status;
  bool always = scheme != NULL && strcmp(scheme, "always") == 0,
       never = scheme != NULL && strcmp(scheme, "never") == 0;
  if (split || !(always || never) || !is_text(json_object_get(metaspace, "replacement"), MT_TOKENIZER_SPACE))
    return at_fault(error, name, key, MOTET_ERROR_UNSUPPORTED,
                    "%s: this Metaspace is not supported; one with \"split\": false, replacement U+2581 and "
                    "prepend_scheme \"always\" or \"never\" is",
                    name);
  tokenizer->characters.prepend = tokenizer->characters.prepend_once = always;
  return MOTET_OK;
}

static motet_status read_pre_tokenizer(mt_tokenizer *tokenizer, const json_t *pre_tokenizer, motet_error *error) {
  const char *name = tokenizer->name, *key = "pre_tokenizer";
  if (tokenizer->characters.used) return read_metaspace(tokenizer, pre_tokenizer, error);
  bool sequence = strcmp(mt_tokenizer_type(pre_tokenizer), "Sequence") == 0;
  const json_t *parts = json_object_get(pre_tokenizer, "pretokenizers");
  size_t count = sequence ? json_array_size(parts) : 1;
  /* ByteLevel takes two steps and comes last, once. */
  if (count == 0 || count > MT_TOKENIZER_MAX_STEPS - 1)
    return at_fault(error, name, key, MOTET_ERROR_UNSUPPORTED,
                    "%s: a sequence of %zu pre-tokenizers; 1 to %d are supported", name, count,
                    MT_TOKENIZER_MAX_STEPS - 1);
  for (size_t i = 0; i < count; i++) {
    const json_t *part = sequence ? json_array_get(parts, i) : pre_tokenizer;
    const char *type = mt_tokenizer_type(part);
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
  motet_status status = mt_tokenizer_flag(entry, "special", false, name, error, &special);
  if (status == MOTET_OK) status = mt_tokenizer_flag(entry, "normalized", !special, name, error, &normalized);
  if (status == MOTET_OK) status = mt_tokenizer_flag(entry, "lstrip", false, name, error, &token.left_strip);
  if (status == MOTET_OK) status = mt_tokenizer_flag(entry, "rstrip", false, name, error, &token.right_strip);
  if (status == MOTET_OK) status = mt_tokenizer_flag(entry, "single_word", false, name, error, &token.single_word);
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

/* Whether the vocabulary's letters are characters: nothing turns bytes into an alphabet, and something marks spaces
 * or spells bytes. */
static bool spells_characters(const json_t *root) {
  const json_t *pre_tokenizer = json_object_get(root, "pre_tokenizer");
  if (pre_tokenizer != NULL && !json_is_null(pre_tokenizer))
    return strcmp(mt_tokenizer_type(pre_tokenizer), "Metaspace") == 0;
  if (json_is_true(json_object_get(json_object_get(root, "model"), "byte_fallback"))) return true;
  const json_t *normalizer = json_object_get(root, "normalizer"),
               *parts = json_object_get(normalizer, "normalizers");
  bool marks = strcmp(mt_tokenizer_type(normalizer), "Replace") == 0;
  for (size_t i = 0; i < json_array_size(parts); i++)
    marks = marks || strcmp(mt_tokenizer_type(json_array_get(parts, i)), "Replace") == 0;
  return marks;
}

static motet_status read_root(mt_tokenizer *tokenizer, const json_t *root, motet_error *error) {
  const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
  const json_t *pre_tokenizer = json_object_get(root, "pre_tokenizer");
  tokenizer->characters.used = spells_characters(root);
  motet_status status = mt_tokenizer_read_model(tokenizer, model, added, error);
  if (status == MOTET_OK) status = read_normalizer(tokenizer, json_object_get(root, "normalizer"), 0, error);
  if (status == MOTET_OK) status = read_pre_tokenizer(tokenizer, pre_tokenizer, error);
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

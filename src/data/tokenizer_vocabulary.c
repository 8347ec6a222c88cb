/* A tokenizer's vocabulary and merges. */
#include "data/tokenizer_read.h"
#include "data/unicode.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_VOCABULARY = 1 << 22 };

static motet_status no_memory(motet_error *error) { return mt_error_memory(error, 0, "a tokenizer"); }

static motet_status check_model(const mt_tokenizer *tokenizer, const json_t *model, motet_error *error) {
  const char *name = tokenizer->name;
  static const char *const must_be_empty[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
  const char *type = mt_tokenizer_type(model);
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
  motet_status status = mt_tokenizer_flag(model, "byte_fallback", false, name, error, &fallback);
  if (status == MOTET_OK && fallback && !tokenizer->characters.used)
    return at_fault(error, name, "byte_fallback", MOTET_ERROR_UNSUPPORTED,
                    "%s: model.byte_fallback is not supported in a byte-level vocabulary", name);
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
    ptrdiff_t length = tokenizer->characters.used ? -1 : mt_unicode_bytes_of_token(token, bytes, text);
    if (length < 0) { /* characters, or an added token that stands in the vocabulary too */
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

/* What a vocabulary of characters does with others. */
static motet_status read_characters(mt_tokenizer *tokenizer, const json_t *model, motet_error *error) {
  mt_character_rules *rules = &tokenizer->characters;
  const char *name = tokenizer->name, *unknown = json_string_value(json_object_get(model, "unk_token"));
  motet_status status = mt_tokenizer_flag(model, "byte_fallback", false, name, error, &rules->byte_fallback);
  if (status == MOTET_OK) status = mt_tokenizer_flag(model, "fuse_unk", false, name, error, &rules->fuse_unknown);
  if (status != MOTET_OK) return status;
  const json_t *id = unknown == NULL ? NULL : json_object_get(json_object_get(model, "vocab"), unknown);
  rules->unknown = id != NULL ? (int32_t)json_integer_value(id) : -1;
  for (int32_t t = 0; t < tokenizer->vocabulary && rules->byte_fallback; t++) {
    int byte = tokenizer->tokens[t].text == NULL ? -1 : mt_tokenizer_byte_of(&tokenizer->tokens[t]);
    if (byte >= 0) tokenizer->bpe.byte_ids[byte] = t;
  }
  for (int byte = 0; byte < 256 && rules->byte_fallback; byte++)
    if (tokenizer->bpe.byte_ids[byte] < 0)
      return at_fault(error, name, "byte_fallback", MOTET_ERROR_PARSE,
                      "%s: model.byte_fallback without a token <0x%02X>", name, (unsigned)byte);
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

motet_status mt_tokenizer_read_model(mt_tokenizer *tokenizer, const json_t *model, const json_t *added,
                                     motet_error *error) {
  const char *name = tokenizer->name;
  const json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
  motet_status status = check_model(tokenizer, model, error);
  if (status == MOTET_OK)
    status = mt_tokenizer_flag(model, "ignore_merges", false, name, error, &tokenizer->ignore_merges);
  if (status == MOTET_OK) status = count_ids(vocab, added, name, error, &tokenizer->vocabulary);
  if (status != MOTET_OK) return status;
  if (!json_is_array(merges) || json_array_size(merges) > INT32_MAX)
    return at_fault(error, name, "model.merges", MOTET_ERROR_PARSE, "%s has no list model.merges", name);
  tokenizer->tokens = MT_ARENA_NEW(tokenizer->arena, mt_token, tokenizer->vocabulary);
  if (tokenizer->tokens == NULL || !mt_bpe_create(&tokenizer->bpe, json_array_size(merges)))
    return no_memory(error);
  status = read_vocabulary(tokenizer, vocab, error);
  if (status == MOTET_OK && tokenizer->characters.used) status = read_characters(tokenizer, model, error);
  return status != MOTET_OK ? status : read_merges(tokenizer, merges, vocab, error);
}

#include "data/tokenizer.h"

#include "data/tokenizer_form.h"
#include "data/unicode.h"

#include <stdlib.h>
#include <string.h>

/* Four UTF-8 bytes may normalise to more than three times as many, and places are 32 bits wide. */
enum { MAX_TEXT_BYTES = 100 << 20 };

/* One call's working memory. */
typedef struct encoder {
  const mt_tokenizer *tokenizer;
  mt_tokens *tokens;
  motet_error *error;
  mt_bpe_scratch scratch;
  mt_text prefixed; /* a piece with a space in front */
  pcre2_match_context *context;
  pcre2_match_data *matches[MT_TOKENIZER_MAX_STEPS];
} encoder;

static int compare_bytes(const char *left, size_t left_bytes, const char *right, size_t right_bytes) {
  size_t common = left_bytes < right_bytes ? left_bytes : right_bytes;
  int order = common == 0 ? 0 : memcmp(left, right, common);
  if (order != 0) return order;
  return left_bytes < right_bytes ? -1 : left_bytes > right_bytes;
}

int32_t mt_tokenizer_lookup(const mt_tokenizer *tokenizer, const char *text, size_t bytes) {
  int32_t low = 0, high = tokenizer->named;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    const mt_token *token = &tokenizer->tokens[tokenizer->by_text[middle]];
    if (compare_bytes(token->text, (size_t)token->bytes, text, bytes) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == tokenizer->named) return -1;
  const mt_token *token = &tokenizer->tokens[tokenizer->by_text[low]];
  return compare_bytes(token->text, (size_t)token->bytes, text, bytes) == 0 ? tokenizer->by_text[low] : -1;
}

int mt_tokenizer_byte_of(const mt_token *token) {
  static const char digits[] = "0123456789ABCDEF";
  if (token->bytes != 6 || memcmp(token->text, "<0x", 3) != 0 || token->text[5] != '>') return -1;
  const char *high = memchr(digits, token->text[3], 16), *low = memchr(digits, token->text[4], 16);
  return high == NULL || low == NULL ? -1 : (int)(high - digits) * 16 + (int)(low - digits);
}

int32_t mt_tokenizer_vocabulary(const mt_tokenizer *tokenizer) { return tokenizer->vocabulary; }

int32_t mt_tokenizer_find(const mt_tokenizer *tokenizer, const char *text) {
  return mt_tokenizer_lookup(tokenizer, text, strlen(text));
}

/* Puts the mark for each space, and in front where the rules say so. */
static bool mark_spaces(const mt_tokenizer *tokenizer, const char **result, size_t *result_bytes, void **owned) {
  mt_text marked = {0};
  const mt_character_rules *rules = &tokenizer->characters;
  const size_t mark = strlen(MT_TOKENIZER_SPACE);
  bool marked_already =
      *result_bytes > 0 &&
      ((*result)[0] == ' ' || (*result_bytes >= mark && memcmp(*result, MT_TOKENIZER_SPACE, mark) == 0));
  if (rules->prepend && *result_bytes > 0 && !(rules->prepend_once && marked_already))
    mt_text_append(&marked, MT_TOKENIZER_SPACE);
  for (size_t done = 0; done < *result_bytes;) {
    const char *rest = *result + done, *space = memchr(rest, ' ', *result_bytes - done);
    size_t length = space == NULL ? *result_bytes - done : (size_t)(space - rest);
    mt_text_bytes(&marked, rest, length);
    if (space != NULL) mt_text_append(&marked, MT_TOKENIZER_SPACE);
    done += length + (space != NULL);
  }
  free(*owned);
  *owned = marked.data;
  *result = marked.data != NULL ? marked.data : "";
  *result_bytes = marked.length;
  return !marked.failed;
}

bool mt_tokenizer_normalize(const mt_tokenizer *tokenizer, const char *text, size_t bytes, const char **result,
                            size_t *result_bytes, void **owned) {
  *result = text;
  *result_bytes = bytes;
  *owned = NULL;
  bool plain = true; /* ASCII is the same in every form */
  for (size_t i = 0; i < bytes && plain; i++) plain = (unsigned char)text[i] < 0x80;
  for (int32_t i = 0; i < tokenizer->form_count && !plain; i++) {
    utf8proc_uint8_t *made;
    utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)*result, (utf8proc_ssize_t)*result_bytes,
                                           &made, tokenizer->forms[i]);
    free(*owned);
    *owned = NULL;
    if (length < 0) return false;
    *owned = made;
    *result = (const char *)made;
    *result_bytes = (size_t)length;
  }
  return !tokenizer->characters.used || mark_spaces(tokenizer, result, result_bytes, owned);
}

static motet_status out_of_memory(const encoder *state) {
  return mt_error_memory(state->error, state->tokens->count * sizeof(int32_t), "a text's tokens");
}

/* The symbols of a word in a vocabulary of characters. */
static motet_status push_characters(encoder *state, const char *word, size_t bytes) {
  const mt_tokenizer *tokenizer = state->tokenizer;
  const mt_character_rules *rules = &tokenizer->characters;
  bool unknown_before = false;
  for (size_t place = 0, length; place < bytes; place += length) {
    int32_t character;
    length = mt_unicode_next((const unsigned char *)word + place, bytes - place, &character);
    if (length == 0) length = 1; /* the text was checked; a normaliser gives nothing else */
    int32_t id = mt_tokenizer_lookup(tokenizer, word + place, length);
    bool whole = id >= 0, spelt = !whole && rules->byte_fallback;
    if (whole) mt_bpe_push(&state->scratch, id);
    for (size_t b = 0; b < length && spelt; b++)
      mt_bpe_push(&state->scratch, tokenizer->bpe.byte_ids[(unsigned char)word[place + b]]);
    if (!whole && !spelt) {
      if (rules->unknown < 0) {
        motet_status status = mt_error_set(state->error, MOTET_ERROR_PARSE, "%s has no token for U+%04X",
                                           tokenizer->name, (unsigned)character);
        mt_error_place(state->error, tokenizer->name, 0);
        return status;
      }
      if (!(unknown_before && rules->fuse_unknown)) mt_bpe_push(&state->scratch, rules->unknown);
    }
    unknown_before = !whole && !spelt;
  }
  return MOTET_OK;
}

static motet_status encode_characters(encoder *state, const char *word, size_t bytes) {
  if (!mt_bpe_start(&state->scratch, bytes)) return out_of_memory(state);
  motet_status status = push_characters(state, word, bytes);
  if (status != MOTET_OK) return status;
  return mt_bpe_finish(&state->tokenizer->bpe, &state->scratch, state->tokens) ? MOTET_OK : out_of_memory(state);
}

static motet_status encode_word(encoder *state, const char *word, size_t bytes) {
  if (state->tokenizer->ignore_merges) {
    int32_t id = mt_tokenizer_lookup(state->tokenizer, word, bytes);
    if (id >= 0) return MT_ARRAY_PUSH(state->tokens, id) ? MOTET_OK : out_of_memory(state);
  }
  if (state->tokenizer->characters.used) return encode_characters(state, word, bytes);
  int missing;
  if (mt_bpe_word(&state->tokenizer->bpe, (const unsigned char *)word, bytes, &state->scratch, state->tokens,
                  &missing))
    return MOTET_OK;
  if (missing < 0) return out_of_memory(state);
  motet_status status = mt_error_set(state->error, MOTET_ERROR_PARSE, "%s has no token for byte 0x%02x",
                                     state->tokenizer->name, (unsigned)missing);
  mt_error_place(state->error, state->tokenizer->name, 0);
  return status;
}

static motet_status encode_piece(encoder *state, int32_t step, const char *piece, size_t bytes);

/* Cuts the piece at the matches of a regular expression; what is matched and what lies between are pieces. */
static motet_status encode_split(encoder *state, int32_t step, const char *piece, size_t bytes) {
  const pcre2_code *code = state->tokenizer->steps[step].code;
  pcre2_match_data *matches = state->matches[step];
  size_t done = 0, from = 0;
  motet_status status = MOTET_OK;
  while (from < bytes) {
    uint32_t flags = PCRE2_NO_UTF_CHECK;
    int found = pcre2_match(code, (PCRE2_SPTR)piece, bytes, from, flags, matches, state->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = pcre2_match(code, (PCRE2_SPTR)piece, bytes, from, flags | PCRE2_NO_JIT, matches, state->context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      PCRE2_UCHAR reason[128];
      pcre2_get_error_message(found, reason, sizeof reason);
      return mt_error_set(state->error, MOTET_ERROR_FAILED, "the pre-tokenizer's expression failed: %s",
                          (const char *)reason);
    }
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(matches);
    size_t begin = place[0], end = place[1];
    if (end == begin) { /* an empty match cuts nothing; look behind the next character */
      int32_t character;
      from = end + (end < bytes ? mt_unicode_next((const unsigned char *)piece + end, bytes - end, &character) : 1);
      continue;
    }
    if (begin > done) status = encode_piece(state, step + 1, piece + done, begin - done);
    if (status == MOTET_OK) status = encode_piece(state, step + 1, piece + begin, end - begin);
    if (status != MOTET_OK) return status;
    done = from = end;
  }
  return done < bytes ? encode_piece(state, step + 1, piece + done, bytes - done) : MOTET_OK;
}

static motet_status encode_piece(encoder *state, int32_t step, const char *piece, size_t bytes) {
  if (step == state->tokenizer->step_count) return encode_word(state, piece, bytes);
  if (state->tokenizer->steps[step].code != NULL) return encode_split(state, step, piece, bytes);
  if (piece[0] == ' ') return encode_piece(state, step + 1, piece, bytes);
  state->prefixed.length = 0;
  mt_text_bytes(&state->prefixed, " ", 1);
  mt_text_bytes(&state->prefixed, piece, bytes);
  if (state->prefixed.failed) return out_of_memory(state);
  return encode_piece(state, step + 1, state->prefixed.data, state->prefixed.length);
}

static bool word_before(const char *text, size_t place) {
  if (place == 0) return false;
  size_t start = place - 1;
  while (start > 0 && ((unsigned char)text[start] & 0xc0) == 0x80) start--;
  int32_t character;
  return mt_unicode_next((const unsigned char *)text + start, place - start, &character) > 0 &&
         mt_unicode_is_word(character);
}

static bool word_behind(const char *text, size_t bytes, size_t place) {
  int32_t character;
  return place < bytes && mt_unicode_next((const unsigned char *)text + place, bytes - place, &character) > 0 &&
         mt_unicode_is_word(character);
}

static size_t space_begin(const char *text, size_t place, size_t limit) {
  while (place > limit) {
    size_t start = place - 1;
    while (start > limit && ((unsigned char)text[start] & 0xc0) == 0x80) start--;
    int32_t character;
    if (mt_unicode_next((const unsigned char *)text + start, place - start, &character) == 0 ||
        !mt_unicode_is_space(character))
      break;
    place = start;
  }
  return place;
}

static size_t space_end(const char *text, size_t bytes, size_t place) {
  int32_t character;
  size_t length;
  while (place < bytes &&
         (length = mt_unicode_next((const unsigned char *)text + place, bytes - place, &character)) > 0 &&
         mt_unicode_is_space(character))
    place += length;
  return place;
}

/* The longest added token that starts at `place`, or NULL. */
static const mt_added_token *added_at(const mt_added_tokens *added, const char *text, size_t bytes, size_t place) {
  unsigned char first = (unsigned char)text[place];
  for (int32_t i = added->begin[first]; i < added->begin[first + 1]; i++) {
    const mt_added_token *token = &added->tokens[i];
    if ((size_t)token->bytes <= bytes - place && memcmp(text + place, token->text, (size_t)token->bytes) == 0)
      return token;
  }
  return NULL;
}

typedef motet_status piece_function(encoder *state, const char *piece, size_t bytes);

/* Finds added tokens from left to right, the longest at each place, and gives what lies between to `between`. */
static motet_status encode_added(encoder *state, const mt_added_tokens *added, const char *text, size_t bytes,
                                 piece_function *between) {
  size_t done = 0, place = 0;
  motet_status status = MOTET_OK;
  while (place < bytes && added->count > 0) {
    const mt_added_token *token = added_at(added, text, bytes, place);
    if (token == NULL) {
      place++;
      continue;
    }
    size_t begin = place, end = place + (size_t)token->bytes;
    place = end;
    if (token->single_word && (word_before(text, begin) || word_behind(text, bytes, end))) continue;
    if (token->left_strip) begin = space_begin(text, begin, done);
    if (token->right_strip) end = space_end(text, bytes, end);
    if (begin > done) status = between(state, text + done, begin - done);
    if (status != MOTET_OK) return status;
    if (!MT_ARRAY_PUSH(state->tokens, token->id)) return out_of_memory(state);
    done = end;
    if (place < done) place = done;
  }
  return done < bytes ? between(state, text + done, bytes - done) : MOTET_OK;
}

static motet_status encode_plain(encoder *state, const char *piece, size_t bytes) {
  return encode_piece(state, 0, piece, bytes);
}

static motet_status encode_normalized(encoder *state, const char *piece, size_t bytes) {
  const char *text;
  size_t length;
  void *owned;
  if (!mt_tokenizer_normalize(state->tokenizer, piece, bytes, &text, &length, &owned)) return out_of_memory(state);
  motet_status status = encode_added(state, &state->tokenizer->normalized, text, length, encode_plain);
  free(owned);
  return status;
}

static bool encoder_start(encoder *state) {
  state->context = pcre2_match_context_create(NULL);
  if (state->context == NULL) return false;
  /* The limits guard against expressions that explode; a run of 100 MiB of spaces must not reach them. */
  pcre2_set_match_limit(state->context, 1000 * 1000 * 1000);
  pcre2_set_heap_limit(state->context, 1 << 20);
  for (int32_t i = 0; i < state->tokenizer->step_count; i++) {
    if (state->tokenizer->steps[i].code == NULL) continue;
    state->matches[i] = pcre2_match_data_create_from_pattern(state->tokenizer->steps[i].code, NULL);
    if (state->matches[i] == NULL) return false;
  }
  return true;
}

static void encoder_end(encoder *state) {
  for (int i = 0; i < MT_TOKENIZER_MAX_STEPS; i++) pcre2_match_data_free(state->matches[i]);
  pcre2_match_context_free(state->context);
  mt_bpe_scratch_free(&state->scratch);
  mt_text_free(&state->prefixed);
}

motet_status mt_tokenizer_encode(const mt_tokenizer *tokenizer, const char *text, size_t bytes, motet_error *error,
                                 mt_tokens *tokens) {
  if (bytes > MAX_TEXT_BYTES)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "a text of %zu bytes; at most %d are encoded at once", bytes,
                        MAX_TEXT_BYTES);
  size_t valid = mt_unicode_valid(text, bytes);
  if (valid < bytes)
    return mt_error_set(error, MOTET_ERROR_PARSE,
                        "the text is not UTF-8: byte 0x%02x at place %zu starts no character",
                        (unsigned)(unsigned char)text[valid], valid);
  size_t before = tokens->count;
  encoder state = {.tokenizer = tokenizer, .tokens = tokens, .error = error};
  motet_status status = encoder_start(&state)
                            ? encode_added(&state, &tokenizer->raw, text, bytes, encode_normalized)
                            : out_of_memory(&state);
  encoder_end(&state);
  if (status != MOTET_OK) tokens->count = before;
  return status;
}

/* The bytes that a token stands for. */
static void append_token(const mt_tokenizer *tokenizer, const mt_token *token, mt_text *bytes) {
  if (!tokenizer->characters.used || token->special) {
    mt_text_bytes(bytes, token->text, (size_t)token->bytes);
    return;
  }
  int byte = mt_tokenizer_byte_of(token);
  if (byte >= 0) {
    const char value = (char)byte;
    mt_text_bytes(bytes, &value, 1);
    return;
  }
  const size_t mark = strlen(MT_TOKENIZER_SPACE);
  const char *text = token->text, *end = text + token->bytes, *found;
  while ((found = memmem(text, (size_t)(end - text), MT_TOKENIZER_SPACE, mark)) != NULL) {
    mt_text_bytes(bytes, text, (size_t)(found - text));
    mt_text_bytes(bytes, " ", 1);
    text = found + mark;
  }
  mt_text_bytes(bytes, text, (size_t)(end - text));
}

motet_status mt_tokenizer_decode(const mt_tokenizer *tokenizer, const int32_t *ids, size_t count, bool skip_special,
                                 motet_error *error, mt_text *text) {
  mt_text bytes = {0};
  motet_status status = MOTET_OK;
  for (size_t i = 0; i < count && status == MOTET_OK; i++) {
    const mt_token *token = ids[i] >= 0 && ids[i] < tokenizer->vocabulary ? &tokenizer->tokens[ids[i]] : NULL;
    if (token == NULL || token->text == NULL)
      status = mt_error_set(error, MOTET_ERROR_ARGUMENT, "token %d at place %zu is not in the vocabulary of %s",
                            (int)ids[i], i, tokenizer->name);
    else if (!(skip_special && token->special))
      append_token(tokenizer, token, &bytes);
  }
  /* What was put in front is taken away. */
  const mt_character_rules *rules = &tokenizer->characters;
  if (rules->used && rules->prepend && bytes.length > 0 && bytes.data[0] == ' ')
    memmove(bytes.data, bytes.data + 1, bytes.length--);
  if (status == MOTET_OK) mt_unicode_append_lossy(text, bytes.data, bytes.length);
  if (status == MOTET_OK && (bytes.failed || text->failed)) status = mt_error_memory(error, bytes.length, "a text");
  mt_text_free(&bytes);
  return status;
}

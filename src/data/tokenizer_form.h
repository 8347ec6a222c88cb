/** @file How a tokenizer is held: filled by tokenizer_read.c, used by tokenizer.c. */
#ifndef MT_DATA_TOKENIZER_FORM_H
#define MT_DATA_TOKENIZER_FORM_H

#include "base/arena.h"
#include "data/bpe.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

enum { MT_TOKENIZER_MAX_STEPS = 8 };

/** What an id stands for. */
typedef struct mt_token {
  const char *text; /* bytes, zero-terminated beyond `bytes`; NULL: the id is not used */
  int32_t bytes;
  bool special; /* left out by decoding with skip_special */
} mt_token;

/** A token that is looked for in the text itself. */
typedef struct mt_added_token {
  const char *text; /* not empty */
  int32_t bytes;
  int32_t id;
  bool left_strip, right_strip; /* takes white space beside it along */
  bool single_word;             /* only where no word character touches it */
} mt_added_token;

/** Added tokens grouped by first byte, the longest first: [begin[b], begin[b + 1]) start with byte b. */
typedef struct mt_added_tokens {
  mt_added_token *tokens;
  int32_t count;
  int32_t begin[257];
} mt_added_tokens;

/** A step of the pre-tokenizer: cutting at the matches of `code`, or (NULL) a space put in front. */
typedef struct mt_split_step {
  pcre2_code *code;
} mt_split_step;

/** U+2581, which stands for a space in vocabularies of characters. */
#define MT_TOKENIZER_SPACE "\xe2\x96\x81"

/* How the vocabulary spells text. Byte-level: every byte is a letter of its alphabet. Else (SentencePiece) its
 * letters are characters, with a mark for the space and tokens <0x00> to <0xFF> for bytes of others. */
typedef struct mt_character_rules {
  bool used;
  bool prepend_once;  /* and not where the text begins with the mark */
  bool prepend;       /* the mark is put in front of every stretch of text */
  bool byte_fallback; /* bpe.byte_ids are those of <0x00> ... */
  bool fuse_unknown;  /* a run of unknown characters is one token */
  int32_t unknown;    /* id, or -1 */
} mt_character_rules;

struct mt_tokenizer {
  mt_arena *arena;
  const char *name; /* of the file */
  mt_token *tokens; /* [vocabulary] */
  int32_t vocabulary;
  int32_t *by_text; /* [named] ids in order of (text, id) */
  int32_t named;
  mt_bpe bpe;
  mt_character_rules characters;
  bool ignore_merges;              /* a word that is a token is not taken apart */
  mt_added_tokens raw, normalized; /* looked for before and behind the normalizer */
  utf8proc_option_t forms[MT_TOKENIZER_MAX_STEPS];
  int32_t form_count;
  mt_split_step steps[MT_TOKENIZER_MAX_STEPS];
  int32_t step_count;
};

/** The id whose text is these bytes, or -1. */
int32_t mt_tokenizer_lookup(const mt_tokenizer *tokenizer, const char *text, size_t bytes);

/** The byte that the token <0xNN> stands for, or -1. */
int mt_tokenizer_byte_of(const mt_token *token);

/** Normalises @p text by @p tokenizer's forms. `*result` is either @p text itself or, with `*owned` set to it,
 * memory for free(). False when memory is out. */
bool mt_tokenizer_normalize(const mt_tokenizer *tokenizer, const char *text, size_t bytes, const char **result,
                            size_t *result_bytes, void **owned);

#endif

/** @file What the files that read a tokenizer.json share. Internal to them. */
#ifndef MT_DATA_TOKENIZER_READ_H
#define MT_DATA_TOKENIZER_READ_H

#include "data/tokenizer_form.h"

#include <jansson.h>

/* at_fault(error, name, key, status, format, ...): an error with file and key. */
#define at_fault(error, name, key, ...)                                                                            \
  (mt_tokenizer_place((error), (name), (key), mt_error_set((error), __VA_ARGS__)))

/** Puts file and key to an error; gives @p status back. */
motet_status mt_tokenizer_place(motet_error *error, const char *name, const char *key, motet_status status);

/** A boolean field, @p fallback where it is absent or null. */
motet_status mt_tokenizer_flag(const json_t *object, const char *key, bool fallback, const char *name,
                               motet_error *error, bool *flag);

/** The object's "type", "(none)" without one. */
const char *mt_tokenizer_type(const json_t *object);

/** Reads "model": vocabulary and merges. @p added: the list "added_tokens", whose ids count too. */
motet_status mt_tokenizer_read_model(mt_tokenizer *tokenizer, const json_t *model, const json_t *added,
                                     motet_error *error);

#endif

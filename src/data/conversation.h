/** @file One line of a data set: the turns of a conversation and the pictures they name. */
#ifndef MT_DATA_CONVERSATION_H
#define MT_DATA_CONVERSATION_H

#include "base/array.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/** Stands in a user's turn for a picture. */
#define MT_IMAGE_MARKER "<image>"

typedef enum mt_role { MT_ROLE_SYSTEM, MT_ROLE_USER, MT_ROLE_ASSISTANT } mt_role;

typedef struct mt_turn {
  mt_role role;
  const char *text; /* may hold zero bytes */
  size_t bytes;
} mt_turn;

/** Turns and picture paths point into the parsed line. */
typedef struct mt_conversation {
  void *document;
  MT_ARRAY(mt_turn) turns;
  MT_ARRAY(const char *) images;
} mt_conversation;

/**
 * Parses a line in one of the forms that docs/formats/data.md describes, and checks it: known roles, a system turn
 * at the head only, an assistant's turn at all, as many markers in the users' turns as there are pictures. Errors
 * carry the key; the caller adds file and line. Free with mt_conversation_free(), also after an error.
 */
motet_status mt_conversation_parse(const char *line, size_t bytes, motet_error *error,
                                   mt_conversation *conversation);
void mt_conversation_free(mt_conversation *conversation);

/** The number of markers in the users' turns. */
size_t mt_conversation_markers(const mt_conversation *conversation);

/** The first marker in @p text, or NULL. */
const char *mt_image_marker_find(const char *text, size_t bytes);

#endif

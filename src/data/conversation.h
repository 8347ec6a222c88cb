/** @file One line of a data set: the turns of a conversation, and the pictures and videos they name. */
#ifndef MT_DATA_CONVERSATION_H
#define MT_DATA_CONVERSATION_H

#include "base/array.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Stand in a user's turn for a picture and a video. */
#define MT_IMAGE_MARKER "<image>"
#define MT_VIDEO_MARKER "<video>"

typedef enum mt_role { MT_ROLE_SYSTEM, MT_ROLE_USER, MT_ROLE_ASSISTANT } mt_role;

typedef struct mt_turn {
  mt_role role;
  const char *text; /* may hold zero bytes */
  size_t bytes;
  bool unlearnt; /* an assistant's turn without loss: ms-swift's "loss": false */
} mt_turn;

typedef MT_ARRAY(const char *) mt_path_list;

typedef struct mt_medium {
  const char *path;
  bool video;
} mt_medium;

/** Turns and paths point into the parsed line, or into what the caller put there. */
typedef struct mt_conversation {
  void *document;
  MT_ARRAY(char *) owned; /* texts of turns that are not those of the line */
  MT_ARRAY(mt_turn) turns;
  mt_path_list images, videos;
  MT_ARRAY(mt_medium) media; /* both in the order of their markers: by mt_conversation_place() */
} mt_conversation;

/**
 * Parses a line in one of the forms that docs/formats/data.md describes, and checks it: known roles, a system turn
 * at the head only, an assistant's turn at all; and puts its media in place. Errors carry the key; the caller adds
 * file and line. Free with mt_conversation_free(), also after an error.
 */
motet_status mt_conversation_parse(const char *line, size_t bytes, motet_error *error,
                                   mt_conversation *conversation);
void mt_conversation_free(mt_conversation *conversation);

/**
 * Gives each marker in the users' turns its picture or video, in order. There must be as many of each; where there
 * is no marker at all, all pictures and then all videos get one in front of the first user's turn, each on a line,
 * as InternVL's and ms-swift's code have it.
 */
motet_status mt_conversation_place(mt_conversation *conversation, motet_error *error);

/** The number of markers in the users' turns. */
size_t mt_conversation_markers(const mt_conversation *conversation);

/** The first marker in @p text, and which; NULL without one. */
const char *mt_marker_find(const char *text, size_t bytes, bool *video);

/** Both markers have the same length. */
enum { MT_MARKER_BYTES = sizeof MT_IMAGE_MARKER - 1 };

#endif

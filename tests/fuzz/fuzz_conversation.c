/* A line of a data set from arbitrary bytes: the users' markers are as many as pictures and videos, and each has
 * its own. */
#include "data/conversation.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  mt_conversation conversation;
  if (mt_conversation_parse((const char *)data, size, &error, &conversation) == MOTET_OK) {
    size_t markers = 0, videos = 0;
    bool video;
    for (size_t i = 0; i < conversation.turns.count; i++) {
      const mt_turn *turn = &conversation.turns.data[i];
      const char *text = turn->text, *end = text + turn->bytes;
      if (turn->role != MT_ROLE_USER) continue;
      while ((text = mt_marker_find(text, (size_t)(end - text), &video)) != NULL) {
        if (markers == conversation.media.count || conversation.media.data[markers].video != video) abort();
        markers++;
        videos += video;
        text += MT_MARKER_BYTES;
      }
    }
    if (markers != conversation.media.count || markers - videos != conversation.images.count ||
        videos != conversation.videos.count)
      abort();
  }
  mt_conversation_free(&conversation);
  return 0;
}

/** @file
 * Large memory: mapped in one piece, on huge pages where the system has them, touched before use. The first touch
 * of a small page costs as much as twelve thousand additions; a training step should not pay it.
 */
#ifndef MT_TENSOR_MEMORY_H
#define MT_TENSOR_MEMORY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/** Zeroed memory, aligned to 64 bytes. With @p prefault every page is there on return; without, pages come as they
 * are touched. */
motet_status mt_memory_map(size_t bytes, bool prefault, const char *purpose, motet_error *error, void **memory);
void mt_memory_unmap(void *memory, size_t bytes);

/** A stack of arrays in one prefaulted mapping: reserve once, take, and rewind to a mark. */
typedef struct mt_workspace {
  float *data;
  size_t capacity, used; /* floats */
} mt_workspace;

enum { MT_WORKSPACE_ROUND = 16 }; /* arrays begin at 64 bytes */

/** Room that an array of @p count floats takes in a workspace. */
static inline size_t mt_workspace_room(size_t count) {
  return (count + MT_WORKSPACE_ROUND - 1) / MT_WORKSPACE_ROUND * MT_WORKSPACE_ROUND;
}

/** Makes room for @p count floats beyond those in use, which must be none if it has to grow. */
motet_status mt_workspace_reserve(mt_workspace *workspace, size_t count, motet_error *error);
/** @p count floats, not initialised; they fit: the caller reserved them. */
float *mt_workspace_take(mt_workspace *workspace, size_t count);
void mt_workspace_free(mt_workspace *workspace);

#endif

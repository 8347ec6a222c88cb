/** @file
 * TensorBoard's event files: records of length, checksum, content, checksum (TensorFlow's TFRecord), the content an
 * Event in protocol-buffer wire form. Scalars alone.
 */
#ifndef MT_REPORT_TENSORBOARD_H
#define MT_REPORT_TENSORBOARD_H

#include "base/text.h"

#include <stdint.h>

typedef struct mt_tensorboard mt_tensorboard;

typedef struct mt_tensorboard_scalar {
  const char *tag;
  double value; /* what is not finite is left out */
} mt_tensorboard_scalar;

/**
 * Begins a new event file in @p directory, which is made if it is missing. What older files there say of steps
 * behind
 * @p last_step no longer counts: TensorBoard drops it.
 */
motet_status mt_tensorboard_open(const char *directory, int64_t last_step, motet_error *error,
                                 mt_tensorboard **out);

motet_status mt_tensorboard_add(mt_tensorboard *board, int64_t step, const mt_tensorboard_scalar *scalars,
                                int32_t count, motet_error *error);

void mt_tensorboard_close(mt_tensorboard *board);

/** CRC-32C (Castagnoli; RFC 3720, appendix B.4). */
uint32_t mt_crc32c(const void *data, size_t bytes);

/** Appends one record that holds @p bytes bytes. */
void mt_tensorboard_record(mt_text *out, const void *data, size_t bytes);

/** Appends an Event of scalars. */
void mt_tensorboard_event(mt_text *out, double wall_seconds, int64_t step, const mt_tensorboard_scalar *scalars,
                          int32_t count);

#endif

/** @file
 * Status codes and error records shared by every Motet function.
 *
 * A function that can fail returns a ::motet_status and takes an optional
 * `motet_error *` as its last input. Who first decides the error writes the
 * text; callers pass it on, at most adding context in front of it.
 */
#ifndef MOTET_STATUS_H
#define MOTET_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/** What became of a call. Zero is success, everything else is negative. */
typedef enum motet_status {
  MOTET_OK = 0,
  MOTET_ERROR_ARGUMENT = -1,    /**< a caller's argument or option makes no sense */
  MOTET_ERROR_PARSE = -2,       /**< text or file content is malformed */
  MOTET_ERROR_IO = -3,          /**< the operating system refused to read or write */
  MOTET_ERROR_MEMORY = -4,      /**< memory could not be had */
  MOTET_ERROR_LIMIT = -5,       /**< a size or count is beyond what can be represented */
  MOTET_ERROR_ILLEGAL = -6,     /**< a schedule, cut or plan is well formed but illegal */
  MOTET_ERROR_REFUSED = -7,     /**< the verifier refused a program */
  MOTET_ERROR_UNSUPPORTED = -8, /**< well formed and meaningful, but not implemented */
  MOTET_ERROR_FAILED = -9,      /**< a failure while running: message, kernel, rank */
  MOTET_ERROR_INTERRUPTED = -10 /**< stopped on request; state was saved */
} motet_status;

enum { MOTET_ERROR_TEXT_SIZE = 1024, MOTET_ERROR_FILE_SIZE = 512, MOTET_ERROR_KEY_SIZE = 128 };

/**
 * What went wrong and where. Plain data: copy it freely, it owns nothing.
 * Unknown places hold -1 (numbers; `line` is 0) or an empty string.
 */
typedef struct motet_error {
  motet_status status;
  char text[MOTET_ERROR_TEXT_SIZE]; /**< what was wrong and what would be right */
  char file[MOTET_ERROR_FILE_SIZE]; /**< input file, if any */
  int line;                         /**< line in that file, from 1; 0 if unknown */
  char key[MOTET_ERROR_KEY_SIZE];   /**< configuration key, tensor name, region, ... */
  char rule[32];                    /**< broken rule (verifier, legality), if any */
  int rank;                         /**< rank, or -1 */
  long long instruction;            /**< index in the rank's instruction list, or -1 */
  int microbatch;                   /**< microbatch, or -1 */
} motet_error;

/** Clears @p error to "no error"; NULL is allowed. */
void motet_error_clear(motet_error *error);

/** A short, constant English name of @p status ("ok", "malformed input", ...). */
const char *motet_status_string(motet_status status);

#ifdef __cplusplus
}
#endif

#endif

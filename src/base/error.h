/** @file Writing of error records: see motet/status.h for reading them. */
#ifndef MT_BASE_ERROR_H
#define MT_BASE_ERROR_H

#include "motet/status.h"

#define MT_PRINTF(format_index, first_argument) __attribute__((format(printf, format_index, first_argument)))

/** Clears @p error, stores @p status and the formatted text; returns @p status. @p error may be NULL. */
motet_status mt_error_set(motet_error *error, motet_status status, const char *format, ...) MT_PRINTF(3, 4);

/** Puts "formatted text: " in front of the text already in @p error; returns its status. */
motet_status mt_error_context(motet_error *error, motet_status status, const char *format, ...) MT_PRINTF(3, 4);

/** Names the place in an input file. @p file NULL or @p line 0 leave that part as it is. */
void mt_error_place(motet_error *error, const char *file, int line);

/** Names the key (configuration key, tensor, region) at fault. */
void mt_error_key(motet_error *error, const char *key);

/** Names the broken rule (NULL: none) and the place in a program. Negative numbers mean "none". */
void mt_error_rule(motet_error *error, const char *rule, int rank, long long instruction, int microbatch);

/** What the system refused: MOTET_ERROR_IO with "what: " and the text of errno, at @p path. */
motet_status mt_error_system(motet_error *error, const char *what, const char *path);

/** The error every failed allocation reports; @p bytes 0: of a size that the caller does not know. */
motet_status mt_error_memory(motet_error *error, unsigned long long bytes, const char *purpose);

#endif

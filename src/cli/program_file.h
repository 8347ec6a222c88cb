/** @file Reading a program in whichever form the user has it. */
#ifndef MT_CLI_PROGRAM_FILE_H
#define MT_CLI_PROGRAM_FILE_H

#include "motet/program.h"
#include "program/times.h"

/** A program read from a file. */
typedef struct mt_program_file {
  motet_program *program;
  mt_program_times times;  /* as the file has them; the program keeps them */
  bool explicit_transfers; /* a foreign order that brought its own sends and receives */
} mt_program_file;

/** Whether the file is a job by its name. */
bool mt_program_file_is_job(const char *path);

/**
 * Reads @p path.
 * @param format    "auto", "program" or "pytorch-csv"; NULL: auto, by the first character of the content
 * @param placement "loop", "v" or NULL: read from the rows
 */
motet_status mt_program_file_read(const char *path, const char *format, const char *placement, motet_error *error,
                                  mt_program_file *file);

#endif

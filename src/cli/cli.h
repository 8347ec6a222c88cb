/** @file What the commands of `motet` share: options, exit codes, error output. */
#ifndef MT_CLI_CLI_H
#define MT_CLI_CLI_H

#include "motet/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Exit codes of the command contract. */
enum { MT_EXIT_DONE = 0, MT_EXIT_NO = 1, MT_EXIT_USAGE = 2, MT_EXIT_FAILURE = 3, MT_EXIT_INTERRUPTED = 130 };

typedef enum mt_option_kind {
  MT_OPTION_FLAG,    /* bool; takes no argument */
  MT_OPTION_TEXT,    /* const char * */
  MT_OPTION_TEXTS,   /* mt_option_texts; may be given several times */
  MT_OPTION_INTEGER, /* int64_t, 0 to 2^53 */
  MT_OPTION_COUNT,   /* int64_t, 1 to INT32_MAX */
  MT_OPTION_SIZE,    /* int64_t, 1 to 2^53 */
  MT_OPTION_COLUMNS, /* int64_t, 1 to 1000 */
  MT_OPTION_NUMBER,  /* double, finite, >= 0 */
  MT_OPTION_POSITIVE /* double, finite, > 0 */
} mt_option_kind;

enum { MT_OPTION_TEXTS_MAX = 256 };

/** What an option that may be given several times was given. */
typedef struct mt_option_texts {
  int32_t count;
  const char *values[MT_OPTION_TEXTS_MAX];
} mt_option_texts;

/** One row of a command's option table; the value is stored at `offset` in the command's own struct. */
typedef struct mt_option {
  const char *name; /* without the dashes */
  mt_option_kind kind;
  size_t offset;
  const char *argument; /* what the help calls it; NULL for flags */
  const char *help;
} mt_option;

/** One row of the command table: help, man page and completion come from here. */
typedef struct mt_command {
  const char *name;
  const char *arguments; /* "FILE [--unit TEXT]" */
  const char *summary;   /* one line */
  const char *details;   /* paragraphs */
  const mt_option *options;
  size_t option_count;
  int (*run)(const struct mt_command *command, int argc, char **argv); /* argv[0]: first word after the command */
} mt_command;

/** The rows of a command's option table that were given, a bit each. */
typedef uint64_t mt_options_given;

/**
 * Reads options into @p target and moves the other words to the front of argv.
 * @return the number of those words, or -1 with @p error filled.
 */
int mt_cli_parse(const mt_command *command, int argc, char **argv, void *target, mt_options_given *given,
                 motet_error *error);

bool mt_cli_is_given(const mt_command *command, mt_options_given given, const char *name);

/** Options that change nothing where they stand are wrong usage: the first of @p names (the last is NULL) that was
 * given is refused as "--NAME @p reason". Leaves an error that is there already. */
void mt_cli_refuse_given(const mt_command *command, mt_options_given given, const char *const *names,
                         const char *reason, motet_error *error);

/** The exit code that belongs to a status. */
int mt_cli_exit_code(motet_status status);

/** Prints the error (as JSON on standard output with @p json, else one line on standard error) and gives the exit
 * code that belongs to its status. */
int mt_cli_fail(const motet_error *error, bool json);

/** As mt_cli_fail() for wrong usage: adds where to find help. */
int mt_cli_usage(const mt_command *command, const motet_error *error, bool json);

/** Writes @p text to standard output; MT_EXIT_DONE, or MT_EXIT_FAILURE with a message when it cannot be written. */
int mt_cli_print(const char *text);

#endif

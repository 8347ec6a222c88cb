/** @file Help, man pages and shell completion, all made from the command table. */
#ifndef MT_CLI_HELP_H
#define MT_CLI_HELP_H

#include "base/text.h"
#include "cli/cli.h"

/** The command table. */
typedef struct mt_command_table {
  const mt_command *const *commands;
  size_t count;
} mt_command_table;

/** The command called @p name, or NULL. */
const mt_command *mt_command_find(const mt_command_table *table, const char *name);

/** What `motet` and `motet help` say. */
void mt_help_overview(const mt_command_table *table, mt_text *text);

/** What `motet help COMMAND` says. */
void mt_help_command(const mt_command *command, mt_text *text);

/** What `motet help job` says: the keys of a job file; false where motet was built without the training runtime. */
bool mt_help_job(mt_text *text);

/** A man page in man(7): of @p command, or of `motet` itself where it is NULL. */
void mt_man_page(const mt_command_table *table, const mt_command *command, mt_text *text);

/** Completion for @p shell, one of MT_COMPLETION_SHELLS; false for others. */
bool mt_completion(const mt_command_table *table, const char *shell, mt_text *text);

#define MT_COMPLETION_SHELLS "bash, zsh, fish"

/** `motet help ...`: everything above, and for the build `--names`. Returns the exit code. */
int mt_help(const mt_command_table *table, int argc, char **argv);

#endif

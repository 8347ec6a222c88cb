#include "cli/help.h"

#include <stdio.h>
#include <string.h>

const mt_command *mt_command_find(const mt_command_table *table, const char *name) {
  for (size_t i = 0; i < table->count; i++)
    if (strcmp(table->commands[i]->name, name) == 0) return table->commands[i];
  return NULL;
}

void mt_help_overview(const mt_command_table *table, mt_text *text) {
  mt_text_append(text, "usage: motet COMMAND [arguments]\n\n");
  for (size_t i = 0; i < table->count; i++)
    mt_text_append(text, "  %-10s %s\n", table->commands[i]->name, table->commands[i]->summary);
  mt_text_append(text, "\n  help COMMAND              what a command takes\n"
                       "  help job                  the keys of a job file\n"
                       "  help --completion SHELL   completion for " MT_COMPLETION_SHELLS "\n"
                       "  --version                 the version\n"
                       "\nPages called docs/... lie in the source tree, and installed in share/doc/motet.\n");
}

/* Each way to call it on a line of its own: they stand between bars with blanks round them. */
static void put_usage(const mt_command *command, mt_text *text) {
  const char *way = command->arguments, *lead = "usage:";
  while (way != NULL) {
    const char *bar = strstr(way, " | ");
    mt_text_append(text, "%s motet %s %.*s\n", lead, command->name,
                   (int)(bar != NULL ? bar - way : (long)strlen(way)), way);
    way = bar != NULL ? bar + 3 : NULL;
    lead = "   or:";
  }
}

void mt_help_command(const mt_command *command, mt_text *text) {
  put_usage(command, text);
  mt_text_append(text, "\n%s.\n\n%s\n", command->summary, command->details);
  if (command->option_count > 0) mt_text_append(text, "\n");
  for (size_t i = 0; i < command->option_count; i++) {
    const mt_option *option = &command->options[i];
    mt_text_append(text, "  --%s%s%s\n        %s\n", option->name, option->argument != NULL ? " " : "",
                   option->argument != NULL ? option->argument : "", option->help);
  }
}

static int print(mt_text *text) {
  int code = text->data != NULL && !text->failed ? mt_cli_print(text->data) : MT_EXIT_FAILURE;
  mt_text_free(text);
  return code;
}

static int usage(const char *message, const char *word) {
  fprintf(stderr, "motet: %s '%s'\n", message, word);
  return MT_EXIT_USAGE;
}

int mt_help(const mt_command_table *table, int argc, char **argv) {
  mt_text text = {0};
  const char *first = argc > 0 ? argv[0] : NULL, *second = argc > 1 ? argv[1] : NULL;
  if (first == NULL) {
    mt_help_overview(table, &text);
  } else if (strcmp(first, "--names") == 0) {
    for (size_t i = 0; i < table->count; i++) mt_text_append(&text, "%s\n", table->commands[i]->name);
  } else if (strcmp(first, "--completion") == 0) {
    if (second == NULL || !mt_completion(table, second, &text))
      return usage("completion is there for " MT_COMPLETION_SHELLS ", not for", second != NULL ? second : "");
  } else if (strcmp(first, "job") != 0 || !mt_help_job(&text)) {
    bool man = strcmp(first, "--man") == 0;
    const char *name = man ? second : first;
    const mt_command *command = name != NULL ? mt_command_find(table, name) : NULL;
    if (name != NULL && command == NULL)
      return usage("'motet help' lists the commands; there is none called", name);
    if (man)
      mt_man_page(table, command, &text);
    else
      mt_help_command(command, &text);
  }
  return print(&text);
}

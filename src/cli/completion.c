/* Shell completion. */
#include "cli/help.h"

#include <ctype.h>
#include <string.h>

/* Appends @p plain with @p escape in front of each character of @p special. */
static void append(mt_text *text, const char *plain, const char *special, const char *escape) {
  for (const char *c = plain; *c != '\0'; c++)
    mt_text_append(text, "%s%c", strchr(special, *c) != NULL ? escape : "", *c);
}

/* Inside single quotes of a POSIX shell. */
static void append_quoted(mt_text *text, const char *plain) {
  for (const char *c = plain; *c != '\0'; c++)
    if (*c == '\'')
      mt_text_append(text, "'\\''");
    else
      mt_text_append(text, "%c", *c);
}

/* "auto|program" names its words; "FILE" and "TEXT" do not. A single n among the words stands for a number. */
static bool has_words(const mt_option *option) {
  if (option->argument == NULL || strchr(option->argument, '|') == NULL) return false;
  for (const char *c = option->argument; *c != '\0'; c++)
    if (!islower((unsigned char)*c) && strchr("|-", *c) == NULL) return false;
  return true;
}

static void append_words(mt_text *text, const mt_option *option) {
  const char *separator = "";
  for (const char *at = option->argument; *at != '\0';) {
    size_t length = strcspn(at, "|");
    if (length != 1 || *at != 'n') {
      mt_text_append(text, "%s%.*s", separator, (int)length, at);
      separator = " ";
    }
    at += length + (at[length] == '|');
  }
}

static bool takes_file(const mt_option *option) {
  return option->argument != NULL && strcmp(option->argument, "FILE") == 0;
}

static void append_names(mt_text *text, const mt_command_table *table) {
  for (size_t i = 0; i < table->count; i++)
    mt_text_append(text, "%s%s", i > 0 ? " " : "", table->commands[i]->name);
}

/* ---- bash: an empty answer leaves the word to the shell, which offers files. ---- */

static void bash_values(mt_text *text, const mt_command *command) {
  for (size_t i = 0; i < command->option_count; i++) {
    const mt_option *option = &command->options[i];
    if (option->kind == MT_OPTION_FLAG) continue;
    mt_text_append(text, "    %s:--%s) ", command->name, option->name);
    if (has_words(option)) {
      mt_text_append(text, "COMPREPLY=($(compgen -W '");
      append_words(text, option);
      mt_text_append(text, "' -- \"$current\"))");
    } else if (takes_file(option)) {
      mt_text_append(text, "COMPREPLY=()");
    } else {
      mt_text_append(text, "compopt +o default 2>/dev/null");
    }
    mt_text_append(text, "; return ;;\n");
  }
}

static void complete_bash(const mt_command_table *table, mt_text *text) {
  mt_text_append(text, "# bash completion for motet\n_motet() {\n"
                       "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words=\n"
                       "  COMPREPLY=()\n  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    COMPREPLY=($(compgen -W '");
  append_names(text, table);
  mt_text_append(text,
                 " help --version' -- \"$current\"))\n    return\n  fi\n  case ${COMP_WORDS[1]}:$previous in\n");
  for (size_t i = 0; i < table->count; i++) bash_values(text, table->commands[i]);
  mt_text_append(text, "  esac\n  case ${COMP_WORDS[1]} in\n");
  for (size_t i = 0; i < table->count; i++) {
    const mt_command *command = table->commands[i];
    if (command->option_count == 0) continue;
    mt_text_append(text, "    %s) words='", command->name);
    for (size_t o = 0; o < command->option_count; o++)
      mt_text_append(text, "%s--%s", o > 0 ? " " : "", command->options[o].name);
    mt_text_append(text, "' ;;\n");
  }
  mt_text_append(text, "    help) COMPREPLY=($(compgen -W '");
  append_names(text, table);
  mt_text_append(text, "' -- \"$current\")); return ;;\n  esac\n"
                       "  case $current in -*) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;; esac\n"
                       "}\ncomplete -o default -F _motet motet\n");
}

/* ---- zsh ---- */

static void zsh_option(mt_text *text, const mt_option *option) {
  mt_text_append(text, " \\\n        '--%s%s[", option->name, option->kind == MT_OPTION_FLAG ? "" : "=");
  mt_text help = {0};
  append(&help, option->help, "[]:\\", "\\");
  append_quoted(text, help.data != NULL ? help.data : "");
  mt_text_free(&help);
  mt_text_append(text, "]");
  if (option->kind != MT_OPTION_FLAG) {
    mt_text_append(text, ":");
    append(text, option->argument, "[]:\\", "\\");
    mt_text_append(text, ":");
    if (has_words(option)) {
      mt_text_append(text, "(");
      append_words(text, option);
      mt_text_append(text, ")");
    } else if (takes_file(option)) {
      mt_text_append(text, "_files");
    }
  }
  mt_text_append(text, "'");
}

static void complete_zsh(const mt_command_table *table, mt_text *text) {
  mt_text_append(text, "#compdef motet\n_motet() {\n  local -a commands=(\n");
  for (size_t i = 0; i < table->count; i++) {
    mt_text_append(text, "    '%s:", table->commands[i]->name);
    append_quoted(text, table->commands[i]->summary);
    mt_text_append(text, "'\n");
  }
  mt_text_append(text, "    'help:what a command takes'\n  )\n  if (( CURRENT == 2 )); then\n"
                       "    _describe command commands\n    return\n  fi\n"
                       "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n");
  for (size_t i = 0; i < table->count; i++) {
    const mt_command *command = table->commands[i];
    mt_text_append(text, "    %s)\n      _arguments", command->name);
    for (size_t o = 0; o < command->option_count; o++) zsh_option(text, &command->options[o]);
    mt_text_append(text, " \\\n        '*:file:_files' ;;\n");
  }
  mt_text_append(text, "    help) _describe command commands ;;\n  esac\n}\n"
                       "if [[ $funcstack[1] == _motet ]]; then _motet \"$@\"; else compdef _motet motet; fi\n");
}

/* ---- fish ---- */

static void append_fish(mt_text *text, const char *plain) {
  mt_text_append(text, "'");
  append(text, plain, "'\\", "\\");
  mt_text_append(text, "'");
}

static void complete_fish(const mt_command_table *table, mt_text *text) {
  mt_text_append(text, "# fish completion for motet\n");
  for (size_t i = 0; i < table->count; i++) {
    const mt_command *command = table->commands[i];
    mt_text_append(text, "complete -c motet -n __fish_use_subcommand -f -a %s -d ", command->name);
    append_fish(text, command->summary);
    mt_text_append(text, "\n");
    for (size_t o = 0; o < command->option_count; o++) {
      const mt_option *option = &command->options[o];
      mt_text_append(text, "complete -c motet -n '__fish_seen_subcommand_from %s' -l %s", command->name,
                     option->name);
      if (option->kind != MT_OPTION_FLAG) mt_text_append(text, takes_file(option) ? " -r -F" : " -x");
      if (has_words(option)) {
        mt_text_append(text, " -a '");
        append_words(text, option);
        mt_text_append(text, "'");
      }
      mt_text_append(text, " -d ");
      append_fish(text, option->help);
      mt_text_append(text, "\n");
    }
  }
  mt_text_append(text, "complete -c motet -n __fish_use_subcommand -f -a help -d 'what a command takes'\n"
                       "complete -c motet -n '__fish_seen_subcommand_from help' -f -a '");
  append_names(text, table);
  mt_text_append(text, "'\n");
}

bool mt_completion(const mt_command_table *table, const char *shell, mt_text *text) {
  static const struct {
    const char *shell;
    void (*complete)(const mt_command_table *table, mt_text *text);
  } rows[] = {{"bash", complete_bash}, {"zsh", complete_zsh}, {"fish", complete_fish}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].shell, shell) == 0) return rows[i].complete(table, text), true;
  return false;
}

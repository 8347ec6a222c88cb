/* Man pages in man(7). */
#include "cli/help.h"

#include <ctype.h>
#include <string.h>

/* Text that roff takes as it stands: no escapes, no control lines, no typeset dashes or quotes. */
static void append(mt_text *text, const char *plain) {
  for (const char *c = plain; *c != '\0'; c++) {
    bool begins_line = c == plain || c[-1] == '\n';
    if (begins_line && (*c == '.' || *c == '\'')) mt_text_append(text, "\\&");
    switch (*c) {
    case '\\': mt_text_append(text, "\\e"); break;
    case '-': mt_text_append(text, "\\-"); break;
    case '\'': mt_text_append(text, "\\(aq"); break;
    case '`': mt_text_append(text, "\\(ga"); break;
    case '^': mt_text_append(text, "\\(ha"); break;
    case '~': mt_text_append(text, "\\(ti"); break;
    default: mt_text_append(text, "%c", *c);
    }
  }
}

/* Empty lines part paragraphs. */
static void append_paragraphs(mt_text *text, const char *plain) {
  while (*plain != '\0') {
    const char *end = strstr(plain, "\n\n");
    mt_text part = {0};
    mt_text_bytes(&part, plain, end != NULL ? (size_t)(end - plain) : strlen(plain));
    mt_text_append(text, ".PP\n");
    if (part.data != NULL) append(text, part.data);
    mt_text_append(text, "\n");
    mt_text_free(&part);
    plain = end != NULL ? end + 2 : plain + strlen(plain);
  }
}

static void append_title(mt_text *text, const char *command) {
  mt_text_append(text, ".TH MOTET");
  if (command != NULL) mt_text_append(text, "\\-");
  for (const char *c = command != NULL ? command : ""; *c != '\0'; c++)
    mt_text_append(text, "%c", toupper((unsigned char)*c));
  mt_text_append(text, " 1 \"\" \"motet %s\" \"Motet\"\n.SH NAME\nmotet%s%s \\- ", MOTET_VERSION,
                 command != NULL ? "\\-" : "", command != NULL ? command : "");
}

static void append_exit_codes(mt_text *text) {
  static const struct {
    int code;
    const char *meaning;
  } rows[] = {{MT_EXIT_DONE, "done"},
              {MT_EXIT_NO, "the answer is no: illegal schedule, program refused, nothing fits"},
              {MT_EXIT_USAGE, "wrong usage or unreadable input"},
              {MT_EXIT_FAILURE, "a failure while running"},
              {MT_EXIT_INTERRUPTED, "interrupted; state was saved"}};
  mt_text_append(text, ".SH EXIT STATUS\n");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    mt_text_append(text, ".TP\n.B %d\n%s\n", rows[i].code, rows[i].meaning);
}

/* Alternatives of the usage line, parted by " | ", on lines of their own. */
static void append_synopsis(mt_text *text, const mt_command *command) {
  for (const char *at = command->arguments; at != NULL;) {
    const char *end = strstr(at, " | ");
    mt_text part = {0};
    mt_text_bytes(&part, at, end != NULL ? (size_t)(end - at) : strlen(at));
    mt_text_append(text, "%s.B motet %s\n", at == command->arguments ? "" : ".br\n", command->name);
    if (part.data != NULL) append(text, part.data);
    mt_text_append(text, "\n");
    mt_text_free(&part);
    at = end != NULL ? end + 3 : NULL;
  }
}

static void append_command(mt_text *text, const mt_command *command) {
  append_title(text, command->name);
  append(text, command->summary);
  mt_text_append(text, "\n.SH SYNOPSIS\n");
  append_synopsis(text, command);
  mt_text_append(text, ".SH DESCRIPTION\n");
  append_paragraphs(text, command->details);
  if (command->option_count > 0) mt_text_append(text, ".SH OPTIONS\n");
  for (size_t i = 0; i < command->option_count; i++) {
    const mt_option *option = &command->options[i];
    mt_text_append(text, ".TP\n\\fB\\-\\-");
    append(text, option->name);
    mt_text_append(text, "\\fR");
    if (option->argument != NULL) {
      mt_text_append(text, " \\fI");
      append(text, option->argument);
      mt_text_append(text, "\\fR");
    }
    mt_text_append(text, "\n");
    append(text, option->help);
    mt_text_append(text, "\n");
  }
  append_exit_codes(text);
  mt_text_append(text, ".SH SEE ALSO\n.BR motet (1)\n");
}

void mt_man_page(const mt_command_table *table, const mt_command *command, mt_text *text) {
  if (command != NULL) {
    append_command(text, command);
    return;
  }
  append_title(text, NULL);
  append(text, "plan, prove, simulate and run the parallel training of multimodal models");
  mt_text_append(text,
                 "\n.SH SYNOPSIS\n.B motet\n.I COMMAND\n[arguments]\n.br\n.B motet help\n[\\fICOMMAND\\fR]\n");
  mt_text_append(text, ".SH COMMANDS\n");
  for (size_t i = 0; i < table->count; i++) {
    mt_text_append(text, ".TP\n.BR motet\\-%s (1)\n", table->commands[i]->name);
    append(text, table->commands[i]->summary);
    mt_text_append(text, "\n");
  }
  append_exit_codes(text);
}

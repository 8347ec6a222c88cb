#include "cli/terminal.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { PIPED_WIDTH = 100, LEAST_WIDTH = 40, MOST_WIDTH = 1000, STANDARD_HEIGHT = 24 };

mt_terminal mt_terminal_find(void) {
  mt_terminal terminal = {.width = PIPED_WIDTH};
  bool is_terminal = isatty(STDOUT_FILENO);
  struct winsize size;
  if (is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.width = size.ws_col;
  const char *columns = getenv("COLUMNS");
  if (columns != NULL && atoi(columns) > 0) terminal.width = atoi(columns);
  if (terminal.width < LEAST_WIDTH) terminal.width = LEAST_WIDTH;
  if (terminal.width > MOST_WIDTH) terminal.width = MOST_WIDTH;
  const char *refused = getenv("NO_COLOR"), *kind = getenv("TERM");
  terminal.color =
      is_terminal && (refused == NULL || *refused == '\0') && (kind == NULL || strcmp(kind, "dumb") != 0);
  locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
  if (locale != (locale_t)0) {
    terminal.unicode = strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    freelocale(locale);
  }
  return terminal;
}

int mt_terminal_height(void) {
  struct winsize size;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : STANDARD_HEIGHT;
}

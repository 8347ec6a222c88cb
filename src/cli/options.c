#include "base/error.h"
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const mt_option *find(const mt_command *command, const char *name, size_t length) {
  for (size_t i = 0; i < command->option_count; i++) {
    const mt_option *option = &command->options[i];
    if (strlen(option->name) == length && strncmp(option->name, name, length) == 0) return option;
  }
  return NULL;
}

/* A whole number, also as 6e6, that a double holds exactly. */
static bool parse_integer(const char *text, int64_t *number) {
  char *end;
  errno = 0;
  long long whole = strtoll(text, &end, 10);
  if (end != text && *end == '\0' && errno == 0) {
    *number = whole;
    return whole >= 0;
  }
  double real = strtod(text, &end);
  if (end == text || *end != '\0' || !(real >= 0 && real <= 0x1p53) || real != floor(real)) return false;
  *number = (int64_t)real;
  return true;
}

static motet_status store(const mt_option *option, const char *value, void *target, motet_error *error) {
  void *field = (char *)target + option->offset;
  char *end;
  switch (option->kind) {
  case MT_OPTION_FLAG: *(bool *)field = true; return MOTET_OK;
  case MT_OPTION_TEXT: *(const char **)field = value; return MOTET_OK;
  case MT_OPTION_TEXTS: {
    mt_option_texts *texts = field;
    if (texts->count == MT_OPTION_TEXTS_MAX)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--%s: at most %d of them", option->name,
                          MT_OPTION_TEXTS_MAX);
    texts->values[texts->count++] = value;
    return MOTET_OK;
  }
  case MT_OPTION_INTEGER: {
    int64_t number;
    if (!parse_integer(value, &number))
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--%s: '%s' is not a whole number >= 0", option->name,
                          value);
    *(int64_t *)field = number;
    return MOTET_OK;
  }
  case MT_OPTION_NUMBER: {
    double number = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(number) || number < 0)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--%s: '%s' is not a finite number >= 0", option->name,
                          value);
    *(double *)field = number;
    return MOTET_OK;
  }
  }
  return MOTET_ERROR_ARGUMENT;
}

/* --json holds for the errors of the words before it too. */
static void find_json(const mt_command *command, int argc, char **argv, void *target) {
  const mt_option *json = find(command, "json", strlen("json"));
  if (json == NULL || json->kind != MT_OPTION_FLAG) return;
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--json") == 0) *(bool *)((char *)target + json->offset) = true;
}

int mt_cli_parse(const mt_command *command, int argc, char **argv, void *target, motet_error *error) {
  int words = 0;
  find_json(command, argc, argv, target);
  for (int i = 0; i < argc; i++) {
    if (strcmp(argv[i], "--") == 0) {
      for (i++; i < argc; i++) argv[words++] = argv[i];
      break;
    }
    const char *word = strcmp(argv[i], "-o") == 0 ? "--output" : argv[i];
    if (strncmp(word, "--", 2) != 0) {
      argv[words++] = argv[i];
      continue;
    }
    const char *name = word + 2, *equals = strchr(name, '=');
    size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const mt_option *option = find(command, name, length);
    if (option == NULL) {
      mt_error_set(error, MOTET_ERROR_ARGUMENT, "unknown option --%.*s", (int)length, name);
      return -1;
    }
    const char *value = equals != NULL ? equals + 1 : NULL;
    if (option->kind == MT_OPTION_FLAG && value != NULL) {
      mt_error_set(error, MOTET_ERROR_ARGUMENT, "--%s takes no value", option->name);
      return -1;
    }
    if (option->kind != MT_OPTION_FLAG && value == NULL) {
      if (i + 1 >= argc) {
        mt_error_set(error, MOTET_ERROR_ARGUMENT, "--%s needs a value: %s", option->name, option->argument);
        return -1;
      }
      value = argv[++i];
    }
    if (store(option, value, target, error) != MOTET_OK) return -1;
  }
  return words;
}

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

static mt_options_given bit_of(const mt_command *command, const mt_option *option) {
  return UINT64_C(1) << (option - command->options);
}

/* A whole number, also as 6e6, that a double holds exactly. */
static bool parse_integer(const char *text, int64_t *number) {
  char *end;
  errno = 0;
  long long whole = strtoll(text, &end, 10);
  if (end != text && *end == '\0' && errno == 0) {
    *number = whole;
    return true;
  }
  double real = strtod(text, &end);
  if (end == text || *end != '\0' || !(real >= 0 && real <= 0x1p53) || real != floor(real)) return false;
  *number = (int64_t)real;
  return true;
}

/* What whole numbers of each kind may be. */
static const struct {
  int64_t least, most;
} ranges[] = {[MT_OPTION_INTEGER] = {0, INT64_C(1) << 53},
              [MT_OPTION_COUNT] = {1, INT32_MAX},
              [MT_OPTION_SIZE] = {1, INT64_C(1) << 53},
              [MT_OPTION_COLUMNS] = {1, 1000}};

static motet_status store_integer(const mt_option *option, const char *value, int64_t *field, motet_error *error) {
  int64_t number, least = ranges[option->kind].least, most = ranges[option->kind].most;
  bool good = parse_integer(value, &number);
  if (good && number >= least && number <= most) {
    *field = number;
    return MOTET_OK;
  }
  return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--%s: '%s' is not a whole number from %lld to %lld",
                      option->name, value, (long long)least, (long long)most);
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
  case MT_OPTION_INTEGER:
  case MT_OPTION_COUNT:
  case MT_OPTION_SIZE:
  case MT_OPTION_COLUMNS: return store_integer(option, value, field, error);
  case MT_OPTION_NUMBER:
  case MT_OPTION_POSITIVE: {
    double number = strtod(value, &end);
    bool positive = option->kind == MT_OPTION_POSITIVE;
    if (end == value || *end != '\0' || !isfinite(number) || number < 0 || (positive && number <= 0))
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--%s: '%s' is not a finite number %s 0", option->name,
                          value, positive ? ">" : ">=");
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

/* A key of a job as other programs have it, with dashes; or the option that begins like it. */
static void unknown(const mt_command *command, const char *name, int length, motet_error *error) {
  enum { ALIKE = 3 };
  const mt_option *nearest = NULL;
  int most = ALIKE - 1;
  for (size_t i = 0; i < command->option_count; i++) {
    int alike = 0;
    while (alike < length && command->options[i].name[alike] == name[alike]) alike++;
    if (alike > most) most = alike, nearest = &command->options[i];
  }
  if (memchr(name, '.', (size_t)length) != NULL && strstr(command->arguments, "key=value") != NULL)
    mt_error_set(error, MOTET_ERROR_ARGUMENT,
                 "unknown option --%.*s; a key of the job goes without dashes: %.*s=VALUE", length, name, length,
                 name);
  else if (nearest != NULL)
    mt_error_set(error, MOTET_ERROR_ARGUMENT, "unknown option --%.*s; did you mean --%s?", length, name,
                 nearest->name);
  else
    mt_error_set(error, MOTET_ERROR_ARGUMENT, "unknown option --%.*s", length, name);
}

int mt_cli_parse(const mt_command *command, int argc, char **argv, void *target, mt_options_given *given,
                 motet_error *error) {
  int words = 0;
  *given = 0;
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
      unknown(command, name, (int)length, error);
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
    *given |= bit_of(command, option);
  }
  return words;
}

bool mt_cli_is_given(const mt_command *command, mt_options_given given, const char *name) {
  const mt_option *option = find(command, name, strlen(name));
  return option != NULL && (given & bit_of(command, option)) != 0;
}

void mt_cli_refuse_given(const mt_command *command, mt_options_given given, const char *const *names,
                         const char *reason, motet_error *error) {
  for (; error->status == MOTET_OK && *names != NULL; names++)
    if (mt_cli_is_given(command, given, *names))
      mt_error_set(error, MOTET_ERROR_ARGUMENT, "--%s %s", *names, reason);
}

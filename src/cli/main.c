#include "base/error.h"
#include "cli/commands.h"
#include "cli/help.h"

#include <stdio.h>
#include <string.h>

static const mt_command *const commands[] = {
    &mt_command_plan,    &mt_command_verify, &mt_command_simulate, &mt_command_show,
    &mt_command_watch,   &mt_command_report, &mt_command_model,    &mt_command_pack,
#ifdef MOTET_WITH_RUNTIME
    &mt_command_profile, &mt_command_train,  &mt_command_compare,  &mt_command_generate,
#endif
};
static const mt_command_table table = {commands, sizeof commands / sizeof *commands};

static int unknown(const char *name, int argc, char **argv) {
  motet_error error;
  bool json = false;
  for (int i = 0; i < argc; i++) json = json || strcmp(argv[i], "--json") == 0;
  mt_error_set(&error, MOTET_ERROR_ARGUMENT, "there is no command '%s'; 'motet help' lists them", name);
  return mt_cli_fail(&error, json);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    mt_text text = {0};
    mt_help_overview(&table, &text);
    if (text.data != NULL) fputs(text.data, stderr);
    mt_text_free(&text);
    return MT_EXIT_USAGE;
  }
  const char *name = argv[1];
  if (strcmp(name, "--version") == 0) {
    printf("motet %s\n", MOTET_VERSION);
    return MT_EXIT_DONE;
  }
  if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
    return mt_help(&table, argc - 2, argv + 2);
  const mt_command *command = mt_command_find(&table, name);
  if (command == NULL) return unknown(name, argc - 2, argv + 2);
  for (int i = 2; i < argc; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return mt_help(&table, 1, &argv[1]);
  return command->run(command, argc - 2, argv + 2);
}

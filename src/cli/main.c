#include "cli/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const mt_command *const commands[] = {
    &mt_command_plan,    &mt_command_verify, &mt_command_simulate, &mt_command_show, &mt_command_pack,
#ifdef MOTET_WITH_RUNTIME
    &mt_command_profile, &mt_command_train,  &mt_command_compare,
#endif
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const mt_command *find(const char *name) {
  for (int i = 0; i < COMMANDS; i++)
    if (strcmp(commands[i]->name, name) == 0) return commands[i];
  return NULL;
}

static void print_overview(FILE *out) {
  fputs("usage: motet COMMAND [arguments]\n\n", out);
  for (int i = 0; i < COMMANDS; i++) fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
  fputs("\n  help COMMAND   what a command takes\n  --version      the version\n", out);
}

static void print_help(const mt_command *command) {
  printf("usage: motet %s %s\n\n%s.\n\n%s\n", command->name, command->arguments, command->summary,
         command->details);
  if (command->option_count > 0) printf("\n");
  for (size_t i = 0; i < command->option_count; i++) {
    const mt_option *option = &command->options[i];
    char form[64];
    snprintf(form, sizeof form, "--%s%s%s", option->name, option->argument != NULL ? " " : "",
             option->argument != NULL ? option->argument : "");
    printf("  %s\n        %s\n", form, option->help);
  }
}

static int help(int argc, char **argv) {
  if (argc < 1) {
    print_overview(stdout);
    return MT_EXIT_DONE;
  }
  const mt_command *command = find(argv[0]);
  if (command == NULL) {
    fprintf(stderr, "motet: there is no command '%s'; 'motet help' lists them\n", argv[0]);
    return MT_EXIT_USAGE;
  }
  print_help(command);
  return MT_EXIT_DONE;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    print_overview(stderr);
    return MT_EXIT_USAGE;
  }
  const char *name = argv[1];
  if (strcmp(name, "--version") == 0) {
    printf("motet %s\n", MOTET_VERSION);
    return MT_EXIT_DONE;
  }
  if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
    return help(argc - 2, argv + 2);
  const mt_command *command = find(name);
  if (command == NULL) {
    fprintf(stderr, "motet: there is no command '%s'; 'motet help' lists them\n", name);
    return MT_EXIT_USAGE;
  }
  for (int i = 2; i < argc; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return print_help(command), MT_EXIT_DONE;
  return command->run(command, argc - 2, argv + 2);
}

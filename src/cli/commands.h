/** @file The rows of the command table, one per file of this folder. */
#ifndef MT_CLI_COMMANDS_H
#define MT_CLI_COMMANDS_H

#include "cli/cli.h"

extern const mt_command mt_command_plan;
extern const mt_command mt_command_verify;
extern const mt_command mt_command_simulate;
extern const mt_command mt_command_show;
extern const mt_command mt_command_watch;
extern const mt_command mt_command_model;
extern const mt_command mt_command_report;
extern const mt_command mt_command_pack;
extern const mt_command mt_command_profile;
extern const mt_command mt_command_train;
extern const mt_command mt_command_compare;
extern const mt_command mt_command_generate;

#endif

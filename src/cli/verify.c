#include "base/digest.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/program_file.h"
#include "report/words.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct verify_options {
  const char *format, *placement;
  int64_t capacity;
  bool posted, json;
} verify_options;

static const mt_option options[] = {
    {"format", MT_OPTION_TEXT, offsetof(verify_options, format), "auto|program|pytorch-csv", "form of FILE"},
    {"placement", MT_OPTION_TEXT, offsetof(verify_options, placement), "loop|v",
     "how stages must lie on the ranks; an order that lies otherwise is an error"},
    {"capacity", MT_OPTION_INTEGER, offsetof(verify_options, capacity), "N",
     "buffered sends per channel; 0, the hardest case, is always checked"},
    {"posted", MT_OPTION_FLAG, offsetof(verify_options, posted), NULL,
     "accept a foreign order that only hangs when its sends and receives block one after the other"},
    {"json", MT_OPTION_FLAG, offsetof(verify_options, json), NULL, "print one JSON document"},
};

static json_t *cycle_value(const motet_verification *verification) {
  json_t *cycle = json_array();
  for (int32_t i = 0; i < verification->cycle_count; i++)
    json_array_append_new(cycle, json_pack("{s:I, s:I}", "rank", (json_int_t)verification->cycle[2 * i],
                                           "instruction", (json_int_t)verification->cycle[2 * i + 1]));
  return cycle;
}

/* "SEND of the gradient from stage 3 to stage 2, microbatch 0, to rank 0"; what does not travel along an edge: "FWD
 * of stage 1, microbatch 0". */
static void describe_instruction(const motet_program *program, const motet_instruction *instruction,
                                 mt_text *text) {
  const motet_buffer *buffer = instruction->buffer >= 0 ? &program->buffers[instruction->buffer] : NULL;
  bool moves = buffer != NULL && buffer->edge >= 0 && instruction->kind >= MOTET_SEND &&
               instruction->kind <= MOTET_WAIT &&
               (buffer->kind == MOTET_BUFFER_ACTIVATION || buffer->kind == MOTET_BUFFER_GRADIENT);
  mt_text_append(text, "%s", motet_instruction_name(instruction->kind));
  if (moves) {
    const motet_program_edge *edge = &program->edges[buffer->edge];
    bool gradient = buffer->kind == MOTET_BUFFER_GRADIENT;
    mt_text_append(text, " of the %s from stage %d to stage %d", gradient ? "gradient" : "activation",
                   gradient ? edge->to : edge->from, gradient ? edge->from : edge->to);
  } else if (instruction->stage >= 0) {
    mt_text_append(text, " of stage %d", instruction->stage);
  }
  if (instruction->microbatch >= 0) mt_text_append(text, ", microbatch %d", instruction->microbatch);
  bool receives = instruction->kind == MOTET_RECV || (instruction->flags & MOTET_FLAG_RECV) != 0;
  if (moves) mt_text_append(text, ", %s rank %d", receives ? "from" : "to", instruction->peer);
}

static void describe_cycle(const motet_program *program, const motet_verification *verification, mt_text *text) {
  for (int32_t i = 0; i < verification->cycle_count; i++) {
    int64_t rank = verification->cycle[2 * i], index = verification->cycle[2 * i + 1];
    const motet_instruction *instruction = &program->instructions[program->rank_begin[rank] + index];
    mt_text_append(text, "%s  rank %lld, instruction %lld: ", i > 0 ? " waits for\n" : "", (long long)rank,
                   (long long)index);
    describe_instruction(program, instruction, text);
  }
  if (verification->cycle_count > 0) mt_text_append(text, " waits for the first\n");
}

static int refuse(const motet_program *program, const motet_error *error, const motet_verification *verification,
                  bool json) {
  if (!json) {
    int code = mt_cli_fail(error, false);
    mt_text text = {0};
    describe_cycle(program, verification, &text);
    if (text.data != NULL) fputs(text.data, stderr);
    mt_text_free(&text);
    return code;
  }
  json_t *document = json_pack("{s:b, s:s, s:s}", "accepted", 0, "rule", error->rule, "message", error->text);
  if (error->rank >= 0) json_object_set_new(document, "rank", json_integer(error->rank));
  if (error->instruction >= 0) json_object_set_new(document, "instruction", json_integer(error->instruction));
  if (error->microbatch >= 0) json_object_set_new(document, "microbatch", json_integer(error->microbatch));
  if (verification->cycle_count > 0) json_object_set_new(document, "cycle", cycle_value(verification));
  char *text = json_dumps(document, JSON_INDENT(1));
  int code = text != NULL && mt_cli_print(text) == MT_EXIT_DONE && mt_cli_print("\n") == MT_EXIT_DONE
                 ? MT_EXIT_NO
                 : MT_EXIT_FAILURE;
  free(text);
  json_decref(document);
  return code;
}

/* A foreign order with its own transfers is run by frameworks that block at each: a hang there is a hang. */
static motet_status refuse_blocking(const motet_program *program, const motet_verification *verification,
                                    motet_error *error) {
  int64_t rank = verification->cycle_count > 0 ? verification->cycle[0] : -1;
  int64_t index = verification->cycle_count > 0 ? verification->cycle[1] : -1;
  const motet_instruction *at = rank >= 0 ? &program->instructions[program->rank_begin[rank] + index] : NULL;
  mt_error_set(
      error, MOTET_ERROR_REFUSED,
      "the order hangs when sends and receives block one after the other (as on one NCCL stream); with sends "
      "posted and waited for later it ends. Post them, or move a receive before the send it waits behind");
  mt_error_rule(error, "progress", (int)rank, index, at != NULL ? at->microbatch : -1);
  return MOTET_ERROR_REFUSED;
}

static int accept(const motet_program *program, const motet_verification *verification, bool json) {
  char digest[MT_DIGEST_TEXT_SIZE];
  mt_digest_print(motet_program_digest(program), digest);
  long long instructions = (long long)program->rank_begin[program->ranks];
  int64_t peak = 0;
  double activations = 0;
  for (int32_t r = 0; r < program->ranks; r++) {
    if (verification->memory[r].peak_bytes > peak) peak = verification->memory[r].peak_bytes;
    if (verification->memory[r].peak_activations > activations)
      activations = verification->memory[r].peak_activations;
  }
  mt_text text = {0};
  if (json) {
    json_t *per_rank = json_array();
    for (int32_t r = 0; r < program->ranks; r++)
      json_array_append_new(per_rank, json_real(verification->memory[r].peak_activations));
    json_t *document = json_pack("{s:b, s:s, s:s, s:i, s:I, s:o, s:I, s:b}", "accepted", 1, "schedule",
                                 program->schedule, "digest", digest, "ranks", program->ranks, "instructions",
                                 (json_int_t)instructions, "peak_activations", per_rank, "peak_bytes",
                                 (json_int_t)peak, "blocking_hangs", verification->blocking_hangs);
    if (verification->blocking_hangs) json_object_set_new(document, "cycle", cycle_value(verification));
    char *dump = json_dumps(document, JSON_INDENT(1));
    mt_text_append(&text, "%s\n", dump != NULL ? dump : "");
    free(dump);
    json_decref(document);
  } else {
    mt_text_append(&text, "accepted: %s, %s, digest %s\n", mt_counted(program->ranks, "rank").text,
                   mt_counted(instructions, "instruction").text, digest);
    mt_text_append(&text, "peak activations %g microbatch-stages", activations);
    if (peak > 0) {
      mt_text_append(&text, ", peak memory ");
      mt_words_bytes(&text, peak);
    }
    mt_text_append(&text, "\n");
    if (verification->blocking_hangs) {
      mt_text_append(&text, "note: it would hang if sends and receives blocked one after the other:\n");
      describe_cycle(program, verification, &text);
    }
  }
  int code = text.data != NULL ? mt_cli_print(text.data) : MT_EXIT_FAILURE;
  mt_text_free(&text);
  return code;
}

static int run(const mt_command *command, int argc, char **argv) {
  verify_options chosen = {0};
  motet_error error;
  motet_error_clear(&error);
  mt_options_given given;
  int words = mt_cli_parse(command, argc, argv, &chosen, &given, &error);
  if (words >= 0 && words != 1)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "verify takes one FILE, not %d", words);
  else if (chosen.capacity > INT32_MAX)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "--capacity: at most %d", INT32_MAX);
  if (error.status != MOTET_OK) return mt_cli_usage(command, &error, chosen.json);
  mt_program_file file;
  motet_status status = mt_program_file_read(argv[0], chosen.format, chosen.placement, &error, &file);
  if (status != MOTET_OK) return mt_cli_fail(&error, chosen.json);
  if (chosen.posted && !file.explicit_transfers) {
    motet_program_destroy(file.program);
    mt_error_set(&error, MOTET_ERROR_ARGUMENT,
                 "--posted is for orders with sends and receives of their own; this file has none");
    return mt_cli_usage(command, &error, chosen.json);
  }
  motet_verify_options how = {.capacity = (int32_t)chosen.capacity, .check_blocking = file.explicit_transfers};
  motet_verification verification = {0};
  status = motet_verify(file.program, &how, &error, &verification);
  if (status == MOTET_OK && verification.blocking_hangs && !chosen.posted)
    status = refuse_blocking(file.program, &verification, &error);
  int code = status == MOTET_OK              ? accept(file.program, &verification, chosen.json)
             : status == MOTET_ERROR_REFUSED ? refuse(file.program, &error, &verification, chosen.json)
                                             : mt_cli_fail(&error, chosen.json);
  motet_verification_free(&verification);
  motet_program_destroy(file.program);
  return code;
}

const mt_command mt_command_verify = {
    .name = "verify",
    .arguments = "FILE [options]",
    .summary = "prove a program or a foreign order, or name the first rule it breaks",
    .details =
        "FILE is a program (JSON) or a PyTorch pipelining order (CSV, one row a rank). The proof covers\n"
        "completeness, data flow, channels, progress, collectives, memory and gradients. A foreign order\n"
        "with its own sends and receives must also end when each of them blocks in order. What the rule named\n"
        "in a refusal demands and what to do: docs/errors.md, a page a rule.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};

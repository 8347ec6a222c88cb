/** @file Words of the program JSON that its reader and its writer share: see docs/formats/program.md. */
#ifndef MT_PROGRAM_JSON_H
#define MT_PROGRAM_JSON_H

#include "base/text.h"
#include "motet/program.h"
#include "program/times.h"

#define MT_PROGRAM_FORMAT "motet-program"
enum { MT_PROGRAM_VERSION = 1 };

/** The program's JSON with its times, where @p times is not NULL and knows them; appended to @p text, which the
 * caller frees also after an error. */
motet_status mt_program_print(const motet_program *program, const mt_program_times *times, motet_error *error,
                              mt_text *text);

/** As motet_program_write(), with times. */
motet_status mt_program_write_timed(const motet_program *program, const mt_program_times *times, const char *path,
                                    motet_error *error);

/** motet_program_read() of a file's content; @p path is what errors name. The times that the file has live as long
 * as the program; they are checked also where @p times is NULL. */
motet_status mt_program_parse(const char *data, size_t bytes, const char *path, motet_error *error,
                              motet_program **program, mt_program_times *times);

/** A number that reads back as the same double, whatever the locale. */
void mt_json_number_append(mt_text *text, double value);

/** The key `times`, with what ends its line. */
void mt_json_times_append(mt_text *text, const motet_program *program, const mt_program_times *times);

/** {"peak_per_second": .., "pieces": [..]}, as mt_reader_flops() reads it. */
void mt_json_flops_append(mt_text *text, const mt_flops *flops);

/** The words for motet_flops_part in files. */
extern const char *const mt_flops_part_names[MT_FLOPS_PARTS];

/** "ACTIVATION", ...; NULL for a number that is no kind. */
const char *mt_buffer_kind_name(int kind);

/** Name of one bit of motet_program_stage.inputs: "pixels", "tokens", "labels"; NULL for others. */
const char *mt_input_name(uint32_t bit);

/** The text of a checked instruction: "FWD 3 12", "WAIT 17 4 recv". */
void mt_instruction_append(mt_text *text, const motet_program *program, const motet_instruction *instruction);

/** Reads such a text. Ranges are left to mt_program_check(), except for buffers, whose fields are looked up.
 * @return NULL, or what is wrong with it. */
const char *mt_instruction_parse(const motet_program *program, const char *text, motet_instruction *instruction);

#endif

/** @file Actions of a PyTorch pipelining CSV: see docs/formats/pytorch-csv.md. */
#ifndef MT_PROGRAM_PYTORCH_CSV_H
#define MT_PROGRAM_PYTORCH_CSV_H

#include "base/array.h"
#include "base/error.h"
#include "base/text.h"
#include "motet/program.h"

#include <stdint.h>

typedef enum mt_csv_kind {
  MT_CSV_FORWARD,
  MT_CSV_BACKWARD,
  MT_CSV_BACKWARD_INPUT,
  MT_CSV_BACKWARD_WEIGHT,
  MT_CSV_SEND_FORWARD,
  MT_CSV_RECEIVE_FORWARD,
  MT_CSV_SEND_BACKWARD,
  MT_CSV_RECEIVE_BACKWARD,
  MT_CSV_WAIT_SEND_FORWARD,
  MT_CSV_WAIT_SEND_BACKWARD,
  MT_CSV_SHARDING, /* UNSHARD, RESHARD, REDUCE_GRAD, WAIT_REDUCE_GRAD: data-parallel work of one stage */
  MT_CSV_OVERLAP   /* only inside the parser: (0F1;7B0)OVERLAP_F_B stands for its parts in their order */
} mt_csv_kind;

typedef struct mt_csv_action {
  mt_csv_kind kind;
  int32_t stage;
  int32_t microbatch; /* -1: none */
  int32_t row;        /* rank */
  int32_t line, cell; /* in the file, from 1 */
} mt_csv_action;

/** The file's actions, row by row; row r's are actions.data[row_begin.data[r] .. row_begin.data[r + 1]). */
typedef struct mt_csv_table {
  MT_ARRAY(mt_csv_action) actions;
  MT_ARRAY(int64_t) row_begin; /* rows + 1 */
} mt_csv_table;

/** Parses a file's content. Errors name @p path, line and cell. Free the table with mt_csv_table_free(), also
 * after an error. */
motet_status mt_csv_parse(const char *path, const char *data, size_t bytes, motet_error *error,
                          mt_csv_table *table);
void mt_csv_table_free(mt_csv_table *table);

/** motet_program_read_pytorch_csv() of a file's content; @p path is what errors name. */
motet_status mt_program_parse_pytorch_csv(const char *data, size_t bytes, const char *path,
                                          motet_placement placement, motet_error *error, motet_program **program);

/** The CSV of a program, appended to @p text, which the caller frees also after an error. */
motet_status mt_program_print_pytorch_csv(const motet_program *program, bool communication, motet_error *error,
                                          mt_text *text);

/** Short name of a kind as it is written: "F", "SEND_B". */
const char *mt_csv_name(mt_csv_kind kind);

#endif

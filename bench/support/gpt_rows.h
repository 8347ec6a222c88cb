/** @file
 * Published iterations of GPT models on A100 (tests/data/facts) and their forecasts, from config, device and links
 * alone.
 */
#ifndef BENCH_GPT_ROWS_H
#define BENCH_GPT_ROWS_H

#include "cost/forecast.h"

enum { GPT_ROWS_MAX = 2048, GPT_LAYERS_MAX = 1024, GPT_SAMPLES_MAX = 1024 };

typedef struct gpt_row {
  char model[16];
  int hidden, layers, heads, sequence;
  int tensor, pipeline, chunks, data, devices, batch;
  int microbatch; /* samples; 0: not published */
  bool selective; /* sequence parallelism and selective recomputation; else full recomputation */
  double seconds; /* published */
  mt_architecture *architecture;
} gpt_row;

typedef struct gpt_rows {
  int count;
  gpt_row rows[GPT_ROWS_MAX];
} gpt_rows;

/** What is fitted; the rest of the device is its data sheet. */
typedef struct gpt_coefficients {
  double matmul, depth, memory, host_seconds;
} gpt_coefficients;

/** Ends the program with a message. */
_Noreturn void gpt_stop(const char *what);

/** Readers end the program where a file is missing or no row of it is one; rows that cannot be (a batch smaller
 * than one microbatch a replica) are passed over. */
void gpt_read_korthikanti(mt_arena *arena, const char *folder, gpt_rows *rows);
void gpt_read_measured(mt_arena *arena, const char *folder, gpt_rows *rows);
void gpt_read_megatron(mt_arena *arena, const char *folder, gpt_rows *rows);

/** A row on its cluster. Pointers refer into itself: do not copy. */
typedef struct gpt_case {
  mt_cluster cluster;
  mt_parallel parallel;
  mt_forecast forecast;
  uint8_t savings[GPT_LAYERS_MAX];
  double extents[MT_EXTENTS];
} gpt_case;

void gpt_case_make(const gpt_row *row, const gpt_coefficients *coefficients, gpt_case *made);

/** Seconds of an iteration as a formula: (M - 1) times the slowest stage, every stage once, warm-up divided by the
 * chunks of a rank (arXiv 2104.04473, section 2.2), and the step's end. */
double gpt_formula_seconds(const gpt_row *row, const gpt_coefficients *coefficients);

/** The same from the simulated program of one pipeline. */
double gpt_simulated_seconds(const gpt_row *row, const gpt_coefficients *coefficients);

/** Bytes of a device of the first stage at its fullest. */
double gpt_memory_bytes(const gpt_row *row, const gpt_coefficients *coefficients);

/** Coefficients with the least sum of sqrt(error^2 + 0.03^2) over the rows of all models but @p without (NULL: of
 * all). With @p host the launch time is fitted too, else 0. */
gpt_coefficients gpt_fit(const gpt_rows *rows, const char *without, bool host);

/** Spearman's rank correlation over @p count pairs. */
double gpt_rank_correlation(const double *a, const double *b, int count);

#endif

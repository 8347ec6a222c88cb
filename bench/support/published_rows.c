#include "published_rows.h"

#include "gpt_rows.h"

#include "order/cluster_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The next field of a line, without the blanks around it; NULL at the end. */
static char *next_field(char **rest) {
  if (*rest == NULL) return NULL;
  char *field = *rest + strspn(*rest, " "), *end = strstr(field, " | ");
  *rest = end != NULL ? end + 3 : NULL;
  if (end == NULL) end = field + strcspn(field, "\n");
  while (end > field && end[-1] == ' ') end--;
  *end = '\0';
  return field;
}

static void forecast(const char *job_text, published_row *row) {
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_cluster_job job;
  mt_cluster_setup setup;
  mt_cluster_plan made;
  if (arena == NULL) gpt_stop("out of memory");
  motet_status status = mt_cluster_job_parse(arena, job_text, strlen(job_text), row->run, 0, NULL, &error, &job);
  if (status == MOTET_OK) status = mt_cluster_job_open(arena, &job, &error, &setup);
  if (status == MOTET_OK) status = mt_cluster_plan_make(arena, &setup, &error, &made);
  if (status != MOTET_OK) {
    mt_error_context(&error, status, "%s", row->run);
    gpt_stop(error.text);
  }
  row->forecast = made.plan.simulation->makespan;
  for (int32_t r = 0; r < made.plan.program->ranks; r++)
    row->memory_bytes = fmax(row->memory_bytes, (double)made.plan.verification.memory[r].peak_bytes);
  mt_plan_free(&made.plan);
  mt_arena_destroy(arena);
}

int published_rows_read(const char *path, published_row rows[PUBLISHED_ROWS_MAX]) {
  char line[2048];
  int count = 0;
  FILE *file = fopen(path, "r");
  if (file == NULL) gpt_stop(path);
  while (fgets(line, sizeof line, file) != NULL) {
    char *rest = line, *fields[5];
    if (line[0] == '#') continue;
    for (int f = 0; f < 5; f++) fields[f] = next_field(&rest);
    if (fields[4] == NULL || count == PUBLISHED_ROWS_MAX) gpt_stop(path);
    published_row *row = &rows[count++];
    *row = (published_row){.published = strtod(fields[2], NULL)};
    snprintf(row->kind, sizeof row->kind, "%s", fields[0]);
    snprintf(row->run, sizeof row->run, "%s", fields[1]);
    snprintf(row->source, sizeof row->source, "%s", fields[3]);
    if (row->published <= 0) gpt_stop(row->run);
    forecast(fields[4], row);
  }
  fclose(file);
  return count;
}

static double print_mean(const char *kind, const published_row *rows, int count) {
  double sum = 0, bias = 0;
  int of = 0;
  for (int r = 0; r < count; r++) {
    if (kind != NULL && strcmp(rows[r].kind, kind) != 0) continue;
    double error = rows[r].forecast / rows[r].published - 1;
    sum += fabs(error);
    bias += error;
    of++;
  }
  printf("%-12s %3d rows: mean error %5.1f%%, on the average %+5.1f%%\n", kind != NULL ? kind : "all", of,
         100 * sum / of, 100 * bias / of);
  return sum / of;
}

double published_rows_print(const published_row *rows, int count) {
  printf("Published training steps, none of them fitted: each job as 'motet plan' forecasts it "
         "(bench/data/published.txt\n"
         "has jobs and sources)\n\n");
  printf("%-12s %-52s %-18s %9s %9s %7s %7s\n", "kind", "run", "source", "published", "forecast", "error", "GB");
  for (int r = 0; r < count; r++)
    printf("%-12s %-52s %-18s %9.2f %9.2f %6.1f%% %7.1f\n", rows[r].kind, rows[r].run, rows[r].source,
           rows[r].published, rows[r].forecast, 100 * (rows[r].forecast / rows[r].published - 1),
           rows[r].memory_bytes / 1e9);
  printf("\n");
  for (int r = 0; r < count; r++) {
    bool first = true;
    for (int s = 0; s < r; s++) first = first && strcmp(rows[s].kind, rows[r].kind) != 0;
    if (first) print_mean(rows[r].kind, rows, count);
  }
  return print_mean(NULL, rows, count);
}

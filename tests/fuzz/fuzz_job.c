/* Job files: whatever the bytes, a job that prints and reads back, or an error with text. */
#include "train/job.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  mt_job *job, *again;
  if (mt_job_parse((const char *)data, size, "fuzz", 0, NULL, &error, &job) != MOTET_OK) {
    if (error.text[0] == '\0') abort();
    return 0;
  }
  mt_text first = {0}, second = {0};
  mt_job_print(job, &first);
  if (mt_job_parse(first.data, first.length, "printed", 0, NULL, &error, &again) != MOTET_OK) abort();
  mt_job_print(again, &second);
  if (strcmp(first.data, second.data) != 0) abort();
  mt_text_free(&first);
  mt_text_free(&second);
  mt_job_destroy(job);
  mt_job_destroy(again);
  return 0;
}

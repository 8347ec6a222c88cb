/* Runs a fuzz target without a fuzzing engine: `make test` gives each target some thousands of mutated seeds.
 *
 *   fuzz_<name> [--runs n] [--from k] [--seed s] FILE...
 *
 * The input of run k depends on seed, k and the files alone. A run that crashes names itself, and `--from k --runs
 * 1` repeats it. Built with clang and MOTET_FUZZ, a target has libFuzzer's main instead of this one. */
#include "base/array.h"
#include "base/random.h"
#include "base/text.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_BYTES_MAX = 1 << 20 };

typedef struct input {
  char *data;
  size_t bytes;
} input;

static volatile sig_atomic_t current_run;

/* Only what is safe in a signal handler. */
static void report_crash(int signal_number) {
  char text[] = "crash in run ..........\n";
  long run = current_run;
  for (size_t i = sizeof text - 3; text[i] == '.'; i--, run /= 10) text[i] = (char)('0' + run % 10);
  ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
  (void)ignored;
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

static bool resize(input *this, size_t at, size_t removed, size_t added) {
  if (this->bytes - removed + added > INPUT_BYTES_MAX) return false;
  if (added > removed) {
    char *grown = realloc(this->data, this->bytes + added - removed + 1);
    if (grown == NULL) return false;
    this->data = grown;
  }
  memmove(this->data + at + added, this->data + at + removed, this->bytes - at - removed);
  this->bytes = this->bytes - removed + added;
  return true;
}

/* A number in place of one that stands in the text: the bugs of parsers live at the ends of ranges. */
static void replace_number(input *this, mt_random *random) {
  static const char *const numbers[] = {"-1",
                                        "0",
                                        "1",
                                        "2",
                                        "255",
                                        "65536",
                                        "2147483647",
                                        "2147483648",
                                        "4294967296",
                                        "9223372036854775807",
                                        "18446744073709551616",
                                        "1e308",
                                        "0.5",
                                        "-0",
                                        ""};
  size_t at = mt_random_below(random, this->bytes + 1), end;
  while (at < this->bytes && (this->data[at] < '0' || this->data[at] > '9')) at++;
  for (end = at; end < this->bytes && this->data[end] >= '0' && this->data[end] <= '9';) end++;
  const char *number = numbers[mt_random_below(random, sizeof numbers / sizeof numbers[0])];
  if (resize(this, at, end - at, strlen(number))) memcpy(this->data + at, number, strlen(number));
}

static void mutate(input *this, const input *other, mt_random *random) {
  size_t at = mt_random_below(random, this->bytes + 1);
  size_t length = 1 + mt_random_below(random, 16);
  if (length > this->bytes - at) length = this->bytes - at;
  switch (mt_random_below(random, 8)) {
  case 0:
    if (at < this->bytes) this->data[at] = (char)(this->data[at] ^ (1 << mt_random_below(random, 8)));
    break;
  case 1:
    if (at < this->bytes) this->data[at] = (char)mt_random_below(random, 256);
    break;
  case 2: resize(this, at, length, 0); break;
  case 3:
    if (resize(this, at, 0, 1)) this->data[at] = "{}[]\",:;()-+.= \n\t\0eE019\xff"[mt_random_below(random, 24)];
    break;
  case 4: { /* a piece of this or of another seed, put in */
    if (other->bytes == 0) break;
    size_t from = mt_random_below(random, other->bytes), take = 1 + mt_random_below(random, 64);
    if (take > other->bytes - from) take = other->bytes - from;
    if (resize(this, at, 0, take)) memcpy(this->data + at, other->data + from, take);
    break;
  }
  case 5: resize(this, at, mt_random_below(random, 20) == 0 ? this->bytes - at : 0, 0); break; /* cut short */
  default: replace_number(this, random); break;
  }
}

static int run_one(const input *seeds, size_t seed_count, uint64_t seed, long run) {
  char name[32];
  snprintf(name, sizeof name, "run %ld", run);
  mt_random random = mt_random_stream(seed, name);
  const input *first = &seeds[mt_random_below(&random, seed_count)];
  input this = {.data = malloc(first->bytes + 1), .bytes = first->bytes};
  if (this.data == NULL) return 1;
  if (first->bytes > 0) memcpy(this.data, first->data, first->bytes);
  /* The first runs take the seeds as they are. */
  uint64_t changes = (size_t)run < seed_count ? 0 : 1 + mt_random_below(&random, 6);
  for (; changes > 0; changes--) mutate(&this, &seeds[mt_random_below(&random, seed_count)], &random);
  /* An exact allocation, so that a sanitizer sees the first byte read past the end. */
  uint8_t *exact = malloc(this.bytes > 0 ? this.bytes : 1);
  if (exact == NULL) return 1;
  if (this.bytes > 0) memcpy(exact, this.data, this.bytes);
  LLVMFuzzerTestOneInput(exact, this.bytes);
  free(exact);
  free(this.data);
  return 0;
}

int main(int count, char **arguments) {
  long runs = 1000, from = 0;
  uint64_t seed = 1;
  MT_ARRAY(input) seeds = {0};
  if (!MT_ARRAY_PUSH(&seeds, (input){0})) return 3; /* nothing, too, is an input */
  for (int i = 1; i < count; i++) {
    bool number = i + 1 < count;
    motet_error error;
    input file;
    if (number && strcmp(arguments[i], "--runs") == 0) {
      runs = strtol(arguments[++i], NULL, 10);
    } else if (number && strcmp(arguments[i], "--from") == 0) {
      from = strtol(arguments[++i], NULL, 10);
    } else if (number && strcmp(arguments[i], "--seed") == 0) {
      seed = strtoull(arguments[++i], NULL, 10);
    } else if (mt_file_read(arguments[i], &error, &file.data, &file.bytes) != MOTET_OK) {
      fprintf(stderr, "%s\n", error.text);
      return 2;
    } else if (!MT_ARRAY_PUSH(&seeds, file)) {
      return 3;
    }
  }
  signal(SIGSEGV, report_crash);
  signal(SIGABRT, report_crash);
  signal(SIGFPE, report_crash);
  int status = 0;
  for (long run = from; run < from + runs && status == 0; run++) {
    current_run = (sig_atomic_t)run;
    status = run_one(seeds.data, seeds.count, seed, run);
  }
  printf("%ld runs from %zu seeds, seed %" PRIu64 "\n", runs, seeds.count, seed);
  for (size_t i = 0; i < seeds.count; i++) free(seeds.data[i].data);
  free(seeds.data);
  return status != 0 ? 3 : 0;
}

/* Planners of flexible context parallelism on the same batches: the published baseline (arXiv 2602.21788), static
 * degrees, powers of two, LPT, FlexSP's integer program (arXiv 2412.01523) solved by CBC where it is installed, and
 * ours, as value over the proven lower bound; then ours against all groupings and degrees of small batches. */
#include "base/random.h"
#include "motet/pack.h"
#include "workload/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 64, SEQUENCES = 128, BATCHES = 20, PROGRAM_BATCHES = 3, PROGRAM_SECONDS = 10, BUCKETS = 16 };
static const int64_t MEMORY = 16384;

/* FlexSP's 7B profile; ring bytes of a decoder with 28 layers of 4 KV heads of 128. */
static motet_pack_cost flexsp_cost(void) {
  return (motet_pack_cost){.attention_seconds_per_area = 2 * 5.128e-9,
                           .linear_seconds_per_token = 0.18396e-3,
                           .fixed_seconds = 0.62936,
                           .ring_bytes_per_token = 172032,
                           .bandwidth_count = 6,
                           .bandwidth_degree = {2, 4, 8, 16, 32, 64},
                           .bandwidth_bytes_per_second = {119.54e9, 104.07e9, 96.5e9, 10.33e9, 5.94e9, 4.87e9}};
}

static void stop_on(motet_status status, const motet_error *error) {
  if (status == MOTET_OK) return;
  fprintf(stderr, "bench: %s\n", error->text);
  exit(3);
}

static motet_pack_sequence *draw(const char *name, uint64_t seed) {
  mt_distribution distribution = {name, SEQUENCES, seed, RANKS, MEMORY};
  mt_trace trace;
  motet_error error;
  stop_on(mt_distribution_draw(&distribution, &error, &trace), &error);
  motet_pack_sequence *sequences = malloc(SEQUENCES * sizeof *sequences);
  for (int32_t i = 0; i < SEQUENCES; i++)
    sequences[i] = (motet_pack_sequence){trace.items[i].tokens, trace.items[i].area};
  mt_trace_destroy(&trace);
  return sequences;
}

/* ---- FlexSP's integer program ---- */

typedef struct bucket {
  int64_t tokens; /* of its longest sequence, which stands for all */
  int32_t first, count;
} bucket;

static int longer(const void *a, const void *b) {
  int64_t x = ((const motet_pack_sequence *)a)->tokens, y = ((const motet_pack_sequence *)b)->tokens;
  return (x < y) - (x > y);
}

/* Sorted sequences in runs; FlexSP cuts by a dynamic program over the rounding error, as here. */
static int32_t make_buckets(const motet_pack_sequence *sorted, bucket *buckets) {
  static double loss[BUCKETS + 1][SEQUENCES + 1];
  static int32_t from[BUCKETS + 1][SEQUENCES + 1];
  for (int32_t b = 0; b <= BUCKETS; b++)
    for (int32_t i = 0; i <= SEQUENCES; i++) {
      loss[b][i] = i == 0 ? 0 : INFINITY;
      if (b == 0) continue;
      double waste = 0;
      for (int32_t j = i; j-- > 0;) { /* the last bucket is [j, i) */
        waste = 0;
        for (int32_t k = j; k < i; k++) waste += (double)(sorted[j].tokens - sorted[k].tokens);
        if (loss[b - 1][j] + waste < loss[b][i]) {
          loss[b][i] = loss[b - 1][j] + waste;
          from[b][i] = j;
        }
      }
    }
  int32_t count = 0;
  for (int32_t b = BUCKETS, i = SEQUENCES; i > 0; i = from[b--][i])
    buckets[count++] = (bucket){sorted[from[b][i]].tokens, from[b][i], i - from[b][i]};
  return count;
}

/* Groups that the program may open: of every power of two as many as fit. */
static int32_t list_degrees(int32_t *degrees) {
  int32_t count = 0;
  for (int32_t d = 1; d <= RANKS; d *= 2)
    for (int32_t i = 0; i < RANKS / d; i++) degrees[count++] = d;
  return count;
}

static void write_program(FILE *lp, const motet_pack_cost *cost, const bucket *buckets, int32_t count,
                          const int32_t *degrees, int32_t groups) {
  fprintf(lp, "Minimize\n obj: T\nSubject To\n");
  for (int32_t p = 0; p < groups; p++) {
    double d = degrees[p];
    for (int ring = 0; ring < (degrees[p] > 1 ? 2 : 1); ring++) { /* the larger of attention and ring */
      fprintf(lp, " t%d_%d:", p, ring);
      for (int32_t b = 0; b < count; b++) {
        double tokens = (double)buckets[b].tokens, seconds = cost->linear_seconds_per_token * tokens / d;
        motet_pack_cost only = {.ring_bytes_per_token = cost->ring_bytes_per_token, .bandwidth_count = 6};
        memcpy(only.bandwidth_degree, cost->bandwidth_degree, sizeof only.bandwidth_degree);
        memcpy(only.bandwidth_bytes_per_second, cost->bandwidth_bytes_per_second,
               sizeof only.bandwidth_bytes_per_second);
        seconds += ring == 1 ? motet_pack_seconds(&only, buckets[b].tokens, 0, degrees[p])
                             : cost->attention_seconds_per_area * 0.5 * tokens * tokens / d;
        fprintf(lp, " + %.9g n%d_%d", seconds, b, p);
      }
      fprintf(lp, " + %.9g m%d - T <= 0\n", cost->fixed_seconds, p);
    }
    fprintf(lp, " e%d:", p);
    for (int32_t b = 0; b < count; b++) fprintf(lp, " + %lld n%d_%d", (long long)buckets[b].tokens, b, p);
    fprintf(lp, " - %lld m%d <= 0\n", (long long)MEMORY * degrees[p], p);
    if (p > 0 && degrees[p] == degrees[p - 1]) fprintf(lp, " s%d: m%d - m%d <= 0\n", p, p, p - 1);
  }
  fprintf(lp, " ranks:");
  for (int32_t p = 0; p < groups; p++) fprintf(lp, " + %d m%d", degrees[p], p);
  fprintf(lp, " <= %d\n", RANKS);
  for (int32_t b = 0; b < count; b++) {
    fprintf(lp, " c%d:", b);
    for (int32_t p = 0; p < groups; p++) fprintf(lp, " + n%d_%d", b, p);
    fprintf(lp, " = %d\n", buckets[b].count);
  }
  fprintf(lp, "Binaries\n");
  for (int32_t p = 0; p < groups; p++) fprintf(lp, " m%d\n", p);
  fprintf(lp, "Generals\n");
  for (int32_t b = 0; b < count; b++)
    for (int32_t p = 0; p < groups; p++) fprintf(lp, " n%d_%d\n", b, p);
  fprintf(lp, "End\n");
}

/* The true seconds of the slowest group of CBC's solution, with the sequences themselves; 0 where it found none. */
static double read_solution(FILE *text, const motet_pack_cost *cost, const motet_pack_sequence *sorted,
                            const bucket *buckets, int32_t count, const int32_t *degrees, int32_t groups) {
  static int64_t tokens[2 * RANKS];
  static double area[2 * RANKS];
  int32_t used[BUCKETS] = {0}, placed = 0;
  memset(tokens, 0, sizeof tokens);
  memset(area, 0, sizeof area);
  char line[256];
  while (fgets(line, sizeof line, text) != NULL) {
    int32_t b, p;
    double value;
    if (sscanf(line, " %*d n%d_%d %lf", &b, &p, &value) != 3 || b >= count || p >= groups) continue;
    for (int32_t k = 0; k < (int32_t)(value + 0.5) && used[b] < buckets[b].count; k++, placed++) {
      const motet_pack_sequence *sequence = &sorted[buckets[b].first + used[b]++];
      tokens[p] += sequence->tokens;
      area[p] += sequence->area;
    }
  }
  double slowest = 0;
  for (int32_t p = 0; p < groups; p++)
    if (tokens[p] > 0) slowest = fmax(slowest, motet_pack_seconds(cost, tokens[p], area[p], degrees[p]));
  return placed == SEQUENCES ? slowest : 0;
}

/* The program's value for a batch; 0 where CBC finds no plan in its time. */
static double by_program(const motet_pack_cost *cost, const motet_pack_sequence *sequences) {
  motet_pack_sequence sorted[SEQUENCES];
  bucket buckets[BUCKETS];
  int32_t degrees[2 * RANKS], groups = list_degrees(degrees);
  memcpy(sorted, sequences, sizeof sorted);
  qsort(sorted, SEQUENCES, sizeof *sorted, longer);
  int32_t count = make_buckets(sorted, buckets);
  char folder[] = "/tmp/motet-bench-XXXXXX", path[64], solved[64], command[256];
  if (mkdtemp(folder) == NULL) return 0;
  snprintf(path, sizeof path, "%s/flexsp.lp", folder);
  snprintf(solved, sizeof solved, "%s/solution", folder);
  double value = 0;
  FILE *file = fopen(path, "w");
  if (file != NULL) {
    write_program(file, cost, buckets, count, degrees, groups);
    fclose(file);
    snprintf(command, sizeof command, "cbc %s timeMode elapsed sec %d solve solution %s >/dev/null 2>&1", path,
             PROGRAM_SECONDS, solved);
    FILE *text = system(command) == 0 ? fopen(solved, "r") : NULL;
    if (text != NULL) {
      value = read_solution(text, cost, sorted, buckets, count, degrees, groups);
      fclose(text);
    }
  }
  remove(path);
  remove(solved);
  remove(folder);
  return value;
}

/* ---- one table ---- */

typedef struct peer {
  const char *name;
  motet_pack_planner planner;
  int32_t degree;
} peer;

static const peer peers[] = {
    {"best", MOTET_PACK_BEST, 0},         {"bfd-dp", MOTET_PACK_BFD_DP, 0},    {"static:16", MOTET_PACK_STATIC, 16},
    {"static:32", MOTET_PACK_STATIC, 32}, {"pow2", MOTET_PACK_POW2_GREEDY, 0}, {"lpt", MOTET_PACK_LPT, 0},
};
enum { PEERS = sizeof peers / sizeof *peers };

typedef struct column {
  double sum, worst;
  int count;
} column;

static void add(column *to, double ratio) {
  to->sum += ratio;
  to->count++;
  if (ratio > to->worst) to->worst = ratio;
}

static void print_column(const column *of, int batches) {
  if (of->count == 0)
    printf(" %15s", "-");
  else
    printf("   %5.3f  %5.3f%s", of->sum / of->count, of->worst, of->count < batches ? "*" : " ");
}

static void compare(const char *name, bool cbc) {
  motet_pack_options options = {
      .ranks = RANKS, .memory_tokens = MEMORY, .cost = flexsp_cost(), .ranks_per_node = 8};
  motet_packer *packers[PEERS];
  motet_error error;
  for (int i = 0; i < PEERS; i++) {
    options.planner = peers[i].planner;
    options.static_degree = peers[i].degree;
    stop_on(motet_packer_create(&options, &error, &packers[i]), &error);
  }
  column columns[PEERS] = {0}, program = {0};
  for (uint64_t seed = 1; seed <= BATCHES; seed++) {
    motet_pack_sequence *sequences = draw(name, seed);
    double bound = 0;
    for (int i = 0; i < PEERS; i++) {
      const motet_pack_plan *plan;
      if (motet_packer_plan(packers[i], sequences, SEQUENCES, &error, &plan) != MOTET_OK) continue;
      if (i == 0) bound = plan->lower_bound;
      if (plan->deferred_count == 0) add(&columns[i], plan->value / bound);
    }
    double solved = cbc && seed <= PROGRAM_BATCHES ? by_program(&options.cost, sequences) : 0;
    if (solved > 0) add(&program, solved / bound);
    free(sequences);
  }
  printf("%-11s", name);
  for (int i = 0; i < PEERS; i++) print_column(&columns[i], BATCHES);
  print_column(&program, PROGRAM_BATCHES);
  printf("\n");
  fflush(stdout);
  for (int i = 0; i < PEERS; i++) motet_packer_destroy(packers[i]);
}

/* ---- all groupings and degrees of small batches ---- */

enum { SMALL_SEQUENCES = 7, SMALL_RANKS = 8, SMALL_CASES = 300 };

typedef struct small {
  const motet_pack_cost *cost;
  const motet_pack_sequence *sequences;
  int32_t count, ranks;
  int64_t memory;
  int64_t tokens[SMALL_SEQUENCES];
  double area[SMALL_SEQUENCES];
  double best;
} small;

static void give_degrees(small *s, int32_t groups, int32_t at, int32_t left, double slowest) {
  if (slowest >= s->best) return;
  if (at == groups) {
    s->best = slowest;
    return;
  }
  for (int32_t d = 1; d <= left - (groups - 1 - at); d++)
    if (s->tokens[at] <= s->memory * d)
      give_degrees(s, groups, at + 1, left - d,
                   fmax(slowest, motet_pack_seconds(s->cost, s->tokens[at], s->area[at], d)));
}

static void group_rest(small *s, int32_t next, int32_t groups) {
  if (next == s->count) {
    give_degrees(s, groups, 0, s->ranks, 0);
    return;
  }
  for (int32_t g = 0; g <= groups && g < s->ranks; g++) {
    if (g == groups) s->tokens[g] = 0;
    if (g == groups) s->area[g] = 0;
    s->tokens[g] += s->sequences[next].tokens;
    s->area[g] += s->sequences[next].area;
    group_rest(s, next + 1, g == groups ? groups + 1 : groups);
    s->tokens[g] -= s->sequences[next].tokens;
    s->area[g] -= s->sequences[next].area;
  }
}

static void against_all(motet_pack_planner planner, const char *name) {
  motet_pack_cost cost = flexsp_cost();
  mt_random random = mt_random_stream(1, "bench small batches");
  column of = {0};
  int refused = 0;
  for (int i = 0; i < SMALL_CASES; i++) {
    motet_pack_sequence sequences[SMALL_SEQUENCES];
    small s = {.cost = &cost, .sequences = sequences, .memory = 8192, .best = INFINITY};
    s.count = 2 + (int32_t)mt_random_below(&random, SMALL_SEQUENCES - 1);
    s.ranks = 2 + (int32_t)mt_random_below(&random, SMALL_RANKS - 1);
    for (int32_t k = 0; k < s.count; k++) {
      int64_t tokens = (int64_t)(512 * exp(2.5 * mt_random_unit(&random)));
      sequences[k] = (motet_pack_sequence){tokens, motet_pack_causal_area(tokens)};
    }
    group_rest(&s, 0, 0);
    motet_pack_options options = {.ranks = s.ranks, .memory_tokens = 8192, .cost = cost, .planner = planner};
    motet_packer *packer;
    motet_error error;
    const motet_pack_plan *plan;
    stop_on(motet_packer_create(&options, &error, &packer), &error);
    bool planned =
        motet_packer_plan(packer, sequences, s.count, &error, &plan) == MOTET_OK && plan->deferred_count == 0;
    if (planned && s.best < INFINITY) add(&of, plan->value / s.best);
    refused += !planned && s.best < INFINITY;
    motet_packer_destroy(packer);
  }
  printf("  %-8s mean gap %.3f %%, worst %.3f %%; deferred in %d where a plan exists (%d batches)\n", name,
         100 * (of.sum / of.count - 1), 100 * (of.worst - 1), refused, of.count);
}

int main(void) {
  static const char *const names[] = {"burst-128k", "burst-192k", "internvid", "msrvtt", "openvid", "wikipedia"};
  bool cbc = system("command -v cbc >/dev/null 2>&1") == 0;
  printf("%d sequences, %d ranks, %lld tokens a rank, one microbatch: value / proven lower bound, mean and worst "
         "of %d "
         "batches\n(* of those in which the planner places every sequence; FlexSP's program: %d batches, %d "
         "buckets, %s)\n\n",
         SEQUENCES, RANKS, (long long)MEMORY, BATCHES, PROGRAM_BATCHES, BUCKETS,
         cbc ? "CBC for 10 s" : "CBC is not installed");
  printf("%-11s", "");
  for (int i = 0; i < PEERS; i++) printf(" %15s", peers[i].name);
  printf(" %15s\n", "flexsp");
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) compare(names[n], cbc);
  printf("\n2 to %d sequences, 2 to %d ranks, %d batches: above the best of all groupings and degrees\n",
         SMALL_SEQUENCES, SMALL_RANKS, SMALL_CASES);
  against_all(MOTET_PACK_BEST, "best");
  against_all(MOTET_PACK_BFD_DP, "bfd-dp");
  against_all(MOTET_PACK_LPT, "lpt");
  return 0;
}

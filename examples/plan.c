/* Plans a transposed encoder in front of a 1F1B language model and prints what the proof and the simulation say.
 *
 *   cc plan.c $(pkg-config --cflags --libs libmotet) -o plan && ./plan
 */
#include <motet/motet.h>

#include <stdio.h>

int main(void) {
  motet_plan_options options = {.schedule = "<vision: transpose, llm: 1f1b>",
                                .unit = "vision: f=1; llm: f=1, b=2",
                                .ranks = 4,
                                .microbatches = 16};
  motet_error error;
  motet_plan *plan;
  if (motet_plan_create(&options, &error, &plan) != MOTET_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  const motet_plan_result *result = motet_plan_get(plan);
  printf("%s: makespan %g, bound %g, idle %.1f%%\n", result->schedule, result->makespan, result->bound,
         100 * result->idle_share);
  for (int r = 0; r < result->program->ranks; r++)
    printf("rank %d: %lld instructions, at most %g microbatches of activations\n", r,
           (long long)(result->program->rank_begin[r + 1] - result->program->rank_begin[r]),
           result->memory[r].peak_activations);
  motet_plan_destroy(plan);
  return 0;
}

#include "sim/attribution.h"
#include "sim/chain.h"

#include <stdlib.h>

motet_status mt_critical_path(mt_arena *arena, const motet_program *program, const mt_trace *trace,
                              motet_error *error, mt_simulation *simulation) {
  MT_ARRAY(int64_t) path = {0};
  motet_status status = MOTET_OK;
  mt_chain chain = {.program = program, .trace = trace};
  while (chain.rank < program->ranks - 1 && trace->ranks[chain.rank].end < trace->makespan) chain.rank++;
  chain.place = program->rank_begin[chain.rank + 1];
  mt_chain_element element;
  while (mt_chain_back(&chain, &element)) {
    if (!MT_ARRAY_PUSH(&path, element.instruction) || (element.post >= 0 && !MT_ARRAY_PUSH(&path, element.post))) {
      status = mt_error_memory(error, sizeof(int64_t) * path.count, "critical path");
      goto done;
    }
  }
  simulation->critical = MT_ARENA_NEW(arena, int64_t, path.count);
  if (simulation->critical == NULL) {
    status = mt_error_memory(error, sizeof(int64_t) * path.count, "critical path");
    goto done;
  }
  simulation->critical_count = (int64_t)path.count;
  for (size_t i = 0; i < path.count; i++) simulation->critical[i] = path.data[path.count - 1 - i];
done:
  free(path.data);
  return status;
}

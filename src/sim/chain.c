#include "sim/chain.h"

static void follow_transfer(mt_chain *chain, const mt_transfer *transfer, mt_chain_element *element) {
  bool send_late = transfer->send_seconds >= transfer->receive_seconds;
  element->post = send_late ? transfer->send : transfer->receive;
  element->from = send_late ? transfer->send_seconds : transfer->receive_seconds;
  chain->rank = send_late ? transfer->source : transfer->destination;
  chain->place = element->post;
}

bool mt_chain_back(mt_chain *chain, mt_chain_element *element) {
  const mt_trace *trace = chain->trace;
  while (chain->place > chain->program->rank_begin[chain->rank]) {
    int64_t place = --chain->place;
    int kind = chain->program->instructions[place].kind;
    double start = trace->start[place], finish = trace->finish[place];
    *element =
        (mt_chain_element){.instruction = place, .post = -1, .rank = chain->rank, .from = start, .to = finish};
    if (mt_sim_is_compute(kind)) {
      if (trace->link[place] >= 0 && !trace->measured) { /* shared: it began when its last member came */
        const mt_meeting *meeting = &trace->meetings.data[trace->link[place]];
        chain->rank = meeting->last_rank;
        chain->place = meeting->last;
      }
      return true;
    }
    if (!(finish > start)) continue;
    if (kind == MOTET_WAIT) {
      const mt_transfer *transfer = mt_trace_transfer(trace, trace->link[place]);
      /* A measured wait takes some time even where both ends were there before: then it is the rank's own. */
      if (!trace->measured || transfer->send_seconds > start || transfer->receive_seconds > start)
        follow_transfer(chain, transfer, element);
    } else if (mt_sim_is_collective(kind)) {
      const mt_meeting *meeting = &trace->meetings.data[trace->link[place]];
      if (start < meeting->together) { /* another member was the last to come */
        chain->rank = meeting->last_rank;
        chain->place = element->instruction = meeting->last;
        element->rank = chain->rank;
        element->from = meeting->together;
      }
    }
    return true;
  }
  return false;
}

/* Rule 2 for compute: inputs are there before they are read, backward follows forward on the same rank, saved
 * activations are on the device when they are needed. Lifetimes for rule 6 as the program format defines them. */
#include "program/verify_walk.h"

#define STAGE(stage) MT_VERIFY_STAGE(walk->verifier, (stage))

static int32_t column_of(const mt_walk *walk, const motet_instruction *instruction) {
  return mt_column_of(walk->verifier->program, walk->rank, instruction);
}

/* The cell of (stage, column), if its forward runs on this rank; else NULL, with the violation noted. */
static mt_verify_cell *own_cell(mt_walk *walk, const motet_instruction *instruction) {
  mt_verify_cell *cell = mt_verify_cell_at(walk->verifier, instruction->stage, column_of(walk, instruction));
  bool forward = (cell->flags & MT_HAS_FORWARD) != 0 && cell->rank == walk->rank;
  if (forward && (instruction->range == 0 || cell->group == instruction->peer)) return cell;
  if (forward) {
    mt_verify_refuse(walk->verifier, MT_RULE_DATA_FLOW, walk->rank, walk->position, instruction->microbatch,
                     "%s of %s, microbatch %d, range %d, with group %d: its forward runs with group %d",
                     motet_instruction_name(instruction->kind), STAGE(instruction->stage), instruction->microbatch,
                     instruction->range, instruction->peer, cell->group);
    return NULL;
  }
  if ((cell->flags & MT_HAS_FORWARD) == 0) {
    mt_verify_refuse(walk->verifier, MT_RULE_DATA_FLOW, walk->rank, walk->position, instruction->microbatch,
                     "%s of %s, microbatch %d, which is computed nowhere",
                     motet_instruction_name(instruction->kind), STAGE(instruction->stage), instruction->microbatch);
  } else {
    mt_verify_refuse(walk->verifier, MT_RULE_DATA_FLOW, walk->rank, walk->position, instruction->microbatch,
                     "%s of %s, microbatch %d, on rank %d: its forward runs on rank %d, and so must this",
                     motet_instruction_name(instruction->kind), STAGE(instruction->stage), instruction->microbatch,
                     walk->rank, cell->rank);
  }
  return NULL;
}

static int64_t output_bytes(const mt_walk *walk, int32_t stage, int32_t column) {
  return mt_verify_whole_bytes(walk->verifier, &walk->verifier->program->output_bytes, stage, column);
}

static int64_t piece_bytes(const mt_walk *walk, int32_t stage, int32_t piece) {
  return mt_verify_bytes(&walk->verifier->program->output_bytes, stage, piece);
}

static void take_saved(mt_walk *walk, int32_t stage, int32_t column) {
  mt_walk_take(walk, mt_verify_whole_bytes(walk->verifier, &walk->verifier->program->saved_bytes, stage, column));
  walk->live.units += walk->verifier->share_units[stage];
}

static void give_saved(mt_walk *walk, int32_t stage, int32_t column) {
  mt_walk_give(walk, mt_verify_whole_bytes(walk->verifier, &walk->verifier->program->saved_bytes, stage, column));
  walk->freed.units += walk->verifier->share_units[stage];
}

/* Walks the pieces that flow along an edge from or to what @p stage has in @p column. */
#define FOR_PIECES(verifier, edge, stage, column, piece)                                                           \
  for (int32_t piece = mt_verify_pieces_of((verifier), (edge), (stage), (column)).begin,                           \
               piece##_end = mt_verify_pieces_of((verifier), (edge), (stage), (column)).end;                       \
       piece < piece##_end; piece++)                                                                               \
    if (mt_verify_flows((verifier), (edge), piece))

/* The readers of an output on its producer's rank: local forwards, their recomputation, sends. */
static int32_t count_uses(const mt_walk *walk, int32_t stage, int32_t column) {
  const mt_verifier *verifier = walk->verifier;
  int32_t uses = 0;
  for (int64_t i = verifier->out_edges.begin[stage]; i < verifier->out_edges.begin[stage + 1]; i++) {
    int32_t edge = verifier->out_edges.items[i], to = verifier->program->edges[edge].to;
    FOR_PIECES(verifier, edge, stage, column, piece) {
      const mt_verify_cell *reader = mt_verify_cell_at(verifier, to, mt_verify_home(verifier, to, piece));
      bool again = reader->rank == walk->rank && (reader->flags & MT_HAS_RECOMPUTE) != 0;
      uses += again ? 2 : 1;
    }
  }
  return uses;
}

static void take_output(mt_walk *walk, int32_t stage, int32_t column, mt_verify_cell *cell) {
  cell->uses = count_uses(walk, stage, column);
  if (cell->uses == 0) return;
  mt_walk_take(walk, output_bytes(walk, stage, column));
  if (mt_walk_replicated(walk->verifier, stage)) walk->live.features++;
}

void mt_walk_release_output(mt_walk *walk, int32_t stage, int32_t column) {
  if (--mt_verify_cell_at(walk->verifier, stage, column)->uses > 0) return;
  mt_walk_give(walk, output_bytes(walk, stage, column));
  if (mt_walk_replicated(walk->verifier, stage)) walk->freed.features++;
}

void mt_walk_take_carried(mt_walk *walk) {
  const mt_verifier *verifier = walk->verifier;
  for (int64_t i = verifier->carried.begin[walk->rank]; i < verifier->carried.begin[walk->rank + 1]; i++) {
    const motet_carried *carried = &verifier->program->carried[verifier->carried.items[i]];
    int32_t column = verifier->first_column[carried->microbatch];
    take_output(walk, carried->stage, column, mt_verify_cell_at(verifier, carried->stage, column));
  }
}

/* Every input of (stage, column) must lie on this rank. */
static motet_status check_inputs(mt_walk *walk, const motet_instruction *instruction, int32_t column) {
  const mt_verifier *verifier = walk->verifier;
  int32_t stage = instruction->stage, microbatch = instruction->microbatch;
  for (int64_t i = verifier->in_edges.begin[stage]; i < verifier->in_edges.begin[stage + 1]; i++) {
    int32_t edge = verifier->in_edges.items[i], from = verifier->program->edges[edge].from;
    FOR_PIECES(verifier, edge, stage, column, piece) {
      const mt_verify_cell *source = mt_verify_cell_at(verifier, from, mt_verify_home(verifier, from, piece));
      if (source->rank == walk->rank) {
        if ((source->flags & MT_FORWARD_DONE) == 0)
          MT_WALK_REFUSE(walk, microbatch,
                         "%s of stage %d, microbatch %d, reads the output of %s: its FWD on this rank "
                         "must stand before",
                         motet_instruction_name(instruction->kind), stage, microbatch, STAGE(from));
      } else if ((*mt_verify_edge_at(verifier, edge, piece) & MT_ARRIVED) == 0) {
        MT_WALK_REFUSE(walk, microbatch,
                       "%s of stage %d, microbatch %d, reads the output of %s: its RECV from rank %d "
                       "and the WAIT for it must stand before",
                       motet_instruction_name(instruction->kind), stage, microbatch, STAGE(from), source->rank);
      }
    }
  }
  return MOTET_OK;
}

/* A forward (or its recomputation) has read its inputs. A received one stays if it is read again. */
static void release_inputs(mt_walk *walk, int32_t stage, int32_t column, bool read_again) {
  const mt_verifier *verifier = walk->verifier;
  for (int64_t i = verifier->in_edges.begin[stage]; i < verifier->in_edges.begin[stage + 1]; i++) {
    int32_t edge = verifier->in_edges.items[i], from = verifier->program->edges[edge].from;
    FOR_PIECES(verifier, edge, stage, column, piece) {
      int32_t home = mt_verify_home(verifier, from, piece);
      if (mt_verify_cell_at(verifier, from, home)->rank == walk->rank) {
        mt_walk_release_output(walk, from, home);
      } else if (!read_again) {
        mt_walk_give(walk, piece_bytes(walk, from, piece));
        if (mt_walk_replicated(verifier, from)) walk->freed.features++;
      }
    }
  }
}

/* The next step's forward: nothing here reads its output, which stays to the end. */
static motet_status forward_next(mt_walk *walk, const motet_instruction *instruction) {
  int32_t stage = instruction->stage, microbatch = instruction->microbatch;
  int32_t column = column_of(walk, instruction);
  const mt_verify_cell *cell = mt_verify_cell_at(walk->verifier, stage, column);
  if (walk->verifier->program->stages[stage].inputs != 0 && (cell->flags & MT_NEXT_LOADED) == 0)
    MT_WALK_REFUSE(walk, microbatch, "FWD of %s for the next step's microbatch %d: its LOAD must stand before",
                   STAGE(stage), microbatch);
  mt_walk_take(walk, output_bytes(walk, stage, column));
  if (mt_walk_replicated(walk->verifier, stage)) walk->live.features++;
  take_saved(walk, stage, column);
  mt_walk_peak(walk);
  give_saved(walk, stage, column);
  return MOTET_OK;
}

motet_status mt_walk_forward(mt_walk *walk, const motet_instruction *instruction) {
  if ((instruction->flags & MOTET_FLAG_NEXT) != 0) return forward_next(walk, instruction);
  int32_t stage = instruction->stage, microbatch = instruction->microbatch;
  int32_t column = column_of(walk, instruction);
  mt_verify_cell *cell = mt_verify_cell_at(walk->verifier, stage, column);
  if (walk->verifier->program->stages[stage].inputs != 0 && (cell->flags & MT_LOADED) == 0)
    MT_WALK_REFUSE(walk, microbatch, "FWD of %s, microbatch %d, reads data: its LOAD must stand before",
                   STAGE(stage), microbatch);
  motet_status status = check_inputs(walk, instruction, column);
  if (status != MOTET_OK) return status;
  cell->flags |= MT_FORWARD_DONE;
  take_saved(walk, stage, column);
  take_output(walk, stage, column, cell);
  mt_walk_peak(walk);
  bool again = (cell->flags & MT_HAS_RECOMPUTE) != 0;
  if (walk->verifier->asks[stage] == MT_ASKS_NOTHING || again) {
    give_saved(walk, stage, column);
    if (again) cell->flags |= MT_DROPPED;
  } else {
    cell->flags |= MT_SAVED;
  }
  release_inputs(walk, stage, column, again);
  return MOTET_OK;
}

/* Saved activations must be on the device. */
static motet_status check_saved(mt_walk *walk, const motet_instruction *instruction, const mt_verify_cell *cell) {
  if ((cell->flags & MT_SAVED) != 0) return MOTET_OK;
  const char *hint = (cell->flags & MT_DROPPED) != 0   ? "were dropped: its RECOMPUTE must stand before"
                     : (cell->flags & MT_ON_HOST) != 0 ? "are on the host: their FETCH must stand before"
                     : (cell->flags & MT_FORWARD_DONE) != 0
                         ? "are freed: it must stand before the end of the backward"
                         : "do not exist yet: its FWD must stand before";
  MT_WALK_REFUSE(walk, instruction->microbatch, "%s of %s, microbatch %d: the saved activations %s",
                 motet_instruction_name(instruction->kind), STAGE(instruction->stage), instruction->microbatch,
                 hint);
}

/* The gradients that a backward reads: of its output, along every edge to a stage with work. */
static motet_status check_gradients(mt_walk *walk, const motet_instruction *instruction, int32_t column) {
  const mt_verifier *verifier = walk->verifier;
  int32_t stage = instruction->stage, microbatch = instruction->microbatch;
  for (int64_t i = verifier->out_edges.begin[stage]; i < verifier->out_edges.begin[stage + 1]; i++) {
    int32_t edge = verifier->out_edges.items[i], to = verifier->program->edges[edge].to;
    FOR_PIECES(verifier, edge, stage, column, piece) {
      const mt_verify_cell *source = mt_verify_cell_at(verifier, to, mt_verify_home(verifier, to, piece));
      if (source->rank == walk->rank) {
        if ((source->flags & MT_GRADIENT_DONE) == 0)
          MT_WALK_REFUSE(walk, microbatch,
                         "%s of stage %d, microbatch %d, reads the gradient from %s: its backward on "
                         "this rank must stand before",
                         motet_instruction_name(instruction->kind), stage, microbatch, STAGE(to));
      } else if ((*mt_verify_edge_at(verifier, edge, piece) & (MT_ARRIVED << MT_GRADIENT_SHIFT)) == 0) {
        MT_WALK_REFUSE(walk, microbatch,
                       "%s of stage %d, microbatch %d, reads the gradient from %s: its RECV from rank "
                       "%d and the WAIT for it must stand before",
                       motet_instruction_name(instruction->kind), stage, microbatch, STAGE(to), source->rank);
      }
    }
  }
  return MOTET_OK;
}

/* The bytes of the gradients that a backward makes, one for each edge on which one goes back, or of those that it
 * has read. Both have the size of the activation. */
static void take_made_gradients(mt_walk *walk, int32_t stage, int32_t column) {
  const mt_verifier *verifier = walk->verifier;
  for (int64_t i = verifier->in_edges.begin[stage]; i < verifier->in_edges.begin[stage + 1]; i++) {
    int32_t edge = verifier->in_edges.items[i], from = verifier->program->edges[edge].from;
    if (verifier->upstream[from] == 0) continue;
    FOR_PIECES(verifier, edge, stage, column, piece) mt_walk_take(walk, piece_bytes(walk, from, piece));
  }
}

static void give_read_gradients(mt_walk *walk, int32_t stage, int32_t column) {
  const mt_verifier *verifier = walk->verifier;
  for (int64_t i = verifier->out_edges.begin[stage]; i < verifier->out_edges.begin[stage + 1]; i++) {
    int32_t edge = verifier->out_edges.items[i];
    FOR_PIECES(verifier, edge, stage, column, piece) mt_walk_give(walk, piece_bytes(walk, stage, piece));
  }
}

/* BWD, and BWD_X. */
motet_status mt_walk_backward(mt_walk *walk, const motet_instruction *instruction) {
  int32_t stage = instruction->stage, column = column_of(walk, instruction);
  mt_verify_cell *cell = own_cell(walk, instruction);
  if (cell == NULL) return MOTET_ERROR_REFUSED;
  motet_status status = check_saved(walk, instruction, cell);
  if (status == MOTET_OK) status = check_gradients(walk, instruction, column);
  if (status != MOTET_OK) return status;
  cell->flags |= MT_GRADIENT_DONE;
  take_made_gradients(walk, stage, column);
  mt_walk_peak(walk);
  give_read_gradients(walk, stage, column);
  if (instruction->kind == MOTET_BWD) {
    cell->flags |= MT_WEIGHTS_DONE;
    mt_walk_accumulate(walk, stage, instruction->microbatch);
  }
  if ((cell->flags & MT_HAS_BACKWARD_W) == 0) {
    cell->flags &= ~(uint32_t)MT_SAVED;
    give_saved(walk, stage, column);
  }
  return MOTET_OK;
}

motet_status mt_walk_backward_weights(mt_walk *walk, const motet_instruction *instruction) {
  int32_t stage = instruction->stage, microbatch = instruction->microbatch;
  mt_verify_cell *cell = own_cell(walk, instruction);
  if (cell == NULL) return MOTET_ERROR_REFUSED;
  if ((cell->flags & MT_GRADIENT_DONE) == 0)
    MT_WALK_REFUSE(walk, microbatch, "BWD_W of %s, microbatch %d: its BWD_X must stand before", STAGE(stage),
                   microbatch);
  motet_status status = check_saved(walk, instruction, cell);
  if (status != MOTET_OK) return status;
  cell->flags |= MT_WEIGHTS_DONE;
  cell->flags &= ~(uint32_t)MT_SAVED;
  mt_walk_accumulate(walk, stage, microbatch);
  mt_walk_peak(walk);
  give_saved(walk, stage, column_of(walk, instruction));
  return MOTET_OK;
}

motet_status mt_walk_recompute(mt_walk *walk, const motet_instruction *instruction) {
  int32_t stage = instruction->stage, microbatch = instruction->microbatch;
  mt_verify_cell *cell = own_cell(walk, instruction);
  if (cell == NULL) return MOTET_ERROR_REFUSED;
  if ((cell->flags & MT_DROPPED) == 0)
    MT_WALK_REFUSE(walk, microbatch, "RECOMPUTE of %s, microbatch %d: must stand between its FWD and its backward",
                   STAGE(stage), microbatch);
  cell->flags = (cell->flags & ~(uint32_t)MT_DROPPED) | MT_SAVED;
  take_saved(walk, stage, column_of(walk, instruction));
  mt_walk_peak(walk);
  release_inputs(walk, stage, column_of(walk, instruction), false);
  return MOTET_OK;
}

motet_status mt_walk_offload(mt_walk *walk, const motet_instruction *instruction) {
  mt_verify_cell *cell = own_cell(walk, instruction);
  if (cell == NULL) return MOTET_ERROR_REFUSED;
  motet_status status = check_saved(walk, instruction, cell);
  if (status != MOTET_OK) return status;
  cell->flags = (cell->flags & ~(uint32_t)MT_SAVED) | MT_ON_HOST;
  give_saved(walk, instruction->stage, column_of(walk, instruction));
  return MOTET_OK;
}

motet_status mt_walk_fetch(mt_walk *walk, const motet_instruction *instruction) {
  mt_verify_cell *cell = own_cell(walk, instruction);
  if (cell == NULL) return MOTET_ERROR_REFUSED;
  if ((cell->flags & MT_ON_HOST) == 0)
    MT_WALK_REFUSE(walk, instruction->microbatch, "FETCH of %s, microbatch %d: must follow its OFFLOAD",
                   STAGE(instruction->stage), instruction->microbatch);
  cell->flags = (cell->flags & ~(uint32_t)MT_ON_HOST) | MT_SAVED;
  take_saved(walk, instruction->stage, column_of(walk, instruction));
  mt_walk_peak(walk);
  return MOTET_OK;
}

motet_status mt_walk_load(mt_walk *walk, const motet_instruction *instruction) {
  int32_t stage = instruction->stage, microbatch = instruction->microbatch;
  mt_verify_cell *cell = mt_verify_cell_at(walk->verifier, stage, column_of(walk, instruction));
  bool next = (instruction->flags & MOTET_FLAG_NEXT) != 0;
  uint32_t wanted = next ? MT_HAS_NEXT : MT_HAS_FORWARD, loaded = next ? MT_NEXT_LOADED : MT_LOADED;
  bool here = (cell->flags & wanted) != 0 && (next ? cell->next_rank : cell->rank) == walk->rank;
  if (!here || (!next && (cell->flags & MT_CARRIED) != 0))
    MT_WALK_REFUSE(walk, microbatch,
                   "LOAD of %s, microbatch %d, on rank %d, which does not compute it: must stand "
                   "where its FWD does",
                   STAGE(stage), microbatch, walk->rank);
  if (walk->verifier->program->stages[stage].inputs == 0)
    MT_WALK_REFUSE(walk, microbatch, "LOAD of %s, which reads no data", STAGE(stage));
  if ((cell->flags & loaded) != 0)
    MT_WALK_REFUSE(walk, microbatch, "LOAD of %s, microbatch %d: must stand once", STAGE(stage), microbatch);
  cell->flags |= loaded;
  return MOTET_OK;
}

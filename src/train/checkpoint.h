/** @file
 * Checkpoints: `output_dir/checkpoints/step-N/`, a model in the HuggingFace layout with the optimizer's moments and
 * the trainer's state beside it. Files say nothing of ranks beyond which of them wrote a part: any width, schedule
 * and owner map loads them. A directory is written under another name, synced and renamed, so that under `step-N`
 * there is a whole checkpoint or none; a record of checksums shows what has happened to it since.
 */
#ifndef MT_TRAIN_CHECKPOINT_H
#define MT_TRAIN_CHECKPOINT_H

#include "comm/collective.h"
#include "train/weights.h"

/** What a run needs to go on as if it had not stopped. */
typedef struct mt_checkpoint_state {
  int64_t step; /* optimizer steps done, and so the position in the data */
  int64_t seed, global_batch, rows;
  uint64_t data_digest;
  bool has_record;                          /* of checksums; only read */
  int64_t moments_from[MT_NETWORK_MODULES]; /* steps done when a module's moments began; -1: it has none */
} mt_checkpoint_state;

typedef struct mt_checkpoint_writer {
  mt_transport *transport;
  mt_rank_group everyone;
  mt_network *network;
  mt_weights_owners owners;
  const char *output_dir, *config_path, *tokenizer_path;
  int64_t keep; /* newest checkpoints that stay */
} mt_checkpoint_writer;

/** Writes a checkpoint; called by all ranks. */
motet_status mt_checkpoint_save(const mt_checkpoint_writer *writer, const mt_checkpoint_state *state,
                                motet_error *error);

/** The newest checkpoint under @p output_dir of a step before @p before: its path, from @p arena, and NULL where
 * there is none. Nothing in it has been looked at. */
motet_status mt_checkpoint_newest(const char *output_dir, int64_t before, mt_arena *arena, motet_error *error,
                                  const char **path, int64_t *step);

/**
 * Whether headers and sizes of all its files are in order, and the checksums of part @p part of @p parts of its
 * tensors; without @p moments, of its weights alone. An error names file and tensor.
 */
motet_status mt_checkpoint_check(const char *path, bool moments, int32_t part, int32_t parts, motet_error *error);

motet_status mt_checkpoint_read_state(const char *path, motet_error *error, mt_checkpoint_state *state);

/** Weights of what the network holds, and the moments of what trains, as far as @p state says that there are any.
 */
motet_status mt_checkpoint_load(mt_network *network, const mt_internvl *config, const mt_checkpoint_state *state,
                                const char *path, motet_error *error);

#endif

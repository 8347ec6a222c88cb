/** @file
 * Weights and optimizer moments between a rank's network and safetensors files. Names, shapes and types are
 * checked; what is missing or differs is refused by the tensor's name.
 */
#ifndef MT_TRAIN_WEIGHTS_H
#define MT_TRAIN_WEIGHTS_H

#include "base/text.h"
#include "nn/network.h"

/** Fills all parameters that the network holds from the model at @p path (a directory or a file). */
motet_status mt_weights_load(mt_network *network, const char *path, motet_error *error);

/** Fills the moments of its trainable parameters from the checkpoint directory @p path, in the modules
 * (MT_NETWORK_MODULES flags) that have moments there; the others' stay zero. */
motet_status mt_moments_load(mt_network *network, const mt_internvl *config, const bool *modules, const char *path,
                             motet_error *error);

/** Which rank writes a layer's parameters. */
typedef struct mt_weights_owners {
  const mt_internvl *config;
  const bool *trainable;     /* [layers] */
  const int32_t *layer_rank; /* [layers] */
  int32_t layers;
} mt_weights_owners;

/**
 * This rank's part of a sharded model: writes it into directory @p path, if it owns anything. The checksums of what
 * it writes go into @p sums, [mt_weights_sum_count()], zero before; NULL: none are taken.
 */
motet_status mt_weights_save(mt_network *network, const mt_weights_owners *owners, int32_t rank, const char *path,
                             motet_error *error, double *sums);
motet_status mt_moments_save(mt_network *network, const mt_weights_owners *owners, int32_t rank, const char *path,
                             motet_error *error, double *sums);

/** Doubles in which the checksums (XXH3-64 of their bytes) of all tensors go round in a sum over all ranks: both
 * halves of each, weights and then moments, in one order on all ranks. */
int64_t mt_weights_sum_count(const mt_weights_owners *owners);

/** Appends `"NAME": "checksum"` of every tensor, with commas between. */
motet_status mt_weights_sums_print(const mt_weights_owners *owners, const double *sums, motet_error *error,
                                   mt_text *text);

/** The indexes over all parts; written by one rank. Nothing where one part holds all. */
motet_status mt_weights_index(const mt_weights_owners *owners, const char *path, motet_error *error);

#endif

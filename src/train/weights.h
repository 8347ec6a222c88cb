/** @file
 * Weights and optimizer moments between a rank's network and safetensors files. Names, shapes and types are
 * checked; what is missing or differs is refused by the tensor's name.
 */
#ifndef MT_TRAIN_WEIGHTS_H
#define MT_TRAIN_WEIGHTS_H

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

/** This rank's part of a sharded model: writes it into directory @p path, if it owns anything. */
motet_status mt_weights_save(mt_network *network, const mt_weights_owners *owners, int32_t rank, const char *path,
                             motet_error *error);
motet_status mt_moments_save(mt_network *network, const mt_weights_owners *owners, int32_t rank, const char *path,
                             motet_error *error);

/** The indexes over all parts; written by one rank. Nothing where one part holds all. */
motet_status mt_weights_index(const mt_weights_owners *owners, const char *path, motet_error *error);

#endif

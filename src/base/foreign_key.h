/** @file What job files and flags of other trainers call the keys of a job, for messages about unknown keys. */
#ifndef MT_BASE_FOREIGN_KEY_H
#define MT_BASE_FOREIGN_KEY_H

#include <stdbool.h>

/**
 * The key that is called @p name elsewhere (HuggingFace, Megatron-LM, DeepSpeed and their like), of those that
 * @p exists knows; NULL where there is none. A section before the name, dashes and capitals make no difference.
 * Kinds of jobs have different keys for some names.
 */
const char *mt_foreign_key(const char *name, bool (*exists)(const char *key));

#endif

/** @file
 * Random numbers with named streams: the sequence depends on the seed and the stream's name alone, so that
 * adding a consumer never shifts another's numbers. xoshiro256** (Blackman and Vigna), seeded by splitmix64.
 */
#ifndef MT_BASE_RANDOM_H
#define MT_BASE_RANDOM_H

#include <stdint.h>

typedef struct mt_random {
  uint64_t state[4];
} mt_random;

/** Starts the stream @p name of @p seed. */
mt_random mt_random_stream(uint64_t seed, const char *name);

uint64_t mt_random_bits(mt_random *random);

/** Uniform in [0, bound); @p bound > 0. Without bias. */
uint64_t mt_random_below(mt_random *random, uint64_t bound);

/** Uniform in [0, 1) with 53 bits. */
double mt_random_unit(mt_random *random);

/** Standard normal (Box-Muller, two uniforms a call). */
double mt_random_normal(mt_random *random);

#endif

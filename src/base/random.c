#include "base/random.h"

#include <math.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t splitmix(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static uint64_t rotate(uint64_t value, int by) { return (value << by) | (value >> (64 - by)); }

mt_random mt_random_stream(uint64_t seed, const char *name) {
  uint64_t state = XXH3_64bits_withSeed(name, strlen(name), seed);
  mt_random random;
  for (int i = 0; i < 4; i++) random.state[i] = splitmix(&state);
  return random;
}

uint64_t mt_random_bits(mt_random *random) {
  uint64_t *s = random->state;
  uint64_t result = rotate(s[1] * 5, 7) * 9;
  uint64_t carried = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= carried;
  s[3] = rotate(s[3], 45);
  return result;
}

uint64_t mt_random_below(mt_random *random, uint64_t bound) {
  uint64_t reject_below = (0 - bound) % bound; /* 2^64 mod bound */
  uint64_t bits;
  do bits = mt_random_bits(random);
  while (bits < reject_below);
  return bits % bound;
}

double mt_random_unit(mt_random *random) { return (double)(mt_random_bits(random) >> 11) * 0x1p-53; }

double mt_random_normal(mt_random *random) {
  const double two_pi = 6.283185307179586;
  double radius = sqrt(-2.0 * log(1.0 - mt_random_unit(random)));
  return radius * cos(two_pi * mt_random_unit(random));
}

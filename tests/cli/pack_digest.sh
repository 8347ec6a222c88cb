#!/bin/sh
# Plans are equal whatever built them: the sources of the planner, compiled unoptimised and for this machine's widest
# instruction set (fused multiply-add included) by every compiler there is, give the same digests and values.
set -eu
. "$(dirname "$0")/lib.sh"
root=$(cd "$(dirname "$0")/../.." && pwd) folder=$(dirname "$out")
cat >"$folder/digests.c" <<'C'
#include "motet/pack.h"
#include "workload/trace.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  static const char *const names[] = {"burst-128k", "internvid", "msrvtt", "openvid", "wikipedia"};
  for (int n = 0; n < 5; n++)
    for (int way = 0; way < 4; way++) {
      mt_distribution distribution = {names[n], 300, 7, 24, 8192};
      mt_trace trace;
      if (mt_distribution_draw(&distribution, NULL, &trace) != MOTET_OK) return 1;
      motet_pack_sequence *sequences = malloc((size_t)trace.count * sizeof *sequences);
      for (int32_t i = 0; i < trace.count; i++) sequences[i] = (motet_pack_sequence){trace.items[i].tokens, trace.items[i].area};
      motet_pack_options options = {.ranks = 24, .memory_tokens = way == 3 ? 65536 : 8192, .ranks_per_node = 8,
          .batch = way == 3 ? MOTET_PACK_ALL : MOTET_PACK_AUTO, .scope = way == 1 ? MOTET_PACK_GLOBAL : MOTET_PACK_MICROBATCH,
          .planner = way == 2 ? MOTET_PACK_BFD_DP : MOTET_PACK_BEST,
          .cost = {.attention_seconds_per_area = 1.0256e-8, .linear_seconds_per_token = 1.8396e-4, .fixed_seconds = 0.62936,
                   .ring_bytes_per_token = 172032, .latency_seconds_per_hop = 1e-5, .bandwidth_count = 3,
                   .bandwidth_degree = {2, 8, 16}, .bandwidth_bytes_per_second = {119.54e9, 96.5e9, 10.33e9}}};
      motet_packer *packer;
      const motet_pack_plan *plan;
      if (motet_packer_create(&options, NULL, &packer) != MOTET_OK) return 1;
      if (motet_packer_plan(packer, sequences, trace.count, NULL, &plan) != MOTET_OK) return 1;
      printf("%s %d %016" PRIx64 " %a %a\n", names[n], way, plan->digest, plan->value, plan->lower_bound);
      motet_packer_destroy(packer);
      free(sequences);
      mt_trace_destroy(&trace);
    }
  return 0;
}
C
build() { # name, compiler, options
  name=$1
  shift
  # shellcheck disable=SC2046
  "$@" -std=c17 -ffp-contract=off -D_GNU_SOURCE -I"$root/include" -I"$root/src" "$folder/digests.c" "$root"/src/pack/*.c \
    "$root/src/workload/trace.c" "$root/src/workload/distribution.c" "$root"/src/base/*.c "$root/src/model/json.c" -o "$folder/$name" $(pkg-config --cflags --libs jansson libxxhash yaml-0.1) \
    -lm -pthread \
    >"$out" 2>&1 || fail "$name: $(cat "$out")"
  "$folder/$name" >"$folder/$name.txt" || fail "$name does not run"
  if [ -f "$folder/first.txt" ]; then
    cmp "$folder/first.txt" "$folder/$name.txt" >&2 || fail "$name differs"
  else
    [ "$(wc -l <"$folder/$name.txt")" -eq 20 ] || fail "$name: $(cat "$folder/$name.txt")"
    cp "$folder/$name.txt" "$folder/first.txt"
  fi
}
build plain "${CC:-cc}" -O0
for compiler in gcc clang; do
  command -v $compiler >/dev/null || continue
  build ${compiler}_fast $compiler -O3 -march=native
done

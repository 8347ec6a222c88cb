#!/bin/sh
# Fuzzes every target with libFuzzer, address and undefined-behaviour sanitizers: tests/fuzz/run.sh [seconds a target]
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-60}
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target fuzz_targets
for seeds in build-fuzz/tests/fuzz_*.seeds; do
  target=${seeds%.seeds}
  corpus=$target.corpus
  mkdir -p "$corpus"
  while read -r seed; do
    if [ -f "$seed" ]; then cp "$seed" "$corpus/"; fi
  done <"$seeds"
  echo "== $(basename "$target"), $seconds s"
  "$target" -max_total_time="$seconds" -max_len=65536 -timeout=20 -artifact_prefix="$target." "$corpus"
done

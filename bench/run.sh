#!/bin/sh
# Builds and runs the benchmarks; keeps what they print under bench/results/ with machine and date.
# Usage: bench/run.sh [name ...]; without names, all of them.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- $(for source in bench/*.c; do basename "$source" .c; done)
machine=$(awk -F': *' '/model name/ { print $2; exit }' /proc/cpuinfo)
for name in "$@"; do
  cmake --build --preset release --target "bench_$name" >/dev/null
  ranks= # benchmarks of several ranks
  [ "$name" = training_context ] && ranks="mpirun --quiet --bind-to none --oversubscribe -n 2"
  {
    echo "# $name, $(date -u +%Y-%m-%d), $machine, $(nproc) cores, $(uname -m), $(cc --version | head -n 1)"
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 $ranks "build/bench/bench_$name"
  } | tee "bench/results/$name.txt"
done

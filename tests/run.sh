#!/bin/sh
# The whole suite: format, both compilers, the sanitizers, both MPI libraries.
# Usage: tests/run.sh [stage ...]; without stages, all of them in order. `tests/run.sh tidy` lints as well; it takes longer
# than the rest together and is no part of them. tests/run.sh list names the stages.
set -eu
cd "$(dirname "$0")/.."
jobs=$(nproc)
stages="format release clang asan tsan mpich"

configure() { cmake --preset "$1" -DMOTET_TESTS=ON >"$log" 2>&1 || { cat "$log"; return 1; }; }
build() { # preset, then targets; without targets, everything
  preset=$1
  shift
  configure "$preset" && cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"} >"$log" 2>&1 ||
    { tail -n 60 "$log"; return 1; }
}
check() { # preset, then options of ctest
  folder=build-$1
  [ "$1" = release ] && folder=build
  shift
  ctest --test-dir "$folder" --output-on-failure --no-tests=error "$@"
}

run_stage() {
  case $1 in
    format) find src include tests bench examples -name '*.[ch]' -exec clang-format --dry-run -Werror {} + ;;
    # What fails in the first half is no reason not to see the second one.
    release) build release && { check release -j "$jobs" -LE mpi; first=$?; check release -L mpi && return $first; } ;;
    # The slow rest of the suite runs once, in release; what differs by compiler is in these.
    clang) build clang && check clang -j "$jobs" -L 'unit|property|runtime' ;;
    asan) build asan && check asan -j "$jobs" -L 'unit|property|runtime|fuzz|cli' ;;
    tsan) build tsan threads_targets && check tsan -L threads ;;
    mpich) build mpich mpi_targets && check mpich -L mpi ;;
    tidy) run-clang-tidy -quiet -p build -j "$jobs" "$PWD/(src|bench)/.*\.c$" >"$log" 2>&1 || { grep -E 'error|warning' "$log" | head -n 60; return 1; } ;;
    *) echo "tests: there is no stage '$1'; stages: $stages tidy" >&2; return 2 ;;
  esac
}

[ "${1:-}" = list ] && { echo "$stages tidy"; exit 0; }
[ $# -gt 0 ] || set -- $stages
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed= begin=$(date +%s)
for stage in "$@"; do
  echo "== $stage"
  started=$(date +%s)
  run_stage "$stage" || failed="$failed $stage"
  echo "== $stage: $(($(date +%s) - started)) s"
done
echo "== all: $(($(date +%s) - begin)) s"
if [ -n "$failed" ]; then
  echo "tests: failed stages:$failed" >&2
  exit 1
fi

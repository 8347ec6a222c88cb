#!/bin/sh
# The rows of the numbers table for one frozen and one trained encoder, through the command: arXiv 2607.03229's
# schedules, makespans by formula (inline, prefix) and proven optima.
# f=1, b=2, communication free.
set -eu
. "$(dirname "$0")/lib.sh"

# P M trained encode inline prefix optimum
while read -r ranks microbatches trained encode inline prefix optimum; do
  case $ranks in '#'* | '') continue ;; esac
  unit="vision: f=${encode%%,*}"
  [ "$trained" = yes ] && unit="vision: f=$encode, b=$((2 * encode))"
  for row in "inline $inline" "transpose(order=prefix) $prefix" "transpose $optimum"; do
    skeleton=${row% *} expected=${row##* }
    set -- plan --schedule "<vision: $skeleton, llm: 1f1b>" --ranks "$ranks" --microbatches "$microbatches" \
      --unit "$unit; llm: f=1, b=2" --json
    case $encode in *,*) set -- "$@" --encode "$encode" ;; esac
    motet "$@" >"$out"
    number=$(field makespan <"$out")
    near "$number" "$expected" || fail "P=$ranks M=$microbatches e=$encode trained=$trained $skeleton: $number, expected $expected"
    [ "$(field verified <"$out")" = true ] || fail "$skeleton is not verified"
    below "$(field bound <"$out")" "$number" || fail "$skeleton: the bound is above the makespan"
  done
done <<'ROWS'
4 4 no 1 22 22 22
4 16 no 1 70 61 58
4 16 no 2 83 65 61
8 16 no 1 78 71 70
8 32 no 1 142 121 118
8 32 no 2 167 125 119
4 16 no 0.4,0.4,0.4,2.0 67 65 57.4
4 8 yes 1 51 39 36
4 16 yes 1 99 69 63
8 16 yes 1 103 75 72
8 32 yes 1 199 129 120
ROWS

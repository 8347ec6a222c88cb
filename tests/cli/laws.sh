#!/bin/sh
# The two overhead laws (M >= P; inline for e <= b, prefix for uniform e) and the negative case M = P, through the command.
set -eu
. "$(dirname "$0")/lib.sh"
for ranks in 2 3 5 8; do
  for microbatches in $ranks $((ranks + 1)) $((3 * ranks + 2)); do
    for encode in 0.5 1 2; do
      base=$(awk -v p=$ranks -v m=$microbatches 'BEGIN { print (m + p - 1) * 3 }')
      for skeleton in inline 'transpose(order=prefix)' transpose; do
        motet plan --schedule "<vision: $skeleton, llm: 1f1b>" --ranks $ranks --microbatches $microbatches \
          --unit "vision: f=$encode; llm: f=1, b=2" --json >"$out"
        makespan=$(field makespan <"$out")
        case $skeleton in
          inline)
            law=$(awk -v p=$ranks -v m=$microbatches -v e=$encode 'BEGIN { print (m - p + 1) * e }')
            inline=$makespan ;;
          *prefix*) law=$(awk -v p=$ranks -v m=$microbatches -v e=$encode 'BEGIN { print int((m + p - 1) / p) * e }') ;;
          *)
            # Nothing is gained over the encoder inside stage 0 when every microbatch is in the first wave.
            [ $microbatches -ne $ranks ] || near "$makespan" "$inline" || fail "P=M=$ranks e=$encode: fill $makespan, inline $inline"
            below "$makespan" "$inline" || fail "P=$ranks M=$microbatches e=$encode: fill $makespan above inline $inline"
            continue ;;
        esac
        near "$makespan" "$(awk -v a="$base" -v b="$law" 'BEGIN { print a + b }')" ||
          fail "P=$ranks M=$microbatches e=$encode $skeleton: $makespan, expected $base + $law"
      done
    done
  done
done

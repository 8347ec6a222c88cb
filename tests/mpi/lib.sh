# Shared by the tests that start ranks; $work is their folder.
. "$(dirname "$0")/../cli/lib.sh"
cd "$TEST_DATA"
work=$(dirname "$out")
case $SANITIZE in *address*) export ASAN_OPTIONS=detect_leaks=0 ;; esac # MPI libraries leave memory behind
# A field of every line of a run's metrics, to five digits.
column() { sed -n "s/.*\"$2\": \([0-9.e+-]*\).*/\1/p" "$work/$1/metrics.jsonl" | awk '{ printf "%.5g\n", $1 }'; }
# The losses of a run as they stand in its metrics; the digests of its weights, step by step.
losses() { sed -n 's/.*"loss": \([0-9.e+-]*\).*/\1/p' "$work/$1/metrics.jsonl"; }
weights() { sed -n 's/.*"weights_digest": "\([0-9a-f]*\)".*/\1/p' "$work/$1/metrics.jsonl"; }
# What follows is about the run in $work/run, whose launcher is $process.
reach_steps() { # until there are so many
  for tenth in $(seq 100); do
    [ -s "$work/run/metrics.jsonl" ] && [ "$(wc -l <"$work/run/metrics.jsonl")" -ge "$1" ] && return
    sleep 0.1
  done
  fail "no $1 steps within ten seconds: $(cat "$out.err")"
}
rank_process() { # of this rank
  pgrep -f "output_dir=$work/run " | while read -r candidate; do
    tr '\0' '\n' <"/proc/$candidate/environ" 2>/dev/null | grep -q -E "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1\$" && echo "$candidate"
  done | head -n 1
}
one_message() { # pattern of the one message of all ranks; none of them is left
  [ "$(grep -c '^motet: ' "$out.err")" -eq 1 ] || fail "$1: not one message: $(cat "$out.err")"
  grep -q -E "$1" "$out.err" || fail "the message does not say '$1': $(cat "$out.err")"
  [ -z "$(pgrep -f "output_dir=$work/run ")" ] || sleep 1
  [ -z "$(pgrep -f "output_dir=$work/run ")" ] || fail "$1: a rank is left"
}
ends() { # exit code or "not 0", pattern of the one message; since $begin
  code=0
  wait "$process" || code=$?
  [ $(($(date +%s) - begin)) -le 5 ] || fail "$2: it took more than five seconds"
  case $1 in "not 0") [ "$code" -ne 0 ] ;; *) [ "$code" -eq "$1" ] ;; esac || fail "$2: exit code $code: $(cat "$out.err")"
  one_message "$2"
}

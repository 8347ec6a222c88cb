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

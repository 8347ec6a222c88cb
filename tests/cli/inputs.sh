#!/bin/sh
# Inputs that are no files of the kind, or no files at all: every command ends, with exit code 2 and the file's name, and
# reads pipes.
set -eu
. "$(dirname "$0")/lib.sh"
folder=$(dirname "$out")
cd "$folder"
: >empty
printf '\000\000\000' >zeros
printf '\377\376{}' >marked
printf '{' >brace
ln -s loop loop
mkdir dir
mkfifo pipe
echo '{"id": "a", "tokens": 10}' >trace.jsonl
echo '{"attn_s_per_area": 1e-12, "linear_s_per_token": 1e-9, "fixed_s": 0, "ring_bytes_per_token": 1, "bandwidth_bytes_per_s": {"2": 1e9}, "latency_s_per_hop": 0, "overlap": true}' >cost.json
expect 0 plan --schedule '<llm: 1f1b>' --unit 'llm: f=1, b=2' --ranks 2 --microbatches 2 -o plan.json --summary
head -c 700 plan.json >cut
refuse() { # file, command words with @ for the file
  file=$1
  shift
  words=
  for word; do
    if [ "$word" = @ ]; then word=$file; fi
    words="$words $word"
  done
  # shellcheck disable=SC2086
  expect 2 $words --json
  [ "$(field file <"$out")" = "$file" ] || fail "$words: the file is not named: $(cat "$out")"
}
for file in empty zeros marked brace cut loop pipe nowhere; do
  refuse "$file" verify @
  refuse "$file" pack @ --ranks 4 --cost cost.json --memory-tokens 100
done
for file in zeros loop nowhere; do
  refuse "$file" simulate @
  refuse "$file" show @
  refuse "$file" report plan.json --against @ -o page.html
  refuse "$file" watch @ --once
  refuse "$file" model @
  refuse "$file" pack trace.jsonl --ranks 4 --cost @ --memory-tokens 100
  refuse "$file" plan @
  refuse "$file" plan @ --search
done
refuse dir verify @
refuse dir plan @
# YAML whose brackets go deep ends at once (the parser's time is quadratic), and one file is one document.
awk 'BEGIN { while (n++ < 200000) printf "[" }' >deep
printf 'a: 1\n---\nb: 2\n' >two
for words in "" --search cluster=h100; do
  # shellcheck disable=SC2086
  refuse deep plan @ $words
  # shellcheck disable=SC2086
  refuse two plan @ $words
  [ "$(field line <"$out")" = 3 ] || fail "the second document's line: $(cat "$out")"
done

# A job where a program belongs: what makes the program of it.
for words in 'verify job.yaml' 'show job.yaml' 'report job.yaml -o page.html' 'report plan.json --against job.yml -o page.html'; do
  # shellcheck disable=SC2086
  expect 2 $words && grep -q "'motet plan job.ya\{0,1\}ml -o plan.json' makes its program" "$out.err" || fail "$words: $(cat "$out.err")"
done

# A pipe with a writer is read like a file.
expect 0 verify plan.json --json
cp "$out" answer
cat plan.json >pipe &
expect 0 verify pipe --json
cmp -s "$out" answer || fail "a pipe's answer differs: $(cat "$out")"

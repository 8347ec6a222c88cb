#!/bin/sh
# Files for other programs: the report's page and the trace forms; what is refused.
set -eu
. "$(dirname "$0")/lib.sh"
folder=$(dirname "$out")
unit='vision: f=1; llm: f=1, b=2'
plan() { expect 0 plan --schedule '<vision: transpose, llm: 1f1b>' --unit "$unit" --ranks 3 --microbatches 4 --bytes 100 --summary "$@"; }

plan -o "$folder/plan.json" --report "$folder/plan.html" --trace "$folder/chrome.json"
grep -q 'id="data"' "$folder/plan.html" || fail 'the page has no data'
grep -q 'vision 20% faster' "$folder/plan.html" || fail 'the page does not say what would change the step'
grep -q '"ph":"C"' "$folder/chrome.json" || fail 'the trace has no counter of memory'
plan --trace "$folder/hta" --trace-format hta
plan --trace "$folder/hta" --trace-format hta # the folder is there already
[ "$(ls "$folder/hta" | wc -l)" -eq 3 ] || fail 'a rank has no file'
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$folder/hta/rank-2.json" || fail 'no JSON'
# The short form: the same files, of plan and of simulate.
plan --trace "$folder/short" --hta
diff -r "$folder/hta" "$folder/short" || fail '--hta is not --trace-format hta'
plan --trace "$folder/short" --hta --trace-format hta
expect 0 simulate "$folder/plan.json" --unit "$unit" --summary --trace "$folder/long" --trace-format hta
expect 0 simulate "$folder/plan.json" --unit "$unit" --summary --hta --trace "$folder/brief"
diff -r "$folder/long" "$folder/brief" || fail 'simulate --hta is not --trace-format hta'
expect 2 simulate "$folder/plan.json" --unit "$unit" --trace "$folder/x" --hta --trace-format chakra
grep -q 'two forms' "$out.err" || fail 'two forms of one trace'
expect 2 simulate "$folder/plan.json" --unit "$unit" --hta
grep -q -e '--trace, which is missing' "$out.err" || fail 'a form of no trace'
expect 0 simulate "$folder/plan.json" --unit "$unit" --summary --trace "$folder/step" --trace-format chakra
for rank in 0 1 2; do [ -s "$folder/step.$rank.et" ] || fail "rank $rank has no file"; done
expect 2 plan --schedule '<llm: 1f1b>' --unit 'llm: f=1, b=2' --ranks 2 --microbatches 2 --trace "$folder/x" --trace-format xml
grep -q 'none of chrome, hta, chakra' "$out.err" || fail 'the forms are not named'
[ ! -e "$folder/x" ] || fail 'a file of no form'

# The same page, byte for byte, from the same input.
expect 0 report "$folder/plan.json" --unit "$unit" -o "$folder/one.html"
expect 0 report "$folder/plan.json" --unit "$unit" -o "$folder/two.html"
expect 0 report "$folder/plan.json" --unit "$unit" -o "$folder/three.html" --json
[ "$(field page <"$out")" = "$folder/three.html" ] || fail "no document: $(cat "$out")"
rm "$folder/three.html"
cmp -s "$folder/one.html" "$folder/two.html" || fail 'two pages of one plan differ'
expect 0 report "$folder/plan.json" -o "$folder/own.html"
sed '/^"times": {/,/^"buffers"/{/^"buffers"/!d;}' "$folder/plan.json" >"$folder/untimed.json"
expect 2 report "$folder/untimed.json" -o "$folder/three.html"
grep -q -- "--unit" "$out.err" || fail 'the missing times are not named'
expect 2 report "$folder/plan.json" --unit "$unit"
expect 2 report "$folder" --json -o "$folder/three.html"
[ "$(field file <"$out")" = "$folder" ] || fail 'a folder without timelines is not named'
printf '0F0,0F1\n1F0\n' >"$folder/broken.csv"
expect 1 report "$folder/broken.csv" --unit 'f=1, b=1' -o "$folder/three.html"
[ ! -e "$folder/three.html" ] || fail 'a page of nothing'
expect 3 report "$folder/plan.json" --unit "$unit" -o "$folder/none/page.html"

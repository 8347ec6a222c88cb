#!/bin/sh
# PyTorch pipelining orders through the command: the published schedules' golden rows, placements, and the two orders
# of PyTorch issue 172668 that hang where sends and receives block in turn.
set -eu
. "$(dirname "$0")/lib.sh"
schedules=$TEST_DATA/schedules
for name in 1f1b vpp2 vpp4; do
  row=$(grep "^$name,4,8,1.0,1.0,1.0," "$schedules/golden.csv")
  expect 0 verify "$schedules/${name}_p4_m8.csv" --json
  [ "$(field accepted <"$out")" = true ] || fail "$name is not accepted"
  expect 0 simulate "$schedules/${name}_p4_m8.csv" --unit 'f=1, x=1, w=1' --json
  python3 - "$out" "$row" <<'CHECK' || fail "$name differs from its golden row"
import json, sys
d, row = json.load(open(sys.argv[1])), sys.argv[2].split(",")
assert abs(d["makespan"] - float(row[6])) < 1e-9, (d["makespan"], row)
assert abs(d["bubble_whole"] - float(row[7])) < 1e-5 and abs(d["bubble_stage"] - float(row[9])) < 1e-5
assert abs(max(d["peak_activations"]) - float(row[10])) < 1e-9
CHECK
done
expect 0 verify "$schedules/zbv_p4_m8.csv" --placement v
expect 2 verify "$schedules/zbv_p4_m8.csv" --placement loop --json
expect 2 verify "$schedules/vpp2_p4_m8.csv" --placement v
expect 0 verify "$schedules/zb1p_2rank_2stagep_comms.csv"

# Stages 0 and 2 on rank 0, 1 and 3 on rank 1. Each rank sends before it receives what the other sends.
cat >"$out.csv" <<'ORDER'
0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,2RECV_B0,2B0,2SEND_B0,2RECV_B1,2B1,2SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1
1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3B0,3SEND_B0,3RECV_F1,3F1,3B1,3SEND_B1,1RECV_B0,1B0,1SEND_B0,1RECV_B1,1B1,1SEND_B1
ORDER
expect 1 verify "$out.csv" --json
[ "$(field rule <"$out")" = progress ] || fail "rule: $(cat "$out")"
python3 - "$out" <<'CHECK' || fail 'the cycle is not named'
import json, sys
cycle = json.load(open(sys.argv[1]))["cycle"]
assert len(cycle) >= 2 and {c["rank"] for c in cycle} == {0, 1}, cycle
CHECK
expect 0 verify "$out.csv" --posted
# The same order with each of these receives in front of the send that it stood behind.
sed '1s/0SEND_F1,2RECV_F0/2RECV_F0,0SEND_F1/; 1s/2SEND_F0,2RECV_F1/2RECV_F1,2SEND_F0/
  2s/3SEND_B0,3RECV_F1/3RECV_F1,3SEND_B0/; 2s/3SEND_B1,1RECV_B0/1RECV_B0,3SEND_B1/
  2s/1SEND_B0,1RECV_B1/1RECV_B1,1SEND_B0/' "$out.csv" >"$out.mended.csv"
expect 0 verify "$out.mended.csv"

# The issue's second order, completed: rank 1's 3SEND_B0 waits for 2RECV_B0, which stands behind 0SEND_F2, which waits
# for 1RECV_F2, which stands behind 3SEND_B0.
cat >"$out.csv" <<'ORDER'
0F0,0SEND_F0,0F1,2RECV_F0,0SEND_F1,2F0,2RECV_F1,2SEND_F0,2F1,2SEND_F1,0F2,0SEND_F2,2RECV_B0,2B0,2RECV_B1,2SEND_B0,2B1,2RECV_F2,2SEND_B1,2F2,0RECV_B0,0B0,2SEND_F2,0RECV_B1,0B1,2RECV_B2,2B2,2SEND_B2,0RECV_B2,0B2
1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3B0,3RECV_F1,3SEND_B0,3F1,3B1,1RECV_F2,3SEND_B1,1F2,1RECV_B0,1SEND_F2,1B0,1RECV_B1,1SEND_B0,1B1,3RECV_F2,1SEND_B1,3F2,3B2,3SEND_B2,1RECV_B2,1B2,1SEND_B2
ORDER
expect 1 verify "$out.csv" --json
[ "$(field rule <"$out")" = progress ] || fail "rule: $(cat "$out")"
expect 1 verify "$out.csv"
for part in 'rank 0, .*SEND of the activation from stage 0 to stage 1, microbatch 2, to rank 1' \
  'rank 1, .*SEND of the gradient from stage 3 to stage 2, microbatch 0, to rank 0'; do
  grep -q "$part" "$out.err" || fail "the cycle does not name $part: $(cat "$out.err")"
done
expect 0 verify "$out.csv" --posted
sed '1s/0SEND_F2,2RECV_B0/2RECV_B0,0SEND_F2/' "$out.csv" >"$out.mended.csv"
expect 0 verify "$out.mended.csv"

# And out again: derived orders as PyTorch CSV are the published ones, action by action.
for row in '1f1b 1f1b' 'vpp2 1f1b(virtual=2)' 'vpp4 1f1b(virtual=4)'; do
  expect 0 plan --schedule "<llm: ${row#* }>" --ranks 4 --microbatches 8 --unit 'llm: f=1, b=2' --summary --csv "$out.csv"
  sed 's/,,*/,/g; s/^,//; s/,*\r*$//' "$schedules/${row%% *}_p4_m8.csv" >"$out.published"
  tr -d '\r' <"$out.csv" | cmp -s - "$out.published" || fail "${row#* } differs from the published order: $(diff "$out.csv" "$out.published")"
done
# What the form cannot say is refused before anything is written.
rm -f "$out.csv"
expect 2 plan --schedule '<vision: transpose, llm: 1f1b>' --ranks 2 --microbatches 2 --unit 'vision: f=1; llm: f=1, b=2' \
  --csv "$out.csv"
grep -q 'several ranks hold' "$out.err" || fail "the reason is missing: $(cat "$out.err")"
[ ! -e "$out.csv" ] || fail 'a refused order was written'

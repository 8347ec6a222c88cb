#!/bin/sh
# motet pack: the contract's document, recomputed from its groups; refusals with their line; every planner.
set -eu
. "$(dirname "$0")/lib.sh"
cost=$TEST_DATA/pack/flexsp_7b.json trace=$TEST_DATA/pack/trace.jsonl
common="--ranks 64 --cost $cost --memory-tokens 16384"

# Recomputes everything that the document says from its groups and the cost file: check.py ranks memory
cat >"$out.py" <<'PY'
import json, sys
plan, cost = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
ranks, memory, scope = int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
items = {}
for line, text in enumerate(open(sys.argv[6]), 1):
    if text.strip():
        item = json.loads(text)
        items[str(item.get("id", line))] = (item["tokens"], item.get("area", item["tokens"] ** 2 / 2))
bandwidth = sorted((int(d), b) for d, b in cost["bandwidth_bytes_per_s"].items())
def seconds(names, d):
    tokens, area = (sum(items[n][i] for n in names) for i in (0, 1))
    assert tokens <= memory * d, "memory"
    ring = 0
    if d > 1:
        b = next((b for at, b in bandwidth if at >= d), bandwidth[-1][1])
        ring = cost["ring_bytes_per_token"] * tokens * (d - 1) / (d * b) + cost["latency_s_per_hop"] * (d - 1)
    return cost["fixed_s"] + cost["linear_s_per_token"] * tokens / d + max(cost["attn_s_per_area"] * area / d, ring)
seen, total, sets = list(plan["deferred"]), 0, set()
for microbatch in plan["microbatches"]:
    groups, value = microbatch["groups"], 0
    for g in groups:
        assert len(g["ranks"]) == len(set(g["ranks"])) == g["degree"] and all(0 <= r < ranks for r in g["ranks"])
        assert abs(g["seconds"] - seconds(g["sequences"], g["degree"])) < 1e-9
        if scope == "microbatch": assert g["start"] == 0
        value = max(value, g["start"] + g["seconds"])
        seen += g["sequences"]
        if g["degree"] > 1: sets.add(tuple(g["ranks"]))
    for i, g in enumerate(groups):
        for h in groups[:i]:
            if g["start"] < h["start"] + h["seconds"] - 1e-9 and h["start"] < g["start"] + g["seconds"] - 1e-9:
                assert not set(g["ranks"]) & set(h["ranks"]), "a rank in two groups at once"
    assert abs(value - microbatch["value"]) < 1e-9
    total += value
assert sorted(seen) == sorted(items), "every sequence once"
assert abs(total - plan["value"]) < 1e-9
assert 0 < plan["lower_bound"] <= plan["value"]
assert abs(plan["gap"] - (plan["value"] / plan["lower_bound"] - 1)) < 1e-9
assert plan["distinct_groups"] == len(sets)
assert plan["accepted"] is True and plan["stop"] and len(plan["digest"]) == 16 and plan["plan_seconds"] >= 0
PY
check() { python3 "$out.py" "$out" "$cost" "$1" "$2" "$3" "$4" || fail "$5: the document contradicts itself"; }

# A larger trace, by arithmetic.
large=$(dirname "$out")/large.jsonl
awk 'BEGIN { for (i = 0; i < 200; i++) printf "{\"id\": \"s%d\", \"tokens\": %d}\n", i, i % 50 == 7 ? 60000 + i : 200 + (i * 7919) % 4000 }' >"$large"

for scope in microbatch global; do
  for batch in all auto 50; do
    # shellcheck disable=SC2086
    expect 0 pack "$large" $common --scope $scope --batch $batch --json
    check 64 16384 $scope "$large" "scope $scope batch $batch"
    digest=$(field digest <"$out")
    # shellcheck disable=SC2086
    expect 0 pack "$large" $common --scope $scope --batch $batch --json
    [ "$(field digest <"$out")" = "$digest" ] || fail "scope $scope batch $batch: two runs differ"
  done
done
# shellcheck disable=SC2086
expect 0 pack "$large" $common --json
best=$(field value <"$out")
for planner in bfd-dp static:16 static:8 pow2-greedy lpt; do
  # shellcheck disable=SC2086
  expect 0 pack "$large" $common --planner $planner --json
  check 64 16384 microbatch "$large" "$planner"
  [ "$(field planner <"$out")" = $planner ] || fail "the planner's name"
  [ "$(field deferred <"$out")" != "[]" ] || below "$best" "$(field value <"$out")" || fail "best $best is above $planner"
  if [ ${planner%:*} = static ]; then
    python3 -c 'import json,sys
for m in json.load(open(sys.argv[1]))["microbatches"]:
    assert all(g["degree"] == int(sys.argv[2]) for g in m["groups"])' "$out" "${planner#*:}" || fail "$planner: another degree"
  fi
done
# shellcheck disable=SC2086
expect 0 pack "$large" $common --degrees pow2 --ranks-per-node 8 --group-budget 40 --json
check 64 16384 microbatch "$large" "group budget"
# shellcheck disable=SC2086
expect 0 pack "$trace" $common --degrees list:1,3,9 --json
check 64 16384 microbatch "$trace" "list of degrees"
python3 -c 'import json,sys
for m in json.load(open(sys.argv[1]))["microbatches"]:
    assert all(g["degree"] in (1, 3, 9) for g in m["groups"])' "$out" || fail "a degree that is not allowed"

# Too much for one microbatch: named sequences wait; with auto nothing does.
expect 0 pack "$large" --ranks 16 --cost "$cost" --memory-tokens 8192 --json
check 16 8192 microbatch "$large" "deferring"
[ "$(field deferred <"$out")" != "[]" ] || fail "all of it cannot fit"
waiting=$(python3 -c 'import json,sys; print(len(json.load(open(sys.argv[1]))["deferred"]))' "$out") of=$(wc -l <"$large")
expect 0 pack "$large" --ranks 16 --cost "$cost" --memory-tokens 8192
grep -q "^best: [0-9.]* s for $((of - waiting)) of $of sequences, proven" "$out" && grep -q "^deferred, no room for $waiting sequence" "$out" &&
  grep -q -e '^--batch auto makes' "$out" || fail "what waits is not said: $(cat "$out")"
expect 0 pack "$large" --ranks 16 --cost "$cost" --memory-tokens 8192 --batch auto --json
check 16 8192 microbatch "$large" "auto"
[ "$(field deferred <"$out")" = "[]" ] || fail "auto defers"

# Memory at its border: 8 ranks of 16384 take 131072 tokens, not one more.
expect 0 pack "$trace" --ranks 8 --cost "$cost" --memory-tokens 16384 --batch auto --json
check 8 16384 microbatch "$trace" border
expect 1 pack "$trace" --ranks 8 --cost "$cost" --memory-tokens 16383 --json
[ "$(field accepted <"$out")" = false ] || fail "accepted beyond memory"
[ "$(field rule <"$out")" = memory ] && [ "$(field line <"$out")" = 1 ] || fail "the refusal: $(cat "$out")"
field message <"$out" | grep -q "131064" || fail "what would fit is not said"
expect 1 pack "$trace" --ranks 64 --cost "$cost" --memory-tokens 16384 --degrees list:1,2,4
grep -q "line 1" "$out.err" || fail "the line is not named"

# Bad input: exit code 2 and the line or key.
bad=$(dirname "$out")/bad.jsonl
printf '{"tokens": 5}\n{"tokens": 0}\n' >"$bad"
# shellcheck disable=SC2086
expect 2 pack "$bad" $common --json
[ "$(field line <"$out")" = 2 ] && [ "$(field key <"$out")" = tokens ] || fail "zero length: $(cat "$out")"
printf '{"tokens": -3}\n' >"$bad"
# shellcheck disable=SC2086
expect 2 pack "$bad" $common --json
[ "$(field line <"$out")" = 1 ] || fail "negative length"
printf '{"attn_s_per_area": 1}\n' >"$bad"
expect 2 pack "$trace" --ranks 8 --cost "$bad" --memory-tokens 10 --json
[ "$(field key <"$out")" = linear_s_per_token ] || fail "the missing key"
expect 2 pack "$trace" --ranks 8 --cost /nonexistent --memory-tokens 10
expect 2 pack /nonexistent --ranks 8 --cost "$cost" --memory-tokens 10
expect 2 pack distribution:nothing --ranks 8 --cost "$cost" --memory-tokens 10
expect 2 pack "$trace" --ranks 0 --cost "$cost" --memory-tokens 10
expect 2 pack "$trace" --cost "$cost" --memory-tokens 10
expect 2 pack "$trace" --ranks 8 --memory-tokens 10
expect 2 pack "$trace" --ranks 8 --cost "$cost"
for option in "--planner some" "--planner static:0" "--batch 0" "--batch some" "--scope some" "--degrees some" "--planner static:65" \
  "--deadline-ms -1" "--scope global --planner lpt"; do
  # shellcheck disable=SC2086
  expect 2 pack "$trace" $common $option
done

# Distributions, the picture, the comparison.
for name in burst-128k burst-192k internvid msrvtt openvid wikipedia; do
  # shellcheck disable=SC2086
  expect 0 pack distribution:$name $common --count 128 --seed 3 --batch auto --json
  value=$(field value <"$out") bound=$(field lower_bound <"$out")
  below "$bound" "$value" || fail "$name: bound $bound above value $value"
  below "$value" "$(awk -v b="$bound" 'BEGIN { print 1.3 * b }')" || fail "$name: value $value, bound $bound"
done
# shellcheck disable=SC2086
expect 0 pack "$trace" $common
grep -q "proven bound" "$out" && grep -q "long" "$out" || fail "the picture: $(cat "$out")"
# shellcheck disable=SC2086
expect 0 pack "$large" $common --compare
for planner in best bfd-dp static:16 pow2-greedy lpt; do grep -q "^$planner " "$out" || fail "no row for $planner"; done
# shellcheck disable=SC2086
expect 0 pack "$large" $common --compare --json
[ "$(grep -c '"planner"' "$out")" -eq 6 ] && grep -q '"planner": "bfd-dp"' "$out" || fail "the comparison's document"

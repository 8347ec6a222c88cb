#!/bin/sh
# data.feature_cache: the same bits with a cold cache and a warm one, under any layout, and to rounding without one; no
# encoder computed where features are there; nothing stale where weights, pictures or preprocessing change; damaged
# files found.
set -eu
. "$(dirname "$0")/lib.sh"
cp -r image/pictures "$work/pictures"

run() {
  name=$1
  shift
  expect 0 train train/job.yaml output_dir="$work/$name" train.steps=6 train.search_seconds=0 train.resume=never \
    data.images_root="$work/pictures" deterministic=exact trainable='[projector, llm]' train.timeline_every=6 "$@"
}
cached() { run "$@" data.feature_cache="$work/cache"; }
# The reference: a cache of its own, empty at first.
fresh() { run "$@" data.feature_cache="$work/fresh_$1"; }
near_losses() { losses "$1" >"$work/one" && losses "$2" | paste "$work/one" - | awk '($1 - $2) ^ 2 > 1e-10 * $1 ^ 2 { exit 1 }'; }
same() { [ "$(weights "$1")" = "$(weights "$2")" ] || fail "$3"; }
files() { find "$work/cache" -type f | wc -l; }
# "microbatches with pictures, of them cached" in the last step's program.
marks() {
  python3 - "$work/$1/timeline/step-6.program.json" <<'END'
import json, sys
rows = [(int(row[2]), int(row[3])) for row in json.load(open(sys.argv[1]))["microbatches"]]
print(sum(present & 1 for present, cached in rows), sum(cached & 1 for present, cached in rows))
END
}

run none
fresh new
near_losses none new || fail "features by picture are not those of the whole: $(losses new), $(losses none)"
cached cold parallel.pipeline=1 parallel.data=2 train.microbatches=2
same new cold "another layout with a cold cache changes the bits"
first=$(files)
[ "$first" -ge 5 ] || fail "only $first files in the cache"
[ -z "$(find "$work/cache" -name '*.partial')" ] || fail "parts are left behind"
cached warm
same new warm "a warm cache changes the bits"
[ "$(files)" -eq "$first" ] || fail "a warm run wrote files"
[ "$(marks warm)" = "3 3" ] || fail "cached microbatches: $(marks warm)"
[ "$(marks none)" = "3 0" ] || fail "without a cache: $(marks none)"
cached sharded parallel.pipeline=4 schedule='<vision+projector: 1f1b, llm: 1f1b>' memory.recompute=all
same new sharded "a warm cache changes the bits of a sharded encoder"

# Where the projector is frozen too its output is what is kept, and nothing of the region is left to do.
fresh llm trainable='[llm]'
cached llm_cold trainable='[llm]'
cached llm_warm trainable='[llm]'
same llm llm_cold "a cold cache of the projector's features changes the bits"
same llm llm_warm "a warm cache of the projector's features changes the bits"
[ "$(files)" -eq $((2 * first)) ] || fail "the projector's features are others: $(files) files"

# Damaged and cut files are computed again.
victim=$(find "$work/cache" -type f | sort | head -1)
other=$(find "$work/cache" -type f | sort | tail -1)
cp "$victim" "$work/victim"
printf 'X' | dd of="$victim" bs=1 seek=2000 conv=notrunc 2>/dev/null
truncate -s -1 "$other"
! cmp -s "$victim" "$work/victim" || fail "the file is not damaged"
cached llm_again trainable='[llm]'
cached again
same new again "a damaged file was used"
same llm llm_again "a damaged file was used"
cmp "$victim" "$work/victim" || fail "the damaged file was not replaced"

# Other weights, other pictures, other preprocessing: other files, and the bits of a run that has nothing to reuse.
for change in weights picture tiles; do
  before=$(files)
  case $change in
  weights) set -- train.seed=4 ;;
  picture) set -- && printf 'trailer' >>"$work/pictures/baseline.jpg" ;;
  tiles) sed 's/"max_dynamic_patch": 4/"max_dynamic_patch": 2/' train/config.json >"$work/config.json" && set -- config="$work/config.json" ;;
  esac
  fresh "new_$change" "$@"
  cached "cached_$change" "$@"
  same "new_$change" "cached_$change" "other $change: stale features"
  [ "$(files)" -gt "$before" ] || fail "other $change: no new files"
done

# An encoder that trains is not cached; order=ahead has nothing to do ahead.
cached trained trainable=all train.steps=2
grep -q 'encoder trains' "$out" || fail "nothing is said of an encoder that trains"
expect 1 train train/job.yaml output_dir="$work/ahead" trainable='[llm]' data.feature_cache="$work/cache" \
  schedule='<vision+projector: transpose(order=ahead), llm: 1f1b>'
grep -q '\[feature_cache\] order=ahead .*order=fill' "$out.err" || fail "order=ahead: $(cat "$out.err")"
# Nor are rows that ranks share; and those are not encoded ahead either.
expect 1 plan train/job.yaml output_dir="$work/ahead" trainable='[llm]' data.feature_cache="$work/cache" parallel.context=2 --json
[ "$(field rule <"$out")" = feature_cache ] || fail "a cache and context: $(cat "$out")"
expect 1 plan train/job.yaml output_dir="$work/ahead" trainable='[llm]' parallel.context=2 schedule='<vision+projector: transpose(order=ahead), llm: 1f1b>' --json
[ "$(field rule <"$out")" = ahead ] || fail "order=ahead and context: $(cat "$out")"

# Shared by the command tests: MOTET names the command under test.
out=$(mktemp -d)/out
trap 'rm -rf "$(dirname "$out")"' EXIT
motet() { "$MOTET" "$@"; }
fail() { echo "FAIL: $*" >&2; exit 1; }
# The value of a top-level scalar of the JSON document on standard input, which stands on a line of its own.
field() { sed -n "s/^ \"$1\": \"\{0,1\}\(.*[^,\"]\)\"\{0,1\},\{0,1\}\$/\1/p"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d < 1e-9 && d > -1e-9) }'; }
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b + 1e-9) }'; }
# Runs a command, expecting this exit code; keeps standard output in $out and standard error in $out.err.
expect() {
  wanted=$1
  shift
  code=0
  motet "$@" >"$out" 2>"$out.err" || code=$?
  [ "$code" -eq "$wanted" ] || fail "motet $*: exit code $code, expected $wanted: $(cat "$out.err" "$out")"
}

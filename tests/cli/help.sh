#!/bin/sh
# Help, man pages and completion come from one table: what one of them knows, all know.
set -eu
. "$(dirname "$0")/lib.sh"
manual=$BUILD/manual
expect 0 help
cp "$out" "$out.overview"
expect 0 help --names
cp "$out" "$out.names"
[ "$(wc -l <"$out.names")" -ge 5 ] || fail "too few commands: $(cat "$out.names")"
while read -r name; do
  grep -q "^  $name " "$out.overview" || fail "motet help does not list $name"
  expect 0 help "$name"
  cp "$out" "$out.help"
  expect 0 "$name" --help
  cmp -s "$out" "$out.help" || fail "motet $name --help is not motet help $name"
  page=$manual/man1/motet-$name.1
  [ -s "$page" ] || fail "there is no man page of $name"
  if command -v man >/dev/null 2>&1; then
    LC_ALL=C MANWIDTH=300 man --warnings=w -l "$page" >"$out" 2>"$out.err" </dev/null || fail "man: $(cat "$out.err")"
    [ ! -s "$out.err" ] || fail "man warns about $name: $(cat "$out.err")"
    # The help's words are on the page, option by option and word by word (hyphenation and columns aside).
    grep -o -e '--[a-z-][a-z-]*' "$out.help" | sort -u | while read -r option; do
      grep -q -e "$option" "$out" || { echo "FAIL: $option is missing on the page of $name" >&2; exit 1; }
    done || exit 1
  fi
done <"$out.names"
# Every key of the page on job files, and no other.
if grep -q '^train$' "$out.names"; then
  expect 0 help job
  sed -n 's/^  \([a-z_.]*\)=.*/\1/p' "$out" | sort >"$out.keys"
  sed -n 's/^| `\([a-z_.]*\)` |.*/\1/p' "$(dirname "$0")/../../docs/formats/job.md" | sort >"$out.page"
  diff "$out.keys" "$out.page" || fail 'motet help job and docs/formats/job.md have different keys'
  grep -q "  train.dtype=float32|bfloat16" "$out" && grep -q '(required)$' "$out" || fail "help job: $(cat "$out")"
fi
# Each way to call a command has a line.
expect 0 help plan
[ "$(grep -c '^usage: motet plan --schedule \|^   or: motet plan --layout \|^   or: motet plan JOB.yaml ' "$out")" -eq 3 ] ||
  fail "the ways to call plan: $(head -5 "$out")"
expect 2 help --completion tcsh
expect 2 help none
expect 2 help --man none

# bash: the words that are offered for the last one of a line.
cat >"$out.bash" <<'SCRIPT'
. "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_motet
printf '%s\n' "${COMPREPLY[@]}"
SCRIPT
offers() { # the last of the line's words, then what is expected, sorted, on one line
  expected=$1
  shift
  found=$(bash "$out.bash" "$manual/bash/motet" "$@" | sort | tr '\n' ' ' | sed 's/ *$//')
  [ "$found" = "$expected" ] || fail "completing '$*' offers '$found', expected '$expected'"
}
if command -v bash >/dev/null 2>&1; then
  offers 'plan' motet pl
  offers 'help' motet he
  offers 'auto program pytorch-csv' motet verify --format ''
  offers 'loop' motet simulate x.csv --placement l
  offers '--schedule --search --split --summary' motet plan --s
  offers '--hta' motet simulate x.csv --h
  offers '' motet verify order
  offers 'verify' motet help ve
fi
# The scripts of shells that are there must at least parse.
for shell in zsh:zsh/_motet fish:fish/motet.fish; do
  if command -v "${shell%%:*}" >/dev/null 2>&1; then
    "${shell%%:*}" -n "$manual/${shell#*:}" || fail "${shell%%:*} does not parse its completion"
  fi
done

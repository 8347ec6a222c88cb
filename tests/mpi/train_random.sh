#!/bin/sh
# Random ways to run one training give the losses of one rank; `make equality` tries many more.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
case $SANITIZE in ?*) exit 77 ;; esac # ranks by the dozen, of code that other tests run under sanitizers
python3 -B "$here/equality.py" 2000 4 >"$out" || fail "$(cat "$out")"

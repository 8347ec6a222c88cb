#!/bin/sh
# The check of floors and lengths sees what it is there for. Usage: floors_sees.sh PYTHON
set -eu
here=$(dirname "$0")
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
fail() { echo "FAIL: $*" >&2; exit 1; }
mkdir -p "$tree/src/base" "$tree/src/model" "$tree/src/cli" "$tree/include/motet" "$tree/bench" "$tree/examples" "$tree/tests"
echo 'set(planning_floors base model)
set(runtime_floors train)' >"$tree/src/CMakeLists.txt"
echo '#include "base/text.h"
#include "motet/plan.h"
#include <stdio.h>' >"$tree/src/model/good.c"
"$1" "$here/floors.py" "$tree" || fail "a good tree is refused"
echo '#include "model/good.h"' >"$tree/src/base/upward.c"
echo '#include "elsewhere.h"' >"$tree/src/cli/stray.c"
echo '#include "base/text.h"' >"$tree/include/motet/leak.h"
awk 'BEGIN { for (i = 0; i < 601; i++) print "" }' >"$tree/tests/long.c"
if found=$("$1" "$here/floors.py" "$tree"); then fail "a bad tree passes"; fi
for line in 'src/base/upward.c:1: base includes model/good.h' 'src/cli/stray.c:1: elsewhere.h names no floor' \
  'include/motet/leak.h:1: a public header includes base/text.h' 'tests/long.c: 601 lines'; do
  case $found in *"$line"*) ;; *) fail "'$line' is not said: $found" ;; esac
done

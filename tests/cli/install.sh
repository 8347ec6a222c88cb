#!/bin/sh
# What `make install` leaves is enough to build and run a program against libmotet with pkg-config.
set -eu
. "$(dirname "$0")/lib.sh"
prefix=$(dirname "$out")/prefix
cmake --install "$BUILD" --prefix "$prefix" >"$out" 2>&1 || fail "installing: $(cat "$out")"
pc=$(find "$prefix" -name libmotet.pc)
[ -n "$pc" ] || fail "libmotet.pc is not installed"
export PKG_CONFIG_PATH="$(dirname "$pc")"
# The file holds the prefix that cmake was configured with; an install elsewhere overrides it.
flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs libmotet)
# shellcheck disable=SC2086
${CC:-cc} ${SANITIZE:+-fsanitize=$SANITIZE} "$(dirname "$0")/../../examples/plan.c" $flags -o "$prefix/plan" >"$out" 2>&1 ||
  fail "compiling: $(cat "$out")"
libraries=$(dirname "$(dirname "$pc")")
LD_LIBRARY_PATH="$libraries" "$prefix/plan" >"$out" || fail "running"
grep -q 'makespan 58, bound 58' "$out" || fail "unexpected answer: $(cat "$out")"
! nm "$prefix"/lib*/*/libmotet.a "$prefix"/lib*/libmotet.a 2>/dev/null | grep -E ' U (MPI_|av_)' ||
  fail "libmotet must not need MPI, FFmpeg or a math library"
# The shared library shows the public functions and nothing else.
for library in "$libraries"/libmotet.so; do
  [ -e "$library" ] || continue # not every build has one
  hidden=$(nm -D --defined-only "$library" | awk '$3 !~ /^motet_/ { print $3 }')
  [ -z "$hidden" ] || fail "libmotet.so shows $hidden"
done
for file in share/man/man1/motet-plan.1 share/bash-completion/completions/motet share/zsh/site-functions/_motet \
  share/fish/vendor_completions.d/motet.fish share/doc/motet/README.md share/doc/motet/formats/job.md; do
  [ -s "$prefix/$file" ] || fail "$file is not installed"
done

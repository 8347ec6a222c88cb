#!/bin/sh
# Installs what Motet needs, on Debian 12. Usage: tools/setup.sh [test]
# Does nothing where everything is there; without root or apt it prints the list and stops.
set -eu
here=$(dirname "$0")
lists="$here/packages.txt"
[ "${1:-}" = test ] && lists="$lists $here/packages-test.txt"
wanted=$(cat $lists | sed 's/#.*//')

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "setup: this is not a Debian system. Motet needs the equivalents of these Debian 12 packages:" >&2
  echo $wanted >&2
  exit 1
fi
missing=
for package in $wanted; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  as_root="sudo -n"
else
  echo "setup: these packages are missing and installing them takes root. Run:" >&2
  echo "  apt-get install$missing" >&2
  exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "setup: apt-get is not here. Install these packages another way:" >&2
  echo "$missing" >&2
  exit 1
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# The package lists may be too old to find a package: refresh them once and try again.
install() { $as_root apt-get install -y -q --no-install-recommends $missing; }
if ! install; then
  $as_root apt-get update -q
  install || {
    echo "setup: apt-get could not install:$missing" >&2
    exit 1
  }
fi

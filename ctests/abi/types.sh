#!/bin/sh
# The types and functions of the header are those of the snapshot beside this file, as libabigail sees them: sizes,
# offsets, parameters. (check.sh ties the header to the library; layouts.c has the values of constants.) Usage: types.sh PREFIX [--update]
set -eu
prefix=$1
here=$(cd "$(dirname "$0")" && pwd)
command -v abidw >/dev/null && command -v abidiff >/dev/null ||
  { echo "skipped: abidw is missing: install the package abigail-tools"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A library with a body for each function of the header, and debug information.
echo '#include <reclane/reclane.h>' >"$work/header.c"
gcc -std=c11 -E -P -I"$prefix/include" "$work/header.c" >"$work/plain.txt"
{
  cat "$work/header.c"
  tr '\n' ' ' <"$work/plain.txt" | sed 's/__attribute__((warn_unused_result))//g; s/; */;\n/g' | tr -s ' ' |
    grep -E '^ ?[a-z][a-z0-9_ *]*reclane_[a-z0-9_]+\(.*\);$' | grep -v typedef | sed 's/;$/ { __builtin_trap(); }/'
} >"$work/bodies.c"
gcc -std=c11 -g -shared -fPIC -I"$prefix/include" "$work/bodies.c" -o "$work/libreclane.so"
while read -r name; do
  nm -D --defined-only "$work/libreclane.so" | grep -q " $name\$" || { echo "the header does not declare $name"; exit 1; }
done <"$here/exports.txt"
abidw --no-show-locs --no-comp-dir-path --no-corpus-path --no-architecture "$work/libreclane.so" |
  sed "s# path='[^']*'# path='bodies.c'#" >"$work/types.abi"
if [ "${2:-}" = --update ]; then
  cp "$work/types.abi" "$here/types.abi"
  exit 0
fi
# Anything at all: a new function is a change that must be meant, too.
if ! abidiff --no-architecture "$here/types.abi" "$work/types.abi"; then
  echo "the binary interface has changed; if that is meant: $0 PREFIX --update" >&2
  exit 1
fi

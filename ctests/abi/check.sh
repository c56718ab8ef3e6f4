#!/bin/sh
# The binary interface is what the snapshots beside this file say: exported symbols, needed libraries, the newest GLIBC
# symbol version, SONAME and flags. Usage: check.sh PREFIX [--update]
set -eu
library=$1/lib/libreclane.so
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nm -D --defined-only "$library" | awk '{ print $3 }' | LC_ALL=C sort >"$work/exports.txt"
{
  readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/needed \1/p' | LC_ALL=C sort
  readelf -dW "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/soname \1/p'
  readelf -dW "$library" | sed -n 's/.*(FLAGS_1) *Flags: \(.*\)/flags \1/p' | sed 's/ *$//'
  printf 'newest glibc '
  readelf -VW "$library" | grep -o 'GLIBC_[0-9.]*' | LC_ALL=C sort -t_ -k2 -V -u | tail -1
} >"$work/needs.txt"

if [ "${2:-}" = --update ]; then
  cp "$work/exports.txt" "$work/needs.txt" "$here/"
  exit 0
fi
status=0
for snapshot in exports needs; do
  diff -u "$here/$snapshot.txt" "$work/$snapshot.txt" || status=1
done
[ $status = 0 ] || echo "the binary interface has changed; if that is meant: $0 PREFIX --update" >&2
exit $status

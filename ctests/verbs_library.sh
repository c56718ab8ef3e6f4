#!/bin/sh
# The library finds libibverbs when it is asked for it, and says what is wrong with what it finds: stand-ins that cannot be
# loaded, lack a symbol, or know no device. Usage: verbs_library.sh PREFIX PROGRAM, the program being the built fabrics.c.
set -eu
library=$1/lib/libreclane.so
program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

names=$(strings -a "$library" | grep -oE '_?ibv_[a-z0-9_]+' | LC_ALL=C sort -u)
if [ -z "$names" ]; then
  echo "skipped: this build has no verbs feature"
  exit 0
fi
real=$(cc -print-file-name=libibverbs.so.1)
[ -e "$real" ] || { echo "skipped: libibverbs.so.1 is missing, so the versions of its symbols are unknown"; exit 0; }
# Name and version of each symbol that the library looks for, as the real one has them.
readelf --dyn-syms -W "$real" | awk '{ print $8 }' | sed -n 's/^\(_\{0,1\}ibv_[a-z0-9_]*\)@@\(IBVERBS_[A-Z0-9._]*\)$/\1 \2/p' >"$work/real.txt"
: >"$work/wanted.txt"
for name in $names; do
  grep "^$name " "$work/real.txt" >>"$work/wanted.txt" || true
done
grep -q '^ibv_get_device_list ' "$work/wanted.txt" || { echo "the library does not look for ibv_get_device_list"; exit 1; }

# stand_in DIRECTORY [LEFT-OUT]: a library with those symbols, which knows no device.
stand_in() {
  mkdir -p "$1"
  grep -v "^${2:-nothing} " "$work/wanted.txt" >"$1/symbols.txt"
  {
    echo 'static void *no_devices[1];'
    while read -r name _; do
      case $name in
        ibv_get_device_list) echo 'void **ibv_get_device_list(int *n) { if (n) *n = 0; return no_devices; }' ;;
        *) echo "long $name(void) { return 0; }" ;;
      esac
    done <"$1/symbols.txt"
  } >"$1/stand_in.c"
  before=
  for version in $(awk '{ print $2 }' "$1/symbols.txt" | sort -uV); do
    echo "$version { global: $(awk -v v="$version" '$2 == v { printf "%s; ", $1 }' "$1/symbols.txt") } $before;"
    before=$version
  done >"$1/versions.map"
  cc -w -shared -fPIC -Wl,--version-script="$1/versions.map" -Wl,-soname,libibverbs.so.1 "$1/stand_in.c" \
    -o "$1/libibverbs.so.1"
}

# expect NAME WORDS: the program ends well with that stand-in, and the reason has these words.
expect() {
  said=$(LD_LIBRARY_PATH="$work/$1" "$program") || { echo "$1: $said"; exit 1; }
  echo "$said" | grep -qi -- "$2" || { echo "$1: '$2' is missing in: $said"; exit 1; }
}

mkdir "$work/unloadable"
echo 'no library' >"$work/unloadable/libibverbs.so.1"
expect unloadable 'libibverbs'
stand_in "$work/short" ibv_free_device_list
expect short 'ibv_free_device_list'
stand_in "$work/empty"
expect empty 'device'
echo "3 stand-ins"

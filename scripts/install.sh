#!/bin/sh
# Builds the library in release mode and installs it below a prefix: scripts/install.sh PREFIX
set -eu

if [ $# -ne 1 ]; then
  echo "usage: $0 PREFIX" >&2
  exit 2
fi
case $1 in
  /*) prefix=$1 ;;
  *) prefix=$PWD/$1 ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
build=${CARGO_TARGET_DIR:-$root/target}/cmake

command -v cmake >/dev/null || { echo "cmake is missing: install the package cmake" >&2; exit 1; }
cmake -S "$root/cmake" -B "$build" >/dev/null
cmake --build "$build"
cmake --install "$build" --prefix "$prefix" >/dev/null
echo "installed reclane to $prefix"

#!/usr/bin/env bash
# Builds the library in release mode and installs it below a prefix: scripts/install.sh PREFIX
# Missing system packages are installed by name, as root or through sudo.
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: $0 PREFIX" >&2
    exit 2
fi
case $1 in
    /*) prefix=$1 ;;
    *) prefix=$PWD/$1 ;;
esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/lib/setup.sh
. "$root/scripts/lib/setup.sh"
build=${CARGO_TARGET_DIR:-$root/target}/cmake

need_packages "${BUILD_PACKAGES[@]}"
need_cargo
cmake -S "$root/cmake" -B "$build" >/dev/null
cmake --build "$build"
cmake --install "$build" --prefix "$prefix" >/dev/null
echo "installed reclane to $prefix"

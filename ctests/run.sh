#!/bin/sh
# Builds all C and C++ tests against an installed prefix, runs them, and ends with "N passed, N failed".
# Usage: run.sh PREFIX [BUILD-DIRECTORY]. With SANITIZE in the environment the programs are built with those sanitizers.
set -u
if [ $# -lt 1 ]; then
  echo "usage: $0 PREFIX [BUILD-DIRECTORY]" >&2
  exit 2
fi
prefix=$(cd "$1" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -ge 2 ]; then
  build=$2
else
  build=$(mktemp -d)
  trap 'rm -rf "$build"' EXIT
fi
for tool in cmake ctest gcc g++ clang valgrind pkg-config readelf; do
  command -v $tool >/dev/null || echo "ctests: $tool is missing; install it by name (clang, valgrind, cmake, pkg-config, binutils)" >&2
done

if ! cmake -S "$here" -B "$build" -DCMAKE_PREFIX_PATH="$prefix" -DSANITIZE="${SANITIZE:-}" >"$build.log" 2>&1 || ! cmake --build "$build" -j2 >>"$build.log" 2>&1; then
  cat "$build.log"
  rm -f "$build.log"
  echo "0 passed, 1 failed"
  exit 1
fi
rm -f "$build.log"
ctest --test-dir "$build" --output-on-failure --output-junit "$build/results.xml"
passed=$(grep -c '<testcase .*status="run"' "$build/results.xml")
failed=$(grep -c '<testcase .*status="fail"' "$build/results.xml")
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]

#!/bin/sh
# Programs find the package as their users do: by CMake, by pkg-config, after the installed tree was moved; other
# versions and components are refused; the library loads in a process that does not know it. Usage: consumers.sh PREFIX
set -eu
installed=$1
here=$(cd "$(dirname "$0")" && pwd)
hello=$here/../examples/hello.c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected='7: 0.5 1.5 2.5 3.5
1000000007: 4 5 6 7'

fail() {
  echo "consumers: $1" >&2
  exit 1
}

# The tree is moved as a whole, to a path with a space in it.
prefix="$work/moved tree"
mkdir "$prefix"
cp -a "$installed/include" "$installed/lib" "$prefix/"

# project NAME PACKAGE-LINE TARGET: a project of one file.
project() {
  mkdir -p "$work/$1"
  cat >"$work/$1/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project($1 LANGUAGES C)
$2
add_executable(hello "$hello")
target_link_libraries(hello PRIVATE $3)
END
}

for kind in reclane static; do
  project "with_$kind" "find_package(reclane 0.1 CONFIG REQUIRED)" "reclane::$kind"
  cmake -S "$work/with_$kind" -B "$work/with_$kind/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
  cmake --build "$work/with_$kind/build" >/dev/null
  [ "$("$work/with_$kind/build/hello")" = "$expected" ] || fail "the program with reclane::$kind said something else"
done

# Another minor version is another interface while the major one is 0.
for line in "reclane 0.2" "reclane 1.0" "reclane 0.1.99" "reclane 0.1 COMPONENTS nothing"; do
  project refused "find_package($line CONFIG REQUIRED)" reclane::reclane
  rm -rf "$work/refused/build"
  if cmake -S "$work/refused" -B "$work/refused/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null 2>&1; then
    fail "find_package($line) was not refused"
  fi
done

# pkg-config, shared and static.
PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
export PKG_CONFIG_PATH
pkg-config --exact-version=0.1.0 reclane || fail "pkg-config finds another version"
eval "cc -std=c99 '$hello' $(pkg-config --cflags --libs reclane) -Wl,-rpath,'$prefix/lib' -o '$work/hello'"
[ "$("$work/hello")" = "$expected" ] || fail "the program built with pkg-config said something else"
eval "cc -std=c99 '$hello' $(pkg-config --cflags --libs reclane-static) -o '$work/hello_static'"
[ "$("$work/hello_static")" = "$expected" ] || fail "the static program built with pkg-config said something else"
if readelf -d "$work/hello_static" | grep -q libreclane; then
  fail "the static program built with pkg-config needs the shared library"
fi

# The libraries' directory may be deeper below the prefix, as Debian has it. Installed from what is installed, then moved.
deep=lib/some-arch
mkdir -p "$work/target/release"
cp -L "$installed/lib/libreclane.so" "$installed/lib/libreclane.a" "$installed/bin/reclane" "$work/target/release/"
cmake -S "$here/../cmake" -B "$work/package" -DCARGO_EXECUTABLE="$(command -v true)" \
  -DRECLANE_TARGET_DIR="$work/target" -DRECLANE_LIBDIR="$deep" >/dev/null
cmake --install "$work/package" --prefix "$work/deep" >/dev/null
mv "$work/deep" "$work/deep tree"
cmake -S "$work/with_reclane" -B "$work/with_reclane/deep" -Dreclane_DIR="$work/deep tree/$deep/cmake/reclane" >/dev/null
cmake --build "$work/with_reclane/deep" >/dev/null
[ "$("$work/with_reclane/deep/hello")" = "$expected" ] || fail "the program with libraries in $deep said something else"
PKG_CONFIG_PATH="$work/deep tree/$deep/pkgconfig"
for package in reclane reclane-static; do
  eval "cc -std=c99 '$hello' $(pkg-config --cflags --libs $package) -Wl,-rpath,'$work/deep tree/$deep' -o '$work/deep_hello'"
  [ "$("$work/deep_hello")" = "$expected" ] || fail "$package of pkg-config with libraries in $deep said something else"
done
PKG_CONFIG_PATH="$prefix/lib/pkgconfig"

# dlopen and dlclose: the library stays, so that a thread of the host may end later.
cat >"$work/load.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
  const char *(*version)(void);
  void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) return 1;
  *(void **)&version = dlsym(library, "reclane_version");
  if (version == NULL || dlclose(library) != 0) return 2;
  puts(version());
  return dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) == NULL;
}
END
cc "$work/load.c" -o "$work/load" -ldl
[ "$("$work/load" "$prefix/lib/libreclane.so.0")" = 0.1.0 ] || fail "dlopen, dlclose and a late call do not work"

# A program that asks the installed command line tool for its version gets the library's.
if [ -x "$installed/bin/reclane" ]; then
  "$installed/bin/reclane" --version | grep -q '0\.1\.0' || fail "bin/reclane has another version"
fi
echo "all consumers work"

#!/bin/sh
# The installed headers compile alone and twice, as every C and C++ they promise, with every warning an error, with gcc
# and clang; two files of one program may both include reclane.hpp. Usage: header_matrix.sh PREFIX
# The lists of warnings are meant to be split into words.
# shellcheck disable=SC2086
set -eu
prefix=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warnings="-Wall -Wextra -Wpedantic -Wundef -Wconversion -Wshadow -Wstrict-prototypes -Werror"
cxx_warnings="-Wall -Wextra -Wpedantic -Wundef -Wconversion -Wshadow -Werror"
done=0

cat >"$work/c.c" <<'END'
#include <reclane/reclane.h>
#include <reclane/reclane.h>
int main(void) {
  reclane_error error = RECLANE_INIT(reclane_error);
  return error.status;
}
END
printf '#include <reclane/reclane.h>\n#include <reclane/reclane.h>\nint main() { return 0; }\n' >"$work/h.cpp"
printf '#include <reclane/reclane.hpp>\n#include <reclane/reclane.hpp>\nint main() { return 0; }\n' >"$work/hpp.cpp"

for compiler in gcc clang; do
  command -v $compiler >/dev/null || { echo "skipped: $compiler is missing"; continue; }
  for standard in c99 c11 c17 c2x; do
    $compiler -std=$standard $warnings -I"$prefix/include" -fsyntax-only "$work/c.c"
    done=$((done + 1))
  done
done
for compiler in g++ clang++; do
  command -v $compiler >/dev/null || { echo "skipped: $compiler is missing"; continue; }
  for standard in c++11 c++14 c++17 c++20 c++2b; do
    $compiler -std=$standard $cxx_warnings -I"$prefix/include" -fsyntax-only "$work/h.cpp"
    done=$((done + 1))
  done
  for standard in c++17 c++20 c++2b; do
    for flags in "" -DRECLANE_EXCEPTIONS -fno-exceptions; do
      $compiler -std=$standard $cxx_warnings $flags -I"$prefix/include" -fsyntax-only "$work/hpp.cpp"
      done=$((done + 1))
    done
  done
done

# Two files, one program: a missing `inline` would be a duplicate symbol.
printf '#include <reclane/reclane.hpp>\nconst char *other() { return reclane::version(); }\n' >"$work/one.cpp"
printf '#include <reclane/reclane.hpp>\nconst char *other();\nint main() { return other() != reclane::version(); }\n' >"$work/two.cpp"
g++ -std=c++17 -I"$prefix/include" "$work/one.cpp" "$work/two.cpp" -L"$prefix/lib" -lreclane -Wl,-rpath,"$prefix/lib" -o "$work/both"
"$work/both"

# The header asks for nothing but these two.
includes=$(grep -h '^ *# *include' "$prefix/include/reclane/reclane.h" | tr '\n' ' ')
[ "$includes" = "#include <stddef.h> #include <stdint.h> " ] || { echo "reclane.h includes more: $includes"; exit 1; }

# Every function of the C header can be reached through the C++ one.
while read -r name; do
  grep -q "$name(\|[ ,]$name>" "$prefix/include/reclane/reclane.hpp" || { echo "reclane.hpp lacks $name"; exit 1; }
done <"$(dirname "$0")/abi/exports.txt"
echo "$((done + 1)) compilations"

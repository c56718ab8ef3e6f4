#!/usr/bin/env bash
# The library's own tests under AddressSanitizer, with its search for leaks: what is used after it was freed, what lies
# outside its block, what nobody freed. The C and C++ programs run under it too (ctests/run.sh).
#
# usage: scripts/sanitize.sh [FILTER...]     tests whose names contain a filter; those that handle memory without filters
#
# The compiler's switch for it is not among the stable ones, so RUSTC_BOOTSTRAP=1 is set for this build alone. It has a
# folder of its own for what it builds.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# Rooms with `unsafe` in them, and those that call them with what peers send.
filters=(fabric::shm rpc:: ps:: memory:: wire:: observe:: checkpoint:: engine:: capi::)
[ $# -eq 0 ] || filters=("$@")

runtime=$(rustc --print target-libdir)/librustc-stable_rt.asan.a
ls "${runtime%stable_rt.asan.a}"*_rt.asan.a >/dev/null 2>&1 || {
    printf 'skipped: this Rust toolchain brings no runtime of AddressSanitizer (%s)\n' "$runtime"
    exit 0
}
host=$(rustc --version --verbose | sed -n 's/^host: //p')
export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}/sanitize"
# With a target named, build scripts and macros are built without it.
cargo test --locked --lib --no-default-features --target "$host" -- "${filters[@]}"
# ThreadSanitizer needs a standard library that was built for it, which takes the sources of Rust.
printf 'skipped: ThreadSanitizer: the standard library of the toolchain is not built for it, so it reports races that are none\n'

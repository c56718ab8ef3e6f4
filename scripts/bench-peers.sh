#!/usr/bin/env bash
# Measures reclane beside what somebody would take instead, doing the same work on the same two cores in interleaved
# rounds: UCX (Debian's, and the newer one of the Python package libucx-cu12), libfabric, iceoryx2, gRPC, Redis. What is
# missing is installed by name; a peer that cannot be had or run is named in the report.
#
# usage: scripts/bench-peers.sh [--quick] [--json] [--write] [--no-curves] [--rounds N] [--ms N] [--only NAME] [--peers NAME,...]
#   --quick      two short rounds without curves
#   --json       prints {"workloads": [{workload, depth, reclane, best_peer, best_peer_name, ratio, goal}]} and no more
#   --write      puts the report into docs/performance.md
#   --only NAME  only workloads whose name contains NAME, such as get_1x64
#   --peers      only peers whose name contains one of these
# The plots are target/bench-peers/report.html, the raw figures results.json beside it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh

UCX_PACKAGE=libucx-cu12==1.22.0
target=${CARGO_TARGET_DIR:-$root/target}
folder=$target/bench-peers
sources=benches/peers

rounds=5 milliseconds=40 curves=yes json=no write=no pass=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) rounds=2 milliseconds=15 curves=no ;;
        --json) json=yes ;;
        --write) write=yes ;;
        --no-curves) curves=no ;;
        --rounds) rounds=$2; shift ;;
        --ms) milliseconds=$2; shift ;;
        --only | --peers) pass+=("$1" "$2"); shift ;;
        *) sed -n '2,/^set /{/^#/p}' "$0" >&2; exit 2 ;;
    esac
    shift
done
# Only the JSON goes to standard output then.
exec 3>&1
[ "$json" = no ] || exec 1>&2

[ "$(uname -m)" = x86_64 ] || die "the clock of this bench is that of x86-64"
[ "$(nproc)" -ge 2 ] || die "two cores are needed, one for each side"

mkdir -p "$folder/bin" "$folder/missing"
rm -f "$folder/missing/"*

# lacks PROGRAM REASON...: why a peer's program is not there, for the report.
lacks() {
    local program=$1
    shift
    printf '%s\n' "$*" >"$folder/missing/$program"
    rm -f "$folder/bin/$program"
    fail "$program: $*"
}

# build PROGRAM ARGUMENTS...: compiles benches/peers/PROGRAM.c, or another source that the arguments name.
compile() {
    local program=$1 log=$folder/$1.log
    shift
    if ! gcc -O3 -march=native -o "$folder/bin/$program" "$@" -lm >"$log" 2>&1; then
        lacks "$program" "it cannot be compiled: $(grep -m 1 error "$log" || tail -n 1 "$log")"
    fi
}

install_all() {
    need_packages gcc cmake util-linux python3
    need_cargo
    try_packages redis-server || lacks redis_rows "the package redis-server could not be installed"
    try_packages libfabric-bin || lacks fi_pingpong "the package libfabric-bin could not be installed"
    try_packages libucx-dev ucx-utils || lacks ucx_rows_debian "the packages libucx-dev and ucx-utils could not be installed"
    need_pip
    local library=$folder/ucx/libucx/lib/libucp.so
    if [ ! -e "$library" ]; then
        step "fetching UCX ($UCX_PACKAGE)"
        if python3 -m pip download -q --no-deps --only-binary=:all: --disable-pip-version-check --dest "$folder/wheel" \
            "$UCX_PACKAGE" >"$folder/pip.log" 2>&1; then
            python3 -m zipfile -e "$folder"/wheel/libucx_cu12-*.whl "$folder/ucx"
        else
            lacks ucx_rows_wheel "'pip download $UCX_PACKAGE' failed: $(tail -n 1 "$folder/pip.log")"
        fi
    fi
}

build_all() {
    step "building reclane"
    scripts/install.sh "$folder/prefix" >"$folder/install.log" 2>&1 ||
        { tail -n 20 "$folder/install.log"; die "reclane cannot be built"; }
    compile reclane_rows $sources/reclane_rows.c -I"$folder/prefix/include" -L"$folder/prefix/lib" -lreclane \
        -Wl,-rpath,"$folder/prefix/lib"
    step "building the peers"
    [ -e "$folder/missing/redis_rows" ] || compile redis_rows $sources/redis_rows.c
    [ -e "$folder/missing/ucx_rows_debian" ] || compile ucx_rows_debian $sources/ucx_rows.c -lucp -lucs
    local wheel=$folder/ucx/libucx
    [ ! -d "$wheel" ] || compile ucx_rows_wheel $sources/ucx_rows.c -I"$wheel/include" -L"$wheel/lib" -lucp -lucs -lucm -luct \
        -Wl,-rpath,"$wheel/lib"
    # The peers' crates are theirs alone: a workspace of its own, with its own lock file.
    if CARGO_TARGET_DIR="$folder/cargo" cargo build --release --locked --manifest-path $sources/Cargo.toml \
        >"$folder/cargo.log" 2>&1; then
        cp "$folder/cargo/release/peers" "$folder/bin/peers"
    else
        lacks peers "its crates cannot be built: $(grep -m 1 -E '^error' "$folder/cargo.log" || tail -n 1 "$folder/cargo.log")"
    fi
}

install_all
build_all
step "measuring: $rounds rounds of $milliseconds ms for each cell"
[ "$curves" = no ] || pass+=(--curves)
python3 -B $sources/run.py --work "$folder" --out "$folder/results.json" --rounds "$rounds" --ms "$milliseconds" \
    ${pass[@]+"${pass[@]}"}
report=(python3 -B "$sources/report.py" "$folder/results.json" --html "$folder/report.html")
[ "$write" = no ] || report+=(--markdown docs/performance.md)
[ "$json" = no ] || report+=(--json)
"${report[@]}" >&3
ok "plots: $folder/report.html"

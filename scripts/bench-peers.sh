#!/usr/bin/env bash
# Measures reclane beside what somebody would take instead, doing the same work on the same two cores in interleaved
# rounds: UCX (Debian's, and the newer one of the Python package libucx-cu12), libfabric, iceoryx2, gRPC (its C++ library
# and tonic), Redis, and the transfer engines NIXL and Mooncake. What is missing is installed by name; a peer that cannot
# be had or run is named in the report, with the reason.
#
# usage: scripts/bench-peers.sh [--quick] [--json] [--write] [--no-curves] [--minutes N] [--rounds N] [--ms N]
#                               [--only NAME] [--peers NAME,...] [--prefix DIR]
#   --quick      two short rounds without curves, some three minutes; the report says that it is one
#   --json       prints {"workloads": [{workload, depth, reclane, best_peer, best_peer_name, ratio, goal}]} and no more
#   --write      puts the report into docs/performance.md, and the plots into docs/performance.html
#   --minutes N  how long measuring may take: 11 (3 with --quick); building comes before it. Rounds have three fifths of
#                it and curves the rest; what there is no time for is named in the report
#   --only NAME  only workloads whose name contains NAME, such as get_1x64, or ends with it, such as get_1x64_d1$
#   --peers      only peers whose name contains one of these; nothing is installed or built for the others. Names:
#                reclane, reclane_crc, ucx1.22_am_shm, ucx1.13_put_tcp, iceoryx2, grpc_cpp_uds, redis, nixl, mooncake, ...
#   --prefix DIR an installed reclane (scripts/install.sh DIR), as one of another commit, instead of building this one
# The plots are target/bench-peers/report.html, the raw figures results.json beside it. Control-C while it measures ends
# it with a report of what was measured until then.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh

UCX_WHEEL=libucx-cu12==1.22.0
NIXL_WHEELS=(nixl-cu12==1.5.1 numpy)
MOONCAKE_WHEELS=(mooncake-transfer-engine-non-cuda==0.3.13.post1)
target=${CARGO_TARGET_DIR:-$root/target}
folder=$target/bench-peers
sources=$root/benches/peers

rounds=5 milliseconds=25 curves=yes json=no write=no quick=no minutes='' chosen_peers='' prefix='' pass=()
# value_of OPTION VALUE...: an option's value, which must be there.
value_of() { [ $# -ge 2 ] || die "$1 needs a value"; printf '%s\n' "$2"; }
is_number() { [[ $1 =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "$2 needs a number and got '$1'"; }
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=yes rounds=2 milliseconds=15 curves=no ;;
        --json) json=yes ;;
        --write) write=yes ;;
        --no-curves) curves=no ;;
        --minutes) minutes=$(value_of "$@"); is_number "$minutes" "$1"; shift ;;
        --rounds) rounds=$(value_of "$@"); is_number "$rounds" "$1"; shift ;;
        --ms) milliseconds=$(value_of "$@"); is_number "$milliseconds" "$1"; shift ;;
        --only) pass+=("$1" "$(value_of "$@")"); shift ;;
        --peers) chosen_peers=$(value_of "$@"); pass+=("$1" "$chosen_peers"); shift ;;
        --prefix) prefix=$(realpath "$(value_of "$@")"); shift ;;
        --help) sed -n '2,/^set /{/^#/p}' "$0"; exit 0 ;;
        *) sed -n '2,/^set /{/^#/p}' "$0" >&2; exit 2 ;;
    esac
    shift
done
[ -n "$minutes" ] || { [ "$quick" = yes ] && minutes=3 || minutes=11; }
# Only the JSON goes to standard output then.
exec 3>&1
[ "$json" = no ] || exec 1>&2

[ "$(uname -m)" = x86_64 ] || die "the clock of this bench is that of x86-64"
[ "$(nproc)" -ge 2 ] || die "two cores are needed, one for each side"

mkdir -p "$folder/bin" "$folder/missing"
rm -f "$folder/missing/"*
# One at a time: two would measure each other.
exec 9>"$folder/lock"
flock -n 9 || die "another scripts/bench-peers.sh is at work in $folder"

# is_wanted NAME...: whether one of these peers is to be measured. A wanted word is a part of a peer's name.
is_wanted() {
    [ -n "$chosen_peers" ] || return 0
    local name word words
    IFS=, read -ra words <<<"$chosen_peers"
    for name in "$@"; do
        for word in "${words[@]}"; do
            case $name in *"$word"*) return 0 ;; esac
        done
    done
    return 1
}
ucx_names() { printf '%s ' "ucx$1"_{am,put}_{shm,shm-eager,tcp,shm_peererr}; }

# lacks PROGRAM REASON...: why a peer's program is not there, for the report.
lacks() {
    local program=$1
    shift
    printf '%s\n' "$*" >"$folder/missing/$program"
    rm -f "$folder/bin/$program"
    fail "$program: $*"
}
is_lacking() { [ -e "$folder/missing/$1" ]; }

# compile PROGRAM COMMAND...: runs a compiler with -o for benches/peers' PROGRAM.
compile() {
    local program=$1 log=$folder/$1.log
    shift
    if ! "$@" -o "$folder/bin/$program" >"$log" 2>&1; then
        lacks "$program" "it cannot be compiled: $(grep -m 1 -E 'error|undefined' "$log" || tail -n 1 "$log")"
    fi
}

# fetch_wheels PROGRAM FOLDER REQUIREMENT...: Python packages into a folder of ours; nothing of the system changes.
fetch_wheels() {
    local program=$1 place=$2
    shift 2
    [ "$(cat "$place/.complete" 2>/dev/null)" != "$*" ] || return 0
    step "fetching $*"
    rm -rf "$place"
    if python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary=:all: \
        --target "$place" "$@" >"$folder/pip-$program.log" 2>&1; then
        printf '%s\n' "$*" >"$place/.complete"
    else
        lacks "$program" "'pip install $*' failed: $(grep -m 1 ERROR "$folder/pip-$program.log" || tail -n 1 "$folder/pip-$program.log")"
    fi
}

# wheel_program PROGRAM ENGINE FOLDER: a program that runs wheel_rows.py over the packages of a folder.
wheel_program() {
    is_lacking "$1" && return
    printf '#!/bin/sh\nPYTHONPATH="%s" exec python3 -B "%s/wheel_rows.py" %s "$@"\n' "$3" "$sources" "$2" >"$folder/bin/$1"
    chmod +x "$folder/bin/$1"
}

# packages PROGRAM PACKAGE...: Debian packages of a peer.
packages() {
    local program=$1
    shift
    try_packages "$@" || lacks "$program" "the package ${missing_packages[*]} could not be installed"
}

install_all() {
    need_packages gcc g++ cmake util-linux python3
    need_cargo
    if is_wanted redis; then packages redis_rows redis-server; fi
    if is_wanted libfabric_shm libfabric_tcp; then packages fi_pingpong libfabric-bin; fi
    if is_wanted grpc_cpp_uds grpc_cpp_tcp; then packages grpc_rows libgrpc++-dev; fi
    # shellcheck disable=SC2046 # a list of names
    if is_wanted $(ucx_names 1.13); then packages ucx_rows_debian libucx-dev ucx-utils; fi
    # shellcheck disable=SC2046
    if is_wanted $(ucx_names 1.22); then need_pip; fetch_wheels ucx_rows_wheel "$folder/ucx" "$UCX_WHEEL"; fi
    if is_wanted nixl nixl_none; then need_pip; fetch_wheels nixl_rows "$folder/nixl" "${NIXL_WHEELS[@]}"; fi
    if is_wanted mooncake; then
        need_pip
        packages mooncake_rows libibverbs1 libnuma1 libcurl4
        is_lacking mooncake_rows || fetch_wheels mooncake_rows "$folder/mooncake" "${MOONCAKE_WHEELS[@]}"
    fi
}

build_reclane() {
    if [ -z "$prefix" ]; then
        prefix=$folder/prefix
        step "building reclane"
        scripts/install.sh "$prefix" >"$folder/install.log" 2>&1 ||
            { tail -n 20 "$folder/install.log"; die "reclane cannot be built"; }
    fi
    [ -e "$prefix/lib/libreclane.so" ] || die "$prefix holds no installed reclane (lib/libreclane.so)"
    compile reclane_rows gcc -O3 -march=native "$sources/reclane_rows.c" -I"$prefix/include" \
        -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -lreclane -lm
    is_lacking reclane_rows && die "reclane's own program cannot be built"
    return 0
}

build_grpc() {
    local log=$folder/grpc_calls.log
    # It takes longer than all others together, and does not change.
    if { [ "$folder/grpc_calls.o" -nt "$sources/grpc_calls.cc" ] ||
        g++ -std=c++17 -O3 -c "$sources/grpc_calls.cc" -o "$folder/grpc_calls.o" >"$log" 2>&1; } &&
        gcc -O3 -march=native -c "$sources/grpc_rows.c" -o "$folder/grpc_rows.o" >>"$log" 2>&1; then
        # gRPC's own libraries need others of theirs, which its package links by name.
        compile grpc_rows g++ "$folder/grpc_rows.o" "$folder/grpc_calls.o" -Wl,--copy-dt-needed-entries -lgrpc++ -lgrpc -lgpr -lm
    else
        lacks grpc_rows "it cannot be compiled: $(grep -m 1 error "$log" || tail -n 1 "$log")"
    fi
}

build_peers() {
    step "building the peers"
    local wheel=$folder/ucx/libucx
    if is_wanted redis && ! is_lacking redis_rows; then compile redis_rows gcc -O3 -march=native "$sources/redis_rows.c" -lm; fi
    # shellcheck disable=SC2046
    if is_wanted $(ucx_names 1.13) && ! is_lacking ucx_rows_debian; then
        compile ucx_rows_debian gcc -O3 -march=native "$sources/ucx_rows.c" -lucp -lucs -lm
    fi
    # shellcheck disable=SC2046
    if is_wanted $(ucx_names 1.22) && ! is_lacking ucx_rows_wheel; then
        compile ucx_rows_wheel gcc -O3 -march=native "$sources/ucx_rows.c" -I"$wheel/include" -L"$wheel/lib" \
            -Wl,-rpath,"$wheel/lib" -lucp -lucs -lucm -luct -lm
    fi
    if is_wanted grpc_cpp_uds grpc_cpp_tcp && ! is_lacking grpc_rows; then build_grpc; fi
    if is_wanted nixl nixl_none; then wheel_program nixl_rows nixl "$folder/nixl"; fi
    if is_wanted mooncake; then wheel_program mooncake_rows mooncake "$folder/mooncake"; fi
    is_wanted iceoryx2 grpc_uds grpc_tcp || return 0
    # The peers' crates are theirs alone: a workspace of its own, with its own lock file.
    if CARGO_TARGET_DIR="$folder/cargo" cargo build --release --locked --manifest-path "$sources/Cargo.toml" \
        >"$folder/cargo.log" 2>&1; then
        cp "$folder/cargo/release/peers" "$folder/bin/peers"
    else
        lacks peers "its crates cannot be built: $(grep -m 1 -E '^error' "$folder/cargo.log" || tail -n 1 "$folder/cargo.log")"
    fi
}

install_all
build_reclane
build_peers
step "measuring for $minutes minutes at most: $rounds rounds of $milliseconds ms for each cell"
[ "$curves" = no ] || pass+=(--curves)
[ "$quick" = no ] || pass+=(--quick)
rm -f "$folder/results.json"
# Control-C ends the measuring, not the report.
trap : INT
python3 -B "$sources/run.py" --work "$folder" --out "$folder/results.json" --rounds "$rounds" --ms "$milliseconds" \
    --minutes "$minutes" ${pass[@]+"${pass[@]}"} || [ -e "$folder/results.json" ] || die "nothing was measured"
trap - INT
report=(python3 -B "$sources/report.py" "$folder/results.json" --html "$folder/report.html")
[ "$write" = no ] || report+=(--markdown docs/performance.md)
[ "$json" = no ] || report+=(--json)
"${report[@]}" >&3
[ "$write" = no ] || cp "$folder/report.html" docs/performance.html
ok "plots: $folder/report.html"

#!/usr/bin/env bash
# Proves the verbs provider on real drivers: the contract of the fabric, what drivers do at the edges, the parameter
# server over one and two devices, the C tests, a short demo, the bench beside perftest.
#
# On a machine with RDMA devices it runs on them (RECLANE_TEST_DEVICES names which; two active ones are taken
# otherwise). On any other one it runs in guests with Soft-RoCE (scripts/verbs-vm.sh), once per kernel. The last line is
# "N passed, N failed"; when no device could be had at all, that is a failure.
#
# usage: scripts/test-verbs.sh [--vm] [KERNEL...]     kernels 6.1 and 6.12, both without arguments
#   --vm   in guests, whatever devices there are
# RECLANE_TEST_ON has the options that every deployment of the tests gets: "fabric=verbs", with rdma-mode=ib where the
# ports are InfiniBand; "fabric=verbs rdma-mode=rocev1" for ports that have RoCE v1 alone. RECLANE_TEST_PREFIX is an
# installed reclane to take; one is installed otherwise.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh

target=${CARGO_TARGET_DIR:-$root/target}
prefix=${RECLANE_TEST_PREFIX:-$target/test-prefix}
ctests=$target/verbs-ctests
examples=$target/test-examples
seconds_max=1500
in_guests=auto kernels=()
for argument in "$@"; do
    case $argument in
        --vm) in_guests=yes ;;
        6.1 | 6.12) kernels+=("$argument") ;;
        *) sed -n '9,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
[ ${#kernels[@]} -gt 0 ] || kernels=(6.1 6.12)

need_packages "${BUILD_PACKAGES[@]}"
need_cargo
# Without perftest the bench has no yardstick; everything else runs.
try_packages perftest iproute2 rdma-core ibverbs-providers ||
    printf 'skipped: ib_write_lat and ib_write_bw beside the bench: perftest cannot be had\n'

# tests_of KIND: builds a test program and prints its path.
tests_of() {
    local log=$target/verbs-build.log
    if ! cargo test --locked --features device-tests "$@" --no-run >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        return 1
    fi
    sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$log" | tail -n 1
}

step "building the tests"
mkdir -p "$target"
library_tests=$(tests_of --lib) || { printf '0 passed, 1 failed\n'; exit 1; }
ps_tests=$(tests_of --test verbs) || { printf '0 passed, 1 failed\n'; exit 1; }
# Programs of whole deployments: on devices they are what they are on shared memory.
whole=()
for name in recovery checkpoint ranks; do
    program=$(tests_of --test "$name") || { printf '0 passed, 1 failed\n'; exit 1; }
    whole+=("$name=$program")
done
if [ -z "${RECLANE_TEST_PREFIX:-}" ] || [ ! -f "$prefix/lib/libreclane.so" ]; then
    step "installing the library to $prefix"
    scripts/install.sh "$prefix" >"$target/verbs-install.log" 2>&1 || { tail -n 40 "$target/verbs-install.log"; die "the library does not build"; }
fi
{
    cmake -S ctests -B "$ctests" -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$ctests" --parallel "$(nproc)" --target \
            round_trips store_c store_cxx cycles ranks events metrics processes
} >"$target/verbs-ctests.log" 2>&1 || { tail -n 40 "$target/verbs-ctests.log"; die "the C tests do not build"; }
{
    cmake -S examples -B "$examples" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$examples" --parallel "$(nproc)"
} >"$target/verbs-examples.log" 2>&1 || { tail -n 40 "$target/verbs-examples.log"; die "the examples do not build"; }

# active_devices: two devices with an active port, or one, with a comma between.
active_devices() {
    local folder names=()
    for folder in /sys/class/infiniband/*; do
        grep -qs ACTIVE "$folder/ports/1/state" && names+=("${folder##*/}")
    done
    [ ${#names[@]} -gt 0 ] || return 1
    [ ${#names[@]} -eq 1 ] && printf '%s\n' "${names[0]}" || printf '%s,%s\n' "${names[0]}" "${names[${#names[@]} - 1]}"
}

passed=0 failed=0 had_devices=no
steps=(bash scripts/lib/verbs-steps.sh "$library_tests" "$ps_tests" "$prefix" "$ctests" "$examples" "${whole[@]}")

# count LOG STATUS: adds the sum of the steps' last line; steps that came to none failed.
count() {
    local sum
    sum=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$1" | tail -n 1)
    if [ -z "$sum" ]; then
        fail "no sum came out of it (exit status $2)"
        failed=$((failed + 1))
        return
    fi
    passed=$((passed + ${sum%% *}))
    sum=${sum#*, }
    failed=$((failed + ${sum%% *}))
    [ "$2" -eq 0 ] || [ "${sum%% *}" -gt 0 ] || failed=$((failed + 1))
}

run_steps() {
    local log=$1 status=0
    shift
    had_devices=yes
    "$@" </dev/null | tee "$log" | grep -vE '^[0-9]+ passed, [0-9]+ failed$'
    status=${PIPESTATUS[0]}
    count "$log" "$status"
}

# Without any device: a stand-in for libibverbs, for faults and link layers that the devices below do not have.
step "on a stand-in for libibverbs"
stand_in_log=$target/verbs-stand-in.log stand_in_status=0
sh ctests/stand_in/run.sh "$library_tests" "$target/stand-in" "$ps_tests" >"$stand_in_log" 2>&1 </dev/null || stand_in_status=$?
stood=$(grep -oE '^test result: .* [0-9]+ passed' "$stand_in_log" | awk '{ n += $(NF - 1) } END { print n + 0 }')
passed=$((passed + stood))
if [ "$stand_in_status" -eq 0 ] && [ "$stood" -gt 0 ]; then
    printf '== %-24s %d passed\n' stand-in "$stood"
else
    failed=$((failed + 1))
    printf '== %-24s FAILED with exit status %d\n' stand-in "$stand_in_status"
    tail -n 40 "$stand_in_log"
fi

if [ "$in_guests" = auto ] && { [ -n "${RECLANE_TEST_DEVICES:-}" ] || RECLANE_TEST_DEVICES=$(active_devices); }; then
    export RECLANE_TEST_DEVICES
    grep -qs InfiniBand "/sys/class/infiniband/${RECLANE_TEST_DEVICES%%,*}/ports/1/link_layer" &&
        export RECLANE_TEST_ON=${RECLANE_TEST_ON:-fabric=verbs rdma-mode=ib}
    step "on this machine's devices $RECLANE_TEST_DEVICES"
    run_steps "$target/verbs-steps.log" "${steps[@]}"
else
    export RECLANE_TEST_DEVICES=rxe0,rxe1
    for kernel in "${kernels[@]}"; do
        step "in a guest with kernel $kernel"
        if ! scripts/verbs-vm.sh --install --kernel "$kernel"; then
            # The older kernel is this system's own; the newer one is an offer that not every mirror has.
            if [ "$kernel" = 6.12 ]; then
                printf 'skipped: verbs on kernel 6.12: its package cannot be had\n'
            else
                failed=$((failed + 1))
            fi
            continue
        fi
        run_steps "$target/verbs-steps-$kernel.log" scripts/verbs-vm.sh --kernel "$kernel" --seconds "$seconds_max" -- "${steps[@]}"
    done
fi
if [ "$had_devices" = no ]; then
    fail "none of it ran on a device"
    failed=$((failed + 1))
fi
printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]

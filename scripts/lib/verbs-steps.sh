#!/usr/bin/env bash
# What scripts/test-verbs.sh runs on one machine with RDMA devices, be it this one or a guest: everything is built
# already. Ends with "N passed, N failed"; what cannot run here says so on a line "skipped: why".
#
# usage: scripts/lib/verbs-steps.sh LIBRARY-TESTS PS-TESTS PREFIX CTESTS EXAMPLES recovery=PROGRAM checkpoint=... ranks=...
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root" || exit 1
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh
library_tests=$1 ps_tests=$2 prefix=$3 ctests=$4 examples=$5
shift 5
declare -A whole=()
for given in "$@"; do
    whole[${given%%=*}]=${given#*=}
done
passed=0 failed=0
# The machine's own loader paths: the C programs know their library by rpath.
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

: "${RECLANE_TEST_DEVICES:?names the devices, with commas between}"
export RECLANE_TEST_DEVICES RECLANE_TEST_ON=${RECLANE_TEST_ON:-fabric=verbs}
first=${RECLANE_TEST_DEVICES%%,*} last=${RECLANE_TEST_DEVICES##*,}
if [ "${RECLANE_VM:-}" = 1 ]; then
    export RECLANE_TEST_LINK_DOWN='ip link set ep0 down; ip link set ep1 down'
    export RECLANE_TEST_LINK_UP='sh /run/wire-up'
    # A guest without KVM is some twenty times slower than the machine it runs on.
    export RECLANE_TEST_REQUESTS=${RECLANE_TEST_REQUESTS:-100000}
fi

# part NAME SECONDS COMMAND...: one part; its tests are counted by the closing lines of cargo's and our own runners. A
# part that says nothing of the kind counts as one test; one that says that it ran none has failed.
part() {
    local name=$1 limit=$2 log=$logs/$1.log status=0 started=$SECONDS good bad
    shift 2
    timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null || status=$?
    good=$(grep -hE '^(test result: .*|[0-9]+ passed, [0-9]+ failed.*)$' "$log" | grep -oE '[0-9]+ passed' | awk '{ n += $1 } END { print n + 0 }')
    bad=$(grep -hE '^(test result: .*|[0-9]+ passed, [0-9]+ failed.*)$' "$log" | grep -oE '[0-9]+ failed' | awk '{ n += $1 } END { print n + 0 }')
    if [ $((status + good + bad)) -eq 0 ] && grep -qE '^(test result: |[0-9]+ passed, )' "$log"; then
        printf 'no test has this name\n' >>"$log"
        status=1
    fi
    if [ "$status" -eq 0 ]; then
        [ $((good + bad)) -gt 0 ] || good=1
        printf '== %-24s %d passed, %d s\n' "$name" "$good" $((SECONDS - started))
    else
        [ "$bad" -gt 0 ] || bad=1
        printf '== %-24s FAILED with exit status %d after %d s\n' "$name" "$status" $((SECONDS - started))
        grep -E 'FAILED|panicked at|left:|right:| is not in: ' "$log" | head -n 30 | sed 's/^/      /'
        tail -n 40 "$log" | sed 's/^/      /'
    fi
    # What tests measure or leave out.
    grep -hE '^(skipped: |RETRY_EXC after|both ends in ERR|the request failed|the device promises|[0-9]+ GETs with|[0-9]+ poll threads|[0-9]+ lanes: |[0-9]+ scans)' "$log" | sort -u
    passed=$((passed + good)) failed=$((failed + bad))
}

# The C programs take options for every deployment of theirs from here.
c_options="$RECLANE_TEST_ON rdma-device=$first"
demo() {
    local flags=() option port pids=() shard status=0
    port=$(free_port)
    for option in $RECLANE_TEST_ON; do
        flags+=("--${option//-/_}")
    done
    flags+=(--rdma_device="$first" --num_server_processes=2 --rdma_control_plane_port="$port"
        --rdma_namespace="verbs-demo-$$" --qps_per_client_per_shard=4 --rdma_control_plane_timeout_ms=120000)
    for shard in 0 1; do
        "$examples/reclane_ps_server" --global_id="$shard" "${flags[@]}" >"$logs/shard-$shard.log" 2>&1 &
        pids+=($!)
    done
    "$examples/reclane_train_mf" --data="$1" --epochs=1 --max_rmse=1.1 --global_id=2 "${flags[@]}" --rdma_device="$last" || status=$?
    kill "${pids[@]}" 2>/dev/null
    wait
    [ "$status" -eq 0 ] || cat "$logs"/shard-*.log
    return "$status"
}

printf '%s, devices %s\n' "$(uname -r)" "$RECLANE_TEST_DEVICES"
part contract 420 "$library_tests" fabric::verbs::tests --skip alone --test-threads=2 --show-output
part alone 240 "$library_tests" fabric::verbs::tests::alone --test-threads=1 --show-output
part serving 120 "$library_tests" engine::server::slow_client --show-output
part ps 600 "$ps_tests" --skip memory --test-threads=2 --show-output
part memory 240 "$ps_tests" memory --show-output
# Whole deployments, as on shared memory: lanes that are needed, break and come back, shards that are killed, stopped and
# started again, checkpoints, ranks. In a guest those that do not take long there, on one kernel.
if [ "${RECLANE_VM:-}" != 1 ]; then
    part recovery 900 "${whole[recovery]}" --test-threads=2
    part checkpoint 900 "${whole[checkpoint]}" --test-threads=2
elif [[ $(uname -r) == 6.1.* ]]; then
    part recovery 400 "${whole[recovery]}" growth::a_ broken::a_buffer restarts::shard_1 stops::a_stopped_shard --test-threads=1
    part checkpoint 240 "${whole[checkpoint]}" restores::all_are_killed --test-threads=1
else
    printf 'skipped: whole deployments on kernel %s: they run on 6.1\n' "$(uname -r)"
fi
part ranks 120 "${whole[ranks]}" checkpoints::checkpoints_come checkpoints::what_has deaths::a_barrier --test-threads=1
# Options from the environment have the library's prefix, and one that it does not know is refused.
bare=()
for name in $(compgen -e RECLANE_); do
    bare+=(-u "$name")
done
if [ -x "$ctests/round_trips" ]; then
    programs=(round_trips store_c store_cxx events metrics)
    if [ "${RECLANE_VM:-}" = 1 ]; then
        # They kill rank 0 or shard 0, and the control plane with it: there neither that nor a device tells of its end.
        printf 'skipped: the C programs ranks and processes: Soft-RoCE tries a dead peer for ever\n'
    else
        programs+=(ranks processes)
    fi
    for program in "${programs[@]}"; do
        part "c-$program" 120 env "${bare[@]}" RECLANE_CTEST_OPTIONS="$c_options" "$ctests/$program"
    done
    part c-cycles 120 env "${bare[@]}" RECLANE_CTEST_OPTIONS="$c_options" "$ctests/cycles" 5
else
    printf 'skipped: the C tests on verbs: %s has no programs; build them with ctests/run.sh PREFIX DIRECTORY\n' "$ctests"
fi
data=${CARGO_TARGET_DIR:-$root/target}/dataset/ml-100k.inter
if [ -x "$examples/reclane_train_mf" ] && [ -s "$data" ]; then
    export -f demo
    export examples logs first last
    part demo 240 bash -c '. scripts/lib/setup.sh; demo "$1"' demo "$data"
else
    printf 'skipped: the demo on verbs: no trainer in %s or no data set; scripts/demo.sh --short brings both\n' "$examples"
fi
# figure NAME: a number of the bench's last line.
figure() {
    grep -oE "\"$1\":[0-9.]+" "$logs/bench.log" | cut -d: -f2
}

# judge NAME '<='|'=' VALUE: one that could not be measured is told.
judge() {
    local name=$1 kind=$2 bound=$3 value
    value=$(figure "$name")
    if [ -z "$value" ]; then
        printf 'skipped: %s: it could not be measured here\n' "$name"
    elif awk -v v="$value" -v w="$bound" -v k="$kind" 'BEGIN { exit !(k == "=" ? v == w : v <= w) }'; then
        passed=$((passed + 1))
        printf '== %-24s %s %s %s: %s\n' "$name" "$value" "$kind" "$bound" "in order"
    else
        failed=$((failed + 1))
        printf '== %-24s FAILED: %s, wanted %s %s\n' "$name" "$value" "$kind" "$bound"
    fi
}

if [ -x "$prefix/bin/reclane" ]; then
    sets=() flags=("--rdma_device=$first")
    for option in $RECLANE_TEST_ON; do
        flags+=("--${option//-/_}")
        [ "${option%%=*}" = fabric ] || sets+=(--set "$option")
    done
    part bench 240 "$prefix/bin/reclane" bench --fabric verbs --json "${sets[@]}"
    grep -E '^\{' "$logs/bench.log"
    # What the devices must show, whatever their times are worth: a GET beside two writes of perftest, and how many writes
    # it takes where the last word says all.
    judge ratio_verbs_get_1x64_d1_to_two_writes '<=' 1.5
    judge verbs_writes_per_get = 2
    # A request with keys behind its header is two writes, an answer of any length one.
    judge verbs_writes_per_get_8x64 = 3
    # 0: all is well; 1: warnings, as about the limits of a guest.
    part doctor 120 bash -c '"$0" doctor --json -- "${@:2}" >"$1" || [ $? -eq 1 ]' \
        "$prefix/bin/reclane" "$logs/doctor.json" "${flags[@]}"
    grep -qE '"verbs_write_p50_ns": *[0-9]+' "$logs/doctor.json" ||
        { failed=$((failed + 1)) && printf '== %-24s FAILED: it measured nothing\n' doctor && cat "$logs/doctor.json"; }
else
    printf 'skipped: the bench and the doctor on verbs: there is no reclane program in %s\n' "$prefix"
fi
printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]

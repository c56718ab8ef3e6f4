#!/usr/bin/env bash
# Runs the built examples against real servers, two shards on shared memory, and what of the `reclane` command belongs to
# them: its options, `launch`, `bench`. Each check is one command that must end as expected; the last line is
# "N passed, N failed".
#
# usage: scripts/test-examples.sh BUILD     the folder into which cmake built the examples
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/lib/setup.sh
. "$root/scripts/lib/setup.sh"
# shellcheck source=scripts/lib/processes.sh
. "$root/scripts/lib/processes.sh"
# shellcheck source=scripts/lib/deployment.sh
. "$root/scripts/lib/deployment.sh"
# shellcheck source=scripts/lib/dataset.sh
. "$root/scripts/lib/dataset.sh"

if [ $# -ne 1 ] || [ ! -x "$1/reclane_ps_server" ]; then
    die "usage: scripts/test-examples.sh BUILD (with the built examples)"
fi
build=$(cd "$1" && pwd)
# The command of the package that the examples were built with: beside its libraries, whatever their directory is called.
package=$(sed -n 's/^reclane_DIR:PATH=//p' "$build/CMakeCache.txt")
prefix=${package%/lib*/cmake/reclane}
reclane=$prefix/bin/reclane
[ -x "$reclane" ] || die "there is no $reclane beside the package $package"
logs=$build/logs
shards=2
passed=0 failed=0
mkdir -p "$logs"

# expect NAME STATUS TEXT COMMAND...: the command ends with this exit status and its output has a line that matches TEXT.
expect() {
    local name=$1 status=$2 text=$3 log=$logs/$1.log found=0
    shift 3
    run_process "$name" "$log" "$@" || found=$?
    if [ "$found" -eq "$status" ] && grep -qE -- "$text" "$log"; then
        passed=$((passed + 1))
        ok "$name"
    else
        failed=$((failed + 1))
        fail "$name: exit status $found, expected $status and a line like '$text'"
        log_tail "$name" "$log"
    fi
}

bench() { expect "$1" "$2" "$3" "$build/reclane_ps_bench" "${deployment[@]}" "${@:4}"; }

number='[0-9]+(\.[0-9]+)?'
op_line() {
    printf 'transport=shm op=%s phase=measure summary rounds=2 iterations=50 batch_keys=32 elapsed_us_mean=%s ' "$1" "$number"
    printf 'elapsed_us_p50=%s elapsed_us_p95=%s elapsed_us_p99=%s ops_per_sec=%s key_ops_per_sec=%s' \
        "$number" "$number" "$number" "$number" "$number"
}
result_line() {
    printf 'PS_BENCHMARK_RESULT phase=run transport=shm mode=%s distribution=%s zipfian_alpha=0.9 threads=%s ' "$1" "$2" "$3"
    printf 'batch_size=32 records=5000 runtime_s=%s batches=[1-9][0-9]* key_ops=[1-9][0-9]* ' "$number"
    printf 'throughput_batches_sec=%s throughput_keys_sec=%s' "$number" "$number"
}

train() {
    expect "$1" "$2" "$3" "$build/reclane_train_mf" "${deployment[@]}" --data="$data/ml-100k.inter" --epochs=2 "${@:4}"
}

watch_exit
data=${CARGO_TARGET_DIR:-$root/target}/dataset
fetch_ml100k "$data"
choose_deployment "$shards" examples
server_flags=(--checkpoint-directory="$logs/checkpoints")
start_servers "$build" "$logs" "$shards"

# What the library takes as an option the programs take as a flag.
options_are_flags() {
    local name count=0 missing=0
    "$build/reclane_ps_server" --help >"$logs/server-help.txt" || true
    for name in $("$reclane" options --json | sed -n 's/^ *"name": "\([a-z0-9-]*\)",*$/\1/p' | tr - _); do
        count=$((count + 1))
        grep -q "^ *-$name " "$logs/server-help.txt" || { echo "no flag for $name"; missing=$((missing + 1)); }
    done
    echo "$count options, $missing without a flag"
    [ "$missing" -eq 0 ] && [ "$count" -gt 80 ]
}
expect options-are-flags 0 '^[0-9]+ options, 0 without a flag' options_are_flags

expect hello-c 0 '.' "$build/hello_c"
expect hello-cpp 0 '.' "$build/hello_cpp"
expect adapter 0 'adapter: [0-9]+ checks hold' "$build/reclane_adapter_round_trip" "${deployment[@]}" --async-depth=4

small=(--rounds=2 --iterations=50 --batch_keys=32 --verify_values)
for op in put update update_flat get mixed; do
    bench "bench-$op" 0 "$(op_line "$op")" --op="$op" "${small[@]}"
done
for op in async_get async_stream; do
    bench "bench-$op" 0 "$(op_line "$op")" --op="$op" --async-depth=8 "${small[@]}"
done
table=(--record_count=5000 --batch_keys=32 --iterations=50 --verify_values --value-size=128)
bench bench-fetch 0 "$(result_line fetch uniform 2)" --workload=micro --thread_num=2 "${table[@]}"
bench bench-zipfian 0 "$(result_line fetch zipfian 1)" --workload=transactions --running_seconds=1 --thread_num=1 \
    --distribution=zipfian --prefetch_depth=4 "${table[@]}"
bench bench-misses 0 "$(result_line fetch uniform 1)" --workload=micro --thread_num=1 --fetch_key_space=20000 "${table[@]}"
bench bench-mixed 0 "$(result_line mixed uniform 2)" --workload=micro --mode=mixed --read_ratio=50 --thread_num=2 \
    "${table[@]}"
bench bench-fetch-insert 0 "$(result_line fetch_insert uniform 2)" --workload=micro --mode=fetch_insert --thread_num=2 \
    "${table[@]}"

bench refuses-depth 1 'async-depth' --op=async_stream --async-depth=33 --qps-per-client-per-shard=16 --slots-per-qp=2
bench refuses-mismatch 1 'value.size differs' --op=get --value-size=64
bench refuses-unknown-flag 1 "unknown command line flag 'slots_per_qq'" --slots_per_qq=1
bench refuses-word 2 "'gett' is none of" --op=gett
bench refuses-number 1 'qps-per-client-per-shard' --qps_per_client_per_shard=many

train trains-pipelined 0 'final tables: equal bit for bit' --pipeline --max_rmse=1.0
train trains-on-threads 0 'final tables: not compared' --pipeline --threads=2 --max_rmse=1.0
train judges-error 1 'remote: held-out RMSE [0-9.]+ is not below 0.5000' --max_rmse=0.5
train refuses-mode 2 "'everywhere' is none of remote, local, both" --mode=everywhere

# The topology of RC from one command: servers, clients, and logs of all of them.
launched() {
    local log client bench="'$build/reclane_ps_bench' --workload=micro --thread_num=2 --record_count=5000 --batch_keys=32"
    "$reclane" launch --server-count 2 --client-count 2 --server-cmd "'$build/reclane_ps_server'" \
        --client-cmd "$bench --iterations=50 --verify_values" --log-dir "$logs/launch" -- \
        --fabric=shm --value-size=128 --poll_spin_iterations=0 --poll_yield_iterations=100 || return
    for client in 0 1; do
        log=$logs/launch/client-$client.log
        grep -qE "$(result_line fetch uniform 2)" "$log" || { echo "no result in $log"; return 1; }
    done
    echo "both clients have a result"
}
expect launch 0 '^both clients have a result' launched

# Some of the figures of `reclane bench`, by name: no time is judged.
benched() {
    local name missing=0 figures=$logs/bench.json
    "$reclane" bench --json --only 1x64 --rounds 1 --table-mib 8 >"$figures" || return
    for name in pingpong_rtt_p50_ns handoff_64_per_s get_1x64_d1_p50_ns get_1x64_d1_p99_ns get_1x64_d32_per_s \
        put_1x64_d1_p50_ns update_1x64_d1_p50_ns idle_server_cpu_fraction ratio_get_1x64_d1_to_pingpong; do
        grep -qE "\"$name\":$number" "$figures" || { echo "no $name"; missing=1; }
    done
    [ "$missing" -eq 0 ] && echo "all figures are there"
}
expect bench-figures 0 '^all figures are there' benched

# A job of its own: four ranks and their control plane.
solve() { expect "$1" "$2" "$3" "$build/reclane_heat" --rdma_namespace="heat-$$" "${@:4}"; }
solve heat 0 'steady=1 the plates are equal bit for bit' --ranks=4
solve heat-uneven 0 'steady=0 the plates are equal bit for bit' --ranks=3 --rows=51 --columns=33 --steps_max=777 --every=7
solve heat-alone 0 'the plates are equal bit for bit' --ranks=1 --rows=64 --columns=64 --steps_max=500
solve heat-killed 3 'rank [013] gives up: .*rank [0-3]' --ranks=4 --die_rank=2 --die_step=120
checkpointed=(--ranks=3 --rows=66 --columns=64 --checkpoint_every=40 --checkpoint_restore=latest)
checkpointed+=(--checkpoint_directory="$logs/heat-checkpoints-$$")
solve heat-dies-later 3 'rank [02] gives up: .*rank [0-2]' "${checkpointed[@]}" --die_rank=1 --die_step=333
solve heat-goes-on 0 'event=resuming step=[1-9]' "${checkpointed[@]}"
rm -rf "$logs/heat-checkpoints-$$"
solve heat-refuses-rows 2 'rows must be' --ranks=4 --rows=5

if end_processes_cleanly; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
fi
printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]

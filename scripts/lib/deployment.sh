# shellcheck shell=bash
# A deployment on this machine: shards on shared memory, served by the example server. Source it after setup.sh and
# processes.sh.

# The flags that servers and clients must agree on, and those of the servers alone.
deployment=() server_flags=()

# choose_deployment SHARDS NAME: sets deployment, with a port and a namespace of its own.
choose_deployment() {
    deployment=(
        --fabric=shm
        --num_server_processes="$1"
        --rdma_control_plane_host=127.0.0.1
        --rdma_control_plane_port="$(free_port)"
        --rdma_namespace="$2-$$"
    )
    # With fewer cores than processes, one that only looks for work keeps the one that has some from running.
    if [ "$(nproc)" -lt $(($1 + 2)) ]; then
        deployment+=(--poll_spin_iterations=0 --poll_yield_iterations=100 --rdma_rc_wait_spin_iterations=0)
    fi
}

# start_servers BUILD LOGS SHARDS: starts them all, then waits until each one serves.
start_servers() {
    local build=$1 logs=$2 shards=$3 shard pids=()
    step "starting $shards shards on shared memory"
    for ((shard = 0; shard < shards; ++shard)); do
        start_process "shard $shard" "$logs/shard-$shard.log" \
            "$build/reclane_ps_server" --global_id="$shard" "${deployment[@]}" ${server_flags[@]+"${server_flags[@]}"}
        pids+=("$process_id")
    done
    for ((shard = 0; shard < shards; ++shard)); do
        wait_for_line "shard $shard" "${pids[$shard]}" "$logs/shard-$shard.log" event=listening 40 || exit 1
        ok "$(grep -F event=listening "$logs/shard-$shard.log" | head -n 1)"
    done
}

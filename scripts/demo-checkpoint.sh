#!/usr/bin/env bash
# Two jobs that are killed again and again, in one command. A two-shard parameter server and the MovieLens trainer, which
# takes a checkpoint every few batches, all get kill -9 at moments that a seed chooses; each time the servers are restored
# from the last good checkpoint, and the trainer goes on where that was made. Then the heat solver on four ranks: of those
# one gets kill -9, or rank 0 with control plane and leader, or all. Exit status 0 means: the tables, and the plate, at the
# end equal those of an undisturbed run bit for bit.
#
# usage: scripts/demo-checkpoint.sh [--kills N] [--seed S] [--epochs N] [--job both|trainer|heat]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh
# shellcheck source=scripts/lib/processes.sh
. scripts/lib/processes.sh
# shellcheck source=scripts/lib/deployment.sh
. scripts/lib/deployment.sh
# shellcheck source=scripts/lib/dataset.sh
. scripts/lib/dataset.sh

usage() { sed -n '8s/^# \{0,1\}//p' "$0"; }

kills=10 seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') epochs=3 job=both
while [ $# -gt 0 ]; do
    case "$1" in
        --kills | --seed | --epochs)
            [ $# -ge 2 ] && [[ "$2" =~ ^[0-9]+$ ]] || { usage >&2; die "$1 needs a number"; }
            printf -v "${1#--}" '%s' "$2"
            shift 2
            ;;
        --job)
            [ $# -ge 2 ] && [[ "$2" =~ ^(both|trainer|heat)$ ]] || { usage >&2; die "--job needs both, trainer or heat"; }
            job=$2
            shift 2
            ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; die "unknown argument '$1'" ;;
    esac
done

# shellcheck source=scripts/lib/demo.sh
. scripts/lib/demo.sh
logs=$target/demo/logs-checkpoint
directory=$target/demo/checkpoints
mkdir -p "$logs"
rm -rf "$directory" "$directory-heat"

# kill_everything: kill -9 of all processes of the deployment, and their bodies buried.
kill_everything() {
    local id
    for id in "${process_ids[@]}"; do
        kill -KILL -- "-$id" 2>/dev/null || true
    done
    for id in "${process_ids[@]}"; do
        wait "$id" 2>/dev/null || true
    done
    process_ids=() process_names=() process_logs=()
}

# life NUMBER: starts servers and trainer; sets trainer_id.
life() {
    # A new port each time; the namespace stays, for it names the checkpoints.
    choose_deployment "$shards" "demo-checkpoint-$1"
    deployment+=(--rdma_namespace=demo-checkpoint)
    # Not the lines of the life before.
    local shard
    for ((shard = 0; shard < shards; ++shard)); do
        : >"$logs/shard-$shard.log"
    done
    server_flags=(--checkpoint_directory="$directory" --checkpoint_restore=latest --log_level=info)
    start_servers "$build" "$logs" "$shards"
    start_process trainer "$logs/trainer-$1.log" \
        "$build/reclane_train_mf" --data="$target/dataset/ml-100k.inter" --epochs="$epochs" --max_rmse=0.97 \
        --checkpoint_every=20 --resume_from="$directory" --global_id="$shards" "${deployment[@]}"
    trainer_id=$process_id
}

# pause_for MS: a moment that the seed has chosen.
pause_for() {
    sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"
}

# kill_trainers: the trainer and its servers, killed and restored, and then left to the end.
kill_trainers() {
    local done_kills=0 status=0 moment shard started=$SECONDS
    step "seed $seed, $kills kills of everybody in a training"
    while [ "$done_kills" -lt "$kills" ]; do
        life "$done_kills"
        # Between 0.05 s and 3 s from the trainer's start on.
        moment=$((50 + RANDOM % 2950))
        pause_for "$moment"
        kill_everything
        done_kills=$((done_kills + 1))
        ok "kill $done_kills after $moment ms: $(grep -h 'resuming\|starting' "$logs/trainer-$((done_kills - 1)).log" || echo 'the trainer had not begun')"
    done
    life last
    wait "$trainer_id" || status=$?
    cat "$logs/trainer-last.log"
    if [ "$status" -ne 0 ]; then
        for ((shard = 0; shard < shards; ++shard)); do
            log_tail "shard $shard" "$logs/shard-$shard.log"
        done
        die "the trainer failed with exit status $status; seed $seed"
    fi
    kill_everything
    "$prefix/bin/reclane" checkpoint list "$directory"
    step "seed $seed: $done_kills kills, tables equal to an undisturbed training, in $((SECONDS - started)) s (without building)"
}

# heat_life NUMBER: starts the ranks; sets heat_ids.
heat_life() {
    local rank port flags
    port=$(free_port)
    flags=(--ranks="$ranks" --fabric=shm --rdma_control_plane_host=127.0.0.1 --rdma_control_plane_port="$port"
        --rdma_namespace=demo-heat --rows=322 --columns=320 --change=2e-3 --every=50 --checkpoint_every=100
        --checkpoint_directory="$directory-heat" --checkpoint_restore=latest --poll_spin_iterations=0)
    heat_ids=()
    for ((rank = 0; rank < ranks; ++rank)); do
        start_process "rank $rank" "$logs/heat-$1-$rank.log" "$build/reclane_heat" --rank="$rank" "${flags[@]}"
        heat_ids+=("$process_id")
    done
}

# kill_heat: the solver, of which one rank, rank 0 or all are killed, and then left to the end.
kill_heat() {
    local done_kills=0 status=0 moment victim rank what started=$SECONDS
    step "seed $seed, $kills kills of one, of rank 0 or of all ranks of the heat solver"
    while [ "$done_kills" -lt "$kills" ]; do
        heat_life "$done_kills"
        moment=$((50 + RANDOM % 2950)) victim=$((RANDOM % 3))
        pause_for "$moment"
        case "$victim" in
            0) what='all ranks' ;;
            1) what='rank 0' rank=0 ;;
            *) rank=$((1 + RANDOM % (ranks - 1))) what="rank $rank" ;;
        esac
        if [ "$victim" -ne 0 ]; then
            kill -KILL -- "-${heat_ids[$rank]}" 2>/dev/null || true
            # Once all have met, the others notice by themselves, and give up. Without rank 0 each one's last lane takes its
            # whole timeout: whoever starts jobs ends them then.
            if [ "$victim" -ne 1 ] && grep -qs 'event=starting\|event=resuming' "$logs/heat-$done_kills-0.log"; then
                for process_id in "${heat_ids[@]}"; do
                    wait_for_end "$process_id" 90 ||
                        die "a rank lives on after $what was killed; seed $seed, kill $done_kills"
                done
            fi
        fi
        kill_everything
        done_kills=$((done_kills + 1))
        ok "kill $done_kills of $what after $moment ms: $(grep -ho 'event=\(resuming\|starting\).*' \
            "$logs/heat-$((done_kills - 1))-0.log" || echo 'it had not begun')"
    done
    heat_life last
    for process_id in "${heat_ids[@]}"; do
        wait "$process_id" || status=$?
    done
    cat "$logs/heat-last-0.log"
    if [ "$status" -ne 0 ]; then
        for ((rank = 1; rank < ranks; ++rank)); do
            log_tail "rank $rank" "$logs/heat-last-$rank.log"
        done
        die "the solver failed with exit status $status; seed $seed"
    fi
    kill_everything
    "$prefix/bin/reclane" checkpoint list "$directory-heat"
    step "seed $seed: $done_kills kills, the plate equal to an undisturbed solution, in $((SECONDS - started)) s"
}

# wait_for_end PID SECONDS: until the process has ended.
wait_for_end() {
    local deadline=$((SECONDS + $2))
    while is_running "$1"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.05
    done
}

ranks=4
watch_exit
need_packages "${BUILD_PACKAGES[@]}"
need_cargo
build_everything
RANDOM=$((seed % 32768))
if [ "$job" != heat ]; then
    fetch_ml100k "$target/dataset"
    kill_trainers
fi
if [ "$job" != trainer ]; then
    kill_heat
fi

#!/usr/bin/env bash
# A training that is killed again and again, in one command: a two-shard parameter server and the MovieLens trainer, which
# takes a checkpoint every few batches, all get kill -9 at moments that a seed chooses. Each time the servers are restored
# from the last good checkpoint, and the trainer goes on where that was made. Exit status 0 means: the tables at the end
# equal those of an undisturbed training bit for bit.
#
# usage: scripts/demo-checkpoint.sh [--kills N] [--seed S] [--epochs N]
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

usage() { sed -n '7s/^# \{0,1\}//p' "$0"; }

kills=10 seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') epochs=3
while [ $# -gt 0 ]; do
    case "$1" in
        --kills | --seed | --epochs)
            [ $# -ge 2 ] && [[ "$2" =~ ^[0-9]+$ ]] || { usage >&2; die "$1 needs a number"; }
            printf -v "${1#--}" '%s' "$2"
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
rm -rf "$directory"

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

watch_exit
need_packages "${BUILD_PACKAGES[@]}"
need_cargo
build_everything
fetch_ml100k "$target/dataset"
RANDOM=$((seed % 32768))
step "seed $seed, $kills kills of everybody"
started=$SECONDS done_kills=0
while [ "$done_kills" -lt "$kills" ]; do
    life "$done_kills"
    # Between 0.05 s and 3 s from the trainer's start on.
    moment=$((50 + RANDOM % 2950))
    sleep "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))"
    kill_everything
    done_kills=$((done_kills + 1))
    ok "kill $done_kills after $moment ms: $(grep -h 'resuming\|starting' "$logs/trainer-$((done_kills - 1)).log" || echo 'the trainer had not begun')"
done
life last
status=0
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

#!/usr/bin/env bash
# The main job in one command: builds and installs the library, builds the C++ examples against it, starts a two-shard
# parameter server on shared memory and trains a model of MovieLens-100K against it, beside the same training without
# any transport. Exit status 0 means: trained, good enough, and both final tables equal bit for bit.
#
# usage: scripts/demo.sh [--short]
#   --short   few epochs, for a quick check that all of it works
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

usage() { sed -n '6,7s/^# \{0,1\}//p' "$0"; }

epochs=20
max_rmse=0.92
case "${1:-}" in
    "") ;;
    --short) epochs=3 max_rmse=0.97 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die "unknown argument '$1'" ;;
esac

# shellcheck source=scripts/lib/demo.sh
. scripts/lib/demo.sh
logs=$target/demo/logs
mkdir -p "$logs"

run_trainer() {
    step "training, $epochs epochs"
    local status=0 shard
    run_process trainer - "$build/reclane_train_mf" --data="$target/dataset/ml-100k.inter" --epochs="$epochs" \
        --max_rmse="$max_rmse" --global_id="$shards" "${deployment[@]}" || status=$?
    if [ "$status" -ne 0 ]; then
        for ((shard = 0; shard < shards; ++shard)); do
            log_tail "shard $shard" "$logs/shard-$shard.log"
        done
        die "the trainer failed with exit status $status"
    fi
}

watch_exit
need_packages "${BUILD_PACKAGES[@]}"
need_cargo
build_everything
fetch_ml100k "$target/dataset"
started=$SECONDS
choose_deployment "$shards" demo
start_servers "$build" "$logs" "$shards"
run_trainer
step "stopping the servers"
end_processes_cleanly || die "a server did not stop cleanly"
for ((shard = 0; shard < shards; ++shard)); do
    ok "$(tail -n 1 "$logs/shard-$shard.log")"
done
step "demo passed in $((SECONDS - started)) s (without building)"

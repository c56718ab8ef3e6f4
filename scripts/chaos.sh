#!/usr/bin/env bash
# Real chaos: MovieLens trainers work against shards while shards, the control plane (shard 0), trainers and lanes are
# killed, stopped, broken and started again at random; at the end every row must be the exact sum of what was
# acknowledged. Trainers keep an account of each UPDATE (examples/chaos). The seed is printed, and gives the same choices
# again. Exit status 0: every seed was right.
#
# usage: scripts/chaos.sh [--seconds N] [--seeds N] [--seed S] [--shards N] [--trainers N] [--fabric shm|verbs]
#                         [--device NAME] [--built DIR] [--data FILE]
#   --seconds N   of faults for each seed (20)
#   --seeds N     seeds in a row, from --seed on (1; the time of day)
#   --fabric      verbs: --device names the device; the commands in RECLANE_TEST_LINK_DOWN and RECLANE_TEST_LINK_UP, if
#                 set, take its link away and bring it back
#   --built DIR   the examples are built there already (built otherwise)
#   --data FILE   the ratings (fetched otherwise)
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
export LC_ALL=C
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh
# shellcheck source=scripts/lib/processes.sh
. scripts/lib/processes.sh
# shellcheck source=scripts/lib/deployment.sh
. scripts/lib/deployment.sh
# shellcheck source=scripts/lib/dataset.sh
. scripts/lib/dataset.sh
# shellcheck source=scripts/lib/demo.sh
. scripts/lib/demo.sh
# shellcheck source=scripts/lib/chaos.sh
. scripts/lib/chaos.sh

usage() { sed -n '7,15s/^# \{0,1\}//p' "$0"; }

seconds=20 seeds=1 seed=$(date +%s) shards=3 trainers=3 fabric=shm device='' built='' data=''
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --seconds | --seeds | --seed | --shards | --trainers | --fabric | --device | --built | --data)
            [ $# -ge 2 ] || { usage >&2; die "$1 needs a value"; }
            printf -v "${1#--}" '%s' "$2"
            shift 2
            ;;
        *) usage >&2; die "unknown argument '$1'" ;;
    esac
done

[ "$shards" -ge 2 ] && [ "$trainers" -ge 1 ] || die "at least 2 shards and 1 trainer are needed"
logs=${RECLANE_CHAOS_LOGS:-$target/chaos}
rm -rf "$logs"
mkdir -p "$logs"
watch_exit
if [ -z "$built" ]; then
    need_packages "${BUILD_PACKAGES[@]}"
    need_cargo
    build_everything
    built=$build
fi
if [ -z "$data" ]; then
    fetch_ml100k "$target/dataset"
    data=$target/dataset/ml-100k.inter
fi

for ((number = 0; number < seeds; ++number)); do
    run_seed $((seed + number))
done
step "$seeds seeds from $seed on: every row is the sum of what was acknowledged"

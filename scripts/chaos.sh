#!/usr/bin/env bash
# Real chaos on shm: clients add to rows while shards, clients, lanes and the control plane are stopped, broken, killed
# and started again at random; at the end of each round every row must hold exactly what was acknowledged.
#
#     scripts/chaos.sh [ROUNDS] [SEED]
#
# Without a seed it takes the time of day. The seed is printed, and gives the same choices again.
set -euo pipefail
cd "$(dirname "$0")/.."
export RECLANE_CHAOS_ROUNDS="${1:-50}"
export RECLANE_CHAOS_SEED="${2:-$(date +%s)}"
echo "scripts/chaos.sh $RECLANE_CHAOS_ROUNDS $RECLANE_CHAOS_SEED gives this run again"
exec cargo test --release --test recovery chaos:: -- --nocapture

# shellcheck shell=bash
# shellcheck disable=SC2154 # the options are set by who sources this
# One seed of scripts/chaos.sh. Sourced behind setup.sh, processes.sh and deployment.sh; shards, trainers, seconds, fabric,
# device, built, data and logs are set by who sources this.

shard_pids=() trainer_pids=() trainer_lives=() folder='' lives=''
declare -A faults

# now_us: since 1970, without another process.
now_us() {
    local time=$EPOCHREALTIME
    printf -v "$1" '%s' "${time/./}"
}

# dice BOUND: sets rolled to a number below it. RANDOM was seeded.
dice() { rolled=$(((RANDOM * 32768 + RANDOM) % $1)); }

nap_ms() { sleep "$(($1 / 1000)).$(printf '%03d' $(($1 % 1000)))"; }

launch_shard() {
    : >"$folder/shard-$1.log"
    start_process "shard $1" "$folder/shard-$1.log" "$built/reclane_ps_server" --global_id="$1" --log_file=stderr \
        --server_rdma_threads=2 "${deployment[@]}" "${server_flags[@]}"
    shard_pids[$1]=$process_id
}

launch_trainer() {
    local life=$((${trainer_lives[$1]:--1} + 1))
    trainer_lives[$1]=$life
    dice 1000000
    start_process "trainer $1" "$folder/trainer-$1-$life.log" "$built/reclane_chaos_trainer" --data="$data" \
        --ledger="$folder/ledger-$1-$life" --order_seed="$rolled" --global_id=$((shards + $1)) --log_file=stderr \
        "${deployment[@]}" "${trainer_flags[@]}"
    trainer_pids[$1]=$process_id
}

# give_up WORDS: what a person needs to find out why.
give_up() {
    local log
    fail "seed $chaos_seed: $*"
    for log in "$folder"/*.log; do
        log_tail "$(basename "$log" .log)" "$log"
    done
    die "scripts/chaos.sh --seed $chaos_seed --seconds $seconds --shards $shards --trainers $trainers --fabric $fabric" \
        "makes these choices again; all logs and accounts: $folder"
}

# forget PID: it has ended, and its number may become another process's.
forget() {
    local i
    for i in "${!process_ids[@]}"; do
        if [ "${process_ids[$i]}" = "$1" ]; then
            unset "process_ids[$i]" "process_names[$i]" "process_logs[$i]"
        fi
    done
    process_ids=("${process_ids[@]}") process_names=("${process_names[@]}") process_logs=("${process_logs[@]}")
}

# gone PID: kills it and waits until nothing of it runs.
gone() {
    kill -KILL -- "-$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
    forget "$1"
}

await_shard() {
    wait_for_line "shard $1" "${shard_pids[$1]}" "$folder/shard-$1.log" event=listening "$patience" ||
        give_up "shard $1 does not come up"
}

# await_trainers: each of them has sent something from now on.
await_trainers() {
    local i size file deadline
    for ((i = 0; i < trainers; ++i)); do
        file=$folder/ledger-$i-${trainer_lives[$i]}
        size=$(stat -c %s "$file" 2>/dev/null || echo 0)
        deadline=$((SECONDS + patience))
        until [ "$(stat -c %s "$file" 2>/dev/null || echo 0)" -gt "$size" ]; do
            is_running "${trainer_pids[$i]}" || give_up "trainer $i has ended"
            [ "$SECONDS" -lt "$deadline" ] || give_up "trainer $i has sent nothing for $patience s"
            sleep 0.02
        done
    done
}

# kill_shard SHARD: its rows are gone; the file of lives says between which moments.
kill_shard() {
    local killed started served
    now_us killed
    gone "${shard_pids[$1]}"
    now_us started
    dice 300
    nap_ms "$rolled"
    cp "$folder/shard-$1.log" "$folder/shard-$1-until-$started.log"
    : >"$folder/shard-$1.log"
    launch_shard "$1"
    await_shard "$1"
    now_us served
    printf '%s %s %s %s\n' "$1" "$killed" "$started" "$served" >>"$lives"
}

stop_for_ms() {
    kill -STOP -- "-$1"
    nap_ms "$2"
    kill -CONT -- "-$1"
}

# one_fault: something goes wrong, and is over when this returns.
one_fault() {
    local kind kinds=(stop-shard stop-plane stop-trainer stop-two kill-trainer kill-shard kill-plane kill-stopped)
    [ -z "${RECLANE_TEST_LINK_DOWN:-}" ] || [ "$fabric" != verbs ] || kinds+=(link link)
    dice ${#kinds[@]}
    kind=${kinds[$rolled]}
    faults[$kind]=$((${faults[$kind]:-0} + 1))
    case $kind in
        stop-shard | kill-shard | kill-stopped) dice $((shards - 1)) && set -- $((rolled + 1)) ;;
        stop-trainer | kill-trainer) dice "$trainers" && set -- "$rolled" ;;
        *) set -- 0 ;;
    esac
    dice 900
    case $kind in
        stop-shard | stop-plane) stop_for_ms "${shard_pids[$1]}" "$rolled" ;;
        stop-trainer) stop_for_ms "${trainer_pids[$1]}" "$rolled" ;;
        stop-two)
            kill -STOP -- "-${shard_pids[0]}"
            stop_for_ms "${shard_pids[$((shards - 1))]}" "$rolled"
            kill -CONT -- "-${shard_pids[0]}"
            ;;
        kill-trainer)
            gone "${trainer_pids[$1]}"
            launch_trainer "$1"
            ;;
        kill-shard | kill-plane) kill_shard "$1" ;;
        kill-stopped)
            kill -STOP -- "-${shard_pids[$1]}"
            nap_ms "$rolled"
            kill_shard "$1"
            ;;
        link)
            bash -c "$RECLANE_TEST_LINK_DOWN"
            nap_ms "$rolled"
            bash -c "$RECLANE_TEST_LINK_UP"
            ;;
    esac
}

# check LEDGERS LOG: whether all rows are the sums of these accounts.
check() {
    "$built/reclane_chaos_check" --ledgers="$1" --lives="$lives" --global_id=$((shards + trainers)) "${deployment[@]}" \
        >"$2" 2>&1 </dev/null
}

run_seed() {
    local i ended status ledgers one kind words=''
    chaos_seed=$1
    RANDOM=$chaos_seed
    folder=$logs/$chaos_seed
    lives=$folder/lives
    rm -rf "$folder"
    mkdir -p "$folder"
    : >"$lives"
    faults=() shard_pids=() trainer_pids=() trainer_lives=() server_flags=() trainer_flags=() patience=60
    step "seed $chaos_seed: $shards shards, $trainers trainers, $seconds s on $fabric"
    choose_deployment "$shards" chaos
    deployment+=(--recovery_preset=resilient --fabric="$fabric")
    if [ "$fabric" = verbs ]; then
        # A guest without KVM stands still for seconds: what is quick elsewhere would be silence here.
        deployment+=(--rdma_device="$device" --qps_per_client_per_shard=2 --rdma_heartbeat_interval_ms=1000
            --rdma_health_stale_ms=6000 --rdma_health_dead_ms=20000 --rdma_health_probe_timeout_ms=20000
            --rdma_lane_rebuild_wait_ms=20000 --rdma_control_plane_timeout_ms=240000)
        patience=240
        trainer_flags+=(--patience_ms=240000)
    fi
    for ((i = 0; i < shards; ++i)); do launch_shard "$i"; done
    for ((i = 0; i < shards; ++i)); do await_shard "$i"; done
    for ((i = 0; i < trainers; ++i)); do launch_trainer "$i"; done
    await_trainers
    ended=$((SECONDS + seconds))
    while [ "$SECONDS" -lt "$ended" ]; do
        one_fault
        await_trainers
        dice 300
        nap_ms "$rolled"
    done
    for ((i = 0; i < trainers; ++i)); do
        status=0
        end_process "${trainer_pids[$i]}" "$patience" || status=$?
        forget "${trainer_pids[$i]}"
        [ "$status" -eq 0 ] || give_up "trainer $i ended with exit status $status"
    done
    ledgers=$(printf '%s,' "$folder"/ledger-*)
    check "${ledgers%,}" "$folder/check.log" || { cat "$folder/check.log" >&2; give_up "a row is wrong"; }
    # The check must be able to fail: without the largest account it has to.
    one=$(find "$folder" -name 'ledger-*' -printf '%s %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)
    ledgers=${ledgers/$one,/}
    ! check "${ledgers%,}" "$folder/check-less.log" || give_up "the check did not miss $one"
    end_processes_cleanly || give_up "a shard did not stop cleanly"
    for kind in "${!faults[@]}"; do words+=" $kind=${faults[$kind]}"; done
    ok "$(tail -n 1 "$folder/check.log")"
    ok "faults:$words; $(grep -ho 'keys_in_doubt=[0-9]*' "$folder"/trainer-*.log | cut -d = -f 2 | awk '{ n += $1 } END { print n + 0 }') keys in doubt," \
        "$(grep -ho 'lanes_broken=[0-9]*' "$folder"/trainer-*.log | cut -d = -f 2 | awk '{ n += $1 } END { print n + 0 }') lanes broken"
    rm -rf "$folder"
}

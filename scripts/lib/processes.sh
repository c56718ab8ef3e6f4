# shellcheck shell=bash
# Background processes with one log each, all of them stopped when the script ends. Source it after setup.sh, under
# `set -euo pipefail`, and call watch_exit once.

process_ids=()
process_names=()
process_logs=()

# watch_exit: from here on everything that start_process started ends with the script, Ctrl-C included.
watch_exit() {
    trap 'stop_processes' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
}

# start_process NAME LOG COMMAND...: in the background and in a process group of its own, both outputs in LOG ("-": where
# the script's own go). Sets process_id.
start_process() {
    local name=$1 log=$2
    shift 2
    set -m
    if [ "$log" = - ]; then
        "$@" </dev/null &
    else
        "$@" >"$log" 2>&1 </dev/null &
    fi
    process_id=$!
    set +m
    process_ids+=("$process_id")
    process_names+=("$name")
    process_logs+=("$log")
}

# run_process NAME LOG COMMAND...: the same, and waits for its end. Returns its exit status. A signal to the script is
# answered at once, which it would not be while a command runs in the foreground.
run_process() {
    local status=0
    start_process "$@"
    wait "$process_id" || status=$?
    unset 'process_ids[-1]' 'process_names[-1]' 'process_logs[-1]'
    return "$status"
}

is_running() {
    kill -0 "$1" 2>/dev/null
}

# log_tail NAME LOG: the last lines of a log, for whoever has to find out why.
log_tail() {
    printf '   last lines of %s (%s):\n' "$1" "$2" >&2
    tail -n 25 "$2" 2>/dev/null | sed 's/^/      /' >&2
}

# wait_for_line NAME PID LOG TEXT SECONDS: until LOG has TEXT. Fails when the process ends before or the time is over.
wait_for_line() {
    local name=$1 pid=$2 log=$3 text=$4 deadline=$((SECONDS + $5))
    until grep -qF -- "$text" "$log"; do
        if ! is_running "$pid" && ! grep -qF -- "$text" "$log"; then
            fail "$name ended before it said '$text'"
            log_tail "$name" "$log"
            return 1
        fi
        if [ "$SECONDS" -ge "$deadline" ]; then
            fail "$name did not say '$text' within $5 s"
            log_tail "$name" "$log"
            return 1
        fi
        sleep 0.05
    done
}

# end_process PID SECONDS: SIGTERM to it and what it started, and SIGKILL if that does not help in time. Its exit status
# is returned.
end_process() {
    local pid=$1 deadline=$((SECONDS + $2)) status=0
    kill -TERM -- "-$pid" 2>/dev/null || true
    while is_running "$pid" && [ "$SECONDS" -lt "$deadline" ]; do
        sleep 0.05
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || status=$?
    return "$status"
}

# end_processes_cleanly: ends all of them, last one first; fails when one did not exit with 0.
end_processes_cleanly() {
    local i status bad=0
    for ((i = ${#process_ids[@]} - 1; i >= 0; --i)); do
        status=0
        end_process "${process_ids[$i]}" 10 || status=$?
        if [ "$status" -ne 0 ]; then
            fail "${process_names[$i]} ended with exit status $status"
            log_tail "${process_names[$i]}" "${process_logs[$i]}"
            bad=1
        fi
    done
    process_ids=()
    return "$bad"
}

# stop_processes: for the exit trap; says nothing.
stop_processes() {
    local i
    for ((i = ${#process_ids[@]} - 1; i >= 0; --i)); do
        end_process "${process_ids[$i]}" 5 || true
    done
    process_ids=()
}

#!/usr/bin/env bash
# Everything that CI runs. Installs what is missing by name, then takes one gate after the other, each with its name and
# time; a gate that fails does not keep the others from running. The last line is the sum: "N passed, N failed", with
# ", N skipped" when something could not run here (each with its reason, above).
#
# usage: scripts/test.sh [GATE...]     the gates by name; all of them without arguments
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh

target=${CARGO_TARGET_DIR:-$root/target}
logs=$target/test-logs
prefix=$target/test-prefix
mkdir -p "$logs"
export CARGO_TERM_COLOR=never

passed=0 failed=0 skipped=0
reasons=() failures=()
chosen=("$@")

is_chosen() {
    [ ${#chosen[@]} -gt 0 ] || return 0
    local name
    for name in "${chosen[@]}"; do
        [ "$name" != "$1" ] || return 0
    done
    return 1
}

skip() {
    skipped=$((skipped + 1))
    reasons+=("$1: $2")
    printf '== %-22s skipped: %s\n' "$1" "$2"
}

# sum_of FIELD LOG: adds up what test runners say in their closing lines ("test result: ok. 3 passed; 0 failed; ..." of
# cargo, "3 passed, 0 failed" of our own scripts).
sum_of() {
    grep -hE '^(test result: .*|[0-9]+ passed, [0-9]+ failed.*)$' "$2" | grep -oE "[0-9]+ $1" |
        awk '{ sum += $1 } END { print sum + 0 }'
}

# count_skips GATE LOG: a test that could not run says so on a line of its own, "skipped: why".
count_skips() {
    local reason
    while IFS= read -r reason; do
        skipped=$((skipped + 1))
        reasons+=("$1: ${reason#skipped: }")
    done < <(grep -hE '^skipped: ' "$2" | sort -u)
}

# No gate takes half of this on two cores; one that does hangs, and is ended with all that it started.
gate_seconds_max=1500
gate_group='' watch_group=''

end_group() {
    [ -z "$1" ] || kill -TERM -- "-$1" 2>/dev/null
}

trap 'end_group "$gate_group"; end_group "$watch_group"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# run_bounded LOG COMMAND...: in a process group of its own, with a limit of time.
run_bounded() {
    local log=$1 status=0
    shift
    set -m
    "$@" >"$log" 2>&1 </dev/null &
    gate_group=$!
    { sleep "$gate_seconds_max" && {
        printf 'FAILED: took more than %s s; its threads:\n' "$gate_seconds_max" >>"$log"
        ps -eLo pgid,pid,lwp,stat,pcpu,wchan:24,comm,args | awk -v group="$gate_group" 'NR == 1 || $1 == group' >>"$log"
        end_group "$gate_group"
    }; } >/dev/null 2>&1 </dev/null &
    watch_group=$!
    set +m
    wait "$gate_group" || status=$?
    end_group "$watch_group"
    wait "$watch_group" 2>/dev/null
    gate_group='' watch_group=''
    return "$status"
}

# gate NAME COMMAND...: runs it with its output in a log, and shows the log's end when it fails.
gate() {
    local name=$1 started=$SECONDS log=$logs/$1.log status=0 ok_count bad_count
    shift
    is_chosen "$name" || return 0
    run_bounded "$log" "$@" || status=$?
    ok_count=$(sum_of passed "$log")
    bad_count=$(sum_of failed "$log")
    count_skips "$name" "$log"
    if [ "$status" -eq 0 ]; then
        # A gate without tests of its own is one test.
        [ $((ok_count + bad_count)) -gt 0 ] || ok_count=1
        printf '== %-22s ok, %d passed, %d s\n' "$name" "$ok_count" $((SECONDS - started))
    else
        [ "$bad_count" -gt 0 ] || bad_count=1
        failures+=("$name")
        printf '== %-22s FAILED with exit status %d, %d s; log: %s\n' "$name" "$status" $((SECONDS - started)) "$log"
        grep -nE '^(error|FAILED|failures:)|panicked at|   FAILED' "$log" | head -n 20 | sed 's/^/      /'
        printf '      ...\n'
        tail -n 40 "$log" | sed 's/^/      /'
    fi
    passed=$((passed + ok_count))
    failed=$((failed + bad_count))
}

# tool_gate NAME TOOL COMMAND...: a gate that needs a tool.
tool_gate() {
    local name=$1 tool=$2
    shift 2
    is_chosen "$name" || return 0
    if command -v "$tool" >/dev/null 2>&1; then
        gate "$name" "$@"
    else
        skip "$name" "the package $tool could not be installed"
    fi
}

c_files() {
    find ctests examples include -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.hpp' -o -name '*.h' \) \
        ! -name reclane.h -print0
}

# The generated header is formatted by its generator.
format_c() { c_files | xargs -0 clang-format --dry-run -Werror; }

shell_scripts() { find scripts ctests .ci -type f \( -name '*.sh' -o -path '.ci/run' \) -print0; }
check_shell() { shell_scripts | xargs -0 shellcheck --severity=warning --external-sources --source-path=SCRIPTDIR/..; }

# The comments are for those who work on the crate, so they may link to what is private.
rust_docs() { RUSTDOCFLAGS=-Dwarnings cargo doc --locked --no-deps --lib --document-private-items; }

# --show-output: what a passing test says of itself, for a skip's reason.
# What the comparison with other libraries prints and survives; then the script itself, with reclane and one peer.
bench_peers() {
    python3 -B benches/peers/check.py &&
        scripts/bench-peers.sh --json --no-curves --rounds 1 --ms 5 --prefix "$prefix" --peers reclane,redis --only 'get_1x64_d1$' >"$logs/bench-peers.json" &&
        python3 -c 'import json, sys
workloads = json.load(open(sys.argv[1]))["workloads"]
if not workloads:
    print("skipped: no peer of the comparison could be installed here")
    sys.exit()
one = workloads[0]
assert (one["workload"], one["depth"], one["best_peer_name"]) == ("get_1x64", 1, "Redis, Unix socket"), one
assert one["reclane"] > 0 and one["best_peer"] > 0 and one["ratio"] > 0 and one["goal"] == 1.0, one
print("the script measures and reports:", one)' "$logs/bench-peers.json"
}

rust_tests() { cargo test --locked --no-fail-fast "$@" -- --show-output; }

# The same without any fabric but shared memory. The attack, which never meets another fabric, is a tenth as long.
rust_tests_minimal() {
    local path name targets=(--lib --bins)
    for path in tests/*.rs tests/*/main.rs; do
        name=$(basename "${path%/main.rs}" .rs)
        case $name in verbs) ;; *) targets+=(--test "$name") ;; esac
    done
    RECLANE_HOSTILE_MUTATIONS=100000 rust_tests --no-default-features "${targets[@]}"
}

# The C and C++ programs under AddressSanitizer and UndefinedBehaviorSanitizer. Not ThreadSanitizer: it does not see how
# the library, which is not instrumented, orders its threads, and reports races that are none.
sanitized_ctests() { SANITIZE=address,undefined ctests/run.sh "$prefix"; }

build_examples() {
    cmake -S examples -B "$target/test-examples" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$target/test-examples" --parallel "$(nproc)"
}

set_up() {
    need_packages "${BUILD_PACKAGES[@]}"
    need_cargo
    need_pip
    # A tool that cannot be had costs its gate, not the run.
    try_packages "${TEST_PACKAGES[@]}" || true
}

set_up
step "$(uname -sr), $(nproc) cores, $(free -g | awk '/^Mem:/ { print $2 }') GiB"

# In the order of their builds: checks first, then the debug builds, then the release build that all of C and C++ uses.
gate format-rust cargo fmt --check
tool_gate format-c clang-format format_c
tool_gate shell shellcheck check_shell
gate clippy cargo clippy --locked --all-targets -- -D warnings
gate docs rust_docs
gate clippy-minimal cargo clippy --locked --all-targets --no-default-features -- -D warnings
gate header-drift cargo test --locked --test header
gate rust-tests rust_tests
gate rust-tests-minimal rust_tests_minimal
gate rust-tests-address scripts/sanitize.sh
gate install scripts/install.sh "$prefix"
gate bench-peers bench_peers
gate ctests ctests/run.sh "$prefix"
gate ctests-address sanitized_ctests
gate examples build_examples
gate examples-run scripts/test-examples.sh "$target/test-examples"
gate demo-short scripts/demo.sh --short
# On the ratings that the demo fetched; a long one is scripts/chaos.sh --seconds 20 --seeds 100.
gate chaos-short scripts/chaos.sh --built "$target/test-examples" --seconds 10
gate demo-checkpoint scripts/demo-checkpoint.sh --kills 3 --epochs 2
# Behind all that uses the installed build: as a bench it is built with the features of what only tests need, over the same
# files, and who comes next builds again.
tool_gate budget valgrind scripts/budget.sh
# On this machine's RDMA devices, or on Soft-RoCE in guests.
gate clippy-device-tests cargo clippy --locked --all-targets --features device-tests -- -D warnings
gate verbs env RECLANE_TEST_PREFIX="$prefix" scripts/test-verbs.sh

for reason in ${reasons[@]+"${reasons[@]}"}; do
    printf 'skipped: %s\n' "$reason"
done
[ ${#failures[@]} -eq 0 ] || printf 'failed gates: %s\n' "${failures[*]}"
sum="$passed passed, $failed failed"
[ "$skipped" -eq 0 ] || sum="$sum, $skipped skipped"
printf '%s\n' "$sum"
[ "$failed" -eq 0 ] && [ ${#failures[@]} -eq 0 ]

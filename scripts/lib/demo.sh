# What the demos share: where they put things, and building. Sourced behind setup.sh and processes.sh; `logs` is set by who
# sources it.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # used, and `logs` is set, by who sources this

shards=2
target=${CARGO_TARGET_DIR:-$root/target}
prefix=$target/demo/prefix
build=$target/demo/examples

# quietly NAME COMMAND...: shows the end of its log, and ends the script, when it fails.
quietly() {
    local name=$1 status=0
    shift
    run_process "$name" "$logs/$name.log" "$@" || status=$?
    if [ "$status" -ne 0 ]; then
        log_tail "$name" "$logs/$name.log"
        die "$name failed with exit status $status"
    fi
}

build_everything() {
    step "building and installing the library (release)"
    quietly install scripts/install.sh "$prefix"
    ok "installed to $prefix"
    step "building the C++ examples against the installed package"
    quietly configure cmake -S examples -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix"
    quietly examples cmake --build "$build" --parallel "$(nproc)"
    ok "built in $build"
}

#!/usr/bin/env bash
# Counts the instructions of one GET and one UPDATE of one 64-byte row, at client and server, and of two GETs without a
# request, under callgrind, and holds them against benches/budget/budget.txt: more than 5 % above is a failure. Two runs
# must agree within 1 %.
#
# usage: scripts/budget.sh [--print | --profile]
#   --print    only the counts, as lines for the file
#   --profile  instead, what profiles and metrics add, which count every request and time one in 256: at most 3 % of the
#              instructions of both sides together. (2 % of the time is wanted; instructions that add to a warm line
#              take less time than others, and scripts/bench-peers.sh measures that.)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh

budgets=benches/budget/budget.txt
excess_percent_max=5
watching_percent_max=3
# As metrics-sample-every has it.
sample_every=256
print_only=no profile=no
case ${1:-} in
    --print) print_only=yes ;;
    --profile) profile=yes ;;
    '') ;;
    *) die "usage: scripts/budget.sh [--print | --profile]" ;;
esac

need_cargo >/dev/null
need_packages valgrind
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The program's path is the last word of cargo's line about it.
cargo bench --locked --bench budget --no-run >"$folder/build.log" 2>&1 || { cat "$folder/build.log"; die "the program of the budget cannot be built"; }
program=$(sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$folder/build.log" | tail -n 1)
[ -x "$program" ] || die "cargo named no program; its last line: $(tail -n 1 "$folder/build.log")"

# count FILE [MODE]: one run; the median count of each name, without what the counting itself takes.
count() {
    local dumps=$folder/dumps
    rm -rf "$dumps"
    mkdir "$dumps"
    # Under valgrind there is no room to map a file of rows as large as the memory: 400 MiB will do.
    (ulimit -f $((400 << 10)) && RECLANE_BUDGET_MODE=${2:-} exec valgrind --tool=callgrind --collect-atstart=no --fair-sched=yes --callgrind-out-file="$dumps/out" \
        "$program") >"$folder/run.log" 2>&1 || { tail -n 30 "$folder/run.log"; die "the program of the budget failed"; }
    awk '/^desc: Trigger: Client Request: / { name = $NF }
         /^(summary|totals): / && name != "" { print name, $2; name = "" }' "$dumps"/out.* | sort -k1,1 -k2,2n |
        awk '{ value[$1, ++count[$1]] = $2 }
            END {
                for (name in count) median[name] = value[name, int((count[name] + 1) / 2)]
                for (name in count) if (name ~ /^(client|server)_/) {
                    pairs = name ~ /^client/ ? 2 : 1
                    print name, median[name] - pairs * median["nothing"]
                }
            }' | sort >"$1"
    [ "$(wc -l <"$1")" -eq 6 ] || { cat "$1"; die "6 counts were expected of $program"; }
}

passed=0 failed=0
# of FILE NAME: a count.
of() { awk -v name="$2" '$1 == name { print $2 }' "$folder/$1"; }

compare_profile() {
    local op plain counting timed more said share
    count "$folder/first"
    count "$folder/counting" counting
    count "$folder/timed" timed
    for op in get update; do
        plain=$(($(of first client_${op}_1x64) + $(of first server_${op}_1x64)))
        counting=$(($(of counting client_${op}_1x64_counting) + $(of counting server_${op}_1x64_counting)))
        timed=$(($(of timed client_${op}_1x64_timed) + $(of timed server_${op}_1x64_timed)))
        # In hundredths of an instruction.
        more=$(((counting - plain) * 100 + (timed - counting) * 100 / sample_every))
        said="profile of one ${op^^}: $plain instructions at both sides without, $counting counting, $timed when it is timed"
        share=$(awk -v more="$more" -v plain="$plain" 'BEGIN { printf "%.2f", more / plain }')
        if [ "$more" -gt $((plain * watching_percent_max)) ]; then
            fail "$said: $share % more, at most $watching_percent_max % is wanted"
            failed=$((failed + 1))
        else
            ok "$said: $share % more"
            passed=$((passed + 1))
        fi
    done
}

if [ "$profile" = yes ]; then
    compare_profile
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [ "$failed" -eq 0 ]
    exit
fi
count "$folder/first"
count "$folder/second"
if ! cmp -s "$folder/first" "$folder/second"; then
    paste -d ' ' "$folder/first" "$folder/second" | awk '{
        d = ($4 - $2) / $2; if (d < 0) d = -d
        if (d > 0.01) { print "   two runs differ: " $1 " " $2 " and " $4; bad = 1 }
    } END { exit bad }' || die "the counts do not repeat"
fi
if [ "$print_only" = yes ]; then
    while read -r name instructions; do
        printf '%-24s %s  %12d\n' "$name" "$(date +%F)" "$instructions"
    done <"$folder/first"
    exit 0
fi

while read -r name instructions; do
    budget=$(awk -v name="$name" '$1 == name { last = $3 } END { print last + 0 }' "$budgets")
    if [ "$budget" -eq 0 ]; then
        fail "$name takes $instructions instructions and has no budget: add a line to $budgets"
        failed=$((failed + 1))
    elif [ $((instructions * 100)) -gt $((budget * (100 + excess_percent_max))) ]; then
        fail "$name takes $instructions instructions; its budget is $budget. Make it cheaper, or add a line with the" \
            "reason to $budgets"
        failed=$((failed + 1))
    else
        ok "$name: $instructions instructions, budget $budget"
        passed=$((passed + 1))
        if [ $((instructions * 100)) -lt $((budget * (100 - excess_percent_max))) ]; then
            printf '   note: %s can be lowered to %s in %s\n' "$name" "$instructions" "$budgets"
        fi
    fi
done <"$folder/first"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]

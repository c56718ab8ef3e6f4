#!/bin/sh
# The verbs provider on a stand-in for libibverbs (verbs.c): the contract of the fabric, and faults and link layers that
# Soft-RoCE cannot show. Needs no device, and shows nothing about drivers: that is scripts/test-verbs.sh.
# usage: ctests/stand_in/run.sh LIBRARY-TESTS DIRECTORY [PS-TESTS]     built test programs, and where to build
set -eu
tests=$1
work=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$work"
cc -std=gnu11 -Wall -Wextra -Werror -Wno-unused-parameter -O1 -g -shared -fPIC "-Wl,--version-script=$here/versions.map" \
  -Wl,-soname,libibverbs.so.1 "$here/verbs.c" -o "$work/libibverbs.so.1" -lpthread
export LD_LIBRARY_PATH="$work" RECLANE_TEST_DEVICES=stand0,stand1 RECLANE_TEST_STAND_IN=1
# A write without a receive fails at once here, so nothing waits for one.
timeout 120 "$tests" fabric::verbs::tests --skip alone --skip with_retries_for_ever --test-threads=2
timeout 120 "$tests" engine::server::slow_client
[ $# -lt 3 ] || timeout 240 "$3" in_place rounds --test-threads=2

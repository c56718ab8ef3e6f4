"""Runs reclane and its peers in interleaved rounds and writes what was measured as one JSON file.

usage: run.py --work FOLDER --out FILE [--rounds N] [--ms N] [--table-mib N] [--only NAME] [--curves] [--seed N]
              [--minutes N] [--curve-repeats N] [--quick]
"""

import argparse
import datetime
import json
import os
import platform
import random
import subprocess
import sys
import time

import curves
import peers as peers_of

# Of the time, when there are curves as well.
ROUNDS_SHARE = 0.6


def machine():
    """What the figures depend on."""
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo", encoding="utf-8") as file:
        memory_gib = round(int(file.readline().split()[1]) / (1 << 20))
    cache = []
    for index in range(4):
        base = f"/sys/devices/system/cpu/cpu0/cache/index{index}/"
        try:
            with open(base + "level", encoding="ascii") as level, open(base + "type", encoding="ascii") as kind, \
                    open(base + "size", encoding="ascii") as size:
                if kind.read().strip() != "Instruction":
                    cache.append(f"L{level.read().strip()} {size.read().strip()}")
        except OSError:
            pass
    huge = ""
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
            huge = file.read().split("[")[1].split("]")[0]
    except (OSError, IndexError):
        pass
    flags = subprocess.run(["systemd-detect-virt"], capture_output=True, text=True, check=False).stdout.strip() \
        if os.path.exists("/usr/bin/systemd-detect-virt") else ""
    return {
        "processor": model, "cores": os.cpu_count(), "memory_gib": memory_gib, "caches": ", ".join(cache),
        "kernel": platform.release(), "huge_pages": huge, "virtual": flags,
    }


def rounds(arguments, all_peers, results, progress, deadline):
    """Every peer has its turn in every round, in an order of its own; a peer that fails twice is left out, with why.
    After each round there is something to be written. No round begins that would probably end after the deadline."""
    dice = random.Random(arguments.seed)
    failures = {}
    longest = 0.0
    begun = time.monotonic()
    late = deadline + (deadline - begun) / 2
    for number in range(arguments.rounds):
        begun = time.monotonic()
        if number > 0 and begun + longest > deadline:
            progress(f"the time is up after {number} of {arguments.rounds} rounds")
            return
        order = [peer for peer in all_peers
                 if peer.reason is None and (peer.rounds_max is None or number < peer.rounds_max)]
        dice.shuffle(order)
        if number == 0:
            order.sort(key=lambda peer: not peer.is_own)
        for peer in order:
            # Later rounds end where the time does. A first one may take half as much again: then who has had no turn has
            # none, and reclane itself has had it.
            is_late = time.monotonic() > (deadline if number > 0 else late)
            if is_late and not (number == 0 and peer.is_own):
                progress(f"the time is up in round {number + 1}")
                for other in order[order.index(peer):]:
                    if not results[other.name]:
                        other.reason = "the time was up before its first turn"
                break
            try:
                # Turns are tried again for a quiet moment only while there is time for it.
                tries = peers_of.TRIES if time.monotonic() + longest / 2 < deadline else 1
                cells, foreign = peers_of.turn(peer, arguments.ms, arguments.table_mib, arguments.only, tries=tries)
                results[peer.name].append({"round": number, "foreign": foreign, "cells": cells})
            except (RuntimeError, OSError, ValueError, KeyError) as error:
                failures[peer.name] = failures.get(peer.name, 0) + 1
                peer.last_error = str(error)
                progress(f"{peer.label}: {error}")
                if failures[peer.name] >= 2:
                    peer.reason = f"failed twice; the last time: {error}"
        longest = max(longest, time.monotonic() - begun)
        progress(f"round {number + 1} of {arguments.rounds}, {time.monotonic() - begun:.0f} s")
        yield number + 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ms", type=float, default=40)
    parser.add_argument("--table-mib", type=int, default=64)
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", default="")
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=11, help="all of it; curves have what rounds leave, a third at least")
    parser.add_argument("--curve-repeats", type=int, default=curves.REPEATS)
    parser.add_argument("--quick", action="store_true", help="only a mark in the report")
    arguments = parser.parse_args()

    def progress(text):
        print(f"   {text}", file=sys.stderr, flush=True)

    all_peers = [peer for peer in peers_of.all_peers(arguments.work)
                 if not arguments.peers or any(part in peer.name for part in arguments.peers.split(","))]
    for peer in all_peers:
        if not peers_of.is_there(peer, arguments.work):
            progress(f"{peer.label}: {peer.reason}")
    results = {peer.name: [] for peer in all_peers}
    report = {"date": datetime.date.today().isoformat(), "machine": machine(), "ms": arguments.ms, "rounds": 0,
              "rounds_wanted": arguments.rounds, "quick": arguments.quick, "table_mib": arguments.table_mib,
              "curves": None, "minutes": None}
    begun = time.monotonic()
    ends = begun + arguments.minutes * 60
    rounds_end = begun + arguments.minutes * 60 * (ROUNDS_SHARE if arguments.curves else 1)

    def write():
        for peer in all_peers:
            # One that failed in the only round that there was time for has nothing to show but that.
            has_nothing = peer.last_error and not results[peer.name]
            peer.reason_shown = f"failed: {peer.last_error}" if has_nothing else None
        report["peers"] = [{"name": peer.name, "label": peer.label, "note": peer.note, "is_own": peer.is_own,
                            "sleeps": peer.sleeps, "reason": peer.reason or peer.reason_shown, "failed": peer.failed, "turns": results[peer.name]}
                           for peer in all_peers]
        report["minutes"] = round((time.monotonic() - begun) / 60, 1)
        with open(arguments.out + ".new", "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
        os.replace(arguments.out + ".new", arguments.out)

    try:
        for done in rounds(arguments, all_peers, results, progress, rounds_end):
            report["rounds"] = done
            write()
        if arguments.curves:
            report["curves"] = []
            for curve in curves.measure(arguments.work, progress, ends, arguments.curve_repeats):
                report["curves"].append(curve)
                write()
    except KeyboardInterrupt:
        # What was measured is reported.
        progress("interrupted")
    if report["rounds"] == 0 and any(results.values()):
        # Ended in the middle of the first one.
        report["rounds"] = 1
    if report["rounds"] == 0:
        sys.exit("run.py: not one round was finished")
    write()


if __name__ == "__main__":
    main()

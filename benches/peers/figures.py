"""Medians, ratios and goals out of what run.py measured."""

import peers as peers_of

# Least ratio of reclane's rate to the best peer's, by operation and shape, at depth 1, 8, 32.
GOALS = {
    ("get", 1, 64): (1.0, 1.7, 1.7), ("put", 1, 64): (1.0, 1.7, 2.0), ("update", 1, 64): (1.0, 1.7, 2.0),
    ("get", 32, 512): (1.2, 1.1, 1.2), ("get", 512, 128): (1.5, 1.2, 1.5),
    ("put", 32, 512): (1.0, 1.0, 1.0), ("put", 512, 128): (1.0, 1.0, 1.0),
    ("put_registered", 32, 512): (1.3, 1.3, 1.3), ("put_registered", 512, 128): (1.3, 1.3, 1.3),
}
# Requests per second that the machine allows when requests overlap, derived from its parts (the cores' hand-over of lines
# and the gathering of rows, docs/performance.md), and the part of it that is wanted.
LIMITS = {
    ("get", 1, 64): (18e6, 0.60), ("put", 1, 64): (18e6, 0.60), ("get", 32, 512): (670e3, 0.80),
    ("put", 32, 512): (670e3, 0.80), ("get", 512, 128): (207e3, 0.75), ("put", 512, 128): (201e3, 0.75),
}
GRPC_RATIO_GOAL = 5.0
# Least part of the plain rate: variant, cell, goal. 512 x 128 bytes are 64 KiB.
COSTS = [
    ("reclane_crc", "integrity=crc32c", "get_1x64_d1", 0.95), ("reclane_crc", "integrity=crc32c", "get_1x64_d32", 0.95),
    ("reclane_crc", "integrity=crc32c", "put_1x64_d1", 0.95), ("reclane_crc", "integrity=crc32c", "get_512x128_d1", 0.85),
    ("reclane_crc", "integrity=crc32c", "get_512x128_d8", 0.85), ("reclane_crc", "integrity=crc32c", "put_512x128_d1", 0.85),
    ("reclane_once", "exactly once", "update_1x64_d1", 0.95), ("reclane_once", "exactly once", "update_1x64_d8", 0.95),
    ("reclane_once", "exactly once", "put_1x64_d32", 0.95), ("reclane_once", "exactly once", "update_512x128_d8", 0.95),
    ("reclane_counting", "counting and timing (metrics=true)", "get_1x64_d1", 0.98),
    ("reclane_counting", "counting and timing (metrics=true)", "get_1x64_d32", 0.98),
    ("reclane_counting", "counting and timing (metrics=true)", "update_1x64_d8", 0.98),
]
# Differences below this are parity.
PARITY = 0.10
OPS = ("get", "put", "update")


def median(values):
    values = sorted(value for value in values if value is not None)
    return values[len(values) // 2] if values else None


def of_cell(peer, cell, what):
    """One figure of a cell in each round: round -> value."""
    found = {}
    for turn in peer["turns"]:
        value = turn["cells"].get(cell, {}).get(what)
        if value:
            found[turn["round"]] = value
    return found


def summary(peer, cell):
    """Medians of a cell, and how far its rate spread; None when it was not measured."""
    rates = of_cell(peer, cell, "per_s")
    if not rates:
        return None
    return {
        "per_s": median(rates.values()), "low": min(rates.values()), "high": max(rates.values()),
        **{what: median(of_cell(peer, cell, what).values()) for what in ("p50_ns", "p99_ns", "cpu_s")},
    }


def cells():
    for op in OPS:
        for rows, row_bytes in peers_of.SHAPES:
            for depth in peers_of.DEPTHS:
                yield op, rows, row_bytes, depth, peers_of.cell_name(op, rows, row_bytes, depth)


def best_peer(report, cell):
    """The peer with the highest median rate in a cell."""
    best = None
    for peer in report["peers"]:
        if peer["is_own"]:
            continue
        found = summary(peer, cell)
        if found and (best is None or found["per_s"] > best[1]["per_s"]):
            best = (peer, found)
    return best


def ratio(ours, theirs, cell):
    """Median over the rounds of the ratio within a round."""
    mine, other = of_cell(ours, cell, "per_s"), of_cell(theirs, cell, "per_s")
    return median([mine[n] / other[n] for n in mine if n in other])


def own(report, name):
    return next((peer for peer in report["peers"] if peer["name"] == name), None)


def workloads(report):
    """Every workload and depth: reclane, the best peer, the ratio, the goal; goal None where there is none."""
    result = []
    for prefix, name in (("", "reclane"), ("_registered", "reclane_registered")):
        ours = own(report, name)
        if ours is None:
            continue
        for op, rows, row_bytes, depth, cell in cells():
            if prefix and op != "put":
                continue
            mine, best = summary(ours, cell), best_peer(report, cell)
            if mine is None or best is None:
                continue
            goals = GOALS.get((op + prefix, rows, row_bytes))
            result.append({
                "workload": f"{op}{prefix}_{rows}x{row_bytes}", "depth": depth, "reclane": round(mine["per_s"]),
                "best_peer": round(best[1]["per_s"]), "best_peer_name": best[0]["label"],
                "ratio": round(ratio(ours, best[0], cell) or 0, 3),
                "goal": goals[peers_of.DEPTHS.index(depth)] if goals else None,
                "mine": mine, "theirs": best[1],
            })
    return result


def verdict(workload):
    if workload["goal"] is None:
        return ""
    if workload["ratio"] >= workload["goal"]:
        return "met"
    return "parity" if workload["ratio"] >= workload["goal"] * (1 - PARITY) and workload["goal"] <= 1.0 else "NOT met"


def of_two(value, goal, is_least=True):
    is_met = value >= goal if is_least else value <= goal
    return "met" if is_met else "NOT met"


def other_goals(report):
    """What is wanted beside the ratios to the best peer: what, value, goal, verdict."""
    found = []
    plain = own(report, "reclane")
    if plain is None:
        return found
    for (op, rows, row_bytes), (limit, goal) in LIMITS.items():
        deep = [summary(plain, peers_of.cell_name(op, rows, row_bytes, depth)) for depth in peers_of.DEPTHS[1:]]
        best = max((one["per_s"] for one in deep if one), default=None)
        if best:
            found.append((f"{op} {rows} x {row_bytes}, part of the derived limit of {rate(limit)}/s", f"{best / limit:.2f}", goal,
                          of_two(best / limit, goal)))
    # What a request costs more is told of requests.
    asked = own(report, "reclane_asked") or plain
    for name, label, cell, goal in COSTS:
        value = ratio(own(report, name) or {"turns": []}, asked, cell)
        if value:
            found.append((f"{label}, {cell.replace('_', ' ')}, part of the plain rate", f"{value:.2f}", goal, of_two(value, goal)))
    for name in ("grpc_cpp_uds", "grpc_cpp_tcp"):
        theirs = own(report, name) or {"turns": []}
        ratios = [(ratio(plain, theirs, cell), cell) for *_, cell in cells()]
        ratios = [one for one in ratios if one[0]]
        if ratios:
            least, cell = min(ratios)
            found.append((f"least ratio to {theirs['label']} ({cell.replace('_', ' ')})", f"{least:.1f}", GRPC_RATIO_GOAL,
                          of_two(least, GRPC_RATIO_GOAL)))
    at = {(curve["name"], p["x"]): p for curve in report["curves"] or [] for p in curve["points"] if "reason" not in p}
    idle = at.get(("idle_slots", 4096))
    if idle and idle["round_ns"]:
        found.append(("ns of a poller's round over 4,096 idle slots", f"{idle['round_ns']:.0f}", 2000,
                      of_two(idle["round_ns"], 2000, is_least=False)))
    alone, after = at.get(("second_client", 0)), at.get(("second_client", 2))
    if alone and after:
        value = after["per_s"] / alone["per_s"]
        found.append(("rate of a client after another one was killed, part of the rate alone", f"{value:.2f}", 1 - PARITY,
                      of_two(value, 1 - PARITY)))
    for what, label in (("cpu_s", "CPU seconds per million rows"), ("p99_ns", "p99")):
        pairs = [(w["mine"][what], w["theirs"][what]) for w in workloads(report) if w["mine"][what] and w["theirs"][what]]
        if pairs:
            met = sum(mine <= theirs * (1 + PARITY) for mine, theirs in pairs)
            found.append((f"{label} not above the best peer's, within {PARITY:.0%}: workloads", f"{met} of {len(pairs)}",
                          len(pairs), of_two(met, len(pairs))))
    return found


def largest_step(curve):
    """Between which neighbouring points a curve's rate changes most, in words; None where nothing can be said."""
    points = [p for p in curve["points"] if "reason" not in p]
    steps = [(max(b["per_s"] / a["per_s"], a["per_s"] / b["per_s"]), a, b) for a, b in zip(points, points[1:])
             if a["per_s"] and b["per_s"]]
    if not steps:
        return None
    size, a, b = max(steps, key=lambda step: step[0])
    # Ranges that overlap show no step.
    overlap = a["low"] <= b["high"] and b["low"] <= a["high"]
    said = f"largest step: from {a['x']:g} to {b['x']:g}, to {b['per_s'] / a['per_s']:.2f} of the rate"
    return said + (", within the spread of the runs" if overlap else "")


def rate(value):
    """A rate with three digits."""
    if value is None:
        return "–"
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}" if value / scale < 1000 else f"{value / scale:.0f} {unit}"
    return f"{value:.3g}"


def micro(value):
    return "–" if value is None else f"{value / 1e3:.3g}"

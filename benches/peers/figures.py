"""Medians, ratios and goals out of what run.py measured."""

import peers as peers_of

# Least ratio of reclane's rate to the best peer's, by operation and shape, at depth 1, 8, 32.
GOALS = {
    ("get", 1, 64): (1.0, 1.7, 1.7), ("put", 1, 64): (1.0, 1.7, 2.0), ("update", 1, 64): (1.0, 1.7, 2.0),
    ("get", 32, 512): (1.2, 1.1, 1.2), ("get", 512, 128): (1.5, 1.2, 1.5),
    ("put", 32, 512): (1.0, 1.0, 1.0), ("put", 512, 128): (1.0, 1.0, 1.0),
    ("put_registered", 32, 512): (1.3, 1.3, 1.3), ("put_registered", 512, 128): (1.3, 1.3, 1.3),
}
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


def cost(report, name, cell):
    """Rate of a variant of reclane as a part of the plain one's."""
    plain, variant = own(report, "reclane"), own(report, name)
    return ratio(variant, plain, cell) if plain and variant else None


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

"""Scaling curves of reclane alone: what changes with clients, lanes, slots, shards, rows, skew and idle slots."""

import json
import os

import peers as peers_of

# Each point is measured so often; medians are told.
REPEATS = 3
MS = 50


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else None


def run(work, words, seconds=peers_of.TURN_SECONDS_MAX):
    """One run of reclane_rows: its first lines about the start, and its cells by name (one list for each client)."""
    out = peers_of.run([os.path.join(work, "bin", "reclane_rows"), *words], {}, seconds)
    starts, cells = [], {}
    for line in out.splitlines():
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        if "op" in said:
            cells.setdefault(peers_of.cell_name(said["op"], said["rows"], said["row_bytes"], said["depth"]), []).append(said)
        elif "open_ms" in said:
            starts.append(said)
    return starts, cells


def point(work, x, words, only, repeats=REPEATS, ms=MS):
    """Medians of one point: rates of all clients added, the median p50 and the worst p99."""
    rates, halves, tails, longest, opens = [], [], [], [], []
    for _ in range(repeats):
        starts, cells = run(work, ["--ms", str(ms), "--only", only, *words])
        for clients in cells.values():
            # Several on one core: what each does while it has the core says nothing of them together.
            what = "per_s" if len(clients) == 1 else "mean_per_s"
            rates.append(sum(client[what] for client in clients))
            halves.append(median([client["p50_ns"] for client in clients]))
            tails.append(max(client["p99_ns"] for client in clients))
            longest.append(max(client["max_ns"] for client in clients))
        opens += starts
    return {
        "x": x, "per_s": median(rates), "p50_ns": median(halves), "p99_ns": median(tails), "max_ns": median(longest),
        "open_ms": median([start["open_ms"] for start in opens]),
        "server_bytes": median([start["server_bytes"] for start in opens]),
        "client_bytes": median([start["client_bytes"] for start in opens]),
        "round_ns": median([start["round_ns"] for start in opens]),
    }


# Polling without end, so that a round of the scan can be timed while nothing happens.
TIRELESS = ["poll-spin-iterations=1073741824"]
SMALL = ["--table-mib", "4"]


def lanes(count, slots):
    return [f"qps-per-client-per-shard={count}", f"slots-per-qp={slots}"]


def all_points():
    """Name of the curve, what its x is, cell, and the points: x and the words of the command."""
    sharing = ["poll-spin-iterations=0", "poll-yield-iterations=100", "rdma-rc-wait-spin-iterations=0"]
    slot_bytes = ["rdma-rc-request-slot-bytes=8192", "rdma-rc-response-slot-bytes=8192"]
    yield "clients", "client processes, all on one core", "get_1x64_d8$", [
        (n, ["--clients", str(n), *SMALL, *(sharing if n > 1 else []), *lanes(2, 8)]) for n in (1, 2, 4, 8, 16, 32)]
    yield "lanes", "lanes of the client, 8 slots each, 8 requests under way", "get_1x64_d8$", [
        (n, [*SMALL, *lanes(n, 8), *slot_bytes]) for n in (1, 2, 4, 8, 16, 32, 64)]
    yield "slots", "slots of each of 32 lanes, 32 requests under way", "get_1x64_d32$", [
        (n, [*SMALL, *lanes(32, n), *slot_bytes]) for n in (1, 2, 4, 8, 16)]
    yield "shards", "shards, all on one core", "get_512x128_d1$", [
        (n, ["--shards", str(n), *SMALL, *(sharing if n > 1 else [])]) for n in (1, 2, 4)]
    yield "rows_small", "rows of 64 bytes in the table", "get_1x64_d1$", [
        (rows, ["--table-mib", str(max(1, rows * 64 >> 20))]) for rows in (16384, 131072, 1048576, 8388608)]
    yield "rows_large", "rows of 128 bytes in the table", "get_512x128_d1$", [
        (rows, ["--table-mib", str(max(1, rows * 128 >> 20))]) for rows in (8192, 65536, 524288, 4194304, 16777216)]
    yield "zipf", "skew of the keys (Zipf)", "get_512x128_d1$", [
        (s, ["--zipf", str(s)]) for s in (0, 0.4, 0.8, 0.99, 1.2)]
    yield "idle_slots", "slots of the client, one in use", "get_1x64_d1$", [
        (n * 16, [*SMALL, *lanes(n, 16), *slot_bytes, *TIRELESS]) for n in (1, 4, 16, 64, 256)]
    yield "start_up_lanes", "lanes of the client, one slot of 1 MiB each", "get_1x64_d1$", [
        (n, [*SMALL, *lanes(n, 1)]) for n in (1, 4, 16, 64)]
    yield "start_up_shards", "shards, 16 lanes of the client to each", "get_1x64_d1$", [
        (n, ["--shards", str(n), *SMALL, *lanes(16, 1)]) for n in (1, 2, 4)]
    yield "second_client", "0: alone; 1: a second client lives and is killed", "get_1x64_d1$", [
        (dies, [*SMALL, *(["--dies"] if dies else [])]) for dies in (0, 1)]


def measure(work, progress):
    """All curves; a point that fails is a reason in its place."""
    result = []
    for name, x_is, only, points in all_points():
        curve = {"name": name, "x_is": x_is, "cell": only.rstrip("$"), "points": []}
        for x, words in points:
            try:
                ms = 400 if name in ("second_client", "clients") else MS
                curve["points"].append(point(work, x, words, only, ms=ms))
            except (RuntimeError, OSError, ValueError) as error:
                curve["points"].append({"x": x, "reason": str(error)})
                progress(f"{name} at {x}: {error}")
        progress(f"curve {name}")
        result.append(curve)
    return result

"""Scaling curves of reclane alone: what changes with clients, lanes, slots, shards, rows, skew and idle slots."""

import os
import time

import peers as peers_of

# Each point is measured so often; medians are told.
REPEATS = 3
MS = 50
# A table of 10^8 rows takes a while to fill.
POINT_SECONDS_MAX = 90
# Memory that must be free for a point, beside that of its table: index, copies, everything else.
SPARE_GIB = 3


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else None


def run(work, words, seconds=peers_of.TURN_SECONDS_MAX):
    """One run of reclane_rows: its first lines about the start, and its cells by name (one list for each client)."""
    out = peers_of.run([os.path.join(work, "bin", "reclane_rows"), *words], {}, seconds)
    starts, cells = [], {}
    for line in out.splitlines():
        said = peers_of.figures_of(line)
        if said is None:
            continue
        if "op" in said:
            cells.setdefault(peers_of.cell_name(said["op"], said["rows"], said["row_bytes"], said["depth"]), []).append(said)
        elif "open_ms" in said:
            starts.append(said)
    return starts, cells


class Point:
    """What the runs of one point said."""

    def __init__(self, x, words, only, ms):
        self.x, self.words, self.only, self.ms = x, words, only, ms
        self.rates, self.halves, self.tails, self.longest, self.starts = [], [], [], [], []
        self.reason = None

    def take(self, work):
        """One run more: rates of all clients added, the median p50 and the worst p99."""
        starts, cells = run(work, ["--ms", str(self.ms), "--only", self.only, *self.words], POINT_SECONDS_MAX)
        for clients in cells.values():
            # Several on one core: what each does while it has the core says nothing of them together.
            what = "per_s" if len(clients) == 1 else "mean_per_s"
            self.rates.append(sum(client[what] or client.get("mean_per_s", 0) for client in clients))
            self.halves.append(median([client["p50_ns"] for client in clients]))
            self.tails.append(max(client["p99_ns"] for client in clients))
            self.longest.append(max(client["max_ns"] for client in clients))
        self.starts += starts

    def said(self):
        """Medians."""
        if not self.rates:
            return {"x": self.x, "reason": self.reason or "not measured: the time was up"}
        of_start = {what: median([start[what] for start in self.starts])
                    for what in ("open_ms", "server_bytes", "client_bytes", "round_ns")}
        return {"x": self.x, "runs": len(self.rates), "per_s": median(self.rates), "low": min(self.rates),
                "high": max(self.rates), "p50_ns": median(self.halves), "p99_ns": median(self.tails),
                "max_ns": median(self.longest), **of_start}


# Polling without end, so that a round of the scan can be timed while nothing happens.
TIRELESS = ["poll-spin-iterations=1073741824"]
SMALL = ["--table-mib", "4"]
# A curve of requests, and not of rows that a client reads by itself.
ASKED = [*SMALL, *peers_of.ASKED]


def lanes(count, slots):
    return [f"qps-per-client-per-shard={count}", "qps-at-open=1024", f"slots-per-qp={slots}"]


def all_points():
    """Name of the curve, what its x is, cell, and the points: x and the words of the command."""
    sharing = ["poll-spin-iterations=0", "poll-yield-iterations=100", "rdma-rc-wait-spin-iterations=0"]
    slot_bytes = ["rdma-rc-request-slot-bytes=8192", "rdma-rc-response-slot-bytes=8192"]
    yield "clients", "client processes, all on one core", "get_1x64_d8$", [
        (n, ["--clients", str(n), *ASKED, *(sharing if n > 1 else []), *lanes(2, 8)]) for n in (1, 2, 4, 8, 16, 32)]
    yield "lanes", "lanes of the client, 8 slots each, 8 requests under way", "get_1x64_d8$", [
        (n, [*ASKED, *lanes(n, 8), *slot_bytes]) for n in (1, 2, 4, 8, 16, 32, 64)]
    yield "slots", "slots of each of 32 lanes, 32 requests under way", "get_1x64_d32$", [
        (n, [*ASKED, *lanes(32, n), *slot_bytes]) for n in (1, 2, 4, 8, 16)]
    yield "shards", "shards, all on one core", "get_512x128_d1$", [
        (n, ["--shards", str(n), *SMALL, *(sharing if n > 1 else [])]) for n in (1, 2, 3, 4)]
    powers = [10 ** power for power in range(4, 9)]
    yield "rows_small", "rows of 64 bytes in the table", "get_1x64_d1$", [
        (rows, ["--table-kib", str(rows * 64 >> 10)]) for rows in powers]
    yield "rows_small_deep", "rows of 64 bytes in the table", "get_1x64_d32$", [
        (rows, ["--table-kib", str(rows * 64 >> 10)]) for rows in powers[:-1]]
    yield "rows_large", "rows of 128 bytes in the table", "get_512x128_d1$", [
        (rows, ["--table-kib", str(rows * 128 >> 10)]) for rows in powers[:-1]]
    yield "zipf", "skew of the keys (Zipf)", "get_512x128_d1$", [
        (s, ["--zipf", str(s)]) for s in (0, 0.4, 0.6, 0.8, 0.99, 1.2)]
    yield "idle_slots", "slots of the client, one in use", "get_1x64_d1$", [
        (n * 16, [*ASKED, *lanes(n, 16), *slot_bytes, *TIRELESS]) for n in (1, 4, 16, 64, 128, 256)]
    yield "start_up_lanes", "lanes of the client, one slot of 1 MiB each", "get_1x64_d1$", [
        (n, [*ASKED, *lanes(n, 1)]) for n in (1, 4, 16, 64)]
    yield "start_up_shards", "shards, 16 lanes of the client to each", "get_1x64_d1$", [
        (n, ["--shards", str(n), *ASKED, *lanes(16, 1)]) for n in (1, 2, 4)]
    words = [[], ["--dies"], ["--died"]]
    yield "second_client", "0: alone; 1: a second client lives and is killed meanwhile; 2: it was killed before", \
        "get_1x64_d1$", [(x, [*ASKED, *more]) for x, more in enumerate(words)]


def memory_gib(words):
    """What the table of a point takes, index and all."""
    if "--table-kib" not in words:
        return 0
    # A row of 64 bytes has 16 of index, twice while the index grows.
    return int(words[words.index("--table-kib") + 1]) * 2.2 / (1 << 20)


def free_gib():
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) / (1 << 20)
    return 0


def take(work, curve_points, until, progress, name, repeats):
    """Runs the points of one curve in turns, so that what the host does meanwhile is everybody's, until the time is up.
    Each point is run once in any case."""
    for repeat in range(repeats):
        for point in curve_points:
            if point.reason or (repeat > 0 and (time.monotonic() > until or memory_gib(point.words) > 4)):
                continue
            needed = memory_gib(point.words) + SPARE_GIB
            if needed > 8 and free_gib() < needed:
                point.reason = f"not measured: {needed:.0f} GiB of free memory are needed"
                continue
            try:
                point.take(work)
            except (RuntimeError, OSError, ValueError, KeyError) as error:
                point.reason = str(error)
                progress(f"{name} at {point.x}: {error}")


def measure(work, progress, ends, repeats=REPEATS):
    """All curves, one by one; a point that fails is a reason in its place. Each has an equal part of the time left."""
    everything = list(all_points())
    for number, (name, x_is, only, points) in enumerate(everything):
        until = time.monotonic() + max(0, ends - time.monotonic()) / (len(everything) - number)
        ms = 400 if name in ("second_client", "clients") else MS
        taken = [Point(x, words, only, ms) for x, words in points]
        if time.monotonic() < ends:
            take(work, taken, until, progress, name, repeats)
        progress(f"curve {name}")
        yield {"name": name, "x_is": x_is, "cell": only.rstrip("$"), "points": [point.said() for point in taken]}

"""Which peers there are, and how one turn of each is run. What cannot run here is kept as a reason, with its name."""

import json
import os
import re
import shutil
import signal
import subprocess

SHAPES = [(1, 64), (32, 512), (512, 128)]
DEPTHS = [1, 8, 32]
# A turn that takes longer has failed.
TURN_SECONDS_MAX = 40
# Share of the two cores that other programs may take during a turn, and how often a turn is tried again for that.
FOREIGN_MAX = 0.05
TRIES = 3


class Peer:
    """One way of doing the work. `echo`: no rows, only as many bytes each way."""

    def __init__(self, name, label, command, env=None, note="", is_own=False, sleeps=False):
        self.name, self.label, self.command, self.note = name, label, command, note
        # One that sleeps while it waits leaves its processors to others, and that is its own affair.
        self.env, self.is_own, self.sleeps = env or {}, is_own, sleeps
        self.reason = None


def all_peers(work):
    """Every peer that scripts/bench-peers.sh names; `work` is the folder with the programs."""
    program = lambda name: os.path.join(work, "bin", name)
    wheel = {"LD_LIBRARY_PATH": os.path.join(work, "ucx", "libucx", "lib")}
    peers = [
        Peer("reclane", "reclane", [program("reclane_rows")], is_own=True,
             note="hash index in front of the rows, every field judged, C interface"),
        Peer("reclane_registered", "reclane, rows in a registered buffer", [program("reclane_rows"), "--registered"],
             is_own=True, note="PUT and UPDATE only: the server reads the client's buffer"),
        Peer("reclane_crc", "reclane, integrity=crc32c", [program("reclane_rows"), "integrity=crc32c"], is_own=True),
        Peer("reclane_once", "reclane, request-retry=exactly-once",
             [program("reclane_rows"), "recovery-preset=resilient"], is_own=True, note="recovery-preset=resilient"),
    ]
    for version, binary, env in [("1.22", "ucx_rows_wheel", wheel), ("1.13", "ucx_rows_debian", {})]:
        for way, mode, transport, extra, note in [
            ("am", "none", "shm", {}, "active messages"),
            ("am", "none", "shm-eager", {"UCX_RNDV_THRESH": "inf"}, "active messages, no rendezvous"),
            ("put", "none", "shm", {}, "RPC by hand on ucp_put: payload, fence, word"),
            ("am", "peer", "shm", {}, "active messages, error mode peer, for which UCX takes tcp"),
            ("put", "peer", "shm", {}, "ucp_put, error mode peer, for which UCX takes tcp"),
            ("am", "none", "tcp", {}, "active messages"),
        ]:
            # Shared memory of UCX knows no peer errors: with that mode it goes over TCP, and so it does here.
            tls = "tcp,self" if transport == "tcp" else "posix,cma,tcp,self" if mode == "peer" else "posix,cma,self"
            peers.append(Peer(
                f"ucx{version}_{way}_{transport}" + ("_peererr" if mode == "peer" else ""),
                f"UCX {version} {way} {transport}" + (", peer errors" if mode == "peer" else ""),
                [program(binary), way, mode],
                {"UCX_TLS": tls, "UCX_WARN_UNUSED_ENV_VARS": "n", "UCX_LOG_LEVEL": "error",
                 **({"UCX_NET_DEVICES": "lo"} if "tcp" in tls else {}), **extra, **env},
                note + "; a key is a row's number"))
    peers += [
        Peer("iceoryx2", "iceoryx2 request-response", [program("peers"), "iceoryx2"], note="a key is a row's number"),
        Peer("grpc_uds", "gRPC (tonic), Unix socket", [program("peers"), "grpc-uds"], note="a key is a row's number", sleeps=True),
        Peer("grpc_tcp", "gRPC (tonic), TCP", [program("peers"), "grpc-tcp"], note="a key is a row's number", sleeps=True),
        Peer("redis", "Redis, Unix socket", [program("redis_rows")], note="MGET and MSET; UPDATE is MSET", sleeps=True),
        Pingpong("libfabric_shm", "libfabric fi_pingpong, shm (echo)", "shm"),
        Pingpong("libfabric_tcp", "libfabric fi_pingpong, tcp (echo)", "tcp"),
    ]
    return peers


class Pingpong(Peer):
    """libfabric's own ping-pong: an echo of the bytes of a GET's answer, one at a time."""

    def __init__(self, name, label, provider):
        super().__init__(name, label, ["fi_pingpong"], note="echo of the answer's bytes both ways, depth 1 only")
        self.provider = provider


def cell_name(op, rows, row_bytes, depth):
    return f"{op}_{rows}x{row_bytes}_d{depth}"


def ends_quietly(process):
    """Kills the whole group of a process."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def run(command, env, seconds):
    """Runs a command on the two cores; its output, or an exception that names what went wrong."""
    process = subprocess.Popen(["taskset", "-c", "0,1", *command], env={**os.environ, **env}, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        ends_quietly(process)
        raise RuntimeError(f"did not end within {seconds} s") from None
    if process.returncode != 0:
        said = (err.strip() or out.strip()).splitlines()
        raise RuntimeError(f"exit status {process.returncode}: {said[-1] if said else 'said nothing'}")
    return out


def pingpong_turn(peer, only):
    """One turn of fi_pingpong: microseconds per transfer, one way, for each size."""
    cells = {}
    for rows, row_bytes in SHAPES:
        name = cell_name("get", rows, row_bytes, 1)
        if only and not name.endswith(only.rstrip("$")) and only not in name:
            continue
        size = rows * row_bytes
        iterations = 20000 if size < 4096 else 2000
        common = ["-p", peer.provider, "-e", "rdm", "-S", str(size), "-I", str(iterations)]
        script = f"taskset -c 1 fi_pingpong {' '.join(common)} >/dev/null 2>&1 & server=$!; " \
                 f"for i in 1 2 3 4 5 6 7 8 9 10; do taskset -c 0 fi_pingpong {' '.join(common)} 127.0.0.1 && break; " \
                 f"done; kill $server 2>/dev/null; wait $server 2>/dev/null; true"
        out = run(["sh", "-c", script], peer.env, TURN_SECONDS_MAX)
        last = [line.split() for line in out.splitlines() if re.match(r"^\d", line)]
        if not last:
            raise RuntimeError("fi_pingpong printed no figures")
        round_trip_ns = float(last[-1][-2]) * 2000
        cells[name] = {"p50_ns": round_trip_ns, "p99_ns": None, "per_s": 1e9 / round_trip_ns, "cpu_s": None}
    return cells


def rows_turn(peer, ms, table_mib, only):
    command = [*peer.command, "--ms", str(ms), "--table-mib", str(table_mib)]
    if only:
        command += ["--only", only]
    cells, foreign = {}, 0.0
    for line in run(command, peer.env, TURN_SECONDS_MAX).splitlines():
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        foreign = max(foreign, said.get("foreign", 0.0))
        if "op" not in said or not said["requests"]:
            continue
        rows = said["requests"] * said["rows"]
        cells[cell_name(said["op"], said["rows"], said["row_bytes"], said["depth"])] = {
            "p50_ns": said["p50_ns"], "p99_ns": said["p99_ns"], "per_s": said["per_s"],
            "cpu_s": (said["cpu_client_ns"] + said["cpu_server_ns"]) / 1e3 / rows,
        }
    if not cells:
        raise RuntimeError("it printed no figures")
    return cells, foreign


def turn(peer, ms, table_mib, only=""):
    """One turn: its cells, and the share of the two processors that others took; None where that is not known. A turn
    that others took too much of is repeated, and the best of the tries is kept."""
    best = None
    for _ in range(TRIES):
        if isinstance(peer, Pingpong):
            return pingpong_turn(peer, only), None
        cells, foreign = rows_turn(peer, ms, table_mib, only)
        if best is None or foreign < best[1]:
            best = cells, foreign
        if foreign <= FOREIGN_MAX or peer.sleeps:
            break
    return best


def is_there(peer, work):
    """Whether its program is there; else the reason is kept."""
    program = peer.command[0]
    if not (os.path.isabs(program) and os.access(program, os.X_OK)) and not shutil.which(program):
        reasons = os.path.join(work, "missing")
        stem = os.path.join(reasons, os.path.basename(program))
        if os.path.exists(stem):
            with open(stem, encoding="utf-8") as file:
                peer.reason = file.read().strip()
        else:
            peer.reason = f"{os.path.basename(program)} could not be installed or built"
    return peer.reason is None

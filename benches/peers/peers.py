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
SLOW_ROUNDS_MAX = 3


# Of reclane: no GET without a request.
ASKED = ["shared-reads=off"]


class Peer:
    """One way of doing the work. `echo`: no rows, only as many bytes each way."""

    def __init__(self, name, label, command, env=None, note="", is_own=False, sleeps=False, rounds_max=None):
        self.name, self.label, self.command, self.note = name, label, command, note
        # One that sleeps while it waits leaves its processors to others, and that is its own affair.
        self.env, self.is_own, self.sleeps = env or {}, is_own, sleeps
        # Slow ones, which are never the best, have fewer turns.
        self.rounds_max = rounds_max
        self.reason = None
        self.last_error = self.reason_shown = None
        # Cells that it could not do, with why.
        self.failed = {}


def all_peers(work):
    """Every peer that scripts/bench-peers.sh names; `work` is the folder with the programs."""
    program = lambda name: os.path.join(work, "bin", name)
    wheel = {"LD_LIBRARY_PATH": os.path.join(work, "ucx", "libucx", "lib")}
    peers = [
        Peer("reclane", "reclane", [program("reclane_rows")], is_own=True,
             note="keys are row numbers; a GET reads the rows in the server's memory, under their locks; C interface"),
        Peer("reclane_asked", "reclane, shared-reads=off", [program("reclane_rows"), *ASKED], is_own=True,
             note="every GET is a request, of which every field is judged"),
        Peer("reclane_registered", "reclane, rows in a registered buffer", [program("reclane_rows"), "--registered"],
             is_own=True, note="PUT and UPDATE only: the server reads the client's buffer"),
        Peer("reclane_crc", "reclane, integrity=crc32c", [program("reclane_rows"), "integrity=crc32c", *ASKED],
             is_own=True, note="shared-reads=off"),
        Peer("reclane_once", "reclane, request-retry=exactly-once",
             [program("reclane_rows"), "recovery-preset=resilient", *ASKED], is_own=True,
             note="recovery-preset=resilient, shared-reads=off"),
        Peer("reclane_counting", "reclane, metrics=true", [program("reclane_rows"), "metrics=true", *ASKED], is_own=True,
             note="counts every request and times one in 256; shared-reads=off"),
    ]
    for version, binary, env in [("1.22", "ucx_rows_wheel", wheel), ("1.13", "ucx_rows_debian", {})]:
        for way, mode, transport, extra, note in [
            ("am", "none", "shm", {}, "active messages"),
            ("am", "none", "shm-eager", {"UCX_RNDV_THRESH": "inf"}, "active messages, no rendezvous"),
            ("put", "none", "shm", {}, "RPC by hand on ucp_put: payload, fence, word"),
            ("am", "peer", "shm", {}, "active messages, error mode peer, for which UCX takes tcp"),
            ("put", "peer", "shm", {}, "ucp_put, error mode peer, for which UCX takes tcp"),
            ("am", "none", "tcp", {}, "active messages"),
            ("put", "none", "tcp", {}, "ucp_put"),
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
    row_number = "a key is a row's number"
    slow = {"sleeps": True, "rounds_max": SLOW_ROUNDS_MAX}
    engine = "one-sided: no request, nothing runs at the owner; driven from Python; no UPDATE"
    peers += [
        Peer("iceoryx2", "iceoryx2 request-response", [program("peers"), "iceoryx2"], note=row_number),
        Peer("grpc_cpp_uds", "gRPC C++, Unix socket", [program("grpc_rows"), "unix"], note=f"asynchronous interface, one thread each; {row_number}", **slow),
        Peer("grpc_cpp_tcp", "gRPC C++, TCP", [program("grpc_rows"), "tcp"], note=f"asynchronous interface, one thread each; {row_number}", **slow),
        Peer("grpc_uds", "gRPC (tonic), Unix socket", [program("peers"), "grpc-uds"], note=row_number, **slow),
        Peer("grpc_tcp", "gRPC (tonic), TCP", [program("peers"), "grpc-tcp"], note=row_number, **slow),
        Peer("redis", "Redis, Unix socket", [program("redis_rows")], note="MGET and MSET; UPDATE is MSET", **slow),
        Peer("nixl", "NIXL 1.5 (UCX)", [program("nixl_rows")], {"UCX_LOG_LEVEL": "error", "NIXL_LOG_LEVEL": "ERROR"},
             note=f"peer errors on, as is its default; {engine}", **slow),
        Peer("nixl_none", "NIXL 1.5 (UCX), no peer errors", [program("nixl_rows"), "--errors", "none"],
             {"UCX_LOG_LEVEL": "error", "NIXL_LOG_LEVEL": "ERROR"}, note=f"ucx_error_handling_mode=none; {engine}", **slow),
        Peer("mooncake", "Mooncake 0.3 (tcp)", [program("mooncake_rows")], {"GLOG_minloglevel": "3"}, note=engine, **slow),
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
    process.communicate()


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
    except BaseException:
        # Control-C does not reach a session of its own.
        ends_quietly(process)
        raise
    if process.returncode != 0:
        said = (err.strip() or out.strip()).splitlines()
        raise RuntimeError(f"exit status {process.returncode}: {said[-1] if said else 'said nothing'}")
    return out


def pingpong_turn(peer, only, seconds):
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
        out = run(["sh", "-c", script], peer.env, seconds)
        last = [line.split() for line in out.splitlines() if re.match(r"^\d", line)]
        if not last:
            raise RuntimeError("fi_pingpong printed no figures")
        round_trip_ns = float(last[-1][-2]) * 2000
        cells[name] = {"p50_ns": round_trip_ns, "p99_ns": None, "per_s": 1e9 / round_trip_ns, "cpu_s": None}
    return cells


def figures_of(line):
    """What a line of a program's output says, or None: libraries write lines of their own between ours."""
    if not line.startswith("{"):
        return None
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def rows_turn(peer, ms, table_mib, only, seconds):
    command = [*peer.command, "--ms", str(ms), "--table-mib", str(table_mib)]
    if only:
        command += ["--only", only]
    cells, foreign = {}, 0.0
    for line in run(command, peer.env, seconds).splitlines():
        said = figures_of(line)
        if said is None:
            continue
        foreign = max(foreign, said.get("foreign", 0.0))
        if "failed" in said:
            peer.failed[said["failed"]] = str(said["reason"])[:200]
            continue
        if "op" not in said or not said["requests"]:
            continue
        rows = said["requests"] * said["rows"]
        # The rate is the median of slices; a run that was too slow for one slice has the mean only.
        cells[cell_name(said["op"], said["rows"], said["row_bytes"], said["depth"])] = {
            "p50_ns": said["p50_ns"], "p99_ns": said["p99_ns"], "per_s": said["per_s"] or said.get("mean_per_s", 0),
            "cpu_s": (said["cpu_client_ns"] + said["cpu_server_ns"]) / 1e3 / rows,
        }
    if not cells:
        raise RuntimeError("it printed no figures")
    return cells, foreign


def turn(peer, ms, table_mib, only="", seconds=TURN_SECONDS_MAX, tries=TRIES):
    """One turn: its cells, and the share of the two processors that others took; None where that is not known. A turn
    that others took too much of is repeated, and the best of the tries is kept."""
    best = None
    for _ in range(tries):
        if isinstance(peer, Pingpong):
            return pingpong_turn(peer, only, seconds), None
        cells, foreign = rows_turn(peer, ms, table_mib, only, seconds)
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

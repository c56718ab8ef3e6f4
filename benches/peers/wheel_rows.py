"""Rows of a table by the transfer engines that come as Python packages: NIXL (its UCX backend) and Mooncake (tcp), on
memory of the host. They move registered memory and know no requests: a GET is one transfer that reads the rows where they
lie in the other process, a PUT one that writes them; nothing runs there. UPDATE they have none. Driven from Python, which
is the only interface that their packages bring, so small transfers cost what Python costs.

usage: wheel_rows.py nixl|mooncake [--ms N] [--table-mib N] [--only NAME] [--errors MODE]
"""

import argparse
import ctypes
import json
import mmap
import os
import random
import signal
import socket
import struct
import sys
import time
from array import array

SHAPES = [(1, 64), (32, 512), (512, 128)]
DEPTHS = [1, 8, 32]
ROWS_BYTES_MAX = 512 * 128
SERVER_CPU, CLIENT_CPU = 1, 0
KEYS = 1 << 16


def cpu_ns(pid):
    """CPU time of a process so far."""
    return time.clock_gettime_ns(((~pid) << 3) | 2)


def memory(size):
    """Memory of so many bytes, and its address. It is touched, so that it is there."""
    area = mmap.mmap(-1, size)
    at = ctypes.addressof(ctypes.c_char.from_buffer(area))
    ctypes.memset(at, 1, size)
    return area, at


def send(pipe, text):
    pipe.sendall(struct.pack("<I", len(text)) + text)


def receive(pipe):
    def exactly(size):
        said = b""
        while len(said) < size:
            part = pipe.recv(size - len(said))
            if not part:
                raise RuntimeError("the other process ended")
            said += part
        return said
    return exactly(struct.unpack("<I", exactly(4))[0])


class Nixl:
    """NIXL over UCX. Lists of rows are prepared once; a request picks some of them."""

    def __init__(self, name, errors):
        from nixl_cu12._api import nixl_agent, nixl_agent_config
        import numpy
        self.numpy = numpy
        self.agent = nixl_agent(name, nixl_agent_config(backends=[]))
        self.agent.create_backend("UCX", {"ucx_error_handling_mode": errors} if errors else {})

    def offer(self, at, size):
        self.agent.register_memory([(at, size, 0, "")], mem_type="DRAM")
        return self.agent.get_agent_metadata()

    def connect(self, said, at, size):
        self.peer = self.agent.add_remote_agent(said)
        self.at, self.size = at, size
        self.agent.make_connection(self.peer)

    def shape(self, mine, rows, row_bytes, depth):
        """Prepares the lists of one shape: the local rows of each slot, and every row of the table."""
        def listed(first, count):
            descs = self.numpy.zeros((count, 3), dtype=self.numpy.uint64)
            descs[:, 0] = first + self.numpy.arange(count, dtype=self.numpy.uint64) * row_bytes
            descs[:, 1] = row_bytes
            return descs
        self.local = self.agent.prep_xfer_dlist("", listed(mine, rows * depth), mem_type="DRAM")
        self.remote = self.agent.prep_xfer_dlist(self.peer, listed(self.at, self.size // row_bytes), mem_type="DRAM")
        self.places = [self.numpy.arange(slot * rows, (slot + 1) * rows, dtype=self.numpy.int32) for slot in range(depth)]

    def begin(self, op, slot, keys):
        handle = self.agent.make_prepped_xfer("READ" if op == "get" else "WRITE", self.local, self.places[slot],
                                              self.remote, self.numpy.frombuffer(keys, dtype=self.numpy.int32))
        return handle, self.agent.transfer(handle)

    def finish(self, begun):
        handle, state = begun
        while state != "DONE":
            if state == "ERR":
                raise RuntimeError("a transfer failed")
            state = self.agent.check_xfer_state(handle)
        self.agent.release_xfer_handle(handle)

    def drop(self):
        self.agent.release_dlist_handle(self.local)
        self.agent.release_dlist_handle(self.remote)


class Mooncake:
    """Mooncake's transfer engine over TCP, the one transport of its package that needs no device."""

    def __init__(self, _name, _errors):
        from mooncake.engine import TransferEngine
        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("the transfer engine cannot be initialized")

    def offer(self, at, size):
        if self.engine.register_memory(at, size) != 0:
            raise RuntimeError("memory cannot be registered")
        return f"127.0.0.1:{self.engine.get_rpc_port()}".encode()

    def connect(self, said, at, size):
        self.peer, self.at, self.size = said.decode(), at, size

    def shape(self, mine, rows, row_bytes, depth):
        self.row_bytes, self.lengths = row_bytes, [row_bytes] * rows
        self.places = [[mine + (slot * rows + row) * row_bytes for row in range(rows)] for slot in range(depth)]

    def begin(self, op, slot, keys):
        call = self.engine.batch_transfer_async_read if op == "get" else self.engine.batch_transfer_async_write
        begun = call(self.peer, self.places[slot], [self.at + key * self.row_bytes for key in keys], self.lengths)
        if begun in (0, -1):
            raise RuntimeError("a transfer could not begin")
        return begun

    def finish(self, begun):
        if self.engine.get_batch_transfer_status([begun]) != 0:
            raise RuntimeError("a transfer failed")

    def drop(self):
        pass


def serve(kind, errors, pipe, size):
    os.sched_setaffinity(0, {SERVER_CPU})
    engine = kind("rows-server", errors)
    area, at = memory(size)
    send(pipe, struct.pack("<Q", at) + engine.offer(at, size))
    # Until the client is gone.
    pipe.recv(1)
    os._exit(area.closed)


def measure(engine, server, op, rows, row_bytes, depth, table_bytes, milliseconds):
    """One cell, as a line of JSON."""
    dice = random.Random(42)
    below = table_bytes // row_bytes
    count = max(1, KEYS // rows)
    wanted = [array("i", (dice.randrange(below) for _ in range(rows))) for _ in range(min(count, 512))]
    times, rates = [], []
    begun, started = [None] * depth, [0] * depth
    length, warm = int(milliseconds * 1e6), int(milliseconds * 1e6 / 8)
    slice_ns = int(min(8.0, milliseconds / 3) * 1e6)
    clock = time.perf_counter_ns
    zero = clock()
    since, in_slice, requests, cpu = None, 0, 0, (0, 0)
    total = 0
    while True:
        slot = total % depth
        if begun[slot] is not None:
            engine.finish(begun[slot])
            now = clock()
            begun[slot] = None
            if since is None and now >= zero + warm:
                since, cpu = clock(), (cpu_ns(os.getpid()), cpu_ns(server))
                first = since
            elif since is not None:
                times.append(now - started[slot])
                in_slice += 1
                requests += 1
                if now >= since + slice_ns:
                    rates.append(in_slice * 1e9 / (now - since))
                    since, in_slice = now, 0
                if now >= first + length and rates:
                    break
        started[slot] = clock()
        begun[slot] = engine.begin(op, slot, wanted[total % len(wanted)])
        total += 1
    used = cpu_ns(os.getpid()) - cpu[0], cpu_ns(server) - cpu[1]
    for one in begun:
        if one is not None:
            engine.finish(one)
    times.sort()
    rates.sort()
    return json.dumps({
        "op": op, "rows": rows, "row_bytes": row_bytes, "depth": depth, "p50_ns": times[len(times) // 2],
        "p99_ns": times[len(times) * 99 // 100], "per_s": round(rates[len(rates) // 2]), "mean_per_s": round(requests * 1e9 / max(now - first, 1)), "max_ns": times[-1],
        "cpu_client_ns": used[0], "cpu_server_ns": used[1], "requests": requests,
    })


def cells(engine, server, mine, arguments):
    table_bytes = arguments.table_mib << 20
    for op in ("get", "put"):
        for rows, row_bytes in SHAPES:
            for depth in DEPTHS:
                name = f"{op}_{rows}x{row_bytes}_d{depth}"
                only = arguments.only
                if not (name.endswith(only[:-1]) if only.endswith("$") else only in name):
                    continue
                engine.shape(mine, rows, row_bytes, depth)
                try:
                    print(measure(engine, server, op, rows, row_bytes, depth, table_bytes, arguments.ms), flush=True)
                    engine.drop()
                except RuntimeError as error:
                    print(json.dumps({"failed": name, "reason": str(error)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=("nixl", "mooncake"))
    parser.add_argument("--ms", type=float, default=30)
    parser.add_argument("--table-mib", type=int, default=64)
    parser.add_argument("--only", default="")
    parser.add_argument("--errors", default="", help="ucx_error_handling_mode of NIXL")
    arguments = parser.parse_args()
    kind = Nixl if arguments.engine == "nixl" else Mooncake
    mine, theirs = socket.socketpair()
    # Before any library has threads.
    server = os.fork()
    if server == 0:
        mine.close()
        try:
            serve(kind, arguments.errors, theirs, arguments.table_mib << 20)
        except BaseException as error:
            print(f"wheel_rows.py: server: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    theirs.close()
    try:
        os.sched_setaffinity(0, {CLIENT_CPU})
        said = receive(mine)
        engine = kind("rows-client", arguments.errors)
        area, at = memory(ROWS_BYTES_MAX * DEPTHS[-1])
        engine.offer(at, len(area))
        engine.connect(said[8:], struct.unpack("<Q", said[:8])[0], arguments.table_mib << 20)
        cells(engine, server, at, arguments)
    except BaseException as error:
        print(f"wheel_rows.py: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os.kill(server, signal.SIGKILL)
        os._exit(1)
    sys.stdout.flush()
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    # Not by way of the library's own clean-up, which waits for the peer.
    os._exit(0)


if __name__ == "__main__":
    main()

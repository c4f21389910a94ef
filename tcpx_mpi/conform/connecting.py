"""Clauses of set-up: listen, connect and accept, registration."""

from __future__ import annotations

import threading
from itertools import product

import numpy as np

from tcpx_mpi.conform.bench import Bench, Pair
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.memory import PAGE
from tcpx_mpi.conform.outcome import Broken, NotOffered

_HANDLE_BYTES = 128
_FILLS = (0xAA, 0x55)
#: Of many calls of an accept that does not wait.
_TIME_TO_RETURN_S = 0.5
_LARGE = (2 << 30) + PAGE


def _listen(bench: Bench) -> str:
    bench.start()
    for fill in _FILLS:
        code, raw, comm = bench.call("raw_listen", 0, fill)
        if code != 0:
            raise Broken(f"listen returned {code}")
        if comm == 0:
            raise Broken("listen returned 0 and a NULL comm")
        behind = np.frombuffer(raw, np.uint8)[_HANDLE_BYTES:]
        if (behind != fill).any():
            last = _HANDLE_BYTES + int(np.flatnonzero(behind != fill)[-1]) + 1
            raise Broken(f"listen wrote {last} bytes of handle: there are {_HANDLE_BYTES}")
        bench.call("close_listen", comm)  # a clause of its own
    return f"a comm, and a handle within {_HANDLE_BYTES} bytes"


def _connect(bench: Bench) -> str:
    bench.start().close(bench.connect())
    return "both sides come to a comm, polled in turn"


def _connect_first(bench: Bench) -> str:
    bench.start()
    listener, handle = bench.listen()
    pair = Pair(listener=listener, block=bench.new_block())

    def step() -> None:
        bench.stage = "before any accept"
        pair.send = pair.send or bench.connecting(handle)

    bench.turns(step)
    bench.stage = ""
    _rest(bench, pair, handle)
    return "connect returns before accept is called"


def _accept_first(bench: Bench) -> str:
    bench.start()
    listener, handle = bench.listen()
    pair = Pair(listener=listener, block=bench.new_block())
    called = threading.Event()
    failed: list[Exception] = []

    def step() -> None:
        if not called.is_set() and not pair.receive:
            pair.receive = bench.accepting(pair)
            if pair.receive and not called.is_set():
                raise Broken("accept came to a comm before anyone had connected")

    def accept() -> None:
        try:
            if bench.gpu is not None:
                bench.gpu.make_current()
            bench.turns(step)
        except Exception as error:  # for the main thread to raise
            failed.append(error)

    bench.stage = "before any connect"
    thread = threading.Thread(target=accept, daemon=True)  # as accept may wait
    thread.start()
    thread.join(_TIME_TO_RETURN_S)
    waits = thread.is_alive()
    called.set()
    if not waits:
        _raise_first(failed)
        bench.stage = ""
        _rest(bench, pair, handle)
        return "accept returns before connect is called"

    def connected() -> bool:
        pair.send = pair.send or bench.connecting(handle)
        return bool(pair.send) or not thread.is_alive()

    bench.stage = "while accept waits"
    bench.until(connected, "connect did not come to a comm while accept waited")
    thread.join(bench.patience_s)
    _raise_first(failed)
    if thread.is_alive():
        raise Broken("accept waits on though somebody has connected")
    bench.stage = ""
    _rest(bench, pair, handle)
    return "accept waits until somebody connects, which NCCL does first"


def _raise_first(failed: list[Exception]) -> None:
    for error in failed:
        raise error


def _rest(bench: Bench, pair: Pair, handle: np.ndarray) -> None:
    def connected() -> bool:
        pair.send = pair.send or bench.connecting(handle)
        pair.receive = pair.receive or bench.accepting(pair)
        return bool(pair.send and pair.receive)

    bench.until(connected, "connect and accept did not both come to a comm")
    bench.close(pair)


def _device_handles(bench: Bench) -> str:
    bench.start()
    listener, handle = bench.listen()
    pair, found = Pair(listener=listener, block=bench.new_block()), {}

    def connected() -> bool:
        if not pair.send:
            pair.send, found["connect"] = bench.good("connect", 0, handle)
        if not pair.receive:
            at = int(pair.block.ctypes.data) if pair.block.size else 0
            pair.receive, found["accept"] = bench.good("accept", pair.listener, at)
        return bool(pair.send and pair.receive)

    bench.until(connected, "connect and accept did not both come to a comm")
    if not bench.properties.net_device_type:
        for call, given in found.items():
            if given:
                raise Broken(f"{call} gave a device handle, though its netDeviceType is HOST")
    elif bench.unpacks and not pair.block[8:16].view(np.uint64)[0]:
        raise Broken("accept left the handle of its device NULL")
    bench.close(pair)
    return "as the netDeviceType says"


def _one_bounce_buffer(bench: Bench) -> str:
    bench.start()
    if not bench.unpacks:
        raise NotOffered("its netDeviceType is not UNPACK")
    other = [at for at, device in bench.devices.items() if at > 0 and device.unpacks][:1]
    found = []
    for device in (0, 0, *other):
        pair = bench.connect(device)
        found.append((device, pair, bench.unpack_block(pair)[1]))
    for device, _, bounce in found[1:]:
        if bounce != found[0][2]:
            which = "another" if device == 0 else f"one of device {device}"
            raise Broken(f"a comm has bounce_buf {found[0][2]:#x}, and {which} {bounce:#x}")
    for _, pair, _ in found:
        bench.close(pair)
    return f"of {len(found)} comms, of {'two devices' if other else 'its one device'}"


def _register(bench: Bench) -> str:
    bench.start()
    pair, area = bench.connect(), bench.area(64 * PAGE)
    odd = bench.memory == "host"
    places = [(0, PAGE), (0, 64 * PAGE)]
    places += product((0, 1, 3, 63), (1, 7, PAGE, PAGE + 1, 15 * PAGE)) if odd else []
    for comm in (pair.send, pair.receive):
        for offset, size in places:
            bench.good("dereg_mr", comm, bench.register(comm, area, size, offset))
    bench.close(pair)
    return "on both ends, in sizes of pages and odd ones" if odd else "on both ends, whole pages"


def _register_twice(bench: Bench) -> str:
    bench.start()
    pair, area, target = bench.connect(), bench.area(PAGE), bench.area(PAGE)
    for seed, first_goes in enumerate((True, False)):
        area.fill(seed)
        lives = []
        for comm, memory in ((pair.send, area), (pair.receive, target)):
            connected = bench.register(comm, memory), bench.register(comm, memory)
            goes, stays = connected if first_goes else reversed(connected)
            bench.good("dereg_mr", comm, goes)
            lives.append(stays)
        receive = bench.receive(pair, target, PAGE, lives[1])
        bench.finish(bench.send(pair, area, PAGE, lives[0]), receive)
        bench.expect(target, area, PAGE)
        bench.good("dereg_mr", pair.send, lives[0])
        bench.good("dereg_mr", pair.receive, lives[1])
    bench.close(pair)
    return "each of two registrations outlives the other"


def _register_large(bench: Bench) -> str:
    bench.start()
    pair = bench.connect()
    memory = bench.area(_LARGE)
    bench.stage = "of more than 2 GiB"
    mhandle = bench.register(pair.send, memory)
    bench.stage = ""
    source, target = bench.area(PAGE).fill(2), bench.area(PAGE)
    memory.put(source.bytes, _LARGE - PAGE)
    there = bench.register(pair.receive, target)
    receive = bench.receive(pair, target, PAGE, there)
    sent = bench.send(pair, memory, PAGE, mhandle, _LARGE - PAGE)
    bench.finish(sent, receive)
    bench.expect(target, source, PAGE, whose="the region's last page")
    bench.good("dereg_mr", pair.send, mhandle)
    bench.good("dereg_mr", pair.receive, there)
    bench.close(pair)
    return f"{_LARGE} bytes, and its last page sent"


CLAUSES = (
    Clause(
        "listen", _listen,
        what="listen returns 0, a comm, and a handle within its 128 bytes.",
        why="What is written behind them is somebody else's memory.",
        source="NCCL_NET_HANDLE_MAXSIZE",
        nccl="Keeps the handle in 128 bytes on its stack and sends it to the peer.",
        needs=("devices",),
    ),
    Clause(
        "connect", _connect,
        what="connect and accept, polled in turn, come to a comm each; NULL means again.",
        why="Everything else needs a connection. The handle is a copy, as of another process.",
        source="ncclNet_vN_t",
        nccl="Polls both from one thread, with the same buffers, until both have a comm.",
        needs=("listen",),
    ),
    Clause(
        "connect-first", _connect_first,
        what="connect returns while nobody accepts.",
        why="The peer may be waiting for a connection of ours.",
        source="ncclNet_vN_t",
        nccl="One thread connects and accepts for many peers: a call that waits stops them all.",
        needs=("connect",),
    ),
    Clause(
        "accept-first", _accept_first,
        what="accept comes to no comm while nobody connects: it returns without one, or waits.",
        why="The peer may come late, or be waiting for a connection of ours.",
        source="ncclNet_vN_t; plugins in the wild",
        nccl="Accepts from a peer behind its connect of the same round, and again where there is no"
        " comm; an accept that waits holds up what its process sets up meanwhile, no more.",
        needs=("connect",),
    ),
    Clause(
        "device-handles", _device_handles,
        what="connect and accept give a device handle exactly where netDeviceType is not HOST.",
        why="A handle asks for kernels that read the network's memory.",
        source="ncclNet_v7_t and later",
        nccl="Hands it to its kernels.",
        needs=("connect",), since=7,
    ),
    Clause(
        "one-bounce-buffer", _one_bounce_buffer,
        what="All receiving comms of a GPU in a process name the same bounce_buf, whichever device"
        " they are of.",
        why="Whoever adds the offsets of one comm to the buffer of another reads other bytes.",
        source="unpackNetDeviceHandle of NCCL's device code",
        nccl="Keeps one bounce buffer a block of threads, that of the last comm it has set up.",
        needs=("device-handles",), since=7,
    ),
    Clause(
        "register", _register,
        what="regMr and deregMr take memory on both ends, also of odd sizes and addresses.",
        why="Buffers of programs lie where they lie.",
        source="ncclNet_vN_t",
        nccl="Registers its own buffers, and those of programs where they ask for it.",
        needs=("connect",),
    ),
    Clause(
        "register-twice", _register_twice,
        what="Memory can be registered twice on a comm, and deregistered once.",
        why="Two users of a buffer do not know of each other.",
        source="ncclNet_vN_t",
        nccl="Does so where a program registers overlapping buffers.",
        needs=("register", "message"), hurts=False,
    ),
    Clause(
        "register-large", _register_large,
        what="regMr takes more than 2 GiB, and its last page can be sent.",
        why="The size is a size_t: a plugin that narrows it loses the end.",
        source="ncclNet_v8_t and later",
        nccl="Registers whole buffers of programs.",
        needs=("register", "message"), since=8,
    ),
)  # fmt: skip

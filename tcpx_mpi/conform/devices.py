"""Clauses of devices that a plugin makes of others."""

from __future__ import annotations

from tcpx_mpi.conform.bench import Bench
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.loopback import Loopback
from tcpx_mpi.conform.memory import PAGE
from tcpx_mpi.conform.outcome import Broken, NotOffered, NotTried


def _v_device(bench: Bench) -> str:
    bench.start()
    _made_of(bench, [0])
    return "makeVDevice of one device"


def _fused(bench: Bench) -> str:
    bench.start()
    if "makeVDevice" not in bench.table.extras():
        raise NotOffered("makeVDevice is NULL")
    if (count := bench.good("devices")) < 2:
        raise NotTried(f"it has {count} device")
    device = _made_of(bench, [0, 1])
    loopback = Loopback(bench, PAGE, bench.connect(device))
    receive = loopback.receive(PAGE)
    bench.finish(loopback.send(PAGE), receive)
    loopback.expect(PAGE)
    loopback.close()
    for part in (0, 1):
        own = bench.read_properties(part).v_device
        if own[:2] != (1, part):
            raise Broken(f"once it is part of another, device {part} says vProps {own[:2]}")
    return "makeVDevice of two devices, and a message by what it made"


def _made_of(bench: Bench, parts: list[int]) -> int:
    """The number of a device made of these, which says so."""
    if "makeVDevice" not in bench.table.extras():
        raise NotOffered("makeVDevice is NULL")
    made = int(bench.good("make_v_device", parts))
    found = bench.read_properties(made).v_device
    if found[: 1 + len(parts)] != (len(parts), *parts):
        which = "device" if len(parts) == 1 else "devices"
        named = " and ".join(map(str, parts))
        said = found[: 1 + max(found[0], 0)]
        raise Broken(f"a device made of {which} {named} says vProps {said}")
    return made


CLAUSES = (
    Clause(
        "virtual-device", _v_device,
        what="makeVDevice of one device makes a device whose properties say so.",
        why="Fused devices are chosen by what their properties say.",
        source="ncclNet_v9_t and later",
        nccl="Calls it where it merges NICs; NULL means that it does not.",
        needs=("properties-plausible",), since=9,
    ),
    Clause(
        "fused-devices", _fused,
        what="makeVDevice of two devices makes one that says both and carries messages.",
        why="Its parts stay devices of their own, and the new one is used like any other.",
        source="ncclNet_v9_t and later",
        nccl="Makes one of the NICs that are near each other, and connects by it alone.",
        needs=("virtual-device", "message"), since=9,
    ),
)  # fmt: skip

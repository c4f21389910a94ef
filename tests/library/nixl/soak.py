"""A long run of random requests between two agents, every byte checked, with peers that die.

    python tests/library/nixl/soak.py [SECONDS]

An initiator asks targets, one after the other, for reads and writes of random sizes and blocks;
each target is killed after a while, in the middle of a request more often than not. At the end:
requests, bytes, deaths, and resident memory and descriptors of the initiator early and late.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

BYTES = 4 << 20
PATIENCE_S = 60.0


def make_agent(name: str, memory: np.ndarray[Any, Any]) -> Any:
    import tcpx_mpi.nixl

    tcpx_mpi.nixl.enable()
    os.environ.setdefault("NIXL_LOG_LEVEL", "FATAL")
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    agent = nixl_agent(name, nixl_agent_config(backends=["TCPX"]))
    place = (memory.ctypes.data, memory.size, 0, "")
    agent.register_memory([place], "DRAM", backends=["TCPX"])
    return agent


def target(pipe: Connection, name: str) -> None:
    memory = np.zeros(BYTES, np.uint8)
    agent = make_agent(name, memory)
    pipe.send((agent.get_agent_metadata(), memory.ctypes.data))
    while True:
        if pipe.poll(0.0005):
            seed = pipe.recv()
            if seed is None:
                pipe.send(memory)
            else:
                memory[:] = np.random.default_rng(seed).integers(0, 256, BYTES, dtype=np.uint8)
                pipe.send(True)
        agent.get_new_notifs()


def blocks_of(chance: random.Random) -> list[tuple[int, int]]:
    """Offsets and lengths, none over another."""
    count = chance.choice([1, 1, 1, 7, 300])
    room = BYTES // count
    longest = min(room, chance.choice([1, 100, 5000, 70_000, room]))
    return [(k * room, chance.randint(1, longest)) for k in range(count)]


def one_request(agent: Any, name: str, address: int, memory: Any, pipe: Connection,
                chance: random.Random, dies: Any) -> int:  # fmt: skip
    """Bytes that moved; 0 where the target died."""
    blocks, write = blocks_of(chance), chance.random() < 0.5
    pipe.send(seed := chance.getrandbits(32))
    pipe.recv()
    theirs = np.random.default_rng(seed).integers(0, 256, BYTES, dtype=np.uint8)
    memory[:] = np.random.default_rng(seed + 1).integers(0, 256, BYTES, dtype=np.uint8)
    ours = memory.copy()
    places = [
        agent.get_xfer_descs([(base + at, length, 0) for at, length in blocks], "DRAM")
        for base in (memory.ctypes.data, address)
    ]
    operation = "WRITE" if write else "READ"
    try:
        request = agent.initialize_xfer(operation, *places, name, b"x", backends=["TCPX"])
        state = agent.transfer(request)
        if dies:
            dies.kill()
        end = time.monotonic() + PATIENCE_S
        while state == "PROC":
            state = agent.check_xfer_state(request)
            assert time.monotonic() < end, "a request did not end"
    except Exception as error:  # NIXL's errors have no base of their own
        if dies and "Error" in type(error).__name__ and not isinstance(error, AssertionError):
            return 0
        raise
    with contextlib.suppress(Exception):
        agent.release_xfer_handle(request)
    if dies and state != "DONE":
        return 0
    assert state == "DONE", state
    if dies:
        return sum(length for _, length in blocks)  # nobody is left to be asked
    pipe.send(None)
    there, here = pipe.recv(), memory
    expected_there, expected_here = theirs.copy(), ours.copy()
    for at, length in blocks:
        if write:
            expected_there[at : at + length] = ours[at : at + length]
        else:
            expected_here[at : at + length] = theirs[at : at + length]
    assert (there == expected_there).all(), "wrong bytes at the target"
    assert (here == expected_here).all(), "wrong bytes at the initiator"
    return sum(length for _, length in blocks)


def standing() -> tuple[int, int]:
    """Resident KiB and descriptors of this process."""
    with open("/proc/self/status") as file:
        resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    return resident, len(os.listdir("/proc/self/fd"))


def main(seconds: float) -> int:
    context = multiprocessing.get_context("spawn")
    memory = np.zeros(BYTES, np.uint8)
    agent = make_agent("initiator", memory)
    chance = random.Random(1)
    end = time.monotonic() + seconds
    requests = moved = deaths = 0
    early: tuple[int, int] | None = None
    while time.monotonic() < end:
        name = f"target-{deaths}"
        pipe, theirs = context.Pipe()
        process = context.Process(target=target, args=(theirs, name), daemon=True)
        process.start()
        theirs.close()
        metadata, address = pipe.recv()
        agent.add_remote_agent(metadata)
        for left in reversed(range(chance.randint(5, 60))):
            moved += one_request(
                agent, name, address, memory, pipe, chance, process if left == 0 else None
            )
            requests += 1
        process.kill()
        process.join()
        pipe.close()
        with contextlib.suppress(Exception):  # NIXL may have dropped it already
            agent.remove_remote_agent(name)
        deaths += 1
        if deaths == 5:
            early = standing()
    late = standing()
    early = early or late
    print(f"{requests} requests, {moved / 1e9:.2f} GB right, {deaths} targets killed; resident "
          f"{early[0]} -> {late[0]} KiB, descriptors {early[1]} -> {late[1]}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 600))

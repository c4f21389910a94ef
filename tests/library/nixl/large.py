"""A request of more than 4 GiB and some that lie behind 4 GiB, every byte checked. Takes 9 GiB."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tcpx_mpi.nixl

BYTES = (4 << 30) + 12_345
BLOCK = 64 << 20
LIMIT_S = 300.0


def block_of(number: int) -> NDArray[np.uint8]:
    """What block so and so of the source has."""
    return np.random.default_rng(number).integers(0, 256, BLOCK, dtype=np.uint8)


def run(agent: Any, operation: str, here: Any, there: Any) -> None:
    descriptors = [agent.get_xfer_descs([place], "DRAM") for place in (here, there)]
    request = agent.initialize_xfer(operation, *descriptors, "b", b"", backends=["TCPX"])
    state, end = agent.transfer(request), time.monotonic() + LIMIT_S
    while state == "PROC" and time.monotonic() < end:
        state = agent.check_xfer_state(request)
    assert state == "DONE", state
    agent.release_xfer_handle(request)


def main() -> None:
    tcpx_mpi.nixl.enable()
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    a, b = (nixl_agent(name, nixl_agent_config(backends=["TCPX"])) for name in "ab")
    source, sink = np.zeros(BYTES, np.uint8), np.zeros(BYTES, np.uint8)
    starts = range(0, BYTES, BLOCK)
    for number, start in enumerate(starts):
        part = source[start : start + BLOCK]
        part[:] = block_of(number)[: part.size]
    for agent, memory in (a, source), (b, sink):
        agent.register_memory([(memory.ctypes.data, BYTES, 0, "")], "DRAM", backends=["TCPX"])
    a.add_remote_agent(b.get_agent_metadata())

    run(a, "WRITE", (source.ctypes.data, BYTES, 0), (sink.ctypes.data, BYTES, 0))
    for number, start in enumerate(starts):
        part = sink[start : start + BLOCK]
        assert (part == block_of(number)[: part.size]).all(), f"wrong bytes behind {start}"
    # What lies last goes first: its place is beyond what 32 bits hold.
    source[:9_000] = 0
    last = BYTES - 9_000
    run(a, "READ", (source.ctypes.data, 9_000, 0), (sink.ctypes.data + last, 9_000, 0))
    run(a, "READ", (source.ctypes.data + last - 70_000, 79_000, 0),
        (sink.ctypes.data + last - 70_000, 79_000, 0))  # fmt: skip
    assert (source[:9_000] == sink[last:]).all()
    assert (source[last - 70_000 :] == sink[last - 70_000 :]).all()
    print(f"{BYTES} bytes right")


if __name__ == "__main__":
    main()

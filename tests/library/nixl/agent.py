"""One of two agents on two nodes: python agent.py target|initiator. What the target has to tell is
a line of its output that begins with TOLD, to be a line of the initiator's input."""

from __future__ import annotations

import base64
import pickle
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tcpx_mpi.nixl

BYTES = 5_000_000
LIMIT_S = 60.0
TOLD = "told "


def until(condition: Callable[[], Any]) -> Any:
    """What the condition says, once that is something."""
    end = time.monotonic() + LIMIT_S
    while not (found := condition()):
        if time.monotonic() > end:
            sys.exit("nothing came")
    return found


def tell(what: object) -> None:
    print(TOLD + base64.b64encode(pickle.dumps(what)).decode(), flush=True)


def hear() -> Any:
    return pickle.loads(base64.b64decode(sys.stdin.readline().removeprefix(TOLD)))


def main(role: str) -> None:
    tcpx_mpi.nixl.enable()
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    agent = nixl_agent(role, nixl_agent_config(backends=["TCPX"]))
    values = np.random.default_rng(1).integers(0, 256, BYTES, dtype=np.uint8)
    memory = np.zeros(BYTES, np.uint8) if role == "target" else values.copy()
    place = (memory.ctypes.data, BYTES, 0)
    agent.register_memory([(*place, "")], "DRAM", backends=["TCPX"])
    if role == "target":
        tell((agent.get_agent_metadata(), place))
        notes = until(agent.get_new_notifs)
        assert notes == {"initiator": [b"written"]}, notes
        assert (memory == values).all()
        memory[:] = values[::-1]
        tell("turned")
        assert until(agent.get_new_notifs) == {"initiator": [b"read"]}
        return
    metadata, there = hear()
    agent.add_remote_agent(metadata)
    for operation, note in ("WRITE", b"written"), ("READ", b"read"):
        here = agent.get_xfer_descs([place], "DRAM")
        remote = agent.get_xfer_descs([there], "DRAM")
        request = agent.initialize_xfer(operation, here, remote, "target", note, backends=["TCPX"])
        state = agent.transfer(request)
        states = [state]
        # It is called within this round of the loop only: B023 does not know that.
        until(lambda: (states.append(agent.check_xfer_state(request)) or states[-1]) != "PROC")  # noqa: B023
        assert states[-1] == "DONE", states[-1]
        if operation == "WRITE":
            hear()
    assert (memory == values[::-1]).all()


if __name__ == "__main__":
    main(sys.argv[1])

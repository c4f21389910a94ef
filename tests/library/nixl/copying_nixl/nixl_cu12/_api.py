"""NIXL's Python, of agents of one process that copy. ENDS says by which signal a process ends whose
agents have backends like this, and when: "-11 .*UCX at the end", "-6 TCPX at once"; or "nothing
moves"."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
from typing import Any

_ENDS = os.environ["ENDS"]


def _end(number: int) -> None:
    sys.stdout.flush()  # a real library's end comes behind that
    os.kill(os.getpid(), number)


def nixl_agent_config(backends: list[str]) -> str:
    return "+".join(backends)


class nixl_agent:  # NIXL's name
    _notes: dict[str, list[bytes]] = {}  # noqa: RUF012  # of all agents

    def __init__(self, name: str, backends: str) -> None:
        self._name = name
        self._dies = 0
        ends = re.fullmatch(r"-(\d+) (\S+) at (once|the end)", _ENDS)
        if ends is None or not re.fullmatch(ends[2], backends):
            return
        if ends[3] == "once":
            self._dies = int(ends[1])
        else:
            atexit.register(_end, int(ends[1]))

    def register_memory(self, regions: object, kind: str, backends: object) -> None: ...

    def get_agent_metadata(self) -> bytes:
        return b""

    def add_remote_agent(self, metadata: bytes) -> None: ...

    def get_xfer_descs(self, places: list[tuple[int, int, int]], kind: str) -> Any:
        return places

    def initialize_xfer(
        self, operation: str, here: Any, there: Any, remote: str, note: bytes, backends: object
    ) -> object:
        return here[0], there[0], remote, note

    def transfer(self, request: Any) -> str:
        if self._dies:
            _end(self._dies)
        (source, size, _), (target, _, _), remote, note = request
        if _ENDS != "nothing moves":
            ctypes.memmove(target, source, size)
        self._notes[remote] = [note]
        return "DONE"

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        return {"a": self._notes.pop(self._name, [])}

"""NIXL's Python, of an agent that moves nothing and says that it has. UCX_TLS says where one over
UCX fails: "make", "post", "late" (its third request), "die" or "end" (of the process)."""

from __future__ import annotations

import atexit
import os
import signal
from typing import Any


def nixl_agent_config(backends: list[str], **_: Any) -> str:
    return backends[0]


class nixl_agent:  # NIXL's name
    def __init__(self, name: str, backend: str) -> None:
        self._fails = os.environ.get("UCX_TLS", "") if backend == "UCX" else ""
        self._posts = 0
        if self._fails == "make":
            raise RuntimeError("no active memory type:\n cuda_copy")
        if self._fails == "end":
            atexit.register(os.kill, os.getpid(), signal.SIGSEGV)

    def register_memory(self, regions: object, kind: str, backends: object) -> None: ...

    def get_agent_metadata(self) -> bytes:
        return b""

    def add_remote_agent(self, metadata: bytes) -> bytes:
        return b"remote"

    def get_xfer_descs(self, places: object, kind: str) -> None: ...

    def get_new_notifs(self) -> None: ...

    def initialize_xfer(self, *_: object, **__: object) -> object:
        return self

    def release_xfer_handle(self, handle: object) -> None: ...

    def transfer(self, handle: object) -> str:
        self._posts += 1
        if self._fails == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        failed = self._fails == "post" or (self._fails == "late" and self._posts == 3)
        return "ERR" if failed else "DONE"

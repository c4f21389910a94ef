"""The contract through Python: commands of a test on stdin, an answer a line on stdout."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi import Session, Transfer
from tcpx_mpi.errors import PluginMissing, SetupFailed, Stalled, TcpxError, UsageError

sessions: dict[str, Session] = {}
transfers: dict[str, Transfer] = {}
memories: dict[str, NDArray[np.uint8]] = {}
ids: dict[str, int] = {}
last_text = ""


def pattern(size: int, seed: int) -> NDArray[np.uint8]:
    at = np.arange(size, dtype=np.uint64)
    return ((at * 31 + (at >> 8) + seed * 7) & 255).astype(np.uint8)


def id_of(name: str) -> int:
    """A number after '#', else that of a name."""
    return int(name[1:]) if name.startswith("#") else ids[name]


def run(command: str, words: list[str]) -> str:
    global last_text
    name, *rest = words or [""]
    if command == "text":
        return last_text
    if command == "session":
        channels, plugin, chunk, mode = rest
        assert mode == "caller", "Python's session moves bytes within calls only"
        sessions[name] = Session(plugin=plugin, channels=int(channels), chunk_bytes=int(chunk))
    elif command in ("fill", "check"):
        offset, size, seed = map(int, rest)
        place, right = memories[name][offset : offset + size], pattern(size, seed)
        if command == "fill":
            place[:] = right
        elif wrong := np.flatnonzero(place != right).tolist():
            return f"WRONG at {offset + wrong[0]}"
    elif command in ("send", "recv"):
        transfer = transfers[name]
        post = transfer.post_send if command == "send" else transfer.post_recv
        post(id_of(rest[0]), int(rest[1]), int(rest[2]))
    elif command == "complete":
        return str(int(transfers[name].is_complete()))
    elif command == "wait":
        transfers[name].wait(float(rest[0]))
    elif command == "release":
        transfers[name].release()
    else:
        return of_session(command, sessions[name], rest)
    return ""


def of_session(command: str, session: Session, words: list[str]) -> str:
    if command == "close":
        session.close()
    elif command == "register":
        name, size = words[0], int(words[1])
        memory = np.zeros(size, np.uint8)
        ids[name] = session.register_memory(memory)
        memories[name] = memory
        return str(ids[name])
    elif command == "deregister":
        session.deregister_memory(id_of(words[0]))
    elif command == "transfer":
        transfers[words[0]] = session.create_transfer()
    elif command == "listen":
        return session.listen().hex()
    elif command == "load":
        session.load_remote_conn_info(bytes.fromhex(words[1]))
    elif command in ("accept", "connect", "establish"):
        getattr(session, command)(float(words[1]))
    else:
        raise AssertionError(f"no command {command}")
    return ""


def kind_of(error: TcpxError) -> str:
    if isinstance(error, UsageError):
        return "usage"
    late = isinstance(error, Stalled) or (isinstance(error, SetupFailed) and error.second_hand)
    assert not isinstance(error, PluginMissing)
    return "timeout" if late else "fatal"


for line in sys.stdin:
    command, *words = line.split()
    if command == "quit":
        break
    try:
        print(" ".join(filter(None, ("ok", run(command, words)))), flush=True)
    except TcpxError as error:
        last_text = str(error)
        print(kind_of(error), error.status, flush=True)

"""NIXL's Python, of agents that read and write each other's memory over plain sockets.

SOCKET_NIXL_INTERFACE is the name of interfaces, whose number is the backend's device; others are
told the address of that one (default: loopback).
SOCKET_NIXL_FAULT plants one: "flip NAME" has the agent of that name turn a bit of what it is
written or asked for, "late NAME" has it take what it was written the time before, whoever did,
"die NAME" ends its process at the first request, "die NAME at 8" at the 8th.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pickle
import signal
import socket
import struct
import threading
from collections import deque
from enum import Enum
from typing import Any

_SIOCGIFADDR = 0x8915
_HEAD = struct.Struct("<cII")  # what, how many blocks, how many bytes of their places


class nixl_thread_sync_t(Enum):  # NIXL's name
    NIXL_THREAD_SYNC_STRICT = 1


def nixl_agent_config(
    backends: list[str], enable_prog_thread: bool = True, sync_mode: object = None
) -> object:
    return sync_mode


def _address() -> str:
    if "SOCKET_NIXL_INTERFACE" not in os.environ:
        return "127.0.0.1"
    name = os.environ["SOCKET_NIXL_INTERFACE"] + os.environ["TCPX_NIXL_DEVICE"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        found = fcntl.ioctl(asks.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()))
    return socket.inet_ntoa(found[20:24])


def _exactly(peer: socket.socket, count: int) -> bytearray:
    found, at = bytearray(count), 0
    while at < count:
        got = peer.recv_into(memoryview(found)[at:])
        if not got:
            raise EOFError
        at += got
    return found


class _Post:
    """A post of a request: what is still to come of its answer."""

    def __init__(self, request: tuple[str, Any, Any, str]) -> None:
        operation, here, _, self.remote = request
        self.here = here if operation == "READ" else []
        self.wanted = sum(size for _, size, _ in self.here) if self.here else 1
        self.got = bytearray()

    def done(self) -> bool:
        return len(self.got) == self.wanted

    def put_in_place(self) -> None:
        at = 0
        for address, size, _ in self.here:
            ctypes.memmove(address, bytes(self.got[at : at + size]), size)
            at += size


class nixl_agent:  # NIXL's name
    def __init__(self, name: str, config: object) -> None:
        self._name = name
        self._fault, self._left = "", 1
        match os.environ.get("SOCKET_NIXL_FAULT", "").split():
            case [fault, of, *at] if of == name:
                self._fault, self._left = fault, int(at[-1]) if at else 1
        self._before = bytearray()  # what it was written last
        self._listener = socket.create_server((_address(), 0))
        self._ways: dict[str, tuple[socket.socket, deque[_Post], threading.Lock]] = {}
        self._posts: dict[int, _Post] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    # --- Who is asked

    def _accept(self) -> None:
        while True:
            peer, _ = self._listener.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        try:
            while True:
                what, blocks, length = _HEAD.unpack(_exactly(peer, _HEAD.size))
                self._left -= 1
                if self._fault == "die" and self._left <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                places = pickle.loads(_exactly(peer, length))
                assert len(places) == blocks
                if what == b"R":
                    data = bytearray().join(ctypes.string_at(at, size) for at, size, _ in places)
                    peer.sendall(self._broken(data))
                    continue
                for at, size, _ in places:
                    data = self._broken(_exactly(peer, size))
                    ctypes.memmove(at, bytes(data), size)
                peer.sendall(b"D")
        except (EOFError, OSError):
            pass

    def _broken(self, data: bytearray) -> bytearray:
        if self._fault == "flip":
            data[len(data) // 2] ^= 1
        if self._fault == "late":
            data, self._before = self._before or data, data
        return data

    # --- Who asks

    def register_memory(self, regions: object, kind: str, backends: object) -> None: ...

    def get_agent_metadata(self) -> bytes:
        return pickle.dumps((self._name, self._listener.getsockname()))

    def add_remote_agent(self, metadata: bytes) -> bytes:
        name, at = pickle.loads(metadata)
        way = socket.create_connection(at)
        way.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ways[name] = way, deque(), threading.Lock()
        return bytes(name, "utf-8")

    def get_xfer_descs(self, places: list[tuple[int, int, int]], kind: str) -> Any:
        return places

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        return {}

    def initialize_xfer(
        self, operation: str, here: Any, there: Any, remote: str, backends: object
    ) -> Any:
        return operation, here, there, remote

    def release_xfer_handle(self, handle: object) -> None: ...

    def transfer(self, request: Any) -> str:
        operation, here, there, remote = request
        places = pickle.dumps(there)
        message = [_HEAD.pack(operation[:1].encode(), len(there), len(places)), places]
        if operation == "WRITE":
            message += [ctypes.string_at(at, size) for at, size, _ in here]
        way, posts, lock = self._ways[remote]
        post = self._posts[id(request)] = _Post(request)
        with lock:
            posts.append(post)
            try:
                way.setblocking(True)
                way.sendall(b"".join(message))
            except OSError:
                return "ERR"
        return "PROC"

    def check_xfer_state(self, request: Any) -> str:
        post = self._posts[id(request)]
        way, posts, lock = self._ways[post.remote]
        with lock:
            while posts and not post.done():
                first = posts[0]
                try:
                    got = way.recv(first.wanted - len(first.got), socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return "PROC"
                except OSError:
                    return "ERR"
                if not got:
                    return "ERR"
                first.got += got
                if first.done():
                    posts.popleft().put_in_place()
        return "DONE" if post.done() else "ERR"

"""Messages between a rank and its companion: a length and a pickle, over a pair of sockets.

Both ends are processes of one user and one program, so what is unpickled is their own.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
import time
from typing import Any

#: What a companion answers: a request is done, it has failed, or how far a batch is.
DONE, FAILED, PROGRESS = "done", "failed", "progress"
_LENGTH = struct.Struct("<Q")
_MOST_AT_ONCE = 1 << 20


class Closed(Exception):
    """The other end is gone."""


class Channel:
    """One end; a message that has come in part waits for the rest of it, and blocks nobody."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._poll, self._room = select.poll(), select.poll()
        self._poll.register(end, select.POLLIN)
        self._room.register(end, select.POLLOUT)
        self._incoming, self._outgoing = bytearray(), bytearray()

    def send(self, message: object) -> None:
        """Waits until it is taken. Raises Closed if nobody is left to read it."""
        self.post(message)
        self.flush(None)

    def post(self, message: object) -> None:
        """Queues a message for `flush`."""
        body = pickle.dumps(message, protocol=5)
        self._outgoing += _LENGTH.pack(len(body)) + body

    def flush(self, patience_s: float | None) -> bool:
        """Whether all that was posted is taken, by the first time that nothing of it is for
        `patience_s` (None: never). Raises Closed.
        """
        patience_ms = None if patience_s is None else patience_s * 1e3
        while self._outgoing:
            try:
                taken = self._socket.send(self._outgoing, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if not self._room.poll(patience_ms):
                    return False
            except OSError as error:
                raise Closed from error
            else:
                del self._outgoing[:taken]
        return True

    def receive(self, patience_s: float | None) -> Any:
        """The next message, or None after `patience_s` (None: never). Raises Closed."""
        deadline = None if patience_s is None else time.monotonic() + patience_s
        while (message := self._taken()) is None:
            left_ms = None
            if deadline is not None:
                left_ms = max(deadline - time.monotonic(), 0.0) * 1e3
            if not self._poll.poll(left_ms):
                return None
            try:
                arrived = self._socket.recv(_MOST_AT_ONCE, socket.MSG_DONTWAIT)
            except OSError as error:
                raise Closed from error
            if not arrived:
                raise Closed
            self._incoming += arrived
        return pickle.loads(message)

    def close(self) -> None:
        self._socket.close()

    def _taken(self) -> bytes | None:
        """The first whole message, taken from what has come."""
        if len(self._incoming) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._incoming)[0]
        if len(self._incoming) < end:
            return None
        message = bytes(self._incoming[_LENGTH.size : end])
        del self._incoming[:end]
        return message

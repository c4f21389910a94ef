"""A rank that waits for its disk: it cannot answer a roll call, so a thread says what it does.

Else the others would find it lost after their patience, and its network under suspicion.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.world.liveness import Answer, RollCall

#: How often the thread looks; a roll call takes longer.
_LOOKS_S = 1.0
#: A write that has taken so long is the answer to a roll call; and so long, worth a line.
ANSWERS_S, TELLS_S = 2.0, 10.0


class DiskWatch:
    """Of one rank: what it writes at the moment, and since when."""

    def __init__(
        self,
        roll_call: RollCall,
        name: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._roll_call, self._name, self._clock = roll_call, name, clock
        #: Held by the thread while it speaks for its rank, which does not go on to MPI then.
        self._lock = threading.Lock()
        self._path, self._since = "", 0.0
        self._told = self._answered = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk watch", daemon=True)

    def start(self) -> DiskWatch:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Returns when the thread has ended."""
        self._over.set()
        self._thread.join()

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[None]:
        """Around a write to this file."""
        with self._lock:
            self._path, self._since, self._told = path, self._clock(), False
        try:
            yield
        finally:
            with self._lock:
                self._path = ""

    def look(self) -> None:
        """What the thread does each time: nothing, unless a write takes long."""
        with self._lock:
            took = self._clock() - self._since
            if not self._path or took < ANSWERS_S:
                return
            text = f"disk: a write to {self._path} has taken {took:.0f} s so far"
            if took >= TELLS_S and not self._told:
                self._told = True
                print(f"# {self._name()}: {text}", file=sys.stderr, flush=True)
            if self._answered or not self._roll_call.may_be_called_by_threads():
                return
            if self._roll_call.alarmed():
                self._answered = True
                code = int(ExitCode.OUTPUT_FAILED)
                said = f"{self._name()}: {text}; see to that disk, or write elsewhere (--spool)"
                self._roll_call.say(Answer(self._roll_call.rank, code, said, present=False))

    def _run(self) -> None:
        while not self._over.wait(_LOOKS_S):
            self.look()

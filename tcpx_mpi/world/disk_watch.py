"""A rank that waits for its disk cannot answer a roll call: a thread says what it does.

Else the others would find it lost after their patience, and its network under suspicion. Where all
ranks wait for theirs nobody calls a roll, so one that waits for too long ends the run.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.world.liveness import Answer, RollCall

#: How often the thread looks; a roll call takes longer.
_LOOKS_S = 1.0
#: Who used less CPU between two looks was waiting.
_LEAST_CPU_S = 0.001
#: A write that has taken so long is the answer to a roll call; and so long, worth a line.
ANSWERS_S, TELLS_S = 2.0, 10.0


class DiskWatch:
    """The write that one rank is at, and since when."""

    def __init__(
        self,
        roll_call: RollCall,
        name: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        limit_s: Callable[[], float] = lambda: math.inf,
        late: Callable[[str], object] = lambda text: None,
    ):
        """`late` is called where a write has stood still for `limit_s`, by the thread."""
        self._roll_call, self._name, self._clock = roll_call, name, clock
        self._limit_s, self._late = limit_s, late
        #: Held by the thread while it speaks for its rank, which does not go on to MPI then.
        self._lock = threading.Lock()
        self._path, self._since, self._may_take_s = "", 0.0, 0.0
        #: The writing thread's CPU time, and since when it has not changed.
        self._cpu_of, self._cpu_s, self._still_since = 0, 0.0, 0.0
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
    def writing(self, path: str, may_take_s: float = 0.0) -> Iterator[None]:
        """Around a write to this file, which may stand still for so much longer than others."""
        with self._lock:
            self._path, self._since, self._told = path, self._clock(), False
            self._may_take_s, self._still_since = may_take_s, self._since
            self._cpu_of = time.pthread_getcpuclockid(threading.get_ident())
            self._cpu_s = time.clock_gettime(self._cpu_of)
        try:
            yield
        finally:
            with self._lock:
                self._path = ""

    def look(self) -> None:
        """The thread's look each time: it does nothing, unless a write takes long."""
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
            said = f"{self._name()}: {text}; see to that disk, or write elsewhere (--spool)"
            if self._stood_still_s() > self._limit_s() + self._may_take_s:
                self._late(said)
            elif self._roll_call.alarmed():
                self._answered = True
                code = int(ExitCode.OUTPUT_FAILED)
                self._roll_call.say(Answer(self._roll_call.rank, code, said, present=False))

    def _stood_still_s(self) -> float:
        """Seconds in which the writing thread has neither written nor computed."""
        before, self._cpu_s = self._cpu_s, time.clock_gettime(self._cpu_of)
        if self._cpu_s - before > _LEAST_CPU_S:
            self._still_since = self._clock()
        return self._clock() - self._still_since

    def _run(self) -> None:
        while not self._over.wait(_LOOKS_S):
            self.look()

"""Signs of life of a rank that works alone for long, by a thread.

Rank 0 goes through all rows for the footer, and memory takes seconds a GiB: neither is a step that
hangs. A process that was stopped, a disk or a lock that is waited for uses no CPU, and gives none.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from tcpx_mpi.world.liveness import RollCall

#: How often it looks: the others ask long before their patience is over.
_LOOKS_S = 0.1
#: Who used less CPU since the last look was waiting.
_LEAST_S = 0.001


@contextlib.contextmanager
def at_work(roll_call: RollCall) -> Iterator[None]:
    """Around what this thread does before a step in which the others wait `while_alive`; it calls
    no MPI meanwhile."""
    if roll_call.size == 1 or not roll_call.may_be_called_by_threads():
        yield
        return
    over = threading.Event()
    clock = time.pthread_getcpuclockid(threading.get_ident())

    def answer() -> None:
        used = time.clock_gettime(clock)
        while not over.wait(_LOOKS_S):
            before, used = used, time.clock_gettime(clock)
            if used - before > _LEAST_S:
                roll_call.answer_inquiries()

    thread = threading.Thread(target=answer, name="at work", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

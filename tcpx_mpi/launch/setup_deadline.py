"""The launcher's set-up deadline: name ranks that never came up, and end the rest.

A rank that was stopped can do neither, and the others know only that MPI waits for somebody.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tcpx_mpi.launch.setup_table import SetupTable

_LOOK_S = 0.1
#: Ranks that can end themselves have so long, at the deadline of set-up, and after a signal.
_GRACE_S, _STOP_GRACE_S = 3.0, 2.5
LONGEST_GRACE_S = max(_GRACE_S, _STOP_GRACE_S)


@contextlib.contextmanager
def ending_what_never_comes_up(
    table: SetupTable,
    limit_s: float,
    stops: Sequence[int],
    processes: Callable[[], Mapping[int, Sequence[int]]],
    kill: Callable[[], None],
) -> Iterator[list[str]]:
    """Ends ranks whose set-up is not over within the limit, or that the first signal did not end.

    `processes` has those of each rank that is there, `kill` ends mpirun. Yields why, once the
    limit is over.
    """
    over = threading.Event()
    late: list[str] = []

    def wait(condition: Callable[[], bool], patience_s: float) -> bool:
        """Whether it became true; at the end of the launch it counts as true."""
        deadline = time.monotonic() + patience_s
        while not condition():
            if over.wait(_LOOK_S):
                return True
            if time.monotonic() > deadline:
                return False
        return True

    def end() -> None:
        for pid in itertools.chain.from_iterable(processes().values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        kill()

    def come_up() -> bool:
        return table.over() or bool(stops)

    def watch() -> None:
        if not wait(come_up, limit_s):
            there = processes()
            reason = why(table, limit_s, there)
            if len(table.waits()) < table.ranks or any(map(_stopped, there.values())):
                late.append(reason)  # which no rank can say
                table.mark_reported()
            # Ranks may have come up since, or said why they did not.
            if not wait(come_up, _GRACE_S):
                late[:] = [reason]
                return end()
            if table.over() and not any(table.ended().values()):  # else they leave it to this
                late.clear()
        while not over.wait(_LOOK_S):
            if stops and not wait(lambda: False, _STOP_GRACE_S):
                return end()

    watcher = threading.Thread(target=watch, name="set-up deadline", daemon=True)
    watcher.start()
    try:
        yield late
    finally:
        over.set()
        watcher.join()


def why(table: SetupTable, limit_s: float, processes: Mapping[int, Sequence[int]]) -> str:
    """Which ranks keep the others from coming up, and what each rank waits for."""
    waits = table.waits()
    parts = [
        f"rank {rank} {_silence(processes.get(rank, ()))}"
        for rank in range(table.ranks)
        if rank not in waits
    ]
    for rank, each in waits.items():
        if each is not None:
            found = _stopped(processes.get(rank, ()))
            stopped = f" (process {found[0]} was stopped)" if found else ""
            parts.append(f"rank {rank}{stopped} waits for {each.what} since {each.age_s:.1f} s")
    return f"set-up did not end within --setup-timeout ({limit_s:g} s): {'; '.join(parts)}"


def _silence(pids: Sequence[int]) -> str:
    if not pids:
        return "never spoke (it has no process here)"
    return f"never spoke (process {pids[0]}{' was stopped' if _stopped(pids) else ''})"


def _stopped(pids: Sequence[int]) -> list[int]:
    return [pid for pid in pids if _state(pid) in ("T", "t")]


def _state(pid: int) -> str:
    """One letter as in /proc/PID/stat; "" for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""

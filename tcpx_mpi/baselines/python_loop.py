"""Timed loops written in Python: state of a batch, and what ends it early."""

from __future__ import annotations

import resource
import time
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.schedule.table import Schedule


class PythonLoop:
    """The part of `transport.interface.TimedLoop` that is the same however bytes are moved.

    A loop calls `_begin` when it starts a batch, keeps in `_progress_ns` when something last
    moved, and calls `_look_around` now and then.
    """

    def __init__(self) -> None:
        self._fault: _native.Fault | None = None

    def _begin(self, progress_ns: int, stall_ns: int, end_by_ns: int) -> None:
        self._progress_ns, self._stall_ns, self._end_by_ns = progress_ns, stall_ns, end_by_ns
        self._stop = False
        self._stamps: dict[str, Any] = {}
        self._cpu = (0, 0, 0)

    def arm(self, iterations: int) -> None:
        """Nothing, for a loop whose batches take no time to ready."""

    def request_stop(self) -> None:
        self._stop = True

    def idle_ns(self) -> int:
        return _native.now_ns() - self._progress_ns

    def stuck_ns(self) -> int:
        """It has a deadline in each of its calls."""
        return 0

    def give_up(self) -> None:
        """Nothing: it is never stuck."""

    def stamps(self, iterations: int) -> _native.Stamps:
        return _native.Stamps(**self._stamps)

    def cpu_time(self) -> tuple[int, int, int]:
        return self._cpu

    def fault(self) -> _native.Fault | None:
        return self._fault

    def take_picture_ready(self) -> bool:
        # Asked between two steps of the loop, so the picture is that of now.
        return _native.take_report_request()

    def _look_around(self) -> None:
        """End the batch for what ends one of the engine's: a signal, a request, time, a stall."""
        now = _native.now_ns()
        if number := _native.stop_signal():
            self._fail("interrupted", number)
        elif self._stop:
            self._fail("stopped", 0)
        elif self._end_by_ns and now > self._end_by_ns:
            self._fail("timeout", 0)
        elif now - self._progress_ns > self._stall_ns:
            self._fail("stall", 0)

    def _flows_of_calls(
        self, schedule: Schedule, window: int, posted: int, completed: int, iterations: int
    ) -> list[_native.FlowReport]:
        """A flow for each peer and direction of a schedule in whose place calls are made. Only the
        number of calls that are over is known."""
        flows = [("send", peer) for peer, _ in schedule.peers_sent]
        flows += [("receive", peer) for peer, _ in schedule.peers_received]
        return [
            _native.FlowReport(
                kind=kind, peer=peer, window=window, posted=posted, arrived=completed,
                completed=completed, bytes=0, finished=completed == iterations,
                oldest_iteration=completed,
                oldest_age_ns=self.idle_ns() if posted > completed else -1,
            )
            for kind, peer in flows
        ]  # fmt: skip

    def _fail(self, kind: str, code: int, text: str = "") -> None:
        self._fault = _native.Fault(kind, code, text)


def cpu_times() -> tuple[int, int, int]:
    """User and system time of this process, and both of this thread; ns."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return int(usage.ru_utime * 1e9), int(usage.ru_stime * 1e9), time.thread_time_ns()

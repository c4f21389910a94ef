"""The process beside a rank in which NCCL runs: `python -m tcpx_mpi.baselines.nccl.companion`.

It does what its rank asks for, one request at a time, and sleeps in between. It ends with its
rank: at the end of their channel, or by the kernel's signal where it is busy.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.baselines.nccl.backend import Backend, BackendError, Collective, Memory, PointToPoint
from tcpx_mpi.baselines.nccl.channel import DONE, FAILED, PROGRESS, Channel, Closed
from tcpx_mpi.baselines.nccl.collectives import Call
from tcpx_mpi.baselines.nccl.groups import Piece
from tcpx_mpi.parent_death import end_with_parent
from tcpx_mpi.schedule.elements import ElementType, ReduceOp
from tcpx_mpi.schedule.table import BufferId
from tcpx_mpi.transport.observed_placement import Kernel, process_cpu_ns

#: A batch tells so often how far it is.
_TELL_NS = 50_000_000
#: So close to the agreed start the core is kept.
_SPIN_NS = 20_000


class Companion:
    """The requests of a rank, a method each."""

    def __init__(self, channel: Channel, backend: Backend) -> None:
        self._channel = channel
        self._backend = backend
        self._memory: dict[BufferId, Memory] = {}
        self._strides: dict[BufferId, int] = {}
        self._turns: list[list[list[Piece]]] = []
        self._calls: list[Call] = []
        self._congestion = ""

    def facts(self) -> dict[str, str]:
        return self._backend.facts()

    def unique_id(self) -> Any:
        return self._backend.unique_id()

    def allocate(self, sizes: dict[BufferId, int]) -> None:
        self._memory = {buffer: self._backend.allocate(size) for buffer, size in sizes.items()}

    def connect(
        self, unique_id: Any, rank: int, world: int, neighbours: Sequence[tuple[bool, int]],
        congestion: str,
    ) -> _native.SocketTotals:  # fmt: skip
        """Meet every neighbour, each way that the schedule goes: NCCL connects at the first
        message. Without neighbours, where collectives will be called, by a small one of those; what
        a larger one needs NCCL connects then. Its sockets have the plugin's congestion control."""
        self._congestion = congestion
        self._backend.connect(unique_id, rank, world)
        address = next(iter(self._memory.values())).address
        if neighbours:
            self._backend.group(
                [PointToPoint(sends, peer, address, 1) for sends, peer in neighbours]
            )
        else:
            kind, op = ElementType.UINT8, ReduceOp.MAX
            meet = Collective("ncclAllReduce", address, address, 1, kind, op, 1.0, 0)
            self._backend.collectives([meet])
        self._finish_queued()
        return self.sockets()

    def cut(self, buffer: BufferId, used: int, guard: int, stride: int, count: int) -> None:
        self._strides[buffer] = stride
        self._memory[buffer].slots.cut(used, guard, stride, count)

    def fill(self, buffer: BufferId, *where: Any) -> None:
        self._memory[buffer].slots.fill(*where)

    def poison(self, buffer: BufferId, *where: Any) -> None:
        self._memory[buffer].slots.poison(*where)

    def verify(self, buffer: BufferId, *where: Any) -> _native.Verdict:
        return self._memory[buffer].slots.verify(*where)

    def fill_elements(self, buffer: BufferId, *where: Any) -> None:
        self._memory[buffer].slots.fill_elements(*where)

    def poison_elements(self, buffer: BufferId, *where: Any) -> None:
        self._memory[buffer].slots.poison_elements(*where)

    def verify_elements(self, buffer: BufferId, *where: Any) -> _native.Verdict:
        return self._memory[buffer].slots.verify_elements(*where)

    def load(self, turns: list[list[list[Piece]]], calls: list[Call], longest_batch: int) -> None:
        """An iteration is all groups of its turn, one after the other, or all of the calls at
        once; slot k has turn k, and so on in turn."""
        self._turns, self._calls = turns, calls
        self._backend.reserve(longest_batch)

    def run(self, first_slot: int, iterations: int, start_ns: int) -> dict[str, Any]:
        """A batch, back to back on one stream, from the agreed start until all is complete.

        The last iteration ends when the host sees it; the others so much earlier as the marks
        between them say.
        """
        late = _wait_until(start_ns)
        before = _cpu()
        begun = start_ns or _native.now_ns()
        ends = np.full(iterations, begun, np.int64)
        if any(self._turns) or self._calls:
            self._launched = self._completed = 0
            self._told_ns = begun
            for number in range(iterations):
                self._launch(first_slot + number)
                self._backend.record(number)
                self._launched += 1
                self._tell()
            while not self._backend.reached(iterations - 1):
                self._tell()
            seen = _native.now_ns()
            self._backend.check()
            before_last = [
                self._backend.ns_between(number, iterations - 1) for number in range(iterations)
            ]
            # No sooner than the start, nor than the one before: clocks of two devices are fitted.
            ends = np.maximum.accumulate(np.maximum(seen - np.array(before_last, np.int64), begun))
        user, system, rank = (b - a for a, b in zip(before, _cpu(), strict=True))
        return {
            "start": begun, "late": late, "end": ends, "cpu_user_ns": user,
            "cpu_system_ns": system, "cpu_rank_ns": rank,
            "cpus": [Kernel().thread(os.getpid()).cpu],
        }  # fmt: skip

    def sockets(self) -> _native.SocketTotals:
        """Totals over all TCP sockets of this process, which are NCCL's."""
        sockets = _native.TcpSockets(set())
        if self._congestion and not sockets.set_congestion_control(self._congestion):
            text = f"the kernel refuses congestion control {self._congestion}"
            raise BackendError("TCP_CONGESTION", -1, text)
        return sockets.totals()

    def close(self) -> None:
        self._backend.close()

    # --- Inside ----------------------------------------------------------------------------------

    def _launch(self, slot: int) -> None:
        for group in self._turns[slot % len(self._turns)] if self._turns else ():
            self._backend.group(
                [
                    PointToPoint(
                        each.sends,
                        each.peer,
                        self._address(slot, each.buffer, each.offset),
                        each.length,
                    )
                    for each in group
                ]
            )
        if self._calls:
            self._backend.collectives(
                [
                    Collective(
                        each.name,
                        self._address(slot, *each.source),
                        self._address(slot, *each.target),
                        each.count,
                        each.element,
                        each.redop,
                        each.factor,
                        each.root,
                    )
                    for each in self._calls
                ]
            )

    def _address(self, slot: int, buffer: BufferId, offset: int) -> int:
        return self._memory[buffer].address + slot * self._strides[buffer] + offset

    def _finish_queued(self) -> None:
        """Wait for what is queued outside of a batch."""
        self._backend.reserve(1)
        self._backend.record(0)
        while not self._backend.reached(0):
            self._backend.check()
            os.sched_yield()

    def _tell(self) -> None:
        now = _native.now_ns()
        if now - self._told_ns < _TELL_NS:
            return
        self._told_ns = now
        self._backend.check()
        while self._completed < self._launched and self._backend.reached(self._completed):
            self._completed += 1
        self._channel.send((PROGRESS, (self._launched, self._completed)))


def serve(channel: Channel, backend_name: str, gpu_pci: str) -> None:
    """Answer requests until the rank is gone. The first answer says that the backend is there."""
    companion: Companion | None = None
    request: tuple[str, tuple[Any, ...]] = ("facts", ())
    while True:
        try:
            if companion is None:
                backend = importlib.import_module(backend_name).open_backend(gpu_pci)
                companion = Companion(channel, backend)
            name, arguments = request
            answer: Any = (DONE, getattr(companion, name)(*arguments))
        except BackendError as error:
            answer = (FAILED, (error.call, error.code, error.text))
        except _native.CudaError as error:  # of what fills and checks its slots
            answer = (FAILED, ("CUDA driver call", -1, str(error)))
        channel.send(answer)
        request = channel.receive(None)


def main() -> None:
    descriptor, parent, backend_name, gpu_pci = sys.argv[1:]
    # A signal for the rank may reach all of its process group: the rank says what it means.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    if not end_with_parent(int(parent)):
        return  # it died before it could be watched
    try:
        serve(Channel(socket.socket(fileno=int(descriptor))), backend_name, gpu_pci)
    except Closed:
        # Not in order: what other threads of this process wait for will never come.
        os._exit(0)


def _wait_until(start_ns: int) -> bool:
    """Returns at the agreed start (0: at once); whether it was missed."""
    now = _native.now_ns()
    while now < start_ns:
        if start_ns - now > _SPIN_NS:
            os.sched_yield()
        now = _native.now_ns()
    return start_ns != 0 and now - start_ns > _SPIN_NS


def _cpu() -> tuple[int, int, int]:
    """User and system time of this process, and both of its rank, which waits; in ns."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    rank_ns = process_cpu_ns(os.getppid())
    return int(usage.ru_utime * 1e9), int(usage.ru_stime * 1e9), rank_ns


if __name__ == "__main__":
    main()

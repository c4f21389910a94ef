"""MPI's own collective for each program of nccl-tests, in place of the plugin's schedule.

The calls are the blocking ones (MPI_Allreduce and so on), because those are what users call and
what a library tunes. They are made by a thread of their own: a rank that waits in one for ever can
so still be stopped, and says where it stood. What a call moves over the wire is the library's
choice; its result is in the same slots, and is checked as the plugin's is.

MPI's arithmetic is that of C: it has no half, bfloat16 or fp8, and no `avg` or `mulsum`. Rows of
those have no figures of it. Programs that only move bytes move those of any type.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.baselines.python_loop import PythonLoop, cpu_times
from tcpx_mpi.records import RowFacts
from tcpx_mpi.schedule.elements import ElementType
from tcpx_mpi.schedule.table import BufferId, Layout, Schedule
from tcpx_mpi.transport.interface import RankContext
from tcpx_mpi.transport.observed_placement import Kernel
from tcpx_mpi.transport.slots import slot_shape
from tcpx_mpi.workload import Workload

_OPERATIONS = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
_TYPES = {
    "int8": "INT8_T",
    "uint8": "UINT8_T",
    "int32": "INT32_T",
    "uint32": "UINT32_T",
    "int64": "INT64_T",
    "uint64": "UINT64_T",
    "float": "FLOAT",
    "double": "DOUBLE",
}
#: To move elements of so many bytes: a count of elements, not of bytes, has to fit in an int.
_TYPE_OF_WIDTH = {1: "UINT8_T", 2: "UINT16_T", 4: "UINT32_T", 8: "UINT64_T"}
#: So close to the agreed start the core is kept.
_SPIN_NS = 20_000


def lacks(type_name: str, redop: str) -> bool:
    """Whether MPI has no such reduction; what only moves bytes has all types."""
    return type_name not in _TYPES or redop not in _OPERATIONS


def lacks_text(workload: Workload) -> str:
    """Which rows of a run have no figures, and why; "" if all have."""
    if not workload.program.reduces:
        return ""
    types = dict.fromkeys(variant.type_name for variant in workload.variants)
    operations = dict.fromkeys(variant.redop for variant in workload.variants)
    reasons = (
        ([name for name in types if name not in _TYPES], "MPI has no such type"),
        ([name for name in operations if name not in _OPERATIONS], "MPI has no such operation"),
    )
    found = [f"{', '.join(names)} ({why})" for names, why in reasons if names]
    return f"n/a for {' and '.join(found)}" if found else ""


class CollectiveLoop(PythonLoop):
    """Runs a batch of calls on a thread of its own, one call an iteration (`-m`: so many)."""

    def __init__(
        self, call: str, comm: Any, mpi: Any, totals: Callable[[], _native.SocketTotals]
    ) -> None:
        """`call` is MPI's name of it; `comm` has the ranks of this rank's group, in their order."""
        super().__init__()
        self._name, self._comm, self._mpi = call, comm, mpi
        self._totals = totals
        self._kernel = Kernel()
        #: What an iteration calls, by slot.
        self._calls: list[list[Callable[[], object]]] = []
        self._schedule: Schedule | None = None
        self._batches: queue.SimpleQueue[tuple[int, int, int]] = queue.SimpleQueue()
        self._over = threading.Event()
        self._cpus: list[int] = []
        self._completed = self._iterations = 0
        # Where it never comes back from a call it must not keep the process.
        self._thread = threading.Thread(target=self._serve, name="mpi", daemon=True)
        self._thread.start()

    def load(self, context: RankContext, facts: RowFacts, layout: Layout, slots: int) -> None:
        """The row to come; `slots` is the longest batch."""
        self._schedule = context.schedule
        self._calls = [
            self._calls_of(context, facts, layout, slot, of_slot)
            for slot, of_slot in enumerate(layouts_of(context, layout, slots))
        ]

    # --- As a timed loop -------------------------------------------------------------------------

    def arm(self, iterations: int) -> None:
        self._ends = np.full(iterations, -1, np.int64)

    def start(
        self, first_slot: int, iterations: int, start_ns: int, stall_ns: int, end_by_ns: int
    ) -> None:
        self._begin(max(_native.now_ns(), start_ns), stall_ns, end_by_ns)
        self._iterations, self._completed = iterations, 0
        self._over.clear()
        self._batches.put((first_slot, iterations, start_ns))

    def wait(self, seconds: float) -> bool:
        if self._over.wait(seconds):
            return True
        self._look_around()
        return self._fault is not None

    def thread_id(self) -> int:
        return self._thread.native_id or os.getpid()

    def cpus_seen(self) -> list[int]:
        return self._cpus

    def picture(self) -> list[_native.FlowReport]:
        assert self._schedule is not None
        completed, iterations = self._completed, self._iterations
        posted = completed + (completed < iterations)
        return self._flows_of_calls(self._schedule, 1, posted, completed, iterations)

    def sockets(self) -> _native.SocketTotals:
        return self._totals()

    # --- The thread ------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            first_slot, iterations, start_ns = self._batches.get()
            try:
                self._run(first_slot, iterations, start_ns)
            except self._mpi.Exception as error:
                self._fail("peer", error.Get_error_class(), f"MPI_{self._name}: {error}")
            self._over.set()

    def _run(self, first_slot: int, iterations: int, start_ns: int) -> None:
        late = self._wait_until(start_ns)
        before = cpu_times()
        begun = start_ns or _native.now_ns()
        ends = self._ends
        for number in range(iterations):
            if self._fault is not None:  # what the main thread has seen meanwhile
                return
            for call in self._calls[first_slot + number]:
                call()
            self._progress_ns = ends[number] = _native.now_ns()
            self._completed = number + 1
        user, system, thread = (b - a for a, b in zip(before, cpu_times(), strict=True))
        self._cpu = (user, system, max(user + system - thread, 0))
        self._cpus = [self._kernel.thread(self.thread_id()).cpu]
        assert self._schedule is not None
        none = np.full(iterations, -1, np.int64)
        self._stamps = {
            "start": begun,
            "late": late,
            "end": ends,
            # A call is over as a whole.
            "send_done": ends if self._schedule.sends else none,
            "receive_done": ends if self._schedule.receives else none,
        }

    def _wait_until(self, start_ns: int) -> bool:
        """Returns at the agreed start (0: at once); whether it was missed."""
        now = _native.now_ns()
        while now < start_ns:
            if start_ns - now > _SPIN_NS:
                os.sched_yield()
            now = _native.now_ns()
        return start_ns != 0 and now - start_ns > _SPIN_NS

    # --- The calls of a row ----------------------------------------------------------------------

    def _calls_of(
        self, context: RankContext, facts: RowFacts, layout: Layout, slot: int, of_slot: Layout
    ) -> list[Callable[[], object]]:
        """One call for each copy of the program that an iteration has, or one behind the other
        for each exchange of it; slots are cut by `layout`."""
        if self._name == "Alltoallv" and context.turns:
            return self._exchanges(context, layout, slot, of_slot)
        sends, receives = (
            _parts(context, layout, buffer, slot, facts.agg)
            for buffer in (BufferId.SEND, BufferId.RECV)
        )
        copies = zip(sends, receives, strict=True)
        return [self._call(facts, layout, send, recv) for send, recv in copies]

    def _exchanges(
        self, context: RankContext, layout: Layout, slot: int, of_slot: Layout
    ) -> list[Callable[[], object]]:
        """A call for each run of blocks that has one a rank."""
        ranks, kind = self._comm.Get_size(), self._mpi.UINT8_T
        calls: list[Callable[[], object]] = []
        for first in range(0, of_slot[BufferId.SEND].blocks // ranks * ranks, ranks):
            sides = []
            for buffer in (BufferId.SEND, BufferId.RECV):
                (whole,) = _parts(context, layout, buffer, slot, 1)
                here = slice(first, first + ranks)
                lengths, offsets = of_slot[buffer].lengths[here], of_slot[buffer].offsets[here]
                sides.append([whole, lengths, offsets, kind])
            calls.append(functools.partial(self._comm.Alltoallv, *sides))
        return calls

    def _call(self, facts: RowFacts, layout: Layout, send: Any, recv: Any) -> Callable[[], object]:
        comm, mpi, name = self._comm, self._mpi, self._name
        width = ElementType.of_label(facts.type_name).bytes
        root, size, rank = facts.root, comm.Get_size(), comm.Get_rank()
        at_root = rank == root
        kind = getattr(mpi, _TYPE_OF_WIDTH[width])
        if name in ("Allreduce", "Reduce_scatter", "Reduce"):
            kind, op = getattr(mpi, _TYPES[facts.type_name]), getattr(mpi, _OPERATIONS[facts.redop])
        source, target = ([part, part.size // width, kind] for part in (send, recv))
        if name == "Allreduce":
            return functools.partial(comm.Allreduce, source, target, op)
        if name == "Reduce_scatter":
            counts = [target[1]] * size
            return functools.partial(comm.Reduce_scatter, source, target, counts, op)
        if name == "Reduce":
            return functools.partial(comm.Reduce, source, target if at_root else None, op, root)
        if name == "Bcast":
            if not at_root:
                return functools.partial(comm.Bcast, target, root)
            return functools.partial(self._broadcast, source, root, recv, send)
        if name == "Allgather":
            return functools.partial(comm.Allgather, source, [*target[:1], source[1], kind])
        if name == "Alltoall":
            each = source[1] // size
            return functools.partial(comm.Alltoall, [send, each, kind], [recv, each, kind])
        if name == "Alltoallv":
            sides = (
                [part, *_counts(layout, buffer, size, width), kind]
                for part, buffer in ((send, BufferId.SEND), (recv, BufferId.RECV))
            )
            return functools.partial(comm.Alltoallv, *sides)
        if name == "Gather":
            into = [recv, source[1], kind] if at_root else None
            return functools.partial(comm.Gather, source, into, root)
        if name == "Scatter":
            of = [send, target[1], kind] if at_root else None
            return functools.partial(comm.Scatter, of, target, root)
        there, here = (rank + 1) % size, (rank - 1) % size
        return functools.partial(
            comm.Sendrecv, source, dest=there, sendtag=0, recvbuf=target, source=here, recvtag=0
        )

    def _broadcast(self, source: Any, root: int, recv: Any, send: Any) -> None:
        """At the root: MPI_Bcast has one buffer, and nccl-tests has the result in another."""
        self._comm.Bcast(source, root)
        recv[:] = send


def layouts_of(context: RankContext, layout: Layout, slots: int) -> list[Layout]:
    """The blocks of each slot: all alike, or those of its turn."""
    return [turn.layout for turn in context.turns] or [layout] * slots


def _parts(
    context: RankContext, layout: Layout, buffer: BufferId, slot: int, copies: int
) -> list[Any]:
    """The bytes of each copy in a slot of a buffer."""
    total = layout[buffer].total_bytes
    if not total:
        return [np.empty(0, np.uint8)] * copies
    whole = context.buffers[buffer].view()
    first, each = slot * slot_shape(total).stride_bytes, total // copies
    return [whole[at : at + each] for at in range(first, first + total, each)]


def _counts(layout: Layout, buffer: BufferId, ranks: int, width: int) -> tuple[Any, Any]:
    """Elements to or from each rank, and where they begin, of the first copy."""
    table = layout[buffer]
    return table.lengths[:ranks] // width, table.offsets[:ranks] // width

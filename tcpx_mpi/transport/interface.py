"""A transport: the plugin's engine, or a baseline beside it, moving bytes over the same slots.

Whatever the frame does (poison, agreed start, stamps, check) it does alike for every transport; a
transport only moves what the schedule says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tcpx_mpi import _native
from tcpx_mpi.machine.placement import Placement
from tcpx_mpi.records import BaselineInfo, GpuRow, RowFacts
from tcpx_mpi.schedule.table import BufferId, Layout, Schedule


class TimedLoop(Protocol):
    """Runs the batches of a loaded row, one at a time; `_native.Runner` is one."""

    def arm(self, iterations: int) -> None:
        """Ready the next batch, of so many iterations, before ranks agree when it begins."""

    def start(
        self, first_slot: int, iterations: int, start_ns: int, stall_ns: int, end_by_ns: int
    ) -> None:
        """Begin a batch: iteration i uses slot first_slot + i of every buffer."""

    def wait(self, seconds: float) -> bool:
        """True when the batch has ended; False after `seconds`."""

    def request_stop(self) -> None:
        """End the batch under way with the fault "stopped"."""

    def idle_ns(self) -> int:
        """The time that the batch under way has made no progress."""

    def stuck_ns(self) -> int:
        """The time that it has been in one call of the plugin."""

    def give_up(self) -> None:
        """A batch that is stuck is over: its fault says in which call."""

    def stamps(self, iterations: int) -> _native.Stamps:
        """The stamps of the last batch."""

    def cpu_time(self) -> tuple[int, int, int]:
        """User and system ns of this process in the last batch, and how much of both was not the
        driving thread's."""

    def thread_id(self) -> int:
        """The kernel's number of the driving thread."""

    def cpus_seen(self) -> list[int]:
        """CPUs on which the driving thread was seen in the last batch."""

    def fault(self) -> _native.Fault | None:
        """The fault that ended the batch early, or None."""

    def picture(self) -> list[_native.FlowReport]:
        """The state of every flow at the fault, or when a report was asked for."""

    def take_picture_ready(self) -> bool:
        """True once after a report was asked for and taken."""

    def sockets(self) -> _native.SocketTotals:
        """Totals by TCP_INFO over the sockets of this transport."""


class GpuWatch(Protocol):
    """The watch over the GPU of a rank in a row."""

    @property
    def unpacks(self) -> bool:
        """Whether it has times of its own to tell, of a batch that is not timed."""

    def before_row(self) -> None:
        """The timed batches are about to begin."""

    def after_row(self) -> None:
        """They are over; from here on the GPU times its unpacks, for a batch that is not timed."""

    def row(self) -> GpuRow:
        """The GPU's readings of the row, once that batch is over."""


class Turn(NamedTuple):
    """The work of one iteration."""

    schedule: Schedule
    layout: Layout


@dataclass(frozen=True, eq=False)
class RankContext:
    """The context that a rank's transports share: schedule, buffers cut into slots, place."""

    schedule: Schedule
    buffers: dict[BufferId, Any]
    placement: Placement
    #: The rank's network interface.
    interface: str
    #: The node of every rank.
    nodes: Sequence[str]
    #: What the plugin started, but for the thread of its timed loop.
    plugin_threads: frozenset[int] = frozenset()
    #: Of the GPU whose memory is used; None without one.
    gpu: GpuWatch | None = None
    #: Of steps that compute: type, operation and factor, by the numbers of `schedule.elements`.
    arithmetic: tuple[int, int, float] | None = None
    #: The buffers of the rank that has the largest.
    most_memory_bytes: int = 0
    #: Of a batch whose iterations differ, those of each slot; else none.
    turns: Sequence[Turn] = ()
    #: Bytes of the longest message of the row, on whatever rank.
    longest_message: Callable[[], int] = lambda: 0

    def by_id(self) -> list[Any]:
        """The buffers in the order of their ids, None if the schedule uses none."""
        return [self.buffers.get(buffer) for buffer in BufferId]


class Transport(Protocol):
    """The plugin's engine, or a baseline."""

    @property
    def info(self) -> BaselineInfo | None:
        """The baseline's description; None for the plugin."""

    @property
    def timed_loop(self) -> TimedLoop: ...

    @property
    def buffers(self) -> Mapping[BufferId, Any]:
        """The buffers of its bytes: the context's, or its own of the same sizes."""

    @property
    def processes(self) -> Sequence[int]:
        """The processes that it has beside the rank's."""

    @property
    def in_place(self) -> bool:
        """Whether, as a baseline, it is beside the plugin in rows in place as well."""

    def has(self, facts: RowFacts) -> bool:
        """Whether it can run such a row; a baseline that cannot is left out of it."""

    def load(
        self, context: RankContext, facts: RowFacts, layout: Layout, longest_batch: int
    ) -> None:
        """The row to come, or the batch: slots are cut by `layout`."""

    def close(self) -> None: ...


def load_native(
    runner: Any, context: RankContext, layout: Layout, chunk_bytes: int, channels: int, batch: int
) -> None:
    """Load a row, or a batch whose iterations differ, into a `_native.Runner`."""
    *before, last = context.turns or [Turn(context.schedule, layout)]

    def set_blocks(turn: Turn) -> None:
        for buffer, table in turn.layout.items():
            runner.set_blocks(int(buffer), table.offsets, table.lengths)

    for turn in before:
        set_blocks(turn)
        runner.add_turn(turn.schedule.table)
    set_blocks(last)
    computes = context.arithmetic or ()
    runner.load(last.schedule.table, chunk_bytes, channels, context.by_id(), batch, *computes)

"""NCCL as a transport: what the frame asks for is done by the companion."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi import _native
from tcpx_mpi.baselines.nccl.channel import PROGRESS
from tcpx_mpi.baselines.nccl.collectives import Arithmetic, Call, calls_of
from tcpx_mpi.baselines.nccl.groups import Piece, groups_of
from tcpx_mpi.baselines.nccl.process import CompanionFailed, CompanionProcess
from tcpx_mpi.baselines.python_loop import PythonLoop
from tcpx_mpi.errors import SetupFailed
from tcpx_mpi.patterns.program import Program
from tcpx_mpi.records import BaselineInfo, RowFacts
from tcpx_mpi.schedule.table import BufferId, Layout, Schedule
from tcpx_mpi.transport.errors import baseline_failure
from tcpx_mpi.transport.interface import RankContext, Turn
from tcpx_mpi.world.patience import SETUP_PATIENCE_S

#: Memory is filled and checked at more than this.
_SLOWEST_BYTES_PER_S = 500e6


class CompanionSlots:
    """A buffer of the companion, cut, filled and checked there, as `_native.SlotBuffer` is here."""

    def __init__(
        self, companion: CompanionProcess, where: str, buffer: BufferId, size: int
    ) -> None:
        self._companion, self._where = companion, where
        self._buffer, self.bytes = buffer, size

    def cut(self, used: int, guard: int, stride: int, count: int) -> None:
        self._ask("cut", used, guard, stride, count)

    def fill(
        self, first: int, count: int, iteration: int, seed: int, spans: NDArray[np.int64]
    ) -> None:
        self._ask("fill", first, count, iteration, seed, spans)

    def poison(
        self, first: int, count: int, iteration: int, seed: int, spans: NDArray[np.int64]
    ) -> None:
        self._ask("poison", first, count, iteration, seed, spans)

    def verify(
        self, first: int, count: int, iteration: int, seed: int, spans: NDArray[np.int64]
    ) -> _native.Verdict:
        verdict: _native.Verdict = self._ask("verify", first, count, iteration, seed, spans)
        return verdict

    def fill_elements(self, *where: Any) -> None:
        self._ask("fill_elements", *where)

    def poison_elements(self, *where: Any) -> None:
        self._ask("poison_elements", *where)

    def verify_elements(self, *where: Any) -> _native.Verdict:
        verdict: _native.Verdict = self._ask("verify_elements", *where)
        return verdict

    def _ask(self, request: str, *arguments: object) -> Any:
        patience_s = SETUP_PATIENCE_S + self.bytes / _SLOWEST_BYTES_PER_S
        return _asked(
            self._companion, self._where, request, self._buffer, *arguments, patience_s=patience_s
        )


class NcclLoop(PythonLoop):
    """Runs a batch in the companion, and waits for it here."""

    def __init__(self, companion: CompanionProcess, where: str) -> None:
        super().__init__()
        self._companion, self._where = companion, where
        self._turns: list[list[list[Piece]]] = []
        self._calls: list[Call] = []
        self._cpus: list[int] = []

    def load(
        self,
        schedule: Schedule,
        turns: list[list[list[Piece]]],
        calls: list[Call],
        longest_batch: int,
    ) -> None:
        """The row to come."""
        self._schedule, self._turns, self._calls = schedule, turns, calls
        _asked(self._companion, self._where, "load", turns, calls, longest_batch,
               patience_s=SETUP_PATIENCE_S)  # fmt: skip

    def start(
        self, first_slot: int, iterations: int, start_ns: int, stall_ns: int, end_by_ns: int
    ) -> None:
        # Until the start nothing can move.
        self._begin(max(_native.now_ns(), start_ns), stall_ns, end_by_ns)
        self._iterations = iterations
        self._launched = self._completed = 0
        try:
            self._companion.request("run", first_slot, iterations, start_ns)
        except CompanionFailed as error:
            self._fail_by(error)

    def wait(self, seconds: float) -> bool:
        if self._fault is not None:
            return True
        try:
            message = self._companion.message(seconds)
            if message is not None and message[0] != PROGRESS:
                self._take(self._companion.result(message))
                return True
        except CompanionFailed as error:
            # A signal to all of the job is not the companion's own death.
            if not (number := _native.stop_signal()):
                self._fail_by(error)
            else:
                self._fail("interrupted", number)
            return True
        if message is not None and message[1] != (self._launched, self._completed):
            self._launched, self._completed = message[1]
            self._progress_ns = _native.now_ns()
        # The companion is left as it is, and ends with this process: if it were gone sooner, others
        # would lose theirs, and take that for the cause.
        self._look_around()
        return self._fault is not None

    def thread_id(self) -> int:
        # Of another process: what /proc says of this one's threads says nothing of it.
        return self._companion.pid

    def cpus_seen(self) -> list[int]:
        return self._cpus

    def picture(self) -> list[_native.FlowReport]:
        """A flow for each peer and direction, of the plugin's schedule where a collective is
        called; NCCL tells only how many iterations are complete."""
        if self._calls:
            launched, completed = self._launched, self._completed
            iterations = self._iterations
            return self._flows_of_calls(self._schedule, iterations, launched, completed, iterations)
        flows: dict[tuple[bool, int], list[Piece]] = {}
        for group in itertools.chain(*self._turns):
            for piece in group:
                flows.setdefault((piece.sends, piece.peer), []).append(piece)
        return [
            _native.FlowReport(
                kind="send" if sends else "receive",
                peer=peer,
                window=self._iterations * len(pieces),
                posted=self._launched * len(pieces),
                arrived=self._completed * len(pieces),
                completed=self._completed * len(pieces),
                bytes=self._completed * sum(piece.length for piece in pieces),
                finished=self._completed == self._iterations,
                oldest_iteration=self._completed,
                oldest_bytes=pieces[0].length,
                oldest_age_ns=self.idle_ns() if self._launched > self._completed else -1,
            )
            for (sends, peer), pieces in flows.items()
        ]

    def sockets(self) -> _native.SocketTotals:
        totals: _native.SocketTotals = _asked(
            self._companion, self._where, "sockets", patience_s=SETUP_PATIENCE_S
        )
        return totals

    # --- Inside ----------------------------------------------------------------------------------

    def _take(self, batch: Mapping[str, Any]) -> None:
        none = np.full(self._iterations, -1, np.int64)
        self._stamps = {
            "start": batch["start"],
            "late": batch["late"],
            "end": batch["end"],
            # A group is complete as a whole.
            "send_done": batch["end"] if self._schedule.sends else none,
            "receive_done": batch["end"] if self._schedule.receives else none,
        }
        user, system, rank = (int(batch[f"cpu_{part}_ns"]) for part in ("user", "system", "rank"))
        # Of the companion, all threads of NCCL; the others are this process, which waited.
        self._cpu = (user, system, rank)
        self._cpus = list(batch["cpus"])

    def _fail_by(self, error: CompanionFailed) -> None:
        self._fail("peer", error.code, str(error))


class NcclBaseline:
    """NCCL on one rank, with one set of variables."""

    def __init__(
        self,
        info: BaselineInfo,
        companion: CompanionProcess,
        sizes: Mapping[BufferId, int],
        rank: int,
        name: str,
        program: Program,
        arithmetic: Arithmetic,
        index: int,
    ) -> None:
        """`name` is that of the rank, for what goes wrong between two batches; `index` is its
        number in the communicator of a collective.
        """
        where = f"{name}, peer {info.name}"
        self.info = info
        self.timed_loop = NcclLoop(companion, where)
        self.buffers = {
            buffer: CompanionSlots(companion, where, buffer, size) for buffer, size in sizes.items()
        }
        self.processes = (companion.pid,)
        self._companion = companion
        self._rank = rank
        self._program = program
        self._arithmetic = arithmetic
        self._index = index
        self.in_place = bool(program.nccl_call)

    def has(self, facts: RowFacts) -> bool:
        lacks = self._arithmetic.lacks
        return not (self._program.reduces and lacks(facts.type_name, facts.redop))

    def load(
        self, context: RankContext, facts: RowFacts, layout: Layout, longest_batch: int
    ) -> None:
        turns: list[list[list[Piece]]] = []
        calls: list[Call] = []
        if self._program.nccl_call:
            factor = context.arithmetic[2] if context.arithmetic is not None else 1.0
            ranks = self._arithmetic.ranks
            calls = calls_of(self._program, facts, layout, factor, self._index, ranks)
        else:
            turns = [
                groups_of(*turn, self._rank)
                for turn in context.turns or [Turn(context.schedule, layout)]
            ]
        self.timed_loop.load(context.schedule, turns, calls, longest_batch)

    def close(self) -> None:
        try:
            self._companion.ask("close", patience_s=SETUP_PATIENCE_S)
        except CompanionFailed as error:
            raise SetupFailed(f"nccl peer: {error}") from None
        self._companion.close()


def _asked(
    companion: CompanionProcess, where: str, request: str, *arguments: object, patience_s: float
) -> Any:
    try:
        return companion.ask(request, *arguments, patience_s=patience_s)
    except CompanionFailed as error:
        raise baseline_failure(where, error.code, str(error)) from None

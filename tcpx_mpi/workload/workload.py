"""The rows of a run: types, operations and roots in turn, each with its patterns.

A row's facts say which patterns it runs, so that planner and measurement ask by them alone.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tcpx_mpi.config.options import OPERATIONS, TYPES
from tcpx_mpi.config.settings import Settings, as_recorded
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns import AUTO, find_program, repeated
from tcpx_mpi.patterns.groups import group_numbers, in_groups, members
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.patterns.recording import Recording
from tcpx_mpi.patterns.unaligned import unaligned
from tcpx_mpi.records import RowFacts
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.elements import ElementType, ReduceOp
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Scaled
from tcpx_mpi.schedule.table import Schedule
from tcpx_mpi.workload.memory import require_memory
from tcpx_mpi.workload.refusals import (
    matrix_of,
    recording_of,
    require_options,
    require_program,
    sequence_of,
)

#: Iterations that differ, of a row that goes on until something is reached.
_OPEN_ENDED_TURNS = 1024
_SCALED = {"avg": Scaled.AFTER, "mulsum": Scaled.BEFORE}


@dataclass(frozen=True)
class Variant:
    """The common part of the rows of one scan through the sizes."""

    type_name: str = RowFacts.type_name
    #: Of an operation, or what the redop column has in its place.
    redop: str = RowFacts.redop
    #: -1 without one.
    root: int = RowFacts.root
    #: Of an open loop; 0 without one.
    rate_per_s: float = RowFacts.rate_per_s


def workload_of(settings: Settings, ranks: int) -> Workload:
    """The workload of settings with `ranks` ranks. Raises UsageError, one line, for what cannot
    be."""
    recording = recording_of(settings, ranks)
    if recording is not None:
        settings = as_recorded(
            settings, recording.busiest_bytes, recording.longest_bytes, recording.depth
        )
    return Workload(settings, ranks, recording).placed(settings)


class Workload:
    """The rows of a run, and the patterns of each; pure, once its matrix is read."""

    def __init__(self, settings: Settings, world: int, recording: Recording | None = None) -> None:
        self._recording = recording
        self.settings = settings
        self.world = world
        self.program = find_program(settings.pattern)
        require_options(settings, self.program)
        #: Of a pattern of bytes: it refuses a matrix by itself.
        self._matrix = None
        if not self.program.typed:
            self._matrix = matrix_of(settings, self.program, world)
        self._sequence = sequence_of(settings, self.program)
        self.algos = self.program.algos
        if self.program.typed and settings.algo in self.algos:
            self.algos = (settings.algo,)
        if refusal := self.program.pattern(self._form(self.algos[0])).refuse(world):
            raise UsageError(refusal)
        #: Ranks that run a program together.
        self.group_size = require_program(settings, self.program, world)
        if self.program.typed:
            self._matrix = matrix_of(settings, self.program, self.group_size)
        self.numbers = group_numbers(settings.groups(), world)
        self.variants = self._variants()
        self._pattern = functools.lru_cache(maxsize=4096)(self._make)

    def placed(self, settings: Settings) -> Workload:
        """The same by the settings of ranks that have taken their places: chunks may be smaller.

        Raises UsageError if a schedule then takes too much memory.
        """
        placed = copy.copy(self)
        placed.settings = settings
        require_memory(settings, self.world, self.of_each_algorithm)
        return placed

    @property
    def chooses(self) -> bool:
        """Whether a row's algorithm is chosen by what is measured."""
        return len(self.algos) > 1

    @property
    def skipped(self) -> str | None:
        """Why no row is run, as nccl-tests says it; None: all are."""
        return self.program.skips(self.group_size)

    @property
    def cycles(self) -> int:
        """Cycles through the sizes until every variant, and every round, was run once."""
        return len(self.variants) * len(self.rounds)

    def facts(self, variant: Variant, size_bytes: int) -> dict[str, Any]:
        """The part of a row's facts that the program gives, for a size that was asked for."""
        element = ElementType.of_label(variant.type_name).bytes
        form = self._form(self.algos[0], element_bytes=element)
        shown = self.program.division(size_bytes, element, self.group_size, form)
        return {
            **dataclasses.asdict(variant),
            "size_bytes": shown.size_bytes,
            "count": shown.count,
            "algo": AUTO if self.chooses else self.algos[0],
        }

    def runs(self, facts: RowFacts) -> list[Pattern]:
        """The runs of a row: out of place, and in place if nccl-tests has that; a pattern with a
        load first alone.
        """
        pattern = self.pattern(facts)
        if self.program.in_place:
            return [pattern, self.pattern(facts, in_place=True)]
        if pattern.rounds is not None:
            if facts.pairs and pattern.rounds.of_pairs is not None:
                return [pattern.rounds.of_pairs(facts.pairs)]
            return [self.rounds[facts.cycle % len(self.rounds)]]
        if pattern.loaded is not None and pattern.loaded.alone is not None:
            return [pattern.loaded.alone, pattern]
        return [pattern]

    def pattern(self, facts: RowFacts, in_place: bool = False, single: bool = False) -> Pattern:
        """The pattern of a row; `single`: one copy of those that `-m` posts together."""
        algo = self.algos[0] if facts.algo == AUTO else facts.algo
        return self._pattern(
            algo, facts.type_name, facts.redop, facts.root, facts.count, in_place,
            1 if single else facts.agg,
        )  # fmt: skip

    def patterns(self, facts: RowFacts) -> list[Pattern]:
        """All that may run in a row, whatever the algorithm; of rounds their whole."""
        places = (False, True) if self.program.in_place else (False,)
        algos = self.algos if facts.algo == AUTO else (facts.algo,)
        return [
            self._pattern(
                algo, facts.type_name, facts.redop, facts.root, facts.count, place, facts.agg
            )
            for algo in algos
            for place in places
        ]

    @functools.cached_property
    def rounds(self) -> Sequence[Pattern]:
        """If there are several, they take the pattern's place, one in the rows of a cycle."""
        whole = repeated(self.single, self.settings.agg_iters)
        whole = unaligned(whole, self.settings.unalign)  # none has types
        return whole.rounds_run(self.world, self.settings.all_pairs, self.settings.most_pairs)

    @functools.cached_property
    def single(self) -> Pattern:
        """One copy of the first row's pattern; where no row is run, that of all."""
        return next(iter(self.of_each_algorithm()), self.connecting_pattern)

    def of_each_algorithm(self) -> list[Pattern]:
        """One copy of the first row's pattern by each algorithm that the rows may have."""
        algos = self.algos if self.skipped is None else ()
        return [self._bare(algo, self.variants[0].root) for algo in algos]

    @functools.cached_property
    def connecting_pattern(self) -> Pattern:
        """A pattern with the peers of all rows, to connect by; of the rest of it only what is the
        same in all of them is used."""
        roots = {variant.root for variant in self.variants}
        forms = [self._bare(algo, root) for algo in self.algos for root in roots]
        first, notes = forms[0], forms[0].notes
        if self.skipped is not None:
            forms, notes = [], (*notes, self.skipped)

        def schedule(rank: int, world: int) -> Schedule:
            steps = ScheduleBuilder()
            found = [form.schedule(rank, world) for form in forms]
            for peer, lane in sorted({peer for each in found for peer in each.peers_received}):
                steps.receive(peer, 0, lane=lane)
            for peer, lane in sorted({peer for each in found for peer in each.peers_sent}):
                steps.send(peer, 0, lane=lane)
            return steps.build()

        return dataclasses.replace(first, schedule=schedule, notes=notes)

    def fingerprint(self) -> str:
        """The values that all ranks must have alike beside their settings; "" for none."""
        if self._recording is not None:
            return f"recording={self._recording.fingerprint}"
        if self._sequence:
            # Thousands of numbers, that nobody reads in an error.
            return f"sequence={hashlib.sha256(repr(self._sequence).encode()).hexdigest()}"
        return "" if self._matrix is None else f"matrix={self._matrix}"

    def origins(self, rank: int) -> list[int]:
        """The ranks of a rank's group."""
        return members(self.numbers, rank)

    def reduce_op(self, facts: RowFacts) -> ReduceOp | None:
        """The operation of a row that computes."""
        return ReduceOp.of_label(facts.redop) if self.program.reduces else None

    def _variants(self) -> list[Variant]:
        """Types, within them operations, within them roots: nccl-tests' order. Of an open loop its
        rates."""
        settings, program = self.settings, self.program
        if not program.typed:
            return [Variant(rate_per_s=rate) for rate in settings.rates] or [Variant()]
        types = TYPES if settings.datatype == "all" else (settings.datatype,)
        redops: Sequence[str] = (program.redop,)
        if program.has_operation:
            redops = OPERATIONS if settings.op == "all" else (settings.op,)
        roots: Sequence[int] = (-1,)
        if program.rooted:
            every = range(self.group_size)
            roots = every if settings.root == "all" else (int(settings.root),)
        return [Variant(kind, redop, root) for kind in types for redop in redops for root in roots]

    def _bare(self, algo: str, root: int) -> Pattern:
        return in_groups(self.program.pattern(self._form(algo, root)), self.numbers)

    def _form(self, algo: str, root: int = -1, **of_row: Any) -> Form:
        """`root`: a row's; -1: that of the settings, where they choose one for all rows."""
        s, by_settings = self.settings, "root" in self.program.options
        return Form(
            algo,
            root=int(s.root) if by_settings else max(root, 0),
            matrix=self._matrix,
            sequence=self._sequence,
            sequence_by=s.sequence_by,
            spread=s.spread,
            seed=s.seed,
            load_bytes=s.load_bytes,
            background_bytes=s.background_bytes,
            senders=s.senders,
            moe=s.moe,
            skew=s.skew,
            recording=self._recording,
            turns=_OPEN_ENDED_TURNS if s.open_ended() else s.warmup_iters + s.iters,
            **of_row,
        )

    def _make(
        self, algo: str, type_name: str, redop: str, root: int, count: int, in_place: bool, agg: int
    ) -> Pattern:
        element = ElementType.of_label(type_name).bytes
        form = self._form(
            algo,
            root,
            element_bytes=element,
            in_place=in_place,
            scaled=_SCALED.get(redop, Scaled.NO) if self.program.reduces else Scaled.NO,
            asked_bytes=count * self.group_size * element,
        )
        made = repeated(in_groups(self.program.pattern(form), self.numbers), agg)
        return unaligned(made, self.settings.unalign * element)

"""What a row does on one rank: its schedule, where its payload stands, what must come out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.patterns import repeated
from tcpx_mpi.records import RowFacts
from tcpx_mpi.run.program_rows import ProgramRows
from tcpx_mpi.schedule.elements import ElementType
from tcpx_mpi.schedule.pattern import Pattern, expected_bytes, held_bytes
from tcpx_mpi.schedule.table import BufferId, Layout
from tcpx_mpi.transport.element_group import ElementGroup
from tcpx_mpi.transport.interface import RankContext

Int64s = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RowWork:
    """What a row does on this rank: out of place, or in place; alone, or under load."""

    pattern: Pattern
    context: RankContext
    layout: Layout
    #: Where the payload stands at the start, and what RECV must hold at the end: int64[n, 4] of
    #: offset, bytes, sender and offset in its payload.
    held: Int64s
    wanted: Int64s
    #: Of elements that are judged as such; None: bytes.
    elements: ElementGroup | None = None
    type_name: str = ""

    @property
    def in_place(self) -> bool:
        return self.pattern.held is not None

    @property
    def payload_buffer(self) -> BufferId:
        return BufferId.RECV if self.in_place else BufferId.SEND


@dataclass(frozen=True, eq=False)
class RowWorks:
    """What the rows of a run are on this rank."""

    rank: int
    world: int
    context: RankContext
    pattern: Pattern
    #: If there are several, they take the pattern's place in the rows of a cycle, one by one.
    rounds: Sequence[Pattern]
    #: What a program of nccl-tests runs in a row, in place of a pattern.
    program: ProgramRows | None = None

    def of(self, facts: RowFacts) -> list[RowWork]:
        """What a row runs: out of place, and in place if nccl-tests has that; a pattern with a
        load first alone.
        """
        if self.program is not None:
            places = (False, True) if self.program.program.in_place else (False,)
            return [self._of_elements(self.program, facts, place) for place in places]
        pattern = self.pattern
        if len(self.rounds) > 1:
            pattern = self.rounds[facts.cycle % len(self.rounds)]
            if facts.pairs and self.pattern.of_pairs is not None:
                pattern = repeated(self.pattern.of_pairs(facts.pairs), facts.agg)
        alone = [] if pattern.alone is None else [pattern.alone]
        return [self._of_bytes(each, facts) for each in (*alone, pattern)]

    def _of_bytes(self, pattern: Pattern, facts: RowFacts) -> RowWork:
        rank, world, size = self.rank, self.world, facts.size_bytes
        return RowWork(
            pattern,
            dataclasses.replace(self.context, schedule=pattern.schedule(rank, world)),
            pattern.layout(rank, world, size),
            held_bytes(pattern, rank, world, size),
            expected_bytes(pattern, rank, world, size),
        )

    def _of_elements(self, program: ProgramRows, facts: RowFacts, in_place: bool) -> RowWork:
        work = self._of_bytes(program.pattern(facts, in_place), facts)
        kind, op = ElementType.of_label(facts.type_name), program.reduce_op(facts)
        if op is None:
            elements = ElementGroup(int(kind), -1, self.world)
            return dataclasses.replace(work, elements=elements, type_name=facts.type_name)
        origins = program.origins(self.rank)
        index = origins.index(self.rank)
        held, wanted = work.held.copy(), work.wanted.copy()
        held[:, 2] = index
        # What comes out is of the whole group, whoever put in what.
        wanted[:, 2] = 0
        arithmetic = (int(kind), int(op), op.factor(index, len(origins)))
        return dataclasses.replace(
            work,
            context=dataclasses.replace(work.context, arithmetic=arithmetic),
            held=held,
            wanted=np.unique(wanted, axis=0),
            elements=ElementGroup(int(kind), int(op), len(origins), origins),
            type_name=facts.type_name,
        )

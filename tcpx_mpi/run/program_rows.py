"""The rows of nccl-tests' programs: types, operations and roots in turn, each with its pattern.

A row's facts say which pattern it runs, so that planner and measurement ask for it by them alone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tcpx_mpi.config.options import NCCL_CALLS, OPERATIONS, TYPES
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns import PROGRAMS, fewer_than_two, find_program, repeated
from tcpx_mpi.patterns.groups import group_numbers, in_groups, members, sizes
from tcpx_mpi.patterns.matrix import Matrix, read_matrix, require_ranks
from tcpx_mpi.patterns.program import Form, Program
from tcpx_mpi.records import RowFacts
from tcpx_mpi.schedule.elements import ElementType, ReduceOp
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.table import Scaled, Schedule, ScheduleBuilder

AUTO = "auto"
#: What NCCL as a peer does by sends and receives: no rank forwards what it received.
GROUPED = ("alltoall", "alltoallv", "gather", "scatter", "sendrecv")

_SCALED = {"avg": Scaled.AFTER, "mulsum": Scaled.BEFORE}


@dataclass(frozen=True)
class Variant:
    """What the rows of one scan through the sizes have in common."""

    type_name: str
    #: Of an operation, or what the redop column has in its place.
    redop: str
    #: -1 without one.
    root: int


def program_rows(settings: Settings, world: int) -> ProgramRows | None:
    """The rows of a run of a program; None for other patterns.

    Raises UsageError, one line, for what cannot be with so many ranks; a matrix is read here.
    """
    if settings.pattern not in PROGRAMS:
        if settings.groups():
            raise UsageError(
                f"{_split_variable(settings)} ({settings.groups()}) makes groups for nccl-tests' "
                f"programs, not for {settings.pattern}: unset it, or use sendrecv or alltoall"
            )
        return None
    program = find_program(settings.pattern)
    if settings.algo not in (AUTO, *program.algos):
        known = ", ".join((AUTO, *program.algos))
        raise UsageError(f"--algo ({settings.algo}) is none of {program.name}: use one of {known}")
    ranks = _group_size(settings, world)
    if program.rooted and settings.root != "all" and int(settings.root) >= ranks:
        raise UsageError(
            f"-r/--root ({settings.root}) is none of {ranks} ranks; use 0 to {ranks - 1}, or all"
        )
    _refuse_peers(settings, program)
    return ProgramRows(settings, world, _matrix(settings, ranks))


def _refuse_peers(settings: Settings, program: Program) -> None:
    """NCCL as a peer has its own collective for a program, or sends that forward nothing."""
    if "nccl" in settings.against and program.name not in (*GROUPED, *NCCL_CALLS):
        raise UsageError(
            f"--against nccl has no {program.name}; use --against raw, which runs "
            "the same schedule over plain TCP"
        )


def _group_size(settings: Settings, world: int) -> int:
    if refusal := fewer_than_two(settings.pattern, world):
        raise UsageError(refusal)
    found = sizes(group_numbers(settings.groups(), world))
    if len(found) > 1 or min(found) < 2:
        counts = ", ".join(map(str, sorted(found)))
        raise UsageError(
            f"{_split_variable(settings)} ({settings.groups()}) makes groups of {counts} of "
            f"{world} ranks; all groups must have as many, and 2 or more"
        )
    return found.pop()


def _split_variable(settings: Settings) -> str:
    return "NCCL_TESTS_SPLIT" if settings.split else "NCCL_TESTS_SPLIT_MASK"


def _matrix(settings: Settings, ranks: int) -> Matrix | None:
    if settings.pattern != "alltoallv" or settings.matrix_path is None:
        return None
    if len(set(settings.sizes)) > 1:
        raise UsageError(
            "-b/--minbytes and -e/--maxbytes must be equal with --matrix, which has the sizes; "
            "give one size that is at least what a rank sends or receives"
        )
    matrix = read_matrix(settings.matrix_path, settings.matrix_scale)
    require_ranks(matrix, ranks, settings.sizes[0], f"--matrix ({settings.matrix_path})")
    return matrix


class ProgramRows:
    """What rows a run of a program has, and their patterns; pure."""

    def __init__(self, settings: Settings, world: int, matrix: Matrix | None = None) -> None:
        self.program: Program = find_program(settings.pattern)
        self.world = world
        self.numbers = group_numbers(settings.groups(), world)
        (self.group_size,) = sizes(self.numbers)
        self._matrix = matrix
        self._settings = settings
        self.algos = self.program.algos if settings.algo == AUTO else (settings.algo,)
        self.variants = variants_of(self.program, settings, self.group_size)
        self._pattern = functools.lru_cache(maxsize=4096)(self._make)

    @property
    def chooses(self) -> bool:
        """Whether a row's algorithm is chosen by what is measured."""
        return len(self.algos) > 1

    def facts(self, variant: Variant, size_bytes: int) -> dict[str, Any]:
        """What the facts of a row have of the program, for a size that was asked for."""
        element = ElementType.of_label(variant.type_name).bytes
        form = Form(self.algos[0], element, matrix=self._matrix, spread=self._settings.spread)
        shown = self.program.division(size_bytes, element, self.group_size, form)
        return {
            "size_bytes": shown.size_bytes,
            "count": shown.count,
            "type_name": variant.type_name,
            "redop": variant.redop,
            "root": variant.root,
            "algo": AUTO if self.chooses else self.algos[0],
        }

    def pattern(self, facts: RowFacts, in_place: bool = False, single: bool = False) -> Pattern:
        """The pattern of a row; `single`: one copy of those that `-m` posts together."""
        algo = self.algos[0] if facts.algo == AUTO else facts.algo
        return self._pattern(
            algo, facts.type_name, facts.redop, facts.root, facts.count, in_place,
            1 if single else facts.agg,
        )  # fmt: skip

    def patterns(self, facts: RowFacts) -> list[Pattern]:
        """All that may run in a row, of whichever algorithm."""
        places = (False, True) if self.program.in_place else (False,)
        algos = self.algos if facts.algo == AUTO else (facts.algo,)
        return [
            self._pattern(
                algo, facts.type_name, facts.redop, facts.root, facts.count, place, facts.agg
            )
            for algo in algos
            for place in places
        ]

    def single(self) -> Pattern:
        """One copy of the first row's pattern; where no row is run, that of all."""
        if self.skipped is not None:
            return self.whole()
        first = self._form(self.algos[0], max(self.variants[0].root, 0))
        return in_groups(self.program.pattern(first), self.numbers)

    def one_of_each_algorithm(self) -> list[Pattern]:
        """One copy of the first row's pattern by each algorithm that the rows may have."""
        root = max(self.variants[0].root, 0)
        return [
            in_groups(self.program.pattern(self._form(algo, root)), self.numbers)
            for algo in self.algos
            if self.skipped is None
        ]

    @property
    def skipped(self) -> str | None:
        """Why no row is run, as nccl-tests says it; None: all are."""
        return self.program.skips(self.group_size)

    def whole(self) -> Pattern:
        """A pattern with the peers of all rows, to connect by; nothing else of it is used."""
        roots = {max(variant.root, 0) for variant in self.variants}
        all_forms = [
            in_groups(self.program.pattern(self._form(algo, root)), self.numbers)
            for algo in self.algos
            for root in roots
        ]
        first = all_forms[0]
        if self.skipped is not None:
            nothing = ScheduleBuilder().build()
            notes = (*first.notes, self.skipped)
            return dataclasses.replace(first, schedule=lambda rank, world: nothing, notes=notes)

        def schedule(rank: int, world: int) -> Schedule:
            steps = ScheduleBuilder()
            found = [form.schedule(rank, world) for form in all_forms]
            for peer in sorted({peer for each in found for peer, _ in each.peers_received}):
                steps.receive(peer, 0)
            for peer in sorted({peer for each in found for peer, _ in each.peers_sent}):
                steps.send(peer, 0)
            return steps.build()

        return dataclasses.replace(first, schedule=schedule)

    def fingerprint(self) -> str:
        """What all ranks must have alike beside their settings."""
        return f"matrix={self._matrix}"

    def origins(self, rank: int) -> list[int]:
        """The ranks of a rank's group."""
        return members(self.numbers, rank)

    def reduce_op(self, facts: RowFacts) -> ReduceOp | None:
        """The operation of a row that computes."""
        return ReduceOp.of_label(facts.redop) if self.program.reduces else None

    def _form(self, algo: str, root: int) -> Form:
        return Form(algo, root=root, matrix=self._matrix, spread=self._settings.spread)

    def _make(
        self, algo: str, type_name: str, redop: str, root: int, count: int, in_place: bool, agg: int
    ) -> Pattern:
        element = ElementType.of_label(type_name).bytes
        form = Form(
            algo,
            element,
            root=max(root, 0),
            in_place=in_place,
            scaled=_SCALED.get(redop, Scaled.NO) if self.program.reduces else Scaled.NO,
            matrix=self._matrix,
            spread=self._settings.spread,
            asked_bytes=count * self.group_size * element,
        )
        return repeated(in_groups(self.program.pattern(form), self.numbers), agg)


def variants_of(program: Program, settings: Settings, ranks: int) -> Sequence[Variant]:
    """Types, within them operations, within them roots: nccl-tests' order."""
    types = TYPES if settings.datatype == "all" else (settings.datatype,)
    redops: Sequence[str] = (program.redop,)
    if program.reduces or not program.redop:
        redops = OPERATIONS if settings.op == "all" else (settings.op,)
    roots: Sequence[int] = (-1,)
    if program.rooted:
        roots = range(ranks) if settings.root == "all" else (int(settings.root),)
    return [Variant(kind, redop, root) for kind in types for redop in redops for root in roots]

"""A program, which goes by a name, and what programs of nccl-tests have in common: a form asks for
one variant.

A pattern that moves bytes is a program with one form, or with one for each root, seed or matrix. A
program of nccl-tests has a root, an algorithm, a type of elements, and perhaps in place, where the
payload stands in RECV at the start. nccl-tests cuts sizes into blocks of whole 16 bytes; `size`
here is its size column, which `Program.division` makes of what was asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tcpx_mpi.patterns.moe_shape import DEFAULT, SKEWS
from tcpx_mpi.patterns.recording import Recording
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Scaled
from tcpx_mpi.schedule.table import BlockTable, BufferId, Wait, ragged_division

#: nccl-tests' blocks are multiples of so many bytes.
ALIGNMENT = 16
#: The algorithm along which ranks pass on what they receive, chunk by chunk.
CHAIN = "ring"
#: What NCCL does by sends and receives in place of a collective of its own.
BY_SENDS = "sends and receives"

#: A step and how to wait for it.
After = list[tuple[int, Wait]]


@dataclass(frozen=True)
class Form:
    """The variant of a program that a row, or the settings, ask for."""

    algo: str = ""
    element_bytes: int = 1
    root: int = 0
    in_place: bool = False
    scaled: Scaled = Scaled.NO
    #: From rank i to rank j, bytes or any unit; None: by distance, as `spread` has it.
    matrix: tuple[tuple[int, ...], ...] | None = None
    #: Several of them, in turn: one an iteration, or one a row.
    sequence: tuple[tuple[tuple[int, ...], ...], ...] = ()
    sequence_by: str = "iteration"
    spread: float = 1.0
    #: Of alltoallv by distance: the size that was asked for; its size column has less.
    asked_bytes: int | None = None
    seed: int = 1
    #: What a rank sends to all in an iteration, beside what is timed.
    load_bytes: int = 4 << 20
    #: The same beside what is timed all the while; 0: nothing.
    background_bytes: int = 0
    #: How many send to the root; 0: all others.
    senders: int = 0
    #: Of a layer of experts; what both may be: `moe_shape`.
    moe: str = DEFAULT
    skew: str = next(iter(SKEWS))
    #: Of a job; None: an invented one.
    recording: Recording | None = None
    #: Iterations of a row that differ; those behind them are as the first ones.
    turns: int = 1


@dataclass(frozen=True)
class Division:
    """A size as nccl-tests divides it."""

    #: The size column: the larger of what a rank sends and receives.
    size_bytes: int
    #: The count column.
    count: int


def as_asked(size_bytes: int, element_bytes: int, world: int, form: Form) -> Division:
    """A pattern's own division, of bytes."""
    return Division(size_bytes, size_bytes)


@dataclass(frozen=True)
class Program:
    """A program: `form` asks `pattern` for one variant of it."""

    name: str
    pattern: Callable[[Form], Pattern]
    #: (bytes asked for, bytes of an element, world, form) -> what the table shows.
    division: Callable[[int, int, int, Form], Division] = as_asked
    #: What `--algo` may be, the default of a run that chooses none first.
    algos: tuple[str, ...] = ("",)
    #: One of nccl-tests, whose rows have a type, and an operation or what stands in its place.
    typed: bool = True
    #: Fields of the settings that choose its form, beside what a row says.
    options: frozenset[str] = frozenset()
    #: `-o` matters.
    reduces: bool = False
    #: `-r` matters, and a row says which root it has.
    rooted: bool = False
    #: nccl-tests has figures of it in place.
    in_place: bool = True
    #: What its redop column shows where it does not reduce; "" for the operation all the same.
    redop: str = "none"
    #: (algorithm, world, size) -> messages one after the other, and bytes that a rank sends.
    cost: Callable[[str, int, int], tuple[float, float]] | None = None
    #: Why its rows are skipped with so many ranks, as nccl-tests does; None: they are not.
    skips: Callable[[int], str | None] = lambda world: None
    #: Its matrix says bytes, so that there is one size; else it says proportions.
    matrix_in_bytes: bool = False
    #: The collective of MPI that it is; "": none.
    mpi: str = ""
    #: The collective of NCCL that it is, or BY_SENDS; "": NCCL has no such thing.
    nccl: str = ""

    def first(self) -> Pattern:
        """The first algorithm, out of place, as a pattern of bytes."""
        return _first(self)

    @property
    def has_operation(self) -> bool:
        """Whether rows differ by `-o`."""
        return self.typed and (self.reduces or not self.redop)

    @property
    def nccl_call(self) -> str:
        """The collective of NCCL that it is; "" if that has sends and receives, or nothing."""
        return "" if self.nccl == BY_SENDS else self.nccl


@functools.cache
def _first(program: Program) -> Pattern:
    return program.pattern(Form(program.algos[0]))


def of_bytes(name: str, pattern: Callable[[Form], Pattern], *options: str) -> Program:
    """A pattern that moves bytes, chosen by these fields of the settings."""
    return Program(
        name, pattern, typed=False, in_place=False, options=frozenset(options), nccl=BY_SENDS
    )


def undivided(size_bytes: int, element_bytes: int, world: int, form: Form) -> Division:
    """One block of all elements."""
    count = size_bytes // element_bytes
    return Division(count * element_bytes, count)


def by_ranks(size_bytes: int, element_bytes: int, world: int, form: Form) -> Division:
    """A block for each rank, of whole 16 bytes."""
    base = block_bytes(size_bytes, world)
    return Division(base * world, base // element_bytes)


def block_bytes(size_bytes: int, world: int) -> int:
    """One rank's block of a size."""
    return size_bytes // world // ALIGNMENT * ALIGNMENT


def equal_blocks(size_bytes: int, world: int) -> BlockTable:
    """A block for each rank, each as long."""
    return BlockTable.of_lengths([size_bytes // world] * world)


def element_blocks(size_bytes: int, parts: int, element_bytes: int) -> BlockTable:
    """All elements in so many blocks, as even as whole elements allow."""
    elements = ragged_division(size_bytes // element_bytes, parts)
    return BlockTable.of_lengths(elements.lengths * element_bytes)


def one_block(size_bytes: int) -> BlockTable:
    return BlockTable.of_lengths([size_bytes])


class Own:
    """A rank's own payload as its steps read it: where it stands, and what they wait for.

    If origins are scaled before they are reduced (`mulsum`), that is a scaled copy: in the first
    blocks of SCRATCH, or in place.
    """

    def __init__(
        self,
        steps: ScheduleBuilder,
        form: Form,
        blocks: int,
        held: Callable[[int], int] = lambda block: block,
        each: bool = True,
    ) -> None:
        """`held`: payload block -> RECV block, in place; `each`: blocks are scaled one by one."""
        self._held = held
        source = BufferId.RECV if form.in_place else BufferId.SEND
        self.buffer = source
        self._scales: list[int] = []
        if form.scaled == Scaled.BEFORE:
            self.buffer = BufferId.RECV if form.in_place else BufferId.SCRATCH
            for first in range(0, blocks, 1 if each else max(blocks, 1)):
                self._scales.append(
                    steps.scale(
                        self._index(source, first),
                        self._index(self.buffer, first),
                        source=source,
                        buffer=self.buffer,
                        blocks=1 if each else blocks,
                    )
                )
        self._wait = Wait.CHUNK if each else Wait.WHOLE
        self._each = each

    def _index(self, buffer: BufferId, block: int) -> int:
        return self._held(block) if buffer == BufferId.RECV else block

    def block(self, block: int) -> int:
        """The number of a block of the payload in `buffer`."""
        return self._index(self.buffer, block)

    def after(self, block: int) -> After:
        """The wait of a step that reads this block."""
        if not self._scales:
            return []
        return [(self._scales[block if self._each else 0], self._wait)]

    def deliver(
        self, steps: ScheduleBuilder, form: Form, block: int, recv_block: int, blocks: int = 1
    ) -> int | None:
        """The payload as it is, or scaled, as the result: of a world of one rank."""
        ready = self.after(block)
        last = ready[0][0] if ready else None
        if self.buffer != BufferId.RECV:
            last = steps.copy(
                self.block(block), recv_block, source=self.buffer, blocks=blocks, after=ready
            )
        return finished(steps, form, recv_block, last)


def finished(
    steps: ScheduleBuilder, form: Form, block: int, last: int | None, blocks: int = 1
) -> int | None:
    """The result of step `last` in RECV, scaled where that comes after the reduction."""
    if form.scaled != Scaled.AFTER:
        return last
    after: After = [] if last is None else [(last, Wait.CHUNK)]
    return steps.scale(block, block, source=BufferId.RECV, blocks=blocks, after=after)


def scaled_copy(form: Form, payload: BlockTable) -> list[int]:
    """Lengths of the blocks that `Own` takes of SCRATCH."""
    takes = form.scaled == Scaled.BEFORE and not form.in_place
    lengths: list[int] = payload.lengths.tolist() if takes else []
    return lengths

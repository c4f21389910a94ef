"""NCCL's own collective for a program of nccl-tests, in place of the plugin's schedule. Pure.

A row is one call an iteration on the same bytes of a slot that the plugin's row has (`-m`: so many
calls in one group, as nccl-tests posts them). Which algorithm moves them is NCCL's choice.

What NCCL's arithmetic lacks has no figures of it. In floating point `avg` multiplies by 1/n before
it adds, which is exact only for n that is a power of two: elsewhere its result may differ from ours
in the last bit, and is no error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcpx_mpi.patterns.program import Program
from tcpx_mpi.records import RowFacts
from tcpx_mpi.schedule.elements import ElementType, ReduceOp
from tcpx_mpi.schedule.table import BufferId, Layout
from tcpx_mpi.workload import Workload

#: Of these the send buffer says how many elements there are, of the others the receive buffer.
_COUNTED_BY_SEND = ("ncclAllReduce", "ncclAllGather", "ncclReduce")
#: Of these RECV has a block of each rank in place; the call is given the rank's own.
_OF_BLOCKS = ("ncclAllGather", "ncclReduceScatter")
_FP8 = (ElementType.F8E4M3, ElementType.F8E5M2)
#: Since when NCCL has what not all of its versions have, and on which GPUs it computes in fp8.
_BFLOAT16_SINCE, _AVG_SINCE, _MULSUM_SINCE, _FP8_SINCE = 21003, 21003, 21104, 22403
_FP8_CAPABILITY = 90


@dataclass(frozen=True)
class Call:
    """One collective on a slot: NCCL's name of it, places in buffers, and what it computes."""

    name: str
    source: tuple[BufferId, int]
    target: tuple[BufferId, int]
    #: As the call counts: elements of a send, or of a receive.
    count: int
    element: ElementType
    #: None if it only moves.
    redop: ReduceOp | None
    #: What `mulsum` multiplies this rank's elements by.
    factor: float
    root: int


def calls_of(
    program: Program, facts: RowFacts, layout: Layout, factor: float, index: int, ranks: int
) -> list[Call]:
    """The calls of an iteration of a row on rank `index` of `ranks`; none without elements.

    In place there is no SEND buffer: the payload stands in RECV, where NCCL wants it there.
    """
    element = ElementType.of_label(facts.type_name)
    sent, received = (_copies(layout, b, facts.agg) for b in (BufferId.SEND, BufferId.RECV))
    name = program.nccl_call
    counted = (sent if name in _COUNTED_BY_SEND else received).each
    source = target = 0
    if not layout[BufferId.SEND].total_bytes and name in _OF_BLOCKS:
        counted //= ranks
        block = index * counted
        source, target = (block, 0) if name == "ncclAllGather" else (0, block)
    count = counted // element.bytes
    redop = ReduceOp.of_label(facts.redop) if program.reduces else None
    if not count:
        return []
    return [
        Call(
            name, sent.place(copy, source), received.place(copy, target), count,
            element, redop, factor, max(facts.root, 0),
        )
        for copy in range(facts.agg)
    ]  # fmt: skip


@dataclass(frozen=True)
class _Copies:
    """The copies of a program in a buffer, one behind the other."""

    buffer: BufferId
    each: int

    def place(self, copy: int, offset: int) -> tuple[BufferId, int]:
        return self.buffer, copy * self.each + offset


def _copies(layout: Layout, buffer: BufferId, copies: int) -> _Copies:
    """Those in `buffer`; where a rank has none of it, those in the other, which it does not use."""
    total = layout[buffer].total_bytes
    if not total:
        buffer = BufferId.RECV if buffer == BufferId.SEND else BufferId.SEND
        total = layout[buffer].total_bytes
    return _Copies(buffer, total // copies)


@dataclass(frozen=True)
class Arithmetic:
    """The arithmetic that NCCL can do on all GPUs of a run."""

    #: As ncclGetVersion has it: 22703 is 2.27.3.
    version: int
    #: Of the oldest GPU: 90 is 9.0.
    capability: int
    #: Ranks that are reduced together.
    ranks: int

    def lacks_type(self, element: ElementType) -> str:
        """Why NCCL reduces no elements of a type; "" if it does."""
        if element == ElementType.BFLOAT16 and self.version < _BFLOAT16_SINCE:
            return f"NCCL has it since {_text(_BFLOAT16_SINCE)}"
        if element in _FP8 and self.version < _FP8_SINCE:
            return f"NCCL has it since {_text(_FP8_SINCE)}"
        if element in _FP8 and self.capability < _FP8_CAPABILITY:
            return "NCCL reduces it on GPUs of compute capability 9.0 and later"
        return ""

    def lacks_op(self, op: ReduceOp) -> str:
        """Why NCCL has no such operation; "" if it has."""
        since = {ReduceOp.AVG: _AVG_SINCE, ReduceOp.MULSUM: _MULSUM_SINCE}.get(op, 0)
        return f"NCCL has it since {_text(since)}" if self.version < since else ""

    def rounds(self, element: ElementType, op: ReduceOp) -> bool:
        """Whether NCCL's result of these may differ from ours in the last bit."""
        return op == ReduceOp.AVG and not element.is_integer and bool(self.ranks & self.ranks - 1)

    def lacks(self, type_name: str, redop: str) -> bool:
        """Whether rows of these have no figures of NCCL."""
        element, op = ElementType.of_label(type_name), ReduceOp.of_label(redop)
        return bool(self.lacks_type(element) or self.lacks_op(op)) or self.rounds(element, op)

    def lacks_text(self, workload: Workload) -> str:
        """Which rows of a run have no figures, and why; "" if all have."""
        if not workload.program.reduces:
            return ""
        labels = dict.fromkeys(variant.type_name for variant in workload.variants)
        types = [ElementType.of_label(label) for label in labels]
        named = dict.fromkeys(variant.redop for variant in workload.variants)
        ops = [ReduceOp.of_label(label) for label in named]
        reasons = [(each.label, self.lacks_type(each)) for each in types]
        reasons += [(each.label, self.lacks_op(each)) for each in ops]
        if any(self.rounds(element, op) for element in types for op in ops):
            why = f"NCCL divides before it adds, which rounds with {self.ranks} ranks"
            reasons.append(("avg in floating point", why))
        found: dict[str, list[str]] = {}
        for label, reason in reasons:
            if reason:
                found.setdefault(reason, []).append(label)
        texts = [f"{', '.join(names)} ({reason})" for reason, names in found.items()]
        return f"n/a for {' and '.join(texts)}" if texts else ""


def arithmetic_of(facts: Sequence[dict[str, str]], ranks: int) -> Arithmetic:
    """The arithmetic that the companions' facts allow on every rank."""
    versions, capabilities = (
        min(int(each[name]) for each in facts) for name in ("version", "capability")
    )
    return Arithmetic(versions, capabilities, ranks)


def _text(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}"

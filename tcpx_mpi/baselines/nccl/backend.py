"""The calls by which a companion process moves bytes: NCCL by CuPy, or a stand-in without a GPU.

A backend is a module with `open_backend(gpu_pci) -> Backend`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tcpx_mpi import _native
from tcpx_mpi.schedule.elements import ElementType, ReduceOp

#: NCCL itself.
NCCL_BACKEND = "tcpx_mpi.baselines.nccl.by_cupy"


class BackendError(Exception):
    """A call failed; `code` is NCCL's result, -1 where it is none of NCCL's."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text}")
        self.call, self.code, self.text = call, code, text


class PointToPoint(NamedTuple):
    """A send or a receive of `length` bytes at an address; many are made within a batch."""

    sends: bool
    peer: int
    address: int
    length: int


class Collective(NamedTuple):
    """A collective at addresses; `call` is NCCL's name, the numbers those of our element types.

    `redop` is None if it only moves; `factor` is what `mulsum` multiplies by.
    """

    call: str
    source: int
    target: int
    elements: int
    element: ElementType
    redop: ReduceOp | None
    factor: float
    root: int


@dataclass(frozen=True)
class Memory:
    """One buffer: its slots (`_native.SlotBuffer`, `_native.CudaSlots`) and where they begin."""

    slots: _native.SlotMemory
    address: int


class Backend(Protocol):
    """A communicator, one stream that work is queued on, and marks between pieces of work.

    Every call but `group`, `collectives`, `record`, `reached` and `ns_between` may take its time.
    All raise BackendError.
    """

    def facts(self) -> dict[str, str]:
        """ "name": what it is, with its version; "model": that of its GPU; "version": of NCCL, as
        ncclGetVersion has it; "capability": of the GPU, 90 for 9.0."""

    def unique_id(self) -> Any:
        """The id that all ranks must have from one of them to `connect`; it can be pickled."""

    def connect(self, unique_id: Any, rank: int, world: int) -> None:
        """Collective over the companions: make the communicator."""

    def allocate(self, size: int) -> Memory:
        """A buffer for as long as the backend lives."""

    def group(self, transfers: Sequence[PointToPoint]) -> None:
        """Queue these as one: none of them waits for another."""

    def collectives(self, calls: Sequence[Collective]) -> None:
        """Queue these as one."""

    def reserve(self, marks: int) -> None:
        """Have so many marks ready."""

    def record(self, mark: int) -> None:
        """Queue a mark behind all that is queued."""

    def reached(self, mark: int) -> bool:
        """Whether everything in front of the mark is complete."""

    def ns_between(self, first: int, last: int) -> int:
        """The time from one mark that was reached to a later one."""

    def check(self) -> None:
        """Raises BackendError if something failed behind our back."""

    def close(self) -> None:
        """Collective over the companions."""

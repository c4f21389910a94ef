"""The elements of a row as a message can carry them: to the process that has a peer's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tcpx_mpi import _native


class ElementGroup(_native.ElementGroup):
    """`_native.ElementGroup` that can be pickled."""

    def __init__(self, dtype: int, redop: int, ranks: int, origins: Sequence[int] = ()) -> None:
        super().__init__(dtype, redop, ranks, list(origins))
        self._arguments = (dtype, redop, ranks, tuple(origins))

    def __reduce__(self) -> tuple[Any, ...]:
        return ElementGroup, self._arguments

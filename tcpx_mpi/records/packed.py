"""Rows in memory, compressed to a tenth until one is read.

Rank 0 has all rows of a run for its footer. A row is dozens of small arrays and numbers, 11 KB of
objects with its summary, whatever its samples are, which lie in a file.
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, overload

from tcpx_mpi.arrays import np
from tcpx_mpi.records.commit_file import CommitFile

_T = TypeVar("_T")

#: Arrays from here on stay what they are: they may be mapped, and as long as a run.
_LARGE_BYTES = 16 << 10
_LEVEL = 1  # of zlib: what matters is in the first


class Packed(Sequence[_T], Generic[_T]):
    """Values one after the other; each look makes one anew, so none is to be changed."""

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        #: What values refer to and is not packed, and the number of each file there.
        self._kept: list[object] = []
        self._files: dict[int, int] = {}

    def append(self, value: _T) -> None:
        """One more."""
        buffer = io.BytesIO()
        _Pickler(buffer, self._keep).dump(value)
        self._packed.append(zlib.compress(buffer.getvalue(), _LEVEL))

    def __len__(self) -> int:
        return len(self._packed)

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> list[_T]: ...
    def __getitem__(self, index: int | slice) -> _T | list[_T]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        value: _T = _Unpickler(io.BytesIO(zlib.decompress(self._packed[index])), self._kept).load()
        return value

    def _keep(self, value: object) -> int | None:
        """The number of what is not packed; None for what is."""
        if isinstance(value, CommitFile):
            if id(value) not in self._files:
                self._files[id(value)] = len(self._kept)
                self._kept.append(value)
            return self._files[id(value)]
        if isinstance(value, np.ndarray) and value.nbytes >= _LARGE_BYTES:
            self._kept.append(value)
            return len(self._kept) - 1
        return None


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, keep: Any) -> None:
        super().__init__(file, protocol=5)
        self._keep = keep

    def persistent_id(self, obj: object) -> int | None:
        kept: int | None = self._keep(obj)
        return kept


class _Unpickler(pickle.Unpickler):
    """The unpickler of data that this process has packed itself."""

    def __init__(self, file: io.BytesIO, kept: Sequence[object]) -> None:
        super().__init__(file)
        self._kept = kept

    def persistent_load(self, pid: int) -> object:
        return self._kept[pid]

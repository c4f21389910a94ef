"""Samples of a row on disk: read on demand, and released again.

So it takes as little memory to write or to read many rows as it takes for one.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tcpx_mpi.arrays import Int64s, np
from tcpx_mpi.errors import UsageError
from tcpx_mpi.records import mapped_arrays
from tcpx_mpi.records.commit_file import CommitFile
from tcpx_mpi.records.row import Row


class StoredArray(NamedTuple):
    """The place of an array of at least one value in a file, and its kind."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.int64]


class StoredSamples(Mapping[str, Int64s]):
    """The samples by phase, as they lie in a file, which is kept open; to read only.

    Each look reads them anew: one who needs them twice keeps them. `places` has, in place of a
    place, what does not lie in the file as it is.
    """

    __slots__ = ("_file", "_places")

    def __init__(self, file: CommitFile, places: Mapping[str, StoredArray | Int64s]) -> None:
        self._file = file
        self._places = places

    def __getitem__(self, phase: str) -> Int64s:
        """Raises UsageError where they are there no more."""
        place = self._places[phase]
        if not isinstance(place, StoredArray):
            return place
        try:
            return self._file.array(*place)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"the samples of a row cannot be read: their file was changed since it was opened, "
                f"or its disk fails: {error}"
            ) from error

    def __contains__(self, phase: object) -> bool:
        return phase in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def shape(self, phase: str) -> tuple[int, ...]:
        """Ranks and iterations, without a look at them."""
        return self._places[phase].shape


def shape_of(samples: Mapping[str, Int64s], phase: str) -> tuple[int, ...]:
    """Ranks and iterations of a phase; of samples in a file without reading them."""
    return samples.shape(phase) if isinstance(samples, StoredSamples) else samples[phase].shape


class Scratch:
    """The samples' place if a run keeps no file: one without a name in `spool`, which goes with the
    last row of it.
    """

    def __init__(self, spool: str | None = None) -> None:
        """Raises OutputFailed if there can be no such file."""
        self._spool = spool
        with mapped_arrays.scratch_file(spool) as file:
            self._file = CommitFile(os.dup(file.fileno()), spool)

    def append_row(self, row: Row) -> Row:
        """The row with its samples there only. Raises OutputFailed if the disk is full."""
        return dataclasses.replace(
            row,
            samples=self._stored(row.samples),
            warmup=self._stored(row.warmup),
            sides={side: self.append_row(other) for side, other in row.sides.items()},
        )

    def _stored(self, samples: Mapping[str, Int64s]) -> StoredSamples:
        return StoredSamples(
            self._file, {phase: self._place(values) for phase, values in samples.items()}
        )

    def _place(self, values: Int64s) -> StoredArray | Int64s:
        if (
            values.size == 0 or values.nbytes >= mapped_arrays.LARGE_BYTES
        ):  # then it is on disk as it is
            return values
        place = StoredArray(self._file.tell(), values.shape, values.dtype)
        try:
            self._file.write(np.ascontiguousarray(values))
        except OSError as error:
            raise mapped_arrays.no_room(error, self._spool) from error
        return place

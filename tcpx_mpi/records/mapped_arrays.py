"""Per-iteration arrays; those over 4 MiB are memory-mapped temporary files.

What a run keeps of every iteration would otherwise be bounded by memory alone. The kernel writes
pages of such a map back when it needs the memory, and reads them again when they are asked for.

`spool` is the directory of these files everywhere; None: the system's for temporary files.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from tcpx_mpi.arrays import np
from tcpx_mpi.errors import OutputFailed

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

#: From so many bytes on an array is on disk.
LARGE_BYTES = 4 << 20
#: What is done to a long series is done to so many of its values at a time.
PIECE = 1 << 18


def empty(
    shape: int | Sequence[int], dtype: DTypeLike = "float64", spool: str | None = None
) -> NDArray[Any]:
    """Like `numpy.empty`; a large one is a map of a file in `spool` that has no name, and goes with
    the array. Raises OutputFailed if the disk has no room for it.
    """
    array = np.dtype(dtype)
    count = _count(shape)
    if count * array.itemsize < LARGE_BYTES:
        return np.empty(shape, array)
    with scratch_file(spool) as file:
        try:
            # Room for all of it now: a full disk could later only be told by SIGBUS.
            os.posix_fallocate(file.fileno(), 0, count * array.itemsize)
        except OSError as error:
            raise no_room(error, spool) from error
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        pages = _pages(file.fileno(), 0, count * array.itemsize, protection, spool)
    return np.frombuffer(pages, array, count).reshape(shape)


def mapped(
    descriptor: int,
    offset: int,
    shape: Sequence[int],
    dtype: DTypeLike,
    spool: str | None = None,
) -> NDArray[Any]:
    """An array in an open file, to read; it outlives the descriptor. At least one value."""
    array = np.dtype(dtype)
    count = _count(shape)
    before = offset % mmap.ALLOCATIONGRANULARITY
    if offset + count * array.itemsize > os.fstat(descriptor).st_size:
        raise ValueError(f"the file ends within {count} values at {offset}")
    length = before + count * array.itemsize
    pages = _pages(descriptor, offset - before, length, mmap.PROT_READ, spool)
    values = np.frombuffer(pages, array, count, before).reshape(shape)
    values.flags.writeable = False
    return values


def _count(shape: int | Sequence[int]) -> int:
    # Not by numpy, whose product of what a file says may be beyond 64 bits.
    return shape if isinstance(shape, int) else math.prod(map(int, shape))


# Not by mmap.mmap: it keeps a descriptor for each of many rows, and a process has 1024 of them.
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
)  # fmt: skip
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def _pages(
    descriptor: int, offset: int, length: int, protection: int, spool: str | None
) -> memoryview:
    """A shared map of a part of a file, until nothing refers to it."""
    place = _LIBC.mmap(None, length, protection, mmap.MAP_SHARED, descriptor, offset)
    if place in (None, ctypes.c_void_p(-1).value):
        raise no_room(OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())), spool)
    pages = (ctypes.c_uint8 * length).from_address(place)
    unmap = weakref.finalize(pages, _LIBC.munmap, place, length)
    unmap.atexit = False  # type: ignore[misc]  # a property; the process's end is enough
    return memoryview(pages)


class Growing:
    """A series that gets longer part by part; on disk once it is large."""

    def __init__(self, dtype: DTypeLike = "int64", spool: str | None = None) -> None:
        self._dtype = np.dtype(dtype)
        self._spool = spool
        self._parts: list[NDArray[Any]] = []
        self._held_bytes = 0
        self._file: BinaryIO | None = None
        self.size = 0

    def append(self, values: NDArray[Any]) -> None:
        """One more part, of one dimension. Raises OutputFailed if the disk has no room."""
        self._parts.append(values)
        self.size += values.size
        self._held_bytes += values.nbytes
        if self._held_bytes >= LARGE_BYTES:
            self._store()

    def array(self) -> NDArray[Any]:
        """All of it so far; it stays what it is when more is appended. Raises OutputFailed."""
        if self._file is None:
            self._parts = [np.concatenate(self._parts)] if self._parts else []
            return self._parts[0] if self._parts else np.empty(0, self._dtype)
        self._store()
        return mapped(self._file.fileno(), 0, (self.size,), self._dtype, self._spool)

    def _store(self) -> None:
        if self._file is None:
            self._file = scratch_file(self._spool)
            weakref.finalize(self, self._file.close)
        try:
            for part in self._parts:
                rest = np.ascontiguousarray(part, self._dtype).data.cast("B")
                while rest:
                    rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise no_room(error, self._spool) from error
        self._parts.clear()
        self._held_bytes = 0


def scratch_file(spool: str | None = None) -> BinaryIO:
    """A file without a name. Raises OutputFailed."""
    try:
        return tempfile.TemporaryFile(buffering=0, dir=spool)
    except OSError as error:
        raise no_room(error, spool) from error


def no_room(error: OSError, spool: str | None = None) -> OutputFailed:
    """Said of a temporary file that cannot be made or written."""
    place = spool or tempfile.gettempdir()
    return OutputFailed(f"a temporary file in {place}: {error.strerror}")


def pieces(count: int) -> Iterator[slice]:
    """A long series in parts, in order: slices that cover `count` values."""
    return (slice(at, min(at + PIECE, count)) for at in range(0, count, PIECE))

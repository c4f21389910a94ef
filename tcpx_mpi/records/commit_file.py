"""A file under HDF5 that a SIGKILL at any instant leaves readable.

HDF5 flushes by several writes into places that the file already uses (the superblock, the groups'
tables). A process killed between two of them leaves a file that opens no more, with every earlier
row in it; killing a writer before each of its writes in turn showed that for one write in four.
So HDF5 writes through this object, which changes nothing that was committed:

* bytes beyond the committed end go to the file at once: no reader follows a reference to them yet;
* changes within the committed part are kept in memory as pages until `commit`, which appends them
  to the file as one redo block, then makes them, then cuts the block off.

A file that ends in a whole redo block was killed while the changes were made: `open_for_reading`
shows it with the changes on top. Any other state is an ordinary HDF5 file, perhaps followed by
bytes that nothing refers to, which HDF5 allows. Power loss is not covered: nothing is fsynced.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tcpx_mpi.arrays import np
from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import open_regular
from tcpx_mpi.records import mapped_arrays
from tcpx_mpi.records.hdf5 import POINTER_BYTES, TEXT_BYTES, Kind, dataset_of, kind_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

PAGE_BYTES = 4096

#: The end of a redo block: magic, bytes of the pages before this, CRC-32 of those.
_FOOTER = struct.Struct("<8sQI")
_MAGIC = b"TCPXREDO"
#: Before each page's bytes: its offset in the file and its length.
_PAGE = struct.Struct("<QI")


#: Of a file, beside its samples: a run of 2,000 ranks and 1,000 rows has 300 MiB of them, which
#: are columns, and 2,000 rows of 64 ranks have 20 MiB.
_MOST_IN_MEMORY = 384 << 20
#: What deflate makes of zeros; texts, each of which is looked for by itself.
_MOST_PACKED = 1032
_MOST_TEXTS = 1 << 17
#: A heap of texts: its magic, the bytes of its head and of each object's head, which has an index
#: (0: the free rest, with its head) and a length.
_HEAP, _HEAD_BYTES, _IN_HEAP = b"GCOL", 16, struct.Struct("<H6xQ")


class CommitFile(io.RawIOBase):
    """The file object that h5py is given; it owns the descriptor."""

    def __init__(self, descriptor: int, spool: str | None = None) -> None:
        """`spool`: see `mapped_arrays`."""
        super().__init__()
        self._fd = descriptor
        self._spool = spool
        self._position = 0
        self._committed = self._size = os.fstat(descriptor).st_size
        self._pages: dict[int, bytearray] = {}
        #: So many bytes of it may yet become memory, by `values`.
        self._room = _MOST_IN_MEMORY

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = origin + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, with zeros beyond the end: HDF5 takes whatever lies in it."""
        view = memoryview(buffer).cast("B")
        count = min(len(view), max(self._size - self._position, 0))
        self._read(view, self._position)
        if view[:4] == _HEAP:
            _require_heap(view)
        self._position += count
        return count

    def array(self, offset: int, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """An array of at least one value in the file, to read; a large one is mapped.

        Raises ValueError if the file ends within it.
        """
        array = np.dtype(dtype)
        size_bytes = math.prod(map(int, shape)) * array.itemsize
        end = offset + size_bytes
        if end > os.fstat(self._fd).st_size:
            raise ValueError(f"it ends within an array of {size_bytes} bytes at {offset}")
        changed = any(page < end and offset < page + PAGE_BYTES for page in self._pages)
        if size_bytes >= mapped_arrays.LARGE_BYTES and not changed:
            return mapped_arrays.mapped(self._fd, offset, shape, array, self._spool)
        values = mapped_arrays.empty(shape, array, self._spool)
        self._read(values.data.cast("B"), offset)
        values.flags.writeable = False
        return values

    def values(self, group: Any, name: str) -> NDArray[Any]:
        """All values of a dataset of a group of HDF5 in this file.

        Raises KeyError if there is none. Raises ValueError if it claims more than the file holds,
        lies in another file, or would need more room unpacked than there is.
        """
        dataset = dataset_of(group, name)
        kind, shape, stored_bytes = kind_of(dataset), dataset.shape, dataset.get_storage_size()
        size_bytes = math.prod(shape) * kind.dtype.itemsize
        if size_bytes == 0:
            return np.empty(shape, kind.dtype)
        offset = dataset.get_offset()  # none of what is in chunks, or in another file
        if offset is None or not (kind.lies_so or kind.texts):
            return self._unpacked(dataset, name, kind)
        if size_bytes > stored_bytes:
            raise ValueError(f"{name} says that it has {size_bytes} bytes and has not")
        self._take_room(name, size_bytes)
        if kind.lies_so:
            return self.array(offset, shape, kind.dtype)
        return self._texts(dataset, name, kind, offset)

    def _unpacked(self, dataset: Any, name: str, kind: Kind) -> NDArray[Any]:
        """Values that do not lie in the file as they are."""
        import h5py

        if kind.dtype.hasobject:
            raise ValueError(f"{name} has texts as no release wrote them")
        found = h5py.Dataset(dataset)
        if found.external or found.is_virtual:
            raise ValueError(f"{name} lies in another file")
        size_bytes, value_bytes = found.size * kind.dtype.itemsize, kind.dtype.itemsize
        chunk_bytes = math.prod(found.chunks or ()) * value_bytes
        stored_bytes = dataset.get_storage_size() * (_MOST_PACKED if found.chunks else 1)
        if size_bytes > stored_bytes:
            raise ValueError(f"{name} says that it has {size_bytes} bytes and has not")
        self._take_room(name, max(size_bytes, chunk_bytes))
        values: NDArray[Any] = found[()]
        return values

    def _texts(self, dataset: Any, name: str, kind: Kind, offset: int) -> NDArray[Any]:
        import h5py

        count = math.prod(dataset.shape)
        if count > _MOST_TEXTS:
            raise ValueError(f"{name} says that it has {count} texts")
        self._require_texts(dataset, name, kind, offset)
        # Several of its texts may be one in the file: how long all are is known when they are here.
        at_once = max(self._room // max(self._size, 1), 1)
        if not dataset.shape or at_once >= dataset.shape[0]:
            found = np.empty(dataset.shape, kind.dtype)
            dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, found, kind.memory)
            self._take_room(name, _text_bytes(found))
            return found
        whole = h5py.Dataset(dataset)
        parts = [whole[:0]]
        for start in range(0, dataset.shape[0], at_once):
            parts.append(whole[start : start + at_once])
            self._take_room(name, _text_bytes(parts[-1]))
        return np.concatenate(parts)

    def _require_texts(self, dataset: Any, name: str, kind: Kind, offset: int) -> None:
        """Raises ValueError if a text says that it is longer than the file.

        HDF5 believes such a length: it clears so much memory before it looks for the text.
        """
        value_bytes = kind.dtype.itemsize + len(kind.texts) * (TEXT_BYTES - POINTER_BYTES)
        if dataset.get_storage_size() != math.prod(dataset.shape) * value_bytes:
            raise ValueError(f"{name} has texts as no release wrote them")
        lengths = np.dtype(
            {
                "names": [str(place) for place in kind.texts],
                "formats": ["<u4"] * len(kind.texts),
                "offsets": kind.texts,
                "itemsize": value_bytes,
            }
        )
        table = self.array(offset, dataset.shape, lengths)
        longest = max(int(table[str(place)].max()) for place in kind.texts)
        if longest > self._size:
            raise ValueError(f"{name} has a text of {longest} bytes, more than the file")

    def _take_room(self, name: str, size_bytes: int) -> None:
        self._room -= size_bytes
        if self._room < 0:
            raise ValueError(f"with {name} it would take more than {_MOST_IN_MEMORY} bytes")

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        start = self._position
        end = start + len(view)
        inside = min(max(self._committed - start, 0), len(view))
        for page in _pages_of(start, start + inside):
            kept = self._pages.get(page) or self._load(page)
            first, last = max(start, page), min(start + inside, page + len(kept))
            kept[first - page : last - page] = view[first - start : last - start]
        _write_at(self._fd, view[inside:], start + inside)
        self._size = max(self._size, end)
        self._position = end
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        self._size = self._position if size is None else size
        return self._size

    def flush(self) -> None:
        """Nothing: HDF5 flushes when it likes, `commit` is called when the file is whole."""

    def commit(self) -> None:
        """Make the file what HDF5 believes it to be, in one step as far as a reader can tell."""
        end = max(self._size, self._committed)
        os.ftruncate(self._fd, end)
        if self._pages:
            _write_at(self._fd, memoryview(_redo_block(self._pages)), end)
            for page, kept in self._pages.items():
                _write_at(self._fd, memoryview(kept), page)
            self._pages.clear()
        os.ftruncate(self._fd, self._size)
        self._committed = self._size

    def close(self) -> None:
        """Close without a commit."""
        if not self.closed:
            super().close()
            os.close(self._fd)

    def recover(self) -> None:
        """Lay the changes of a redo block at the end of the file over it, if there is one."""
        pages = _read_redo(self._fd, self._size)
        if pages is not None:
            self._pages = pages

    def _read(self, view: memoryview, start: int) -> None:
        """The bytes there when the changes are made, zeros beyond the end."""
        _read_at(self._fd, view, start)
        if not self._pages:
            return
        for page in _pages_of(start, start + len(view)):
            kept = self._pages.get(page)
            if kept is None:
                continue
            first, last = max(start, page), min(start + len(view), page + len(kept))
            if first < last:
                view[first - start : last - start] = kept[first - page : last - page]

    def _load(self, page: int) -> bytearray:
        """The committed part of a page, to be changed in memory."""
        kept = bytearray(min(PAGE_BYTES, self._committed - page))
        _read_at(self._fd, memoryview(kept), page)
        self._pages[page] = kept
        return kept


def open_for_reading(path: str) -> CommitFile:
    """The file as its last begun commit would have left it. Raises UsageError for what is no file,
    or cannot be read."""
    file = CommitFile(open_regular(path, remedy="give the HDF5 file of a run"))
    try:
        file.recover()
    except OSError as error:
        file.close()
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    return file


def _require_heap(view: memoryview) -> None:
    """Raises OSError for a heap of texts whose walk does not come to its end: HDF5's never does."""
    size = int.from_bytes(view[8:16], "little")
    at = _HEAD_BYTES
    while at + _HEAD_BYTES <= min(size, len(view)):
        index, length = _IN_HEAP.unpack_from(view, at)
        step = _HEAD_BYTES + -(-length // 8) * 8 if index else length
        if not _HEAD_BYTES <= step <= size - at:
            raise OSError("a heap of its texts is damaged")
        at += step


def _text_bytes(values: NDArray[Any]) -> int:
    """The bytes of the texts in an array, or in the columns of a table."""
    if values.dtype.names:
        return sum(_text_bytes(values[name]) for name in values.dtype.names)
    if not values.dtype.hasobject:
        return 0
    return sum(len(text) for text in values.ravel().tolist() if isinstance(text, (bytes, str)))


def _pages_of(start: int, end: int) -> Iterator[int]:
    """The offsets of the pages that [start, end) touches."""
    return iter(range(start - start % PAGE_BYTES, end, PAGE_BYTES) if start < end else ())


def _redo_block(pages: dict[int, bytearray]) -> bytes:
    body = b"".join(_PAGE.pack(page, len(kept)) + kept for page, kept in pages.items())
    return body + _FOOTER.pack(_MAGIC, len(body), zlib.crc32(body))


def _read_redo(descriptor: int, size: int) -> dict[int, bytearray] | None:
    """The pages of a whole redo block at the end of the file, or None."""
    if size < _FOOTER.size:
        return None
    footer = bytearray(_FOOTER.size)
    _read_at(descriptor, memoryview(footer), size - len(footer))
    magic, body_bytes, crc = _FOOTER.unpack(footer)
    start = size - len(footer) - body_bytes
    if magic != _MAGIC or start < 0:
        return None
    body = bytearray(body_bytes)
    _read_at(descriptor, memoryview(body), start)
    if zlib.crc32(body) != crc:
        return None
    pages, position = {}, 0
    while position + _PAGE.size <= len(body):
        page, length = _PAGE.unpack_from(body, position)
        position += _PAGE.size
        pages[page] = body[position : position + length]
        position += length
        if length > PAGE_BYTES or page % PAGE_BYTES or page + length > start:
            return None  # none of ours, whatever its checksum
    return pages if position == len(body) else None


def _read_at(descriptor: int, view: memoryview, offset: int) -> None:
    done = os.preadv(descriptor, [view], offset)
    while done < len(view):
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if count == 0:
            view[done:] = bytes(len(view) - done)
            return
        done += count


def _write_at(descriptor: int, view: memoryview, offset: int) -> None:
    done = 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)

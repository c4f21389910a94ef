"""Opens an input and hands out its bytes piece by piece, unpacked, never more than its limits."""

from __future__ import annotations

import bz2
import contextlib
import errno
import hashlib
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

from tcpx_mpi.errors import UsageError

STDIN = "-"
#: So much is read, and at most so much unpacked, at a time.
PIECE_BYTES = 1 << 16
_NULL = os.makedev(1, 3)
#: What an xz file may want for its dictionary; `xz -9` wants 65 MiB.
_XZ_MEMORY_BYTES = 128 << 20
#: Archives one after the other in a file. Each is found by a copy of the piece that it begins in.
_MOST_MEMBERS = 1 << 16


@dataclass(frozen=True)
class Limits:
    """The limits of an unpacked input; more is refused."""

    bytes: int
    lines: int = 1 << 20
    #: gzip, bzip2 and xz are unpacked.
    archives: bool = False


class Input:
    """One input. `named` is how a message calls it, `remedy` what to give in its place."""

    def __init__(self, path: str, limits: Limits, named: str = "", remedy: str = "") -> None:
        self.path = path
        self.limits = limits
        self._named = named or path
        self._remedy = f"; {remedy}" if remedy else ""
        #: Of all bytes as they were there, packed: when they were read to the end.
        self.digest = hashlib.sha256()
        self._packed_bytes = 0

    def refused(self, cause: str, remedy: bool = True) -> UsageError:
        """The error of an input that is not what it should be."""
        return UsageError(f"{self._named}: {cause}{self._remedy if remedy else ''}")

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, unpacked, in order. Raises UsageError if it cannot be read, for a device,
        for a broken archive, and for more than the limit."""
        total = 0
        with contextlib.closing(self._unpacked(self._read())) as pieces:
            for piece in pieces:
                total += len(piece)
                if total > self.limits.bytes:
                    raise self._too_large()
                yield piece

    def content(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces())

    def _too_large(self) -> UsageError:
        return self.refused(f"is larger than {_size(self.limits.bytes)}")

    def _read(self) -> Iterator[bytes]:
        """The bytes as they lie there."""
        try:
            with _opened(self) as read:
                while piece := read(PIECE_BYTES):
                    self.digest.update(piece)
                    self._packed_bytes += len(piece)
                    if self._packed_bytes > self.limits.bytes:
                        raise self._too_large()
                    yield piece
        except OSError as error:
            raise self.refused(_cause(error)) from None

    def _unpacked(self, pieces: Iterator[bytes]) -> Generator[bytes, None, None]:
        first = b""
        while self.limits.archives and len(first) < _MAGIC_BYTES and (more := next(pieces, b"")):
            first += more
        form = _form_of(first)
        if form is None:
            yield first
            yield from pieces
            return
        try:
            yield from _inflated(form, first, pieces)
        except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
            raise self.refused(f"cannot be unpacked: {error}") from None


def read_bytes(path: str, limits: Limits, named: str = "", remedy: str = "") -> bytes:
    """All bytes of an input. Raises UsageError, as all here do."""
    return Input(path, limits, named, remedy).content()


def read_text(path: str, limits: Limits, named: str = "", remedy: str = "") -> str:
    """All of an input that has to be UTF-8, and no more lines than its limit."""
    source = Input(path, limits, named, remedy)
    content = source.content()
    if content.count(b"\n") >= limits.lines:
        raise source.refused(f"has more than {limits.lines} lines")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise source.refused(f"is no text: byte {error.start} is no UTF-8") from None


def open_regular(path: str, named: str = "", remedy: str = "") -> int:
    """A descriptor of a regular file, to read parts of it: its size bounds what it can hold."""
    source = Input(path, Limits(0), named, remedy)
    try:
        # A pipe without a writer would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise source.refused(_cause(error)) from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise source.refused(_kind(mode))
    return descriptor


def is_stream(path: str) -> bool:
    """Whether there is no file whose name another could have: standard input, or a pipe."""
    return path == STDIN or (os.path.exists(path) and not os.path.isfile(path))


@contextlib.contextmanager
def _opened(source: Input) -> Iterator[Callable[[int], bytes]]:
    if source.path == STDIN:
        yield cast(io.BufferedReader, sys.stdin.buffer).read1
        return
    try:
        # What a path is, before it is opened: opening some devices does things.
        found = os.stat(source.path)
    except ValueError as error:
        raise source.refused(_cause(error)) from None
    device = stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)
    if stat.S_ISDIR(found.st_mode) or (device and found.st_rdev != _NULL):
        raise source.refused(_kind(found.st_mode))
    descriptor = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        yield partial(os.read, descriptor)
    finally:
        os.close(descriptor)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "is a directory"
    return "is a pipe or a socket" if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else "is a device"


def _cause(error: OSError | ValueError) -> str:
    if isinstance(error, ValueError):  # a NUL in a path
        return "is no path"
    if error.errno == errno.ENOENT:
        return "no such file"
    return f"cannot be read: {error.strerror or error}"


def _size(count: int) -> str:
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << shift:
            return f"{count >> shift} {unit}"
    return f"{count} bytes"


# --- Archives -------------------------------------------------------------------------------------


class _Unpacker(Protocol):
    """One archive: as those of bz2 and lzma."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def needs_input(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gzip:
    """zlib's, in the same form."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._member.unconsumed_tail

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._member.decompress(self._member.unconsumed_tail + data, max_length)


_Form = tuple[bytes, Callable[[], _Unpacker]]
_FORMS: tuple[_Form, ...] = (
    (b"\x1f\x8b", _Gzip),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)),
)
_MAGIC_BYTES = max(len(magic) for magic, _ in _FORMS)


def _form_of(start: bytes) -> _Form | None:
    return next((form for form in _FORMS if start.startswith(form[0])), None)


def _inflated(form: _Form, start: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Every archive in turn: `cat a.gz b.gz` is a file, too. Of one that was cut off, what is
    there; what follows the last and is none is passed over."""
    magic, make = form
    for _ in range(_MOST_MEMBERS):
        unpacker = make()
        while not unpacker.eof:
            if unpacker.needs_input and not start and not (start := next(pieces, b"")):
                return
            yield unpacker.decompress(start, PIECE_BYTES)
            start = b""
        start = unpacker.unused_data
        while len(start) < len(magic) and (more := next(pieces, b"")):
            start += more
        if not start.startswith(magic):
            return
    raise EOFError(f"it has more than {_MOST_MEMBERS} archives, one after the other")

"""Opens what nccl-tests printed or wrote: packed or not, from a file or a pipe, in any encoding."""

from __future__ import annotations

import bz2
import codecs
import hashlib
import lzma
import os
import re
import stat
import sys
import zlib
from typing import BinaryIO, Protocol

from tcpx_mpi.errors import UsageError
from tcpx_mpi.exchange.nccl_tests.document import parse_document
from tcpx_mpi.exchange.nccl_tests.model import Log
from tcpx_mpi.exchange.nccl_tests.text import parse_text

STDIN = "-"
#: More than any log; reading a wrong file ends here.
_MAX_BYTES = 1 << 30
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
#: Colours and cursor movements of a terminal, its titles, and what a log has of a bell.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00\x07]")


class _Unpacker(Protocol):
    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


def read_log(path: str) -> Log:
    """The run of nccl-tests in a file, as far as it is whole: its output, or its JSON.

    Raises UsageError for a file that is missing, is neither, or holds several runs.
    """
    content = _content(path)
    text = _text(_unpacked(path, content))
    log = (parse_document if text.lstrip().startswith("{") else parse_text)(path, text)
    log.name = "standard input" if path == STDIN else os.path.basename(path)
    log.sha256 = hashlib.sha256(content).hexdigest()
    return log


def read_text(path: str) -> str:
    """The lines of any log: unpacked, decoded, without what is for terminals.

    Raises UsageError for a file that is missing, is no file, or cannot be read.
    """
    return _text(_unpacked(path, _content(path)))


def is_stream(path: str) -> bool:
    """Whether there is no file whose name another could have: standard input, or a pipe."""
    return path == STDIN or (os.path.exists(path) and not os.path.isfile(path))


def _content(path: str) -> bytes:
    try:
        if path == STDIN:
            content = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            _require_readable(path)
            with open(path, "rb") as file:
                content = _read(file)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise UsageError(f"{path} is larger than 1 GiB: that is no log of nccl-tests")
    return content


def _require_readable(path: str) -> None:
    what = ""
    if not os.path.exists(path):
        what = "no such file"
    elif os.path.isdir(path):
        what = "is a directory"
    elif stat.S_ISCHR(os.stat(path).st_mode) or stat.S_ISBLK(os.stat(path).st_mode):
        what = "is a device"
    if what:
        raise UsageError(f"{path}: {what}; give what nccl-tests printed, or wrote by -J")


def _read(file: BinaryIO) -> bytes:
    return file.read(_MAX_BYTES + 1)


def _unpacked(path: str, content: bytes) -> bytes:
    """The content of a gzip, bzip2 or xz file; of one that was cut off, what is there."""
    if content.startswith(b"\x1f\x8b"):
        return _gunzipped(path, content)
    if content.startswith(b"BZh"):
        return _inflated(path, bz2.BZ2Decompressor(), content)
    if content.startswith(b"\xfd7zXZ\x00"):
        return _inflated(path, lzma.LZMADecompressor(), content)
    return content


def _gunzipped(path: str, content: bytes) -> bytes:
    """All members: `cat a.gz b.gz` is a file, too."""
    found = b""
    while content.startswith(b"\x1f\x8b"):
        member = zlib.decompressobj(wbits=31)
        found += _inflated(path, member, content, _MAX_BYTES + 1 - len(found))
        content = member.unused_data
    return found


def _inflated(path: str, unpacker: _Unpacker, content: bytes, limit: int = _MAX_BYTES + 1) -> bytes:
    try:
        found = unpacker.decompress(content, limit)
    except (zlib.error, lzma.LZMAError, OSError) as error:
        raise UsageError(f"{path} cannot be unpacked: {error}") from error
    if len(found) >= limit:
        raise UsageError(f"{path} is larger than 1 GiB: that is no log of nccl-tests")
    return found


def _text(content: bytes) -> str:
    """Lines without what is for terminals; a log has what ranks print, too, in any encoding."""
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            text = content[len(mark) :].decode(encoding, "replace")
            break
    else:
        text = content.decode(_guessed(content), "replace")
    text = _ESCAPES.sub("", text)
    return re.sub("\r+\n?", "\n", text).replace("\t", " ").replace("\xa0", " ")


def _guessed(content: bytes) -> str:
    """The encoding of a text without a mark: every second byte of English in UTF-16 is 0."""
    start = content[:4096]
    for odd, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(start) > 1 and start[odd::2].count(0) > 0.9 * len(start[odd::2]):
            return encoding
    return "utf-8"

"""A disk in this process's memory that can hang, or fail: FUSE's protocol, without its library.

It needs /dev/fuse and the right to mount. Of the kernel's questions it answers those that files,
folders and HDF5 lead to (linux/fuse.h has their layout).
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import struct
import threading
from dataclasses import dataclass, field
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_MOST_BYTES = 128 << 10
_IN, _OUT = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
_ATTR = struct.Struct("<6Q3I7I")
_WRITES = (16, 35, 9)  # WRITE, CREATE, MKDIR
_SIZE_IS_SET = 1 << 3


@dataclass
class _Node:
    mode: int
    content: bytearray = field(default_factory=bytearray)
    names: dict[bytes, int] = field(default_factory=dict)
    links: int = 1


class FuseDisk:
    """A disk at `folder`; `fault` is "", "hang" (nothing is answered any more) or "EIO" (of what
    is written)."""

    def __init__(self, folder: Path) -> None:
        self._nodes = {1: _Node(stat.S_IFDIR | 0o755)}
        self._fault, self._changed = "", threading.Condition()
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other"
        if _LIBC.mount(b"tests", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "mount of a FUSE disk")
        threading.Thread(target=self._serve, daemon=True).start()

    def begin(self, fault: str) -> None:
        """From now on."""
        with self._changed:
            self._fault = fault
            self._changed.notify_all()

    def _serve(self) -> None:
        asked = select.poll()
        asked.register(self._device, select.POLLIN)
        while True:
            asked.poll()
            with self._changed:
                # A question that was read is waited for also by a process that is killed.
                self._changed.wait_for(lambda: self._fault != "hang")
                try:
                    self._answer(os.read(self._device, _MOST_BYTES + 4096))
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.EAGAIN):  # it was taken back
                        return  # unmounted

    def _answer(self, question: bytes) -> None:
        _, operation, unique, number, *_ = _IN.unpack_from(question)
        try:
            if self._fault == "EIO" and operation in _WRITES:
                raise OSError(errno.EIO, "")
            answer = self._do(operation, number, question[_IN.size :])
        except OSError as error:
            self._reply(_OUT.pack(_OUT.size, -(error.errno or errno.EIO), unique))
        else:
            if answer is not None:
                self._reply(_OUT.pack(_OUT.size + len(answer), 0, unique) + answer)

    def _reply(self, answer: bytes) -> None:
        try:
            os.write(self._device, answer)
        except OSError as error:
            if error.errno != errno.ENOENT:  # who asked is gone
                raise

    def _do(self, operation: int, number: int, rest: bytes) -> bytes | None:
        """The answer to one question; None where there is none. Raises OSError."""
        if operation in (2, 42, 36):  # FORGET, BATCH_FORGET, INTERRUPT
            return None
        node = self._nodes.get(number) or self._nodes[1]
        if operation == 26:  # INIT
            return struct.pack("<4I2H2I2HI7I", 7, 31, 0, 1 << 5, 16, 12, _MOST_BYTES, 1, 0, 0, 0,
                               *[0] * 7)  # fmt: skip
        if operation == 1:  # LOOKUP
            return self._entry(self._child(node, _name(rest)))
        if operation == 3:  # GETATTR
            return struct.pack("<QII", 0, 0, 0) + self._attributes(number)
        if operation == 4:  # SETATTR
            valid, _, _, size = struct.unpack_from("<IIQQ", rest)
            if valid & _SIZE_IS_SET:
                del node.content[size:]
                node.content.extend(bytes(size - len(node.content)))
            return struct.pack("<QII", 0, 0, 0) + self._attributes(number)
        if operation in (8, 9):  # MKNOD, MKDIR
            mode = struct.unpack_from("<I", rest)[0] | (stat.S_IFDIR if operation == 9 else 0)
            return self._entry(self._make(node, _name(rest[16 if operation == 8 else 8 :]), mode))
        if operation == 35:  # CREATE
            mode = struct.unpack_from("<II", rest)[1]
            return self._entry(self._make(node, _name(rest[16:]), mode)) + struct.pack(
                "<QII", 0, 0, 0
            )
        if operation in (10, 11):  # UNLINK, RMDIR
            self._nodes[self._child(node, _name(rest))].links -= 1
            del node.names[_name(rest)]
            return b""
        if operation == 13:  # LINK
            old = struct.unpack_from("<Q", rest)[0]
            node.names[_name(rest[8:])] = old
            self._nodes[old].links += 1
            return self._entry(old)
        if operation in (12, 45):  # RENAME, RENAME2
            target = self._nodes[struct.unpack_from("<Q", rest)[0]]
            old_name, new_name = rest[8 if operation == 12 else 16 :].split(b"\0")[:2]
            target.names[new_name] = self._child(node, old_name)
            del node.names[old_name]
            return b""
        if operation in (14, 27):  # OPEN, OPENDIR
            return struct.pack("<QII", 0, 0, 0)
        if operation == 15:  # READ
            _, offset, size = struct.unpack_from("<QQI", rest)
            return bytes(node.content[offset : offset + size])
        if operation == 16:  # WRITE
            _, offset, size = struct.unpack_from("<QQI", rest)
            node.content.extend(bytes(max(offset - len(node.content), 0)))
            node.content[offset : offset + size] = rest[40 : 40 + size]
            return struct.pack("<II", size, 0)
        if operation == 17:  # STATFS
            return struct.pack("<5Q4I6I", 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 4096, 255,
                               4096, 0, *[0] * 6)  # fmt: skip
        if operation == 28:  # READDIR
            _, offset, size = struct.unpack_from("<QQI", rest)
            return _listing(node, offset, size)
        if operation in (18, 29, 20, 30):  # RELEASE, RELEASEDIR, FSYNC, FSYNCDIR
            return b""
        raise OSError(errno.ENOSYS, "")  # FLUSH among them, so that no end of a process waits

    def _child(self, folder: _Node, name: bytes) -> int:
        if name not in folder.names:
            raise OSError(errno.ENOENT, "")
        return folder.names[name]

    def _make(self, folder: _Node, name: bytes, mode: int) -> int:
        number = max(self._nodes) + 1
        self._nodes[number] = _Node(mode)
        folder.names[name] = number
        return number

    def _entry(self, number: int) -> bytes:
        return struct.pack("<4Q2I", number, 0, 0, 0, 0, 0) + self._attributes(number)

    def _attributes(self, number: int) -> bytes:
        node = self._nodes[number]
        size = len(node.content)
        return _ATTR.pack(number, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, node.mode,
                          max(node.links, 1), 0, 0, 0, 4096, 0)  # fmt: skip


def _name(rest: bytes) -> bytes:
    return rest.split(b"\0", 1)[0]


def _listing(folder: _Node, offset: int, size: int) -> bytes:
    found = b""
    for place, (name, number) in enumerate(folder.names.items(), 1):
        one = struct.pack("<QQII", number, place, len(name), 0) + name
        one += bytes(-len(one) % 8)
        if place > offset and len(found) + len(one) <= size:
            found += one
    return found

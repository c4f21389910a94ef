"""New files: a file gets its name when it can be read, and replaces nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterable
from typing import BinaryIO

from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.records.names import candidate_names, require_writable

#: What a file system without hard links answers.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}

Writer = Callable[[BinaryIO], None]


class NewFile:
    """A file without a name, until it is given one: of a writer that is killed nothing is left.

    Where a file system has none without a name it is called PATH.*.unfinished until then.
    """

    def __init__(self, path: str) -> None:
        """In the folder of `path`. Raises UsageError if no file can be made there, by that name."""
        self._path, self._unfinished = path, ""
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            with contextlib.suppress(FileNotFoundError):
                os.lstat(path)  # a name that can be none
            try:
                self.descriptor = os.open(os.path.dirname(path) or ".", flags | os.O_TMPFILE, 0o666)
            except OSError:
                unfinished = f"{path}.{secrets.token_hex(4)}.unfinished"
                self.descriptor = os.open(unfinished, flags | os.O_CREAT | os.O_EXCL, 0o666)
                self._unfinished = unfinished
        except OSError as error:
            raise UsageError(f"cannot create {path}: {error.strerror}") from error

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the descriptor; nothing is left of what got no name."""
        os.close(self.descriptor)
        if self._unfinished:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._unfinished)

    def name(self, name: str) -> bool:
        """Gives it a name unless something has that: a rename would replace it. Raises OSError."""
        try:
            if self._unfinished:
                os.link(self._unfinished, name)
            else:  # with a descriptor beside it, or the link itself would be linked
                os.link(f"/proc/self/fd/{self.descriptor}", name, src_dir_fd=self.descriptor)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS or not self._unfinished:
                raise
            try:
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return False
            os.replace(self._unfinished, name)
        return True

    def first_free_name(self) -> str:
        """Gives it its own name, or the first free one beside that; which one. Raises OSError."""
        return next(name for name in candidate_names(self._path) if self.name(name))


def require_new(path: str, option: str) -> None:
    """Raise UsageError unless `path`, which `option` gave, is free for a file. Creates nothing."""
    require_writable(path, option)
    if os.path.lexists(path):
        raise _exists(path, option)


def require_creatable(path: str, what: str) -> None:
    """As `require_writable`, tried and not only looked at: root may write everywhere, and yet not
    in /proc. No file is left.
    """
    require_writable(path, what)
    with NewFile(path):
        pass


def write_new_file(path: str, write: Writer, option: str) -> None:
    """Fill a new file.

    Raises UsageError if it exists or cannot be made, and OutputFailed if it cannot be
    filled; nothing is left behind then.
    """
    require_new(path, option)
    with NewFile(path) as new:
        try:
            with os.fdopen(new.descriptor, "wb", closefd=False) as file:
                write(file)
            named = new.name(path)
        except OSError as error:
            raise OutputFailed(f"{path}: cannot write: {error.strerror or error}") from error
    if not named:
        raise _exists(path, option)


def write_text(path: str, text: str | Iterable[str]) -> str:
    """Write a text, or its parts as they are made, to `path` or the first free name beside it.

    Returns the name used. Raises UsageError if no file can be made, OutputFailed if it cannot be
    filled. No half of a file is left then, nor if a part cannot be made.
    """
    with NewFile(path) as new:
        try:
            with os.fdopen(
                new.descriptor, "w", encoding="utf-8", newline="", closefd=False
            ) as file:
                file.writelines([text] if isinstance(text, str) else text)
            return new.first_free_name()
        except OSError as error:
            raise OutputFailed(f"{path}: cannot write: {error.strerror}") from error


def _exists(path: str, option: str) -> UsageError:
    return UsageError(f"{option}: {path} exists and is kept: give another name, or remove it first")

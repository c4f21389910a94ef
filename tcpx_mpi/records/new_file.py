"""New files: a file gets its name when it is complete, and replaces nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable
from typing import BinaryIO

from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.records.names import require_writable

#: What a file system without hard links answers.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}

Writer = Callable[[BinaryIO], None]


def require_new(path: str, option: str) -> None:
    """Raise UsageError unless `path`, which `option` gave, is free for a file. Creates nothing."""
    require_writable(path, option)
    if os.path.lexists(path):
        raise _exists(path, option)


def write_new_file(path: str, write: Writer, option: str) -> None:
    """Fill a new file.

    Raises UsageError if it exists or cannot be made, and OutputFailed if it cannot be
    filled; nothing is left behind then.
    """
    require_new(path, option)
    unfinished = f"{path}.{secrets.token_hex(4)}.unfinished"
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise UsageError(f"cannot create {path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
        _name(unfinished, path, option)
    except OSError as error:
        raise OutputFailed(f"{path}: cannot write: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)


def _name(unfinished: str, path: str, option: str) -> None:
    """Gives a whole file its name unless there is one by now: a rename would replace it."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        raise _exists(path, option) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            raise _exists(path, option) from None
        os.replace(unfinished, path)


def _exists(path: str, option: str) -> UsageError:
    return UsageError(f"{option}: {path} exists and is kept: give another name, or remove it first")

"""Names of result files: an existing file is never overwritten."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator

from tcpx_mpi.errors import UsageError

HDF5_SUFFIXES = (".h5", ".hdf5")


def candidate_names(path: str) -> Iterator[str]:
    """`o.h5`, `o.0.h5`, `o.1.h5`, ... for HDF5 files, `o.json`, `o.json.0`, ... for others."""
    yield path
    stem, suffix = os.path.splitext(path)
    number = 0
    while True:
        if suffix in HDF5_SUFFIXES:
            yield f"{stem}.{number}{suffix}"
        else:
            yield f"{path}.{number}"
        number += 1


def free_name(path: str) -> str:
    """The first of these that nothing has."""
    return next(name for name in candidate_names(path) if not os.path.lexists(name))


def default_run_name(pattern: str, start: datetime.datetime) -> str:
    """The file of a run for which nobody gave a name, in the working directory."""
    return f"tcpx-mpi-{pattern}-{start:%Y%m%d-%H%M%S}.h5"


def require_writable(path: str, what: str) -> None:
    """Raise UsageError unless a file `path` can be created; `what` names its option.

    Creates nothing, so that it can be asked long before there is anything to write.
    """
    directory = os.path.dirname(path) or "."
    if not path or os.path.isdir(path):
        raise UsageError(f"{what}: {path!r} is a directory; give the name of a file in it")
    if os.path.exists(path) and not os.path.isfile(path):
        nothing = ", or none" if what == "--hdf5" else ""
        raise UsageError(f"{what}: {path} is a device or a pipe; give the name of a file{nothing}")
    if not os.path.isdir(directory):
        raise UsageError(f"{what}: the directory {directory} does not exist; make it first")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageError(f"{what}: the output directory {directory} is not writable")


def create_exclusively(path: str) -> tuple[int, str]:
    """Open the first free name of `path`; return its file descriptor and that name.

    Raises UsageError if no file can be made.
    """
    for name in candidate_names(path):
        try:
            return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), name
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"cannot create {name}: {error.strerror}") from error
    raise AssertionError("candidate_names never ends")

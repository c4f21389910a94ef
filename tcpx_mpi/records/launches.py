"""Several launches of one run in one file: the first is the root, the others are groups of it.

So every reader finds an ordinary run, and one that knows of launches finds all of them.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.records.commit_file import CommitFile, open_for_reading
from tcpx_mpi.records.names import require_writable
from tcpx_mpi.records.new_file import NewFile
from tcpx_mpi.records.schema import mark

GROUP = "launches"
#: The variable that gives a launch of `tune` its turn: what it changes of today's settings.
TURN_VARIABLE = "TCPX_MPI_TUNE"
#: Attribute of the root: how many launches were to come.
PLANNED = "launches_planned"


class LaunchesWriter:
    """The file of several launches while they are made; whole after each `append`."""

    def __init__(self, path: str, planned: int | None, option: str = "--hdf5") -> None:
        """Create `path`, or the first free name beside it; `planned` launches are to come, None: as
        many as do.

        Raises UsageError, which names the option, if no file can be made, OutputFailed if it cannot
        be written to.
        """
        import h5py

        require_writable(path, option)
        try:
            with NewFile(path) as new:
                self._commits = CommitFile(os.dup(new.descriptor))
                self._file = h5py.File(self._commits, "w")
                mark(self._file)
                self._file.flush()
                self._commits.commit()
                self.path = new.first_free_name()
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            raise OutputFailed(f"{path}: cannot mark: {' '.join(str(error).split())}") from error
        self._planned = planned
        self._failed = False
        self.launches = 0

    def append(self, launch: str) -> bool:
        """Take over the file of a launch, or of several; False for one that ended before its header
        was whole.

        Raises OutputFailed if it cannot be read or kept.
        """
        import h5py

        try:
            with open_for_reading(launch) as stored, h5py.File(stored, "r") as source:
                if "rows" not in source:  # what a header ends with
                    return False
                found = [source, *(source.get(GROUP) or {}).values()]
                for number, each in enumerate(found, self.launches):
                    self._take(each, number)
            after = self.launches + len(found)
            self._file.attrs[PLANNED] = self._planned or after
            self._file.flush()
            self._commits.commit()
        except (UsageError, OSError, RuntimeError, ValueError, KeyError) as error:
            self._failed = True  # what was half written is in no commit, and must not come into one
            text = " ".join(str(error).split())
            raise OutputFailed(f"{self.path}: cannot take over {launch}: {text}") from error
        self.launches = after
        return True

    def _take(self, source: Any, number: int) -> None:
        """One launch, as the one of this number from 0."""
        name_of_group = f"{GROUP}/launch_{number:06d}"
        target = self._file.create_group(name_of_group) if number else self._file
        for name in source:
            if name != GROUP:
                source.copy(name, target)
        for name, value in source.attrs.items():
            target.attrs[name] = value

    def close(self) -> None:
        """Close the file; nothing is left of one without a launch. Twice is once."""
        if self._commits.closed:
            return
        with contextlib.suppress(OSError, RuntimeError):
            self._file.close()
        if self.launches and not self._failed:
            try:
                self._commits.commit()
            except OSError as error:
                self._failed = True
                raise OutputFailed(f"{self.path}: cannot be concluded: {error}") from error
            finally:
                self._commits.close()
        self._commits.close()
        if not self.launches:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

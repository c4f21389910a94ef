"""The folders in which Open MPI keeps files while ranks of one machine run: ours, so that none is
left of ranks that are killed."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping

#: By the variable that names it, where the folder is made; "" for that of temporary files.
_ROOMS = {"PRTE_MCA_prte_tmpdir_base": "", "OMPI_MCA_btl_sm_backing_directory": "/dev/shm"}


@contextlib.contextmanager
def rooms_of_mpi() -> Iterator[Mapping[str, str]]:
    """The variables that name the folders, which are there for as long as the block runs; none for
    one that cannot be made."""
    made: dict[str, str] = {}
    for variable, where in _ROOMS.items():
        with contextlib.suppress(OSError):
            made[variable] = tempfile.mkdtemp(prefix="tcpx-mpi-", dir=where or None)
    try:
        yield made
    finally:
        for folder in made.values():
            shutil.rmtree(folder, ignore_errors=True)

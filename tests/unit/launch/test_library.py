"""What an MPI library is set up with, and what is said of one that is not there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tcpx_mpi.world import library_settings


@pytest.mark.parametrize(
    ("library", "btl"),
    [
        ("Open MPI v5.0.8, package: Open MPI root@x, ident: 5.0.8", "tcp,sm,self"),
        # Shared memory had another name then, and MPI_Init fails for a name that is not there.
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4", "tcp,vader,self"),
    ],
)
def test_open_mpi_is_given_the_ways_that_its_version_has(library: str, btl: str) -> None:
    assert library_settings(library) == {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": btl}
    assert library_settings(library, tcp_only=True)["OMPI_MCA_btl"] == "tcp,self"


def test_mpich_is_held_to_tcp_where_that_is_asked_for() -> None:
    library = "MPICH Version: 4.0.2"
    assert library_settings(library) == {}
    held = library_settings(library, tcp_only=True)
    assert held == {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}


#: A launcher of two ranks, of which this process is one.
AS_RANK = {"PMI_RANK": "{rank}", "PMI_SIZE": "2", "MPI_LOCALRANKID": "{rank}"}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_library_that_cannot_be_loaded_is_one_line_of_one_rank_of_a_node(rank: int) -> None:
    launcher = {name: value.format(rank=rank) for name, value in AS_RANK.items()}
    done = subprocess.run(
        [sys.executable, "-m", "tcpx_mpi", "run", "ring", "--plugin", "softtcpx"],
        env={**os.environ, **launcher, "MPI4PY_LIBMPI": "/nowhere/libmpi.so"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    if rank != 0:
        assert done.stderr == ""
        return
    assert done.stderr.count("\n") == 1
    for words in ("no MPI library can be loaded on", "/nowhere/libmpi.so", "MPI4PY_LIBMPI"):
        assert words in done.stderr


def test_a_library_of_another_mpi_than_the_launchers_is_one_line() -> None:
    environ = {name: value.format(rank=0) for name, value in AS_RANK.items()}
    done = subprocess.run(
        [sys.executable, "-m", "tcpx_mpi", "run", "ring", "--plugin", "softtcpx"],
        env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if "no MPI library" in done.stderr:
        pytest.skip(f"needs mpi: {done.stderr}")
    assert done.returncode == 4, done.stderr
    assert "Warning" not in done.stderr
    ours = [line for line in done.stderr.splitlines() if line.startswith("tcpx-mpi: error: ")]
    assert len(ours) == 1
    assert "started 2 ranks, but the MPI library sees 1" in ours[0]

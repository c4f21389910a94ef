"""A signal to one rank, or to mpirun, is one line that says so, and a code that is no defect."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from jobs import Result, mpirun, mpirun_of, started, tcpx_mpi
from variants import variant

pytestmark = pytest.mark.multirank

RUN = ("run", "ring", "--plugin", "softtcpx", "-b", "8", "-e", "8", "--duration", "120s",
       "--hdf5", "none")  # fmt: skip


def launched(how: str) -> list[str]:
    return tcpx_mpi(*RUN, "--ranks", "3") if how == "--ranks" else mpirun(3, *RUN)


def require_one_line(result: Result, said: str) -> None:
    assert len(result.errors) == 1, result.text
    assert said in result.errors[0], result.text
    assert "Traceback" not in result.err, result.text


@pytest.mark.parametrize("how", [variant("--ranks"), "mpirun"])
@pytest.mark.parametrize(
    ("rank", "number"),
    [(1, signal.SIGTERM), variant(2, signal.SIGINT)],
)
def test_a_rank_that_gets_a_signal_alone_is_named_by_all(
    how: str, rank: int, number: signal.Signals, place: Path
) -> None:
    with started(launched(how), place) as job:
        pid = job.ranks()[rank]
        os.kill(pid, number)
        result = job.finish()
    assert result.code == 128 + number, result.text
    require_one_line(result, f"ended by signal {int(number)}, which came to this rank alone")
    assert result.errors[0].startswith(f"rank {rank} on "), result.text
    assert f"it was sent to process {pid} by process {os.getpid()} of its node" in result.err


@pytest.mark.parametrize("how", [variant("--ranks"), "mpirun"])
def test_rank_0_that_gets_it_alone_says_so(how: str, place: Path) -> None:
    with started(launched(how), place) as job:
        job.send_rank(0, signal.SIGTERM)
        result = job.finish()
    assert result.code == 143, result.text
    require_one_line(result, "interrupted by signal 15")


@pytest.mark.parametrize("number", [signal.SIGTERM, variant(signal.SIGINT)])
def test_an_mpirun_of_ours_that_gets_a_signal_is_no_defect(
    number: signal.Signals, place: Path
) -> None:
    with started(launched("--ranks"), place) as job:
        os.kill(mpirun_of(job), number)
        result = job.finish()
    # mpirun hands SIGTERM to its ranks, whatever it has got itself.
    assert result.code in (143, 128 + number), result.text
    require_one_line(result, "interrupted by signal")


@pytest.mark.parametrize("number", [variant(signal.SIGTERM), signal.SIGINT])
def test_a_users_own_mpirun_that_gets_a_signal_shows_the_line_of_rank_0(
    number: signal.Signals, place: Path
) -> None:
    with started(launched("mpirun"), place) as job:
        job.ranks()
        job.send(number)
        result = job.finish()
    assert result.code != 0, result.text  # Open MPI's own, which is 1
    require_one_line(result, "interrupted by signal")

"""No rank waits for ever before the world is there: --setup-timeout ends all, and says why. Ranks
that stop or hang in each phase of the set-up, and signals then: `tests/faults`.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from jobs import GONE_S, Job, started, tcpx_mpi
from refplugin_build import build
from variants import variant

from tcpx_mpi.plugin.find import bundled_dir

pytestmark = pytest.mark.multirank

ODD = Path(__file__).parents[1] / "refplugin" / "oddplugin.cc"
#: Longer than ranks take to come up here, much shorter than the default.
LIMIT = "6"
RUN = ("run", "ring", "-b", "8", "-e", "8", "-n", "2", "--hdf5", "none")


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build(tmp_path_factory.mktemp("oddplugin"), ODD))


def variables(mode: str) -> dict[str, str]:
    return {"ODD_MODE": mode, "ODD_REAL": os.path.join(bundled_dir(), "libnccl-net-softtcpx.so")}


def launched(*arguments: str) -> list[str]:
    return tcpx_mpi(*arguments, "--ranks", "2")


def process_of(job: Job, rank: int) -> int:
    """The process of a rank, as soon as it is there."""
    deadline = time.monotonic() + GONE_S
    mark = f"OMPI_COMM_WORLD_RANK={rank}".encode()
    while time.monotonic() < deadline:
        for pid in job.processes():
            try:
                environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended
            if mark in environ:
                return pid
        time.sleep(0.005)  # a poll with a deadline: mpirun tells nobody
    raise AssertionError(f"no process of rank {rank}")


@pytest.mark.parametrize(
    "where",
    [
        variant({}, id="tried"),
        pytest.param({"ODD_IN_RANKS": "1"}, id="in ranks"),
    ],
)
def test_a_plugin_that_never_returns_ends_all_ranks_and_is_named(
    where: dict[str, str], odd: str, place: Path
) -> None:
    command = launched(*RUN, "--plugin", odd, "--setup-timeout", LIMIT)
    with started(command, place, {**variables("properties spin"), **where}) as job:
        result = job.finish()
    assert result.code == 4, result.text
    said = f"set-up did not end within --setup-timeout ({LIMIT} s): this rank waits for the devices"
    assert any(said in line and odd in line for line in result.errors), result.text


def stop_at(job: Job, rank: int, waits_for: str) -> None:
    """Stop a rank of which its launcher's table says that it waits for this; "" for at once."""
    pid = process_of(job, rank)
    table = Path(f"/proc/{pid}/environ").read_bytes().split(b"TCPX_MPI_SETUP_TABLE=")[1]
    path = Path(os.fsdecode(table.split(b"\0")[0]))
    deadline = time.monotonic() + GONE_S
    while waits_for and waits_for.encode() not in path.read_bytes()[256 * rank : 256 * (rank + 1)]:
        assert time.monotonic() < deadline, path.read_bytes()
        time.sleep(0.0005)  # a poll with a deadline
    os.kill(pid, signal.SIGSTOP)


def test_a_rank_that_never_spoke_is_named_by_the_launcher(place: Path) -> None:
    command = launched(*RUN, "--plugin", "softtcpx", "--setup-timeout", LIMIT)
    with started(command, place) as job:
        stop_at(job, 1, "")
        result = job.finish()
    assert result.code == 4, result.text
    assert len(result.errors) == 1, result.text
    assert "rank 1 never spoke (process" in result.errors[0], result.text


def test_the_first_signal_ends_a_set_up_of_which_all_ranks_are_stopped(
    odd: str, place: Path
) -> None:
    with started(launched(*RUN, "--plugin", odd), place, variables("init spins")) as job:
        stop_at(job, 0, "own start")
        stop_at(job, 1, "")
        job.send(signal.SIGINT)
        result = job.finish()
    assert result.code == 130, result.text


@pytest.mark.variant
@pytest.mark.parametrize("command", [variant("smoke"), "selftest"])
def test_other_commands_of_ranks_have_the_deadline_too(command: str, place: Path) -> None:
    with started(launched(command, "--setup-timeout", LIMIT), place) as job:
        stop_at(job, 1, "")
        result = job.finish()
    assert result.code == 4, result.text
    assert any("rank 1 never spoke" in line for line in result.errors), result.text


@pytest.mark.variant
def test_a_run_that_comes_up_is_not_ended_by_it(place: Path) -> None:
    options = ("--plugin", "softtcpx", "--setup-timeout", "10", "--duration", "11s")
    with started(launched(*RUN, *options), place) as job:
        result = job.finish()
    assert result.code == 0, result.text
    assert "set-up" not in result.err

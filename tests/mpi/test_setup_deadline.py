"""No rank waits for ever before the world is there: --setup-timeout ends all, and says why."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import GONE_S, Job, mpirun, started, tcpx_mpi
from refplugin_build import build

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


def launched(how: str, *arguments: str) -> list[str]:
    if how == "mpirun":
        return mpirun(2, *arguments)
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
    ("how", "mode", "waits_for"),
    [
        pytest.param("mpirun", "init spins", "init of the plugin", marks=pytest.mark.variant),
        pytest.param(
            "mpirun", "devices spin", "the devices of the plugin", marks=pytest.mark.variant
        ),
        ("--ranks", "properties spin", "the devices of the plugin"),
    ],
)
@pytest.mark.parametrize(
    "where",
    [
        pytest.param({}, id="tried", marks=pytest.mark.variant),
        pytest.param({"ODD_IN_RANKS": "1"}, id="in ranks"),
    ],
)
def test_a_plugin_that_never_returns_ends_all_ranks_and_is_named(
    how: str, mode: str, waits_for: str, where: dict[str, str], odd: str, place: Path
) -> None:
    command = launched(how, *RUN, "--plugin", odd, "--setup-timeout", LIMIT)
    with started(command, place, {**variables(mode), **where}) as job:
        result = job.finish()
    assert result.code == 4, result.text
    said = f"set-up did not end within --setup-timeout ({LIMIT} s): this rank waits for {waits_for}"
    assert any(said in line and odd in line for line in result.errors), result.text


def until(job: Job, rank: int, waits_for: str) -> int:
    """The process of a rank of which its launcher's table says that it waits for this; "" for at
    once."""
    pid = process_of(job, rank)
    table = Path(f"/proc/{pid}/environ").read_bytes().split(b"TCPX_MPI_SETUP_TABLE=")[1]
    path = Path(os.fsdecode(table.split(b"\0")[0]))
    deadline = time.monotonic() + GONE_S
    while waits_for and waits_for.encode() not in path.read_bytes()[256 * rank : 256 * (rank + 1)]:
        assert time.monotonic() < deadline, path.read_bytes()
        time.sleep(0.0005)  # a poll with a deadline
    return pid


def stop_at(job: Job, rank: int, waits_for: str) -> None:
    """Stop a rank where it waits for this."""
    os.kill(until(job, rank, waits_for), signal.SIGSTOP)


@pytest.mark.parametrize(
    ("stopped", "waits_for"),
    [
        pytest.param(0, "", marks=pytest.mark.variant),
        pytest.param(1, "own start", marks=pytest.mark.variant),
        pytest.param(0, "MPI library", marks=pytest.mark.variant),
        pytest.param(1, "MPI_Init", marks=pytest.mark.variant),
    ],
)
def test_a_rank_that_was_stopped_on_its_way_is_named_and_all_are_ended(
    waits_for: str, stopped: int, place: Path
) -> None:
    command = launched("--ranks", *RUN, "--plugin", "softtcpx", "--setup-timeout", LIMIT)
    with started(command, place) as job:
        stop_at(job, stopped, waits_for)
        result = job.finish()
    assert result.code == 4, result.text
    # Where it was stopped behind the last wait of the table, the others may name it by a roll call.
    named = [x for x in result.errors if f"rank {stopped}" in x and "stopped" in x]
    assert named or any("did not answer" in x for x in result.errors), result.text


def test_a_rank_that_never_spoke_is_named_by_the_launcher(place: Path) -> None:
    command = launched("--ranks", *RUN, "--plugin", "softtcpx", "--setup-timeout", LIMIT)
    with started(command, place) as job:
        stop_at(job, 1, "")
        result = job.finish()
    assert result.code == 4, result.text
    assert len(result.errors) == 1, result.text
    assert "rank 1 never spoke (process" in result.errors[0], result.text


@pytest.mark.variant
def test_the_others_end_by_themselves_under_a_users_own_mpirun(place: Path) -> None:
    """Its mpirun then ends with 4, but now and then one that loses a rank within MPI_Init hangs
    itself (PMIX_ERR_UNREACH): that is its affair."""
    command = launched("mpirun", *RUN, "--plugin", "softtcpx", "--setup-timeout", LIMIT)
    said = f"set-up did not end within --setup-timeout ({LIMIT} s): this rank waits for MPI_Init"
    with started(command, place) as job:
        other = process_of(job, 0)
        os.kill(process_of(job, 1), signal.SIGSTOP)
        assert job.wait_for("^tcpx-mpi: error: rank 0 on .*: " + re.escape(said))
        deadline = time.monotonic() + GONE_S
        while other in job.processes():
            assert time.monotonic() < deadline, "rank 0 has said why and has not ended"
            time.sleep(0.01)  # a poll with a deadline: it is no child of ours


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.variant)]
)
@pytest.mark.parametrize(
    "hang",
    [
        pytest.param(
            lambda job: until(job, 0, "init of the plugin"), id="plugin", marks=pytest.mark.variant
        ),
        pytest.param(
            lambda job: stop_at(job, 1, ""), id="a stopped rank", marks=pytest.mark.variant
        ),
        pytest.param(
            lambda job: (stop_at(job, 0, "own start"), stop_at(job, 1, "")),
            id="all ranks stopped",
        ),
    ],
)
def test_the_first_signal_ends_a_set_up_that_hangs(
    hang: Callable[[Job], object], number: signal.Signals, odd: str, place: Path
) -> None:
    command = launched("--ranks", *RUN, "--plugin", odd)
    with started(command, place, variables("init spins")) as job:
        hang(job)
        job.send(number)
        result = job.finish()
    assert result.code == 128 + number, result.text


@pytest.mark.parametrize("command", [pytest.param("smoke", marks=pytest.mark.variant), "selftest"])
def test_other_commands_of_ranks_have_the_deadline_too(command: str, place: Path) -> None:
    with started(launched("--ranks", command, "--setup-timeout", LIMIT), place) as job:
        stop_at(job, 1, "")
        result = job.finish()
    assert result.code == 4, result.text
    assert any("rank 1 never spoke" in line for line in result.errors), result.text


@pytest.mark.variant
def test_a_run_that_comes_up_is_not_ended_by_it(place: Path) -> None:
    options = ("--plugin", "softtcpx", "--setup-timeout", "10", "--duration", "11s")
    with started(launched("--ranks", *RUN, *options), place) as job:
        result = job.finish()
    assert result.code == 0, result.text
    assert "set-up" not in result.err

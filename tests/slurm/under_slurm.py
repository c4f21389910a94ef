"""The jobs of jobs/ under a real Slurm of two nodes, by the commands of docs/how-to/slurm.md.

Run by `make test SUITE=slurm`; not collected by `make test`.
"""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import h5py
import nccl_tests_logs as logs
import pytest
from jobs import MPIRUN_FAILED
from page_commands import documented
from private_slurm import Job, Slurm

from tcpx_mpi import cli
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.records import Run, read_run

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "how-to" / "slurm.md").read_text()
SUBMITTED = [each.text for each in documented() if each.text.startswith("sbatch ")]
#: What makes a job small; the command line of a page wins.
SMALL = {"PLUGIN": "softtcpx", "MAXBYTES": "4K", "ITERS": "5"}
SMALL_SIZES = [1024, 2048, 4096]


def submitted(cluster: Slurm, place: Path, command: str, **variables: str) -> int:
    path = f"{place / 'bin'}:{cluster.environ['PATH']}"
    return cluster.submit(shlex.split(command), place, {**SMALL, "PATH": path, **variables})


def finished(cluster: Slurm, place: Path, command: str, **variables: str) -> Job:
    """A job to its end; a second one where mpirun itself did not come up, as in tests/mpi."""
    for _ in range(2):
        job = cluster.finish(submitted(cluster, place, command, **variables), place)
        if MPIRUN_FAILED not in job.output:
            break
        shutil.rmtree(results(job, place))
    return job


def ran(cluster: Slurm, place: Path, command: str, **variables: str) -> Job:
    """A job that ended well, with its results in a folder of its own."""
    job = finished(cluster, place, command, **variables)
    assert (job.state, job.code) == ("COMPLETED", 0), job.text
    assert [path.name for path in (place / "results").iterdir()] == [results(job, place).name]
    return job


def results(job: Job, place: Path) -> Path:
    (folder,) = (place / "results").glob(f"*-{job.number}")
    return folder


def complete_run(path: Path, sizes: list[int]) -> Run:
    """A run of two nodes with two ranks each, every byte checked."""
    run = read_run(str(path))
    assert run.missing == []
    assert [row.size_bytes for row in run.rows] == sizes
    assert run.header.world == 4
    assert all(row.checked.all() and not row.wrong.any() for row in run.rows)
    return run


@pytest.mark.parametrize("command", [c for c in SUBMITTED if re.search("ring|mesh", c)])
def test_a_command_of_the_pages_leaves_a_whole_run(
    command: str, cluster: Slurm, place: Path
) -> None:
    if "sweep" in command:
        job = ran(cluster, place, command)
        runs = {path.stem for path in results(job, place).iterdir()}
        assert runs == {"ring-1", "ring-2", "mesh-1", "mesh-2"}
        for name in runs:
            run = complete_run(results(job, place) / f"{name}.h5", SMALL_SIZES)
            assert f"{run.header.pattern}-{run.header.plan.channels}" == name
        return
    job = ran(cluster, place, command)
    found = re.search(r"jobs/(\w+)\.sbatch", command)
    assert found
    pattern = found[1]
    files = sorted(path.name for path in results(job, place).iterdir())
    assert files == [f"{pattern}.h5", f"{pattern}.json"]
    asked = "MINBYTES=4K,MAXBYTES=64K" in command
    sizes = [4096 << doubled for doubled in range(5)] if asked else SMALL_SIZES
    run = complete_run(results(job, place) / f"{pattern}.h5", sizes)
    assert run.header.pattern == pattern
    assert run.header.environment["SLURM_JOB_ID"] == str(job.number)
    assert run.header.environment["SLURM_JOB_NUM_NODES"] == "2"
    assert "# Collective test concluded" in job.output


def test_the_exit_code_of_the_ranks_is_that_of_the_job(cluster: Slurm, place: Path) -> None:
    job = finished(cluster, place, "sbatch jobs/ring.sbatch", SOFTTCPX_TRAP_SIZES="2")
    assert (job.state, job.code) == ("FAILED", ExitCode.WRONG_BYTES), job.text


def test_a_sweep_ends_with_the_first_run_that_fails(cluster: Slurm, place: Path) -> None:
    command = "sbatch --export=ALL,PATTERNS='rign ring',CHANNELS=1 jobs/sweep.sbatch"
    job = finished(cluster, place, command)
    assert (job.state, job.code) == ("FAILED", ExitCode.USAGE), job.text
    assert list(results(job, place).iterdir()) == []


def test_a_cancelled_job_keeps_its_rows_and_leaves_no_process(cluster: Slurm, place: Path) -> None:
    # Rows of 1 MiB and more take seconds each. One rank a node, so that the first are quick.
    command = "sbatch --ntasks-per-node=1 jobs/ring.sbatch"
    number = in_second_row(cluster, place, command, ITERS="2000", MAXBYTES="64M")
    assert cluster.left()
    assert cluster.command("scancel", str(number), cwd=place).returncode == 0
    job = cluster.finish(number, place)  # says what is left, if anything is
    assert job.state == "CANCELLED", job.text
    run = read_run(str(results(job, place) / "ring.h5"))
    assert [row.size_bytes for row in run.rows][:2] == [1024, 2048]
    assert len(run.rows) < 17
    assert all(row.samples["iteration"].shape == (2, 2000) for row in run.rows)
    assert not run.complete
    assert run.missing


def in_second_row(cluster: Slurm, place: Path, command: str, **variables: str) -> int:
    """The number of a running job that has printed the row of 2 KiB; tried as `finished` does."""
    second_row = re.compile(rf"^ +2048 |{MPIRUN_FAILED}", re.MULTILINE)
    for _ in range(2):
        number = submitted(cluster, place, command, **variables)
        output = functools.partial(output_of, place / f"tcpx-mpi-ring-{number}.log")
        cluster.wait_for(lambda text=output: bool(second_row.search(text())), "the second row", 60)
        if MPIRUN_FAILED not in output():
            break
    return number


def output_of(log: Path) -> str:
    """What a job has printed until now."""
    return log.read_text() if log.exists() else ""


# --- The reference --------------------------------------------------------------------------------


def test_the_logs_of_nccl_tests_are_kept_and_imported(cluster: Slurm, place: Path) -> None:
    """With programs in place of nccl-tests: no GPU is here, and the job is the same."""
    canned = {
        "all_reduce_perf": logs.TABLE, "alltoall_perf": logs.alltoall(),
        "sendrecv_perf": logs.sendrecv(),
    }  # fmt: skip
    build = place / "nccl-tests" / "build"
    build.mkdir(parents=True)
    for name, text in canned.items():
        (build / f"{name}.txt").write_text(text)
        (build / name).write_text(
            "#!/bin/sh\n"
            f'env > "{build}/{name}.$OMPI_COMM_WORLD_RANK.env"\n'
            f'printf "%s\\n" "$@" > "{build}/{name}.$OMPI_COMM_WORLD_RANK.arguments"\n'
            f'test "$OMPI_COMM_WORLD_RANK" != 0 || cat "{build}/{name}.txt"\n'
        )
        (build / name).chmod(0o755)
    job = ran(cluster, place, "sbatch jobs/nccl-tests.sbatch", NCCL_ALGO="Tree")
    folder = results(job, place)
    assert {path.name for path in folder.iterdir()} == {f"nccl-tests-{n}.log" for n in canned}
    for name, text in canned.items():
        assert (folder / f"nccl-tests-{name}.log").read_text() == text
        for rank in range(4):
            environ = (build / f"{name}.{rank}.env").read_text().splitlines()
            assert "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1,eth2,eth3,eth4" in environ
            assert any(
                line.startswith("NCCL_GPUDIRECTTCPX_TX_BINDINGS=eth1:8-21") for line in environ
            )
            assert "NCCL_ALGO=Tree" in environ  # the user's
            assert f"SLURMD_NODENAME={'n1' if rank < 2 else 'n2'}" in environ
            arguments = (build / f"{name}.{rank}.arguments").read_text().split()
            assert arguments[:8] == ["-b", "1K", "-e", "4K", "-f", "2", "-n", "5"]

    commands = re.findall(r"^tcpx-mpi (import|report) (.*)$", PAGE, re.MULTILINE)
    assert [name for name, _ in commands] == ["import", "report"]
    for name, path in commands:
        assert cli.main([name, str(place / path.replace("JOB", str(job.number)))]) == 0
    with h5py.File(folder / "nccl-tests-all_reduce_perf.h5") as file:
        assert file.attrs["plugin_name"] == "nccl-tests"


# --- Without mpirun -------------------------------------------------------------------------------


def srun(cluster: Slurm, place: Path, command: str) -> subprocess.CompletedProcess[str]:
    words = [*shlex.split(command), "--plugin", "softtcpx", "-b", "1K", "-e", "4K", "-f", "2"]
    done = cluster.command(*words, cwd=place)
    cluster.wait_for(lambda: not cluster.left(), "nothing to be left", 15)
    return done


def command_with_srun(screen: bool = False) -> str:
    (command,) = re.findall(rf"^srun .*{'--screen always' if screen else 'run ring'}$", PAGE, re.M)
    return str(command)


def test_srun_with_pmix_starts_a_run(cluster: Slurm, place: Path) -> None:
    listed = cluster.command("srun", "--mpi=list", cwd=place)
    said = listed.stdout + listed.stderr
    if "pmix" not in said or "can not load PMIx" in said:
        pytest.skip(f"needs pmix: this Slurm has none: {said}")
    done = srun(cluster, place, command_with_srun())
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = place.glob("*.h5")
    complete_run(path, SMALL_SIZES)


def test_srun_prints_for_a_terminal_where_it_is_told(cluster: Slurm, place: Path) -> None:
    done = srun(cluster, place, f"env COLUMNS=100 {command_with_srun(screen=True)}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# Not shown here" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "\x1b" not in done.stdout


def test_srun_without_pmi_is_refused_by_every_task(cluster: Slurm, place: Path) -> None:
    done = srun(cluster, place, command_with_srun().replace("--mpi=pmix ", ""))
    assert done.returncode == ExitCode.USAGE
    said = [line for line in done.stderr.splitlines() if "tcpx-mpi: error: " in line]
    assert len(said) == 4
    assert all("srun started this without PMI" in line and "--mpi=pmix" in line for line in said)
    assert done.stdout == ""

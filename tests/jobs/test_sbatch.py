"""The scripts of jobs/: read as Slurm and bash read them, and run as a job runs them.

What they pass to mpirun is seen by one that only writes it down; its command line for tcpx-mpi goes
through our own parser, so that an option which is renamed fails here.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from jobs import run as run_job

from tcpx_mpi import launch
from tcpx_mpi.cli.run import command as run_command
from tcpx_mpi.cli.run import validate
from tcpx_mpi.config import Settings
from tcpx_mpi.errors import PluginMissing
from tcpx_mpi.records import read_run

REPOSITORY = Path(__file__).resolve().parents[2]
JOBS = sorted((REPOSITORY / "jobs").glob("*.sbatch"))
BIN = Path(sys.prefix) / "bin"
#: The options that a script may have, each with what its value looks like.
SBATCH_OPTIONS = {
    "job-name": r"[a-z-]+",
    "nodes": r"\d+",
    "ntasks-per-node": r"\d+",
    "exclusive": r"",
    "time": r"\d\d:\d\d:\d\d",
    "output": r"%x-%j\.log",
}

each_job = pytest.mark.parametrize("job", JOBS, ids=lambda job: job.stem)


def sbatch_options(job: Path) -> dict[str, str]:
    """The options that sbatch finds: those before the first command."""
    found = {}
    for line in job.read_text().splitlines():
        if line and not line.startswith("#"):
            break
        if line.startswith("#SBATCH"):
            name, _, value = line.removeprefix("#SBATCH --").partition("=")
            assert name not in found, line
            found[name] = value
    return found


@dataclass(frozen=True)
class Passed:
    """What a job passed to mpirun: its own options, and the command line of tcpx-mpi."""

    options: list[str]
    program: str
    arguments: list[str]

    def settings(self, world: int) -> Settings:
        """What our parser makes of it."""
        assert self.arguments[0] == "run"
        arguments = self.arguments[1:]
        # click keeps the names of the help option with the command, for all contexts to come.
        given = {"obj": arguments, "help_option_names": ["-h", "--help"]}
        with run_command.make_context("run", arguments, **given) as context:
            values = {k: v for k, v in context.params.items() if not k.startswith("ignored")}
            return validate(values, {}, world, outputs=True)


def slurm_variables(job: Path, submitted_from: Path, **changes: str) -> dict[str, str]:
    """What Slurm sets for a job with the options of its script."""
    options = sbatch_options(job)
    nodes, tasks = int(options["nodes"]), int(options["ntasks-per-node"])
    return {
        "SLURM_NTASKS": str(nodes * tasks),
        "SLURM_NTASKS_PER_NODE": str(tasks),
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NAME": options["job-name"],
        "SLURM_SUBMIT_DIR": str(submitted_from),
        **changes,
    }


def pass_to_mpirun(job: Path, place: Path, code: int = 0, **variables: str) -> Passed:
    """Runs a job with an mpirun that writes its arguments down and ends with `code`."""
    stub = place / "bin" / "mpirun"
    stub.parent.mkdir()
    stub.write_text(
        f'#!/bin/sh\nprintf "%s\\0" "$@" > {shlex.quote(str(place))}/passed\nexit {code}\n'
    )
    stub.chmod(0o755)
    environ = {**os.environ, **slurm_variables(job, place), **variables}
    environ["PATH"] = f"{stub.parent}:{environ['PATH']}"
    done = subprocess.run(
        ["bash", str(job)], env=environ, cwd=place, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (code, "")
    words = (place / "passed").read_text().split("\0")[:-1]
    at = next(number for number, word in enumerate(words) if word.endswith("/tcpx-mpi"))
    return Passed(words[:at], words[at], words[at + 1 :])


def test_both_jobs_are_there() -> None:
    assert [job.name for job in JOBS] == ["mesh.sbatch", "ring.sbatch"]


@each_job
def test_bash_and_shellcheck_have_nothing_to_say(job: Path) -> None:
    assert job.read_text().startswith("#!/bin/bash\n")
    for check in (["bash", "-n"], [str(BIN / "shellcheck"), "--severity=style"]):
        done = subprocess.run([*check, str(job)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@each_job
def test_slurm_finds_every_option_and_knows_it(job: Path) -> None:
    options = sbatch_options(job)
    assert options.keys() == SBATCH_OPTIONS.keys()
    for name, value in options.items():
        assert re.fullmatch(SBATCH_OPTIONS[name], value), f"--{name}={value}"
    # None stands behind the first command, where sbatch would pass over it.
    assert job.read_text().count("\n#SBATCH") == len(options)
    assert options["job-name"] == f"tcpx-mpi-{job.stem}"


@each_job
def test_mpirun_starts_as_many_ranks_as_slurm_has_tasks(job: Path, tmp_path: Path) -> None:
    options = sbatch_options(job)
    tasks = int(options["ntasks-per-node"])
    passed = pass_to_mpirun(job, tmp_path)
    assert passed.options == [
        "-n", str(int(options["nodes"]) * tasks), "--map-by", f"ppr:{tasks}:node",
        "--bind-to", "none",
    ]  # fmt: skip
    assert passed.program == f"{tmp_path}/.venv/bin/tcpx-mpi"


@each_job
def test_our_own_parser_takes_the_command_line(job: Path, tmp_path: Path) -> None:
    settings = pass_to_mpirun(job, tmp_path).settings(world=16)
    assert settings.pattern == job.stem
    assert settings.plugin == "tcpx"
    assert settings.sizes == tuple(1024 << doubled for doubled in range(21))  # 1K to 1G
    assert settings.hdf5_path == f"{tmp_path}/results/tcpx-mpi-{job.stem}-4711/{job.stem}.h5"
    assert (tmp_path / "results" / f"tcpx-mpi-{job.stem}-4711").is_dir()


@each_job
def test_every_variable_can_be_given_and_names_with_blanks_stay_whole(
    job: Path, tmp_path: Path
) -> None:
    passed = pass_to_mpirun(
        job, tmp_path, PLUGIN="/opt/my plugin.so", VENV="/opt/my venv", ITERS="7",
        RESULTS=f"{tmp_path}/my results", MINBYTES="2M", MAXBYTES="8M",
    )  # fmt: skip
    assert passed.program == "/opt/my venv/bin/tcpx-mpi"
    settings = passed.settings(world=16)
    assert settings.plugin == "/opt/my plugin.so"
    assert settings.iters == 7
    assert settings.sizes == (2 << 20, 4 << 20, 8 << 20)
    assert settings.hdf5_path is not None
    assert settings.hdf5_path.startswith(f"{tmp_path}/my results/")


@each_job
def test_the_exit_code_of_the_ranks_is_that_of_the_job(job: Path, tmp_path: Path) -> None:
    pass_to_mpirun(job, tmp_path, code=5)


@pytest.mark.multirank
@each_job
def test_a_job_leaves_its_results_in_a_folder_of_its_own(job: Path, tmp_path: Path) -> None:
    try:
        mpirun = launch.find_mpirun(os.environ)
    except PluginMissing as error:
        pytest.skip(f"needs mpi: {error}")
    variables = slurm_variables(
        job, tmp_path, SLURM_NTASKS="2", SLURM_NTASKS_PER_NODE="2", PLUGIN="softtcpx",
        VENV=sys.prefix, MAXBYTES="4K", ITERS="5",
        # The job is not one: no Slurm is here that mpirun could ask for nodes.
        PRTE_MCA_ras="^slurm", PRTE_MCA_plm="ssh",
        PATH=f"{Path(mpirun).parent}:{os.environ['PATH']}",
    )  # fmt: skip
    result = run_job(["bash", str(job)], tmp_path, variables)
    assert result.code == 0, result.text
    assert [row.size for row in result.rows] == [1024, 2048, 4096]
    out = tmp_path / "results" / f"tcpx-mpi-{job.stem}-4711"
    assert sorted(path.name for path in out.iterdir()) == [f"{job.stem}.h5", f"{job.stem}.json"]
    assert read_run(str(out / f"{job.stem}.h5")).missing == []

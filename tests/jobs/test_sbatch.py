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
from page_commands import documented
from variants import variants_where

from tcpx_mpi import patterns
from tcpx_mpi.cli.qualify import command as qualify_command
from tcpx_mpi.cli.run import command as run_command
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.launch.launcher_rank import LauncherRank
from tcpx_mpi.records import read_run
from tcpx_mpi.run.admission import RUN, admit_rank, read_settings

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
#: Those that run one pattern, once.
SINGLE = [job for job in JOBS if job.stem in ("mesh", "ring")]
each_single_job = pytest.mark.parametrize("job", SINGLE, ids=lambda job: job.stem)
#: Those that start mpirun themselves: all but the one that has it started, as often as it takes.
QUALIFY = REPOSITORY / "jobs" / "qualify.sbatch"
STARTING = [job for job in JOBS if job != QUALIFY]
SWEEP, NCCL_TESTS = (REPOSITORY / "jobs" / f"{name}.sbatch" for name in ("sweep", "nccl-tests"))


def test_the_pages_submit_every_job() -> None:
    """By commands that SUITE=slurm runs."""
    submitted = [each.text for each in documented() if each.text.startswith("sbatch ")]
    named = {name for text in submitted for name in re.findall(r"jobs/(\S+)", text)}
    assert named == {job.name for job in JOBS}


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
    """What a job passed to mpirun: its own options, a program, and the program's arguments."""

    options: list[str]
    program: str
    arguments: list[str]

    def settings(self, world: int) -> Settings:
        """What our parser makes of it."""
        assert self.arguments[0] == "run"
        arguments = self.arguments[1:]
        with run_command.make_context("run", arguments, obj=arguments) as context:
            assert context.params.pop("payload_bytes") is None  # of smoke alone
            values = {k: v for k, v in context.params.items() if not k.startswith("ignored")}
            return admit_rank(read_settings(values, {}), {}, LauncherRank(0, world), RUN)


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


def passed_to_mpirun(job: Path, place: Path, code: int = 0, **variables: str) -> list[Passed]:
    """Runs a job with an mpirun that writes its arguments down and ends with `code`.

    The stub prints a line for the job to keep, and what it was called with, call by call.
    """
    stub = place / "bin" / "mpirun"
    stub.parent.mkdir()
    passed = shlex.quote(str(place / "passed"))
    stub.write_text(
        f'#!/bin/sh\n{{ printf "%s\\0" "$@"; printf "\\n\\0"; }} >> {passed}\n'
        f"echo printed; exit {code}\n"
    )
    stub.chmod(0o755)
    environ = {**os.environ, **slurm_variables(job, place), **variables}
    environ["PATH"] = f"{stub.parent}:{environ['PATH']}"
    done = subprocess.run(
        ["bash", str(job)], env=environ, cwd=place, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (code, "")
    calls = []
    for call in (place / "passed").read_text().split("\n\0")[:-1]:
        words = call.split("\0")[:-1]
        at = next(n for n, word in enumerate(words) if word.endswith(("/tcpx-mpi", "_perf")))
        calls.append(Passed(words[:at], words[at], words[at + 1 :]))
    return calls


def pass_to_mpirun(job: Path, place: Path, code: int = 0, **variables: str) -> Passed:
    """The same of a job that starts mpirun once."""
    (passed,) = passed_to_mpirun(job, place, code, **variables)
    return passed


def test_the_jobs_are_there() -> None:
    names = ["mesh", "nccl-tests", "qualify", "ring", "sweep"]
    assert [job.name for job in JOBS] == [f"{name}.sbatch" for name in names]


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


@pytest.mark.parametrize("job", STARTING, ids=lambda job: job.stem)
def test_mpirun_starts_as_many_ranks_as_slurm_has_tasks(job: Path, tmp_path: Path) -> None:
    options = sbatch_options(job)
    tasks = int(options["ntasks-per-node"])
    for passed in passed_to_mpirun(job, tmp_path):
        assert passed.options[:6] == [
            "-n", str(int(options["nodes"]) * tasks), "--map-by", f"ppr:{tasks}:node",
            "--bind-to", "none",
        ]  # fmt: skip
        if job != NCCL_TESTS:
            assert len(passed.options) == 6
            assert passed.program == f"{tmp_path}/.venv/bin/tcpx-mpi"


@each_single_job
def test_our_own_parser_takes_the_command_line(job: Path, tmp_path: Path) -> None:
    settings = pass_to_mpirun(job, tmp_path).settings(world=16)
    assert settings.pattern == job.stem
    assert settings.plugin == "tcpx"
    assert settings.sizes == tuple(1024 << doubled for doubled in range(21))  # 1K to 1G
    assert settings.hdf5_path == f"{tmp_path}/results/tcpx-mpi-{job.stem}-4711/{job.stem}.h5"
    assert (tmp_path / "results" / f"tcpx-mpi-{job.stem}-4711").is_dir()


@each_single_job
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


def test_the_job_that_qualifies_gives_the_nodes_of_its_allocation_and_ends_with_the_verdict(
    tmp_path: Path,
) -> None:
    venv, called = tmp_path / "my venv", tmp_path / "called"
    for path, text in (
        (
            tmp_path / "bin" / "scontrol",
            "#!/bin/sh\ntest $1.$2 = show.hostnames && printf 'a\\nb\\n'\n",
        ),
        (venv / "bin" / "tcpx-mpi", f'#!/bin/sh\nprintf "%s\\n" "$@" >{called}\nexit 9\n'),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    own = {"SLURM_JOB_NODELIST": "[a-b]", "VENV": str(venv), "WITHIN": "50s"}
    environ = {**os.environ, **slurm_variables(QUALIFY, tmp_path, **own)}
    environ["PATH"] = f"{tmp_path / 'bin'}:{environ['PATH']}"
    done = subprocess.run(["bash", str(QUALIFY)], env=environ, cwd=tmp_path, timeout=60)
    assert done.returncode == 9
    words = called.read_text().splitlines()
    assert words[0] == "qualify"
    with qualify_command.make_context("qualify", words[1:], obj=words) as context:
        given = context.params
    assert (given["plugin"], given["within"], given["gate"]) == ("tcpx", "50s", "any-machine")
    hosts = Path(given["hostfile"])
    assert hosts.parent == tmp_path / "results" / "tcpx-mpi-qualify-4711"
    assert hosts.read_text() == "a slots=8\nb slots=8\n"


@pytest.mark.parametrize(
    "job",
    variants_where(lambda job: job.stem in ("ring", "sweep"), STARTING),
    ids=lambda job: job.stem,
)
def test_the_exit_code_of_the_ranks_is_that_of_the_job(job: Path, tmp_path: Path) -> None:
    pass_to_mpirun(job, tmp_path, code=5)  # and nothing is started after it


# --- The sweep and the reference ------------------------------------------------------------------


def test_a_sweep_runs_every_pattern_with_every_number_of_channels(tmp_path: Path) -> None:
    runs = [passed.settings(world=16) for passed in passed_to_mpirun(SWEEP, tmp_path)]
    swept = [name for name in patterns.NAMES if name != patterns.RECORDED]
    wanted = [(name, n) for name in swept for n in (1, 2, 4)]
    assert [(run.pattern, run.channels) for run in runs] == wanted
    assert {run.sizes for run in runs} == {tuple(1024 << doubled for doubled in range(21))}
    out = f"{tmp_path}/results/tcpx-mpi-sweep-4711"
    assert [run.hdf5_path for run in runs] == [f"{out}/{name}-{n}.h5" for name, n in wanted]


def test_the_variables_of_a_sweep_can_be_given(tmp_path: Path) -> None:
    runs = passed_to_mpirun(
        SWEEP, tmp_path, PATTERNS="ring", CHANNELS="1 8", PLUGIN="/opt/my plugin.so",
        VENV="/opt/my venv", RESULTS=f"{tmp_path}/my results", MINBYTES="2M", MAXBYTES="4M",
        ITERS="7",
    )  # fmt: skip
    assert {run.program for run in runs} == {"/opt/my venv/bin/tcpx-mpi"}
    settings = [run.settings(world=16) for run in runs]
    assert [(s.channels, s.iters, s.plugin) for s in settings] == [
        (1, 7, "/opt/my plugin.so"), (8, 7, "/opt/my plugin.so"),
    ]  # fmt: skip
    assert {s.sizes for s in settings} == {(2 << 20, 4 << 20)}


def test_the_reference_runs_three_tests_with_the_environment_of_tcpx(tmp_path: Path) -> None:
    runs = passed_to_mpirun(NCCL_TESTS, tmp_path, NCCL_BUFFSIZE="4194304")
    tests = ["all_reduce_perf", "alltoall_perf", "sendrecv_perf"]
    assert [run.program for run in runs] == [f"{tmp_path}/nccl-tests/build/{t}" for t in tests]
    words = "-b 1K -e 1G -f 2 -n 50 -w 50 -g 1 -c 1"
    assert {" ".join(run.arguments) for run in runs} == {words}
    for run in runs:
        exports = run.options[6:]
        assert exports[::2] == ["-x"] * (len(exports) // 2)
        # All that the script sets goes to the ranks.
        set_there = re.findall(r"^export (\w+)=", NCCL_TESTS.read_text(), re.MULTILINE)
        assert set(set_there) <= set(exports[1::2])
    out = tmp_path / "results" / "tcpx-mpi-nccl-tests-4711"
    assert {p.name: p.read_text() for p in out.iterdir()} == {
        f"nccl-tests-{test}.log": "printed\n" for test in tests
    }


def test_a_variable_of_the_reference_that_is_set_stays(tmp_path: Path) -> None:
    lines = [line for line in NCCL_TESTS.read_text().splitlines() if line.startswith("export ")]
    names = [line.split("=")[0].removeprefix("export ") for line in lines]
    assert len(names) > 20
    script = "\n".join(["set -eu", *lines, "env"])
    environ = {**os.environ, **dict.fromkeys(names, "mine"), "TCPX_LIB": "/lib/tcpx"}
    done = subprocess.run(
        ["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert found["LD_LIBRARY_PATH"] == "/lib/tcpx:mine"
    assert {found[name] for name in names if name != "LD_LIBRARY_PATH"} == {"mine"}


# --- Run ------------------------------------------------------------------------------------------


@pytest.mark.multirank
@pytest.mark.parametrize(
    "job", variants_where(lambda job: job.stem != "mesh", SINGLE), ids=lambda job: job.stem
)
def test_a_job_leaves_its_results_in_a_folder_of_its_own(
    job: Path, mpirun_path: str, tmp_path: Path
) -> None:
    variables = slurm_variables(
        job, tmp_path, SLURM_NTASKS="2", SLURM_NTASKS_PER_NODE="2", PLUGIN="softtcpx",
        VENV=sys.prefix, MAXBYTES="4K", ITERS="5",
        # The job is not one: no Slurm is here that mpirun could ask for nodes.
        PRTE_MCA_ras="^slurm", PRTE_MCA_plm="ssh",
        PATH=f"{Path(mpirun_path).parent}:{os.environ['PATH']}",
    )  # fmt: skip
    result = run_job(["bash", str(job)], tmp_path, variables)
    assert result.code == 0, result.text
    assert [row.size for row in result.rows] == [1024, 2048, 4096]
    out = tmp_path / "results" / f"tcpx-mpi-{job.stem}-4711"
    assert sorted(path.name for path in out.iterdir()) == [f"{job.stem}.h5", f"{job.stem}.json"]
    assert read_run(str(out / f"{job.stem}.h5")).missing == []

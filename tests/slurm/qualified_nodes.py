"""What stands in front of a job, under a real Slurm: jobs/qualify.sbatch, a prolog and an epilog.

Run by `make test SUITE=slurm`; not collected by `make test`. Both nodes are this host, so that a
verdict is of one node.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from private_slurm import Job, Slurm, slurm
from under_slurm import results, submitted

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "how-to" / "qualify.md").read_text()
QUALIFY = "sbatch jobs/qualify.sbatch"
assert QUALIFY in PAGE

# --- The job --------------------------------------------------------------------------------------


def qualified(cluster: Slurm, place: Path, **variables: str) -> Job:
    return cluster.finish(submitted(cluster, place, QUALIFY, WITHIN="80s", **variables), place)


def test_the_job_says_of_the_nodes_of_its_allocation_whether_they_are_fit(
    cluster: Slurm, place: Path
) -> None:
    job = qualified(cluster, place)
    assert job.code in (0, 11), job.text  # 11: this host is busy with something else
    document = json.loads((results(job, place) / "qualify.json").read_text())
    assert document["exit_code"] == job.code
    assert [each["step"] for each in document["steps"] if not each["missing"]] == [
        "preflight", "smoke", "pairs", "ring",
    ]  # fmt: skip
    assert (results(job, place) / "hosts").read_text() == "n1 slots=2\nn2 slots=2\n"
    assert (results(job, place) / "qualify.xml").exists()


def test_a_job_that_depends_on_the_verdict_does_not_begin(cluster: Slurm, place: Path) -> None:
    job = qualified(cluster, place, PLUGIN=str(place / "none.so"))
    assert job.state == "FAILED", job.text
    assert job.code != 0, job.text
    after = cluster.command(
        *shlex.split(
            f"sbatch --dependency=afterok:{job.number} --kill-on-invalid-dep=yes --wrap true"
        ),
        cwd=place,
    )
    found = re.search(r"Submitted batch job (\d+)|Job dependency", after.stdout + after.stderr)
    assert found, after
    if found[1]:
        assert cluster.finish(int(found[1]), place).state == "CANCELLED"


def test_ranks_of_srun_are_the_nodes(cluster: Slurm, place: Path) -> None:
    listed = cluster.command("srun", "--mpi=list", cwd=place)
    said = listed.stdout + listed.stderr
    if "pmix" not in said or "can not load PMIx" in said:
        pytest.skip(f"needs pmix: this Slurm has none: {said}")
    (command,) = re.findall(r"^srun .*tcpx-mpi qualify.*$", PAGE, re.MULTILINE)
    words = [*shlex.split(command), "--plugin", "softtcpx", "--within", "80s", "--json", "q.json"]
    done = cluster.command(*words, cwd=place)
    cluster.wait_for(lambda: not cluster.left(), "nothing to be left", 15)
    assert done.returncode in (0, 11), done.stdout + done.stderr
    assert json.loads((place / "q.json").read_text())["exit_code"] == done.returncode


# --- Prolog and epilog ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Guarded:
    """A cluster whose nodes are looked at before and after each job."""

    cluster: Slurm
    configuration: Path

    def set_plugin(self, **of_node: str) -> None:
        """What node.conf says of each node; of others softtcpx."""
        cases = "".join(f" {node}) PLUGIN={plugin} ;;" for node, plugin in of_node.items())
        self.configuration.write_text(
            f"VENV={sys.prefix} LIMIT_S=80\n"
            f"case $SLURMD_NODENAME in{cases} *) PLUGIN=softtcpx ;; esac\n"
        )

    def words(self, place: Path, command: str) -> list[str]:
        return ["sbatch", "--nodes=1", f"--output={place}/out", "--wrap", command]

    def run(self, place: Path, command: str) -> Job:
        words = self.words(place, command)
        return self.cluster.finish(self.cluster.submit(words, place, {}), place)

    def show(self, place: Path, node: str = "n1") -> str:
        done = self.cluster.command("scontrol", "show", "node", node, cwd=place)
        return " ".join(done.stdout.split())

    def wait_for(self, place: Path, state: str) -> None:
        self.cluster.wait_for(
            lambda: f"State={state} " in self.show(place), f"n1 to be {state}", 60
        )


@pytest.fixture
def guarded(
    user_environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """Prolog and epilog as the scripts and the page say; slurm.conf has their folder."""
    folder = tmp_path_factory.mktemp("guarded")
    scripts = folder / "tcpx-mpi"
    scripts.mkdir()
    for script in (REPOSITORY / "jobs/node/check.sh", *(REPOSITORY / "jobs/slurm").glob("*.sh")):
        shutil.copy(script, scripts)
    lines = re.findall(r"^(?:Prolog|Epilog|SchedulerParameters)=\S+$", PAGE, re.MULTILINE)
    assert len(lines) == 3, PAGE
    more = "\n".join(lines).replace("/etc/slurm/tcpx-mpi", str(scripts))
    with slurm(folder, user_environ, f"{more}\nPrologEpilogTimeout=100\n") as running:
        found = Guarded(running, scripts / "node.conf")
        found.set_plugin()
        yield found


def test_a_node_that_is_not_ready_is_drained_with_the_reason_and_the_job_runs_elsewhere(
    guarded: Guarded, tmp_path: Path
) -> None:
    guarded.set_plugin(n1="/none.so")
    cluster = guarded.cluster
    number = cluster.submit(guarded.words(tmp_path, "echo $SLURMD_NODENAME"), tmp_path, {})
    command = ("scontrol", "show", "job", str(number))
    cluster.wait_for(
        lambda: "PENDING Reason=BeginTime" in cluster.command(*command, cwd=tmp_path).stdout,
        "a requeue",
        60,
    )
    # Slurm itself waits for two minutes.
    now = cluster.command("scontrol", "update", f"JobId={number}", "StartTime=now", cwd=tmp_path)
    assert now.returncode == 0, now.stderr
    job = cluster.finish(number, tmp_path)
    assert (job.state, job.output) == ("COMPLETED", "n2\n"), job.text
    shown = guarded.show(tmp_path)
    assert "State=IDLE+DRAIN " in shown
    reason = re.search(r"Reason=(tcpx-mpi: plugin file .*/none\.so\): no such file .*) \[", shown)
    assert reason, shown
    # It says how to resume, in a command that does.
    guarded.set_plugin()
    resume = shlex.split(reason[1].partition("when mended: ")[2])
    assert resume[:2] == ["scontrol", "update"], reason[1]
    assert guarded.cluster.command(*resume, cwd=tmp_path).returncode == 0
    guarded.wait_for(tmp_path, "IDLE")
    job = guarded.run(tmp_path, "echo $SLURMD_NODENAME")
    assert (job.state, job.output) == ("COMPLETED", "n1\n"), job.text


def test_a_node_that_a_job_leaves_unready_is_drained_and_the_job_has_ended_well(
    guarded: Guarded, tmp_path: Path
) -> None:
    job = guarded.run(tmp_path, f"sed -i s/softtcpx/none.so/ {guarded.configuration}")
    assert (job.state, job.code) == ("COMPLETED", 0), job.text
    guarded.wait_for(tmp_path, "IDLE+DRAIN")
    assert "Reason=tcpx-mpi: " in guarded.show(tmp_path)


def test_a_check_that_cannot_tell_keeps_no_job_away(guarded: Guarded, tmp_path: Path) -> None:
    guarded.configuration.write_text("VENV=/none\n")
    job = guarded.run(tmp_path, "echo $SLURMD_NODENAME")
    assert (job.state, job.output) == ("COMPLETED", "n1\n"), job.text
    guarded.wait_for(tmp_path, "IDLE")

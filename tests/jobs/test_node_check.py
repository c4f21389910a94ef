"""jobs/node/check.sh and who calls it: one line and an exit code, whatever preflight says.

Here with a program in the place of tcpx-mpi; in pods and under Slurm with tcpx-mpi itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

JOBS = Path(__file__).parents[2] / "jobs"
SCRIPTS = [JOBS / "node" / "check.sh", *sorted((JOBS / "slurm").glob("*.sh"))]
NPD = JOBS / "k8s" / "node-problem-detector.json"
FAILED = "FAILED   n1  plugin file  /none.so (--plugin): no such file -> copy it\\n"


def installed(place: Path, said: str, code: int) -> Path:
    """The scripts in a folder, with a tcpx-mpi that says and ends with this."""
    program = place / "venv" / "bin" / "tcpx-mpi"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho \"$@\" >{place}/called\nprintf '{said}'\nexit {code}\n")
    program.chmod(0o755)
    for script in SCRIPTS:
        shutil.copy(script, place)
    (place / "node.conf").write_text(f"VENV={place}/venv PLUGIN='my plugin'\n")
    return place


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_bash_and_shellcheck_have_nothing_to_say(script: Path) -> None:
    assert os.access(script, os.X_OK)
    shellcheck = str(Path(sys.prefix) / "bin" / "shellcheck")
    for check in (["bash", "-n"], [shellcheck, "--severity=style"]):
        done = subprocess.run([*check, str(script)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("said", "code", "line", "verdict"),
    [
        ("OK  n1  CPUs\\n", 0, "tcpx-mpi: ready", 0),
        (FAILED, 4, "tcpx-mpi: plugin file /none.so (--plugin): no such file -> copy it", 1),
        (f"warning  n1  CPUs  1\\n{FAILED}", 3,
         "tcpx-mpi: plugin file /none.so (--plugin): no such file -> copy it", 1),
        ("tcpx-mpi: error: no MPI\\n", 3, "tcpx-mpi: tcpx-mpi: error: no MPI", 1),
        ("tcpx-mpi: error: what?\\n", 2, "tcpx-mpi: not told: tcpx-mpi: error: what?", 2),
        ("", 139, "tcpx-mpi: not told: ", 2),
    ],
)  # fmt: skip
def test_the_check_has_one_line_and_the_codes_of_node_problem_detector(
    said: str, code: int, line: str, verdict: int, tmp_path: Path
) -> None:
    place = installed(tmp_path, said, code)
    done = subprocess.run(
        [str(place / "check.sh"), "--profile", "none"], env={}, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == (f"{line}\n", "", verdict)
    called = (place / "called").read_text()
    assert called == "preflight --plugin my plugin --profile none\n"


@pytest.mark.parametrize(("code", "prolog"), [(0, 0), (4, 1), (2, 0)])
def test_only_a_node_that_is_not_ready_is_drained(code: int, prolog: int, tmp_path: Path) -> None:
    place = installed(tmp_path, FAILED, code)
    scontrol = place / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{place}/drained\n')
    scontrol.chmod(0o755)
    environ = {"PATH": f"{scontrol.parent}:/usr/bin:/bin", "SLURMD_NODENAME": "n1"}
    for script, expected in (("prolog.sh", prolog), ("epilog.sh", 0)):
        done = subprocess.run([str(place / script)], env=environ, check=False, timeout=60)
        assert done.returncode == expected
    drained = place / "drained"
    words = drained.read_text().splitlines() if drained.exists() else []
    once = [
        "update", "NodeName=n1", "State=DRAIN",
        "Reason=tcpx-mpi: plugin file /none.so (--plugin): no such file -> copy it; when mended: "
        "scontrol update NodeName=n1 State=RESUME",
    ]  # fmt: skip
    assert words == 2 * once * prolog


def test_node_problem_detector_finds_the_check_and_waits_for_it() -> None:
    monitor = json.loads(NPD.read_text())
    assert monitor["plugin"] == "custom"
    (condition,), (rule,) = monitor["conditions"], monitor["rules"]
    assert rule["condition"] == condition["type"]
    assert rule["path"].endswith("/node/check.sh")
    assert condition["message"] == "tcpx-mpi: ready"
    limit = next(line for line in SCRIPTS[0].read_text().splitlines() if "LIMIT_S:-" in line)
    assert int(limit.partition("LIMIT_S:-")[2].partition("}")[0]) < int(rule["timeout"].rstrip("s"))

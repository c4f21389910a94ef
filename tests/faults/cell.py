"""One cell: a run of two ranks, in namespaces of its own, into which the fault is put; and what of
its end is not as the matrix expects it.

    unshare ... python tests/faults/cell.py PLUGIN PLACE FAULT PHASE HOW COMMAND    (inside)
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from fault_matrix import (
    COMMANDS,
    CONNECT_S,
    HUNG,
    SET_UP_S,
    STALL_S,
    UNCAUGHT,
    Cell,
    Expected,
    expected,
)
from refplugin_build import build, crash_by_exception

TESTS = Path(__file__).resolve().parents[1]
UNSHARE = ("unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc",
           "--fork", "--kill-child")  # fmt: skip
#: A busy machine's, beyond what the product may take.
PATIENCE_S = 20.0
LIMIT_S = 300.0
ITERATIONS = 20
SILENT = "nobody says {!r}"
#: One end is told in a line; in another one by a rank that cannot know whether the first was said.
MOST_LINES = 2


@dataclass(frozen=True)
class Outcome:
    """What a cell came to; `left` is what it left behind, `trouble` why it could not be run."""

    code: int
    took_s: float
    rows: int | None
    left: list[str]
    text: str
    trouble: str = ""

    @property
    def errors(self) -> list[str]:
        return [x for x in self.text.splitlines() if "tcpx-mpi: error: " in x]


def problems(wanted: Expected, found: Outcome) -> list[str]:
    """What is not as it must be; [] for a cell that holds."""
    if found.trouble:
        return [found.trouble]
    hung = found.code == HUNG  # which only an mpirun may
    told = [*found.errors, *(x for x in found.text.splitlines() if x.startswith("# "))]
    checks = {
        f"code {found.code}, not {sorted(wanted.codes)}": found.code in wanted.codes,
        SILENT.format(wanted.says): any(re.search(wanted.says, x) for x in ["", *told]),
        f"{len(found.errors)} lines of errors": len(found.errors) <= MOST_LINES,
        f"{found.took_s:.1f} s, not {wanted.within_s:g}": (
            hung or found.took_s <= wanted.within_s + PATIENCE_S
        ),
        f"{found.rows} rows, not {wanted.rows}": found.rows in wanted.rows,
        f"left behind: {found.left}": hung or not found.left,
        "a traceback": "Traceback" not in found.text or 1 in wanted.codes,
    }
    return [problem for problem, holds in checks.items() if not holds]


def build_planted(folder: Path) -> str:
    return str(build(folder, TESTS / "refplugin" / "planted.cc"))


def require_namespaces() -> None:
    """Skips where this machine or user cannot have them."""
    try:
        subprocess.run([*UNSHARE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs netns: namespaces of its own: {error}")


def check(cell: Cell, plugin: str, place: Path) -> Outcome:
    """Run a cell, and once more where mpirun may have killed who had to speak; fails unless it
    holds."""
    wanted = expected_of(cell, plugin)
    found = run_cell(cell, plugin, place)
    if cell.how == "mpirun" and problems(wanted, found) == [SILENT.format(wanted.says)]:
        found = run_cell(cell, plugin, place / "again")
    if wrong := problems(wanted, found):
        pytest.fail(f"{cell.name}: {'; '.join(wrong)}\n{found.text}", pytrace=False)
    return found


def expected_of(cell: Cell, plugin: str) -> Expected:
    """What has to become of a cell that has a meaning, with the plugin as it was built."""
    wanted = expected(cell)
    assert isinstance(wanted, Expected), wanted
    if cell.fault == "exception" and cell.phase in UNCAUGHT:
        return replace(wanted, says=crash_by_exception(plugin))
    return wanted


def run_cell(cell: Cell, plugin: str, place: Path) -> Outcome:
    """Outside: in namespaces of its own."""
    path = os.pathsep.join(str(TESTS / name) for name in ("mpi", "faults", "refplugin"))
    words = (cell.fault, cell.phase, cell.how, cell.command)
    command = [*UNSHARE, sys.executable, __file__, plugin, str(place), *words]
    environ = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return Outcome(**json.loads((place / "outcome.json").read_text()))


def _inside(cell: Cell, plugin: str, place: Path) -> Outcome:
    import jobs
    from plant import Ground, environment

    wanted = expected(cell)
    assert isinstance(wanted, Expected)
    ground = Ground(cell, place)
    (ground.disk / "spool").mkdir()
    (place / "tmp").mkdir()
    ran = COMMANDS[cell.command]
    arguments = ("run", *ran.arguments, "--plugin", plugin, "--abi", "7", "--sizes", "64K,128K",
                 "-n", str(ITERATIONS), "-w", "0", "--chunk", "64K", "--check-memory", "16M",
                 "--connect-timeout", str(CONNECT_S), "--stall-timeout", str(STALL_S),
                 "--setup-timeout", str(SET_UP_S), "--hdf5", str(ground.disk / "o.h5"),
                 "--spool", str(ground.disk / "spool"))  # fmt: skip
    if cell.how == "mpirun":
        command = jobs.mpirun(2, *arguments)
    else:
        command = jobs.tcpx_mpi(*arguments, "--ranks", "2")
    environ = {**environment(cell, place, ran.mid_row), "TMPDIR": str(place / "tmp")}
    began, trouble = time.time(), ""
    with jobs.started(command, place, environ) as job:
        try:
            began = ground.befall(job)
            result = job.finish(wanted.within_s + 2 * PATIENCE_S)
        except AssertionError as error:
            result = jobs.Result(HUNG, "", str(error))
            trouble = "" if "still running" in result.err else result.err
    took_s = time.time() - began
    ground.recover()
    left = [str(path) for folder in (place / "tmp", Path("/dev/shm")) for path in folder.iterdir()]
    rows = _rows(ground.disk / "o.h5")
    return Outcome(result.code, took_s, rows, left if not trouble else [], result.text, trouble)


def _rows(path: Path) -> int | None:
    """How many are in the file; None where there is none, -1 where it cannot be read."""
    from tcpx_mpi.errors import TcpxError
    from tcpx_mpi.records import read_run

    if not path.exists():
        return None
    try:
        return len(read_run(str(path)).rows)
    except TcpxError:
        return -1


if __name__ == "__main__":
    its_plugin, its_place, *words = sys.argv[1:]
    outcome = _inside(Cell(*words), its_plugin, Path(its_place))
    (Path(its_place) / "outcome.json").write_text(json.dumps(asdict(outcome)))

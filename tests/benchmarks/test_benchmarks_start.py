"""The programs of benchmarks/ still start, and the docs say what is kept of them."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
from build_tools import find_tool
from variants import variants_where

from tcpx_mpi.records import read_run
from tcpx_mpi.report import report_lines

REPOSITORY = Path(__file__).resolve().parents[2]
BENCHMARKS = REPOSITORY / "benchmarks"
STARTS = {
    "collect.py": ["--list"],
    "cluster_speed.py": ["--help"],
    "verdicts.py": ["--same", "0", "--slower", "0"],  # judges the kept ones
    "quiet_runs.py": ["--quiet", "0", "--slow", "0"],
    "simulate_beside.py": ["--help"],
    "session_times.py": [],
    "page.py": [],  # fails where the page does not say what measured.json does
    "against_commit": ["--help"],
    "gpu/bench.py": ["build/none", "no-such-line"],
    "gpu/nccl_over_softtcpx.py": ["--only", "nobody"],
}
#: Without a dry run: they refuse.
CODES = {"gpu/bench.py": 2, "gpu/nccl_over_softtcpx.py": 2}
#: Native ones whose like is compiled by `make test`, or that nothing else is built as.
VARIANTS = ("bench_reduce", "bench_sends_cuda", "bench_steps_cuda", "bench_streams", "bench_unpack")


def launched(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / program), *arguments]
    return subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )


def test_every_program_is_started_here() -> None:
    found = [*BENCHMARKS.rglob("*.py"), BENCHMARKS / "against_commit"]
    assert {str(path.relative_to(BENCHMARKS)) for path in found} == set(STARTS)


@pytest.mark.parametrize("program", STARTS)
def test_a_benchmark_starts(program: str) -> None:
    done = launched(program, *STARTS[program])
    assert done.returncode == CODES.get(program, 0), done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "source",
    variants_where(lambda source: source.stem in VARIANTS, sorted(BENCHMARKS.glob("native/*.cc"))),
    ids=lambda source: source.stem,
)
def test_a_native_benchmark_compiles(source: Path) -> None:
    compiler = next(filter(None, map(find_tool, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        pytest.skip("needs compiler: a C++ compiler not found")
    folders = [f"-I{REPOSITORY / folder}" for folder in ("native", "tests/native")]
    command = [compiler, "-std=c++17", "-fsyntax-only", '-DSOFTTCPX_PLUGIN=""', *folders, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_against_commit_tells_worse_from_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = SourceFileLoader("against_commit", str(BENCHMARKS / "against_commit"))
    spec = spec_from_loader("against_commit", loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "against_commit", module)  # dataclasses look there
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    assert module.times_in("independent 11.5 ns/chunk, dependent 12.1 ns/chunk\n7.25\n") == {
        "independent": 11.5, "dependent": 12.1, "time": 7.25,
    }  # fmt: skip
    fast = [{"64 KiB": value} for value in (1.0, 1.02, 0.99, 1.01, 1.03)]
    slow = [{"64 KiB": 1.2 * each["64 KiB"]} for each in fast]
    judged = module.judged
    assert judged(fast, fast[::-1], "HEAD") == 0
    assert judged(fast, slow, "HEAD") == 10
    assert judged(slow, fast, "HEAD") == 0
    assert judged(fast[:2], slow[:2], "HEAD") == 11


def test_the_report_in_the_quickstart_is_that_of_the_kept_file() -> None:
    shown = re.search(
        r"```\n\$ tcpx-mpi report (docs/evidence/\S+)\n(.*?)\n```",
        (REPOSITORY / "docs" / "quickstart.md").read_text(), re.DOTALL,
    )  # fmt: skip
    assert shown is not None
    written = f"# Written              : {shown[1]}"  # the name of the file is as it was given
    lines = report_lines(read_run(str(REPOSITORY / shown[1])))
    made = [written if line.startswith("# Written") else line.rstrip() for line in lines]
    assert shown[2].splitlines() == made

"""Patterns with random faults for as long as you like, beside one long run whose memory,
descriptors and journals have to stay flat; then a report of 10,000 rows.

    python tests/faults/soak.py 20m [SEED]      0: all was as it must be
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("faults", "mpi", "refplugin", "unit")]

import jobs  # noqa: E402  # the paths above are pytest's, which this is not under
from cell import build_planted, expected_of, problems, run_cell  # noqa: E402
from fault_matrix import COMMANDS, Cell, cells, expected  # noqa: E402
from invented import rank_row, row_facts, run_header, setup_times  # noqa: E402

from tcpx_mpi.records import RunWriter, join_row, utc_now  # noqa: E402
from tcpx_mpi.units import parse_duration  # noqa: E402

#: What a rank may grow by in the second half of the long run, beside what its rows take.
MOST_GROWTH_BYTES, MOST_A_ROW_BYTES = 6 << 20, 6 << 10
MOST_MORE_DESCRIPTORS = 4
MOST_JOURNAL_BYTES = 4 << 20
#: Of a report the CPU time counts: others may have the CPUs.
ROWS_OF_A_REPORT, MOST_REPORT_S = 10_000, 60.0
_LOOKS_S = 2.0


@dataclass(frozen=True)
class Look:
    """At the ranks of the long run."""

    rows: int
    rss_bytes: tuple[int, ...]
    descriptors: tuple[int, ...]
    journal_bytes: int

    def __str__(self) -> str:
        memory = ", ".join(f"{each / 1e6:.1f}" for each in self.rss_bytes)
        return (f"{self.rows} rows, memory {memory} MB, descriptors {self.descriptors}, journals "
                f"{self.journal_bytes} bytes")  # fmt: skip


def main(duration: str, seed: str) -> int:
    """The exit code."""
    seconds = parse_duration(duration)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        place = Path(folder)
        over = threading.Event()
        faults = threading.Thread(target=with_faults, args=(place, int(seed), over, wrong))
        faults.start()
        try:
            wrong += long_run(place, seconds)
        finally:
            over.set()
            faults.join()
        wrong += long_report(place)
    for each in wrong:
        print(f"WRONG: {each}")
    return bool(wrong)


def with_faults(place: Path, seed: int, over: threading.Event, wrong: list[str]) -> None:
    """Cells of the matrix by chance until it is over."""
    plugin, chance = build_planted(place), random.Random(seed)
    every = [
        Cell(each.fault, each.phase, each.how, command)
        for each in cells()
        for command in COMMANDS
        if not isinstance(expected(each), str)
    ]
    done = 0
    while not over.is_set():
        cell = chance.choice(every)
        where = place / f"cell-{done}"
        where.mkdir()
        found = run_cell(cell, plugin, where)
        if bad := problems(expected_of(cell, plugin), found):
            wrong.append(f"{cell.name}: {'; '.join(bad)}\n{found.text}")
        shutil.rmtree(where, ignore_errors=True)
        done += 1
    print(f"{done} cells with a fault, seed {seed}")


def long_run(place: Path, seconds: float) -> list[str]:
    """What was wrong with a run of as many rows as there is time for."""
    spool = place / "spool"
    spool.mkdir()
    command = jobs.tcpx_mpi(
        "run", "ring", "--ranks", "2", "--plugin", "softtcpx", "--sizes", "8,1K,64K,256K", "-n",
        "20", "-N", "0", "-T", str(int(seconds)), "--check-memory", "8M", "--stall-timeout", "120",
        "--hdf5", str(place / "long.h5"), "--spool", str(spool),
    )  # fmt: skip
    looks: list[Look] = []
    began = time.monotonic()
    with jobs.started(command, place) as job:
        pids = [pid for _, pid in sorted(job.ranks().items())]
        while not job.has_ended() and time.monotonic() - began < seconds - _LOOKS_S:
            job.wait_for_nothing(_LOOKS_S)
            looks.append(_look(pids, spool, job.lines_like(r"^ +\d+ +\d+ +uint8 ")))
        result = job.finish(seconds + jobs.LIMIT_S)
    if result.code != 6 or len(looks) < 4:
        return [f"the long run ended with {result.code} after {len(looks)} looks\n{result.text}"]
    middle, last = looks[len(looks) // 2], looks[-1]
    print(f"long run: first {looks[0]}\n          middle {middle}\n          last {last}")
    grown = [after - before for before, after in zip(middle.rss_bytes, last.rss_bytes, strict=True)]
    may = MOST_GROWTH_BYTES + MOST_A_ROW_BYTES * (last.rows - middle.rows)
    half = len(looks) // 2  # some are open for a moment
    more = [b - a for a, b in zip(_most(looks[:half]), _most(looks[half:]), strict=True)]
    checks = {
        f"memory grew by {grown} bytes, {may} are allowed": max(grown) <= may,
        f"descriptors grew by {more}": max(more) <= MOST_MORE_DESCRIPTORS,
        f"journals have {last.journal_bytes} bytes": last.journal_bytes <= MOST_JOURNAL_BYTES,
        "the last row was not after the middle": last.rows > middle.rows,
    }
    return [text for text, holds in checks.items() if not holds]


def _look(pids: list[int], spool: Path, rows: int) -> Look:
    rss = []
    for pid in pids:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        rss.append(int(found[1]) * 1024 if found else 0)
    counts = [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]
    journals = sum(path.stat().st_size for path in spool.iterdir())
    return Look(rows, tuple(rss), tuple(counts), journals)


def _most(looks: list[Look]) -> list[int]:
    """The most descriptors of each rank."""
    return [max(counts) for counts in zip(*(look.descriptors for look in looks), strict=True)]


def long_report(place: Path) -> list[str]:
    """What was wrong with the report of a file of many rows."""
    path = place / "rows.h5"
    writer = RunWriter(str(path))
    writer.write_header(run_header(2))
    writer.write_setup(setup_times(2))
    for index in range(ROWS_OF_A_REPORT):
        facts = dataclasses.replace(row_facts(), index=index)
        parts = [rank_row(rank, facts) for rank in range(2)]
        writer.append_row(join_row(facts, parts, utc_now()))
    writer.finish()
    began = _cpu_s_of_children()
    report = [sys.executable, "-m", "tcpx_mpi", "report", str(path)]
    done = subprocess.run(report, capture_output=True, text=True, cwd=place, check=False)
    took = _cpu_s_of_children() - began
    print(f"report of {ROWS_OF_A_REPORT} rows: {took:.1f} s of CPU")
    lines = sum(" uint8 " in line for line in done.stdout.splitlines())
    if lines != ROWS_OF_A_REPORT or took > MOST_REPORT_S:
        text = f"report: {lines} rows in {took:.1f} s of CPU, exit code {done.returncode}"
        return [f"{text}\n{done.stderr}"]
    return []


def _cpu_s_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "1"))

"""Two nodes, 2 x 2 ranks: ring and mesh beside raw TCP, 4 NICs beside 1, launch to first row.

Prints what docs/performance.md records. Every run has the two nodes of this script; 4 NICs and 1
take turns, and the interval is that of the single turns.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "mpi"))  # for jobs

from conftest import Launcher
from nodes import DATA, NoCluster, cluster

ROUNDS = 5
ITERS = "200"


def main() -> int:
    try:
        with cluster() as nodes:
            launcher = Launcher(nodes)
            for pattern in ("ring", "mesh"):
                beside_raw(launcher, pattern)
            for pattern in ("ring", "mesh"):
                four_beside_one(launcher, pattern)
            to_the_first_row(launcher)
    except NoCluster as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def output_of(command: list[str]) -> list[str]:
    """The lines that a run prints. Raises CalledProcessError."""
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()


def beside_raw(launcher: Launcher, pattern: str) -> None:
    command = launcher.command("run", pattern, "--plugin", "softtcpx", "-b", "1M", "-e", "1M",
                               "-n", ITERS, "--hdf5", "none", "--against", "raw")  # fmt: skip
    (row,) = [line.split() for line in output_of(command) if re.match(r" +1048576 ", line)]
    ratio, low, high, best, best_low, best_high, streams = row[-7:]
    print(
        f"{pattern} 1 MiB: beside raw {ratio} ({low} - {high}), "
        f"beside raw at its best of 1, 2, 4 streams ({streams}) {best} ({best_low} - {best_high})",
        flush=True,
    )


def busbw(launcher: Launcher, pattern: str, interfaces: tuple[str, ...]) -> float:
    """GB/s of one run over these interfaces."""
    command = launcher.command("run", pattern, "--plugin", "softtcpx", "-b", "1M", "-e", "1M",
                               "-n", ITERS, "--hdf5", "none",
                               NCCL_SOCKET_IFNAME=",".join(interfaces))  # fmt: skip
    (row,) = [line.split() for line in output_of(command) if re.match(r" +1048576 ", line)]
    return float(row[7])


def four_beside_one(launcher: Launcher, pattern: str) -> None:
    ratios = []
    for turn in range(ROUNDS):
        order = (DATA, DATA[:1])
        found = {n: busbw(launcher, pattern, n) for n in (order if turn % 2 else order[::-1])}
        ratios.append(found[DATA] / found[DATA[:1]])
    low, high = min(ratios), max(ratios)
    middle = statistics.median(ratios)
    print(f"{pattern} 1 MiB: 4 NICs beside 1: {middle:.2f} ({low:.2f} - {high:.2f})", flush=True)


def to_the_first_row(launcher: Launcher) -> None:
    """Seconds from the start of mpirun to the first row on the screen."""
    took = []
    for _ in range(ROUNDS):
        command = launcher.command("run", "ring", "--plugin", "softtcpx", "-b", "1K", "-e", "1K",
                                   "--hdf5", "none")  # fmt: skip
        start = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if re.match(r" +1024 ", line):
                    took.append(time.monotonic() - start)
        assert process.returncode == 0
    print(f"launch to first row: {statistics.median(took):.2f} s "
          f"({min(took):.2f} - {max(took):.2f}, {ROUNDS} launches)")  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())

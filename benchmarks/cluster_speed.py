"""Two nodes, 2 x 2 ranks: ring and mesh beside raw TCP, 4 NICs beside 1, launch to first row.

Prints what docs/reference/performance.md records, as text or, with --json, as every value by name.
Every run has the two nodes of this script; 4 NICs and 1 take turns.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path += [str(TESTS / folder) for folder in ("cluster", "mpi")]

from launcher import Launcher  # noqa: E402 (the path)
from namespaces import NoCluster  # noqa: E402 (the path)
from nodes import DATA, cluster  # noqa: E402 (the path)

ROUNDS = 11
LAUNCHES = 3
ITERS = "1000"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        with cluster() as nodes:
            launcher = Launcher(nodes)
            found = {
                f"cluster-{pattern}-{what}": measure(launcher, pattern)
                for what, measure in (("raw", with_raw), ("4-NICs", four_to_one))
                for pattern in ("ring", "mesh")
            }
            found["cluster-first-row"] = to_the_first_row(launcher)
    except NoCluster as error:
        print(error, file=sys.stderr)
        return 2
    if asked.json:
        print(json.dumps(found))
    else:
        for name, values in found.items():
            middle, low, high = statistics.median(values), min(values), max(values)
            print(f"{name}: {middle:.2f} ({low:.2f} - {high:.2f}, {len(values)} values)")
    return 0


def output_of(command: list[str]) -> list[str]:
    """The lines that a run prints. Raises CalledProcessError."""
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()


def with_raw(launcher: Launcher, pattern: str) -> list[float]:
    """Ratios to raw TCP over the same veths with as many streams, one a launch."""
    command = launcher.command("run", pattern, "--plugin", "softtcpx", "-b", "1M", "-e", "1M",
                               "-n", ITERS, "--hdf5", "none", "--against", "raw")  # fmt: skip
    ratios = []
    for _ in range(LAUNCHES):
        (row,) = [line.split() for line in output_of(command) if re.match(r" +1048576 ", line)]
        ratios.append(float(row[-7]))
    return ratios


def busbw(launcher: Launcher, pattern: str, interfaces: tuple[str, ...]) -> float:
    """GB/s of one run over these interfaces."""
    command = launcher.command("run", pattern, "--plugin", "softtcpx", "-b", "1M", "-e", "1M",
                               "-n", ITERS, "--hdf5", "none",
                               NCCL_SOCKET_IFNAME=",".join(interfaces))  # fmt: skip
    (row,) = [line.split() for line in output_of(command) if re.match(r" +1048576 ", line)]
    return float(row[7])


def four_to_one(launcher: Launcher, pattern: str) -> list[float]:
    """Bandwidth with 4 NICs over that with 1, one a turn."""
    ratios = []
    for turn in range(ROUNDS):
        order = (DATA, DATA[:1])
        found = {n: busbw(launcher, pattern, n) for n in (order if turn % 2 else order[::-1])}
        ratios.append(found[DATA] / found[DATA[:1]])
    return ratios


def to_the_first_row(launcher: Launcher) -> list[float]:
    """Seconds from the start of mpirun to the first row on the screen, one a launch."""
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
    return took


if __name__ == "__main__":
    raise SystemExit(main())

"""How near `tcpx-mpi simulate` comes to runs on this machine: predicted / measured, row by row.

The costs are fitted on runs of 2 ranks: on ring; on pingpong and pair, one way at a time; on these
and all_reduce. Then each pattern runs with each number of ranks and is predicted by all three. Host
memory, softtcpx. With --from, runs of an earlier call are read in place of new ones.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tcpx_mpi.records import read_run
from tcpx_mpi.schedule.simulator import Costs
from tcpx_mpi.simulate import fit_costs, measured_rows
from tcpx_mpi.simulate.text import costs_text

#: The patterns that costs are fitted on, each with whether a NIC goes one way at a time.
FITTED_ON = {
    "ring": (("ring",), False),
    "one way": (("pingpong", "pair"), True),
    "with reductions": (("pingpong", "pair", "all_reduce"), True),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="4,8,16", help="with so many each (4,8,16)")
    parser.add_argument("--patterns", default="ring,all_reduce,alltoall")
    parser.add_argument("--sizes", default="1K,16K,256K,4M")
    parser.add_argument("--iters", default="30")
    parser.add_argument("--keep", metavar="DIR", help="where the runs' files go")
    parser.add_argument("--from", dest="kept", action="store_true", help="read those of --keep")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(asked.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        runs = Runs(folder, asked.sizes, asked.iters, asked.kept)
        costs = {}
        for name, (patterns, half_duplex) in FITTED_ON.items():
            found = fit_costs([read_run(runs.file(each, 2)) for each in patterns], {}, half_duplex)
            costs[name] = found.costs
            print(f"{name}: fitted on {', '.join(patterns)}, 2 ranks: {costs_text(found.costs)}; "
                  f"predicted / measured there {found.least:.2f} to {found.most:.2f}")  # fmt: skip
        titles = "  ".join(f"{name:>15} ratio" for name in costs)
        print(f"{'pattern':<12} ranks       size  algo      measured us  {titles}")
        counts = dict.fromkeys(int(word) for word in asked.ranks.split(",") if word)
        for pattern in asked.patterns.split(","):
            for ranks in [2, *counts]:
                compare(runs.file(pattern, ranks), pattern, ranks, costs)
    return 0


class Runs:
    """Runs that are made when they are asked for, once."""

    def __init__(self, folder: Path, sizes: str, iters: str, kept: bool) -> None:
        self._folder, self._sizes, self._iters, self._kept = folder, sizes, iters, kept

    def file(self, pattern: str, ranks: int) -> str:
        path = self._folder / f"{pattern}-{ranks}.h5"
        if path.exists() or self._kept:
            return str(path)
        command = [
            sys.executable, "-m", "tcpx_mpi", "run", pattern, "--ranks", str(ranks),
            "--plugin", "softtcpx", "--memory", "host", "--sizes", self._sizes,
            "-n", self._iters, "-w", "3", "-c", "0", "--hdf5", str(path),
        ]  # fmt: skip
        environment = {key: value for key, value in os.environ.items() if "NCCL_TESTS" not in key}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return str(path)


def compare(path: str, pattern: str, ranks: int, costs: dict[str, Costs]) -> None:
    """A line for each row, and one with the medians."""
    ratios: dict[str, list[float]] = {name: [] for name in costs}
    for found in measured_rows(read_run(path)):
        texts = []
        for name, each in costs.items():
            predicted = found.predict_ns(each)
            ratios[name].append(predicted / found.time_ns)
            texts.append(f"{predicted / 1e3:15.1f} {ratios[name][-1]:5.2f}")
        print(f"{pattern:<12} {ranks:>5} {found.size_bytes:>10}  {found.algo or '-':<9} "
              f"{found.time_ns / 1e3:>11.1f}  {'  '.join(texts)}")  # fmt: skip
    medians = "  ".join(f"{'':15} {statistics.median(each):5.2f}" for each in ratios.values())
    print(f"{pattern:<12} {ranks:>5} {'median':>10}  {'':<9} {'':>11}  {medians}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""How near `tcpx-mpi simulate` comes to runs on this machine: predicted / measured, row by row.

The costs are fitted on runs of 2 ranks: on ring; on pingpong and pair, one way at a time; on these
and all_reduce. Then each pattern runs with each number of ranks and is predicted by all three. Host
memory, softtcpx. With --from, runs of an earlier call are read in place of new ones. With --skews,
moe runs with each of these classes, too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.patterns.moe_shape import SKEWS
from tcpx_mpi.records import Row, read_run
from tcpx_mpi.report import summarise_row
from tcpx_mpi.schedule.simulator import Costs
from tcpx_mpi.simulate import Simulation, fit_costs, measured_rows
from tcpx_mpi.simulate.fit import MeasuredRow
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
    parser.add_argument("--skews", default="", help="classes of skew of moe, or all")
    parser.add_argument("--moe", default="deepseek-v3-small", help="the layer of these")
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
        for pattern in filter(None, asked.patterns.split(",")):
            for ranks in [2, *counts]:
                compare(runs.file(pattern, ranks), pattern, ranks, costs)
        skews = [*SKEWS] if asked.skews == "all" else [*filter(None, asked.skews.split(","))]
        for skew in skews:
            for ranks in [2, *counts]:
                options = {"moe": asked.moe, "skew": skew}
                words = [word for name, value in options.items() for word in (f"--{name}", value)]
                file = runs.file("moe", ranks, skew, words)
                compare(file, skew, ranks, costs, options)
    return 0


class Runs:
    """Runs that are made when they are asked for, once."""

    def __init__(self, folder: Path, sizes: str, iters: str, kept: bool) -> None:
        self._folder, self._sizes, self._iters, self._kept = folder, sizes, iters, kept

    def file(self, pattern: str, ranks: int, form: str = "", options: Sequence[str] = ()) -> str:
        """`options` replace the sizes, and `form` is a word for them."""
        path = self._folder / f"{'-'.join(filter(None, (pattern, form)))}-{ranks}.h5"
        if path.exists() or self._kept:
            return str(path)
        command = [
            sys.executable, "-m", "tcpx_mpi", "run", pattern, "--ranks", str(ranks),
            "--plugin", "softtcpx", "--memory", "host", *(options or ("--sizes", self._sizes)),
            "-n", self._iters, "-w", "3", "-c", "0", "--hdf5", str(path),
        ]  # fmt: skip
        environment = {key: value for key, value in os.environ.items() if "NCCL_TESTS" not in key}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return str(path)


def rows_of_moe(path: str, options: Mapping[str, str]) -> list[MeasuredRow]:
    """The rows of a run whose file does not say its messages, by the options that it had."""
    run = read_run(path)
    plan = run.header.plan
    asked = {
        **options, "pattern": "moe", "iters": str(plan.iters), "channels": str(plan.channels),
        "warmup_iters": str(plan.warmup_iters), "window_send": str(plan.window_send),
        "window_recv": str(plan.window_recv), "hdf5": "none",
    }  # fmt: skip

    def measured(row: Row) -> MeasuredRow:
        settings = load_settings(asked, {})
        settings = replace(settings, sizes=(row.size_bytes,), chunk_bytes=row.chunk_bytes)

        def predict_ns(costs: Costs) -> float:
            (found,) = Simulation(settings, run.header.world, costs, 1).rows()
            return found.time_ns

        time_ns = summarise_row(run.header, row).time_ns
        return MeasuredRow(row.size_bytes, row.algo, time_ns, predict_ns)

    return [measured(row) for row in run.rows]


def compare(
    path: str, pattern: str, ranks: int, costs: dict[str, Costs],
    of_moe: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """A line for each row, and one with the medians."""
    ratios: dict[str, list[float]] = {name: [] for name in costs}
    rows = measured_rows(read_run(path)) if of_moe is None else rows_of_moe(path, of_moe)
    for found in rows:
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

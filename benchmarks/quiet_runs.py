"""Whether `report` names who is slow, and nobody where nothing is: runs on this machine.

Usage: python benchmarks/quiet_runs.py [--quiet 20] [--slow 5] [--out FILE]

Tournaments (`pairs --all`) and all-to-alls, with nothing injected, also beside a busy loop; with a
rank slowed by 200 us a message; and, between two nodes on this machine (as root), with a NIC at
which bytes arrive at 1 Gb/s. What is finished is kept in docs/evidence/quiet_runs.json with the
times of all ways, so the script goes on where it was interrupted. It ends with 1 where a run with
nothing injected named somebody, or one with something injected did not name just that (an
all-to-all may name nobody in one run of ten). Wants an idle machine; 6 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcpx_mpi.findings.stragglers import links_by_size, places_of
from tcpx_mpi.records import read_run
from tcpx_mpi.stragglers.links import ONE_DIRECTION, ROUND_TRIP, Link, Measured, Places
from tcpx_mpi.stragglers.retest import judged

REPOSITORY = Path(__file__).resolve().parents[1]
TESTS = REPOSITORY / "tests"
FILE = REPOSITORY / "docs" / "evidence" / "quiet_runs.json"

#: Name: kind, ranks, and roles for a pattern that can tell them.
Name = list[Any]
_PLUGIN = ("--plugin", "softtcpx")
_SLOW = {"SOFTTCPX_TRAP_SLOW_US": "200", "SOFTTCPX_TRAP_RANK": "2"}
_SLOWER = {**_SLOW, "SOFTTCPX_TRAP_SLOW_US": "2000"}
#: The node, interface and rate at which bytes arrive.
SLOW_NIC = (1, "eth2", "1gbit")


@dataclass(frozen=True)
class Kind:
    """Runs of one kind: what is run, what is injected, and who is to be named."""

    arguments: str
    wanted: tuple[str, tuple[int, ...]] | None = None
    environ: Mapping[str, str] | None = None
    #: Between two nodes, one of whose NICs is slow.
    slow_nic: bool = False
    #: Beside a loop that takes what it gets of a core.
    busy: bool = False
    #: What is slow may be within the noise: then nobody is to be named, in one run of ten.
    may_be_missed: bool = False

    def runs(self, quiet: int, slow: int) -> int:
        """How many are wanted; twice as many of those of which one may be missed."""
        return slow * (2 if self.may_be_missed else 1) if self.wanted else quiet


KINDS = {
    "pairs": Kind("pairs --all --ranks 4 --sizes 64K -n 1000"),
    "mesh": Kind("mesh --ranks 4 --sizes 64K -n 1000"),
    "pairs-slow-rank": Kind(
        "pairs --all --ranks 4 --sizes 64K -n 1000", wanted=("rank", (2,)), environ=_SLOW
    ),
    "pairs-busy": Kind("pairs --all --ranks 4 --sizes 64K -n 1000", busy=True),
    "mesh-busy": Kind("mesh --ranks 4 --sizes 64K -n 1000", busy=True),
    # With two ranks a core the pairs of a mesh differ by a half and more among themselves.
    "mesh-slow-rank": Kind(
        "mesh --ranks 4 --sizes 64K -n 1000", ("rank", (2,)), _SLOW, may_be_missed=True
    ),
    "mesh-slower-rank": Kind("mesh --ranks 4 --sizes 64K -n 200", ("rank", (2,)), _SLOWER),
    "pairs-slow-nic": Kind(
        "pairs --all --sizes 1M -n 32 --check-memory 64M", wanted=("NIC", (3,)), slow_nic=True
    ),
    "mesh-slow-nic": Kind(
        "mesh --sizes 4M -n 32 --check-memory 128M", wanted=("NIC", (3,)), slow_nic=True
    ),
}


def main() -> int:
    """Runs what is missing, prints the table of all; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quiet", type=int, default=20)
    parser.add_argument("--slow", type=int, default=5)
    parser.add_argument("--out", type=Path, default=FILE)
    asked = parser.parse_args()
    kept = read(asked.out)
    # A few of each in turns, so that an interrupted evening has both.
    for number in range(max(asked.quiet, 2 * asked.slow)):
        for name, kind in KINDS.items():
            done = sum(each["kind"] == name for each in kept)
            if done <= number < kind.runs(asked.quiet, asked.slow):
                kept.append({"kind": name, **one_run(kind)})
                write(asked.out, kept)
                print(f"{name:>16} {done + 1:3d}  {kept[-1]['named'] or 'nobody'}", flush=True)
    print("\n".join(table(kept)))
    return 0 if all(map(right, kept)) and not missed_too_often(kept) else 1


def read(path: Path) -> list[dict[str, Any]]:
    """The runs that are finished."""
    if not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text())["runs"]
    return found


def write(path: Path, runs: list[dict[str, Any]]) -> None:
    """Keeps the runs; a reader finds the old file or the new one."""
    commands = {
        name: " ".join([*(f"{k}={v}" for k, v in (kind.environ or {}).items()),
                        "tcpx-mpi run", kind.arguments, *_PLUGIN])
        for name, kind in KINDS.items()
    }  # fmt: skip
    document = {"commands": commands, "cpus": os.cpu_count(), "slow_nic": SLOW_NIC, "runs": runs}
    new = path.with_suffix(".new")
    text = json.dumps(document, separators=(",", ":"))
    new.write_text(text.replace('{"kind"', '\n{"kind"') + "\n")
    new.replace(path)


def one_run(kind: Kind) -> dict[str, Any]:
    """What one run measured of all ways, and whom that names."""
    load = round(os.getloadavg()[0], 1)
    with _file_of(kind) as path:
        run = read_run(path)
    places = places_of(run.header)
    assert places is not None
    (first,) = links_by_size(run.header, [row for row in run.rows if not row.pairs]).values()
    again = links_by_size(run.header, [row for row in run.rows if row.pairs])
    found = {
        "nodes": [sorted(set(places.nodes)).index(node) for node in places.nodes],
        "nics": list(places.nics),
        "first": listed(first),
        "again": listed(next(iter(again.values()), {})),
        "load": load,
    }
    return {**found, "named": named(kind, found)}


def named(kind: Kind, found: Mapping[str, Any]) -> list[Name]:
    """Whom the kept times name: kind, ranks, roles."""
    places = Places([f"node {number}" for number in found["nodes"]], found["nics"])
    roles = ONE_DIRECTION if kind.arguments.startswith("pairs") else ROUND_TRIP
    links, fresh = (measured_of(found[name]) for name in ("first", "again"))
    suspects = [each.suspect for each in judged(links, fresh, places, roles) if each.named]
    return [[each.kind, list(each.ranks), list(each.roles)] for each in suspects]


def right(run: Mapping[str, Any]) -> bool:
    """Whether just those were named who had to be."""
    kind = KINDS[run["kind"]]
    if not run["named"]:
        return kind.wanted is None or kind.may_be_missed
    return [(what, tuple(ranks)) for what, ranks, _ in run["named"]] == [kind.wanted]


def missed_too_often(kept: Sequence[Mapping[str, Any]]) -> list[str]:
    """The kinds in which more than one run of ten named nobody, where somebody was slow."""
    found = []
    for name, kind in KINDS.items():
        named_somebody = [bool(each["named"]) for each in kept if each["kind"] == name]
        if kind.wanted and 10 * named_somebody.count(False) > len(named_somebody):
            found.append(name)
    return found


def counts_of(kept: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int, int]]:
    """Kind -> how many runs, how many named somebody, and how many named wrongly or too few."""
    found = {}
    for name in KINDS:
        runs = [each for each in kept if each["kind"] == name]
        if not runs:
            continue
        wrong = len(runs) - sum(map(right, runs))
        found[name] = (len(runs), sum(bool(each["named"]) for each in runs), wrong)
    return found


def table(kept: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many of each kind named somebody, and how many that was wrong of."""
    lines = [f"{'kind':>16}  {'runs':>4}  {'named':>5}  {'wrong':>5}"]
    for name, (runs, named_somebody, wrong) in counts_of(kept).items():
        lines.append(f"{name:>16}  {runs:4d}  {named_somebody:5d}  {wrong:5d}")
    return lines


def listed(links: Mapping[Link, Measured]) -> list[list[int]]:
    """Sender, receiver, and ns: of the row, of its halves and, where it has them, its quarters."""
    return [
        [*link, *map(round, (m.time_ns, m.first_half_ns, m.second_half_ns, *m.quarters_ns))]
        for link, m in links.items()
    ]


def measured_of(kept: Sequence[Sequence[int]]) -> dict[Link, Measured]:
    """The ways of what `listed` made of them."""
    return {
        (a, b): Measured(time, first, second, tuple(quarters))
        for a, b, time, first, second, *quarters in kept
    }


@contextlib.contextmanager
def busy_loop() -> Iterator[None]:
    """A process that is always ready to run, while the context lasts."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as loop:
        try:
            yield
        finally:
            loop.kill()


@contextlib.contextmanager
def _file_of(kind: Kind) -> Iterator[str]:
    """Runs it; the HDF5 file, which is there within the context."""
    if kind.slow_nic:
        sys.path[:0] = [str(TESTS / "cluster"), str(TESTS / "mpi")]
        from launcher import Launcher
        from network_faults import slow_arrivals
        from nodes import cluster

        with cluster() as nodes, slow_arrivals(nodes.nodes, *SLOW_NIC):
            pattern, *options = kind.arguments.split()
            _run(Launcher(nodes).run_command(pattern, *options), None, "/")
            yield str(nodes.nodes[0].file("o.h5"))
    else:
        with tempfile.TemporaryDirectory() as place:
            run = [sys.executable, "-m", "tcpx_mpi", "run", *kind.arguments.split(), *_PLUGIN]
            with busy_loop() if kind.busy else contextlib.nullcontext():
                _run([*run, "--hdf5", "o.h5", "--spool", place], kind.environ, place)
            yield str(Path(place, "o.h5"))


def _run(command: Sequence[str], environ: Mapping[str, str] | None, place: str) -> None:
    done = subprocess.run(
        command, cwd=place, env={**os.environ, **(environ or {})}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}{done.stderr}\na run ended with {done.returncode}")


if __name__ == "__main__":
    sys.exit(main())

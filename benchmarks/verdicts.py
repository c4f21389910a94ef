"""How often `tcpx-mpi ab` is right on this machine: nothing changed, and 3 % slower.

Usage: python benchmarks/verdicts.py [--same 40] [--slower 10] [--out FILE]

Each comparison is of launches in turns. What is finished is kept in docs/evidence/verdicts.json
with the times of all launches, so the script goes on where it was interrupted. It ends with 1 where
more than a tenth of the equal pairs were called different, or fewer than 8 of 10 slow ones found.
Wants an idle machine of two cores and, for 50 comparisons of 10 launches a side, a quarter of an
hour.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EVIDENCE = Path(__file__).resolve().parents[1] / "docs" / "evidence"
FILE = EVIDENCE / "verdicts.json"

#: Messages that come in one piece, one after the other: there the switch slows by what it says.
COMMON = (
    "pingpong --ranks 2 --plugin softtcpx --channels 1 --sizes 32K -n 8000 -w 200 "
    "--check-memory 16M --runs 10"
)
#: Kind of comparison -> what B has that A has not.
SIDES = {
    "same": "",
    "slower": "SOFTTCPX_TRAP_SLOW_PERCENT=3 SOFTTCPX_TRAP_RANK=1 SOFTTCPX_TRAP_SIDE=recv",
}
#: Verdicts that call a difference; a slow-down is found where it is called one.
DIFFERENT = ("better", "worse")
MOST_FALSE = 0.1
LEAST_FOUND = 0.8


def main() -> int:
    """Runs what is missing, prints the table of all; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--same", type=int, default=40)
    parser.add_argument("--slower", type=int, default=10)
    parser.add_argument("--out", type=Path, default=FILE)
    wanted = parser.parse_args()
    kept = read(wanted.out)
    # A few of each in turns, so that an interrupted evening has both.
    for number in range(max(wanted.same, wanted.slower)):
        for kind in SIDES:
            done = [each for each in kept if each["kind"] == kind]
            if number < getattr(wanted, kind) and len(done) <= number:
                kept.append({"kind": kind, **compared(kind)})
                write(wanted.out, kept)
                print(line(len(done), kept[-1]), flush=True)
    print("\n".join(table(kept)))
    return 0 if passes(kept) else 1


def read(path: Path) -> list[dict[str, Any]]:
    """The comparisons that are finished."""
    if not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text())["comparisons"]
    return found


def write(path: Path, comparisons: list[dict[str, Any]]) -> None:
    """Keeps the comparisons; a reader finds the old file or the new one."""
    commands = {kind: f"tcpx-mpi ab {COMMON} -- -- {side}".strip() for kind, side in SIDES.items()}
    document = {"commands": commands, "cpus": os.cpu_count(), "comparisons": comparisons}
    new = path.with_suffix(".new")
    new.write_text(json.dumps(document, indent=None, separators=(",", ":")) + "\n")
    new.replace(path)


def compared(kind: str) -> dict[str, Any]:
    """One comparison: its verdict, and the times of all its launches in us."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "tcpx_mpi", "ab", *COMMON.split(),
                   "--out", "x", "--json", "x.json", "--spool", place,
                   "--", "--", *SIDES[kind].split()]  # fmt: skip
        load = os.getloadavg()[0]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 10, 11, 14):
            raise SystemExit(f"{done.stderr}\nab ended with {done.returncode}")
        document = json.loads(Path(place, "x.json").read_text())
    (row,) = document["rows"]
    names = ("ratio", "ci_low", "ci_high", "p_value", "test", "verdict")
    return {
        **{name: row[name] for name in names},
        "first_us": [round(time, 3) for time in row["first_us"]],
        "second_us": [round(time, 3) for time in row["second_us"]],
        "load": load,
    }


def line(number: int, each: dict[str, Any]) -> str:
    """One comparison in a line."""
    figures = "  ".join(
        "    n/a" if each[name] is None else f"{each[name]:7.4f}"
        for name in ("ratio", "ci_low", "ci_high", "p_value")
    )
    return (
        f"{each['kind']:>7} {number + 1:3d}  {figures}  load {each['load']:4.1f}  {each['verdict']}"
    )


def table(kept: list[dict[str, Any]]) -> list[str]:
    """How many of each kind had which verdict."""
    lines = [f"{'B is':>8}  {'pairs':>5}  " + "  ".join(f"{v:>12}" for v in VERDICTS)]
    for kind, counts in verdicts_of(kept).items():
        found = "  ".join(f"{count:12d}" for count in counts.values())
        lines.append(f"{kind:>8}  {sum(counts.values()):5d}  {found}")
    return lines


def verdicts_of(kept: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Kind of comparison -> verdict -> how many."""
    return {
        kind: {
            verdict: sum(each["kind"] == kind and each["verdict"] == verdict for each in kept)
            for verdict in VERDICTS
        }
        for kind in SIDES
    }


VERDICTS = ("same", "inconclusive", "worse", "better")


def passes(kept: list[dict[str, Any]]) -> bool:
    """Whether equal pairs were called different seldom enough, and slow ones found often enough."""
    same = [each["verdict"] in DIFFERENT for each in kept if each["kind"] == "same"]
    slower = [each["verdict"] == "worse" for each in kept if each["kind"] == "slower"]
    return sum(same) <= MOST_FALSE * len(same) and sum(slower) >= LEAST_FOUND * len(slower)


if __name__ == "__main__":
    sys.exit(main())

"""Settings that were thought of for speed on GPUs (variants.toml), in turns with the defaults.

    variants.py FOLDER [--rounds 3] [--only PATTERN ...]       PATTERN: of variants or their runs

Each round launches every run with its defaults and with each variant; the next round goes back.
FOLDER/variants.json gets every time, whole after each round. Wants two GPUs.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import LARGE, SMALL

from tcpx_mpi.inputs import read_toml

RUNS = {
    "pair-64M": ("pair", *LARGE),
    "ring-64M": ("ring", *LARGE),
    "pair-8K": ("pair", *SMALL),
    "pingpong-8K": ("pingpong", *SMALL),
}
VARIANTS = read_toml("variants.toml", str(Path(__file__).with_name("variants.toml")), "see it")
LIMIT_S = 120


@dataclass(frozen=True)
class Side:
    """A run with its defaults, or with a variant."""

    name: str
    run: str
    environ: dict[str, str] = field(default_factory=dict)
    options: str = ""

    def arguments(self) -> list[str]:
        """Of `tcpx-mpi`; the last of an option that is there twice counts."""
        pattern, *options = RUNS[self.run]
        return ["run", pattern, "--ranks", "2", "--memory", "cuda", "--plugin", "softtcpx",
                *options, *self.options.split()]  # fmt: skip

    def command(self) -> str:
        """As a user would type it."""
        settings = [f"{name}={value}" for name, value in self.environ.items()]
        return " ".join([*settings, "tcpx-mpi", *self.arguments()])


def sides_of(patterns: Sequence[str]) -> list[Side]:
    """The runs of the variants that fit a pattern, and those variants."""
    variants = [
        Side(name, each["run"], each.get("environ", {}), each.get("options", ""))
        for name, each in VARIANTS.items()
        if any(fnmatch.fnmatch(word, fits) for word in (name, each["run"]) for fits in patterns)
    ]
    return [*(Side(run, run) for run in dict.fromkeys(side.run for side in variants)), *variants]


def launched(side: Side) -> float:
    """The time of one launch, us. Raises CalledProcessError and TimeoutExpired."""
    # Loopback, so that a machine with other networks measures the same as one without.
    environ = {"NCCL_SOCKET_IFNAME": "lo", **os.environ, **side.environ}
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(
            [sys.executable, "-m", "tcpx_mpi", *side.arguments(), "--hdf5", "none", "-J", "x.json"],
            check=True, cwd=place, env=environ, stdout=subprocess.DEVNULL, timeout=LIMIT_S,
        )  # fmt: skip
        row = json.loads(Path(place, "x.json").read_text())["results"][-1]
    return float(row["out_of_place"]["time"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN")
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    asked = parser.parse_args()
    sides = sides_of(asked.only)
    if not sides:
        parser.error(f"no variant or run is called {' or '.join(asked.only)}")
    if asked.dry_run:
        print("\n".join(side.command() for side in sides))
        return 0
    asked.folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = {
        side.name: {"command": side.command(), "us": []} for side in sides
    }
    failed = False
    for number in range(asked.rounds):
        for side in sides if number % 2 == 0 else sides[::-1]:
            try:
                found[side.name]["us"].append(launched(side))
            except subprocess.SubprocessError as error:
                failed = True
                print(f"{side.name}: {error}", file=sys.stderr)
        (asked.folder / "variants.json").write_text(json.dumps(found, indent=1) + "\n")
    for side in sides:
        if times := found[side.name]["us"]:
            base = statistics.median(found[side.run]["us"] or times)
            middle = statistics.median(times)
            print(f"{side.name:<24} {middle:9.4g} us  x {middle / base:.3f} of {side.run}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Measures what was tried for speed beside the tree as it is, and keeps the outcome as evidence.

Usage: python tests/evidence/attempts.py [NAME[@RUN] ...]     (all, or those named)

NAME@RUN is the attempt on another run of collect.py than its own, e.g. on large messages.
An attempt is tests/evidence/attempts/NAME.patch: lines of `key: value`, then, where it is more than
settings, a unified diff. Keys:

    tried      what, in a line
    predicted  what it was thought to change, before it was measured
    kept       yes: the tree has it, and diff or settings take it away; no: they add it
    run        a run of collect.py, beside raw TCP
    figure     what of it is compared: see FIGURES
    environ    NAME=value, settings of the changed side
    options    of `tcpx-mpi run`, of the changed side

Both sides are built alike, from copies of the sources in build/attempts, and run in turns in one
session; docs/evidence/attempts/NAME.json gets every value, with the digest of the attempt.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "mutants"))

from broken_copy import BrokenCopy, Patch, hunks_of  # noqa: E402 (the path is above)
from build_tools import find_tool  # noqa: E402 (the path is above)
from collect import RUNS  # noqa: E402 (the path is above)
from machine import busy_percent  # noqa: E402 (the path is above)

ATTEMPTS = Path(__file__).parent / "attempts"
RESULTS = REPOSITORY / "docs" / "evidence" / "attempts"
#: Launches of each side; the first of two neighbours is now the one, now the other.
LAUNCHES = 6

#: Name -> unit, and the figure out of a result of the JSON document.
FIGURES: dict[str, tuple[str, Callable[[Any], float]]] = {
    "time": ("us", lambda row: row["out_of_place"]["time"]),
    "p95": ("us", lambda row: row["out_of_place_per_iter"]["p95_us"]),
    "raw": ("x raw", lambda row: row["against"]["raw"]["ratio"]),
}


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One file of tests/evidence/attempts."""

    name: str
    digest: str
    tried: str
    predicted: str
    kept: bool
    run: str
    figure: str
    environ: dict[str, str]
    options: list[str]
    patches: tuple[Patch, ...]  # one a file


def read_attempt(
    path: Path, runs: Collection[str] = RUNS, figures: Collection[str] = FIGURES
) -> Attempt:
    """Raises ValueError for a key that is missing, unknown or senseless.

    `runs` and `figures` are the names that there are; where there can be several figures, an
    attempt names those that it is about.
    """
    text = path.read_text()
    head, *diffs = re.split(r"^(?=--- a/)", text, flags=re.MULTILINE)
    pairs = (line.partition(": ") for line in head.strip().splitlines())
    keys = {key: value.strip() for key, _, value in pairs}
    needed, optional = {"tried", "predicted", "kept", "run", "figure"}, {"environ", "options"}
    if needed - keys.keys() or keys.keys() - needed - optional:
        raise ValueError(f"{path.name}: needs the keys {sorted(needed)}, found {sorted(keys)}")
    known = set(keys["figure"].split()) <= set(figures)
    if keys["run"] not in runs or not known or keys["kept"] not in YES_OR_NO:
        raise ValueError(f"{path.name}: no such run, figure, or kept: {keys}")
    if not diffs and not optional & keys.keys():
        raise ValueError(f"{path.name}: changes nothing: needs a diff, environ or options")
    return Attempt(
        name=path.stem,
        digest=hashlib.sha256(text.encode()).hexdigest()[:12],
        tried=keys["tried"],
        predicted=keys["predicted"],
        kept=keys["kept"] == "yes",
        run=keys["run"],
        figure=keys["figure"],
        environ=dict(pair.split("=", 1) for pair in keys.get("environ", "").split()),
        options=keys.get("options", "").split(),
        patches=tuple(
            Patch(path.stem, keys["tried"], "", *hunks_of(diff.splitlines(keepends=True)))
            for diff in diffs
        ),
    )


YES_OR_NO = ("yes", "no")


def all_attempts() -> dict[str, Attempt]:
    """By name, in alphabetical order."""
    return {path.stem: read_attempt(path) for path in sorted(ATTEMPTS.glob("*.patch"))}


def attempt_called(word: str) -> Attempt:
    """The attempt NAME, or NAME@RUN. Raises ValueError where there is no such attempt or run."""
    name, at, run = word.partition("@")
    known = all_attempts()
    if name not in known:
        raise ValueError(f"no attempt {name}; there are {', '.join(known)}")
    if not at:
        return known[name]
    if run not in RUNS or run == known[name].run:
        others = [each for each in RUNS if each != known[name].run]
        raise ValueError(f"{word}: no other run {run}; there are {', '.join(others)}")
    return dataclasses.replace(known[name], name=word, run=run)


def outcomes() -> list[tuple[Attempt, dict[str, Any]]]:
    """What docs/evidence/attempts has, by the attempts' names. Raises ValueError as above."""
    paths = sorted(RESULTS.glob("*.json"), key=lambda path: path.stem.split("@"))
    return [(attempt_called(path.stem), json.loads(path.read_text())) for path in paths]


class Sides:
    """The tree as it is, and a copy that an attempt changes; built with a release's options."""

    def __init__(self) -> None:
        cmake = find_tool("cmake")
        if cmake is None:
            sys.exit("attempts: needs cmake: run `make setup` first")
        release = ("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS=")
        folder = REPOSITORY / "build" / "attempts"
        self.as_is, self.changed = (
            BrokenCopy(folder / name, cmake, release) for name in ("as-is", "changed")
        )
        for copy in (self.as_is, self.changed):
            copy.refresh()
            copy.configure()
        self.as_is.install()

    def measure(self, attempt: Attempt) -> dict[str, Any]:
        """Both sides in turns: the result file of the attempt."""
        for patch in attempt.patches:
            self.changed.apply(patch)
        self.changed.install()
        busy = busy_percent()
        as_is: list[float] = []
        changed: list[float] = []
        for number in range(LAUNCHES):
            turn = [
                lambda: as_is.append(_figure(self.as_is, attempt, {}, [])),
                lambda: changed.append(
                    _figure(self.changed, attempt, attempt.environ, attempt.options)
                ),
            ]
            for launch in turn if number % 2 == 0 else reversed(turn):
                launch()
        for patch in attempt.patches:
            self.changed.revert(patch)
        with_it, without = (as_is, changed) if attempt.kept else (changed, as_is)
        return {
            "digest": attempt.digest,
            "command": " ".join(["tcpx-mpi run", *_arguments(attempt)]),
            "unit": FIGURES[attempt.figure][0],
            "without": [float(f"{value:.4g}") for value in without],
            "with": [float(f"{value:.4g}") for value in with_it],
            "busy_percent": busy,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        }


def _figure(
    copy: BrokenCopy, attempt: Attempt, environ: dict[str, str], options: list[str]
) -> float:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "run.json"
        command = ["run", *_arguments(attempt), *options, "--hdf5", "none", "-J", str(file)]
        done = copy.python("-m", "tcpx_mpi", *command, SOFTTCPX_POISON="0", **environ)
        if done.returncode != 0:
            sys.exit(f"attempts: {attempt.name}: {' '.join(command)}\n{done.stdout}{done.stderr}")
        row = json.loads(file.read_text())["results"][-1]
    return FIGURES[attempt.figure][1](row)


def _arguments(attempt: Attempt) -> list[str]:
    return RUNS[attempt.run].replace("raw,mpi", "raw").split()


def main() -> None:
    try:
        attempts = [attempt_called(word) for word in sys.argv[1:] or all_attempts()]
    except ValueError as error:
        sys.exit(f"attempts: {error}")
    sides = Sides()
    RESULTS.mkdir(exist_ok=True)
    for attempt in attempts:
        found = sides.measure(attempt)
        (RESULTS / f"{attempt.name}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(attempt.name, "without", found["without"], "with", found["with"], flush=True)


if __name__ == "__main__":
    main()

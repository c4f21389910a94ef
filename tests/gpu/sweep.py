"""All that was thought of for speed on GPUs, in one go, beside the tree as it is.

    sweep.py FOLDER [--seconds 450] [--rounds 3] [--only PATTERN ...]
    sweep.py --prove [--only PATTERN ...]

Everything is built first, alike; then all variants (sweep_variants.py) take turns, a round of all
after the other, as many rounds as end in time. At last the runs that are compared with NCCL have
it beside them, with the settings that were quickest here. FOLDER gets

    sweep.json       every value, the commands, what failed; whole after each round
    NAME.h5          the first launch of each
    RUN-chosen.h5    a run beside NCCL with the settings that were chosen

PATTERN is of variants or of their runs: `--only unpack sends` are the parts that one GPU suffices
for; any other run takes two.

--prove measures nothing: it runs the native tests of the unpack over each variant of it.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / folder) for folder in ("evidence", "mutants")]

from attempts import Attempt  # noqa: E402 (the path)
from bench import NCCL  # noqa: E402 (the path)
from broken_copy import BrokenCopy, Patch  # noqa: E402 (the path)
from build_tools import find_tool  # noqa: E402 (the path)
from sweep_variants import (  # noqa: E402 (the path)
    PARTS,
    RUNS,
    TIME,
    UNPACK,
    all_variants,
    is_ablation,
)

from tcpx_mpi import _native  # noqa: E402 (the path)
from tcpx_mpi.machine.gpu.compiler import nvrtc_folders  # noqa: E402 (the path)
from tcpx_mpi.machine.topology import read_host, this_machine  # noqa: E402 (the path)
from tcpx_mpi.plugin.softtcpx_defaults import workers_for  # noqa: E402 (the path)

#: The runs that are to be as quick as NCCL.
BESIDE_NCCL = ("pair-64M", "ring-64M", "pair-8K")
NCCL_S = 10.0  # of one of them
LIMIT_S = 120
BUILD = TESTS.parent / "build" / "sweep"
RELEASE = ("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS=")


def nvrtc_folder() -> str:
    """For the native programs; "": the loader finds it."""
    return next(iter(nvrtc_folders(sys.path, os.environ)), "")


class Failed(Exception):
    """A launch that gave no figure."""


@dataclass(frozen=True)
class Side:
    """What is launched once a round: a run of the tree as it is, or with a variant."""

    name: str
    run: str
    variant: Attempt | None = None
    #: The package of the run, or the program that times the kernel; None: what is installed.
    built: Path | None = None

    @property
    def environ(self) -> dict[str, str]:
        return dict(self.variant.environ) if self.variant else {}

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(self.variant.options) if self.variant else ()

    def arguments(self) -> list[str]:
        """Of `tcpx-mpi run`; the last of an option that is there twice counts."""
        pattern, *options = RUNS[self.run]
        return [pattern, "--ranks", "2", "--memory", "cuda", "--plugin", "softtcpx", *options,
                *self.options]  # fmt: skip

    def command(self) -> str:
        """As a user would type it."""
        settings = [f"{name}={value}" for name, value in self.environ.items()]
        if self.run in PARTS:
            return " ".join([*settings, PARTS[self.run].program, *PARTS[self.run].arguments])
        return " ".join([*settings, "tcpx-mpi", "run", *self.arguments()])


# Builds -------------------------------------------------------------------------------------------


class Workshop:
    """Builds the tree as it is, and as each diff makes it."""

    def __init__(self, folder: Path) -> None:
        cmake = find_tool("cmake")
        if cmake is None:
            sys.exit("sweep: needs cmake: run `make gpu-setup` first")
        self._folder = folder
        self._copy = BrokenCopy(folder / "sources", cmake, RELEASE, os.cpu_count() or 2)
        self._copy.refresh()
        self._copy.configure()

    def sides(self, variants: dict[str, Attempt]) -> list[Side]:
        """Every run that a variant is of, as it is, and the variants; those of one diff as one."""
        runs = dict.fromkeys(variant.run for variant in variants.values())
        programs = {run: PARTS[run].program if run in PARTS else "" for run in runs}
        built = {
            (program, ()): self._build(program, ()) for program in sorted({*programs.values()})
        }
        sides = [Side(run, run, None, built[program, ()]) for run, program in programs.items()]
        for name, variant in variants.items():
            key = (programs[variant.run], variant.patches)
            if key not in built:
                built[key] = self._build(*key, name=name)
            sides.append(Side(name, variant.run, variant, built[key]))
        return sides

    def program(self, name: str) -> Path:
        """One of the native benchmarks, of the tree as it is."""
        self._copy.make(name)
        return self._copy.build / "native_tests" / name

    def proved(self, variant: Attempt) -> bool:
        """Whether the native tests of the unpack pass over it, on the stand-in for the driver."""
        with self._changed(variant.patches):
            self._copy.make("test_unpack_cuda")
            test = self._copy.build / "native_tests" / "test_unpack_cuda"
            return subprocess.run([str(test)], check=False).returncode == 0

    def _build(self, program: str, patches: tuple[Patch, ...], name: str = "as-is") -> Path:
        """The native benchmark of that name; "": the package."""
        target = self._folder / f"{name}-{program or 'package'}"
        shutil.rmtree(target, ignore_errors=True)
        with self._changed(patches):
            if program:
                self._copy.make(program)
                target.mkdir()
                return Path(shutil.copy2(self._copy.build / "native_tests" / program, target))
            self._copy.install()
            shutil.copytree(self._copy.folder / "tcpx_mpi", target / "tcpx_mpi")
            shutil.copy2(self._copy.package / "sitecustomize.py", target)
            return target

    @contextmanager
    def _changed(self, patches: tuple[Patch, ...]) -> Iterator[None]:
        for patch in patches:
            self._copy.apply(patch)
        try:
            yield
        finally:
            for patch in patches:
                self._copy.revert(patch)


# Launches -----------------------------------------------------------------------------------------


def launched(side: Side, hdf5: Path | None) -> dict[str, float]:
    """One launch: its figures, microseconds by name."""
    if side.run in PARTS:
        part = PARTS[side.run]
        cases = side.variant.figure.split() if side.variant else part.cases
        chosen = [nvrtc_folder(), *cases] if side.run == UNPACK else []
        command = [str(side.built), *part.arguments, *chosen]
        document = json.loads(_said(command, {**os.environ, **side.environ}))
        return {case["case"]: _time_us(case) for case in document["cases"]}
    with tempfile.TemporaryDirectory() as place:
        results = Path(place) / "run.json"
        _said(_run(side, hdf5, "-J", str(results)), _environ(side))
        row = json.loads(results.read_text())["results"][-1]
    return {TIME: row["out_of_place"]["time"]}


def _time_us(case: dict[str, Any]) -> float:
    """Of a launch of the kernel in a row of them, where that was measured; of a GiB of sends."""
    if "us_a_GiB_median" in case:
        return float(case["us_a_GiB_median"])
    return float(case.get("in_a_row", case["alone"])["unpack_us_median"])


def beside_nccl(side: Side, hdf5: Path) -> None:
    """A run of bench.py with the settings of `side`."""
    _said(_run(side, hdf5, *NCCL), _environ(side))


def _run(side: Side, hdf5: Path | None, *more: str) -> list[str]:
    return [sys.executable, "-m", "tcpx_mpi", "run", *side.arguments(),
            "--hdf5", str(hdf5 or "none"), *more]  # fmt: skip


def _environ(side: Side) -> dict[str, str]:
    paths = [str(side.built or ""), os.environ.get("PYTHONPATH", "")]
    # Loopback, so that a machine with other networks measures the same as one without.
    return {"NCCL_SOCKET_IFNAME": "lo", **os.environ, **side.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths))}  # fmt: skip


def _said(command: Sequence[str], environ: dict[str, str], limit_s: float = LIMIT_S) -> str:
    """What a command printed; it and all that it started are gone then.

    Its folder is not that of the sources, which Python would take for what was built, and it speaks
    into files: a pipe is open as long as anybody is left who holds it.
    """
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place) / "out", Path(place) / "err"
        with (
            open(out, "w") as told,
            open(err, "w") as complained,
            subprocess.Popen(command, env=environ, cwd=place, stdout=told, stderr=complained,
                             start_new_session=True) as process,
        ):  # fmt: skip
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                raise Failed(f"still running after {limit_s:g} s") from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if code != 0:
            raise Failed(f"exit {code}: {(err.read_text() or out.read_text())[-600:]}")
        return out.read_text()


# The story ----------------------------------------------------------------------------------------


@dataclass
class Sweep:
    """Rounds over all sides, and what they gave."""

    folder: Path
    sides: Sequence[Side]
    until: float  # on `clock`
    launch: Callable[[Side, Path | None], dict[str, float]] = launched
    clock: Callable[[], float] = time.monotonic
    facts: dict[str, Any] = field(default_factory=dict)
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    rounds: int = 0

    def run(self, rounds: int) -> None:
        """At least one, and no further one that would not end in time."""
        longest = 0.0
        while self.rounds < rounds and (self.rounds == 0 or self.clock() + longest <= self.until):
            began = self.clock()
            for side in self._order():
                if side.name not in self.failed:
                    self._launch_once(side)
            self.rounds += 1
            longest = max(longest, self.clock() - began)
            self.write()

    def _order(self) -> Sequence[Side]:
        """Of neighbours the first is now the one, now the other."""
        return self.sides if self.rounds % 2 == 0 else self.sides[::-1]

    def _launch_once(self, side: Side) -> None:
        hdf5 = self.folder / f"{side.name}.h5" if self.rounds == 0 and side.run in RUNS else None
        try:
            figures = self.launch(side, hdf5)
        except Failed as error:
            self.failed[side.name] = str(error)
            print(f"{side.name}: {error}", file=sys.stderr, flush=True)
            return
        for name, value in figures.items():
            self.values.setdefault(side.name, {}).setdefault(name, []).append(float(f"{value:.5g}"))
        print(side.name, *(f"{name} {value:.5g} us" for name, value in figures.items()), flush=True)

    def chosen(self, run: str) -> Side:
        """The quickest of a run as it is and its variants that only set something."""
        return min(
            (side for side in self.sides
             if side.run == run and side.name in self.values and side.name not in self.failed
             and not is_ablation(side.name) and not (side.variant and side.variant.patches)),
            key=lambda side: statistics.median(self.values[side.name][TIME]),
        )  # fmt: skip

    def write(self) -> None:
        launches = {
            side.name: {
                "run": side.run,
                "digest": side.variant.digest if side.variant else None,
                "command": side.command(),
                "us": self.values.get(side.name, {}),
            }
            for side in self.sides
        }
        document = {**self.facts, "rounds": self.rounds, "launches": launches,
                    "failed": self.failed}  # fmt: skip
        target = self.folder / "sweep.json"
        fresh = target.with_suffix(".new")
        fresh.write_text(json.dumps(document, indent=1) + "\n")
        fresh.replace(target)


def machine_facts() -> dict[str, Any]:
    """What the figures are of."""
    gpus = _native.cuda_devices()
    return {
        "gpus": [gpu["name"] for gpu in gpus],
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }


def main(words: Sequence[str] | None = None) -> int:
    began = time.monotonic()
    asked = _asked(words)
    variants = matching(asked.only)
    if not variants:
        print(f"sweep: no variant or run is called {' or '.join(asked.only)}", file=sys.stderr)
        return 2
    if asked.prove:
        return _proved(variants)
    runs = {variant.run for variant in variants.values()} & RUNS.keys()
    if runs and (count := len(this_machine().gpus)) < 2:
        print(
            f"found {count} GPUs, 2 are needed: two ranks on one share its links", file=sys.stderr
        )
        return 2
    folder = Path(asked.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    workshop = Workshop(BUILD)
    sides = workshop.sides(variants)
    facts = machine_facts()
    facts["steps"] = _document(workshop, "bench_steps_cuda", "201", nvrtc_folder()).get("steps")
    if runs:  # whose ceiling it is
        workers = workers_for([read_host()] * 2)
        facts["streams"] = _document(workshop, "bench_streams", str(workers))
    beside = [run for run in BESIDE_NCCL if any(side.run == run for side in sides)]
    sweep = Sweep(folder, sides, began + asked.seconds - NCCL_S * len(beside), facts=facts)
    sweep.run(asked.rounds)
    for run in beside:
        try:
            side = sweep.chosen(run)
            print(f"{run}: {side.name} beside NCCL", flush=True)
            beside_nccl(side, folder / f"{run}-chosen.h5")
            sweep.facts.setdefault("chosen", {})[run] = side.name
        except (Failed, ValueError) as error:
            sweep.failed[f"{run}-chosen"] = str(error)
            print(f"{run} beside NCCL: {error}", file=sys.stderr)
    sweep.write()
    return 0 if facts["steps"] and facts.get("streams", True) and not sweep.failed else 1


def matching(patterns: Sequence[str]) -> dict[str, Attempt]:
    """The variants whose name, or whose run's, fits one of the patterns."""
    return {
        name: variant for name, variant in all_variants().items()
        if any(fnmatch.fnmatch(word, pattern) for word in (name, variant.run)
               for pattern in patterns)
    }  # fmt: skip


def _document(workshop: Workshop, program: str, *arguments: str) -> dict[str, Any]:
    """What a native benchmark measured; nothing where it failed, which is said."""
    try:
        said = _said([str(workshop.program(program)), *arguments], dict(os.environ))
        return dict(json.loads(said))
    except Failed as error:
        print(f"{program}: {error}", file=sys.stderr)
        return {}


def _asked(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sweep.py")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--seconds", type=float, default=450.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN")
    parser.add_argument("--prove", action="store_true")
    asked = parser.parse_args(words)
    if (asked.folder is None) != asked.prove:
        parser.error("a FOLDER for results, or --prove")
    if asked.rounds < 1:
        parser.error(f"--rounds {asked.rounds}: at least 1")
    return asked


def _proved(variants: dict[str, Attempt]) -> int:
    workshop = Workshop(BUILD)
    # Those of the engine too: what they unpack must be right.
    wrong = [name for name, variant in variants.items()
             if variant.patches and not workshop.proved(variant)]  # fmt: skip
    print("wrong:", ", ".join(wrong) or "none", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

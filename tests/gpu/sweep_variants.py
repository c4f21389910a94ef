"""What was thought of for speed on GPUs: variants/NAME.patch, as tests/evidence/attempts reads it.

`run` is one of RUNS, or of PARTS: a native benchmark of one GPU, whose figures are its cases. A
name that begins with `without-` is an ablation: it shows where time goes and is never chosen.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / folder) for folder in ("evidence", "mutants", "gpu")]

from attempts import Attempt, read_attempt  # noqa: E402 (the path is above)
from bench import LARGE, SMALL  # noqa: E402 (the path is above)

VARIANTS = Path(__file__).parent / "variants"
#: Of tcpx-mpi, as in bench.py without NCCL beside it.
RUNS: dict[str, tuple[str, ...]] = {
    "pair-64M": ("pair", *LARGE),
    "ring-64M": ("ring", *LARGE),
    "pair-8K": ("pair", *SMALL),
    "pingpong-8K": ("pingpong", *SMALL),
}
TIME = "time"


@dataclass(frozen=True)
class Part:
    """What is measured alone, by a native benchmark."""

    program: str
    arguments: tuple[str, ...]
    cases: tuple[str, ...]


def _cases(program: str, pattern: str) -> tuple[str, ...]:
    return tuple(re.findall(pattern, (TESTS / "native" / f"{program}.cc").read_text(), re.M))


UNPACK = "unpack"
SENDS = "sends"
PARTS = {
    UNPACK: Part("bench_unpack_cuda", ("25",),
                 _cases("bench_unpack_cuda", r'^ +\{"(\w+)", UnpackMode')),
    SENDS: Part("bench_sends_cuda", ("9",), _cases("bench_sends_cuda", r'measure\("(\w+)"')),
}  # fmt: skip


def all_variants(folder: Path = VARIANTS) -> dict[str, Attempt]:
    """By name, in alphabetical order. Raises ValueError for one that is senseless."""
    found = {path.stem: _read(path) for path in sorted(folder.glob("*.patch"))}
    for name in (RUNS.keys() | PARTS.keys()) & found.keys():
        raise ValueError(f"{name}.patch: a run has that name")
    return found


def is_ablation(name: str) -> bool:
    return name.startswith("without-")


def _read(path: Path) -> Attempt:
    known = (TIME, *(case for part in PARTS.values() for case in part.cases))
    variant = read_attempt(path, (*RUNS, *PARTS), known)
    figures = variant.figure.split()
    if variant.run in RUNS and figures != [TIME]:
        raise ValueError(f"{path.name}: of a run the figure is {TIME}")
    if variant.run in PARTS and not set(figures) <= set(PARTS[variant.run].cases):
        raise ValueError(f"{path.name}: the figures of {variant.run} are its cases")
    if variant.run == UNPACK and not variant.patches:
        raise ValueError(f"{path.name}: the kernel alone has no settings: needs a diff")
    if variant.run == SENDS and variant.patches:  # the benchmark loads the plugin as it is
        raise ValueError(f"{path.name}: of sends alone: settings, no diff")
    return variant

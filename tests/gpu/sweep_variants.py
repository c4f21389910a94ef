"""What was thought of for speed on GPUs: variants/NAME.patch, as tests/evidence/attempts reads it.

`run` is one of RUNS, or `unpack`: the kernel alone, whose figures are cases of bench_unpack_cuda. A
name that begins with `without-` is an ablation: it shows where time goes and is never chosen.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / folder) for folder in ("evidence", "mutants", "gpu")]

from attempts import Attempt, read_attempt  # noqa: E402 (the path is above)
from bench import LARGE, SMALL  # noqa: E402

VARIANTS = Path(__file__).parent / "variants"
#: Of tcpx-mpi, as in bench.py without NCCL beside it.
RUNS: dict[str, tuple[str, ...]] = {
    "pair-64M": ("pair", *LARGE),
    "ring-64M": ("ring", *LARGE),
    "pair-8K": ("pair", *SMALL),
    "pingpong-8K": ("pingpong", *SMALL),
}
UNPACK = "unpack"
TIME = "time"
_BENCH = TESTS / "native" / "bench_unpack_cuda.cc"
#: The cases of the kernel alone.
CASES: tuple[str, ...] = tuple(re.findall(r'^ +\{"(\w+)", UnpackMode', _BENCH.read_text(), re.M))


def all_variants(folder: Path = VARIANTS) -> dict[str, Attempt]:
    """By name, in alphabetical order. Raises ValueError for one that is senseless."""
    found = {path.stem: _read(path) for path in sorted(folder.glob("*.patch"))}
    for name in RUNS.keys() & found.keys():
        raise ValueError(f"{name}.patch: a run has that name")
    return found


def is_ablation(name: str) -> bool:
    return name.startswith("without-")


def _read(path: Path) -> Attempt:
    variant = read_attempt(path, (*RUNS, UNPACK), (TIME, *CASES))
    cases = variant.figure.split()
    if variant.run == UNPACK and (TIME in cases or not variant.patches):
        raise ValueError(f"{path.name}: of the kernel alone: needs a diff, and cases as figures")
    if variant.run != UNPACK and cases != [TIME]:
        raise ValueError(f"{path.name}: of a run the figure is {TIME}")
    return variant

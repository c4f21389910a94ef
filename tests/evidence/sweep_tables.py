"""The tables of docs/reference/performance.md on what was tried on GPUs: of runs out of
docs/evidence/gpu/sweep, of parts alone out of sweep-parts, which may be of another machine.

What was not measured is shown with what is predicted of it: that is older than any outcome.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gpu_tables import GPU_EVIDENCE

from tcpx_mpi.stats.ratios import bootstrap_interval
from tcpx_mpi.units import parse_size

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpu"))

from sweep import Side
from sweep_variants import PARTS, RUNS, TIME, all_variants, is_ablation

SWEEP = GPU_EVIDENCE / "sweep"
PARTS_SWEEP = GPU_EVIDENCE / "sweep-parts"
NOT_MEASURED = "not measured"


def sweep_table(names: Sequence[str], folder: Path = SWEEP) -> list[str]:
    """Every variant of a run on two GPUs."""
    return _variants_table("make sweep-gpu", tuple(RUNS), _read(folder))


def parts_table(names: Sequence[str], folder: Path = PARTS_SWEEP) -> list[str]:
    """Every variant of a part alone."""
    return _variants_table("make sweep-parts", tuple(PARTS), _read(folder))


def _variants_table(command: str, runs: Sequence[str], found: dict[str, Any]) -> list[str]:
    """Prediction and outcome of their variants, by launches in turns; failures too."""
    launches = found.get("launches", {})
    variants = {name: each for name, each in all_variants().items() if each.run in runs}
    lines = [
        *_machine(command, found),
        *_other_settings(runs, launches),
        "| variant | tried | predicted | figure | without | with | with / without | kept |",
        "|--|--|--|--|--|--|--|--|",
    ]
    for name, variant in sorted(
        variants.items(), key=lambda each: (runs.index(each[1].run), each[0])
    ):
        ours = launches.get(name)
        if ours is not None and ours["digest"] != variant.digest:
            raise ValueError(f"{name}: its outcome is of another form of it: measure it anew")
        kept = "" if is_ablation(name) else "yes" if variant.kept else "no"
        said = f"{variant.tried} | {variant.predicted}"
        for figure in variant.figure.split():
            outcome = _outcome(found, name, figure, variant.kept)
            what = variant.run if figure == TIME else figure
            lines.append(f"| `{name}` | {said} | {what} | {outcome} | {kept} |")
            said = " | "  # once
    return lines


def steps_table(names: Sequence[str], folder: Path = SWEEP) -> list[str]:
    """A small message out of a GPU and into it, step by step, on an idle GPU."""
    lines = ["| step | bytes | calls | until it is seen |", "|--|--|--|--|"]
    lines += [
        f"| `{step['step']}` | {step['bytes']} | {step['calls_us_median']:.4g} us "
        f"| {step['seen_us_median']:.4g} us |"
        for step in _read(folder).get("steps") or []
    ]
    return lines if len(lines) > 2 else [f"`bench_steps_cuda`: {NOT_MEASURED} yet."]


def streams_table(names: Sequence[str], folder: Path = SWEEP) -> list[str]:
    """Plain TCP between as many threads as the runs have, and how near those came beside it."""
    found = _read(folder)
    if not found.get("streams"):
        return [f"`bench_streams`: {NOT_MEASURED} yet."]
    ways = found["streams"]["ways"]
    lines = [
        f"`make sweep-gpu` on {_gpus(found)}, {found['date']}, "
        f"congestion control {found['streams']['congestion']}, and runs of the same hour:",
        "",
        "| threads | plain TCP | run | its bytes, both ways | share |",
        "|--|--|--|--|--|",
    ]
    for way in ways:
        if not way["right"]:
            raise ValueError("bench_streams: wrong bytes")
        run, directions = _RUN_OF_WAY[way["way"]]
        times_us = found["launches"].get(run, {}).get("us", {}).get(TIME, [])
        told = "| |"
        if times_us:
            size = parse_size(RUNS[run][RUNS[run].index("-b") + 1])
            gbps = directions * size / statistics.median(times_us) / 1e3
            told = f"{gbps:.3g} GB/s | {gbps / way['GBps_median']:.2f} |"
        lines.append(
            f"| {way['threads']}, {_THREADS[way['way']]} | {way['GBps_median']:.3g} GB/s, "
            f"{min(way['GBps']):.3g} - {max(way['GBps']):.3g} | `{run}` | {told}"
        )
    return lines


#: The run that does as bench_streams, and in how many directions its bytes go.
_RUN_OF_WAY = {"one": ("pair-64M", 1), "both": ("ring-64M", 2)}
_THREADS = {"one": "one at each end of a stream", "both": "each sends and receives"}


def _read(folder: Path) -> dict[str, Any]:
    file = folder / "sweep.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _machine(command: str, found: dict[str, Any]) -> list[str]:
    if not found:
        return [f"`{command}`: {NOT_MEASURED} yet.", ""]
    return [f"`{command}` on {_gpus(found)}, {found['date']}, "
            f"{found['rounds']} launches each in turns:", ""]  # fmt: skip


def _gpus(found: dict[str, Any]) -> str:
    gpus = ", ".join(f"{found['gpus'].count(name)} {name}" for name in dict.fromkeys(found["gpus"]))
    return f"{gpus}, {found['cores']} cores"


def _other_settings(runs: Sequence[str], launches: dict[str, Any]) -> list[str]:
    """How runs were launched that have other settings now: outcomes are beside that, not this."""
    commands = {run: launches[run]["command"] for run in runs if run in launches}
    others = [f"{run + ':':<13} {command}" for run, command in commands.items()
              if command != Side(run, run).command()]  # fmt: skip
    if not others:
        return []
    return ["These runs had other settings then than now, with and without each variant:", "",
            "```", *others, "```", ""]  # fmt: skip


def _outcome(found: dict[str, Any], name: str, figure: str, kept: bool) -> str:
    """The columns `without`, `with` and their ratio."""
    if said := found.get("failed", {}).get(name):
        return f"| | failed: {' '.join(said.split())[:80]}"
    launches = found.get("launches", {})
    ours = launches.get(name)
    changed = ours["us"].get(figure, []) if ours else []
    as_is = launches[ours["run"]]["us"].get(figure, []) if ours else []
    if not changed or len(changed) != len(as_is):
        return f"| {NOT_MEASURED} |"
    with_it, without = (as_is, changed) if kept else (changed, as_is)
    pairs = np.array(with_it) / np.array(without)
    low, high = bootstrap_interval(pairs)
    interval = f" ({low:.3f} - {high:.3f})" if pairs.size > 1 else ", of one launch"
    return f"{_spread(without)} us | {_spread(with_it)} us | {np.median(pairs):.3f}{interval}"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.4g} ({min(values):.4g} - {max(values):.4g})"

"""The tables of docs/performance.md on copies out of GPUs, and on messages of middle size."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from gpu_tables import GPU_EVIDENCE

from tcpx_mpi.records import read_run
from tcpx_mpi.report import summarise_row
from tcpx_mpi.units import format_size

COPIES = GPU_EVIDENCE / "copies_together"
_LINE = re.compile(r"(\d+) KiB, (.+): ([\d.]+) us, of which calls ([\d.]+) us")
#: How copies may be begun that is shown of what was tried.
_FORMS = (
    "one by one, a stream for each connection",
    "one by one, on one stream",
    "together, on one stream: as it is",
    "together, on two streams in turn",
)
#: Sizes that are shown of those that were measured, in KiB.
_SHOWN = ("8", "64", "128", "472")


def copies_table(_names: Sequence[str]) -> list[str]:
    """Microseconds a copy, and those of them that the calls take, by how copies are begun."""
    gpu, *lines = (COPIES / "two_h100.txt").read_text().splitlines()
    found = [match.groups() for line in lines if (match := _LINE.fullmatch(line))]
    assert len(found) == len(lines)
    table = [f"`copies_together` on {gpu}; medians of 7, and what of that is the calls':", "",
             "| copies | " + " | ".join(f"{kib} KiB" for kib in _SHOWN) + " |",
             "|--" * (1 + len(_SHOWN)) + "|"]  # fmt: skip
    for way in dict.fromkeys(way for _, way, _, _ in found):
        cells = [
            f"{us} us, {calls}"
            for kib in _SHOWN
            for size, name, us, calls in found
            if (size, name) == (kib, way)
        ]
        table.append(f"| {way} | {' | '.join(cells)} |")
    return table


def together_table(_names: Sequence[str]) -> list[str]:
    """Launches in turns by how copies are begun; times of every launch, the median first."""
    document = json.loads((COPIES / "runs.json").read_text())
    lines = [f"`{document['command']}`:"]
    for machine, runs in groupby(document["runs"], key=lambda each: each["machine"]):
        lines += ["", f"{machine}:", "", "| run | size | copies | launches | time | "
                  "taken by the hypervisor, at most |", "|--|--|--|--|--|--|"]  # fmt: skip
        lines += [_together_line(each) for each in runs if each["how"] in _FORMS]
    return lines


def _together_line(each: Mapping[str, Any]) -> str:
    us, stolen = each["us"], each["stolen_percent"]
    spread = f", {min(us):.4g} - {max(us):.4g}" if len(us) > 1 else ""
    taken = "not known" if stolen is None else f"{stolen:g} %" if stolen else "below 2 %"
    return (
        f"| {each['run']} | {format_size(each['bytes'])} | {each['how']} | {len(us)} "
        f"| {np.median(us):.4g} us{spread} | {taken} |"
    )


def middle_table(names: Sequence[str]) -> list[str]:
    """Times of messages of middle size and ratios to NCCL: a pair's and a ring's files, or
    "before"."""
    found = _middle_before() if list(names) == ["before"] else _middle_runs(names)
    patterns = list(found)
    heads = " | ".join(f"{pattern}, chunk | time | ratio to NCCL" for pattern in patterns)
    lines = [f"| size | {heads} |", "|--" * (1 + 3 * len(patterns)) + "|"]
    for size in found[patterns[0]]:
        cells = " | ".join(found[pattern][size] for pattern in patterns)
        lines.append(f"| {format_size(size)} | {cells} |")
    return lines


def _middle_runs(names: Sequence[str]) -> dict[str, dict[int, str]]:
    """By pattern and size; of several launches the one with the median time."""
    found: dict[str, dict[int, str]] = {}
    for name in names:
        run = read_run(str(GPU_EVIDENCE / f"{name}.h5"))
        by_size: dict[int, list[Any]] = {}
        for each in run.all_launches:
            for row in each.rows:
                summary = summarise_row(each.header, row)
                assert summary.wrong_found == 0
                by_size.setdefault(row.size_bytes, []).append((summary, row.chunk_bytes))
        found[run.header.pattern] = {
            size: _middle_cells(*sorted(launches, key=lambda x: x[0].time_ns)[len(launches) // 2])
            for size, launches in sorted(by_size.items())
        }
    return found


def _middle_cells(row: Any, chunk: int) -> str:
    beside = row.against["nccl"]
    ratio = f"{beside.ratio:.2f} ({beside.ci_low:.2f} - {beside.ci_high:.2f})"
    return f"{format_size(chunk)} | {row.time_ns / 1e3:.4g} us | {ratio}"


def _middle_before() -> dict[str, dict[int, str]]:
    rows = json.loads((GPU_EVIDENCE / "middle_before.json").read_text())["rows"]
    return {
        pattern: {
            each["bytes"]: f"{format_size(472 << 10)} | {each['us']:.4g} us "
            f"| {each['ratio']:.2f} ({each['low']:.2f} - {each['high']:.2f})"
            for each in of_pattern
        }
        for pattern, of_pattern in rows.items()
    }

"""The figures of docs/performance.md, out of the result files in docs/evidence.

Usage: python tests/evidence/performance_page.py --write

A figure stands only between `<!-- figures: KIND NAME ... -->` and `<!-- end of figures -->`, and
what stands there is made here: nothing is typed by hand. KIND is `ratios` (runs beside peers),
`intervals` (their launches), `measured` (measured.json) or `attempts` (attempts.json).
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tcpx_mpi.ratios import Ratio, strongest
from tcpx_mpi.records import Run, read_run
from tcpx_mpi.report import summarise_row
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.units import format_size

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "performance.md"
EVIDENCE = REPOSITORY / "docs" / "evidence"
BLOCK = re.compile(r"(<!-- figures: (\w+) ([^>]*?) ?-->\n).*?(<!-- end of figures -->)", re.DOTALL)

#: What was set out to be reached: name of the runs -> the column that is judged, and the limit.
LIMITS = {
    "pair-1MiB": ("equal", 0.85),
    "pair-64MiB": ("equal", 0.90),
    "pingpong-8B": ("equal", 1 / 1.3),
    "ring-1MiB": ("equal", 0.85),
    "mesh-1MiB": ("equal", 0.60),
}


def rendered(page: str) -> str:
    """The page with every block of figures made anew."""

    def block(match: re.Match[str]) -> str:
        lines = TABLES[match[2]](match[3].split())
        return match[1] + "\n".join(lines) + "\n" + match[4]

    return BLOCK.sub(block, page)


def ratios_table(names: Sequence[str]) -> list[str]:
    """Runs beside their peers: over launches, the median (lowest - highest) of the ratios."""
    lines = [
        "| run | plugin | raw, equal streams | ratio | wanted | raw best | to MPI |",
        "|--|--|--|--|--|--|--|",
    ]
    for name in names:
        launches = [read_run(str(path)) for path in sorted(EVIDENCE.glob(f"{name}.*.h5"))]
        rows = [summarise_row(run.header, run.rows[-1]) for run in launches]
        equal = [row.against["raw"] for row in rows]
        limit = f">= {LIMITS[name][1]:.2f}" if name in LIMITS else ""
        lines.append(
            f"| `{name}` | {_figures([each.ours for each in equal])} {_unit(equal[0])} "
            f"| {_figures([each.theirs for each in equal])} | {_ratios(equal)} | {limit} "
            f"| {_ratios([_best(run, row) for run, row in zip(launches, rows, strict=True)])} "
            f"| {_ratios([row.against['mpi'] for row in rows if 'mpi' in row.against])} |"
        )
    lines += ["", "", "```"]
    for name in names:
        run = read_run(str(EVIDENCE / f"{name}.0.h5"))
        lines.append(f"{name + ':':<15} {_command(run)}")
    return [*lines, "```"]


def intervals_table(names: Sequence[str]) -> list[str]:
    """Every launch with its own interval, and the circumstances that explain a spread."""
    lines = [
        "| launch | size | time | ratio to raw, 95 % interval | blocks | preempted | wrong bytes |",
        "|--|--|--|--|--|--|--|",
    ]
    for name in names:
        for path in sorted(EVIDENCE.glob(f"{name}.*.h5")):
            run = read_run(str(path))
            row = summarise_row(run.header, run.rows[-1])
            ratio = row.against["raw"]
            lost = sum(max(rank.driver_preemptions, 0) for rank in run.rows[-1].proof)
            lines.append(
                f"| `{path.name}` | {format_size(row.size_bytes)} | {row.time_ns / 1e3:.4g} us "
                f"| {ratio.ratio:.3f} ({ratio.ci_low:.3f} - {ratio.ci_high:.3f}) | {ratio.blocks} "
                f"| {lost} | {row.wrong_found} |"
            )
    return lines


def measured_table(names: Sequence[str]) -> list[str]:
    """Other figures: median (lowest - highest) of their values."""
    everything = json.loads((EVIDENCE / "measured.json").read_text())
    lines = ["| what | how | figure | of | load |", "|--|--|--|--|--|"]
    for name in names:
        found: dict[str, Any] = everything[name]
        what = f"{name}: {found['note']}" if found["note"] else name
        lines.append(
            f"| {what} | `{found['command']}` | {_figures(found['values'])} {found['unit']} "
            f"| {len(found['values'])} | {found['load']} |"
        )
    return lines


def attempts_table(names: Sequence[str]) -> list[str]:
    """What was tried for speed: prediction and outcome, failures too."""
    attempts = json.loads((EVIDENCE / "attempts.json").read_text())
    lines = ["| attempt | predicted | outcome | kept |", "|--|--|--|--|"]
    lines += [
        f"| {each['attempt']} | {each['predicted']} | {each['outcome']} | {each['kept']} |"
        for each in attempts
    ]
    return lines


TABLES: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "ratios": ratios_table,
    "intervals": intervals_table,
    "measured": measured_table,
    "attempts": attempts_table,
}


def _best(run: Run, row: RowSummary) -> Ratio:
    names = [peer.name for peer in run.header.peers if peer.kind == "raw"]
    best = strongest(row.against, names)
    assert best is not None
    return best


def _ratios(found: Sequence[Ratio]) -> str:
    return _figures([each.ratio for each in found], digits=2) if found else ""


def _figures(values: Sequence[float], digits: int = 3) -> str:
    """The median, and the range where there is more than one value."""

    def text(value: float) -> str:
        return f"{value:.{digits}f}" if digits == 2 else f"{value:.{digits}g}"

    middle = text(statistics.median(values))
    return f"{middle} ({text(min(values))} - {text(max(values))})" if len(values) > 1 else middle


def _unit(ratio: Ratio) -> str:
    return "us" if ratio.metric == "time" else "GB/s"


def _command(run: Run) -> str:
    words = run.header.command
    hidden = words.index("--hdf5")
    return " ".join(["tcpx-mpi", *words[1:hidden], *words[hidden + 2 :]])


def main() -> None:
    page = PAGE.read_text()
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(rendered(page))
    elif rendered(page) != page:
        sys.exit("docs/performance.md does not say what docs/evidence does: run it with --write")


if __name__ == "__main__":
    main()

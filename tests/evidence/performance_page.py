"""The figures of docs/performance.md and README, out of the result files in docs/evidence.

Usage: python tests/evidence/performance_page.py --write

A figure stands only between `<!-- figures: KIND NAME ... -->` and `<!-- end of figures -->`, and
what stands there is made here: nothing is typed by hand. KIND is `ratios` (runs beside peers),
`intervals` (their launches), `measured` (measured.json), `attempts` (attempts/*.json), `verdicts`
(verdicts.json), or of GPUs `gpu` (runs), `sides` (their ranks), `unpack` (the kernel), `launches`
(each of the kernel's), `experiments` (gpu/NAME_experiments.json), `sweep`, `steps` and `streams`
(gpu/sweep/sweep.json), `parts` (gpu/sweep-parts/sweep.json), `kernel` (gpu/unpack_parts), `copies`
and `together` (gpu/copies_together), `middle` (runs of many sizes beside NCCL).
"""

from __future__ import annotations

import functools
import json
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import quiet_runs
import verdicts
from attempts import outcomes
from copies_tables import copies_table, middle_table, together_table
from gpu_tables import (
    experiments_table,
    gpu_runs_table,
    gpu_sides_table,
    unpack_launches_table,
    unpack_parts_table,
    unpack_table,
)
from sweep_tables import parts_table, steps_table, streams_table, sweep_table

from tcpx_mpi.records import Run, read_run
from tcpx_mpi.report import report_lines, summarise_row
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.stats.ratios import Ratio, bootstrap_interval, strongest
from tcpx_mpi.units import format_size

REPOSITORY = Path(__file__).resolve().parents[2]
README = REPOSITORY / "README.md"
PAGE = REPOSITORY / "docs" / "reference" / "performance.md"
EVIDENCE = REPOSITORY / "docs" / "evidence"
REPORT = re.compile(r"(```\n\$ tcpx-mpi report (docs/evidence/\S+)\n).*?\n```", re.DOTALL)
BLOCK = re.compile(r"(<!-- figures: (\w+) ([^>]*?) ?-->\n).*?(<!-- end of figures -->)", re.DOTALL)

#: What was set out to be reached beside raw at equal streams, by the name of the runs.
LIMITS = {
    "pair-1MiB": 0.85,
    "pair-64MiB": 0.90,
    "pingpong-8B": 1 / 1.3,
    "ring-1MiB": 0.85,
    "mesh-1MiB": 0.60,
}


def rendered(page: str) -> str:
    """The page with every block of figures made anew."""

    def block(match: re.Match[str]) -> str:
        lines = TABLES[match[2]](match[3].split())
        return match[1] + "\n".join(lines) + "\n" + match[4]

    return BLOCK.sub(block, page)


def readme_rendered(text: str) -> str:
    """README with the report that it shows, of the evidence that it names, printed anew."""

    def block(match: re.Match[str]) -> str:
        lines = report_lines(read_run(str(REPOSITORY / match[2])))
        # The name of the file is as it was given.
        written = f"# Written              : {match[2]}"
        shown = [written if line.startswith("# Written") else line.rstrip() for line in lines]
        return match[1] + "\n".join(shown) + "\n```"

    return REPORT.sub(block, text)


def ratios_table(names: Sequence[str]) -> list[str]:
    """Runs beside their peers: over launches, the median (lowest - highest) of the ratios."""
    lines = [
        "| run | plugin | raw, equal streams | ratio | raw at its best | ratio | wanted | reached "
        "| to mpi4py |",
        "|--|--|--|--|--|--|--|--|--|",
    ]
    for name in names:
        launches = launches_of(name)
        rows = [row for _, row in launches]
        equal, best = beside_raw(launches)
        lines.append(
            f"| `{name}` | {_figures([each.ours for each in equal])} {_unit(equal[0])} "
            f"| {_figures([each.theirs for each in equal])} | {_ratios(equal)} "
            f"| {_figures([each.theirs for each in best])} | {_ratios(best)} "
            f"| {_wanted(name)} | {_reached(name, equal, best)} "
            f"| {_ratios([row.against['mpi'] for row in rows if 'mpi' in row.against])} |"
        )
    lines += ["", "", "```"]
    for name in names:
        run, _ = kept(EVIDENCE / f"{name}.0.h5")
        lines.append(f"{name + ':':<15} {_command(run)}")
    return [*lines, "```"]


@functools.cache
def kept(path: Path) -> tuple[Run, list[RowSummary]]:
    """A run, and the summaries of its rows; of many figures the same ones are wanted."""
    run = read_run(str(path))
    return run, [summarise_row(run.header, row) for row in run.rows]


def launches_of(name: str) -> list[tuple[Run, RowSummary]]:
    """Every launch of a run, with the summary of its last row."""
    found = map(kept, sorted(EVIDENCE.glob(f"{name}.*.h5")))
    return [(run, rows[-1]) for run, rows in found]


def beside_raw(launches: Sequence[tuple[Run, RowSummary]]) -> tuple[list[Ratio], list[Ratio]]:
    """The ratios to raw at equal streams, and to raw at its best, launch by launch."""
    return [row.against["raw"] for _, row in launches], [_best(run, row) for run, row in launches]


def intervals_table(names: Sequence[str]) -> list[str]:
    """Every launch with its own interval, and the circumstances that explain a spread."""
    lines = [
        "| launch | size | time | ratio to raw, 95 % interval | blocks | preempted | wrong bytes |",
        "|--|--|--|--|--|--|--|",
    ]
    for name in names:
        for path in sorted(EVIDENCE.glob(f"{name}.*.h5")):
            run, (*_, row) = kept(path)
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
    lines = ["| what | how | figure | of | busy before |", "|--|--|--|--|--|"]
    for name in names:
        found: dict[str, Any] = everything[name]
        what = f"{name}: {found['note']}" if found["note"] else name
        lines.append(
            f"| {what} | `{found['command']}` | {_figures(found['values'])} {found['unit']} "
            f"| {len(found['values'])} | {found['busy_percent']} % |"
        )
    return lines


def attempts_table(names: Sequence[str]) -> list[str]:
    """What was tried for speed: prediction and outcome, failures too."""
    lines = [
        "| attempt | tried | predicted | without | with | with / without | kept | busy before |",
        "|--|--|--|--|--|--|--|--|",
    ]
    for attempt, found in outcomes():
        pairs = np.array(found["with"]) / np.array(found["without"])
        low, high = bootstrap_interval(pairs)
        lines.append(
            f"| `{attempt.name.split('@')[0]}`, {attempt.run} | {attempt.tried} "
            f"| {attempt.predicted if '@' not in attempt.name else ''} "
            f"| {_figures(found['without'])} {found['unit']} | {_figures(found['with'])} "
            f"| {np.median(pairs):.2f} ({low:.2f} - {high:.2f}) "
            f"| {'yes' if attempt.kept else 'no'} | {found['busy_percent']} % |"
        )
    return lines


def verdicts_table(_names: Sequence[str]) -> list[str]:
    """How often comparisons of this tool were right, by what B had."""
    kept = verdicts.read(verdicts.FILE)
    differs = {"same": "nothing", "slower": "receives 3 % slower"}
    lines = [
        "| B differs by | comparisons | same | inconclusive | worse | better | median ratio |",
        "|--|--|--|--|--|--|--|",
    ]
    for kind, counts in verdicts.verdicts_of(kept).items():
        ratios = [each["ratio"] for each in kept if each["kind"] == kind]
        cells = " | ".join(str(count) for count in counts.values())
        lines.append(f"| {differs[kind]} | {sum(counts.values())} | {cells} | {_figures(ratios)} |")
    command = json.loads(verdicts.FILE.read_text())["commands"]["slower"]
    return [*lines, "", "```", command, "```"]


def quiet_runs_table(_names: Sequence[str]) -> list[str]:
    """Whom `report` named in runs with and without somebody slow."""
    kept = quiet_runs.read(quiet_runs.FILE)
    commands = json.loads(quiet_runs.FILE.read_text())["commands"]
    lines = ["| command | who is slow | runs | somebody named | wrong |", "|--|--|--|--|--|"]
    for name, counts in quiet_runs.counts_of(kept).items():
        wanted = quiet_runs.KINDS[name].wanted
        slow = f"{wanted[0]} {wanted[1][0]}" if wanted and wanted[0] == "rank" else "nobody"
        if quiet_runs.KINDS[name].busy:
            slow += ", beside a busy loop"
        if quiet_runs.KINDS[name].slow_nic:
            node, nic, rate = quiet_runs.SLOW_NIC
            slow = f"NIC {nic} of node {node}: {rate}"
        lines.append(f"| `{commands[name]}` | {slow} | {' | '.join(map(str, counts))} |")
    return lines


TABLES: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "ratios": ratios_table,
    "intervals": intervals_table,
    "measured": measured_table,
    "attempts": attempts_table,
    "gpu": gpu_runs_table,
    "sides": gpu_sides_table,
    "unpack": unpack_table,
    "launches": unpack_launches_table,
    "kernel": unpack_parts_table,
    "copies": copies_table,
    "together": together_table,
    "middle": middle_table,
    "experiments": experiments_table,
    "verdicts": verdicts_table,
    "quiet": quiet_runs_table,
    "sweep": sweep_table,
    "parts": parts_table,
    "steps": steps_table,
    "streams": streams_table,
}


def _wanted(name: str) -> str:
    return f">= {LIMITS[name]:.2f}" if name in LIMITS else ""


def _reached(name: str, equal: Sequence[Ratio], best: Sequence[Ratio]) -> str:
    """Of which of the two ratios the median reaches what was wanted."""
    if name not in LIMITS:
        return ""
    reached = {
        label: statistics.median(each.ratio for each in ratios) >= LIMITS[name]
        for label, ratios in (("equal streams", equal), ("best", best))
    }
    return (
        "both" if all(reached.values()) else ", ".join(k for k, v in reached.items() if v) or "no"
    )


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
    for path, made in ((PAGE, rendered), (README, readme_rendered)):
        text = path.read_text()
        if sys.argv[1:] == ["--write"]:
            path.write_text(made(text))
        elif made(text) != text:
            sys.exit(f"{path.name} does not say what docs/evidence does: run it with --write")


if __name__ == "__main__":
    main()

"""Reads what nccl-tests prints and writes, as a script written for it would. Knows nothing of us.

Strict in what nccl-tests fixes (places, widths, words), blind to what stands to the right of it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CONFIG = re.compile(
    r"# nThread (?P<nthreads>\d+) nGpus (?P<ngpus>\d+) minBytes (?P<minimum_bytes>\d+) "
    r"maxBytes (?P<maximum_bytes>\d+) step: \d+\((?:bytes|factor|list)\) "
    r"warmup iters: (?P<warmup_iters>\d+) iters: (?P<iterations>\d+) "
    r"agg iters: (?P<aggregated_iterations>\d+) validation: (?P<validation>\d+) "
    r"graph: (?P<graph>\d+) unalign: \d+"
)
_DEVICE = re.compile(
    r"#  Rank +(\d+) Group +(\d+) Pid +(\d+) on +(\S+) device +(\d+) "
    r"\[([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})\] (\S.*)"
)
_TITLES = "size count type redop root" + " time algbw busbw #wrong" * 2
#: printf of a row: what is wider moves the rest to the right. A number of wrong elements has 6
#: places, an N/A in its place 5 or, with us, 6.
_ROWS = [
    "%12s  %12s  %8s  %6s  %6s" + "".join(f"  %7s  %6s  %6s  %{width}s" for width in widths)
    for widths in itertools.product((6, 5), repeat=2)
]
_UNITS = "# (B) (elements)" + " (us) (GB/s) (GB/s)" * 2


@dataclass(frozen=True)
class Side:
    """One side of a row; None where it says N/A."""

    time_us: float | None
    algbw: float | None
    busbw: float | None
    wrong: int | None


@dataclass(frozen=True)
class Row:
    """A row; a side that was not run is None."""

    size: int
    count: int
    type: str
    redop: str
    root: int
    out_of_place: Side | None
    in_place: Side | None


@dataclass(frozen=True)
class Device:
    """A rank and its device."""

    rank: int
    group: int
    pid: int
    host: str
    device: int
    address: str


@dataclass(frozen=True)
class Output:
    """All that a script can know of a run."""

    config: dict[str, int]
    devices: list[Device]
    rows: list[Row]
    out_of_bounds: int
    okay: bool
    bandwidth: float


def read_text(text: str) -> Output:
    """The output of a test. Raises ValueError for a line that nccl-tests would not print."""
    lines = text.splitlines()
    config = [match for line in lines if (match := _CONFIG.fullmatch(line))]
    devices = [match for line in lines if (match := _DEVICE.fullmatch(line))]
    titles = [n for n, line in enumerate(lines) if line[1:].split()[:13] == _TITLES.split()]
    if len(config) != 1 or not devices or len(titles) != 1 or titles[0] == 0:
        raise ValueError("not one configuration, some devices and one table")
    if lines[titles[0] - 1].split()[1:3] != ["out-of-place", "in-place"]:
        raise ValueError(f"not the sides: {lines[titles[0] - 1]!r}")
    if lines[titles[0] + 1].split()[:9] != _UNITS.split():
        raise ValueError(f"not the units: {lines[titles[0] + 1]!r}")
    bounds = _line_after(lines, "# Out of bounds values : ").split()
    bandwidth = _line_after(lines, "# Avg bus bandwidth    : ").split()
    return Output(
        config={name: int(value) for name, value in config[0].groupdict().items()},
        devices=[Device(int(d[1]), int(d[2]), int(d[3]), d[4], int(d[5]), d[6]) for d in devices],
        rows=[_row(line) for line in lines if line and not line.startswith("#")],
        out_of_bounds=int(bounds[0]),
        okay={"OK": True, "FAILED": False}[bounds[1]],
        bandwidth=float(bandwidth[0]),
    )


def read_document(document: Mapping[str, Any]) -> Output:
    """The document of `-J`. Raises KeyError where a key of version 3 is not there."""
    if document["version"] != 3:
        raise ValueError(f"version {document['version']}")
    config = document["config"]
    names = ("nthreads", "ngpus", "minimum_bytes", "maximum_bytes", "warmup_iters", "iterations",
             "aggregated_iterations", "validation", "graph")  # fmt: skip
    for name in ("start_time", "args", "env", "nccl_version", "errors", "end_time"):
        document[name]
    return Output(
        config={name: int(config[name]) for name in names},
        devices=[
            Device(d["rank"], d["group"], d["pid"], d["hostname"], d["device"], d["device_hex"])
            for d in config["devices"]
        ],
        rows=[
            Row(
                r["size"], r["count"], r["type"], r["redop"], r["root"],
                _document_side(r["out_of_place"]), _document_side(r["in_place"]),
            )
            for r in document["results"]
        ],
        out_of_bounds=document["out_of_bounds"]["count"],
        okay=document["out_of_bounds"]["okay"],
        bandwidth=document["average_bus_bandwidth"]["bandwidth"],
    )  # fmt: skip


def _row(line: str) -> Row:
    words = line.split()[:13]
    printed = [form % tuple(words) + "  " for form in _ROWS] if len(words) == 13 else []
    if not f"{line}  ".startswith(tuple(printed)):
        raise ValueError(f"not a row: {line!r}")
    size, count, kind, redop, root = words[:5]
    return Row(int(size), int(count), kind, redop, int(root), _side(words[5:9]), _side(words[9:]))


def _side(words: list[str]) -> Side | None:
    if words == ["N/A"] * 4:
        return None
    time, algbw, busbw = (None if word == "N/A" else float(word) for word in words[:3])
    return Side(time, algbw, busbw, None if words[3] == "N/A" else int(words[3]))


def _document_side(side: Mapping[str, Any] | None) -> Side | None:
    if side is None:
        return None
    return Side(side["time"], side["alg_bw"], side["bus_bw"], side["nwrong"])


def _line_after(lines: list[str], beginning: str) -> str:
    (line,) = [line for line in lines if line.startswith(beginning)]
    return line.removeprefix(beginning)

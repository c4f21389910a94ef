"""`tcpx-mpi ceiling`: the machine without any plugin, by real ranks."""

from __future__ import annotations

import re
from pathlib import Path

import jobs
import pytest

pytestmark = pytest.mark.multirank

SHORT = {"PYTHONPATH": str(Path(__file__).parent / "short_ceilings")}

LINE = re.compile(
    r"^  (?P<what>.+?)  +(?P<size>\d+ \w+)? +(?P<streams>\d+)? +(?P<figure>\d+\.\d+) "
    r"(?P<unit>GB/s|us|ns a call)"
)


def test_every_ceiling_is_a_figure(place: Path) -> None:
    result = jobs.run(jobs.tcpx_mpi("ceiling"), place, SHORT)
    assert result.code == 0, result.text
    found = [LINE.match(line) for line in result.out.splitlines() if not line.startswith("#")]
    assert all(found), result.out
    lines = [match.groupdict() for match in found if match]
    assert [(line["what"], line["size"], line["streams"]) for line in lines] == [
        *[
            (f"memcpy, {how}", size, None)
            for size in ("1 MiB", "64 MiB")
            for how in ("same buffers", "out of cache")
        ],
        ("clock", None, None),
        *[("raw TCP stream", "1 MiB", n) for n in ("1", "2", "4")],
        *[("raw TCP, same buffer", "1 MiB", n) for n in ("1", "2", "4")],
        *[("raw TCP stream", "64 MiB", n) for n in ("1", "2", "4")],
        *[("raw TCP round trip / 2", "8 B", n) for n in ("1", "2", "4")],
    ]
    assert all(float(line["figure"]) > 0 for line in lines)


def test_an_interface_that_is_not_there_is_said_in_one_line(place: Path) -> None:
    result = jobs.run(jobs.tcpx_mpi("ceiling", "--interface", "nosuch0"), place)
    assert result.code == 2
    (error,) = result.errors
    assert error.startswith("--interface (nosuch0): no such network interface; use one of ")

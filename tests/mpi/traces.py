"""What tests of traced runs have in common."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tcpx_mpi.records import read_run
from tcpx_mpi.report.trace_text import plugin_trace_of
from tcpx_mpi.report.waterfall import Waterfall, waterfalls

#: Steps of a chunk that no other one can overtake, with the plugin's own.
CHAIN = [
    ("send", "post"),
    ("send", "given to a socket *"),
    ("receive", "header read *"),
    ("receive", "first bytes read *"),
    ("receive", "last bytes read *"),
    ("receive", "handed over *"),
    ("receive", "done"),
]


def traced(file: Path) -> list[Waterfall]:
    run = read_run(str(file))
    plugin, lost = plugin_trace_of(run, None)
    assert plugin is None or not lost, lost
    return waterfalls(run, plugin)


def require_causal(found: Waterfall, chain: list[tuple[str, str]]) -> None:
    """Every chunk of every message has these steps, none before the one in front of it."""
    steps = {(step.side, step.name): step.us for step in found.steps}
    before = np.full((found.messages, len(found.chunk_bytes)), -np.inf)
    for which in chain:
        us = steps[which]
        assert not np.isnan(us).any(), f"{which} is missing: {us}"
        assert (us >= before).all(), f"{which} at {us} before {before}"
        before = us

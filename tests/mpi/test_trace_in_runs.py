"""Traced runs: when each step of a message was, in an order that can be, on both sides."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from jobs import run, tcpx_mpi
from timelines import exported
from traces import CHAIN, require_causal, traced

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

MOST = 12
BASE = ("--plugin", "softtcpx", "--ranks", "2", "--spool", "spool", "--hdf5", "o.h5",
        "--trace", str(MOST), "-n", "20", "--check-memory", "1M", "--chunk", "32K")  # fmt: skip


def test_steps_of_engine_and_plugin_are_in_causal_order(place: Path) -> None:
    command = tcpx_mpi("run", "pair", *BASE, "--memory", "emulated", "-z", "1",
                       "--sizes", "8,96K")  # fmt: skip
    variables = {"SOFTTCPX_TRACE": str(place / "soft"), "SOFTTCPX_WORKERS": "1",
                 "SOFTTCPX_TRACE_RECORDS": "1024"}  # fmt: skip
    result = run(command, place, variables)
    assert result.code == 0, result.text
    small, large = traced(place / "o.h5")
    assert (len(small.chunk_bytes), len(large.chunk_bytes)) == (1, 3)
    for found in (small, large):
        require_causal(found, [*CHAIN, ("receive", "unpacked"), ("receive", "consumed")])
    # Bounded, and the plugin's messages of the beginning have made room for others.
    assert large.messages == MOST // 3
    files = sorted(place.glob("soft.*"))
    assert [file.stat().st_size for file in files] == [4096 + 1024 * 40] * 2

    told = run(tcpx_mpi("report", "o.h5", "--trace"), place)
    assert told.code == 0, told.text
    title = f"# Trace of 96 KiB, rank 0 -> rank 1, step 0: {MOST // 3} messages of 3 chunks"
    assert title in told.out, told.text
    assert re.search(r"^#   receive handed over \* +[\d.]+ +[\d.]+ +[\d.]+$", told.out, re.M)

    told = run(tcpx_mpi("export", "o.h5", "--perfetto", "o.json.gz"), place)
    assert told.code == 0, told.text
    timeline = exported(place / "o.json.gz")
    assert timeline.facts["title"] == "pair over softtcpx_v7: one clock"
    phases = timeline.ask("SELECT DISTINCT cat FROM slice WHERE cat LIKE '%channel 0%' ORDER BY 1")
    assert [cat for (cat,) in phases] == [
        *(f"receive from 0, channel 0: {phase}" for phase in
          ("consume", "in flight", "plugin", "post", "unpack")),
        *(f"send to 1, channel 0: {phase}" for phase in ("in flight", "plugin", "post")),
    ]  # fmt: skip
    # The plugin's own steps, of each message that both of its files still have.
    steps = {event["name"] for event in timeline.events if event["ph"] == "i"}
    assert {"posted", "sending", "sent", "header", "received", "whole", "done"} <= steps
    counters = {name for (name,) in timeline.ask("SELECT DISTINCT name FROM counter")}
    assert {"bytes", "retransmits", "window, send to 1, channel 0"} <= counters

    os.unlink(files[0])
    told = run(tcpx_mpi("report", "o.h5", "--trace"), place)
    assert f"the plugin's trace {files[0]} is not here" in told.out, told.text


def test_batches_of_any_plugin_have_their_last_chunks(place: Path) -> None:
    command = tcpx_mpi("run", "ring", *BASE, "--memory", "host", "--sizes", "64K")
    result = run(command, place)
    assert result.code == 0, result.text
    trace = read_run(str(place / "o.h5")).rows[0].trace
    assert np.bincount(trace[:, 0]).tolist() == [MOST, MOST]
    # Of two chunks each way: the last three iterations, and of the warm-up none.
    assert trace[:, 1].min() >= 16
    for found in traced(place / "o.h5"):
        require_causal(found, [("send", "post"), ("receive", "done"), ("receive", "consumed")])
        assert not any(step.by_plugin for step in found.steps)

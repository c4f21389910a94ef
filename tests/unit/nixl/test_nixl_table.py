"""What a measurement over NIXL prints on a terminal."""

from __future__ import annotations

import sys

import invented_runs
import pytest

from tcpx_mpi.nixl.table import Table
from tcpx_mpi.printable import show_printable
from tcpx_mpi.report import Screen


def test_the_colours_of_the_screen_are_not_spelled_and_no_abi_is_invented(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # put back after it
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    show_printable()
    run = invented_runs.troubled()
    run.header.plugin_abi = -1
    table = Table(Screen(100, colour=True), None)
    table.begin(run)
    for row in run.rows:
        table.row_done(run, row)
    table.end(run, None, "")
    shown = capsys.readouterr().out
    assert "\x1b[3" in shown
    assert "\\x1b" not in shown
    assert "ABI v-1" not in shown

"""`tcpx_mpi.open_run`: the same tables as pandas frames, of whole files and of others."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import invented
import numpy as np
import pandas
import pytest

import tcpx_mpi
from tcpx_mpi.errors import PluginMissing, UsageError
from tcpx_mpi.records import PHASES, RunWriter, SideKey, read_run
from tcpx_mpi.report import summarise_row


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The file of a run that died after two of three rows; the second was aggregated."""
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header())
    writer.write_setup(invented.setup_times())
    writer.append_row(invented.row(0, iterations=300))
    row = invented.row(1, agg=4, batches=np.array([12, 8], dtype=np.int64))
    row.batch_start = np.arange(8, dtype=np.int64).reshape(4, 2)
    row.late = np.zeros((4, 2), dtype=bool)
    row.net_received[1] = -1
    writer.append_row(row)
    writer.fail("stall", 6, {0: "stuck"})
    return writer.path


@pytest.mark.usefixtures("in_one_and_in_pieces")
def test_samples_are_those_of_the_file(path: str) -> None:
    frame = tcpx_mpi.open_run(path).samples
    for row in read_run(path).rows:
        for warmup, samples in ((False, row.samples), (True, row.warmup)):
            for phase in PHASES:
                part = frame[(frame.row == row.index) & (frame.warmup == warmup)
                             & (frame.phase == phase)]  # fmt: skip
                found = part.pivot(index="rank", columns="iteration", values="ns").to_numpy()
                assert found.dtype == np.int64
                assert np.array_equal(found, samples[phase])
    assert len(frame) == 4 * len(PHASES) * (300 + 2 + 20 + 2)


@pytest.mark.usefixtures("in_one_and_in_pieces")
def test_samples_can_be_grouped_by_what_was_varied(path: str) -> None:
    frame = tcpx_mpi.open_run(path).samples
    timed = frame[~frame.warmup & (frame.phase == "iteration")]
    means = timed.groupby(["size_bytes", "host"], observed=True).ns.mean()
    # Rank r takes 1000 + 100 r + i ns; two ranks a host.
    assert means.loc[2048, "host1"] == 1000 + 250 + 9.5
    spans = timed[timed.row == 1].groupby("batch").iteration.agg(["min", "max"])
    assert spans.to_numpy().tolist() == [[0, 11], [12, 19]]
    assert frame[frame.warmup].batch.unique().tolist() == [-1]


def test_rows_have_the_figures_of_the_table_and_unknown_is_missing(path: str) -> None:
    opened = tcpx_mpi.open_run(path)
    frame = opened.rows.set_index("row")
    for row in opened.run.rows:
        summary = summarise_row(opened.run.header, row)
        assert frame.time_us[row.index] == summary.time_ns / 1e3
        assert frame.p95_us[row.index] == pytest.approx(
            summary.per_iteration.p95 / 1e3, nan_ok=True
        )
        assert frame.t_max_rank[row.index] == 3
    assert frame.p99_us.isna().tolist() == [False, True]
    assert frame.net_bytes_received.isna().tolist() == [False, True]
    assert str(frame.net_bytes_received.dtype) == "Int64"
    assert np.isnan(frame.net_bw[1])
    assert frame["agg"].tolist() == [1, 4]


def test_the_other_frames_are_the_parts_of_the_file(path: str) -> None:
    opened = tcpx_mpi.open_run(path)
    assert opened.ranks.nic.tolist() == ["eth1", "eth2", "eth1", "eth2"]
    assert opened.setup[opened.setup.phase == "connect"].ns.max() == 50_000 + 3001
    assert opened.counters[opened.counters.row == 1].net_received.tolist()[1] == -1
    assert opened.batches[opened.batches.row == 1].start_ns.tolist() == list(range(8))
    settings = opened.settings[opened.settings.section == "setting"].set_index("name")
    assert settings.source["seed"] == "command line --seed"
    assert opened.header["plan"]["sizes"] == (1024, 2048, 4096)
    assert opened.header["environment"] == {"NCCL_DEBUG": "INFO"}


def test_a_partial_file_says_what_is_missing(path: str) -> None:
    opened = tcpx_mpi.open_run(path)
    assert not opened.complete
    assert opened.missing == read_run(path).missing
    assert "1 of 3 rows: 4 KiB" in repr(opened)


def test_a_file_without_rows_has_frames_without_lines(tmp_path: Path) -> None:
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header())
    writer.close()
    opened = tcpx_mpi.open_run(writer.path)
    for frame in (opened.rows, opened.samples, opened.counters, opened.batches, opened.setup):
        assert isinstance(frame, pandas.DataFrame)
        assert len(frame) == 0
    assert list(opened.samples.columns)[-1] == "ns"
    assert opened.samples.ns.dtype == np.int64


def test_no_file_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        tcpx_mpi.open_run(str(tmp_path / "o.h5"))


def test_without_pandas_it_says_how_to_get_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PluginMissing, match=r"pip install 'tcpx-mpi\[analysis\]'"):
        tcpx_mpi.open_run(path)


def test_it_loads_no_mpi(path: str) -> None:
    code = f"import sys, tcpx_mpi; tcpx_mpi.open_run({path!r}).samples; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not {"mpi4py", "tcpx_mpi.world", "tcpx_mpi._native"} & set(done.stdout.split())


def test_a_row_in_place_is_one_line(tmp_path: Path) -> None:
    row = invented.row(0)
    slower = dataclasses.replace(row, samples={k: 3 * v for k, v in row.samples.items()})
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header())
    writer.write_setup(invented.setup_times())
    writer.append_row(dataclasses.replace(row, sides={SideKey(place="in_place"): slower}))
    writer.finish()
    rows = tcpx_mpi.open_run(writer.path).rows
    assert rows.side.tolist() == ["plugin", "in_place"]
    assert rows.time_us[1] == pytest.approx(3 * rows.time_us[0])

"""Figures for Prometheus, read by its own client; verdicts as JUnit's XML."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from pathlib import Path
from xml.etree import ElementTree

import invented_runs
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.exchange.junit import Case, write_junit
from tcpx_mpi.exchange.prometheus import (
    Metric,
    metrics_of,
    prom_text,
    require_prom,
    write_prom,
)
from tcpx_mpi.records import Run, SideKey
from tcpx_mpi.report import summarise_row

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def read(text: str) -> Samples:
    """Name -> labels in order -> value."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            assert key not in found.setdefault(sample.name, {}), "a series is there twice"
            assert sample.timestamp is None, "the collector refuses a time stamp"
            found[sample.name][key] = sample.value
    return found


def of_size(found: Samples, name: str, size: str, **more: str) -> float:
    wanted = {("message_size", size), *more.items()}
    (value,) = (v for key, v in found[f"tcpx_mpi_{name}"].items() if wanted <= set(key))
    return value


def test_the_client_reads_the_figures_of_the_table() -> None:
    run = invented_runs.beside_baselines()
    found = read(prom_text(metrics_of(run, 9, passed=False)))
    summary = summarise_row(run.header, run.rows[1])
    assert of_size(found, "bus_bandwidth_gbs", "2K") == summary.busbw
    assert of_size(found, "exec_time_microseconds", "2K") == summary.time_ns / 1e3
    assert of_size(found, "p99_microseconds", "2K") == summary.per_iteration.p99 / 1e3
    assert of_size(found, "ratio", "2K", baseline="raw_4") == summary.ratios[SideKey("raw_4")].ratio
    assert of_size(found, "checked_bytes", "2K") == summary.payload_received_checked
    assert of_size(found, "wrong_bytes", "2K") == 0
    own = {
        ("slurm_job_id", "unknown"), ("node", "host0"), ("n_nodes", "2"), ("nranks", "4"),
        ("collective", "ring"),
    }  # fmt: skip
    for name, value in (("exit_code", 9), ("gate_passed", 0)):
        assert found[f"tcpx_mpi_{name}"] == {tuple(sorted(own)): value}
    (when,) = found["tcpx_mpi_end_timestamp_seconds"].values()
    assert abs(when - time.time()) < 60


def test_wrong_bytes_of_all_rows_of_a_size_count_and_the_slowest_is_shown() -> None:
    run = invented_runs.sound(rows=2)
    row = run.rows[0]
    times = {phase: 3 * ns for phase, ns in row.samples.items()}
    slow = dataclasses.replace(row, samples=times, index=2, cycle=1, wrong=np.array([0, 5, 0, 2]))
    run.rows = [*run.rows, slow]
    found = read(prom_text(metrics_of(run, 5)))
    assert of_size(found, "wrong_bytes", "1K") == 7
    assert of_size(found, "bus_bandwidth_gbs", "1K") == summarise_row(run.header, slow).busbw
    assert "tcpx_mpi_gate_passed" not in found


def test_what_is_unknown_is_left_out_and_a_run_without_rows_has_its_verdict() -> None:
    run = invented_runs.sound(rows=1)
    run.rows[0].iterations = 100
    run.rows[0].samples = {k: v[:, :100] for k, v in run.rows[0].samples.items()}
    found = read(prom_text(metrics_of(run, 0)))
    assert "tcpx_mpi_p99_microseconds" not in found
    for ended in (metrics_of(invented_runs.empty(), 7), metrics_of(None, 7)):
        found = read(prom_text(ended))
        assert list(found) == ["tcpx_mpi_exit_code", "tcpx_mpi_end_timestamp_seconds"]
        assert list(found["tcpx_mpi_exit_code"].values()) == [7]


def test_a_gpu_and_a_job_are_labels_and_hostile_names_are_escaped() -> None:
    run: Run = invented_runs.troubled()
    first = dataclasses.replace(run.header.ranks[0], gpu=3, gpu_name="H100", host='a"b\\c\nd')
    run.header = dataclasses.replace(
        run.header, ranks=[first, *run.header.ranks[1:]], environment={"SLURM_JOB_ID": "77"}
    )
    (labels,) = read(prom_text(metrics_of(run, 5)))["tcpx_mpi_exit_code"]
    assert {("gpu", "GPU3"), ("slurm_job_id", "77"), ("node", 'a"b\\c\nd')} <= set(labels)


def test_a_value_keeps_all_its_digits() -> None:
    metric = Metric("x", "a test")
    metric.add({}, 0.1 + 0.2)
    metric.add({"a": "1"}, math.nan)
    assert read(prom_text([metric])) == {"tcpx_mpi_x": {(): 0.1 + 0.2}}


def test_the_file_replaces_an_older_one_and_no_half_is_ever_there(tmp_path: Path) -> None:
    path = tmp_path / "a.prom"
    path.write_text("old")
    before = path.stat().st_ino
    with path.open() as reader:
        assert write_prom(str(path), metrics_of(None, 0)) == str(path)
        assert reader.read() == "old", "who reads meanwhile has the whole old one"
    assert path.stat().st_ino != before
    assert path.stat().st_mode & 0o444 == 0o444 & ~_umask()
    assert os.listdir(tmp_path) == ["a.prom"]


def test_a_file_that_cannot_be_filled_leaves_the_older_one(tmp_path: Path) -> None:
    path = tmp_path / "a.prom"
    path.mkdir()
    with pytest.raises(OutputFailed, match="cannot write"):
        write_prom(str(path), metrics_of(None, 0))
    assert os.listdir(tmp_path) == ["a.prom"]


@pytest.mark.parametrize(
    ("name", "part"),
    [("a.txt", "does not end in .prom"), ("none/a.prom", "does not exist; make it first")],
)
def test_a_file_that_nobody_would_read_is_refused(tmp_path: Path, name: str, part: str) -> None:
    with pytest.raises(UsageError, match="--prom") as refused:
        require_prom(str(tmp_path / name))
    assert part in str(refused.value)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_junit_counts_its_verdicts_and_bears_any_text(tmp_path: Path) -> None:
    cases = [
        Case("gate", "good"),
        Case("gate", "bad \x00 <&", failure="why \x1b", detail="because"),
        Case("gate", "not asked", skipped="later"),
    ]
    (suite,) = ElementTree.parse(write_junit(str(tmp_path / "j.xml"), {"g.toml": cases})).getroot()
    assert [suite.get(key) for key in ("name", "tests", "failures", "skipped")] == [
        "g.toml", "3", "1", "1",
    ]  # fmt: skip
    good, bad, skipped = suite
    assert len(good) == 0
    assert (bad[0].tag, bad[0].get("message"), bad[0].text) == ("failure", "why ?", "because")
    assert skipped[0].tag == "skipped"

"""CSV, Parquet and JSON of a run: nothing is lost, and no file is overwritten or half-written."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable
from typing import Any

import invented
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tcpx_mpi.cli.export import TABLES
from tcpx_mpi.exchange import export
from tcpx_mpi.exchange.tidy import tables_of
from tcpx_mpi.records import (
    PHASES,
    BaselineInfo,
    Fault,
    GpuRow,
    ObservedPlacement,
    PartialRow,
    Run,
    SideKey,
)
from tcpx_mpi.records.row import RANK_COLUMNS
from tcpx_mpi.report import summarise_row, to_json

Line = dict[str, Any]
#: (whether a warm-up, row, rank, phase) -> nanoseconds in order of the iterations
Samples = dict[tuple[bool, int, int, str], list[int]]


def a_run(**changes: Any) -> Run:
    values = {"complete": True, "end_time": "2025-03-01T12:00:09Z", **changes}
    rows = [invented.row(0), invented.row(1), invented.row(2)]
    return Run("o.h5", invented.run_header(), invented.setup_times(), rows, **values)


def with_samples(timed: Any, warmup: Any) -> Run:
    """A run of one row with these samples, both [phase, rank, iteration]."""
    row = invented.row(
        0,
        world=timed.shape[1],
        iterations=timed.shape[2],
        warmup_iterations=warmup.shape[2],
        samples=dict(zip(PHASES, timed, strict=True)),
        warmup=dict(zip(PHASES, warmup, strict=True)),
        batches=np.array([timed.shape[2]], dtype=np.int64),
    )
    header = invented.run_header(world=timed.shape[1])
    return Run("o.h5", header, invented.setup_times(), [row], complete=True)


def samples_of(run: Run) -> Samples:
    return {
        (warmup, row.index, rank, phase): values[phase][rank].tolist()
        for row in run.rows
        for warmup, values in ((True, row.warmup), (False, row.samples))
        for phase in PHASES
        for rank in range(len(values[phase]))
        if values[phase].shape[1]
    }


def samples_in(lines: list[Line]) -> Samples:
    """The same out of the lines of a table; iterations must be in order and none left out."""
    found: Samples = {}
    for line in lines:
        key = (line["warmup"], int(line["row"]), int(line["rank"]), line["phase"])
        values = found.setdefault(key, [])
        assert int(line["iteration"]) == len(values)
        values.append(int(line["ns"]))
    return found


# --- Three ways of reading back, none of which knows the package ---------------------------------


def through_csv(run: Run, table: str) -> list[Line]:
    file = io.BytesIO()
    export.write_csv(tables_of(run)[table], file)
    lines = list(csv.DictReader(io.StringIO(file.getvalue().decode(), newline="")))
    switches = {"true": True, "false": False}
    names = {"warmup", "partial", "late", "receives", "checked", "two_way"}
    return [{k: switches[v] if k in names else v for k, v in line.items()} for line in lines]


def through_parquet(run: Run, table: str) -> list[Line]:
    from pyarrow import parquet

    file = io.BytesIO()
    export.write_parquet(tables_of(run)[table], file)
    lines: list[Line] = parquet.read_table(io.BytesIO(file.getvalue())).to_pylist()
    return lines


def through_json(run: Run, table: str) -> list[Line]:
    columns = document_of(run)["tables"][table]
    return [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]


def document_of(run: Run) -> Any:
    file = io.BytesIO()
    export.write_json(run, file)
    return json.loads(file.getvalue(), parse_constant=refuse)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


WAYS = [through_csv, through_parquet, through_json]
Exporter = Callable[[Run, str], list[Line]]


# --- Nothing is lost -----------------------------------------------------------------------------


@st.composite
def sample_arrays(draw: st.DrawFn) -> tuple[Any, Any]:
    ranks = draw(st.integers(1, 3))
    timed, warmup = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    return tuple(
        draw(arrays.arrays(np.int64, (len(PHASES), ranks, iterations)))
        for iterations in (timed, warmup)
    )  # type: ignore[return-value]  # two of them


@pytest.mark.parametrize("way", WAYS)
@given(both=sample_arrays())
def test_every_sample_is_read_back_bit_by_bit(way: Exporter, both: tuple[Any, Any]) -> None:
    run = with_samples(*both)
    assert samples_in(way(run, "samples")) == samples_of(run)


@pytest.mark.parametrize("way", WAYS)
def test_samples_of_several_rows_and_ranks_are_read_back(way: Exporter) -> None:
    run = a_run()
    found = samples_in(way(run, "samples"))
    assert found == samples_of(run)
    assert len(found) == 2 * 3 * 4 * len(PHASES)


def test_full_row_groups_of_parquet_and_the_rest_have_every_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(export, "_GROUP_LINES", 30)  # one and a half of the blocks
    run = a_run()
    assert samples_in(through_parquet(run, "samples")) == samples_of(run)


@pytest.mark.parametrize("way", WAYS)
def test_ranks_setup_counters_batches_and_settings_are_read_back(way: Exporter) -> None:
    run = a_run()
    run.rows[1].net_sent[2] = -1
    run.rows[1].batches = np.array([15, 5], dtype=np.int64)
    run.rows[1].batch_start = np.arange(8, dtype=np.int64).reshape(4, 2)
    run.rows[1].late = np.arange(8).reshape(4, 2) == 5
    assert [line["cpus"] for line in way(run, "ranks")] == ["0-7"] * 4
    assert [line["nic"] for line in way(run, "ranks")] == [x.nic for x in run.header.ranks]

    calls = [
        (int(x["rank"]), x["phase"].encode(), int(x["peer"]), int(x["lane"]), int(x["channel"]),
         int(x["ns"])) for x in way(run, "setup")
    ]  # fmt: skip
    assert calls == run.setup.table.tolist()

    counters = way(run, "counters")
    for name in RANK_COLUMNS:
        found = [int(line[name]) for line in counters if int(line["row"]) == 1]
        assert found == getattr(run.rows[1], name).tolist(), name

    batches = [line for line in way(run, "batches") if int(line["row"]) == 1]
    assert [int(line["iterations"]) for line in batches] == [15, 5] * 4
    assert [int(line["first_iteration"]) for line in batches] == [0, 15] * 4
    assert [int(line["start_ns"]) for line in batches] == list(range(8))
    assert [line["late"] for line in batches] == [n == 5 for n in range(8)]

    said = [tuple(line.values())[1:] for line in way(run, "settings")]
    assert {line["run_id"] for line in way(run, "settings")} == {run.header.run_id}
    assert ("setting", "seed", "7", "command line --seed") in said
    assert ("environment", "NCCL_DEBUG", "INFO", "") in said
    assert ("plan", "slots", "64,32,16", "") in said
    assert ("run", "busbw_factor", "1.0", "") in said
    assert ("run", "complete", "true", "") in said


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("table", "record"), [("proof", ObservedPlacement), ("gpus", GpuRow)])
def test_what_was_seen_of_ranks_is_read_back(
    way: Exporter, table: str, record: type[ObservedPlacement] | type[GpuRow]
) -> None:
    run = beside(a_run())
    names = [field.name for field in dataclasses.fields(record)]
    texts = {name for name in names if name.endswith("_cpus")}
    seen = [
        record(**{name: f"{n},{rank}" if name in texts else 100 * rank + n
                  for n, name in enumerate(names)})
        for rank in range(4)
    ]  # fmt: skip
    for row in (run.rows[1], run.rows[1].sides[SideKey("raw")]):
        setattr(row, {"proof": "proof", "gpus": "gpu"}[table], seen)
    lines = [line for line in way(run, table) if int(line["row"]) == 1]
    assert [(x["side"], int(x["rank"])) for x in lines] == [
        (side, rank) for side in ("plugin", "raw") for rank in range(4)
    ]
    found = [
        record(**{name: line[name] if name in texts else int(line[name]) for name in names})
        for line in lines
    ]
    assert found == seen * 2


@pytest.mark.parametrize("way", WAYS)
def test_arrivals_are_read_back_and_pairs_with_their_row(way: Exporter) -> None:
    run = a_run()
    run.rows[1].arrivals = np.arange(32, dtype=np.float64).reshape(4, 4, 2) / 3 - 1
    run.rows[1].arrivals[range(4), range(4)] = np.nan
    run.rows[1].arrival_blocks = np.array([10, 9], np.int64)
    run.rows[2].pairs = "0>2 3>1"
    found = np.full((4, 4, 2), np.nan)
    for line in way(run, "arrivals"):
        where = int(line["rank"]), int(line["peer"]), int(line["block"])
        found[where] = float(line["arrival_ns"])
        assert int(line["row"]) == 1
        assert int(line["iterations"]) == [10, 9][where[2]]
    assert np.array_equal(found, run.rows[1].arrivals, equal_nan=True)
    assert [line["pairs"] or "" for line in way(run, "rows")] == ["", "", "0>2 3>1"]


@pytest.mark.parametrize("way", WAYS)
def test_the_figures_of_a_row_are_those_of_the_table(way: Exporter) -> None:
    run = a_run()
    run.rows[0].net_received[0] = -1
    for line, row in zip(way(run, "rows"), run.rows, strict=True):
        summary = summarise_row(run.header, row)
        assert int(line["size_bytes"]) == row.size_bytes
        assert float(line["time_us"]) == summary.time_ns / 1e3
        assert float(line["busbw"]) == summary.busbw
        assert float(line["p50_us"]) == summary.per_iteration.p50 / 1e3
        assert float(line["cpu_s_per_GB"]) == summary.cpu_s_per_gb
        assert line["p99_us"] in ("", None) or np.isnan(line["p99_us"]), "too few iterations"
        assert int(line["wrong"]) == 0
        assert (line["net_bytes_received"] in ("", None)) == (row.index == 0)
    # 100 bytes more than the payload of every rank crossed the network.
    second = way(run, "rows")[1]
    more = 1 + 100 / (2048 * 20)
    assert float(second["net_bw"]) == pytest.approx(float(second["busbw"]) * more)


def test_the_samples_stand_alone_in_csv_with_every_independent_variable() -> None:
    (line,) = [x for x in through_csv(a_run(), "samples")
               if (x["row"], x["rank"], x["iteration"], x["phase"]) == ("1", "2", "3", "send")
               and not x["warmup"]]  # fmt: skip
    wanted = {
        "run_id": "0011223344556677", "pattern": "ring", "plugin": "softtcpx", "size_bytes": "2048",
        "channels": "2", "chunk_bytes": "524288", "agg": "1", "host": "host1", "nic": "eth1",
        "numa_node": "0", "mode": "back-to-back", "side": "plugin", "partial": False, "batch": "0",
        "ns": str(1000 + 200 + 3 - 200),
    }  # fmt: skip
    assert {name: line[name] for name in wanted} == wanted


def test_json_is_the_document_of_nccl_tests_and_all_tables() -> None:
    run = a_run()
    document = document_of(run)
    assert set(document.pop("tables")) == set(TABLES)
    assert document == json.loads(json.dumps(to_json(run, ["o.h5"])))


def test_json_says_of_which_launch_a_sample_is_where_there_are_several() -> None:
    run, other = a_run(), a_run()
    other.header.run_id = "another"
    assert "run_id" not in document_of(run)["tables"]["samples"]
    run.launches = [other]
    told = document_of(run)["tables"]["samples"]
    columns = [told[name] for name in ("run_id", "row", "side", "rank", "warmup", "iteration",
                                       "phase")]  # fmt: skip
    keys = list(zip(*columns, strict=True))
    assert len(set(keys)) == len(keys)
    assert {key[0] for key in keys} == {run.header.run_id, "another"}


def test_the_tables_of_the_command_are_all_there_are() -> None:
    assert set(TABLES) == set(tables_of(a_run()))


def test_texts_with_commas_quotes_and_line_breaks_come_back() -> None:
    header = invented.run_header(facts={"said": 'a, "b"\nc', "odd": "\udcff"})
    run = Run("o.h5", header, invented.setup_times(), [], complete=True)
    file = io.BytesIO()
    export.write_csv(tables_of(run)["settings"], file)
    text = file.getvalue().decode("utf-8", "surrogateescape")
    said = {x["name"]: x["value"] for x in csv.DictReader(io.StringIO(text, newline=""))}
    assert (said["said"], said["odd"]) == ('a, "b"\nc', "\udcff")


# --- Peers ---------------------------------------------------------------------------------------


def beside(run: Run) -> Run:
    """The run with a peer beside its second row that takes twice as long, in ten blocks."""
    peer = BaselineInfo("raw", "raw", 2, True, "cubic", 4096, "plain sockets")
    blocks = np.full(10, 2, dtype=np.int64)
    starts = {"batch_start": np.zeros((4, 10), np.int64), "late": np.zeros((4, 10), bool)}
    row = dataclasses.replace(run.rows[1], batches=blocks, **starts)
    slow = {phase: 2 * values for phase, values in row.samples.items()}
    theirs = dataclasses.replace(row, samples=slow, faults=["rank 0: byte 3"])
    run.rows[1] = dataclasses.replace(row, sides={SideKey("raw"): theirs})
    return dataclasses.replace(run, header=dataclasses.replace(run.header, baselines=[peer]))


@pytest.mark.parametrize("way", WAYS)
def test_the_samples_of_a_peer_are_a_side_of_their_own(way: Exporter) -> None:
    run = beside(a_run())
    lines = way(run, "samples")
    assert samples_in([x for x in lines if x["side"] == "plugin"]) == samples_of(run)
    theirs = samples_in([x for x in lines if x["side"] == "raw"])
    wanted = samples_of(dataclasses.replace(run, rows=[run.rows[1].sides[SideKey("raw")]]))
    assert theirs == wanted
    assert {(x["row"], x["side"]) for x in way(run, "batches") if x["side"] != "plugin"} == {
        (x["row"], "raw") for x in lines if x["side"] == "raw"
    }
    assert len(way(run, "counters")) == 4 * 4
    assert [x["side"] for x in way(run, "rows")] == ["plugin", "plugin", "raw", "plugin"]


@pytest.mark.parametrize("way", WAYS)
def test_the_ratio_to_a_peer_is_a_line_with_its_interval(way: Exporter) -> None:
    run = beside(a_run())
    (line,) = way(run, "against")
    found = summarise_row(run.header, run.rows[1]).ratios[SideKey("raw")]
    assert (int(line["row"]), line["peer"], line["metric"]) == (1, "raw", "bus_bw")
    assert (float(line["ratio"]), int(line["blocks"])) == (2.0, 10)
    for name in ("ratio", "ci_low", "ci_high", "ours", "theirs"):
        assert float(line[name]) == getattr(found, name), name
    (peer,) = way(run, "peers")
    assert (peer["name"], int(peer["streams"]), peer["congestion_control"]) == ("raw", 2, "cubic")
    said = [tuple(line.values())[1:] for line in way(run, "settings")]
    assert {line["run_id"] for line in way(run, "settings")} == {run.header.run_id}
    assert ("wrong_bytes", "1 raw", "rank 0: byte 3", "") in said


# --- Files of runs that died ---------------------------------------------------------------------


def died() -> Run:
    """A run that ended in its second row, of which two ranks have something."""
    part = PartialRow(
        1, 2048, (0, 3),
        samples={1: {"iteration": np.array([7, 8])}, 2: {"iteration": np.array([9])}},
        warmup={1: {"iteration": np.array([5])}},
        sides={
            SideKey("raw"): PartialRow(
                1, 2048, (0, 1, 3), {2: {"iteration": np.array([4])}}, {2: {}}
            )
        },
    )  # fmt: skip
    fault = Fault("lost_rank", 7, {0: "peer gone", -1: "nobody said this"}, (3,), "now")
    run = a_run(complete=False, end_time="", fault=fault, partial=[part])
    run.header.ranks.pop()
    run.rows[1:] = []
    return run


@pytest.mark.parametrize("way", WAYS)
def test_the_samples_of_a_row_that_a_crash_cut_short_are_marked_and_kept(way: Exporter) -> None:
    run = died()
    everything = way(run, "samples")
    beside = [line for line in everything if line["side"] == "raw"]
    assert samples_in(beside) == {(False, 1, 2, "iteration"): [4]}
    assert all(line["partial"] for line in beside)
    lines = [line for line in everything if line["side"] == "plugin"]
    found = samples_in(lines)
    assert found[False, 1, 1, "iteration"] == [7, 8]
    assert found[False, 1, 2, "iteration"] == [9]
    assert found[True, 1, 1, "iteration"] == [5]
    assert {k: v for k, v in found.items() if k[1] == 0} == samples_of(run)
    assert {int(x["row"]) for x in lines if x["partial"]} == {1}
    said = {(x["section"], x["name"]): x["value"] for x in way(run, "settings")}
    assert said["fault", "exit_code"] == "7"
    assert said["fault", "rank 0"] == "peer gone"
    assert said["fault", "missing_ranks"] == "3"
    assert said["missing", "0"] == "the end of the run: lost_rank (exit code 7)"

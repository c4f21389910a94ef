"""Rows out of the ranks' parts, and what a run says is missing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import invented
import numpy as np
import pytest
from launch_files import invented_launches

from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.records import (
    PHASES,
    Fault,
    PartialRow,
    Plan,
    Run,
    RunWriter,
    SetupTimes,
    join_row,
    mapped_arrays,
    missing_rows,
    read_run,
)
from tcpx_mpi.records.header import header_to_plain
from tcpx_mpi.records.sound import header_from_plain


def complete_run(world: int = 4) -> Run:
    return Run(
        path="o.h5",
        header=invented.run_header(world),
        setup=invented.setup_times(world),
        rows=[invented.row(index, world) for index in range(3)],
        complete=True,
    )


def test_a_row_has_the_parts_of_all_ranks_in_rank_order() -> None:
    facts = invented.row_facts(0)
    parts = [invented.rank_row(rank, facts, wrong=rank, chunks=rank) for rank in range(3)]
    row = join_row(facts, parts, invented.FINISHED)
    assert row.wrong.tolist() == [0, 1, 2]
    assert row.chunks == 2
    assert row.receives.dtype == np.bool_
    for phase in PHASES:
        assert row.samples[phase].shape == (3, 20)
        assert row.warmup[phase].shape == (3, 2)
    assert row.samples["iteration"][2].tolist() == parts[2].samples["iteration"].tolist()
    assert row.batch_start.shape == row.late.shape == (3, 1)


def test_what_is_large_of_a_row_is_in_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = invented.row_facts(0)
    parts = [invented.rank_row(rank, facts, **with_arrivals(rank, 2, [5, 4])) for rank in range(3)]
    assert join_row(facts, parts, "", spool=str(tmp_path)).spool == str(tmp_path)
    monkeypatch.setattr(mapped_arrays, "LARGE_BYTES", 1)
    with pytest.raises(OutputFailed, match=f"a temporary file in {tmp_path}/none: No such file"):
        join_row(facts, parts, "", spool=f"{tmp_path}/none")


def with_arrivals(rank: int, blocks: int, lengths: list[int]) -> dict[str, np.ndarray]:
    return {
        "arrivals": np.full((3, blocks), float(rank)),
        "arrival_blocks": np.array(lengths, np.int64),
    }


def test_arrivals_are_joined_and_a_rank_with_one_peer_has_none() -> None:
    facts = invented.row_facts(0)
    parts = [invented.rank_row(rank, facts, **with_arrivals(rank, 2, [5, 4])) for rank in (0, 1)]
    row = join_row(facts, [*parts, invented.rank_row(2, facts)], "")
    assert row.arrivals.shape == (3, 3, 2)
    assert (row.arrivals[0] == 0).all()
    assert (row.arrivals[1] == 1).all()
    assert np.isnan(row.arrivals[2]).all()
    assert row.arrival_blocks.tolist() == [5, 4]


def test_arrivals_of_many_ranks_are_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = invented.row_facts(0)
    parts = [invented.rank_row(rank, facts, **with_arrivals(rank, 2, [5, 4])) for rank in range(3)]
    assert join_row(facts, parts, "").arrivals.base is None  # memory of its own
    monkeypatch.setattr(mapped_arrays, "LARGE_BYTES", 8 * 3 * 3 * 2)
    joined = join_row(facts, parts, "").arrivals
    assert joined.base is not None
    assert joined[:, 0, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("other", [with_arrivals(1, 3, [3, 3, 3]), with_arrivals(1, 2, [4, 5])])
def test_arrivals_of_other_blocks_are_refused(other: dict[str, np.ndarray]) -> None:
    facts = invented.row_facts(0)
    mine = invented.rank_row(0, facts, **with_arrivals(0, 2, [5, 4]))
    parts = [mine, invented.rank_row(1, facts, **other), invented.rank_row(2, facts)]
    with pytest.raises(ValueError, match=r"rank [01] has other blocks of arrivals"):
        join_row(facts, parts, "")


def test_only_ranks_with_a_fault_have_a_line() -> None:
    facts = invented.row_facts(0)
    parts = [
        invented.rank_row(0, facts),
        invented.rank_row(1, facts, fault="rank 1: byte 7 of chunk 0"),
    ]
    assert join_row(facts, parts, "").faults == ["rank 1: byte 7 of chunk 0"]


@pytest.mark.parametrize("ranks", [[], [1], [0, 2], [1, 0], [0, 0]])
def test_a_row_is_not_made_of_some_ranks(ranks: list[int]) -> None:
    facts = invented.row_facts(0)
    with pytest.raises(ValueError, match="parts of ranks"):
        join_row(facts, [invented.rank_row(rank, facts) for rank in ranks], "")


def test_samples_are_never_padded() -> None:
    facts = invented.row_facts(0)
    parts = [invented.rank_row(rank, facts) for rank in range(2)]
    parts[1].samples["send"] = parts[1].samples["send"][:-1]
    with pytest.raises(ValueError, match="rank 1 has 19 samples, others 20"):
        join_row(facts, parts, "")


def test_ranks_with_other_batches_do_not_make_a_row() -> None:
    facts = invented.row_facts(0)
    parts = [invented.rank_row(rank, facts) for rank in range(2)]
    for batches in ([10, 10], [19]):
        parts[1].batches = np.array(batches, dtype=np.int64)
        with pytest.raises(ValueError, match="rank 1 counted other batches"):
            join_row(facts, parts, "")


def test_a_header_survives_json() -> None:
    header = invented.run_header()
    assert header_from_plain(json.loads(json.dumps(header_to_plain(header)))) == header


def test_setup_times_of_ranks_are_joined_and_found_by_phase() -> None:
    parts = [SetupTimes.from_rows([(rank, "listen", -1, 0, -1, rank)]) for rank in range(3)]
    joined = SetupTimes.joined([*parts, SetupTimes.from_rows([(0, "regMr", -1, 0, 0, 9)])])
    assert joined.phases() == ["listen", "regMr"]
    assert joined.of("listen")["ns"].tolist() == [0, 1, 2]
    assert joined.of("connect").size == 0
    assert SetupTimes.joined([]).phases() == []


def test_the_planned_rows_are_every_size_in_every_cycle() -> None:
    plan = Plan(sizes=(1, 2), run_cycles=2)
    assert plan.rows() == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_of_endless_cycles_those_begun_are_planned() -> None:
    plan = Plan(sizes=(1, 2), run_cycles=0)
    assert plan.rows(cycles_begun=3)[-1] == (2, 2)
    rows = [invented.row_facts(0, size_bytes=1), invented.row_facts(2, size_bytes=1, cycle=1)]
    assert missing_rows(plan, rows) == ["2 of 4 rows: 2 B (row 2), 2 B (row 4)"]


def test_nothing_is_missing_of_a_whole_run() -> None:
    assert complete_run().missing == []


def test_missing_rows_are_named_by_size() -> None:
    run = complete_run()
    del run.rows[1]
    assert run.missing == ["1 of 3 rows: 2 KiB"]


def test_of_a_size_asked_for_twice_one_row_is_not_enough() -> None:
    assert missing_rows(Plan(sizes=(4096, 4096)), [invented.row_facts(0, size_bytes=4096)]) == [
        "1 of 2 rows: 4 KiB"
    ]


def test_one_launch_that_is_missing_is_told() -> None:
    run = invented_launches([1.0] * 4)
    run.launches_planned = 5
    assert run.missing == ["1 of 5 launches"]


def test_many_missing_rows_are_one_line() -> None:
    lines = missing_rows(Plan(sizes=tuple(range(100))), [])
    assert len(lines) == 1
    assert lines[0].startswith("100 of 100 rows: 0 B, 1 B")
    assert lines[0].endswith("and 92 more")


def test_a_run_whose_writer_was_killed_misses_its_end() -> None:
    run = complete_run()
    run.complete = False
    assert run.missing == ["the end of the run: its writer was killed, or is still running"]


def test_a_fault_is_told_in_the_ranks_words_with_the_silent_ranks() -> None:
    run = complete_run()
    run.complete = False
    run.fault = Fault("stall", 6, {0: "waits for rank 2", -1: "at row 3"}, (2, 3))
    assert run.missing == [
        "the end of the run: stall (exit code 6)",
        "at row 3",
        "rank 0 said: waits for rank 2",
        "an answer of ranks 2, 3",
    ]


def test_a_rank_without_a_place_is_missing() -> None:
    run = complete_run()
    run.header = dataclasses.replace(run.header, ranks=run.header.ranks[:3])
    assert run.missing == ["1 of 4 ranks in the rank map: rank 3"]


def test_samples_of_too_few_ranks_are_missing() -> None:
    run = complete_run()
    run.rows[1].samples["send"] = run.rows[1].samples["send"][:3]
    assert run.missing == [
        "samples of row 1 (2 KiB), phase send: 3 x 20 of 4 ranks x 20 iterations"
    ]
    del run.rows[1].samples["send"]
    assert "phase send: 0 x 0" in run.missing[0]


def test_a_partial_row_names_the_ranks_without_a_whole_part() -> None:
    run = complete_run()
    run.partial = [PartialRow(7, 1024, (1,), {}, {})]
    assert run.missing == ["part of row 7 (1 KiB): nothing whole of rank 1"]


def test_the_clocks_of_a_row_are_read_as_they_were_written(tmp_path: Path) -> None:
    ranks = [invented.rank_info(rank, clock=rank // 2) for rank in range(4)]
    clock = invented.row_clock(drift=4e-6)
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header(ranks=ranks))
    writer.append_row(invented.row(0, clock=clock))
    writer.append_row(invented.row(1))
    writer.close()
    first, second = read_run(writer.path).rows
    assert second.clock is None
    assert first.clock is not None
    assert first.clock.fits == clock.fits
    assert first.clock.tree.edges == clock.tree.edges
    assert np.array_equal(first.clock.trips, clock.trips)
    assert first.clock.fits[0].drift_ppm == pytest.approx(4)


def test_a_clock_that_no_row_knows_is_damage(tmp_path: Path) -> None:
    ranks = [invented.rank_info(rank, clock=rank) for rank in range(4)]
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header(ranks=ranks))
    writer.append_row(invented.row(0, clock=invented.row_clock()))
    writer.close()
    with pytest.raises(UsageError, match=r"is damaged: clock .* is not of the clocks of the ranks"):
        read_run(writer.path)

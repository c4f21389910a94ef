"""A rank's journal, and what a merge makes of the journals of a crash."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import invented
import numpy as np
import pytest
from same_run import same

from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.records import (
    FLUSH,
    PHASES,
    Journal,
    RunWriter,
    journal_path,
    mapped_arrays,
    merge,
    read_journal,
    read_run,
    series_of,
)
from tcpx_mpi.records.header import header_to_plain
from tcpx_mpi.records.row import ITSELF, SeriesKey, SideKey
from tcpx_mpi.records.sound import header_from_plain

RUN_ID = invented.run_header().run_id


def journal(spool: Path, rank: int, world: int = 2) -> Journal:
    return Journal(str(spool), RUN_ID, rank, world)


def record(into: Journal, rank: int, index: int, result: bool = True) -> None:
    """A rank measures a row: warm-ups, two batches, and its result."""
    facts = invented.row_facts(index)
    part = invented.rank_row(rank, facts, batches=np.array([8, 12], dtype=np.int64))
    part.batch_start = np.array([1, 2], dtype=np.int64)
    part.late = np.array([False, True])
    into.append_batch(index, facts.size_bytes, "warmup", 0, part.warmup)
    for first, last in ((0, 8), (8, 20)):
        arrays = {phase: part.samples[phase][first:last] for phase in PHASES}
        into.append_batch(index, facts.size_bytes, "timed", first, arrays)
    if result:
        into.append_result(facts, part)


@pytest.mark.parametrize("large_bytes", [mapped_arrays.LARGE_BYTES, 100])
def test_a_row_comes_back_from_its_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large_bytes: int
) -> None:
    monkeypatch.setattr(mapped_arrays, "LARGE_BYTES", large_bytes)
    own = journal(tmp_path, 1)
    record(own, 1, 0)
    content = read_journal(own.path)
    assert (content.run_id, content.rank, content.world) == (RUN_ID, 1, 2)
    assert not content.torn
    row = content.rows[0]
    expected = invented.rank_row(1, invented.row_facts(0))
    assert same(row.samples, expected.samples)
    assert same(row.warmup, expected.warmup)
    assert same(row.facts, invented.row_facts(0))
    assert row.part is not None
    assert row.part.late.tolist() == [False, True]
    assert row.part.payload_bytes_sent == expected.payload_bytes_sent


def test_flushes_come_back_where_there_were_some(tmp_path: Path) -> None:
    own = journal(tmp_path, 0)
    facts = invented.row_facts(0)
    part = invented.rank_row(0, facts)
    flushes = np.arange(part.samples["receive"].size, dtype=np.int64)
    part.samples[FLUSH] = flushes
    own.append_batch(0, facts.size_bytes, "timed", 0, part.samples)
    own.append_result(facts, part)
    row = read_journal(own.path).rows[0]
    assert row.samples[FLUSH].tolist() == flushes.tolist()
    assert FLUSH not in row.warmup
    assert series_of(part)[SeriesKey(ITSELF, "samples", FLUSH)] is flushes


def test_arrivals_and_pairs_come_back(tmp_path: Path) -> None:
    own = journal(tmp_path, 0)
    facts = invented.row_facts(0, pairs="0>1")
    arrivals = np.array([[np.nan] * 3, [1.5, -2.0, 3.0]])
    part = invented.rank_row(0, facts, arrivals=arrivals, arrival_blocks=np.array([7, 7, 6]))
    own.append_result(facts, part)
    row = read_journal(own.path).rows[0]
    assert row.part is not None
    assert np.array_equal(row.part.arrivals, arrivals, equal_nan=True)
    assert row.part.arrival_blocks.tolist() == [7, 7, 6]
    assert row.facts is not None
    assert row.facts.pairs == "0>1"


def test_numpy_integers_are_as_good_as_pythons(tmp_path: Path) -> None:
    own = journal(tmp_path, 0)
    facts = invented.row_facts(0)
    own.append_result(facts, invented.rank_row(0, facts, wrong=np.int64(3)))
    part = read_journal(own.path).rows[0].part
    assert part is not None
    assert part.wrong == 3


def test_a_row_without_its_end_has_samples_and_no_result(tmp_path: Path) -> None:
    own = journal(tmp_path, 0)
    record(own, 0, 0, result=False)
    row = read_journal(own.path).rows[0]
    assert row.part is None
    assert row.samples["iteration"].size == 20


def test_acknowledged_rows_leave_the_journal_and_its_file_small(tmp_path: Path) -> None:
    own = journal(tmp_path, 0)
    own.write_header(invented.run_header())
    empty = os.path.getsize(own.path)
    for index in range(3):
        record(own, 0, index)
        own.acknowledge(index)
    assert os.path.getsize(own.path) == empty
    assert read_journal(own.path).header == invented.run_header()
    assert read_journal(own.path).rows == {}


def test_a_row_acknowledged_out_of_order_leaves_the_others(tmp_path: Path) -> None:
    own = journal(tmp_path, 0)
    record(own, 0, 0)
    record(own, 0, 1)
    own.acknowledge(1)
    assert list(read_journal(own.path).rows) == [0]
    own.acknowledge(0)
    assert read_journal(own.path).rows == {}


def test_closing_removes_a_journal_only_when_every_row_was_acknowledged(tmp_path: Path) -> None:
    done, left = journal(tmp_path, 0), journal(tmp_path, 1)
    for own, rank in ((done, 0), (left, 1)):
        record(own, rank, 0)
    done.acknowledge(0)
    for own in (done, left):
        own.close()
        own.close()
    assert not os.path.exists(done.path)
    assert list(read_journal(left.path).rows) == [0]
    with pytest.raises(OutputFailed, match="closed before"):
        left.acknowledge(0)


def test_a_journal_whose_descriptor_is_gone_is_put_away_all_the_same(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), "id", 0, 2)
    os.close(journal._fd)  # as a plugin does that closes all above 2
    journal.put_away()
    with pytest.raises(OutputFailed, match="closed before"):
        journal.acknowledge(0)


def test_a_torn_end_hides_nothing_before_it(tmp_path: Path) -> None:
    own = journal(tmp_path, 0)
    record(own, 0, 0)
    whole = os.path.getsize(own.path)
    record(own, 0, 1)
    data = Path(own.path).read_bytes()
    for length in range(whole + 1, whole + 60):
        Path(own.path).write_bytes(data[:length])
        content = read_journal(own.path)
        assert content.torn
        assert list(content.rows) == [0]


def test_an_append_that_a_full_disk_cut_short_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = journal(tmp_path, 0)
    record(own, 0, 0)
    left = [os.pwrite]

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return left.pop()(descriptor, data[: len(data) // 2], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OutputFailed, match="No space left"):
        record(own, 0, 1)
    content = read_journal(own.path)
    assert (list(content.rows), content.torn) == ([0], False)


def test_a_flipped_bit_is_not_taken_for_a_sample(tmp_path: Path) -> None:
    own = journal(tmp_path, 0)
    record(own, 0, 0)
    start = os.path.getsize(own.path)
    own.append_batch(1, 2048, "timed", 0, invented.rank_row(0, invented.row_facts(1)).samples)
    data = Path(own.path).read_bytes()
    for at in range(start, len(data), 11):
        flipped = bytearray(data)
        flipped[at] ^= 1
        Path(own.path).write_bytes(flipped)
        content = read_journal(own.path)
        assert content.torn
        assert list(content.rows) == [0]


def test_a_spool_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--spool: cannot create the journal"):
        journal(tmp_path / "no", 0)


def test_an_existing_journal_is_not_written_into(tmp_path: Path) -> None:
    path = Path(journal_path(str(tmp_path), RUN_ID, 0))
    path.write_text("somebody else's")
    with pytest.raises(UsageError):
        journal(tmp_path, 0)
    assert path.read_text() == "somebody else's"


@pytest.mark.parametrize("data", [b"", b"text", b"TJR1" + b"\0" * 40, b"\x89HDF\r\n\x1a\n" * 20])
def test_another_kind_of_file_is_no_journal(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.journal").write_bytes(data)
    with pytest.raises(UsageError, match="is no journal"):
        read_journal(str(tmp_path / "x.journal"))


@pytest.mark.parametrize("name", ["raw/..", "/raw", "."])
def test_a_side_whose_name_would_be_a_path_in_the_runs_file_is_refused(
    tmp_path: Path, name: str
) -> None:
    own = journal(tmp_path, 0)
    part = invented.rank_row(0, invented.row_facts(0))
    own.append_batch(0, 1024, "timed", 0, part.samples, SideKey(name))
    with pytest.raises(UsageError, match=r"is damaged: .*the name of a side is a path"):
        read_journal(own.path)


def test_a_missing_journal_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file; give the journal"):
        read_journal(str(tmp_path / "x.journal"))


def interrupted(tmp_path: Path) -> tuple[str, list[str]]:
    """A crashed run of two ranks: row 0 on disk, row 1 measured by both, row 2 by rank 0 only."""
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header(2))
    writer.write_setup(invented.setup_times(2))
    writer.append_row(invented.row(0, world=2))
    writer.close()
    paths = []
    for rank in range(2):
        own = journal(tmp_path, rank)
        if rank == 0:
            own.write_header(invented.run_header(2))
        record(own, rank, 1)
        record(own, rank, 2, result=rank == 0)
        own.close()
        paths.append(own.path)
    return writer.path, paths


def test_a_merge_makes_rows_of_whole_ranks_and_parts_of_the_rest(tmp_path: Path) -> None:
    run_file, journals = interrupted(tmp_path)
    run = read_run(merge(str(tmp_path / "merged.h5"), journals, run_file))
    assert [row.index for row in run.rows] == [0, 1]
    assert same(run.rows[0], invented.row(0, world=2))
    assert same(run.rows[1].samples, invented.row(1, world=2).samples)
    assert run.rows[1].late.tolist() == [[False, True]] * 2
    assert same(run.setup, invented.setup_times(2))
    assert not run.complete
    (part,) = run.partial
    assert (part.index, part.missing_ranks) == (2, (1,))
    assert part.samples[1]["iteration"].size == 20
    assert "1 of 3 rows: 4 KiB" in run.missing
    assert run.header.notes[-1].startswith("merged from 2 journals")


def test_a_journal_that_is_found_later_leaves_what_was_merged_before(tmp_path: Path) -> None:
    run_file, journals = interrupted(tmp_path)
    first = merge(str(tmp_path / "first.h5"), journals[:1], run_file)
    both = read_run(merge(str(tmp_path / "both.h5"), journals[1:], first))
    at_once = read_run(merge(str(tmp_path / "at-once.h5"), journals, run_file))
    assert "merged from 1 journal," in both.header.notes[-1]
    kept = {part.index: part for part in both.partial}
    (part,) = at_once.partial
    assert same(kept[part.index].samples, part.samples)
    assert kept[part.index].missing_ranks == part.missing_ranks
    # Of a row of which each file had a part no rank is missing, but nobody can make it whole.
    assert kept[1].missing_ranks == ()
    assert sorted(kept[1].samples) == [0, 1]


def test_a_merge_without_the_run_file_takes_rank_0s_header(tmp_path: Path) -> None:
    _, journals = interrupted(tmp_path)
    run = read_run(merge(str(tmp_path / "merged.h5"), journals))
    assert run.header.ranks == invented.run_header(2).ranks
    assert [row.index for row in run.rows] == [1]


def test_a_merge_without_any_header_is_refused(tmp_path: Path) -> None:
    _, journals = interrupted(tmp_path)
    with pytest.raises(UsageError, match="give the run's file by --run, or rank 0's journal"):
        merge(str(tmp_path / "merged.h5"), journals[1:])
    assert not (tmp_path / "merged.h5").exists()


def test_a_header_with_a_number_beyond_64_bits_is_refused() -> None:
    plain = header_to_plain(invented.run_header())
    with pytest.raises(ValueError, match="busbw_factor"):
        header_from_plain({**plain, "busbw_factor": 10**400})


def test_a_merge_that_finds_every_planned_row_is_complete(tmp_path: Path) -> None:
    journals = []
    for rank in range(2):
        own = journal(tmp_path, rank)
        if rank == 0:
            own.write_header(invented.run_header(2))
        for index in range(3):
            record(own, rank, index)
        own.close()
        journals.append(own.path)
    run = read_run(merge(str(tmp_path / "merged.h5"), journals))
    assert run.complete
    assert run.missing == []


def test_a_merge_keeps_the_fault_of_the_run(tmp_path: Path) -> None:
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header(2))
    writer.fail("stall", 6, {0: "waits for rank 1"}, [1])
    run = read_run(merge(str(tmp_path / "merged.h5"), [], writer.path))
    assert run.fault is not None
    assert run.fault.missing_ranks == (1,)
    assert not run.complete


def test_journals_of_another_run_or_twice_of_a_rank_are_refused(tmp_path: Path) -> None:
    run_file, journals = interrupted(tmp_path)
    with pytest.raises(UsageError, match="are of the same rank"):
        merge(str(tmp_path / "merged.h5"), [journals[0], journals[0]], run_file)
    other = Journal(str(tmp_path), "ffff", 0, 2)
    other.close()
    other = Journal(str(tmp_path), "ffff", 0, 2)
    record(other, 0, 0)
    with pytest.raises(UsageError, match="is of run ffff, not"):
        merge(str(tmp_path / "merged.h5"), [other.path], run_file)
    beyond = journal(tmp_path, 7)
    record(beyond, 7, 1)
    with pytest.raises(UsageError, match="is of rank 7 of 2"):
        merge(str(tmp_path / "merged.h5"), [beyond.path], run_file)
    assert not (tmp_path / "merged.h5").exists()

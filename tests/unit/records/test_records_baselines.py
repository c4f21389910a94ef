"""Rows with baselines beside them through every form of a record, and files from before them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import h5py
import invented
import numpy as np
import pytest
from same_run import same

from tcpx_mpi.records import (
    ITSELF,
    PHASES,
    Journal,
    RankRow,
    RowFacts,
    RunHeader,
    RunWriter,
    SideKey,
    join_row,
    merge,
    read_journal,
    read_run,
)

TIMES = {"raw": 1.5, "raw_4": 1.2, "mpi": 3.0}
WORLD = 2


def header() -> RunHeader:
    return invented.run_header(WORLD, baselines=[invented.baseline(name) for name in TIMES])


def rows() -> list[object]:
    return [invented.row_with_baselines(index, WORLD, **TIMES) for index in range(3)]


def write_run(path: Path) -> Path:
    writer = RunWriter(str(path))
    writer.write_header(header())
    writer.write_setup(invented.setup_times(WORLD))
    for index in range(3):
        writer.append_row(invented.row_with_baselines(index, WORLD, **TIMES))
    writer.finish()
    return Path(writer.path)


def test_peers_and_every_sample_of_theirs_come_back_as_they_were_written(tmp_path: Path) -> None:
    run = read_run(str(write_run(tmp_path / "o.h5")))
    assert run.header == header()
    assert run.missing == []
    assert same(run.rows, rows())
    for row in run.rows:
        assert {side.name for side in row.sides} == set(TIMES)
        for name, factor in TIMES.items():
            ratio = row.sides[SideKey.of_name(name)].samples["iteration"] / row.samples["iteration"]
            assert ratio == pytest.approx(factor, rel=0.01)


def test_another_program_finds_the_samples_of_a_peer(tmp_path: Path) -> None:
    with h5py.File(write_run(tmp_path / "o.h5"), "r") as file:
        assert file["peers"]["name"].tolist() == [name.encode() for name in TIMES]
        assert file["peers"]["streams"].tolist() == [2, 4, 0]
        beside = file["rows/row_000001/against/raw_4"]
        for phase in PHASES:
            assert beside[f"samples/{phase}"].shape == (WORLD, 20)
        assert beside["batches"][()].tolist() == [8, 12]
        assert beside["batch_start"].shape == (WORLD, 2)
        assert beside["ranks"]["cpu_others_ns"].tolist() == [300, 300]


def test_a_file_of_version_1_is_one_without_peers(tmp_path: Path) -> None:
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header(WORLD))
    writer.write_setup(invented.setup_times(WORLD))
    for index in range(3):
        writer.append_row(invented.row(index, WORLD))
    writer.finish()
    with h5py.File(writer.path, "r+") as file:
        file.attrs["schema_version"] = 1
        del file["peers"]
        for row in file["rows"].values():
            table = row["ranks"][()]
            before = [name for name in table.dtype.names if name != "cpu_others_ns"]
            del row["ranks"]
            row.create_dataset("ranks", data=np.rec.fromarrays([table[n] for n in before],
                                                               names=before))  # fmt: skip
    run = read_run(writer.path)
    assert run.complete
    assert run.missing == []
    assert run.header == invented.run_header(WORLD)
    unknown = np.full(WORLD, -1, dtype=np.int64)
    expected = [invented.row(i, WORLD, cpu_others_ns=unknown) for i in range(3)]
    assert same(run.rows, expected)


def test_a_file_without_the_interfaces_of_its_peers_has_them_unknown(tmp_path: Path) -> None:
    path = write_run(tmp_path / "o.h5")
    with h5py.File(path, "r+") as file:
        table = file["peers"][()]
        before = [name for name in table.dtype.names if name != "interfaces"]
        assert len(before) < len(table.dtype.names)
        kind = np.dtype([(name, table.dtype[name]) for name in before])
        older = np.array([tuple(line[name] for name in before) for line in table], dtype=kind)
        del file["peers"]
        file.create_dataset("peers", data=older)
    assert read_run(str(path)).header.baselines == header().baselines


def test_a_rank_with_other_peers_beside_it_joins_no_row() -> None:
    facts = invented.row_facts(0)
    parts = [
        invented.rank_row_with_baselines(0, facts, raw=2.0),
        invented.rank_row_with_baselines(1, facts),
    ]
    with pytest.raises(ValueError, match="rank 1 has other peers beside it"):
        join_row(facts, parts, "")


def test_a_peer_with_samples_missing_joins_no_row() -> None:
    facts = invented.row_facts(0)
    parts = [invented.rank_row_with_baselines(rank, facts, raw=2.0) for rank in range(2)]
    samples = parts[1].sides[SideKey("raw")].samples
    samples["iteration"] = samples["iteration"][:-1]
    with pytest.raises(ValueError, match="rank 1 has 19 samples, others 20"):
        join_row(facts, parts, "")


# --- The journal --------------------------------------------------------------------------------


def record(spool: Path, rank: int, *, ends: int, begins: int) -> str:
    """The journal of a rank that ended its first rows and was in a baseline's block of the next."""
    own = Journal(str(spool), header().run_id, rank, WORLD)
    if rank == 0:
        own.write_header(header())
    for index in range(begins):
        facts = invented.row_facts(index)
        part = invented.rank_row_with_baselines(rank, facts, **TIMES)
        sides = {ITSELF: part, **part.sides}
        for first, last in ((0, 8), (8, 20)):
            # As measured: one after the other, and back again.
            for side in sides if first == 0 else reversed(sides):
                if index >= ends and first == 8:
                    break
                append(own, facts, side, sides[side], first, last)
        if index < ends:
            own.append_result(facts, part)
    own.close()
    return own.path


def append(
    own: Journal, facts: RowFacts, side: SideKey, part: RankRow, first: int, last: int
) -> None:
    if first == 0:
        own.append_batch(facts.index, facts.size_bytes, "warmup", 0, part.warmup, side)
    arrays = {phase: part.samples[phase][first:last] for phase in PHASES}
    own.append_batch(facts.index, facts.size_bytes, "timed", first, arrays, side)


def test_a_row_with_peers_comes_back_from_its_journal(tmp_path: Path) -> None:
    content = read_journal(record(tmp_path, 1, ends=1, begins=1))
    expected = invented.rank_row_with_baselines(1, invented.row_facts(0), **TIMES)
    assert content.rows[0].part is not None
    assert same(content.rows[0].part, expected)
    assert [side.name for side in content.rows[0].part.sides] == list(TIMES)


def test_a_merge_joins_what_peers_did_in_whole_rows(tmp_path: Path) -> None:
    journals = [record(tmp_path, rank, ends=2, begins=3) for rank in range(WORLD)]
    run = read_run(merge(str(tmp_path / "merged.h5"), journals))
    assert run.header.baselines == header().baselines
    expected = [invented.row_with_baselines(index, WORLD, **TIMES) for index in range(2)]
    assert same([untimed(row) for row in run.rows], [untimed(row) for row in expected])
    # Of the row that did not end there is what every side did until then.
    (part,) = run.partial
    assert {side.name for side in part.sides} == set(TIMES)
    for rank in range(WORLD):
        own = invented.rank_row_with_baselines(rank, invented.row_facts(2), **TIMES)
        for found, whole in (
            (part, own),
            *((part.sides[side], own.sides[side]) for side in map(SideKey.of_name, TIMES)),
        ):
            assert found.missing_ranks == (0, 1)
            for phase in PHASES:
                assert np.array_equal(found.samples[rank][phase], whole.samples[phase][:8])
                assert np.array_equal(found.warmup[rank][phase], whole.warmup[phase])


def test_a_merge_says_whom_a_crash_in_a_peers_block_found_there(tmp_path: Path) -> None:
    own = record(tmp_path, 0, ends=0, begins=1)
    later = Journal(str(tmp_path), header().run_id, 1, WORLD)
    facts = invented.row_facts(0)
    beside = invented.rank_row_with_baselines(1, facts, **TIMES).sides[SideKey("raw_4")]
    append(later, facts, SideKey("raw_4"), beside, 0, 8)
    later.close()
    (part,) = read_run(merge(str(tmp_path / "merged.h5"), [own, later.path])).partial
    assert part.samples[1]["iteration"].size == 0
    assert sorted(part.sides[SideKey("raw")].samples) == [0]
    assert part.sides[SideKey("raw_4")].samples[1]["iteration"].tolist() == (
        beside.samples["iteration"][:8].tolist()
    )


def untimed(row: object) -> object:
    """A row without the time of its end, which is that of the merge."""
    sides = {side: untimed(baseline) for side, baseline in row.sides.items()}  # type: ignore[attr-defined]  # a Row
    return dataclasses.replace(row, finished_time="", sides=sides)  # type: ignore[type-var]  # a Row

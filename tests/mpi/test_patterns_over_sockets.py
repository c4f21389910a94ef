"""Every pattern, moved over real sockets by real ranks: table, bytes and file of each run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jobs import Result, TableRow, available_memory_bytes, run, tcpx_mpi
from variants import variant

from tcpx_mpi.records import PHASES, Row, Run, SideKey, read_run

pytestmark = pytest.mark.multirank

#: Nothing, less than a word, less than a rank's share, ragged, and just beyond a power of two.
SIZES = (0, 1, 3, 17, 1000003, 1048577)
ITERS, WARMUPS = 3, 2

#: By what the time of an iteration is divided: a round trip has two messages.
TIME_DIVISOR = {"pair": 1, "pingpong": 2, "ring": 1, "mesh": 1}


def factor(pattern: str, ranks: int) -> float:
    """Bus bandwidth / algorithm bandwidth: a rank's own block of a mesh crosses no wire."""
    return (ranks - 1) / ranks if pattern == "mesh" else 1.0


def measured(place: Path, *arguments: str, ranks: int) -> tuple[Result, Run]:
    """A run that must succeed, and its file."""
    common = ["--plugin", "softtcpx", "--hdf5", "o.h5", "--spool", "spool"]
    result = run(tcpx_mpi("run", *arguments, "--ranks", str(ranks), *common), place)
    assert result.code == 0, result.text
    assert not result.errors, result.text
    return result, read_run(str(place / "o.h5"))


def receivers(pattern: str, ranks: int) -> list[bool]:
    """Who receives: in `pair` the upper half of the ranks alone."""
    return [pattern != "pair" or rank >= ranks // 2 for rank in range(ranks)]


def payload(pattern: str, ranks: int, size: int, rank: int) -> tuple[int, int]:
    """Bytes that a rank sends and receives in an iteration."""
    if pattern == "pair":
        return (size, 0) if rank < ranks // 2 else (0, size)
    if pattern == "mesh":
        blocks = [size // ranks + (block < size % ranks) for block in range(ranks)]
        return size - blocks[rank], blocks[rank] * (ranks - 1)
    return size, size


def assert_table_row_follows_from_samples(table: TableRow, row: Row, run: Run) -> None:
    """The time is the mean over the receiving ranks of the file's samples; the rest follows."""
    pattern, world = run.header.pattern, run.header.world
    samples = row.samples["iteration"][row.receives]
    time_us = samples.mean() / TIME_DIVISOR[pattern] / 1e3
    assert table.time_us == pytest.approx(time_us, rel=1e-3, abs=0.006)
    assert table.algbw == pytest.approx(row.size_bytes / (time_us * 1e3), rel=1e-3, abs=0.006)
    assert table.busbw == pytest.approx(factor(pattern, world) * table.algbw, abs=0.011)
    assert table.wrong == (None if row.size_bytes == 0 else 0)


@pytest.mark.parametrize(
    ("pattern", "ranks", "channels", "chunk"),
    [
        variant("pair", 2, 1, "1K"),
        variant("pair", 2, 3, "2M"),
        variant("pair", 4, 3, "1K"),
        variant("pingpong", 2, 3, "1K"),
        ("pingpong", 2, 1, "2M"),
        variant("pingpong", 4, 1, "1K"),
        variant("ring", 2, 1, "2M"),
        variant("ring", 3, 3, "1K"),
        variant("ring", 5, 1, "1K"),
        variant("ring", 5, 3, "2M"),
        variant("mesh", 2, 3, "2M"),
        ("mesh", 3, 1, "1K"),
        variant("mesh", 5, 3, "1K"),
        variant("mesh", 5, 1, "2M"),
    ],
)
def test_a_pattern_moves_every_byte_of_every_size_and_keeps_every_sample(
    pattern: str, ranks: int, channels: int, chunk: str, place: Path
) -> None:
    sizes = ",".join(map(str, SIZES))
    options = ["--sizes", sizes, "-n", str(ITERS), "-w", str(WARMUPS), "--check-memory", "64M"]
    result, found = measured(
        place, pattern, *options, "--channels", str(channels), "--chunk", chunk, ranks=ranks
    )

    assert found.complete
    assert found.missing == []
    assert [info.rank for info in found.header.ranks] == list(range(ranks))
    assert (found.header.pattern, found.header.world) == (pattern, ranks)
    assert found.header.busbw_factor == pytest.approx(factor(pattern, ranks))
    assert [row.size_bytes for row in found.rows] == list(SIZES)
    assert [(row.size, row.count) for row in result.rows] == [(size, size) for size in SIZES]
    for table, row in zip(result.rows, found.rows, strict=True):
        for phase in PHASES:
            assert row.samples[phase].shape == (ranks, ITERS), phase
            assert row.warmup[phase].shape == (ranks, WARMUPS), phase
        assert row.receives.tolist() == receivers(pattern, ranks)
        assert (row.samples["iteration"] > 0).all()
        assert ((row.samples["receive"] >= 0).all(axis=1) == row.receives).all()
        moved = [payload(pattern, ranks, row.size_bytes, rank) for rank in range(ranks)]
        assert row.payload_bytes_sent.tolist() == [sent * ITERS for sent, _ in moved]
        assert row.payload_bytes_received.tolist() == [got * ITERS for _, got in moved]
        assert_table_row_follows_from_samples(table, row, found)
    assert list((place / "spool").iterdir()) == [], "journals of a run that is whole"


@pytest.mark.variant
def test_a_ping_pong_takes_turns_with_itself_beside_a_mesh(place: Path) -> None:
    options = ("--sizes", "0,17,300001", "--load", "100003", "-n", "16", "-w", "2")
    result, found = measured(place, "loaded_pingpong", *options, ranks=2)
    assert "while loaded" in result.out
    for row, size in zip(found.rows, (0, 17, 300001), strict=True):
        loaded = row.sides[SideKey(place="loaded")]
        assert row.payload_bytes_received.tolist() == [16 * 2 * size] * 2
        of_mesh = loaded.payload_bytes_received - row.payload_bytes_received
        assert of_mesh.tolist() == [16 * 50002, 16 * 50001], "half of it stays, ragged"
        for side in (row, loaded):
            assert side.checked.all() == (size > 0)
            assert side.wrong.max() == (0 if size else -1)
            # What is timed is a part of the iteration, which ends when everything is there.
            assert (side.samples["iteration"] > 0).all()
            whole = np.diff(side.samples["start"], axis=1)[:, : side.batches[0] - 1]
            assert (side.samples["iteration"][:, : whole.shape[1]] < whole).all()


@pytest.mark.variant
def test_iterations_of_a_batch_follow_each_other_without_a_gap(place: Path) -> None:
    _, found = measured(place, "ring", "--sizes", "64K", "-n", "50", ranks=2)
    row = found.rows[0]
    ends = row.samples["start"] + row.samples["iteration"]
    assert row.batches.tolist() == [50]
    assert np.array_equal(ends[:, :-1], row.samples["start"][:, 1:])


def test_more_chunks_than_the_earlier_system_had_tags_for_are_moved_in_order(place: Path) -> None:
    result, found = measured(place, "ring", "-b", "12M", "-e", "12M", "-n", "2", "--chunk", "1K",
                             ranks=2)  # fmt: skip
    assert found.rows[0].chunks == 2 * 12 * 1024, "sent and received"
    assert result.rows[0].wrong == 0


@pytest.mark.variant
def test_a_message_above_2_gib_arrives_whole(place: Path) -> None:
    # Two slots of send memory and two of receive memory on each side's rank, and the rest.
    if available_memory_bytes() < 14 << 30:
        pytest.skip("needs memory: 14 GiB must be available for messages above 2 GiB")
    size = (2 << 30) + (1 << 20) + 1
    result, found = measured(place, "pair", "--sizes", str(size), "-n", "1", "-w", "0",
                             "--chunk", "2M", ranks=2)  # fmt: skip
    assert result.rows[0].wrong == 0
    assert found.rows[0].payload_bytes_received.tolist() == [0, size]
    assert found.rows[0].net_received[1] >= size

"""Rows whose iterations differ, and incast, over real sockets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jobs import SLOTS, Result, run, tcpx_mpi
from variants import variant

from tcpx_mpi.patterns.moe_shape import shape_of
from tcpx_mpi.patterns.routing import Routing, counts_of
from tcpx_mpi.records import Run, SideKey, read_run

pytestmark = pytest.mark.multirank

SHAPE = "batch=37,hidden=24,experts=24,topk=3,dispatch=1,combine=2"
ITERS, WARMUPS = 10, 2


def measured(place: Path, *arguments: str, ranks: int) -> tuple[Result, Run]:
    common = ["--plugin", "softtcpx", "--hdf5", "o.h5", "--spool", "spool", "-n", str(ITERS),
              "-w", str(WARMUPS), "--check-memory", SLOTS]  # fmt: skip
    result = run(tcpx_mpi("run", *arguments, "--ranks", str(ranks), *common), place)
    assert result.code == 0, result.text
    assert not result.errors, result.text
    assert [row.wrong for row in result.rows] == [0] * len(result.rows), result.text
    return result, read_run(str(place / "o.h5"))


def sent_bytes(skew: str, ranks: int) -> list[int]:
    """By rank, what left it in the timed iterations."""
    shape = shape_of(SHAPE)
    routing = Routing(shape.batch, shape.experts, shape.topk, skew, 1, ranks)
    counts = counts_of(routing, WARMUPS + ITERS)[WARMUPS:].sum(axis=0)
    np.fill_diagonal(counts, 0)
    out, back = counts.sum(axis=1) * shape.token_bytes, counts.sum(axis=0) * shape.answer_bytes
    sent: list[int] = (out + back).tolist()
    return sent


def assert_each_iteration_had_its_own_matrix(found: Run, skew: str, ranks: int) -> None:
    (row,) = found.rows
    assert row.payload_bytes_sent.tolist() == sent_bytes(skew, ranks)
    assert row.checked.all()
    assert row.arrivals.shape == (ranks, ranks, ITERS)
    for side in row.sides.values():
        assert side.payload_bytes_sent.tolist() == row.payload_bytes_sent.tolist()
        assert side.checked.all()
        assert (side.wrong == 0).all()


@pytest.mark.variant
def test_experts_beside_raw_tcp_and_mpi_over_the_same_matrices(place: Path) -> None:
    result, found = measured(
        place, "moe", "--moe", SHAPE, "--skew", "zipf", "--against", "raw,mpi", ranks=4
    )
    assert_each_iteration_had_its_own_matrix(found, "zipf", 4)
    assert {SideKey("raw"), SideKey("mpi")} <= found.rows[0].sides.keys()
    assert "MPI_Alltoallv" in result.out
    (row,) = result.rows
    left = sum(sent_bytes("zipf", 4)) / 4 / ITERS
    assert (row.size, row.count) == (37 * 24, 37)
    assert row.busbw == pytest.approx(left / row.time_us / 1e3, abs=0.006)


@pytest.mark.parametrize(("ranks", "memory", "skew", "more"), [
    (3, "emulated", "idle", ["-z", "1"]),
    variant(2, "host", "bursts", []),
    variant(2, "emulated", "ragged", ["--progress-threads", "2"]),
    variant(3, "host", "hot-expert", []),
    variant(4, "emulated", "rotating", []),
    variant(8, "host", "hot-rank", ["-z", "1"]),
    variant(8, "emulated", "balanced", ["--trace", "8"]),
])  # fmt: skip
def test_every_byte_is_right_with_any_skew(
    place: Path, ranks: int, memory: str, skew: str, more: list[str]
) -> None:
    _, found = measured(
        place, "moe", "--moe", SHAPE, "--skew", skew, "--memory", memory, *more, ranks=ranks
    )
    assert_each_iteration_had_its_own_matrix(found, skew, ranks)


@pytest.mark.variant
def test_matrices_take_turns_in_iterations_or_in_rows(place: Path) -> None:
    (place / "dense.txt").write_text("0 1 1\n2 0 1\n1 1 0\n")
    (place / "table.txt").write_text("0 0 4 0 0 0 0 0 0\n0 2 0 0 0 0 0 0 0\n")
    files = ["--sequence", "dense.txt,table.txt", "--sizes", "4K"]
    _, found = measured(place, "matrix", *files, "--against", "raw,mpi", ranks=3)
    # Iterations 2 to 11 of dense, the first line, the second: the first of them is the second line.
    sent = {"dense": (2048, 3072, 2048), "first": (4096, 0, 0), "second": (2048, 0, 0)}
    times = {"dense": 3, "first": 3, "second": 4}
    expected = [sum(sent[name][rank] * times[name] for name in sent) for rank in range(3)]
    (row,) = found.rows
    for side in (row, *row.sides.values()):
        assert side.payload_bytes_sent.tolist() == expected
        assert (side.wrong == 0).all()
    # What was not sent in an iteration has no arrival there.
    assert int(np.isnan(row.arrivals[1, 2]).sum()) == ITERS - times["dense"]
    assert np.nanmin(row.arrivals) > -1e9


@pytest.mark.variant
def test_a_row_each_has_the_matrices_in_their_order(place: Path) -> None:
    (place / "table.txt").write_text("0 1 1 0\n0 4 0 0\n0 0 2 0\n")
    _, found = measured(
        place, "matrix", "--sequence", "table.txt", "--sequence-by", "row", "--sizes", "4K", ranks=2
    )
    sent = [row.payload_bytes_sent.tolist() for row in found.rows]
    assert sent == [[1024 * ITERS] * 2, [4096 * ITERS, 0], [0, 2048 * ITERS]]


@pytest.mark.parametrize("memory", ["host", variant("emulated")])
def test_an_incast_beside_a_mesh_tells_each_sender_apart(place: Path, memory: str) -> None:
    result, found = measured(
        place, "incast", "--senders", "2", "-r", "1", "--background", "4K", "--stagger", "2ms",
        "-z", "1", "--sizes", "64K", "--memory", memory, ranks=4,
    )  # fmt: skip
    (row,) = found.rows
    arrivals = row.arrivals[1]
    assert np.isnan(arrivals[[0, 1]]).all()
    assert (arrivals[2] > 0).all()
    assert (arrivals[3] >= 2e6).all()  # it begins 2 ms later
    assert np.isnan(row.arrivals[[0, 2, 3]]).all()  # what comes of the mesh is none of it
    assert "# Tails                : 64 KiB, by sender: rank 2 p50 " in result.out
    assert "# Fairness             : 64 KiB: " in result.out


@pytest.mark.variant
def test_buffers_begin_where_they_are_asked_to_and_their_memory_is_told(place: Path) -> None:
    result, _ = measured(
        place, "all_reduce", "-u", "3", "-M", "--sizes", "10K", "--memory", "emulated",
        "--against", "raw", ranks=3,
    )  # fmt: skip
    assert " unalign: 3\n" in result.out
    assert "# Memory of a process  : set-up " in result.out


@pytest.mark.variant
def test_experts_that_ranks_do_not_divide_are_one_line_and_nothing_starts(place: Path) -> None:
    command = tcpx_mpi("run", "moe", "--moe", "mixtral", "--plugin", "softtcpx", "--ranks", "3")
    result = run(command, place)
    assert result.code == 2
    (error,) = result.errors
    assert "--moe: 3 ranks do not divide 8 experts" in error
    assert list(place.glob("*.h5")) == []

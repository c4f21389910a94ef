"""MPI's own collectives beside the plugin: checked, and `n/a` where MPI has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import run, tcpx_mpi
from variants import variant

from tcpx_mpi.records import Run, SideKey, read_run
from tcpx_mpi.report import summarise_row

pytestmark = pytest.mark.multirank


def with_mpi(place: Path, name: str, *options: str) -> tuple[str, Run]:
    """What a run of 2 ranks with rows of 4000 bytes prints, and its file."""
    measured = run(
        tcpx_mpi(
            "run", name, "--ranks", "2", "--plugin", "softtcpx", "-b", "4000", "-e", "4000",
            "-n", "8", "-w", "1", "--check-memory", "1M", "--against", "mpi", "--hdf5", "o.h5",
            *options,
        ),
        place,
    )  # fmt: skip
    assert measured.code == 0, measured.text
    return measured.out, read_run(str(place / "o.h5"))


@pytest.mark.parametrize(
    ("name", "call"), [("all_reduce", "MPI_Allreduce"), variant("all_gather", "MPI_Allgather")]
)
def test_a_program_is_one_call_of_mpi_with_right_elements(
    name: str, call: str, place: Path
) -> None:
    out, found = with_mpi(place, name, "-d", "float", "-o", "sum", "-m", "2")
    assert f", {call}, " in out
    (row,) = found.rows
    beside = row.sides[SideKey("mpi")]
    for side in (row, beside):
        assert side.checked.all()
        assert side.wrong.tolist() == [0, 0]
    # Over TCP: no rank can do with less than one of the two copies of `-m`.
    assert (beside.net_sent >= row.size_bytes * beside.iterations).all()
    ratio = summarise_row(found.header, row).ratios[SideKey("mpi")]
    assert ratio.ratio > 0
    assert f"{ratio.ratio:.3f}" in out


@pytest.mark.variant
def test_what_mpi_cannot_reduce_has_no_figures_of_it_and_says_why(place: Path) -> None:
    out, found = with_mpi(place, "all_reduce", "-d", "half", "-o", "all")
    assert "n/a for half (MPI has no such type) and avg, mulsum (MPI has no such operation)" in out
    for row in found.rows:
        assert row.wrong.tolist() == [0, 0]
        assert SideKey("mpi") not in row.sides
    lines = [line for line in out.splitlines() if line and line[0] != "#"]
    assert len(lines) == 6
    assert all(line.split()[-3:] == ["n/a"] * 3 for line in lines)

"""Each fault once and each phase once, out of the matrix that SUITE=faults has in full."""

from __future__ import annotations

from pathlib import Path

import pytest
from cell import build_planted, check, require_namespaces
from fault_matrix import FAULTS, HOWS, PHASES, Cell, cells, expected
from variants import variants_where

pytestmark = pytest.mark.multirank

ONCE = (
    Cell("abort", "start", "--ranks"),
    Cell("exception", "MPI_Init", "--ranks"),
    Cell("exit", "load", "--ranks"),
    Cell("int", "init", "--ranks"),
    Cell("link", "listen", "mpirun"),
    Cell("stop", "connect", "mpirun"),
    Cell("hang all", "regMr", "mpirun"),
    Cell("cut", "first row", "--ranks"),
    Cell("loss", "mid-row", "--ranks"),
    Cell("hang", "mid-row", "--ranks"),
    Cell("memory", "mid-row", "mpirun"),
    Cell("kill", "between", "mpirun"),
    Cell("disk hangs", "between", "--ranks"),
    Cell("full", "writing", "mpirun"),
    Cell("term", "close", "--ranks"),
    Cell("EIO", "report", "--ranks"),
    Cell("freezer", "connect", "--ranks"),
    Cell("freezer", "writing", "mpirun"),
    Cell("exit", "finalize", "--ranks"),
)
#: Tests of `make test` plant these in another place too; SUITE=faults has all cells.
ELSEWHERE_TOO = {
    ("abort", "start"), ("int", "init"), ("hang all", "regMr"), ("full", "writing"),
    ("freezer", "writing"), ("exit", "finalize"),
}  # fmt: skip


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    require_namespaces()
    return build_planted(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize(
    "cell",
    variants_where(lambda cell: (cell.fault, cell.phase) in ELSEWHERE_TOO, ONCE),
    ids=lambda cell: cell.name,
)
def test_a_fault_ends_in_time_named_and_with_its_code(
    cell: Cell, planted: str, tmp_path: Path
) -> None:
    check(cell, planted, tmp_path)


def test_each_fault_phase_and_launcher_is_among_them_and_has_a_meaning() -> None:
    assert {cell.fault for cell in ONCE} == set(FAULTS)
    assert {cell.phase for cell in ONCE} == set(PHASES)
    assert {cell.how for cell in ONCE} == set(HOWS)
    assert not any(isinstance(expected(cell), str) for cell in ONCE)
    assert len(cells()) == len(FAULTS) * len(PHASES) * len(HOWS)

"""SUITE=faults: every cell of the matrix that has a meaning; at the end stands a table of all."""

from __future__ import annotations

from pathlib import Path

import pytest
from cell import build_planted, check, require_namespaces
from fault_matrix import Cell, cells, expected

pytestmark = pytest.mark.multirank

MEANT = [cell for cell in cells() if not isinstance(expected(cell), str)]


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    require_namespaces()
    return build_planted(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize("cell", MEANT, ids=[cell.name for cell in MEANT])
def test_a_fault_ends_in_time_named_and_with_its_code(
    cell: Cell, planted: str, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    record_property("cell", cell.name)
    found = check(cell, planted, tmp_path)
    record_property("end", f"{found.code} {found.took_s:.0f}s")

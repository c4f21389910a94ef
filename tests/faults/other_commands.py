"""SUITE=faults: what is not ring, in a selection of cells: a program whose rows are computed with,
and rows of pairs."""

from __future__ import annotations

from pathlib import Path

import pytest
from cell import build_planted, check, require_namespaces
from fault_matrix import COMMANDS, HOWS, Cell, expected

pytestmark = pytest.mark.multirank

CELLS = [
    cell
    for command in COMMANDS
    if command != "ring"
    for how in HOWS
    for fault in ("kill", "stop", "hang", "hang all", "exit", "exception", "cut", "loss", "full")
    for phase in ("regMr", "first row", "mid-row", "between", "close")
    if not isinstance(expected(cell := Cell(fault, phase, how, command)), str)
]


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    require_namespaces()
    return build_planted(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize("cell", CELLS, ids=[cell.name for cell in CELLS])
def test_a_fault_ends_in_time_named_and_with_its_code(
    cell: Cell, planted: str, tmp_path: Path
) -> None:
    check(cell, planted, tmp_path)

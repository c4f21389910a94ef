"""What chooses operation, type, root, algorithm and groups is told in all its places."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tcpx_mpi.config.file import read_config
from tcpx_mpi.config.options import OPERATION, OPTIONS, VARIABLES_ONLY, Option
from tcpx_mpi.config.settings import load_settings

DOCS = Path(__file__).resolve().parents[3] / "docs"
sys.path.insert(0, str(DOCS))
from make_reference import help_of  # noqa: E402 (the path)

CHOOSING = [option for option in OPTIONS if option.group == OPERATION]
#: How nccl-tests' users make groups, by variables alone.
GROUPS = [option for option in OPTIONS if option.group == VARIABLES_ONLY and "split" in option.name]
#: A value of each that is not the default.
VALUES = {
    "op": "max", "datatype": "half", "root": "all", "algo": "ring", "matrix": "m.txt",
    "matrix_scale": "2", "spread": "0.5", "load": "128K", "split": "MOD 8", "split_mask": "7",
}  # fmt: skip
BOTH = pytest.mark.parametrize("option", [*CHOOSING, *GROUPS], ids=lambda option: option.name)


def test_nothing_is_forgotten_here() -> None:
    assert {option.name for option in (*CHOOSING, *GROUPS)} == set(VALUES)


@BOTH
def test_it_is_in_the_help(option: Option) -> None:
    text = help_of("run")
    for name in (*option.variables, *(option.flags if option in CHOOSING else ())):
        assert re.search(rf"(?<![\w-]){re.escape(name)}\b", text), name


@BOTH
def test_the_page_of_patterns_tells_it(option: Option) -> None:
    page = (DOCS / "reference" / "patterns.md").read_text()
    for name in (*option.variables, *(option.flags if option in CHOOSING else ())):
        assert name in page, name


@BOTH
def test_a_file_has_it_as_the_command_line_does(option: Option, tmp_path: Path) -> None:
    if option in CHOOSING:
        typed = load_settings({"pattern": "alltoallv", option.name: VALUES[option.name]}, {})
    else:
        typed = load_settings({"pattern": "alltoallv"}, {option.variables[0]: VALUES[option.name]})
    path = tmp_path / "run.toml"
    path.write_text(typed.to_toml())
    if not option.in_file:
        assert option.name not in read_config(str(path))
        return
    again = load_settings({"config": str(path)}, {})
    assert getattr(again, option.field) == getattr(typed, option.field)
    assert getattr(again, option.field) != option.default

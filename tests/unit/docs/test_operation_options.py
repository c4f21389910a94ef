"""The page of patterns tells of every option that chooses operation, type, root or groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcpx_mpi.config.option import OPERATION, VARIABLES_ONLY, Option
from tcpx_mpi.config.options import OPTIONS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "patterns.md"
CHOOSING = [option for option in OPTIONS if option.group == OPERATION]
#: How nccl-tests' users make groups, by variables alone.
GROUPS = [option for option in OPTIONS if option.group == VARIABLES_ONLY and "split" in option.name]


@pytest.mark.parametrize("option", [*CHOOSING, *GROUPS], ids=lambda option: option.name)
def test_the_page_of_patterns_tells_it(option: Option) -> None:
    for name in (*option.variables, *(option.flags if option in CHOOSING else ())):
        assert name in PAGE.read_text(), name

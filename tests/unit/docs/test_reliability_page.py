"""docs/reference/reliability.md: its 30 mistakes are all there, and every test that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tcpx_mpi import _native
from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.launch import watch
from tcpx_mpi.launch.setup_deadline import LONGEST_GRACE_S
from tcpx_mpi.world import liveness

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs" / "reference" / "reliability.md").read_text()
ROWS = dict(re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", PAGE.split("\n## What ends")[0], re.M))
#: (file, name) of `file.py::test_name` and `file.cc TEST(name)`.
NAMED = sorted(
    {(file, name) for file, name in re.findall(r"`(\S+\.py)::(\w+)`", PAGE)}
    | {(file, f"TEST({name})") for file, name in re.findall(r"`(\S+\.cc) TEST\((\w+)\)`", PAGE)}
)


def test_every_mistake_has_its_row() -> None:
    assert list(ROWS) == [str(number) for number in range(1, 31)]


@pytest.mark.parametrize("number", range(1, 31))
def test_a_mistake_names_its_tests_or_says_not_yet(number: int) -> None:
    held_by = ROWS[str(number)]
    assert re.search(r"`\S+\.py::\w+`|`\S+\.cc TEST\(\w+\)`|Not yet", held_by)


def test_no_name_of_a_test_is_written_another_way() -> None:
    loose = [quoted for quoted in re.findall(r"`([^`]+)`", PAGE) if re.search(r"::|TEST", quoted)]
    known = {f"{f} {n}" if n.startswith("TEST") else f"{f}::{n}" for f, n in NAMED}
    assert set(loose) == known


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_on_the_page_exists(file: str, name: str) -> None:
    text = (TESTS / file).read_text()
    definition = name if name.startswith("TEST") else f"def {name}("
    assert re.search(rf"^{re.escape(definition)}", text, re.MULTILINE)


def test_every_exit_code_is_on_the_page() -> None:
    table = PAGE.split("| code |")[1].split("\n\n")[0]
    codes = re.findall(r"\d+", " ".join(re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)))
    assert [int(code) for code in codes] == sorted(ExitCode)


def test_the_table_of_deadlines_is_that_of_the_code() -> None:
    table = PAGE.split("## Deadlines")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][
        1:
    ]
    flags = {flag for option in OPTIONS for flag in option.flags}
    assert len(rows) == len(watch.PHASES)
    for row, phase in zip(rows, watch.PHASES, strict=True):
        name, _, deadline, _, hang, lost = row
        assert name == phase.name
        if phase.option:
            assert deadline == f"`{phase.option}`"
            assert phase.option in flags
            assert (hang, lost) == (str(int(phase.hang)), str(int(phase.lost)))
        else:
            assert deadline == f"{_native.WATCH_END_S:g} s"
            assert (hang, lost) == ("the run's", "the run's")


def test_no_deadline_is_longer_than_what_an_option_says_and_3_s() -> None:
    assert "and 3 s more until all ranks have ended" in " ".join(PAGE.split())
    after = [_native.WATCH_LEAD_S, liveness.ROLL_CALL_S, watch.OTHERS_LEAD_S, LONGEST_GRACE_S]
    assert max(*after, watch.ROLL_CALL_LEAD_S) <= 3

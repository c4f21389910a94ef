"""docs/reference/conformance.md has each clause as the table has it; your-plugin.md names some."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tcpx_mpi.conform import expectations
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.outcome import Verdict
from tcpx_mpi.conform.table import BY_NAME, CLAUSES

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "reference" / "conformance.md"
HOW_TO = DOCS / "how-to" / "your-plugin.md"
#: Set to write the part of the clauses anew.
WRITE = "WRITE_GOLDEN"
HEAD = "`--explain all` prints all.\n"


def section(clause: Clause) -> str:
    """What the page says of a clause."""
    notes = ["hurts NCCL" if clause.hurts else "NCCL is not hurt"]
    notes += [f"v{clause.since} and later"] if clause.since > 6 else []
    notes += [f"needs {', '.join(f'`{need}`' for need in clause.needs)}"] if clause.needs else []
    notes += ["left out by `--quick`"] if clause.costly else []
    return (
        f"### {clause.name}\n\n{clause.what}\n\n- Why: {clause.why}\n- Source: {clause.source}\n"
        f"- NCCL: {clause.nccl}\n- {'; '.join(notes)}\n"
    )


def test_the_page_has_each_clause_as_the_table_has_it() -> None:
    head, mark, found = PAGE.read_text().partition(HEAD)
    assert mark
    wanted = "\n" + "\n".join(map(section, CLAUSES))
    if WRITE in os.environ:
        PAGE.write_text(head + mark + wanted)
        found = wanted
    assert found == wanted


def test_the_page_has_each_verdict() -> None:
    said = {verdict.lower() for verdict in re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.M)}
    assert said == {verdict.value for verdict in Verdict}


def test_the_how_to_names_clauses_that_there_are() -> None:
    text = HOW_TO.read_text()
    named = set(re.findall(r"--(?:only|explain) ([a-z-]+)", text))
    assert named
    assert named <= {*BY_NAME, "all"}


@pytest.mark.parametrize("page", [PAGE, HOW_TO], ids=lambda page: page.stem)
def test_what_is_known_on_a_page_is_read(page: Path, tmp_path: Path) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S)
    file = tmp_path / "mine.toml"
    file.write_text(block)
    assert expectations.of_file(str(file))


def test_each_clause_is_told_in_sentences() -> None:
    for clause in CLAUSES:
        for text in (clause.what, clause.why, clause.nccl):
            assert text.endswith("."), clause.name
        assert clause.source, clause.name

"""README and docs/: short where they must be, made where made, and no link leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tcpx_mpi.cli import COMMANDS
from tcpx_mpi.records import read_run
from tcpx_mpi.report import Screen, report_lines

REPOSITORY = Path(__file__).resolve().parents[3]
README = (REPOSITORY / "README.md").read_text()
LINES = README.splitlines()
_TREES = ("docs", "analysis", "benchmarks", "examples", "jobs", "hostfiles")
PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *(each for t in _TREES for each in (REPOSITORY / t).rglob("*.md"))]
)


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    plain = [re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_no_internal_link_leads_nowhere(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, which is not there"
        if anchor and target.suffix == ".md":
            assert anchor in anchors_of(target), f"{page.name} links to {link}: no such heading"


def test_readme_is_read_in_two_minutes() -> None:
    assert len(LINES) < 100
    assert max(map(len, LINES)) <= 120
    assert len(README.split()) < 1000


def test_readme_links_to_every_page_or_to_one_that_does() -> None:
    for page in (REPOSITORY / "docs").rglob("*.md"):
        name = str(page.relative_to(REPOSITORY))
        linked = name in README or page.parent.name in ("design", "evidence", "docs")
        assert linked, f"README does not link to {name}"


def test_readmes_first_block_is_what_a_run_printed_with_every_row() -> None:
    """The run of the kept file: its command, its whole table, and lines of its footer."""
    command, *shown = README.partition("```\n$ ")[2].partition("```")[0].splitlines()
    run = read_run(str(REPOSITORY / "docs" / "evidence" / "ring.h5"))
    header = run.header
    assert command.split() == ["mpirun", "-n", str(header.world), *header.command[:-2]]
    lines = report_lines(run, screen=Screen(120))
    places = [lines.index(line) for line in shown]
    assert places == sorted(places)
    rows = [line for line in lines if not line.startswith("#")]
    assert len(rows) == len(run.rows)
    assert [line for line in shown if not line.startswith("#")] == rows
    # What stands first below the table is not left out.
    below = lines[lines.index(rows[-1]) + 2 :]
    assert below[0] in shown


def test_readme_names_the_two_commands_that_do_everything_where_a_newcomer_looks() -> None:
    install = README.partition("## Install")[2].partition("\n## ")[0]
    assert "\nmake bench " in install
    assert "\nmake test " in install


def test_the_commands_and_exit_codes_are_as_the_program_says_them() -> None:
    done = subprocess.run(
        [sys.executable, "docs/make_reference.py", "--check"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    page = (REPOSITORY / "docs" / "reference" / "commands.md").read_text()
    assert re.findall(r"^## tcpx-mpi (\S+)$", page, re.MULTILINE) == list(COMMANDS)


def test_every_page_has_its_place_in_the_site() -> None:
    docs = REPOSITORY / "docs"
    placed = re.findall(r"- (\S+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(placed) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))

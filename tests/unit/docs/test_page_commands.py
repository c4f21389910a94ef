"""Every command of docs/ is run by SUITE=docs, or the list of those that are not says why."""

from __future__ import annotations

import re
import shlex

import click
from page_commands import NOT_RUN, REPOSITORY, commands_in, documented
from suites import SUITES

from tcpx_mpi.cli import COMMANDS, _group

COMMANDS_OF_DOCS = documented()
INLINE = [
    (page.name, span)
    for page in sorted((REPOSITORY / "docs").rglob("*.md"))
    if page.name != "commands.md"
    for span in re.findall(
        r"`(tcpx-mpi [a-z][^`]*)`",
        re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL),
    )
]


def test_what_is_a_command_in_a_block_and_what_is_not() -> None:
    text = "```\n$ tcpx-mpi a \\\n  --b     # why\n# Plugin: x\nring:  tcpx-mpi run ring\n```\n"
    found = commands_in("a.md", text + "```toml\nmake = 1\n```\n```sh\nmake docs  the site\n```\n")
    assert [command.text for command in found] == [
        "tcpx-mpi a --b", "tcpx-mpi run ring", "make docs"
    ]  # fmt: skip


def test_no_command_is_left_out_for_two_reasons() -> None:
    assert len(COMMANDS_OF_DOCS) > 80
    for command in COMMANDS_OF_DOCS:
        assert len(command.left_out) <= 1, command


def test_every_reason_is_one_of_a_command_that_is_there() -> None:
    used = {start for command in COMMANDS_OF_DOCS for start in command.left_out}
    assert used == set(NOT_RUN)


def test_suites_that_are_named_there_are_there() -> None:
    for reason in NOT_RUN.values():
        for suite in re.findall(r"SUITE=(\w+)", reason):
            assert suite in SUITES


def wrong_with(words: list[str]) -> str:
    """Which command or long option the program has not; empty: none."""
    name = words[1]
    if name not in COMMANDS:
        return f"no command {name}"
    known = set()
    # These two hand options on to `run`.
    for its in (name, *(["run"] if name in ("ab", "tune") else [])):
        command = _group.get_command(click.Context(_group), its)
        assert command is not None
        known |= {opt for param in command.params for opt in (*param.opts, *param.secondary_opts)}
    ours = words[2 : words.index("--") if "--" in words else None]
    options = {word.strip("[]").split("=")[0] for word in ours if word.strip("[").startswith("--")}
    return ", ".join(sorted(options - known - {"--help"}))


def test_a_command_within_a_sentence_is_one_that_the_program_has() -> None:
    wrong = {(page, span): wrong_with(shlex.split(span.split("|")[0])) for page, span in INLINE}
    assert {key: what for key, what in wrong.items() if what} == {}
    assert wrong_with(["tcpx-mpi", "report", "--htm"]) == "--htm"

"""Writes reference/commands.md, reference/exit-codes.md and the table of columns in
reference/measuring.md from what the program itself says, and reference/p2p-library.md from the
comments of its headers.

python docs/make_reference.py            writes them
python docs/make_reference.py --check    exit code 1 if they are not as they would be written
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

import click
import p2p_library_page

from tcpx_mpi import cli
from tcpx_mpi.cli.help import ALL
from tcpx_mpi.errors import EXIT_CODE_MEANING
from tcpx_mpi.report.fields import EXPLAINED

REFERENCE = Path(__file__).resolve().parent / "reference"
#: As wide as the longest line of a page.
_WIDTH = 110
_COLUMNS = "<!-- columns: made by docs/make_reference.py of tcpx_mpi/report/fields.py -->"
_END = "<!-- end of columns -->"
_MADE = "Made by `python docs/make_reference.py`; do not edit."


def commands_page() -> str:
    """Every command with its options, as `--help` has them."""
    texts = ["# Commands\n", f"{_MADE}\n"]
    for name in cli.COMMANDS:
        texts += [
            f"## tcpx-mpi {name}\n",
            f"{cli.COMMANDS[name]}\n",
            f"```\n{help_of(name)}\n```\n",
        ]
    return "\n".join(texts)


def help_of(name: str) -> str:
    """What `tcpx-mpi NAME --help` prints, or --help-all, but for the exit codes."""
    widths = {"terminal_width": _WIDTH, "max_content_width": _WIDTH}
    context = cli._group.make_context("tcpx-mpi", [name], **widths)
    command = cli._group.get_command(context, name)
    assert command is not None
    own = click.Context(command, parent=context, info_name=name, terminal_width=_WIDTH)
    own.meta[ALL] = True
    text = command.get_help(own)
    head, _, rest = text.partition("\nExit codes:\n")
    after = rest.partition("\n\n")[2]
    return "\n\n".join(part.strip("\n") for part in (head, after) if part.strip())


def exit_codes_page() -> str:
    """The table of exit codes."""
    rows = [f"| {int(code)} | {text} |" for code, text in EXIT_CODE_MEANING.items()]
    head = [
        "# Exit codes",
        "",
        _MADE,
        "",
        "The same on all ranks.",
        "",
        "| code | means |",
        "|--|--|",
    ]
    return "\n".join([*head, *rows, ""])


def measuring_page() -> str:
    """The page as it is, with the table of columns as the fields have it."""
    before, begin, rest = (REFERENCE / "measuring.md").read_text().partition(_COLUMNS)
    _, end, after = rest.partition(_END)
    return f"{before}{begin}\n{columns_table()}\n{end}{after}"


def columns_table() -> str:
    """Fields with one meaning in one line, in the order in which a run shows them."""
    lines = ["| column | meaning | unit |", "|--|--|--|"]
    for meaning, same in groupby(EXPLAINED, key=lambda field: field.meaning):
        fields = [*same]
        if meaning:
            names = " ".join(field.name for field in fields)
            units = dict.fromkeys(field.unit.long or field.unit.name for field in fields)
            lines.append(f"| `{names}` | {meaning} | {', '.join(filter(None, units))} |")
    return "\n".join(lines)


PAGES = {
    "measuring.md": measuring_page,
    "commands.md": commands_page,
    "exit-codes.md": exit_codes_page,
    "p2p-library.md": lambda: p2p_library_page.page(_MADE),
}


def main(*arguments: str) -> int:
    old = [
        name
        for name, page in PAGES.items()
        if not (REFERENCE / name).exists() or (REFERENCE / name).read_text() != page()
    ]
    if arguments == ("--check",):
        for name in old:
            print(f"docs/reference/{name} is old: run python docs/make_reference.py")
        return 1 if old else 0
    for name in old:
        (REFERENCE / name).write_text(PAGES[name]())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

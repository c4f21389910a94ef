"""Every command of README, word for word, in the order of the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from jobs import mpirun, run, tcpx_mpi

pytestmark = pytest.mark.multirank

REPOSITORY = Path(__file__).resolve().parents[2]
COMMANDS = [
    found[1]
    for block in re.findall(r"```\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    for line in block.splitlines()
    if (found := re.match(r"(?:\$ |.*&& )?((?:mpirun -n 2 )?tcpx-mpi .*?)(?:  +#.*)?$", line))
]
#: So that a test takes seconds: what the page leaves to defaults.
SMALL = ("--sizes", "64K", "-n", "8", "--spool", "spool")


def small(words: list[str]) -> list[str]:
    if words[0] == "run":
        return [*words, *SMALL]
    if words[0] == "ab":
        return [*words[:2], *SMALL, "--runs", "2", *words[2:]]
    return words


@pytest.mark.variant
def test_every_command_of_readme_does_what_it_says(place: Path) -> None:
    assert [command.partition("tcpx-mpi ")[2].split()[0] for command in COMMANDS] == [
        "run", "run", "run", "report", "run", "ab", "plugins"
    ]  # fmt: skip
    (place / "docs").symlink_to(REPOSITORY / "docs")
    for command in COMMANDS:
        launcher, _, rest = command.partition("tcpx-mpi ")
        words = small(shlex.split(rest))
        result = run(mpirun(2, *words) if launcher else tcpx_mpi(*words), place)
        # Two launches of each side of `ab` are too few for a verdict, and it says so.
        assert result.code == (11 if words[0] == "ab" else 0), f"{command}\n{result.text}"

"""The terminal on which a person sees what rank 0 prints, and how wide it is.

A rank has a pipe to its launcher, or a terminal that the launcher made and nobody sees. The parent
of `--ranks` tells its ranks of its own terminal. Under a launcher of the user's it is that of the
launcher, found among the parents of rank 0 where both are on one node.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: Says to ranks where the terminal of their parent is, and how wide: "both 120" where it shows the
#: standard output too, "stderr 120" where that goes elsewhere, "none". Not set: nobody has looked.
TERMINAL_VARIABLE = "TCPX_MPI_TERMINAL"

#: What a terminal has that does not know its size.
USUAL_COLUMNS = 80

#: By the kernel's names, which have 15 characters. A launcher has one of these as its parent where
#: it is the part that reads what ranks say.
_LAUNCHERS = frozenset(
    {"mpirun", "mpiexec", "prterun", "orterun", "mpiexec.hydra", "hydra_pmi_proxy", "srun"}
)
#: Of the launchers: each line gets a tag in front, so that no table fits and no line is erased.
_TAGGED = frozenset(
    {"--tag-output", "-tag-output", "--output", "--prepend-rank", "-prepend-rank",
     "--timestamp-output", "-timestamp-output", "--label"}
)  # fmt: skip
_STDOUT, _STDERR = 1, 2


@dataclass(frozen=True)
class Terminal:
    """A terminal of so many columns, which shows the table or only the standard error."""

    columns: int
    shows_table: bool


def can_erase(environ: Mapping[str, str]) -> bool:
    """Whether a terminal obeys what moves its cursor, and colours."""
    return environ.get("TERM", "dumb") != "dumb"


def own_terminal() -> Terminal | None:
    """The terminal of this process, which no launcher has started."""
    return _terminal_of(os.getpid())


def variable_of(terminal: Terminal | None) -> str:
    """The value of `TERMINAL_VARIABLE`."""
    if terminal is None:
        return "none"
    return f"{'both' if terminal.shows_table else 'stderr'} {terminal.columns}"


def terminal_of_rank(environ: Mapping[str, str]) -> Terminal | None:
    """The terminal that shows a rank's output; None if there is none, or none is known."""
    if TERMINAL_VARIABLE in environ:
        where, _, columns = environ[TERMINAL_VARIABLE].partition(" ")
        if where not in ("both", "stderr") or not columns.isdecimal():
            return None
        return Terminal(int(columns), where == "both")
    launchers = _launchers()
    if not launchers or any(_tags_lines(pid) for pid in launchers):
        return None
    seen = _terminal_of(launchers[-1])
    # A shell between the launcher and this rank may have led its output into a file.
    if seen is None or not _is_read_by(launchers[0], _STDOUT if seen.shows_table else _STDERR):
        return None
    return seen


def _terminal_of(pid: int) -> Terminal | None:
    """The terminal to which a process writes, its standard output first."""
    for descriptor in (_STDOUT, _STDERR):
        if (columns := _columns(pid, descriptor)) is not None:
            return Terminal(columns, descriptor == _STDOUT)
    return None


def _columns(pid: int, descriptor: int) -> int | None:
    """The columns of a process's terminal at this descriptor; None if it is no terminal."""
    path = f"/proc/{pid}/fd/{descriptor}"
    try:
        if not stat.S_ISCHR(os.stat(path).st_mode):  # what is no device is not to be opened
            return None
        # Not to become the terminal that can interrupt this process, nor to wait for a modem.
        terminal = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.get_terminal_size(terminal).columns or USUAL_COLUMNS
    except OSError:  # a device of another kind
        return None
    finally:
        os.close(terminal)


def _launchers() -> list[int]:
    """The nearest launcher among our parents, and those directly above it."""
    found: list[int] = []
    for pid, name in _parents():
        if name in _LAUNCHERS:
            found.append(pid)
        elif found:
            break
    return found


def _parents() -> Iterator[tuple[int, str]]:
    """Every process above this one, the nearest first, with its name."""
    pid = os.getppid()
    while pid > 0:
        try:
            text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:  # gone, or of another user where those are hidden
            return
        head, _, rest = text.rpartition(")")
        yield pid, head.partition("(")[2]
        pid = int(rest.split()[1])


def _tags_lines(launcher: int) -> bool:
    try:
        words = Path(f"/proc/{launcher}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(os.fsdecode(word) in _TAGGED for word in words)


def _is_read_by(reader: int, descriptor: int) -> bool:
    """Whether that process has the other end of what this one writes to: a pipe, or a terminal."""
    try:
        own = os.fstat(descriptor)
        if stat.S_ISCHR(own.st_mode):
            number = f"tty-index:\t{os.minor(own.st_rdev)}\n"
            infos = Path(f"/proc/{reader}/fdinfo").iterdir()
            return any(number in info.read_text() for info in infos)
        ends = (end.stat() for end in Path(f"/proc/{reader}/fd").iterdir())
        return any((end.st_dev, end.st_ino) == (own.st_dev, own.st_ino) for end in ends)
    except OSError:
        return False

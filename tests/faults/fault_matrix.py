"""The matrix: which fault comes in which phase under which launcher, and what has to become of it.

Data, and rules: what is true of most cells of a fault is said once, by group of phases. A cell
that has no meaning has the reason in place of what is expected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: Options of every run, in seconds. Longer than ranks need between two steps on a busy machine.
SET_UP_S, CONNECT_S, STALL_S = 15, 4, 3
#: The end of a run (`WATCH_END_S`), and how much later than its deadline a run has ended.
END_S, LATER_S = 20, 3

#: The phases in the order of a run, and the call of the plugin that one is in, if any.
PLUGIN_CALL = {"load": "load", "init": "init", "listen": "listen", "connect": "connect",
               "regMr": "regMr", "first row": "isend", "mid-row": "isend",
               "close": "closeSend"}  # fmt: skip
SET_UP = ("start", "MPI_Init", "load", "init")
CONNECTIONS = ("listen", "connect", "regMr")
ROWS = ("first row", "mid-row", "between", "writing")
CLOSING = ("close", "report")
FINALIZE = ("finalize",)
PHASES = (*SET_UP, *CONNECTIONS, *ROWS, *CLOSING, *FINALIZE)
#: In which rank 0 is alone at work. In all others the fault is rank 1's.
OF_RANK_0 = ("writing", "report")
#: In which nobody catches what a plugin throws.
UNCAUGHT = ("load", "first row", "mid-row")

FAULTS = {
    "kill": "SIGKILL to the rank",
    "stop": "SIGSTOP to the rank",
    "term": "SIGTERM to the command while the rank hangs",
    "int": "SIGINT to the command while the rank hangs",
    "exit": "the rank calls exit(0)",
    "abort": "the rank calls abort()",
    "hang": "the plugin's call does not return on one rank",
    "hang all": "the plugin's call does not return on any rank",
    "exception": "throw 42 in the plugin; KeyError elsewhere",
    "cut": "all data sockets are reset",
    "link": "the data interface loses its address",
    "loss": "every packet of the data interface is dropped",
    "full": "the disk is full",
    "disk hangs": "the disk answers nothing any more",
    "EIO": "the disk fails every write",
    "memory": "the rank gets no more memory",
    "freezer": "all processes are frozen for longer than any deadline of rows",
}
HOWS = ("--ranks", "mpirun")


@dataclass(frozen=True)
class Command:
    """What is run; the first isend of rank 1, and the how many-th in the middle of a row, are
    behind so many rows `kept`, of `rows`."""

    arguments: tuple[str, ...]
    mid_row: int = 40
    kept: tuple[int, int] = (0, 1)
    rows: int = 2


COMMANDS = {
    "ring": Command(("ring",)),
    "all_reduce": Command(("all_reduce", "--algo", "ring"), mid_row=120),
    "pairs": Command(("pairs", "--all"), kept=(2, 3), rows=4),
}


@dataclass(frozen=True)
class Cell:
    fault: str
    phase: str
    how: str
    command: str = "ring"

    @property
    def name(self) -> str:
        words = (self.fault, self.phase, self.how)
        more = () if self.command == "ring" else (self.command,)
        return "-".join((*words, *more)).replace(" ", "_")

    @property
    def rank(self) -> int:
        return 0 if self.phase in OF_RANK_0 else 1


@dataclass(frozen=True)
class Expected:
    """`codes` of the command; `says` is found in a line of ours ("": there need be none);
    `within_s` is from the fault to the end; `rows` are in the file (None: there is none)."""

    codes: set[int]
    says: str
    within_s: float
    rows: set[int | None]


def cells() -> list[Cell]:
    return [Cell(fault, phase, how) for fault in FAULTS for phase in PHASES for how in HOWS]


def expected(cell: Cell) -> Expected | str:
    """What has to become of a cell, or why it has no meaning."""
    if reason := _without_meaning(cell):
        return reason
    codes, says, within_s = _RULES[cell.fault](cell)
    everything = COMMANDS[cell.command].rows
    rows = {everything} if codes == {0} else _rows(cell)
    if 0 in codes:
        rows = rows | {everything}
    if cell.fault == "memory" and cell.phase in ROWS:  # a later row may need more
        rows = rows | set(range(everything))
    if cell.fault == "disk hangs" and None in rows:
        rows = rows | {CUT_SHORT}  # nobody can remove it
    return Expected(codes, says, within_s, rows)


def _rows(cell: Cell) -> set[int | None]:
    """In the file of a run that ends early."""
    command, phase = COMMANDS[cell.command], cell.phase
    if phase in (*SET_UP, *CONNECTIONS):
        return {None, 0}
    if phase == "writing":  # who wakes, or gets no answer, may still write the second one
        return {1, 2}
    first, middle = (0, 1) if cell.fault == "hang all" else command.kept  # rank 0 sends before
    kept = {"first row": first, "mid-row": middle, "between": 1}
    return {kept.get(phase, command.rows)}


#: Where Open MPI's own mpirun differs, and why.
DEVIATIONS = {
    "1": "its code for a signal, and for a rank that ends without MPI_Finalize",
    "silent": "it kills its ranks 0.25 s after SIGTERM: where rank 0 is held by its disk, no line; "
    "where it had no turn, once in thousands of cells, the cell is run again",
    "exit(0)": "a rank that ends so before MPI_Init has ended well",
    "hangs": "5.0 that loses a rank within MPI_Init may hang itself (PMIX_ERR_UNREACH)",
}


# --- The rules: the codes, what is said, and how soon ---------------------------------------------

_Rule = tuple[set[int], str, float]
_OF_MPIRUN = 1
#: A file that cannot be read.
CUT_SHORT = -1
#: Of an mpirun that hung and was killed by the test, when all ranks had ended.
HUNG = -9
_MPI_INIT = "MPI_Init, to which every rank must come"


def _deadline_s(phase: str) -> float:
    if phase in SET_UP:
        return SET_UP_S
    if phase in CONNECTIONS:
        return CONNECT_S
    return END_S if phase in FINALIZE else STALL_S


def _gone(cell: Cell) -> str:
    """What is said of a rank that is gone without a word of its own."""
    if cell.how == "mpirun" and cell.phase in ("start", *FINALIZE):
        return ""  # the others are gone, or have not begun
    return rf"rank {cell.rank} .*has died|interrupted by signal 15 in|was ended by signal"


def _kill(cell: Cell) -> _Rule:
    # 7, which who is left gives, where mpirun hears of both at once.
    return {7, 137} if cell.phase in (*ROWS, *CLOSING) else {137}, _gone(cell), LATER_S


def _stop(cell: Cell) -> _Rule:
    within_s = _deadline_s(cell.phase) + LATER_S
    if cell.phase in FINALIZE:
        return {0 if cell.how == "--ranks" else _OF_MPIRUN}, "its end took longer than 20", within_s
    if cell.how == "mpirun" and cell.phase in ("start", "MPI_Init"):
        return {4, HUNG}, _MPI_INIT, within_s  # which rank it is nobody can tell
    says = rf"rank {cell.rank} .*(stopped|never spoke|did not answer)"
    return {7 if cell.phase in (*ROWS, *CLOSING) else 4}, says, within_s


def _signal(number: int) -> Callable[[Cell], _Rule]:
    def rule(cell: Cell) -> _Rule:
        if cell.how == "mpirun":
            says = "" if cell.phase in ("start", *OF_RANK_0, *FINALIZE) else "interrupted by signal"
            return {_OF_MPIRUN}, says, LATER_S
        says = "" if cell.phase in ("start", *FINALIZE) else f"interrupted by signal {number}"
        return {128 + number}, says, LATER_S

    return rule


def _by_plugin(cell: Cell) -> set[int]:
    """Of a plugin that ends its rank, or throws."""
    return {13} if cell.phase in ROWS else {4}


def _exit(cell: Cell) -> _Rule:
    if cell.phase in PLUGIN_CALL:
        return _by_plugin(cell), r"plugin .* by exit\(0\)", LATER_S
    if cell.phase == "start":
        return {4}, _MPI_INIT, SET_UP_S + LATER_S
    if cell.phase == "MPI_Init":
        codes = {4} if cell.how == "--ranks" else {4, _OF_MPIRUN}
        return codes, f"{_MPI_INIT}|mpirun ended with exit code 1", SET_UP_S + LATER_S
    if cell.phase in FINALIZE:
        return {0 if cell.how == "--ranks" else _OF_MPIRUN}, "", LATER_S
    return {7 if cell.how == "--ranks" else _OF_MPIRUN}, f"rank {cell.rank} .*has died", LATER_S


def _abort(cell: Cell) -> _Rule:
    if cell.phase in PLUGIN_CALL:
        return _by_plugin(cell), r"plugin .* crashed by SIGABRT", LATER_S
    return {7, 134} if cell.phase in ROWS else {134}, _gone(cell), LATER_S


def _exception(cell: Cell) -> _Rule:
    if cell.phase in PLUGIN_CALL:
        return _by_plugin(cell), r"exception of C\+\+", LATER_S
    return {1}, "a defect of tcpx-mpi: KeyError", LATER_S


def _hang(cell: Cell) -> _Rule:
    within_s = _deadline_s(cell.phase) + LATER_S
    if cell.phase in SET_UP:
        return {4}, "set-up did not end within .*plugin", within_s
    call = PLUGIN_CALL[cell.phase]
    return (
        {6 if cell.phase in (*ROWS, *CLOSING) else 4},
        f"plugin call {call}\\b.* has not",
        within_s,
    )


def _writes_the_last(cell: Cell) -> bool:
    """Whether no row comes behind the second one, which is being written."""
    return cell.phase == "writing" and COMMANDS[cell.command].rows == 2


def _network(cell: Cell) -> _Rule:
    """Nothing arrives any more."""
    if cell.phase in (*CLOSING, *FINALIZE) or _writes_the_last(cell):
        return {0}, "", LATER_S
    if cell.phase in (*ROWS, "regMr"):
        return {6}, "no progress for", STALL_S + LATER_S
    return {4}, "did not come up within", SET_UP_S + CONNECT_S + LATER_S


def _link(cell: Cell) -> _Rule:
    if cell.phase in SET_UP:
        return {2}, "no IPv4 address", SET_UP_S
    if cell.phase == "listen":
        return {4}, "plugin call listen returned 2", LATER_S
    return _network(cell)


def _cut(cell: Cell) -> _Rule:
    # Before there are any, and behind all bytes.
    if cell.phase in ("connect", *CLOSING) or _writes_the_last(cell):
        return {0}, "", LATER_S
    return {7}, r"returned 2 \(system error\)", STALL_S + LATER_S


def _disk(cell: Cell) -> _Rule:
    if cell.phase in FINALIZE:
        return {0}, "", LATER_S
    if cell.phase in SET_UP:  # also a file that cannot be made, which is the user's affair
        return {2, 8}, "/disk/", SET_UP_S + LATER_S
    return {8}, "/disk/", _deadline_s(cell.phase) + LATER_S


def _disk_full(cell: Cell) -> _Rule:
    if cell.phase in CLOSING:  # what is written there mostly has its room already
        return {0, 8}, "", LATER_S
    return _disk(cell)


def _disk_hangs(cell: Cell) -> _Rule:
    codes, says, _ = _disk(cell)
    if cell.phase in SET_UP:
        return {4, 8}, "/disk/|set-up did not end", SET_UP_S + LATER_S
    return codes, says, _deadline_s(cell.phase) + LATER_S


def _memory(cell: Cell) -> _Rule:
    # Whoever meets it: Python, HDF5, the plugin, or MPI, which has codes of its own, and crashes.
    of_mpi = {134, 139} if cell.phase in ("start", "MPI_Init") else set()
    if (cell.how, cell.phase) == ("mpirun", "MPI_Init"):
        of_mpi.add(HUNG)
    return {0, 1, 2, 4, 7, 8, 13, 14} | of_mpi, "", _deadline_s(cell.phase) + LATER_S


def _freezer(cell: Cell) -> _Rule:
    return {0}, "", STALL_S + LATER_S


_RULES: dict[str, Callable[[Cell], _Rule]] = {
    "kill": _kill, "stop": _stop, "term": _signal(15), "int": _signal(2), "exit": _exit,
    "abort": _abort, "hang": _hang, "hang all": _hang, "exception": _exception, "cut": _cut,
    "link": _link, "loss": _network, "full": _disk_full, "disk hangs": _disk_hangs, "EIO": _disk,
    "memory": _memory, "freezer": _freezer,
}  # fmt: skip


def _without_meaning(cell: Cell) -> str:
    if cell.fault in ("hang", "hang all") and cell.phase not in PLUGIN_CALL:
        return "no call of the plugin"
    if cell.fault == "cut" and cell.phase in (*SET_UP, "listen", "report", *FINALIZE):
        return "no data socket is open"
    if cell.fault == "exception" and cell.phase in FINALIZE:
        return "Python tells of an exception there, and goes on"
    return ""

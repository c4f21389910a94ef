"""A Slurm of a test's own: munged, slurmctld and two slurmd on this host, in one folder.

Ports are free ones, sockets and keys lie in the folder, and nothing of a Slurm that may run here is
read or written. What a job starts is found by a mark in its environment, as in tests/mpi.
"""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

NODES = ("n1", "n2")
#: More than the ranks that any job here has on a node: Slurm counts, this host runs what it can.
CPUS = 8

#: What a daemon takes to be up and a job to end, at most, on a machine with much else to do.
UP_S = 20.0
JOB_S = 90.0
GONE_S = 15.0

_MARK = "TESTS_SLURM"
_PRCTL = ctypes.CDLL(None).prctl
_PR_SET_PDEATHSIG = 1
_ENDED = re.compile(r"JobState=(?!PENDING|CONFIGURING|RUNNING|COMPLETING)(\w+)")

_CONFIGURATION = """\
ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
KillWait=10
SlurmdParameters=config_overrides
"""


@dataclass(frozen=True)
class Job:
    """A job that has ended: its state, exit code and output."""

    number: int
    state: str
    code: int
    output: str

    @property
    def text(self) -> str:
        """Everything, for a test that fails."""
        return f"job {self.number} {self.state}, exit code {self.code}\n{self.output}"


@dataclass
class Slurm:
    """The running cluster; `environ` is what its commands need."""

    folder: Path
    environ: dict[str, str]
    mark: bytes
    _daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)
    #: Processes of the idle cluster: the daemons, and one that slurmctld starts for itself.
    _own: set[int] = field(default_factory=set)

    def command(
        self, *words: str, cwd: Path, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command of Slurm, or one that calls some."""
        return subprocess.run(
            words, cwd=cwd, env={**self.environ, **(variables or {})}, text=True,
            capture_output=True, timeout=JOB_S, check=False,
        )  # fmt: skip

    def submit(self, words: Sequence[str], cwd: Path, variables: Mapping[str, str]) -> int:
        """The number of a job that `words`, a command with sbatch, submits."""
        done = self.command(*words, cwd=cwd, variables=variables)
        found = re.search(r"Submitted batch job (\d+)", done.stdout)
        assert found, f"{done.args}\n{done.stdout}{done.stderr}"
        return int(found[1])

    def finish(self, number: int, cwd: Path) -> Job:
        """The job once it has ended, with nothing left of it."""
        shown = ""

        def ended() -> bool:
            nonlocal shown
            shown = self.command("scontrol", "show", "job", str(number), cwd=cwd).stdout
            return _ENDED.search(shown) is not None

        try:
            self.wait_for(ended, f"job {number} to end", JOB_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{shown}{self._output(shown)}") from None
        state, code = _ENDED.search(shown), re.search(r"ExitCode=(\d+):(\d+)", shown)
        assert state
        assert code
        job = Job(number, state[1], int(code[1]), self._output(shown))
        self.wait_for(lambda: not self.left(), f"nothing to be left: {job.text}", GONE_S)
        return job

    def left(self) -> list[int]:
        """The processes that jobs have started and that are not gone yet."""
        found = []
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError):  # gone meanwhile; a zombie has no environment
                environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if self.mark in environ and int(pid) not in self._own:
                    found.append(int(pid))
        return found

    def wait_for(self, condition: Callable[[], bool], what: str, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            for daemon in self._daemons:
                assert daemon.poll() is None, f"{daemon.args} ended:\n{self._logs()}"
            assert time.monotonic() < deadline, f"waited {limit_s} s for {what}\n{self._logs()}"
            time.sleep(0.05)  # a poll with a deadline: Slurm tells nobody

    # --- Inside ----------------------------------------------------------------------------------

    def start(self, *words: str) -> None:
        """A daemon in the foreground, that ends with us."""
        log = self.folder / f"{len(self._daemons)}-{words[0]}.log"
        with log.open("wb") as file:
            daemon = subprocess.Popen(
                [_found(words[0]), *words[1:]],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        self._daemons.append(daemon)

    def settled(self) -> None:
        """No job has been submitted yet: what runs now is the cluster's."""
        self._own.update(self.left())

    def stop(self) -> None:
        """Ends the daemons, the last first, and kills what is left of their jobs."""
        for daemon in reversed(self._daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(5)
            daemon.kill()
            daemon.wait()
        self._daemons.clear()
        self._own.clear()
        while left := self.left():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)  # the kernel ends them in its own time

    def _output(self, shown: str) -> str:
        found = re.search(r"StdOut=(\S+)", shown)
        path = Path(found[1]) if found else None
        return path.read_text(errors="replace") if path is not None and path.exists() else ""

    def _logs(self) -> str:
        return "".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.folder.glob("*.log"))
        )


@contextlib.contextmanager
def slurm(folder: Path, environ: Mapping[str, str], more: str = "") -> Iterator[Slurm]:
    """A cluster of two nodes that takes jobs, with `more` of a configuration; always stopped."""
    (folder / "munge").mkdir(mode=0o755)
    (folder / "state").mkdir()
    key = folder / "munge" / "key"
    key.touch(mode=0o400)
    key.write_bytes(secrets.token_bytes(1024))
    configuration = folder / "slurm.conf"
    controller, *ports = _free_ports(1 + len(NODES))
    text = _CONFIGURATION.format(controller=controller, user=getpass.getuser(), folder=folder)
    for node, port in zip(NODES, ports, strict=True):
        text += (
            f"NodeName={node} NodeHostname={socket.gethostname().split('.')[0]} "
            f"NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} RealMemory=1000\n"
        )
    text += more
    text += f"PartitionName=all Nodes={','.join(NODES)} Default=YES State=UP MaxTime=10:00:00\n"
    configuration.write_text(text)
    mark = f"{_MARK}={secrets.token_hex(8)}"
    own = {"SLURM_CONF": str(configuration), "PATH": _path(environ), _MARK: mark.partition("=")[2]}
    cluster = Slurm(folder, {**environ, **own}, mark.encode())
    try:
        munge = folder / "munge"
        cluster.start(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket",
            f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed",
        )  # fmt: skip
        cluster.wait_for((munge / "socket").exists, "munged", UP_S)
        cluster.start("slurmctld", "-D", "-c", "-f", str(configuration))
        for node in NODES:
            # PMIx of Slurm keeps a folder a step in it, which two nodes must not share.
            (folder / f"tmp-{node}").mkdir()
            cluster.start("slurmd", "-D", "-N", node, "-f", str(configuration))

        def nodes_idle() -> bool:
            return cluster.command("sinfo", "-h", "-o", "%T %D", cwd=folder).stdout == "idle 2\n"

        cluster.wait_for(nodes_idle, "both nodes to be idle", UP_S)
        cluster.settled()
        yield cluster
    finally:
        cluster.stop()


def _path(environ: Mapping[str, str]) -> str:
    """PATH with the folders of daemons, which a user's may lack."""
    return os.pathsep.join([environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def _found(program: str) -> str:
    path = shutil.which(program, path=_path(os.environ))
    assert path is not None, program
    return path


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]

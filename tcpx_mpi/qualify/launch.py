"""The nodes of a qualification, and how a command is started on all or some of them."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tcpx_mpi import world as mpi
from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.launch import mpirun
from tcpx_mpi.launch.own_python import module_command
from tcpx_mpi.machine.profiles import keep_mpi_on_control_nic
from tcpx_mpi.machine.topology import this_machine
from tcpx_mpi.preflight.agreement import mpi_family
from tcpx_mpi.preflight.facts import AskedPlugin, read_mpirun
from tcpx_mpi.preflight.findings import CheckFinding
from tcpx_mpi.preflight.hostfile import (
    lines_of,
    read_hostfile,
    require_known,
    rereadable_hostfile,
)
from tcpx_mpi.preflight.hostfile_forms import launcher_of
from tcpx_mpi.preflight.story import ask_nodes, exported
from tcpx_mpi.qualify.judge import Ended

_ERROR = "tcpx-mpi: error: "
#: The last line of a smoke test.
_SMOKE_IS_GOOD = re.compile(r"^# \d+ messages?: all right$", re.M)
_AT_ONCE = 16


@dataclass(frozen=True)
class Hosts:
    """Lines of a hostfile with so many ranks each, or as many ranks as mpirun starts by itself."""

    ranks_a_node: int
    lines: tuple[str, ...] = ()
    family: str = ""

    @property
    def ranks(self) -> int:
        """The ranks of all nodes."""
        return self.ranks_a_node * max(len(self.lines), 1)

    def alone(self) -> list[Hosts]:
        """Each line by itself."""
        return [dataclasses.replace(self, lines=(line,)) for line in self.lines]

    def without(self, lines: Sequence[str]) -> Hosts:
        """The others."""
        left = tuple(line for line in self.lines if line not in lines)
        return dataclasses.replace(self, lines=left)

    @contextmanager
    def options(self, environ: Mapping[str, str], ranks_a_node: int) -> Iterator[list[str]]:
        """mpirun's options for them."""
        if not self.lines:
            yield []
            return
        with tempfile.NamedTemporaryFile("w", prefix="tcpx-mpi-hosts-") as file:
            file.writelines(line + "\n" for line in self.lines)
            file.flush()
            yield mpirun.ranks_a_node(ranks_a_node, self.family, file.name, exported(environ))


def of_hostfile(path: str, environ: Mapping[str, str]) -> Hosts:
    """Raises UsageError for a file that cannot be, names that nobody knows, and uneven slots."""
    _, version = read_mpirun(environ)
    launcher = launcher_of(version)
    with rereadable_hostfile(path) as kept:
        hosts = read_hostfile(kept, launcher, shown=path).lines
        lines = lines_of(kept, hosts)
    if not environ.get("SLURM_JOB_ID"):  # which knows its nodes by names of its own
        require_known(hosts, path)
    # Without slots a launcher takes a node's cores; one rank is enough to tell.
    slots = {host.slots or 1 for host in hosts}
    if len(slots) > 1:
        raise UsageError(
            f"--hostfile ({path}): nodes have {', '.join(map(str, sorted(slots)))} slots; give "
            "each the same"
        )
    return Hosts(slots.pop(), tuple(lines), mpi_family(version))


@dataclass(frozen=True)
class Launches:
    """Starts commands on hosts, and collects what they say."""

    environ: Mapping[str, str]
    plugin: AskedPlugin
    profile: str

    def preflight(self, hosts: Hosts, limit_s: float) -> tuple[int | None, list[CheckFinding]]:
        """The findings of all nodes, none if they did not start together, and mpirun's exit
        code; None: it was ended at its limit."""
        ranks = len(hosts.lines) or (1 if mpirun.ranks_are_here(self.environ) else hosts.ranks)
        with hosts.options(self.environ, ranks_a_node=1) as options:
            return ask_nodes(ranks, options, self.plugin, self.profile, self.environ, limit_s)

    def answers(self, hosts: Hosts, limit_s: float) -> dict[str, str]:
        """Line of a hostfile -> the name of its node; "" if it does not start a rank."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            names = pool.map(lambda line: self._name_of(line, limit_s), hosts.lines)
            return dict(zip(hosts.lines, names, strict=True))

    def _name_of(self, line: str, limit_s: float) -> str:
        """By a process of its own, for signals are the main thread's."""
        with tempfile.NamedTemporaryFile("w", prefix="tcpx-mpi-hosts-") as file:
            file.write(line + "\n")
            file.flush()
            words = ["preflight", "--hostfile", file.name, "--json", "--profile", self.profile]
            command = module_command("tcpx_mpi", [*words, *self.plugin.arguments()])
            try:
                done = subprocess.run(
                    command, env=dict(self.environ), stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=limit_s, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return ""
        try:
            checks = json.loads(done.stdout)["checks"]
        except ValueError:  # a line on the standard error says why
            return ""
        return next((each["node"] for each in checks if each["node"]), "")

    def run(self, hosts: Hosts, arguments: Sequence[str], limit_s: float) -> Ended:
        """A run of these ranks to its end, or to its limit."""
        environ = dict(self.environ)
        keep_mpi_on_control_nic(self.profile, this_machine(), environ)
        program = module_command("tcpx_mpi", ["run", *arguments])
        began = time.monotonic()
        with (
            hosts.options(environ, hosts.ranks_a_node) as options,
            tempfile.TemporaryFile() as stderr,
        ):
            code, printed = mpirun.run_captured(
                hosts.ranks, program, environ, options, limit_s, stderr=stderr
            )
            stderr.seek(0)
            errors = os.fsdecode(stderr.read()).splitlines()
        if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
            raise mpi.interrupted_by(code - 128)
        own = [line.removeprefix(_ERROR) for line in errors if line.startswith(_ERROR)]
        if code and not own:  # the launcher's words are all that there is
            print("\n".join(errors), file=sys.stderr, flush=True)
        events = [event for line in printed.splitlines() if (event := _event(line))]
        if code == ExitCode.OK and not has_result(printed, events):
            # mpirun may end so when a node dies.
            code, own = ExitCode.LOST_RANK, ["mpirun ended with 0, and no rank with a result"]
        return Ended(code, events, own, time.monotonic() - began)


def has_result(printed: str, events: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rank 0 came to the end of its run, or of its smoke test."""
    return any(each["event"] == "end" for each in events) or bool(_SMOKE_IS_GOOD.search(printed))


def _event(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line) if line.startswith('{"event"') else {}
    except ValueError:  # the end of a stream that was cut
        return {}
    return found if isinstance(found, dict) else {}

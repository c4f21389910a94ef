"""A qualification from end to end: preflight, a smoke test, all pairs, a ring; within a time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.findings import Finding, Severity
from tcpx_mpi.patterns import ALL_AT_ONCE, SMOKE, TOURNAMENT
from tcpx_mpi.preflight.facts import AskedPlugin
from tcpx_mpi.preflight.findings import Checked, CheckFinding, checked
from tcpx_mpi.qualify import judge
from tcpx_mpi.qualify.devices import Device, devices_of
from tcpx_mpi.qualify.judge import Ended, Qualification, Step
from tcpx_mpi.qualify.launch import Hosts, Launches, of_hostfile
from tcpx_mpi.run import admission

#: What a launcher and Python need to come up, and a step to measure anything.
LEAST_STEP_S = 3.0
#: As many steps there are at least.
LEAST_S = 4 * LEAST_STEP_S
#: Of the whole time, a rank may make no progress for this share.
_PATIENCE = 1 / 6
_LEAST_PATIENCE_S, _MOST_PATIENCE_S = 2.0, 30.0
#: Ranks that share few cores come up one after the other, each in so long; of the whole time, they
#: have this share for it.
_SET_UP_S, _MOST_OF_SET_UP = 0.5, 1 / 3
#: 4 KiB show late ranks; 256 KiB show slow ones and lost packets. That is 40 MiB over each link,
#: and enough iterations for medians that a busy machine does not move.
_PAIRS = {"pattern": TOURNAMENT, "all": "1", "sizes": "4K,256K", "iters": "160"}
_RING = {"pattern": ALL_AT_ONCE, "sizes": "1M,4M", "iters": "20", "against": "raw"}


def patience_s(within_s: float) -> float:
    """The time that a rank may make no progress."""
    return min(max(within_s * _PATIENCE, _LEAST_PATIENCE_S), _MOST_PATIENCE_S)


def set_up_patience_s(within_s: float, ranks_a_node: int) -> float:
    """The same of a rank's set-up, beside those of its node."""
    together = min(ranks_a_node * _SET_UP_S, within_s * _MOST_OF_SET_UP)
    return max(patience_s(within_s), together)


@dataclass(frozen=True)
class Asked:
    """The request: what is to be qualified, and with what."""

    hostfile: str | None
    ranks: int | None
    within_s: float
    gate: str
    soak_s: float
    #: Of a tournament, about so many pairs at most.
    pairs: int
    profile: str
    abi: int
    plugin: str | None
    memory: str | None


class Qualifier:
    """One qualification; `run` is the story."""

    def __init__(self, asked: Asked, environ: Mapping[str, str]) -> None:
        """Raises UsageError for what cannot be, before any rank starts."""
        self._asked, self._deadline = asked, time.monotonic() + asked.within_s
        if asked.within_s < LEAST_S:
            raise UsageError(
                f"--within ({asked.within_s:g} s) is shorter than preflight, a smoke test, all "
                f"pairs and a ring take to come up: give {LEAST_S:g} s or more"
            )
        if asked.hostfile is not None:
            self._hosts = of_hostfile(asked.hostfile, environ)
            if len(self._hosts.lines) < 2:
                raise UsageError(
                    f"--hostfile ({asked.hostfile}) has one node: nobody can meet it; name two"
                )
        else:
            self._hosts = Hosts(asked.ranks or 0)
        self._runs = [(name, self._arguments(values, environ)) for name, values in self._planned()]
        self._launches = Launches(environ, AskedPlugin(asked.plugin, asked.abi), asked.profile)
        self._nodes: list[str] = []
        self._findings: list[CheckFinding] = []
        self._steps: list[Step] = []
        self._devices: dict[Device, None] = {}

    def _planned(self) -> list[tuple[str, dict[str, str]]]:
        ring = {**_RING, "gate": self._asked.gate}
        pairs = {**_PAIRS, "pairs": str(self._asked.pairs)}
        planned = [(SMOKE, {"pattern": SMOKE}), (TOURNAMENT, pairs), (ALL_AT_ONCE, ring)]
        if self._asked.soak_s:
            soak = {"duration": f"{self._asked.soak_s:g}s"}
            planned.append(("soak", {**ring, **soak}))
        return planned

    def _arguments(self, values: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
        """The arguments of `run`, after what any of its ranks would find has been refused."""
        patience = patience_s(self._asked.within_s)
        set_up = set_up_patience_s(self._asked.within_s, self._hosts.ranks_a_node)
        given = {
            "plugin": self._asked.plugin,
            "abi": str(self._asked.abi) if self._asked.abi else None,
            "profile": self._asked.profile,
            "memory": self._asked.memory,
            **dict.fromkeys(("stall_timeout", "connect_timeout"), f"{patience:g}s"),
            "setup_timeout": f"{set_up:g}s",
            **values,
        }
        if given["pattern"] != SMOKE:
            given |= {"hdf5": "none", "json_stream": "-", "check_memory": "64M"}
            settings = admission.read_settings(given, environ)
            admission.admit_parent(settings, environ, self._hosts.ranks, admission.RUN)
        flags = {option.name: option.flags[-1] for option in OPTIONS}
        words = [
            word
            for name, text in given.items()
            if name != "pattern" and text is not None
            for word in (flags[name], text)
        ]
        return [str(given["pattern"]), *words]

    def run(self) -> Qualification:
        """The story, top to bottom."""
        self._preflight()
        for name, arguments in self._runs:
            self._step(name, arguments)
        return Qualification(self._nodes, self._findings, self._steps, list(self._devices))

    @property
    def _left_s(self) -> float:
        return self._deadline - time.monotonic()

    def _preflight(self) -> None:
        began = time.monotonic()
        code, found = self._launches.preflight(self._hosts, self._left_s / 2)
        if not found:
            self._drop_silent("preflight", "no rank of it started: see the launcher's lines above")
            if self._hosts.lines and self._left_s > LEAST_STEP_S:
                code, found = self._launches.preflight(self._hosts, self._left_s)
        here = dict.fromkeys(checked(each).node for each in found if checked(each).node)
        self._nodes = list(dict.fromkeys([*self._nodes, *here]))
        missing = "" if found else "nobody answered" if code is not None else "its time was over"
        if code is not None and not found and not self._nodes:
            text = "mpirun started no rank that answered: see the launcher's lines above"
            self._findings.append(Finding(Severity.BAD, "preflight", text, evidence=Checked("")))
        self._findings += judge.of_preflight(found, list(here))
        self._steps.append(Step("preflight", time.monotonic() - began, missing))

    def _step(self, name: str, arguments: Sequence[str]) -> None:
        """A run on all nodes that are left; without those that it is about, once more."""
        began = time.monotonic()
        missing = self._obstacle()
        while not missing:
            ended = self._launches.run(self._hosts, arguments, self._left_s)
            found = list(judge.of_run(name, ended, self._nodes))
            self._devices |= dict.fromkeys(devices_of(ended.events))
            self._findings += found
            if not ended.completed and not found:
                missing = "its time was over"
            if ended.code in (ExitCode.OK, ExitCode.BELOW_GATE) or missing:
                break
            if not self._go_on_without(name, found, ended):
                missing = "it did not come to an end, and nobody else could be asked"
                break
            missing = self._obstacle()
        self._steps.append(Step(name, time.monotonic() - began, missing))

    def _obstacle(self) -> str:
        """Why no step can begin; "": it can."""
        if self._left_s < LEAST_STEP_S:
            return "no time was left"
        if self._asked.hostfile is not None and len(self._hosts.lines) < 2:
            return "no two nodes are left"
        if not self._nodes or (self._hosts.lines and self._hosts.ranks < 2):
            return "no rank started"
        return ""

    def _go_on_without(self, name: str, found: Sequence[CheckFinding], ended: Ended) -> bool:
        """Leaves out the nodes that a step is about, and those that no longer answer; whether it
        can be done again."""
        if not self._hosts.lines or self._left_s < LEAST_STEP_S:
            return False
        before = len(self._hosts.lines)
        names = self._drop_silent(name, "it does not answer any more")
        accused = {checked(each).node for each in found} - {""}
        lines = [line for line, node in names.items() if node in accused]
        self._hosts = self._hosts.without(lines)
        return len(self._hosts.lines) < before

    def _drop_silent(self, title: str, text: str) -> dict[str, str]:
        """Asks each node by itself; those that do not start a rank are unfit. Line -> node."""
        if not self._hosts.lines:
            return {}
        names = self._launches.answers(self._hosts, max(self._left_s / 2, LEAST_STEP_S))
        silent = [line for line, node in names.items() if not node]
        # Before anybody has answered, a node has but the name that the file has for it.
        gone = [node for node in self._nodes if node not in names.values()]
        unfit = gone if self._nodes else [line.split()[0] for line in silent]
        self._findings += [
            Finding(Severity.BAD, title, text, evidence=Checked(node)) for node in unfit
        ]
        here = [names[line] or line.split()[0] for line in names]
        self._nodes = list(dict.fromkeys(self._nodes or here))
        self._hosts = self._hosts.without(silent)
        return names

"""What each rank of a log says of its network, in NCCL's own words. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tcpx_mpi.doctor.lines import Line, Rank

#: NCCL's own network over sockets, and ours, which only keeps TCPX's contract over them.
SOCKETS = ("socket", "softtcpx")
_NETWORK = re.compile(
    r"Using network (?P<name>.+)|Assigned NET plugin (?P<assigned>\S+) to comm", re.IGNORECASE
)
#: Behind the device, in brackets, the rank whose proxy sends (PXN).
_VIA = re.compile(r"\bvia NET/(?P<network>[^/\s]+)/\d+(?:\(\d+\))?(?P<direct>/GDRDMA)?")
_COMM = re.compile(r"\brank (?P<rank>\d+) nranks (?P<ranks>\d+)\b")
_SET = re.compile(
    r"\b(?P<name>NCCL_\w+) set (?:by environment )?to (?P<value>\S.*?)(?: \(.*\))?\.?$"
)


@dataclass
class RankFacts:
    """What one rank said; `line` is where it named its network first."""

    rank: Rank
    networks: list[str] = field(default_factory=list)
    line: Line | None = None
    #: Connections through the network, in a GPU's memory and staged in the host's.
    direct: int = 0
    staged: int = 0
    staged_line: Line | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def on_sockets(self) -> bool:
        return any(is_sockets(name) for name in self.networks)


@dataclass(frozen=True)
class Job:
    """All ranks of a log, and how many the job has as far as one says (0: none does)."""

    ranks: Sequence[RankFacts]
    size: int
    #: Whether a line of the log is NCCL's.
    by_nccl: bool

    @property
    def told(self) -> list[RankFacts]:
        """The ranks that named their network."""
        return [facts for facts in self.ranks if facts.networks]

    @property
    def environment(self) -> dict[str, str]:
        """NCCL_... that a rank says was set for it, the first that says so."""
        found: dict[str, str] = {}
        for facts in self.ranks:
            found = {**facts.environment, **found}
        return found


def is_sockets(network: str) -> bool:
    return network.lower().startswith(SOCKETS)


def is_tcpx(network: str) -> bool:
    return "tcpx" in network.lower() and not is_sockets(network)


def is_fastrak(network: str) -> bool:
    return "fastrak" in network.lower()


def read_job(lines: Sequence[Line]) -> Job:
    """What the ranks say, in the order of their names."""
    ranks: dict[Rank, RankFacts] = {}
    members: set[Rank] = set()
    size = 0
    for line in lines:
        if line.rank is None:
            continue
        facts = ranks.setdefault(line.rank, RankFacts(line.rank))
        if found := _NETWORK.match(line.text):
            name = (found["name"] or found["assigned"]).strip()
            if name not in facts.networks:
                facts.networks.append(name)
            facts.line = facts.line or line
        elif found := _VIA.search(line.text):
            if found["direct"]:
                facts.direct += 1
            else:
                facts.staged += 1
                facts.staged_line = facts.staged_line or line
        elif found := _SET.search(line.text):
            facts.environment.setdefault(found["name"], found["value"].strip("'\""))
        if found := _COMM.search(line.text):
            size = max(size, int(found["ranks"]))
            members.add(line.rank)
    _fold(ranks, members)
    return Job([ranks[rank] for rank in sorted(ranks)], size, bool(ranks))


def _fold(ranks: dict[Rank, RankFacts], members: set[Rank]) -> None:
    """Leaves out what a process said before it chose its GPU: a line has the current device's
    number, and until then that is another's."""
    told = {(facts.rank.host, facts.rank.pid) for facts in ranks.values() if facts.networks}
    for rank, facts in list(ranks.items()):
        if not facts.networks and rank not in members and (rank.host, rank.pid) in told:
            del ranks[rank]

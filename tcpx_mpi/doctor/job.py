"""All ranks of a log: how many they are, and whether there is another node. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tcpx_mpi.doctor.facts import RankFacts, is_direct, is_sockets
from tcpx_mpi.doctor.lines import Line, Rank

#: Variables that one sets for a network between nodes.
_OF_NETWORKS = re.compile(r"NCCL_(?:NET|IB|GPUDIRECTTCPX|FASTRAK)")
#: The GPUs of the largest node.
_NODE_GPUS = 16
#: A host's name that names none.
_NO_HOST = re.compile(
    r"|[xX*]|localhost.*|.*(?:[<>{}$]|[xX*]{2}).*|(?:host|node)(?:name)?|redacted", re.I
)


@dataclass(frozen=True)
class Job:
    """All ranks of a log, and how many the job has as far as one says (0: none does)."""

    ranks: Sequence[RankFacts]
    size: int
    #: Whose a line is: what a process says before it chooses its GPU is of all its ranks.
    owners: Mapping[Rank, Sequence[RankFacts]]
    #: NCCL's versions, each with the ranks that say it.
    versions: Mapping[str, Sequence[str]]

    @cached_property
    def with_network(self) -> list[RankFacts]:
        """The ranks that name their network or their connections."""
        return [facts for facts in self.ranks if facts.names_network]

    def count(self, facts: RankFacts) -> int:
        """The number of ranks: one, unless a log has lost what tells two apart, or the lines of
        some."""
        return self._named(facts) + self._left_out[facts.rank]

    @cached_property
    def _left_out(self) -> Mapping[Rank, int]:
        """The ranks whose lines a log counts in place of printing them: they may be there by other
        lines, so no more than the size leaves."""
        left = self.size - sum(map(self._named, self.with_network))
        found: dict[Rank, int] = {}
        for facts in self.ranks:
            found[facts.rank] = max(min(facts.more, left), 0) if self.size else facts.more
            left -= found[facts.rank]
        return found

    def _named(self, facts: RankFacts) -> int:
        if self._is_numbered and not facts.numbers.get(self.size):
            return 0  # a broken head
        nameless = () if facts.rank.pid else facts.spoken
        return max(1, len(facts.numbers.get(self.size) or nameless))

    @cached_property
    def _is_numbered(self) -> bool:
        """Whether all ranks have said their number: who has none is none of them."""
        numbers = {n for facts in self.ranks for n in facts.numbers.get(self.size, ())}
        return 0 < self.size <= len(numbers)

    @cached_property
    def total(self) -> int:
        if self._is_numbered:  # perhaps in groups, without the communicator of all
            return max(self.size, sum(map(self.count, self.with_network)))
        told = any(facts.numbers for facts in self.ranks)
        silent = [
            facts
            for facts in self.ranks
            if not facts.names_network and (facts.numbers if told else facts.rank.device)
        ]
        heard = sum(map(self.count, self.with_network))
        named = max((facts.least for facts in self.ranks), default=0)
        # No number makes more ranks of a communicator of which all are there.
        is_whole = told and heard >= self.size
        return max(self.size, 0 if is_whole else named, heard + len(silent))

    @cached_property
    def missing(self) -> int:
        """Ranks that say nothing of their network."""
        return max(self.total - sum(map(self.count, self.with_network)), 0)

    @cached_property
    def environment(self) -> dict[str, str]:
        """NCCL_... that a rank says was set for it, the first that says so."""
        found: dict[str, str] = {}
        for facts in self.ranks:
            found = {**facts.environment, **found}
        return found

    @cached_property
    def spans(self) -> bool:
        """Whether something says that there are several nodes."""
        hosts = {facts.rank.host for facts in self.ranks if facts.names_network or facts.numbers}
        return len(hosts) > 1 or any(
            facts.linked or max(facts.nodes.values(), default=0) > 1 for facts in self.ranks
        )

    @cached_property
    def fills_nodes(self) -> bool:
        """Whether the ranks seen have the same GPUs, from 0 on, on each of several hosts: a job
        whose size nothing says, which is seen whole as far as one can tell."""
        gpus: dict[str, list[int]] = defaultdict(list)
        for facts in self.with_network:
            gpus[facts.rank.host].append(facts.gpu)
        alike = {tuple(sorted(of)) for of in gpus.values()}
        each = min(alike, default=())
        return len(gpus) > 1 and len(each) > 1 and alike == {tuple(range(len(each)))}

    @cached_property
    def needs_no_network(self) -> bool:
        """Whether all ranks are there and no byte goes between nodes: one node, or NVLink alone."""
        heard = self.with_network
        if any(facts.linked for facts in heard):
            return False
        if self._on_one_host and (any(facts.near for facts in heard) or self._has_own_gpus):
            return True  # also where some have lost their connections
        if not heard or self.missing:
            return False
        if self.size == self.total == 1 or (self.size and self.is_one_node):
            return True
        near = all(facts.near for facts in heard)
        return near and (not self.spans or all("P2P/MNNVL" in facts.near for facts in heard))

    def leaves_node(self, facts: RankFacts) -> bool:
        """Whether a rank's connections leave its node, as far as the log says: if not, its choice
        of a network says little."""
        if self.is_one_node or self.needs_no_network:
            return facts.linked
        alone = self._may_be_one_node and {*facts.networks} == {"Socket"}
        alone = alone or self._is_beside_all
        inside = (facts.near or alone) and not self._points_out
        return bool(facts.linked or self.spans or not inside)

    @cached_property
    def _points_out(self) -> bool:
        """Whether something hints at other nodes: a plugin that was there and was not chosen, or a
        host whose ranks have higher numbers than its GPUs, so that others are before them. Two
        ranks on one number of a GPU see one GPU each, whatever its number on the node is."""
        places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for facts in self.ranks:
            numbers = facts.numbers.get(self.size) or facts.tags
            places[facts.rank.host] += [(n, facts.gpu) for n in numbers if facts.gpu >= 0]
        return any(facts.had_plugin and "Socket" in facts.networks for facts in self.ranks) or any(
            sum(number - gpu for number, gpu in of) > 0
            for of in places.values()
            if len({gpu for _, gpu in of}) == len(of)
        )

    def on_sockets(self, facts: RankFacts) -> Line | None:
        """The line of a rank that says so, where it counts."""
        return facts.on_sockets if self.leaves_node(facts) else None

    def unknown(self, facts: RankFacts) -> Line | None:
        """The line of a network that may or may not reach GPU memory. A connection of the node
        tells for the ranks that have none of their own: their GPUs have no NIC near."""
        chosen = {} if facts.linked or facts.memory_on else facts.chosen
        unknown = (
            line
            for name, line in chosen.items()
            if not (is_sockets(name) or is_direct(name))
            and (facts.rank.host, name) not in self._connections
        )
        return next(unknown, None)

    @cached_property
    def _connections(self) -> set[tuple[str, str]]:
        """The networks with connections, by host."""
        return {(f.rank.host, name) for f in self.ranks for name in (*f.direct, *f.staged)}

    @cached_property
    def is_one_node(self) -> bool:
        """Whether NCCL says so, by its count of nodes or by its trees. Fewer channels than it
        would take may leave out the other half of the trees."""
        few = any(name.startswith("NCCL_MAX_") for name in self.environment)
        for facts in self.ranks:
            size = self.size if facts.numbers else 0
            nodes = facts.nodes.get(size, 0)
            if nodes == 1 or (nodes == 0 and facts.roots.get(size) and not few):
                return True
        return False

    @cached_property
    def reaches_out(self) -> bool:
        """Whether something says that there are other nodes: `spans`, more ranks than a node has
        GPUs, or a host that a rank talks to."""
        own = {host for facts in self.ranks for host in facts.own}
        own |= {facts.rank.host.partition(".")[0] for facts in self.ranks}
        peers = {host for facts in self.ranks for host in facts.peers}
        return (
            self.spans
            or self.total > _NODE_GPUS
            or any(not own & {peer, peer.partition(".")[0]} for peer in peers)
        )

    @cached_property
    def _may_be_one_node(self) -> bool:
        """Whether nothing says how many ranks there are, and nothing that there is another node.
        Who sets a variable of a network, or has its plugin, means several; ranks whose host is
        redacted may be anywhere."""
        seen = self.with_network
        # Who sees all ranks of a node sets it there, too.
        inside = {"NCCL_IB_DISABLE"} if len(self.ranks) > 1 else set()
        return not (
            self.size
            or self.reaches_out
            or (len(seen) > 1 and any(_NO_HOST.fullmatch(facts.rank.host) for facts in seen))
            or any(map(_OF_NETWORKS.match, self.environment.keys() - inside))
            or any(name != "Socket" for facts in self.ranks for name in facts.networks)
        )

    @cached_property
    def _on_one_host(self) -> bool:
        """Whether all ranks of a job of a known size are there, even if some do not say which
        network they use, and name one host, as far as its name is one: two containers may have a
        host's name and a pid in common."""
        seen = [facts for facts in self.ranks if facts.names_network or facts.numbers]
        names = {replace(facts.rank, source="") for facts in seen}
        return (
            0 < self.size <= sum(map(self.count, seen))
            and not self.spans
            and len(names) == len(seen)
            and not any(_NO_HOST.fullmatch(rank.host) for rank in names)
        )

    @cached_property
    def _has_own_gpus(self) -> bool:
        """Whether each of the ranks with numbers has a GPU of its own number: the GPUs of two
        containers with one host's name have the same."""
        devices = [facts.rank.device for facts in self.ranks if facts.numbers.get(self.size)]
        return len({*devices}) == len(devices) == self.size

    @cached_property
    def _is_beside_all(self) -> bool:
        """Whether there are no fewer processes than ranks, all on one host by its name or by its
        address: a rank whose choice is not in the log is no other node."""
        named = [facts for facts in self.ranks if facts.rank.pid]
        hosts = {f.address if _NO_HOST.fullmatch(f.rank.host) else f.rank.host for f in named}
        names = {replace(facts.rank, source="") for facts in named}
        is_one = len(hosts) == 1 and "" not in hosts and len(names) == len(named)
        return is_one and len(named) >= self.size > 0

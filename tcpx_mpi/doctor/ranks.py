"""The networks and connections of each rank of a log, in NCCL's own words. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tcpx_mpi.doctor.lines import Line, Rank

#: Networks that are sockets by whatever name: NCCL's own, Google's faster ones (both of host memory
#: alone), and ours, which only keeps TCPX's contract.
_SOCKETS = re.compile(r".*socket|TCP\b|softtcpx", re.IGNORECASE)
#: Networks that are known to reach GPU memory, where no connection says so or the contrary.
#: Libfabric and UCX are layers over what there is, which may be TCP.
_DIRECT = re.compile(r"IB|gIB|SHARP|GPUDirectTCPX|FasTrak|.*(?:RDMA|RoCE)", re.IGNORECASE)
#: A name may have blanks; of one that is known, what follows is of somebody else.
_CHOSEN = re.compile(
    r"(?:Using (?:network|(?:in|ex)ternal Network)|Assigned NET plugin) "
    r"(?P<name>(?:(?:Fast)?Socket|GPUDirectTCPX_v\d+|FasTrak|IBext_v\d+|IB"
    r"|(?:AWS )?Libfabric)(?![\w.-])|[^\"\\|]{1,60})"
)
#: Behind the device, in brackets, the rank whose proxy sends (PXN).
_VIA = re.compile(
    r"(?:(?P<sender>\d+)(?:\[\w+\])? -> (?P<receiver>\d+)(?:\[\w+\])? (?:\[(?P<way>\w+)\] )?)?"
    r"via (?:NET/(?P<network>[^/]{1,60})/\d+(?:\(\d+\))?(?P<direct>/GDRDMA)?"
    r"|(?P<near>P2P/MNNVL|P2P|SHM|direct shared memory))"
)
_COMM = re.compile(
    r"\brank (?P<rank>\d+) n[rR]anks (?P<ranks>\d+)\b(?: nNodes (?P<nodes>\d+))?"
    r"(?: cudaDev (?P<seen>\d+)(?: nvmlDev (?P<gpu>\d+))?)?"
)
#: How many ranks a communicator has: NCCL says it of a rank and of a call, RCCL in each line.
_SIZE = re.compile(r"(?:\bn[rR]anks[ =]|^Bootstrap Root : rank \d{1,9} of )(\d{1,9})\b")
#: All ranks of a communicator in the order of a ring; rank 0 says it.
_RING = re.compile(r"(?:Channel|Ring) \d+(?:/\d+)? :((?: +\d{1,6})+)$")
#: A rank's place in each tree: children->rank->parent; NCCL 2.6 and 2.7: parent->rank->children.
_TREE = re.compile(r"\[\d+\] (-?\d+)(?:/-?\d+)*->\d+->(-?\d+)(/?)")
#: Variables that one sets for a network between nodes.
_OF_NETWORKS = re.compile(r"NCCL_(?:NET|IB|GPUDIRECTTCPX|FASTRAK)")
#: A host's name or number before a port, and those that are no other host's.
_HOST_AND_PORT = re.compile(r"([^\s<]{1,255})<\d{1,5}>")
_ADDRESS = re.compile(r"(?!127\.|::1)[\da-f.:]+(?:%\w+)?")
_NO_OTHER = re.compile(r"localhost|127\.|[0.:]*(?:::1)?$")
#: The GPUs of the largest node.
_NODE_GPUS = 16
#: A number that any other line names.
_RANK = re.compile(r"\brank (\d{1,6})\b", re.IGNORECASE)
_SET = re.compile(
    r"\b(?P<name>NCCL_\w+|Plugin name) set (?:by env(?:ironment)? )?to "
    r"(?P<value>\S.*?)(?: \(.*\))?\.?$"
)
#: Of a device (HCA), or of a GPU and a device: a far pair says nothing of the others. OFI's words.
_MEMORY = re.compile(
    r"GPU Direct RDMA (?:\(\S+\) )?(?:(?P<on>enabled)|disabled) for|disabling GDR"
    r"|Could not find any optimal provider supporting GPUDirect",
    re.IGNORECASE,
)
_VERSION = re.compile(r"[NR]CCL version ?:? (?P<version>\d+\.\d+\.\d+)\S*(?:\+(?:cuda|hip)|-)")
#: What NCCL comes to while it looks for a network: a plugin, else InfiniBand, else sockets. NCCL
#: 2.4 and 2.5 do not say which they chose: it is the last of these. To 2.4.7 sockets come first.
_CAME_TO = re.compile(
    r"(?P<IB>NET/IB : Using ?\[\d)|(?P<Socket>NET/Socket : Using ?\[|NET/IB : No device found"
    r"|NCCL_IB_DISABLE set by environment to [1-9]|Failed to open libibverbs)"
    r"|(?P<plugin>NET/(?!(?:IB|Socket|Plugin|MLX5)\b)\w)"
)
#: NCCL 2.6 and later, which say what they chose.
_NEWER = re.compile(r"Bootstrap ?: Using (?!\[)|cudaDriverVersion")
#: All connections of a communicator are made. NCCL 2.21 and later say COMPLETE before that.
_CONNECTED = re.compile(r"Connected all |comm \S+ rank .* - Init COMPLETE")
#: Of a request under way: its connection was there.
_COMPLETION = re.compile(r"Got completion (?:from peer|with (?:error|status))")
#: A host's name that names none.
_NO_HOST = re.compile(
    r"|[xX*]|localhost.*|.*(?:[<>{}$]|[xX*]{2}).*|(?:host|node)(?:name)?|redacted", re.I
)


@dataclass
class RankFacts:
    """The facts of one rank, over all its communicators."""

    rank: Rank
    #: Each network that was chosen, and where that is said.
    chosen: dict[str, Line] = field(default_factory=dict)
    #: Networks with connections, and the first of each: in a GPU's memory, staged in the host's.
    direct: dict[str, Line] = field(default_factory=dict)
    staged: dict[str, Line] = field(default_factory=dict)
    #: What connects it without a network: "P2P", "SHM".
    near: set[str] = field(default_factory=set)
    #: Its numbers in communicators of so many ranks, as far as they are known, and NCCL's count of
    #: their nodes.
    numbers: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    nodes: dict[int, int] = field(default_factory=dict)
    #: Its GPU's number, on the node if a line has it (-1: none); its own by a launcher's tag.
    gpu: int = -1
    tags: set[int] = field(default_factory=set)
    #: By its connections: who it is, and who the others are.
    spoken: set[int] = field(default_factory=set)
    mentioned: set[int] = field(default_factory=set)
    #: How many ranks there are at least, by the highest number that it names.
    least: int = 0
    #: Whether it is the root of all its trees: by the size of the communicator before them, or 0.
    #: Half of the trees of several nodes have another node's rank as their root.
    roots: dict[int, bool] = field(default_factory=dict)
    last_size: int = 0
    #: Hosts before a port: those of its own NICs, and any other.
    own: set[str] = field(default_factory=set)
    #: The address of its bootstrap's NIC.
    address: str = ""
    peers: set[str] = field(default_factory=set)
    connected: bool = False
    #: Whether a connection had requests, if it is not logged itself.
    moved: bool = False
    #: Whether more of it is there than warnings.
    informs: bool = False
    memory_off: Line | None = None
    memory_on: bool = False
    version: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    #: The network that it came to last, or "plugin", and where.
    came_to: tuple[str, Line] | None = None
    #: Whether its choice is what it came to last; whether a plugin was there to choose.
    is_guess: bool = False
    #: Whether it has come to look for plugins; whether its NCCL says what it chose.
    looked: bool = False
    is_newer: bool = False
    had_plugin: bool = False
    #: How many more ranks said the same of their network, where a log counts in place of lines.
    more: int = 0

    @property
    def networks(self) -> dict[str, Line]:
        """Each with its line: a connection's, else that of the choice."""
        return {**self.chosen, **self.direct, **self.staged}

    @property
    def names_network(self) -> bool:
        return bool(self.networks or self.near)

    @property
    def linked(self) -> bool:
        return bool(self.direct or self.staged)

    @property
    def on_sockets(self) -> Line | None:
        """The line that says so, or None."""
        return next((line for name, line in self.networks.items() if is_sockets(name)), None)

    @property
    def without_memory(self) -> Line | None:
        """The line by which its network does without GPU memory, and no connection is there."""
        with_memory = self.memory_on or self.linked or self.on_sockets
        return None if with_memory else self.memory_off

    @property
    def has_number(self) -> bool:
        return any(self.numbers.values())

    def __str__(self) -> str:
        numbers = self.numbers.get(max(self.numbers, default=0), ())
        number = f"rank {min(numbers)}, " if len(numbers) == 1 else ""
        return f"{number}{self.rank}"

    def take(self, line: Line) -> None:
        text = line.text
        self.informs = self.informs or line.level == "INFO"
        if text.startswith("NVLS "):
            return  # its ranks are those of the node
        self.connected = self.connected or _CONNECTED.match(text) is not None
        named = _RANK.findall(text) if "ank " in text else ()
        self.least = max(self.least, *(int(number) + 1 for number in (*named, *line.tagged)), 0)
        if len(line.tagged) == 1:
            self.tags |= line.tagged
        for size in map(int, _SIZE.findall(text) if "anks" in text else ()):
            self.last_size = size
            self.numbers.setdefault(size, set())
        self.moved = self.moved or _COMPLETION.search(text) is not None
        if "<" in text:
            self._take_hosts(text)
        self.looked = self.looked or text.startswith("NET/Plugin")
        self.is_newer = self.is_newer or _NEWER.match(text) is not None
        # Sockets before anything else are those of the bootstrap.
        found = _CAME_TO.match(text)
        if found and (self.looked or not text.startswith("NET/Socket")):
            self.came_to = str(found.lastgroup), line
            self.had_plugin = self.had_plugin or found.lastgroup == "plugin"
        if found := _connection(line):
            self._connect(found, line)
        elif found := _CHOSEN.match(text):
            name = found["name"].strip()
            # Of the lines that it counts, Ray prints the last.
            self.more += max(line.repeated - (name not in self.chosen), 0)
            self.chosen.setdefault(name, line)
        elif found := _COMM.search(text):
            size = int(found["ranks"])
            self.numbers[size].add(int(found["rank"]))
            self.nodes[size] = max(self.nodes.get(size, 0), int(found["nodes"] or 0))
            self.gpu = int(found["gpu"] or found["seen"] or self.gpu)
        elif found := _RING.match(text):
            self.mentioned.update(map(int, found[1].split()))
        elif text.startswith("Trees ["):
            trees = [first if old else last for first, last, old in _TREE.findall(text)]
            is_root = len(trees) > 1 and {*trees} == {"-1"}
            self.roots[self.last_size] = is_root and self.roots.get(self.last_size, True)
        elif found := _MEMORY.search(text):
            self.memory_on = self.memory_on or bool(found["on"])
            self.memory_off = self.memory_off or line
        elif found := _SET.search(text):
            self.environment.setdefault(found["name"], found["value"].strip("'\""))
        elif found := _VERSION.match(text):
            self.version = self.version or found["version"]

    def _take_hosts(self, text: str) -> None:
        hosts = _HOST_AND_PORT.findall(text)
        if "Using" in text:
            addresses = [host.partition(":")[2] for host in hosts]  # eth0:10.0.0.1
            self.own.update(addresses)
            if text.startswith("Bootstrap"):
                self.address = next(filter(_ADDRESS.fullmatch, addresses), "")
        else:
            self.peers.update(host for host in hosts if not _NO_OTHER.match(host))

    def _connect(self, found: re.Match[str], line: Line) -> None:
        if found["sender"]:
            ends = [int(found["sender"]), int(found["receiver"])]
            self.spoken.add(ends[found["way"] == "receive"])
            self.mentioned.update(ends)
            self.least = max(self.least, max(ends) + 1)
        if network := found["network"]:
            kind = self.staged if is_sockets(network) or _has_its_end(found, line) else self.chosen
            kind = self.direct if found["direct"] else kind
            kind.setdefault(network, line)
        else:
            self.near.add(found["near"])


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
        inside = self._on_one_host or ((facts.near or alone) and not self._points_out)
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
            if not (is_sockets(name) or _DIRECT.match(name))
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


def _connection(line: Line) -> re.Match[str] | None:
    """The connection that a line names; where it was wrapped, its rest is on the next one."""
    found = _VIA.search(line.text)
    if line.rest and "via " in line.text:
        whole = _VIA.search(line.text + line.rest)
        found = whole if whole and (not found or whole["direct"]) else found
    return found


def _has_its_end(connection: re.Match[str], line: Line) -> bool:
    """Whether nothing was cut off that would say how it goes."""
    after = connection.string[connection.end() :]
    is_cut = after or line.rest is None
    return not (is_cut and ("/GDRDMA".startswith(after) or after.startswith("(")))


def is_sockets(network: str) -> bool:
    return _SOCKETS.match(network) is not None


def last_attempt(lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """The lines without those of processes that a later one took the place of, and the last line of
    each of these: a launcher that starts a job again writes into the same log. A rank has one
    number among all ranks, so a process that begins behind the end of another with its number is
    that rank again."""
    numbers: dict[tuple[str, str, str], set[tuple[int, int]]] = defaultdict(set)
    first: dict[tuple[str, str, str], int] = {}
    last: dict[tuple[str, str, str], int] = {}
    for at, line in enumerate(lines):
        if line.rank is None or not line.rank.pid:
            continue
        process = line.rank.process
        first.setdefault(process, at)
        last[process] = at
        if found := _COMM.search(line.text):
            numbers[process].add((int(found["ranks"]), int(found["rank"])))
    size = max((size for of in numbers.values() for size, _ in of), default=0)
    among_all = {
        process: frozenset(number for each, number in of if each == size)
        for process, of in numbers.items()
    }
    begun: dict[tuple[str, frozenset[int]], int] = {}
    for process, of in among_all.items():
        begun[process[0], of] = max(begun.get((process[0], of), 0), first[process])
    gone = {
        process for process, of in among_all.items() if of and begun[process[0], of] > last[process]
    }
    kept = [line for line in lines if line.rank is None or line.rank.process not in gone]
    return kept, [lines[last[process]] for process in sorted(gone)]


def read_job(lines: Sequence[Line]) -> Job:
    """The job of these ranks, in the order of their names."""
    said: dict[Rank, list[Line]] = defaultdict(list)
    versions: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        if line.rank is not None:
            said[line.rank].append(line)
        elif found := _VERSION.search(line.text):
            # Printed without a head, beside the same with one.
            versions[found["version"]] += []
    alone = {rank: _facts(rank, [rank], said) for rank in sorted(said)}
    broken = _broken_names(alone)
    for rank, whole in broken.items():
        said[whole] += said[rank]
        alone[whole] = _facts(whole, [whole], said)
        del alone[rank]
    parts = _parts(alone)
    ranks = {
        rank: _facts(rank, of, said) if len(of) > 1 else alone[rank] for rank, of in parts.items()
    }
    _guess_choices([*ranks.values()])
    owners: dict[Rank, list[RankFacts]] = defaultdict(list)
    for rank, of in parts.items():
        for part in of:
            owners[part].append(ranks[rank])
    owners |= {rank: owners[whole] for rank, whole in broken.items()}
    for facts in ranks.values():
        if facts.version:
            versions[facts.version].append(str(facts))
    size = max((size for facts in ranks.values() for size in facts.numbers), default=0)
    if not size:
        mentioned = {number for facts in ranks.values() for number in facts.mentioned}
        size = max(mentioned, default=-1) + 1
    return Job([*ranks.values()], size, owners, versions)


def _facts(rank: Rank, parts: Sequence[Rank], said: Mapping[Rank, Sequence[Line]]) -> RankFacts:
    facts = RankFacts(rank, gpu=int(rank.device or -1))
    for part in parts:
        for line in said[part]:
            facts.take(line)
    return facts


def _guess_choices(ranks: Sequence[RankFacts]) -> None:
    """The choice of ranks that do not say it: before NCCL 2.14 the first of a process says it for
    all its GPUs; before 2.6 none does, and it is what their process came to."""
    chosen: dict[tuple[str, str, str], dict[str, Line]] = defaultdict(dict)
    for facts in ranks:
        chosen[facts.rank.process].update(facts.chosen if facts.rank.pid else {})
    for facts in ranks:
        of_process = chosen[facts.rank.process]
        if facts.has_number and not facts.networks and len(of_process) == 1:
            facts.chosen.update(of_process)
    by_process = {facts.rank.process: facts.came_to for facts in ranks if facts.came_to}
    newer = {facts.rank.process for facts in ranks if facts.is_newer}
    for facts in ranks:
        is_rank = facts.numbers or facts.near
        came_to = facts.came_to or (is_rank and by_process.get(facts.rank.process))
        if facts.rank.process in newer or facts.networks:
            continue
        if came_to and came_to[0] != "plugin":
            facts.chosen.update([came_to])
            facts.is_guess = True


def _broken_names(alone: Mapping[Rank, RankFacts]) -> dict[Rank, Rank]:
    """The names that are the tail of another, or have another as theirs, with what is the rank's:
    two ranks that write at once cut a head, or have one behind a piece of another's."""
    tails = sorted(
        (rank.source, rank.device, f"{rank.host}:{rank.pid}".lstrip(":")[::-1], rank)
        for rank in alone
        if rank.pid
    )
    broken: dict[Rank, Rank] = {}
    for at, (*group, tail, rank) in enumerate(tails):
        longer = [
            other
            for *others, name, other in tails[at + 1 : at + 3]
            if others == group and name.startswith(tail)
        ]
        if len(longer) != 1 or not _may_be_one(alone[rank], alone[longer[0]]):
            continue
        whole, part = sorted([longer[0], rank], key=lambda one: not alone[one].has_number)
        if not broken.keys() & {whole, part}:
            broken[part] = whole
    return broken


def _may_be_one(one: RankFacts, other: RankFacts) -> bool:
    """Whether no number says that two names are of two ranks."""
    if one.has_number and other.has_number:
        return _shares_number(one, other)
    return not (one.spoken and other.spoken and one.spoken.isdisjoint(other.spoken))


def _parts(alone: Mapping[Rank, RankFacts]) -> dict[Rank, list[Rank]]:
    """Each rank, and under which names it speaks: a process that has not yet chosen its GPU has
    that of another, and a rank's log may be in two files."""
    parts: dict[Rank, list[Rank]] = {}
    processes: dict[tuple[str, str, str], list[Rank]] = defaultdict(list)
    names: dict[Rank, list[Rank]] = defaultdict(list)
    for rank, facts in sorted(alone.items(), key=lambda item: not item[1].names_network):
        alike = names[replace(rank, source="")]
        near = [] if facts.names_network else processes[rank.process]
        if facts.has_number:  # a thread had another device current
            only = len(near) == 1 and not alone[near[0]].has_number
            near = [home for home in near if only or _shares_number(alone[home], facts)]
        same = [one for one in alike if _is_one(alone[one], facts)]
        homes = near or (same if len(same) == 1 else [])
        for home in homes:
            parts[home].append(rank)
        if not homes:
            parts[rank] = [rank]
            if facts.names_network:
                processes[rank.process].append(rank)
                alike.append(rank)
    return parts


def _shares_number(one: RankFacts, other: RankFacts) -> bool:
    """Whether both have the same number in the largest communicator that the other has one of."""
    size = max(size for size, numbers in other.numbers.items() if numbers)
    return not one.numbers.get(size, set()).isdisjoint(other.numbers[size])


def _is_one(one: RankFacts, other: RankFacts) -> bool:
    """Whether two files may have lines of one rank: by its numbers, or where one says little."""
    both = [(of, other.numbers.get(size)) for size, of in one.numbers.items()]
    alike = [mine == theirs for mine, theirs in both if mine and theirs]
    if alike:
        return all(alike)
    return not other.names_network

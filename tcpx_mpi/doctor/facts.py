"""The networks and connections of one rank of a log, in NCCL's own words. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

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
COMM = re.compile(
    r"\brank (?P<rank>\d+) n[rR]anks (?P<ranks>\d+)\b(?: nNodes (?P<nodes>\d+))?"
    r"(?: cudaDev (?P<seen>\d+)(?: nvmlDev (?P<gpu>\d+))?)?"
)
#: How many ranks a communicator has: NCCL says it of a rank and of a call, RCCL in each line.
_SIZE = re.compile(r"(?:\bn[rR]anks[ =]|^Bootstrap Root : rank \d{1,9} of )(\d{1,9})\b")
#: All ranks of a communicator in the order of a ring; rank 0 says it.
_RING = re.compile(r"(?:Channel|Ring) \d+(?:/\d+)? :((?: +\d{1,6})+)$")
#: A rank's place in each tree: children->rank->parent; NCCL 2.6 and 2.7: parent->rank->children.
_TREE = re.compile(r"\[\d+\] (-?\d+)(?:/-?\d+)*->\d+->(-?\d+)(/?)")
#: A host's name or number before a port, and those that are no other host's.
_HOST_AND_PORT = re.compile(r"([^\s<]{1,255})<\d{1,5}>")
_ADDRESS = re.compile(r"(?!127\.|::1)[\da-f.:]+(?:%\w+)?")
_NO_OTHER = re.compile(r"localhost|127\.|[0.:]*(?:::1)?$")
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
VERSION = re.compile(r"[NR]CCL version ?:? (?P<version>\d+\.\d+\.\d+)\S*(?:\+(?:cuda|hip)|-)")
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
        elif found := COMM.search(text):
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
        elif found := VERSION.match(text):
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


def is_direct(network: str) -> bool:
    return _DIRECT.match(network) is not None

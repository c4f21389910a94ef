"""What made logs of NCCL are made of: ranks, the lines that they print, and a case of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

TCPX, FASTRAK = "GPUDirectTCPX_v7", "FasTrak"


@dataclass(frozen=True)
class Case:
    """A log and what is right about it."""

    name: str
    #: The text of each file of the job.
    files: Sequence[str]
    code: int
    #: Words of the first line of the verdict.
    says: Sequence[str] = ()
    #: Words of what is said to be off, to be a warning; words that no such finding has.
    off: Sequence[str] = ()
    warns: Sequence[str] = ()
    never: Sequence[str] = ()
    #: Words of the line that is quoted first.
    evidence: str = ""


@dataclass(frozen=True)
class Rank:
    """One rank of a made job; `says` and `warns` are lines as NCCL heads them."""

    number: int
    size: int
    host: str
    pid: int
    device: int

    def says(self, text: str, level: str = "INFO", where: str = "") -> str:
        where = f"{where} " if where else ""
        return f"{self.host}:{self.pid}:{self.pid + 7} [{self.device}] {where}NCCL {level} {text}"

    def warns(self, where: str, text: str) -> str:
        return f"\n{self.says(text, 'WARN', where)}"

    def comm(self, end: str = "Init START", size: int | None = None, nodes: int = 0) -> str:
        """NCCL 2.19's line of a communicator; with nodes 2.21's second one too."""
        size = size or self.size
        found = self.says(
            f"comm 0x5{self.pid:x}0 rank {self.number} nranks {size} cudaDev {self.device} "
            f"nvmlDev {self.device} busId {self.device + 4}000 commId 0x7e - {end}"
        )
        if nodes:
            found += "\n" + self.says(
                f"comm 0x5{self.pid:x}0 rank {self.number} nRanks {size} nNodes {nodes} "
                f"localRanks {size // nodes} localRank {self.device} MNNVL 0"
            )
        return found

    def via(self, how: str, word: str = "Channel 00/0") -> str:
        """Its connection to the next rank and from the one before."""
        after, before = (self.number + 1) % self.size, (self.number - 1) % self.size
        ends = ("[send] ", "[receive] ") if how.startswith("NET") else ("", "")
        lines = [
            self.says(f"{word} : {self.number}[{self.device}] -> {after}[0] {ends[0]}via {how}")
        ]
        if ends[1]:
            lines.append(
                self.says(
                    f"{word} : {before}[0] -> {self.number}[{self.device}] {ends[1]}via {how}"
                )
            )
        return "\n".join(lines)


Tells = Callable[[Rank], Iterable[str]]


def job(tells: Tells, size: int = 2, per_node: int = 1, host: str = "node-{}") -> str:
    """What all ranks say, rank after rank."""
    return "\n".join(line for rank in ranks(size, per_node, host) for line in tells(rank))


def ranks(size: int, per_node: int = 1, host: str = "node-{}") -> list[Rank]:
    return [Rank(n, size, host.format(n // per_node), 4100 + n, n % per_node) for n in range(size)]


def on(network: str, how: str = "", nodes: int = 0) -> Tells:
    """A rank on a network, with its communicator and, as `how` says, its connections."""

    def tells(rank: Rank) -> Iterable[str]:
        yield rank.says(f"Using network {network}")
        yield rank.comm(nodes=nodes)
        if how:
            yield rank.via(how)

    return tells


def also(tells: Tells, *before: str, after: Sequence[str] = ()) -> Tells:
    """With these texts first, and these last."""

    def lines_of(rank: Rank) -> Iterable[str]:
        yield from (rank.says(text) for text in before)
        yield from tells(rank)
        yield from (rank.says(text) for text in after)

    return lines_of


def but(number: int, tells: Tells, otherwise: Tells) -> Tells:
    """One rank says something else."""
    return lambda rank: (otherwise if rank.number == number else tells)(rank)


def dies(tells: Tells, where: str, text: str, *traces: str, number: int = 1) -> Tells:
    """One rank warns at its end, with the traces that NCCL prints behind it."""

    def lines_of(rank: Rank) -> Iterable[str]:
        yield from tells(rank)
        if rank.number == number:
            yield rank.warns(where, text)
            yield from (rank.says(trace) for trace in traces)

    return lines_of


def each(text: str, wrap: Callable[[int, str], str]) -> str:
    """Every line in a wrapper: of (its number, it)."""
    return "\n".join(wrap(number, line) for number, line in enumerate(text.split("\n")))


NO_PLUGIN = (
    "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: "
    "No such file or directory"
)
NO_IB = ("NET/IB : No device found.", "NET/Socket : Using [0]eth0:10.0.0.2<0>")
IB, IB_GDR, SOCKET = "IB", "NET/IB/0/GDRDMA", "NET/Socket/0"

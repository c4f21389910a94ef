"""Many runs as one fleet: bandwidth of each node's NICs and of each link, the slowest first. Pure.

Runs of one pattern, memory kind and plugin, each over some of the nodes. The figure of a link is
size / time of the largest size that all runs have; a NIC's is the median over the links that end at
it, so that one slow peer does not make it look slow. If a pattern does not tell its links apart,
what a rank received stands for all that it did.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.errors import UsageError
from tcpx_mpi.findings.stragglers import SLOW as SLOW_TITLE
from tcpx_mpi.findings.stragglers import links_by_size
from tcpx_mpi.records import Run, RunHeader
from tcpx_mpi.report.table import summarise_row
from tcpx_mpi.units import counted, format_size

#: Below this share of the fleet's median a node, NIC or link is called slow.
SLOW = 0.9


@dataclass(frozen=True)
class Nic:
    """A NIC of a node; its median bandwidth in GB/s, and over how many figures."""

    host: str
    name: str
    gb_per_s: float
    figures: int


@dataclass(frozen=True)
class FleetLink:
    """One direction between two ranks in one run, GB/s."""

    sender: str
    receiver: str
    gb_per_s: float
    path: str


@dataclass(frozen=True)
class Fleet:
    """The figures of a fleet; hosts and NICs in the order of their names."""

    pattern: str
    plugin: str
    memory: str
    size_bytes: int
    paths: Sequence[str]
    hosts: Sequence[str]
    nic_names: Sequence[str]
    nics: Mapping[tuple[str, str], Nic]
    #: GB/s by (sending host, receiving host), the median over links; empty if those are not known.
    between: Mapping[tuple[str, str], float]
    #: Every link, the slowest first; empty if they are not known.
    links: Sequence[FleetLink]
    #: (path, what is missing, or how many bytes are wrong)
    troubles: Sequence[tuple[str, str]]

    @property
    def median(self) -> float:
        """The median over NICs, GB/s."""
        return float(np.median([nic.gb_per_s for nic in self.nics.values()]))

    def host_gb_per_s(self, host: str) -> float:
        """The median over the NICs of a node, GB/s."""
        return float(np.median([nic.gb_per_s for nic in self.nics.values() if nic.host == host]))

    def slowest_gb_per_s(self, host: str) -> float:
        """The bandwidth of the slowest NIC of a node, GB/s."""
        return min(nic.gb_per_s for nic in self.nics.values() if nic.host == host)

    def share(self, gb_per_s: float) -> float:
        """The share of the fleet's median."""
        return gb_per_s / self.median

    def slow_nics(self) -> list[Nic]:
        """Below `SLOW` of the median, the slowest first."""
        slow = [nic for nic in self.nics.values() if self.share(nic.gb_per_s) < SLOW]
        return sorted(slow, key=lambda nic: nic.gb_per_s)


def fleet_of(runs: Sequence[Run]) -> Fleet:
    """The fleet of several runs. Raises UsageError, by file, if they do not belong together."""
    first = runs[0].header
    for run in runs[1:]:
        for what in ("pattern", "memory", "plugin_name"):
            if getattr(run.header, what) != getattr(first, what):
                raise UsageError(
                    f"{run.path} has {what.removesuffix('_name')} {getattr(run.header, what)}, "
                    f"{runs[0].path} has {getattr(first, what)}: a fleet is of one; "
                    "give the files of one kind of run"
                )
    launches = [(run.path, launch) for run in runs for launch in run.all_launches]
    size = _common_size([launch for _, launch in launches])
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
    between: dict[tuple[str, str], list[float]] = defaultdict(list)
    links: list[FleetLink] = []
    for path, run in launches:
        places = {info.rank: (info.host, info.nic) for info in run.header.ranks}
        told = _links(run, size)
        for (sender, receiver), gb_per_s in told.items():
            for rank in (sender, receiver):
                figures[places[rank]].append(gb_per_s)
            between[places[sender][0], places[receiver][0]].append(gb_per_s)
            links.append(
                FleetLink(_name(run.header, sender), _name(run.header, receiver), gb_per_s, path)
            )
        for rank, gb_per_s in _received(run, size).items() if not told else ():
            figures[places[rank]].append(gb_per_s)
    if not figures:
        raise UsageError(f"{runs[0].path}: no rank has a time; give files with measured rows")
    nics = {
        (host, name): Nic(host, name, float(np.median(rates)), len(rates))
        for (host, name), rates in sorted(figures.items())
    }
    return Fleet(
        pattern=first.pattern,
        plugin=first.plugin_name,
        memory=first.memory,
        size_bytes=size,
        paths=[run.path for run in runs],
        hosts=sorted({host for host, _ in nics}),
        nic_names=sorted({name for _, name in nics}),
        nics=nics,
        between={pair: float(np.median(rates)) for pair, rates in between.items()},
        links=sorted(links, key=lambda link: link.gb_per_s),
        troubles=[(path, text) for path, run in launches for text in _troubles(run)],
    )


def fleet_lines(fleet: Fleet) -> list[str]:
    """The fleet in some lines of text: what it is, slow NICs, slow links, troubles."""
    lines = [
        f"# {counted(len(fleet.hosts), 'node')}, {counted(len(fleet.nics), 'NIC')}, "
        f"{counted(len(fleet.paths), 'file')}: "
        f"{fleet.pattern}, {fleet.plugin}, {fleet.memory} memory",
        f"# {format_size(fleet.size_bytes)}: median {fleet.median:.3f} GB/s a NIC",
    ]
    slow = fleet.slow_nics()
    for nic in slow:
        lines.append(
            f"# {SLOW_TITLE:<20} : NIC {nic.name} of {nic.host}: {nic.gb_per_s:.3f} GB/s, "
            f"{fleet.share(nic.gb_per_s):.2f} of the median over NICs"
        )
    if not slow:
        lines.append(f"# {SLOW_TITLE:<20} : no NIC is below {SLOW:g} of the median")
    for link in fleet.links[:3]:
        lines.append(
            f"# Slowest links        : {link.sender} to {link.receiver}: {link.gb_per_s:.3f} GB/s, "
            f"{fleet.share(link.gb_per_s):.2f} ({link.path})"
        )
    lines += [f"# Trouble              : {path}: {text}" for path, text in fleet.troubles]
    return lines


def _common_size(runs: Sequence[Run]) -> int:
    sizes = set.intersection(
        *({row.size_bytes for row in run.rows if row.size_bytes > 0} for run in runs)
    )
    if not sizes:
        raise UsageError(
            "the files have no size in common: give runs with one size that all of them have"
        )
    return max(sizes)


def _links(run: Run, size: int) -> dict[tuple[int, int], float]:
    """GB/s by (sender, receiver), if the pattern tells its links apart."""
    found = links_by_size(run.header, [row for row in run.rows if not row.pairs])
    return {link: size / measured.time_ns for link, measured in found.get(size, {}).items()}


def _received(run: Run, size: int) -> dict[int, float]:
    """GB/s by rank that receives, the pattern's factor included: the median over cycles."""
    by_rank: dict[int, list[float]] = defaultdict(list)
    for row in run.rows:
        if row.size_bytes == size:
            for rank, ns in enumerate(summarise_row(run.header, row).time_ns_by_rank.tolist()):
                if math.isfinite(ns) and ns > 0:
                    by_rank[rank].append(size / ns * run.header.size_factor)
    return {rank: float(np.median(rates)) for rank, rates in by_rank.items()}


def _name(header: RunHeader, rank: int) -> str:
    info = next(info for info in header.ranks if info.rank == rank)
    return f"{info.host} {info.nic} (rank {rank})"


def _troubles(run: Run) -> list[str]:
    sides = [side for row in run.rows for side in row.of_plugin()]
    wrong = sum(int(side.wrong[side.wrong > 0].sum()) for side in sides)
    found = [counted(wrong, "wrong byte")] if wrong else []
    return [*found, *run.missing]

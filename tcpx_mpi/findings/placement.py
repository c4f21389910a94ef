"""Findings on placement: what was observed of ranks, compared with what was requested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tcpx_mpi.cpu_lists import cpu_list_text, parse_cpu_list
from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.records import ObservedPlacement, RankInfo, RunHeader, rank_name
from tcpx_mpi.stats import RowSummary, sides_of
from tcpx_mpi.units import counted, format_size

#: Counters of a NIC hold what a rank exchanged with other nodes, and headers; less than this part
#: of it says that the bytes took another network.
_LEAST_NIC_SHARE = 0.9
#: The kernel counts a node's CPU time in ticks of 10 ms: of less time no share can be told.
_LEAST_WANTED_NS = 1e9
#: Above this part of the CPU time that a node wanted, figures are those of its neighbours, too.
_MOST_STOLEN = 0.02


def placement(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """Each rank that was seen elsewhere than asked for, and what to do."""
    for info in header.ranks:
        for text, remedy in _elsewhere(info, _of_rank(info, summaries)):
            where = rank_name(header, info.rank)
            yield Finding(Severity.DOUBTFUL, "", text, remedy, where)


def stolen(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """Each node whose hypervisor gave its CPUs to others, by the name of its host."""
    first = {info.node: info for info in reversed(header.ranks)}
    for info in sorted(first.values(), key=lambda info: info.rank):
        rows = _of_rank(info, summaries)
        wanted = sum(max(row.node_wanted_ns, 0) for row in rows)
        given = sum(max(row.node_stolen_ns, 0) for row in rows)
        if wanted >= _LEAST_WANTED_NS and given >= _MOST_STOLEN * wanted:
            text = (
                f"{info.host}'s hypervisor gave {100 * given / wanted:.2g} % of the CPU time that "
                "was wanted there to others: these figures are of a slower machine"
            )
            remedy = "measure again when its neighbours are quiet"
            yield Finding(Severity.DOUBTFUL, "", text, remedy)


def usage(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """The use of NICs beside their rate, and how often progress threads left their CPU."""
    best = None
    for summary in summaries:
        if summary.load is not None:  # only a part of its time is known
            continue
        # A sender is done when its bytes are in the kernel, and they cross the NIC after that.
        elapsed_ns = float(summary.elapsed_ns_by_rank.max(initial=0))
        for info, proof in zip(header.ranks, summary.proof, strict=False):
            percent = line_rate_percent(info, proof, elapsed_ns) if proof.remote_bytes > 0 else None
            if percent is not None and (best is None or percent > best[0]):
                best = (percent, info, summary.size_bytes)
    if best is not None:
        percent, info, size = best
        text = (
            f"at most {percent:.3g} % of {info.nic_speed_mbps / 1e3:g} Gb/s, by "
            f"{rank_name(header, info.rank)} at {format_size(size)}"
        )
        yield Finding(Severity.NOTE, "Line rate", text)
    lost = [
        sum(max(row.driver_preemptions, 0) for row in _of_rank(info, summaries))
        for info in header.ranks
    ]
    if sum(lost):
        worst = max(range(len(lost)), key=lost.__getitem__)
        text = (
            f"progress threads {counted(sum(lost), 'time')}, to other work that was ready: most "
            f"often {rank_name(header, header.ranks[worst].rank)}, {lost[worst]}"
        )
        yield Finding(Severity.NOTE, "Left their CPU", text)


def line_rate_percent(info: RankInfo, proof: ObservedPlacement, elapsed_ns: float) -> float | None:
    """The busier direction of the rank's NIC, in % of the rate that it states; None if unknown."""
    if info.nic_speed_mbps <= 0 or elapsed_ns <= 0 or min(proof.nic_sent, proof.nic_received) < 0:
        return None
    bits_per_ns = 8 * max(proof.nic_sent, proof.nic_received) / elapsed_ns
    return 100 * bits_per_ns / (info.nic_speed_mbps / 1e3)


def _of_rank(info: RankInfo, summaries: Sequence[RowSummary]) -> list[ObservedPlacement]:
    return [s.proof[info.rank] for s in sides_of(summaries) if info.rank < len(s.proof)]


def _elsewhere(info: RankInfo, rows: Sequence[ObservedPlacement]) -> Iterator[tuple[str, str]]:
    """(what was seen, what to do)."""
    driver: set[int] = set().union(*(parse_cpu_list(row.driver_cpus) for row in rows))
    plugin: set[int] = set().union(*(parse_cpu_list(row.plugin_cpus) for row in rows))
    cpu = info.progress_cpu
    if cpu >= 0 and driver - {cpu}:
        yield (
            f"its progress thread was seen on CPUs {cpu_list_text(driver)}, not only on {cpu} as "
            "asked for",
            "look for a tool that moves threads, or --cpus",
        )
    if cpu >= 0 and plugin == {cpu} == {*parse_cpu_list(info.cpus)}:
        yield (
            f"it is bound to CPU {cpu} alone, where the plugin's threads ran beside the progress "
            "thread",
            "start with `mpirun --bind-to none`, or with more CPUs a task",
        )
    elif cpu >= 0 and cpu in plugin:
        yield (
            f"threads of the plugin ran on CPU {cpu}, that of the progress thread",
            "bind them elsewhere (the plugin's TX and RX bindings), or use --cpus",
        )
    remote = sum(row.remote_bytes for row in rows if row.remote_bytes > 0)
    seen = [row.nic_sent + row.nic_received for row in rows if row.nic_sent >= 0]
    if remote > 0 and seen and sum(seen) < _LEAST_NIC_SHARE * remote:
        yield (
            f"NIC {info.nic} carried {format_size(sum(seen))} of the {format_size(remote)} that "
            "the rank exchanged with other nodes: the bytes took another network",
            "check routes, and the interfaces that the plugin was given",
        )
    drops = sum(row.nic_drops for row in rows if row.nic_drops > 0)
    if remote > 0 and drops:
        yield (
            f"NIC {info.nic} dropped {drops} packets, or had errors",
            "check the link, its queues and the MTU on both sides",
        )

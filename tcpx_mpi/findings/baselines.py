"""Findings on ratios: what to know before believing one, to a baseline or under load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.patterns import PROGRAMS
from tcpx_mpi.plugin.sockets import moves_all_by_tcp
from tcpx_mpi.records import RunHeader
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.stats.ratios import other_network
from tcpx_mpi.units import counted, format_size

#: More CPU time than this beside a baseline, as a share of its time, and its figure is in doubt.
_IDLE_SHARE = 0.01
#: What a process needs to fall asleep, while others begin, is no such share of a shorter row.
_LEAST_TO_TELL_NS = 10e6


def while_loaded(summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """The meaning of `while loaded`, and the rows in which the load was over too early."""
    loads = [(summary, summary.load) for summary in summaries if summary.load is not None]
    if not loads:
        return
    text = (
        "half a round trip beside a mesh; ratio to half a round trip alone, above 1 slower; "
        f"median of {min(load.ratio.blocks for _, load in loads)} or more pairs of blocks, "
        "95 % interval"
    )
    yield Finding(Severity.NOTE, "While loaded", text)
    short = [format_size(summary.size_bytes) for summary, load in loads if load.covers < 1]
    if short:
        text = f"the mesh was over before the ping-pong at {', '.join(short)}"
        yield Finding(Severity.DOUBTFUL, "", text, "use a larger --load")


def wrong_of_baselines(summaries: Sequence[RowSummary]) -> dict[str, Finding[str]]:
    """Wrong bytes by baseline: a run with any is not sound."""
    wrong: dict[str, int] = {}
    for ratio in (ratio for summary in summaries for ratio in summary.ratios.values()):
        if ratio.wrong:
            wrong[ratio.baseline] = wrong.get(ratio.baseline, 0) + ratio.wrong
    return {
        name: Finding(
            Severity.DOUBTFUL, "", f"peer {name} delivered {counted(count, 'wrong byte')}"
        )
        for name, count in wrong.items()
    }


def baseline_findings(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """The findings on ratios: how they were taken, and what puts them in doubt."""
    found = [ratio for summary in summaries for ratio in summary.ratios.values()]
    if not found:
        return
    text = (
        "ratio of this plugin to the peer, above 1 faster; median of "
        f"{min(each.blocks for each in found)} or more pairs of blocks, 95 % interval"
    )
    yield Finding(Severity.GOOD, "Beside peers", text)
    elsewhere = {other_network(header, each) for each in header.baselines}
    wrong = wrong_of_baselines(summaries)
    unchecked = []
    for side in dict.fromkeys(side for summary in summaries for side in summary.ratios):
        baseline = side.name
        rows = [(s.size_bytes, s.ratios[side]) for s in summaries if side in s.ratios]
        known = [ratio.idle_share for _, ratio in rows if math.isfinite(ratio.idle_share)]
        busiest = max(known, default=0.0)
        if baseline in wrong:
            yield wrong[baseline]
        elif any(size > 0 and ratio.wrong is None for size, ratio in rows):
            unchecked.append(baseline)
        if busiest >= _IDLE_SHARE:
            yield _doubt(
                f"in the blocks of {baseline} the idle side and the rest of a rank had up to "
                f"{100 * busiest:.2g} % of a CPU: the peer was slowed"
            )
        for size, ratio in rows:
            if ratio.void and ratio.void not in elsewhere:  # that is said once, by `detours`
                text = f"no ratio at {format_size(size)}: {ratio.void}: something weakened it"
                yield _doubt(text)
        least = _least_share(header, baseline)
        if any(ratio.net_share < least for _, ratio in rows) and _is_fully_visible(
            header, baseline
        ):
            yield _doubt(f"peer {baseline} sent fewer bytes than its payload: a short cut")
    if unchecked:
        yield _doubt(f"not checked in every row, of the peers: {', '.join(unchecked)}")
    waiting = _waiting_share(summaries)
    if waiting >= _IDLE_SHARE:
        yield _doubt(
            "in the plugin's blocks processes of waiting peers had up to "
            f"{100 * waiting:.3g} % of a CPU: the plugin was slowed"
        )


def _doubt(text: str) -> Finding[str]:
    return Finding(Severity.DOUBTFUL, "", text)


def _least_share(header: RunHeader, baseline: str) -> float:
    """The least share that a peer without short cuts carries of what the plugin's schedule does.

    A collective of MPI or NCCL follows another schedule: if ours sends all in log2(n) steps, it may
    send that much less.
    """
    kinds = {each.kind for each in header.baselines if each.name == baseline}
    if not kinds <= {"mpi", "nccl"} or header.pattern not in PROGRAMS:
        return 1.0
    return 1 / max(math.ceil(math.log2(max(header.world, 2))), 1)


def _is_fully_visible(header: RunHeader, baseline: str) -> bool:
    """Whether all that a peer moves crosses sockets that can be seen: not every plugin's does."""
    infos = [each for each in header.baselines if each.name == baseline and each.kind == "plugin"]
    return all(moves_all_by_tcp(each.description.split(",")[0]) for each in infos)


def _waiting_share(summaries: Sequence[RowSummary]) -> float:
    """CPU time of waiting processes over the time of a rank's batches, the largest; 0 unknown."""
    shares = [
        seen.waiting_cpu_ns / float(elapsed_ns)
        for summary in summaries
        for seen, elapsed_ns in zip(summary.proof, summary.elapsed_ns_by_rank, strict=False)
        if elapsed_ns >= _LEAST_TO_TELL_NS and seen.waiting_cpu_ns > 0
    ]
    return max(shares, default=0.0)


def detours(header: RunHeader) -> Iterator[Finding[str]]:
    """Baselines that went between nodes by another interface than the plugin, so that there is no
    ratio."""
    nics = ",".join(sorted({info.nic for info in header.ranks}))
    for baseline in header.baselines:
        if text := other_network(header, baseline):
            remedy = f"set NCCL_SOCKET_IFNAME={nics}"
            if baseline.kind == "mpi":
                remedy = f"`mpirun --mca btl_tcp_if_include {nics}` of Open MPI"
            yield Finding(Severity.DOUBTFUL, "", f"peer {text}: no ratio", remedy)

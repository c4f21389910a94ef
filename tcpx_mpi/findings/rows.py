"""Findings on a run's rows: checks, speed, network bytes, starts, and how rows ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tcpx_mpi.findings.figures import percent
from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.findings.row_names import row_names
from tcpx_mpi.machine.placement import CONNECTIONS_A_NIC
from tcpx_mpi.plugin.sockets import moves_all_by_tcp
from tcpx_mpi.records import Row, Run, RunHeader, rank_name
from tcpx_mpi.stats import RowSummary, sides_of, slowest_rank
from tcpx_mpi.units import counted, figure, format_size

#: More of a row's time than this is the tool's own, and the row measures the tool.
_OWN_SHARE = 0.1
#: How a row ended that filled its share of --sample-space, and of what older files had.
_FULL = ("sample-space", "sample-memory")


def is_unchecked(summary: RowSummary) -> bool:
    """Whether a row moved bytes that nobody, or not everybody, checked; one in which nothing
    travels claims nothing."""
    return summary.size_bytes > 0 and summary.payload_received != 0 and not summary.checked


def wrong_bytes(summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """Each fault of each row, in the words of who found it."""
    for summary in summaries:
        for text in summary.faults:
            yield Finding(Severity.BAD, "Wrong bytes", text)


def traps(header: RunHeader) -> Iterator[Finding[str]]:
    """Faults that the plugin was asked for."""
    if on_purpose := header.facts.get("traps"):
        text = f"faults on purpose ({on_purpose}): these figures are not those of a sound plugin"
        yield Finding(Severity.DOUBTFUL, "", text)


def checks(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """Which bytes were checked, and what that took."""
    unchecked = [summary for summary in summaries if is_unchecked(summary)]
    if header.unpack == "none":  # no -c could check them, and no bandwidth is claimed of them
        text = "bytes are left scattered, so none is checked and there is no bandwidth"
        yield Finding(Severity.NOTE, "Ablation", f"{text} (--unpack none)")
    elif unchecked:
        sizes = ", ".join(dict.fromkeys(format_size(s.size_bytes) for s in unchecked))
        text = (
            f"bandwidth of unchecked bytes in {len(unchecked)} of {counted(len(summaries), 'row')} "
            f"({sizes}): it proves nothing"
        )
        yield Finding(Severity.DOUBTFUL, "", text, "use -c 1")
    if header.left_unflushed:
        text = f"receives are not flushed (--flush never), as NCCL would: {header.left_unflushed}"
        yield Finding(Severity.NOTE, "Ablation", text)
    sides = sides_of(summaries)
    received = sum(summary.payload_received for summary in sides)
    checked = sum(summary.payload_received_checked for summary in sides)
    # Of a loaded ping-pong only a part of the measured time is known.
    known = [] if any(s.load is not None for s in summaries) else sides
    measured = sum(summary.measured_ns for summary in known)
    overhead = sum(summary.overhead_ns for summary in known)
    if received > 0:
        cost = f"{overhead / measured:.2f} x the measured time" if measured > 0 else "unknown"
        text = f"{percent(checked, received)} of the timed bytes, at a cost of {cost}"
        yield Finding(Severity.GOOD, "Checked", text)


def slowest(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """The rank that is the slowest in most rows."""
    found = slowest_rank(summaries)
    if found is not None:
        text = (
            f"{rank_name(header, found.rank)} in {found.rows} of {counted(found.of_rows, 'row')}, "
            f"at most {figure(found.ratio, 3)} x the median rank "
            f"(at {row_names(summaries)[found.place]})"
        )
        yield Finding(Severity.NOTE, "Slowest rank", text)


def connections(header: RunHeader) -> Iterator[Finding[str]]:
    """A NIC that had more connections than it is good for."""
    most = int(header.facts.get("connections_a_nic", "0"))
    # Our own plugin gets a channel for each worker there, by default: it has no such limit.
    ours_on_gpus = "cuda" in header.memory and header.plugin_name.startswith("softtcpx")
    if most > CONNECTIONS_A_NIC and not ours_on_gpus:
        text = (
            f"{most} data connections on {header.facts['busiest_nic']}, more than the "
            f"{CONNECTIONS_A_NIC} that a NIC of an A3 machine is good for"
        )
        remedy = "use fewer --channels, NCCL_NSOCKS_PERTHREAD or ranks a NIC"
        yield Finding(Severity.DOUBTFUL, "", text, remedy)


def resolution(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """The rows of whose time this program's own loop and clock are a part that counts."""
    try:
        chunk_ns = float(header.facts["own_chunk_ns"])
        clock_ns = float(header.facts["own_clock_ns"])
    except KeyError:  # a file from before this was measured, or an imported one
        return
    # By rows: an iteration is `agg` copies, two of them in a round trip, and one stamp at its end.
    shares = {
        name: (s.chunks * chunk_ns + clock_ns) / (s.time_ns * s.agg * header.time_divisor)
        for name, s in zip(row_names(summaries), summaries, strict=True)
        if s.time_ns > 0
    }
    below = [f"{name} ({100 * part:.0f} %)" for name, part in shares.items() if part > _OWN_SHARE]
    if below:
        at = ", ".join(below)
        text = f"the tool's own loop and clock have more than a tenth of the time at {at}"
        yield Finding(Severity.NOTE, "Below resolution", text)


def network(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """Bytes by TCP_INFO against the payload, over the rows in which every rank could read it."""
    title = "Network bytes"
    if header.averages_only:
        text = "averages only, by the rules and the check of nccl-tests"
        yield Finding(Severity.NOTE, "Imported", text)
        return
    sides = sides_of(summaries)
    if not sum(summary.payload_sent for summary in sides):
        return
    known = [s for s in sides if s.net_sent is not None and s.net_received is not None]
    payload = sum(summary.payload_sent for summary in known)
    payload_received = sum(summary.payload_received for summary in known)
    if payload == 0:
        text = "n/a: TCP_INFO of the plugin's sockets was not read"
        yield Finding(Severity.NOTE, title, text)
        return
    sent = sum(summary.net_sent or 0 for summary in known)
    received = sum(summary.net_received or 0 for summary in known)
    text = (
        f"{percent(sent, payload)} of the payload sent, "
        f"{percent(received, payload_received)} received (TCP_INFO)"
    )
    counts = [summary.tcp_retransmits for summary in known]
    if None not in counts:
        text += f", {counted(sum(count or 0 for count in counts), 'retransmit')}"
    fewer = sent < payload or received < payload
    seen_whole = moves_all_by_tcp(header.plugin_name)
    if fewer and not seen_whole:
        # RDMA, shared memory, or sockets that were opened later: no fault that can be told.
        text += f"; {header.plugin_name} moves the rest where no socket of it is seen"
    yield Finding(Severity.NOTE, title, text)
    if fewer and seen_whole:
        text = "fewer bytes crossed the network than were sent: a short cut was taken"
        yield Finding(Severity.DOUBTFUL, "", text)


def late_starts(header: RunHeader, rows: Sequence[Row]) -> Iterator[Finding[str]]:
    """Starts at an agreed instant that a rank missed, and which missed most."""
    by_rank: Counter[int] = Counter()
    sides = [side for row in rows for side in row.of_plugin()]
    for row in sides:
        by_rank.update({rank: int(late.sum()) for rank, late in enumerate(row.late)})
    if total := by_rank.total():
        starts = sum(row.late.size for row in sides)
        ((most, times),) = by_rank.most_common(1)
        text = f"{total} of {starts} at an agreed instant: a rank got its CPU later"
        text += f"; {rank_name(header, most)} missed {times}"
        yield Finding(Severity.NOTE, "Late starts", text)


def ended_early(run: Run) -> Iterator[Finding[str]]:
    """The fault that a run ended with."""
    if run.fault is not None:
        text = f"{run.fault.kind} (exit code {run.fault.exit_code})"
        yield Finding(Severity.BAD, "Ended early", text)


def endings(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """Rows that ended before they had what was asked for."""
    asked = {name: value for name, value, _ in header.settings}
    named = list(zip(row_names(summaries), summaries, strict=True))
    wide = [
        f"{name} (+-{100 * summary.half_width:.2g} % by blocks)"
        for name, summary in named
        if summary.ended_by == "max-time"
    ]
    full = [name for name, summary in named if summary.ended_by in _FULL]
    if wide:
        rows = f"{len(wide)} of {counted(len(summaries), 'row')}"
        text = f"not within --ci {asked.get('ci', '')} by --max-time in {rows}: {', '.join(wide)}"
        yield Finding(Severity.NOTE, "Not narrow", text)
    if full:
        text = f"full before the rows had what was asked for: {', '.join(full)}"
        yield Finding(Severity.NOTE, "Sample space", text, "use more --sample-space")

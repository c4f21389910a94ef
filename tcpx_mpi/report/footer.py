"""The lines below the table: nccl-tests' two figures, then what a reader must know of the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tcpx_mpi.machine.placement import CONNECTIONS_A_NIC
from tcpx_mpi.patterns import PROGRAMS
from tcpx_mpi.plugin.sockets import moves_all_by_tcp
from tcpx_mpi.records import IMPORTED_BOUNDS, Fault, RunHeader
from tcpx_mpi.report.gpus import gpu_lines
from tcpx_mpi.report.lines import titled as _line
from tcpx_mpi.report.load import load_lines
from tcpx_mpi.report.percentiles import percentile_notes
from tcpx_mpi.report.placement import placement_lines, stolen_lines, usage_lines
from tcpx_mpi.report.preamble import ABSENT, rank_name
from tcpx_mpi.report.steadiness import steadiness_lines
from tcpx_mpi.stats import RowSummary, mean_bus_bandwidth, slowest_rank
from tcpx_mpi.units import counted, format_size

#: More CPU time than this beside a baseline, as a share of its time, and its figure is in doubt.
_IDLE_SHARE = 0.01
#: More of a row's time than this is the tool's own, and the row measures the tool.
_OWN_SHARE = 0.1
#: What a process needs to fall asleep, while others begin, is no such share of a shorter row.
_LEAST_TO_TELL_NS = 10e6
#: NCCL_TESTS_MIN_BW passes at this part of its value, as in nccl-tests.
_MIN_BW_TOLERANCE = 0.9


#: How a row ended that filled its share of --sample-space, and of what older files had.
_FULL = ("sample-space", "sample-memory")


def footer_lines(
    header: RunHeader,
    summaries: Sequence[RowSummary],
    *,
    fault: Fault | None = None,
    missing: Sequence[str] = (),
    files: Sequence[str] = (),
    slow: Sequence[str] = (),
    gate: Sequence[str] = (),
) -> list[str]:
    """The comment lines that conclude a table.

    `files` are the names of results as written; `slow` and `gate` have lines of their own.
    """
    bandwidth = mean_bus_bandwidth(summaries)
    passed = passes_minimum_bandwidth(header, bandwidth)
    minimum = "" if passed is None else "OK" if passed else "FAILED"
    return [
        f"# Out of bounds values : {_bounds_text(header, summaries)}",
        f"# Avg bus bandwidth    : {_figure(bandwidth)} {minimum}",
        "#",
        *finding_lines(header, summaries, fault=fault, missing=missing, slow=slow),
        *(_line("Written", name) for name in files),
        *gate,
        "#",
        f"# Collective test concluded: {header.pattern}",
        "#",
    ]


def finding_lines(
    header: RunHeader,
    summaries: Sequence[RowSummary],
    *,
    fault: Fault | None = None,
    missing: Sequence[str] = (),
    slow: Sequence[str] = (),
) -> list[str]:
    """What a reader must know of the rows, a line each."""
    lines = [_line("Wrong bytes", text) for summary in summaries for text in summary.faults]
    if traps := header.facts.get("traps"):
        text = f"faults on purpose ({traps}): these figures are not those of a sound plugin"
        lines.append(_line("WARNING", text))
    lines += _check_lines(header, summaries)
    lines += _slowest_lines(header, summaries)
    lines += slow
    lines += _connection_lines(header)
    lines += [_line(title, text) for title, text in percentile_notes(header, summaries)]
    lines += _resolution_lines(header, summaries)
    if header.averages_only:
        lines.append(_line("Imported", "averages only, by the rules and the check of nccl-tests"))
    else:
        lines += _network_lines(header, summaries)
    lines += _late_lines(summaries)
    lines += _ending_lines(header, summaries)
    lines += [_line(title, text) for title, text in steadiness_lines(summaries)]
    lines += usage_lines(header, summaries)
    lines += placement_lines(header, summaries)
    lines += stolen_lines(header, summaries)
    lines += gpu_lines(header, summaries)
    lines += load_lines(summaries)
    lines += _baseline_lines(header, summaries)
    lines += _detour_lines(header)
    if fault is not None:
        lines.append(_line("Ended early", f"{fault.kind} (exit code {fault.exit_code})"))
    lines += [_line("Missing", text) for text in missing]
    return lines


def out_of_bounds(
    header: RunHeader, summaries: Sequence[RowSummary]
) -> tuple[int | None, bool | None]:
    """How many values are wrong, and whether that is well; None for what an imported log that does
    not count them in its rows does not say."""
    wrong = sum(summary.wrong_found for summary in summaries)
    sides = [side for s in summaries for side in (s, s.in_place) if side is not None]
    if not header.averages_only or wrong or any(side.checked for side in sides):
        return wrong, wrong == 0
    count, _, verdict = header.facts.get(IMPORTED_BOUNDS, "").partition(" ")
    return (int(count), verdict == "OK") if verdict else (None, None)


def _bounds_text(header: RunHeader, summaries: Sequence[RowSummary]) -> str:
    count, well = out_of_bounds(header, summaries)
    return ABSENT if count is None else f"{count} {'OK' if well else 'FAILED'}"


def minimum_bandwidth(header: RunHeader) -> float | None:
    """NCCL_TESTS_MIN_BW of the run in GB/s; NaN for text that is no number, None if unset."""
    text = header.environment.get("NCCL_TESTS_MIN_BW")
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return math.nan


def below_minimum_text(header: RunHeader, bandwidth: float) -> str:
    """Why a run does not pass its NCCL_TESTS_MIN_BW."""
    return (
        f"the average bus bandwidth is {bandwidth:.4g} GB/s: NCCL_TESTS_MIN_BW asks for "
        f"{header.environment.get('NCCL_TESTS_MIN_BW')}, of which {_MIN_BW_TOLERANCE:g} must be "
        "reached"
    )


def passes_minimum_bandwidth(header: RunHeader, bandwidth: float) -> bool | None:
    """Whether the run reaches its NCCL_TESTS_MIN_BW, or None if it has none.

    Fails closed: an unknown bandwidth, or an unreadable limit, does not pass.
    """
    limit = minimum_bandwidth(header)
    if limit is None:
        return None
    return bandwidth >= _MIN_BW_TOLERANCE * limit


def _check_lines(header: RunHeader, summaries: Sequence[RowSummary]) -> list[str]:
    lines = []
    unchecked = [s for s in summaries if s.size_bytes > 0 and not s.checked]
    if header.unpack == "none":  # no -c could check them, and no bandwidth is claimed of them
        text = "bytes are left scattered, so none is checked and no bandwidth is told"
        lines.append(_line("Ablation", f"{text} (--unpack none)"))
    elif unchecked:
        sizes = ", ".join(dict.fromkeys(format_size(s.size_bytes) for s in unchecked))
        text = (
            f"bandwidth of unchecked bytes in {len(unchecked)} of {len(summaries)} rows ({sizes})"
        )
        lines.append(_line("WARNING", f"{text}: it proves nothing; use -c 1"))
    received = sum(summary.payload_received for summary in summaries)
    checked = sum(summary.payload_received_checked for summary in summaries)
    # Of a loaded ping-pong only a part of the measured time is known.
    known = [] if any(s.load is not None for s in summaries) else summaries
    measured = sum(summary.measured_ns for summary in known)
    overhead = sum(summary.overhead_ns for summary in known)
    if received > 0:
        cost = f"{overhead / measured:.2f} x the measured time" if measured > 0 else "unknown"
        lines.append(
            _line(
                "Checked", f"{_percent(checked, received)} of the timed bytes, at a cost of {cost}"
            )
        )
    return lines


def _slowest_lines(header: RunHeader, summaries: Sequence[RowSummary]) -> list[str]:
    slowest = slowest_rank(summaries)
    if slowest is None:
        return []
    text = (
        f"{rank_name(header, slowest.rank)} in {slowest.rows} of {slowest.of_rows} rows, at most "
        f"{_figure(slowest.ratio, 3)} x the median rank (at {format_size(slowest.size_bytes)})"
    )
    return [_line("Slowest rank", text)]


def _connection_lines(header: RunHeader) -> list[str]:
    """A warning where a NIC had more connections than it is good for."""
    most = int(header.facts.get("connections_a_nic", "0"))
    # Our own plugin gets a channel for each worker there, by default: it has no such limit.
    ours_on_gpus = header.memory == "cuda" and header.plugin_name.startswith("softtcpx")
    if most <= CONNECTIONS_A_NIC or ours_on_gpus:
        return []
    return [
        _line(
            "WARNING",
            f"{most} data connections on {header.facts['busiest_nic']}, more than the "
            f"{CONNECTIONS_A_NIC} that a NIC of an A3 machine is good for: use fewer --channels, "
            "NCCL_NSOCKS_PERTHREAD or ranks a NIC",
        )
    ]


def _resolution_lines(header: RunHeader, summaries: Sequence[RowSummary]) -> list[str]:
    """The rows of whose time this program's own loop and clock are a part that counts."""
    try:
        chunk_ns = float(header.facts["own_chunk_ns"])
        clock_ns = float(header.facts["own_clock_ns"])
    except KeyError:  # a file from before this was measured, or an imported one
        return []
    # By rows: an iteration is `agg` copies, two of them in a round trip, and one stamp at its end.
    shares = {
        s.size_bytes: (s.chunks * chunk_ns + clock_ns) / (s.time_ns * s.agg * header.time_divisor)
        for s in summaries
        if s.time_ns > 0
    }
    below = {size: share for size, share in shares.items() if share > _OWN_SHARE}
    if not below:
        return []
    sizes = ", ".join(f"{format_size(size)} ({100 * share:.0f} %)" for size, share in below.items())
    text = f"the tool's own loop and clock have more than a tenth of the time at {sizes}"
    return [_line("Below resolution", text)]


def _network_lines(header: RunHeader, summaries: Sequence[RowSummary]) -> list[str]:
    """Bytes by TCP_INFO against the payload, over the rows in which every rank could read it."""
    known = [s for s in summaries if s.net_sent is not None and s.net_received is not None]
    payload = sum(summary.payload_sent for summary in known)
    payload_received = sum(summary.payload_received for summary in known)
    if payload == 0:
        return [_line("Network bytes", "n/a: TCP_INFO of the plugin's sockets was not read")]
    sent = sum(summary.net_sent or 0 for summary in known)
    received = sum(summary.net_received or 0 for summary in known)
    text = (
        f"{_percent(sent, payload)} of the payload sent, "
        f"{_percent(received, payload_received)} received (TCP_INFO)"
    )
    counts = [summary.tcp_retransmits for summary in known]
    if None not in counts:
        text += f", {counted(sum(count or 0 for count in counts), 'retransmit')}"
    fewer = sent < payload or received < payload
    if fewer and not moves_all_by_tcp(header.plugin_name):
        # RDMA, shared memory, or sockets that were opened later: no fault that can be told.
        text += f"; {header.plugin_name} moves the rest where no socket of it is seen"
    lines = [_line("Network bytes", text)]
    if fewer and moves_all_by_tcp(header.plugin_name):
        lines.append(
            _line(
                "WARNING", "fewer bytes crossed the network than were sent: a short cut was taken"
            )
        )
    return lines


def _late_lines(summaries: Sequence[RowSummary]) -> list[str]:
    late = sum(summary.late_starts for summary in summaries)
    starts = sum(summary.starts for summary in summaries)
    if late <= 0:
        return []
    return [
        _line("Late starts", f"{late} of {starts} at an agreed instant: a rank got its CPU later")
    ]


def _ending_lines(header: RunHeader, summaries: Sequence[RowSummary]) -> list[str]:
    """Rows that ended before they had what was asked for."""
    asked = {name: value for name, value, _ in header.settings}
    wide = [
        f"{format_size(summary.size_bytes)} (+-{100 * summary.half_width:.2g} %)"
        for summary in summaries
        if summary.ended_by == "max-time"
    ]
    full = [format_size(s.size_bytes) for s in summaries if s.ended_by in _FULL]
    lines = []
    if wide:
        text = f"{len(wide)} of {len(summaries)} rows were not within --ci {asked.get('ci', '')}"
        lines.append(_line("Not narrow", f"{text} by --max-time: {', '.join(wide)}"))
    if full:
        text = "full before the rows had what was asked for"
        lines.append(_line("Sample space", f"{text}: {', '.join(full)}; use more --sample-space"))
    return lines


def baseline_faults(summaries: Sequence[RowSummary]) -> list[str]:
    """What baselines delivered wrong, a sentence each: a run of such is not sound."""
    wrong: dict[str, int] = {}
    for ratio in (ratio for summary in summaries for ratio in summary.against.values()):
        if ratio.wrong:
            wrong[ratio.baseline] = wrong.get(ratio.baseline, 0) + ratio.wrong
    return [_wrong_of(baseline, count) for baseline, count in wrong.items()]


def _wrong_of(baseline: str, count: int) -> str:
    return f"peer {baseline} delivered {counted(count, 'wrong byte')}"


def _baseline_lines(header: RunHeader, summaries: Sequence[RowSummary]) -> list[str]:
    """What a reader must know before believing a ratio."""
    found = [ratio for summary in summaries for ratio in summary.against.values()]
    if not found:
        return []
    lines = [
        _line(
            "Beside peers",
            "ratio of this plugin to the peer, above 1 faster; median of "
            f"{min(each.blocks for each in found)} or more pairs of blocks, 95 % interval",
        )
    ]
    unchecked = []
    for baseline in dict.fromkeys(ratio.baseline for ratio in found):
        rows = [(s.size_bytes, s.against[baseline]) for s in summaries if baseline in s.against]
        mine = [ratio for _, ratio in rows]
        wrong = sum(ratio.wrong or 0 for ratio in mine)
        known = [ratio.idle_share for ratio in mine if math.isfinite(ratio.idle_share)]
        busiest = max(known, default=0.0)
        if wrong:
            lines.append(_line("WARNING", _wrong_of(baseline, wrong)))
        if any(size > 0 and ratio.wrong is None for size, ratio in rows) and not wrong:
            unchecked.append(baseline)
        if busiest >= _IDLE_SHARE:
            lines.append(
                _line(
                    "WARNING",
                    f"in the blocks of {baseline} the idle side and the rest of a rank had up to "
                    f"{100 * busiest:.2g} % of a CPU: the peer was slowed",
                )
            )
        for size, ratio in rows:
            if ratio.void:
                text = f"no ratio at {format_size(size)}: {ratio.void}: something weakened it"
                lines.append(_line("WARNING", text))
        least = _least_share(header, baseline)
        if any(ratio.net_share < least for ratio in mine) and _is_seen_whole(header, baseline):
            lines.append(
                _line("WARNING", f"peer {baseline} sent fewer bytes than its payload: a short cut")
            )
    if unchecked:
        names = ", ".join(unchecked)
        lines.append(_line("WARNING", f"not checked in every row, of the peers: {names}"))
    waiting = _waiting_share(summaries)
    if waiting >= _IDLE_SHARE:
        lines.append(
            _line(
                "WARNING",
                "in the plugin's blocks processes of waiting peers had up to "
                f"{100 * waiting:.3g} % of a CPU: the plugin was slowed",
            )
        )
    return lines


def _least_share(header: RunHeader, baseline: str) -> float:
    """What a peer that takes no short cut carries at least, over what the plugin's schedule does.

    A collective of MPI or NCCL is no schedule of ours: where ours sends all in log2(n) steps it may
    send so much less.
    """
    kinds = {each.kind for each in header.baselines if each.name == baseline}
    if not kinds <= {"mpi", "nccl"} or header.pattern not in PROGRAMS:
        return 1.0
    return 1 / max(math.ceil(math.log2(max(header.world, 2))), 1)


def _is_seen_whole(header: RunHeader, baseline: str) -> bool:
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


def _detour_lines(header: RunHeader) -> list[str]:
    """Baselines that went between nodes by another interface than the plugin."""
    ours = {info.nic for info in header.ranks}
    if len({info.node for info in header.ranks}) < 2:
        return []  # the kernel's loopback, whatever address is asked for
    return [
        _line(
            "WARNING",
            f"peer {baseline.name} went over {baseline.interfaces}, the plugin over "
            f"{','.join(sorted(ours))}: set btl_tcp_if_include of Open MPI, for mpirun",
        )
        for baseline in header.baselines
        if baseline.kind == "mpi"
        and baseline.interfaces
        and set(baseline.interfaces.split(",")) - ours
    ]


def _figure(value: float, digits: int = 6) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else "n/a"


def _percent(part: int, whole: int) -> str:
    """A percentage that says 100 only of the whole."""
    if whole <= 0:
        return "n/a"
    percent = 100 * part / whole
    if part < whole:
        percent = min(percent, 99.99)
    return f"{percent:.4g} %"

"""The ceilings of `tcpx-mpi selftest`: what a machine does without a plugin, framed as a run.

Memory copies and the cost of the clock on rank 0; plain TCP between the ranks of each pair, over as
many streams as help, with the slots, the agreed start and the check of every byte that a run has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi import _native
from tcpx_mpi.baselines import Connection, raw
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.launch.watch import ROWS
from tcpx_mpi.machine.congestion import DEFAULT, kernels_own, refusal_of
from tcpx_mpi.machine.placement import Node, Placement, Request
from tcpx_mpi.machine.topology import Host, this_machine
from tcpx_mpi.records import BaselineInfo, Row, SideKey
from tcpx_mpi.run.common_clock import CommonClock
from tcpx_mpi.run.measure import Measurement
from tcpx_mpi.run.place_ranks import place_at
from tcpx_mpi.run.plan import RowPlanner, buffer_sizes
from tcpx_mpi.run.story import RunState
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.stats.ratios import block_times_ns
from tcpx_mpi.transport.interface import RankContext
from tcpx_mpi.transport.memory import slot_buffers
from tcpx_mpi.units import format_size
from tcpx_mpi.workload import workload_of

_COPY_SIZES = (1 << 20, 64 << 20)
_COPY_ROUNDS = 15


class Ceiling:
    """The ceilings of the machines of one world."""

    def __init__(
        self, state: RunState, connection: Connection, more: Sequence[Settings],
        say: Callable[[Sequence[str]], None],
    ) -> None:  # fmt: skip
        self.state, self.world = state, state.world
        self.connection = connection
        self.more = more  # to be measured after what `run` is given
        self._tell = say

    def agree_link(self) -> None:
        """Collective: every rank can use the interface and the congestion control. Raises
        UsageError, before anything is measured."""
        with self.world.agree("interface"):
            require_interface(self.connection.interface)
            require_congestion(self.connection.congestion_control)

    def measure(self, settings: Settings, hosts: Sequence[Host]) -> int:
        """Collective: the ceilings, once all ranks know each other; returns the exit code."""
        world = self.world
        host = hosts[world.rank]
        self._say(header_lines(hosts, self.connection))
        if world.rank == 0:
            with world.at_work():  # a cache of 480 MiB is got past by copies of GiBs
                self._say([*copy_lines(host.llc_bytes), clock_line()])
        world.barrier("memory copies", while_alive=True)  # others would disturb them
        node = Node(host.name, this_machine(), [(self.connection.interface, "")])
        placement = place_at(world.rank, hosts, node, Request())
        wrong = 0
        for asked in (settings, *self.more):
            wrong += self._measure_streams(asked, placement, hosts)
        codes = world.allgather(wrong, "verdict")
        return int(ExitCode.WRONG_BYTES if any(codes) else ExitCode.OK)

    def _measure_streams(
        self, settings: Settings, placement: Placement, hosts: Sequence[Host]
    ) -> int:
        """Collective: raw TCP in one pattern; wrong bytes of all ranks, on rank 0."""
        world = self.world
        host, workload = hosts[world.rank], workload_of(settings, world.size)
        rows = RowPlanner(workload, hosts).rows()
        with world.agree("memory"):
            sizes = buffer_sizes(workload, world.rank, rows)
            buffers = slot_buffers(sizes, host, placement, host.memory_available_bytes)
        nodes = [each.node for each in hosts]
        schedule = workload.connecting_pattern.schedule(world.rank, world.size)
        context = RankContext(schedule, buffers, placement, self.connection.interface, nodes)
        infos = raw.streams_of(self.connection, two_way=True)
        transports = raw.connect(
            infos, world, settings.connect_timeout_s, context, self.connection, not settings.check
        )
        self.state.measurement = measurement = Measurement(
            world, workload, context, transports, None,
            CommonClock(world, [each.clock for each in hosts]),
            end_by_ns=0,
        )  # fmt: skip
        world.enter(ROWS, settings.stall_timeout_s)
        wrong = 0
        for row in rows:
            part, facts = measurement.measure(row.facts, row.plan)
            whole = measurement.join(facts, part)
            if whole is not None:
                found = by_streams(whole, infos)
                self._say(raw_lines(workload.connecting_pattern, found))
                wrong += sum(int(each.wrong[each.wrong > 0].sum()) for each in found.values())
        world.barrier("close")
        return wrong

    def _say(self, lines: Sequence[str]) -> None:
        if self.world.rank == 0:
            self._tell(lines)


def header_lines(hosts: Sequence[Host], connection: Connection) -> list[str]:
    """The lines on what was measured, and where."""
    names = ", ".join(dict.fromkeys(host.name for host in hosts))
    buffer = format_size(raw.SEND_BUFFER_BYTES)
    congestion = connection.congestion_control
    if not congestion:
        congestion = f"the kernel's own congestion control ({kernels_own() or 'unknown'})"
    return [
        f"# Ceilings: {len(hosts)} ranks on {names}, {hosts[0].cpu_model}, no plugin",
        f"# TCP over {connection.interface}, {congestion}, send buffer {buffer}",
        "# Median of blocks (slowest - fastest); every byte checked but of `same buffer`",
        *([f"# WARNING: {connection.congestion_note}"] if connection.congestion_note else []),
        f"# {'what':<22} {'size':>8} {'streams':>8} {'':>9}",
    ]


def copy_lines(llc_bytes: int) -> list[str]:
    """Memory copies, each within the cache where it fits, and out of it."""
    lines = []
    beyond = max(4 * llc_bytes, 256 << 20)
    for size in _COPY_SIZES:
        for name, footprint in (("same buffers", size), ("out of cache", beyond)):
            rounds = max(_COPY_ROUNDS, 2 * footprint // size)
            times = _native.time_copies(size, footprint, rounds)[rounds // 2 :]
            rates = size / np.quantile(times, (0.5, 0.95, 0.05))
            lines.append(_line(f"memcpy, {name}", format_size(size), "", _rates(rates)))
    return lines


def clock_line() -> str:
    """The line on the cost of a time stamp, and its resolution."""
    cost, resolution = _native.clock_cost()
    return _line("clock", "", "", f"{cost:9.1f} ns a call, steps of {resolution} ns")


def by_streams(whole: Row, infos: Sequence[BaselineInfo]) -> Mapping[int, Row]:
    """A row and those of the baselines beside it by number of streams; the row is the first's."""
    own, *others = infos
    sides = {info.streams: whole.sides[SideKey(info.name)] for info in others}
    return {own.streams: whole, **sides}


def raw_lines(pattern: Pattern, rows: Mapping[int, Row]) -> list[str]:
    """Plain TCP, a line for each number of streams; the time of half a round trip, or a rate."""
    lines = []
    for streams, row in rows.items():
        times_ns = block_times_ns(row, 1, pattern.time_divisor)
        spread = np.quantile(times_ns, (0.5, 1.0, 0.0))
        size = format_size(row.size_bytes)
        if pattern.time_divisor > 1:
            text = "{:9.2f} us ({:.2f} - {:.2f})".format(*(spread / 1e3))
            lines.append(_line("raw TCP round trip / 2", size, str(streams), text))
        else:
            what = "raw TCP stream" if row.checked.any() else "raw TCP, same buffer"
            lines.append(_line(what, size, str(streams), _rates(row.size_bytes / spread)))
    return lines


def _rates(spread: NDArray[np.float64]) -> str:
    return "{:9.2f} GB/s ({:.2f} - {:.2f})".format(*spread)


def _line(what: str, size: str, streams: str, text: str) -> str:
    return f"  {what:<22} {size:>8} {streams:>8} {text}"


def require_interface(name: str) -> None:
    """Raises UsageError, naming those that are here, for a network interface that is not."""
    import psutil

    known = psutil.net_if_addrs()
    if name not in known:
        raise UsageError(
            f"--interface ({name}): no such network interface; use one of {', '.join(known)}"
        )


def require_congestion(name: str) -> None:
    """Raises UsageError for a TCP congestion control that this process would not get."""
    if refusal := refusal_of(name):
        raise UsageError(
            f"--congestion ({name}): {refusal.cause}: {refusal.remedy}, or {DEFAULT} for the "
            f"kernel's own ({kernels_own() or 'unknown'})"
        )


def default_interface() -> str:
    """The first network interface that is up and has an IPv4 address, the loopback one last."""
    import socket

    import psutil

    addresses, states = psutil.net_if_addrs(), psutil.net_if_stats()
    usable = [
        name
        for name, found in addresses.items()
        if states[name].isup and any(each.family == socket.AF_INET for each in found)
    ]
    usable.sort(key=lambda name: name == "lo")
    return usable[0] if usable else "lo"

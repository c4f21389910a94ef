"""The story of a smoke test: connect all ranks, one checked message each way between every two.

The engine, its comms, buffers and checks are those of a run; a distance between ranks is a row.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import ExitCode, TcpxError
from tcpx_mpi.folded import show
from tcpx_mpi.launch.watch import ROWS
from tcpx_mpi.machine.topology import read_host
from tcpx_mpi.run.agreement import agree_hosts, agree_workload, free_bytes
from tcpx_mpi.run.common_clock import CommonClock
from tcpx_mpi.run.connect import connect, load_same_plugin
from tcpx_mpi.run.measure import Measurement
from tcpx_mpi.run.place_ranks import choose_gpus, place_rank
from tcpx_mpi.run.plan import PlannedRow, RowPlanner, buffer_sizes
from tcpx_mpi.run.story import RunState
from tcpx_mpi.transport.engine import RankEngine
from tcpx_mpi.transport.load_plugin import LoadedPlugin
from tcpx_mpi.units import counted, fit_number, format_size


@dataclass(frozen=True)
class Arrival:
    """One message at its receiver: `wrong` bytes, -1 for a message without any."""

    sender: int
    receiver: int
    wrong: int
    fault: str
    receive_ns: int
    #: What lay in the descriptor queue, for each chunk; none if the plugin delivers in place.
    sights: Sequence[_native.UnpackSight]


class Smoke:
    """One smoke test on one rank."""

    def __init__(self, state: RunState) -> None:
        self.state, self.world = state, state.world

    def run(self, parsed: Settings | TcpxError) -> int:
        """Collective: the story, top to bottom; returns the exit code."""
        world = self.world
        workload = agree_workload(world, parsed)
        settings = workload.settings
        hosts = agree_hosts(world, read_host())
        host = hosts[world.rank]
        chosen = choose_gpus(world, settings, hosts)
        plugin = load_same_plugin(world, settings, chosen)
        placement, settings = place_rank(world, settings, plugin, hosts, chosen)
        with world.agree("program"):
            workload = workload.placed(settings)
        engine = connect(self.state, workload, plugin, placement, settings.verbose)
        planner = RowPlanner(workload, hosts)
        rows = planner.rows()
        sizes = buffer_sizes(workload, world.rank, rows)
        free = free_bytes(world, engine, host)
        with world.agree("memory"):
            engine.allocate(sizes, host, free)
        # One message each way is all: none more for a GPU's own times.
        context = dataclasses.replace(engine.context([each.node for each in hosts]), gpu=None)
        self.state.measurement = measurement = Measurement(
            world, workload, context, [engine], None,
            CommonClock(world, [each.clock for each in hosts]),
            end_by_ns=0,
        )  # fmt: skip
        world.enter(ROWS, settings.stall_timeout_s)
        self._say(header_lines(settings, world.size, plugin))
        arrivals: list[Arrival] = []
        for row in planner.cycles(rows):
            arrivals += self._round(measurement, engine, row)
        # A sender that closes early can give its receiver an error for data that is whole.
        world.barrier("close")
        with world.agree("close"):
            engine.close()
        self._say(footer_lines(arrivals))
        return self._verdict(arrivals)

    def _round(
        self, measurement: Measurement, engine: RankEngine, row: PlannedRow
    ) -> list[Arrival]:
        """Collective: the messages of one distance; all of them on rank 0, none elsewhere."""
        world, distance = self.world, row.facts.cycle + 1
        part, _ = measurement.measure(row.facts, row.plan)
        mine = Arrival(
            sender=(world.rank - distance) % world.size,
            receiver=world.rank,
            wrong=part.wrong,
            fault=part.fault,
            receive_ns=int(part.samples["receive"][0]),
            sights=_native.unpack_sights(engine.native),
        )
        arrivals = world.gather(mine, "arrivals", measurement.patience_s) or []
        for arrival in sorted(arrivals, key=lambda each: each.sender):
            self._say(arrival_lines(arrival))
        return arrivals

    def _verdict(self, arrivals: Sequence[Arrival]) -> int:
        """Collective: the exit code, equal on all ranks; rank 0 says what is wrong."""
        faults = [arrival.fault for arrival in arrivals if arrival.wrong > 0]
        if faults:
            print(f"tcpx-mpi: error: {faults[0]}", file=sys.stderr, flush=True)
        code = ExitCode.WRONG_BYTES if faults else ExitCode.OK
        return int(self.world.allgather(int(code), "verdict")[0])

    def _say(self, lines: Sequence[str]) -> None:
        if self.world.rank == 0:
            show(lines)


def header_lines(settings: Settings, ranks: int, plugin: LoadedPlugin) -> list[str]:
    """The messages and their plugin, and the title of the table."""
    lines = [
        f"# smoke: {format_size(settings.sizes[0])} each way between every two of {ranks} ranks, "
        f"{counted(settings.channels, 'channel')}, {settings.memory} memory",
        f"# plugin: {plugin.file.name} (ABI v{plugin.file.abi}), {plugin.file.path}",
    ]
    lines += [f"# plugin warning: {text}" for text in plugin.to_tell.warned]
    if settings.verbose and settings.unpack_mode() == "in place":
        lines.append("# no descriptor queue: the plugin delivers into host memory")
    return [*lines, f"#{'from':>7}{'to':>8}    {'result':<16}{'time(us)':>10}"]


def arrival_lines(arrival: Arrival) -> list[str]:
    """The row of one message, and below it what was seen of its descriptors."""
    result = "right" if arrival.wrong == 0 else f"{arrival.wrong} bytes WRONG"
    if arrival.wrong < 0:
        result = "came, empty"
    time_us = fit_number(arrival.receive_ns / 1e3, 10)
    lines = [f"{arrival.sender:>8}{arrival.receiver:>8}    {result:<16}{time_us:>10}"]
    for sight in arrival.sights:
        parts = [f"{length} B at {src} -> {dst}" for src, length, dst in sight["fragments"]]
        if sight["count"] > len(parts):
            parts.append(f"and {sight['count'] - len(parts)} more")
        where = f"channel {sight['channel']}, slot {sight['slot']}"
        lines.append(
            f"#   {where}: {counted(sight['count'], 'fragment')}: {', '.join(parts) or 'none'}"
        )
        if sight["probe"]:
            lines.append(f"#   bounce probe: {sight['probe'].hex(' ')}")
    return lines


def footer_lines(arrivals: Sequence[Arrival]) -> list[str]:
    """The lines on how many messages arrived as they were sent."""
    wrong = sum(arrival.wrong > 0 for arrival in arrivals)
    verdict = "all right" if wrong == 0 else f"{wrong} WRONG"
    return [f"# {counted(len(arrivals), 'message')}: {verdict}"]

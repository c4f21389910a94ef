"""The story of one run: agree, load, place, listen, exchange, connect, measure, record."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from tcpx_mpi import _native, baselines
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import ExitCode, TcpxError
from tcpx_mpi.machine.placement import Placement
from tcpx_mpi.machine.topology import Host, read_host
from tcpx_mpi.patterns import load, repeated
from tcpx_mpi.records import Journal, Plan, SetupTimes
from tcpx_mpi.run import agreement, failure, metadata
from tcpx_mpi.run.measure import Measurement
from tcpx_mpi.run.place_ranks import place_rank, plugin_workers
from tcpx_mpi.run.plan import PlannedRow, RowPlanner, buffer_sizes
from tcpx_mpi.run.recorder import Output
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.transport import time_limit
from tcpx_mpi.transport.engine import LoadedPlugin, RankEngine, load_plugin
from tcpx_mpi.transport.interface import Transport
from tcpx_mpi.world import Alarm, World
from tcpx_mpi.world.patience import FOOTER_PATIENCE_S, SETUP_PATIENCE_S


def run_rank(
    parsed: Settings | TcpxError, argv: Sequence[str], make: Callable[..., Benchmark] | None = None
) -> int:
    """Collective: the whole run on this rank; returns its exit code, the same on all ranks."""
    _native.install_signal_handlers()
    world = agreement.start_world(parsed, os.environ)
    story = (make or Benchmark)(world, list(argv))
    try:
        return story.run(parsed)
    except (TcpxError, Alarm, _native.Interrupt) as error:
        if story.journal is not None:
            story.journal.put_away()
        return failure.end(world, story.output, error, story.report())


class Benchmark:
    """One run on one rank; every method that says so is collective."""

    witness = False  # the engine remembers what the plugin delivered

    def __init__(self, world: World, argv: list[str]) -> None:
        self.world, self.argv = world, argv
        self.output = Output(active=world.rank == 0)
        self.journal: Journal | None = None
        self.measurement: Measurement | None = None

    def run(self, parsed: Settings | TcpxError) -> int:
        """Collective: the story, top to bottom; returns the exit code."""
        world = self.world
        settings = agreement.agree_settings(world, parsed)
        hosts = agreement.agree_hosts(world, read_host())
        host, nodes = hosts[world.rank], [each.node for each in hosts]
        plugin = self.load_plugin(settings, plugin_workers(world, settings, hosts))
        placement, settings = place_rank(world, settings, plugin, hosts)
        pattern = repeated(load(settings.pattern), settings.agg_iters)
        planner = RowPlanner(settings, pattern, load(settings.pattern), hosts)
        rows = planner.rows()
        with world.agree("output", SETUP_PATIENCE_S):
            planner.require_room()
            self.output.open(settings)
        with world.agree("journal", SETUP_PATIENCE_S):
            run_id = world.allgather(self.output.run_id, "run id", SETUP_PATIENCE_S)[0]
            self.journal = journal = Journal(settings.spool, run_id, world.rank, world.size)
        engine = self.connect(settings, plugin, placement, pattern)
        free = agreement.free_bytes(world, engine, host)
        with world.agree("memory", SETUP_PATIENCE_S):
            engine.allocate(buffer_sizes(pattern, world.rank, world.size, rows), host, free)
        beside = baselines.prepare(world, settings, engine, context := engine.context(nodes))
        self.begin(settings, pattern, host, engine, beside, planner.plan(rows), journal)
        self.measurement = Measurement(
            world, settings, pattern, context, [engine, *beside], journal,
            shared_clock=len({each.clock for each in hosts}) == 1,
            end_by_ns=time_limit.end_by_ns(settings.timeout_s),
            between_batches=self.output.between_batches,
        )  # fmt: skip
        for row in planner.run(rows, lambda: agreement.told(world, self.output.suspects())):
            self.measure(self.measurement, row, journal)
        journal.close()
        return self.end([engine, *beside])

    def load_plugin(self, settings: Settings, workers: int) -> LoadedPlugin:
        """Collective: the plugin, initialised, the same file on all ranks."""
        with self.world.agree("plugin", SETUP_PATIENCE_S):
            plugin = load_plugin(settings, os.environ, workers)
        agreement.require_equal(self.world, plugin.fingerprint(), "plugin and its environment")
        return plugin

    def connect(
        self, settings: Settings, plugin: LoadedPlugin, placement: Placement, pattern: Pattern
    ) -> RankEngine:
        """Collective: listen, exchange the handles, connect and accept."""
        world = self.world
        agreement.tell_nic(world, plugin.nic(placement.device)["name"])
        with world.agree("listen", SETUP_PATIENCE_S):
            schedule = pattern.schedule(world.rank, world.size)
            engine = RankEngine(settings, plugin, placement, schedule, self.witness)
            handles = engine.listen(world.size)
        handles = world.exchange(handles, "handles", SETUP_PATIENCE_S)
        with world.agree("connect", SETUP_PATIENCE_S + settings.connect_timeout_s):
            engine.connect(handles, world.places)
        return engine

    def begin(
        self, settings: Settings, pattern: Pattern, host: Host, engine: RankEngine,
        beside: Sequence[Transport], plan: Plan, journal: Journal,
    ) -> None:  # fmt: skip
        """Collective: the circumstances of the run, in the file and on the screen."""
        info = metadata.rank_info(self.world.rank, host, engine)
        mine = (info, SetupTimes.from_rows(engine.setup_rows(info.rank)), engine.plugin.to_tell)
        parts = self.world.gather(mine, "circumstances", SETUP_PATIENCE_S)
        with self.world.agree("header", SETUP_PATIENCE_S):
            if parts is not None:
                ranks, times, told = zip(*parts, strict=True)
                header = self.output.begin(
                    settings, pattern, self.argv, ranks, SetupTimes.joined(times), engine.plugin,
                    metadata.facts(host, engine, told), plan, host.llc_bytes,
                    [side.info for side in beside if side.info],
                )  # fmt: skip
                journal.write_header(header)

    def measure(self, measurement: Measurement, planned: PlannedRow, journal: Journal) -> None:
        """Collective: one row, from the poison to the flushed file."""
        part, facts = measurement.measure(planned.facts, planned.plan, planned.until)
        journal.append_result(facts, part)
        row = measurement.join(facts, part)
        # With the patience of a row: a rank that stops here is one stopped in mid-run like others.
        with self.world.agree("output", measurement.patience_s + measurement.writing_s(facts)):
            if row is not None:
                self.output.row(row)
        journal.acknowledge(facts.index)

    def end(self, sides: Sequence[Transport]) -> int:
        """Collective: close in order, print the footer; the exit code of what was measured."""
        # A sender that closes early can give its receiver an error for data that is whole.
        self.world.barrier("close", SETUP_PATIENCE_S)
        with self.world.agree("close", SETUP_PATIENCE_S):
            for side in sides:
                side.close()
        with self.world.agree("output", FOOTER_PATIENCE_S):
            verdict = self.output.end() if self.world.rank == 0 else ExitCode.OK
        return int(self.world.allgather(int(verdict), "verdict", SETUP_PATIENCE_S)[0])

    def report(self) -> tuple[str, ...]:
        """Where this rank's requests stand."""
        return self.measurement.report() if self.measurement is not None else ()

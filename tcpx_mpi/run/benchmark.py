"""The story of one run: agree, load, place, listen, exchange, connect, measure, record."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence

from tcpx_mpi import _native, baselines
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import ExitCode, TcpxError
from tcpx_mpi.launch.watch import ROWS
from tcpx_mpi.machine.topology import Host, read_host
from tcpx_mpi.records import Journal, Plan, SetupTimes
from tcpx_mpi.run import agreement, metadata
from tcpx_mpi.run.choose_algorithm import choose_algorithm, measure_costs
from tcpx_mpi.run.common_clock import CommonClock
from tcpx_mpi.run.connect import connect, load_same_plugin, require_rate
from tcpx_mpi.run.failure import watch_disk
from tcpx_mpi.run.measure import Measurement
from tcpx_mpi.run.memory_report import memory_report
from tcpx_mpi.run.place_ranks import choose_gpus, place_rank
from tcpx_mpi.run.plan import PlannedRow, RowPlanner, buffer_sizes
from tcpx_mpi.run.story import RunState
from tcpx_mpi.transport import time_limit
from tcpx_mpi.transport.engine import RankEngine
from tcpx_mpi.transport.interface import Transport
from tcpx_mpi.workload import Workload
from tcpx_mpi.world import interrupted_by


class Benchmark:
    """One run on one rank; every method that says so is collective."""

    def __init__(self, state: RunState) -> None:
        self.state, self.world, self.output = state, state.world, state.output
        self.disk = watch_disk(self.world, self.output)

    def run(self, parsed: Settings | TcpxError) -> int:
        """Collective: the story, top to bottom; returns the exit code."""
        world = self.world
        self.disk.start()
        workload = agreement.agree_workload(world, parsed)
        settings = workload.settings
        hosts = agreement.agree_hosts(world, read_host())
        host, nodes = hosts[world.rank], [each.node for each in hosts]
        chosen = choose_gpus(world, settings, hosts)
        plugin = load_same_plugin(world, settings, chosen)
        placement, settings = place_rank(world, settings, plugin, hosts, chosen)
        with world.agree("program"):
            workload = workload.placed(settings)
        planner = RowPlanner(workload, hosts)
        rows = planner.rows()
        with world.agree("output"), self.disk.writing(settings.hdf5_path or os.getcwd()):
            planner.require_room()
            require_rate(world, workload, plugin, placement)
            self.output.open(settings)
        with world.agree("journal"), self.disk.writing(settings.spool):
            run_id = world.allgather(self.output.run_id, "run id")[0]
            self.state.journal = journal = Journal(
                settings.spool, run_id, world.rank, world.size, self.disk.writing
            )
        engine = connect(self.state, workload, plugin, placement)
        free = agreement.free_bytes(world, engine, host)
        with world.agree("buffers"):
            sizes = buffer_sizes(workload, world.rank, rows)
        most = world.maximum(sum(sizes.values()), "buffers")
        with world.agree("memory", while_alive=True), world.at_work():
            engine.allocate(sizes, host, free)
        context = engine.context(nodes, most)
        beside = baselines.prepare(world, workload, engine, context)
        clock = CommonClock(world, [each.clock for each in hosts])
        self.state.measurement = measurement = Measurement(
            world, workload, context, [engine, *beside], journal, clock,
            end_by_ns=time_limit.end_by_ns(settings.timeout_s),
            between_batches=self.output.between_batches,
        )  # fmt: skip
        costs = None
        if workload.chooses:
            self.state.measurement = measurement.aside()
            costs = measure_costs(world, self.state.measurement, workload, rows)
            self.state.measurement = measurement
        self.begin(
            workload, host, engine, clock, beside, planner.plan(rows), journal,
            costs.facts() if costs is not None else {},
        )  # fmt: skip
        world.enter(ROWS, settings.stall_timeout_s)
        for row in planner.run(
            rows, lambda: agreement.value_of_rank_0(world, self.output.pairs_to_retest)
        ):
            facts = choose_algorithm(row.facts, workload, costs)
            self.measure(measurement, dataclasses.replace(row, facts=facts), journal)
        journal.close()
        code = self.end([engine, *beside], memory_report(world, engine))
        self.disk.stop()
        return code

    def begin(
        self, workload: Workload, host: Host, engine: RankEngine, clock: CommonClock,
        beside: Sequence[Transport], plan: Plan, journal: Journal, measured: Mapping[str, str],
    ) -> None:  # fmt: skip
        """Collective: the metadata of the run, in the file and on the screen."""
        info = metadata.rank_info(self.world.rank, host, engine, clock.numbers[self.world.rank])
        setup = SetupTimes.from_rows(engine.setup_rows(info.rank))
        mine = (info, setup, engine.plugin.to_tell, metadata.tuning(engine))
        parts = self.world.gather(mine, "circumstances")
        with (
            self.world.agree("header", while_alive=True),
            self.world.at_work(),
            self.disk.writing(self.output.path),
        ):
            if parts is not None:
                ranks, times, told, tuning = zip(*parts, strict=True)
                facts = {
                    **metadata.facts(host, engine, told),
                    **metadata.tuning_of_nodes(ranks, tuning), **measured,
                }  # fmt: skip
                header = self.output.begin(
                    workload, self.state.argv, ranks, SetupTimes.joined(times),
                    engine.plugin, facts, plan,
                    host.llc_bytes,
                    [each.info for each in beside if each.info],
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
                with self.disk.writing(self.output.path, measurement.writing_s(facts)):
                    self.output.row(row)
        journal.acknowledge(facts.index)

    def end(self, transports: Sequence[Transport], memory: Sequence[str] = ()) -> int:
        """Collective: close in order, print the footer; the exit code of what was measured."""
        # A sender that closes early can give its receiver an error for data that is whole.
        self.world.barrier("close")
        with self.world.agree("close"):
            for transport in transports:
                transport.close()
        with (
            self.world.agree("output", while_alive=True),
            self.world.at_work(),
            self.disk.writing(self.output.path),
        ):
            verdict = self.output.end(memory) if self.world.rank == 0 else ExitCode.OK
        told = self.world.allgather((int(verdict), _native.stop_signal()), "verdict")
        code, stopped = told[0][0], max(number for _, number in told)
        if code == ExitCode.OK and stopped:  # it came when all was measured
            error = interrupted_by(stopped)
            if self.world.rank == 0:
                print(f"tcpx-mpi: error: {error}; all was measured", file=sys.stderr, flush=True)
            return int(error.exit_code)
        return int(code)

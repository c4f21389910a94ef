"""The story of one run: agree, load, place, listen, exchange, connect, measure, record."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tcpx_mpi import _native, circumstances
from tcpx_mpi import world as mpi
from tcpx_mpi.config import Settings, fingerprint_difference
from tcpx_mpi.errors import ExitCode, Interrupted, TcpxError, UsageError
from tcpx_mpi.measure import Measurement
from tcpx_mpi.output import Output
from tcpx_mpi.patterns import Pattern, load, repeated
from tcpx_mpi.placement import Placement, place
from tcpx_mpi.rank_setup import LoadedPlugin, RankEngine, load_plugin
from tcpx_mpi.records import Journal, Plan, RankInfo, SetupTimes
from tcpx_mpi.rows import PlannedRow, RowPlanner, buffer_sizes
from tcpx_mpi.topology import Host, read_host
from tcpx_mpi.world import AgreedError, Alarm, Answer, World

#: Set-up steps other than connecting are short; a rank that is this late hangs.
SETUP_PATIENCE_S = 60.0


def run_rank(parsed: Settings | TcpxError, argv: Sequence[str]) -> int:
    """Collective: the whole run on this rank; returns its exit code, the same on all ranks."""
    _native.install_signal_handlers()
    world = mpi.start(_native.stop_signal, os.environ)
    benchmark = Benchmark(world, list(argv))
    try:
        return benchmark.run(parsed)
    except AgreedError as error:
        # All ranks know of it: one of them says it, and MPI ends in good order.
        if world.rank == 0:
            print(f"tcpx-mpi: error: {error}", file=sys.stderr, flush=True)
            benchmark.output.fail(error, {})
        return int(error.exit_code)
    except Interrupted as error:
        benchmark.output.fail(error, {})
        world.leave(int(error.exit_code))
    except (TcpxError, Alarm) as trouble:
        benchmark.leave_in_trouble(trouble)


class Benchmark:
    """One run on one rank; every method that says so is collective."""

    def __init__(self, world: World, argv: list[str]) -> None:
        self.world = world
        self.argv = argv
        self.output = Output(active=world.rank == 0)
        self.measurement: Measurement | None = None

    def run(self, parsed: Settings | TcpxError) -> int:
        """Collective: the story, top to bottom; returns the exit code."""
        settings = self.agree_settings(parsed)
        host = read_host()
        hosts: list[Host] = self.world.allgather(host, "hosts", SETUP_PATIENCE_S)
        pattern = repeated(load(settings.pattern), settings.agg_iters)
        plugin = self.load_plugin(settings)
        placement = place(
            self.world.rank, [h.node for h in hosts], host.cpus, plugin.handle.devices()
        )
        planner = RowPlanner(settings, pattern, load(settings.pattern), hosts)
        rows = planner.rows()
        with self.world.agree("output", SETUP_PATIENCE_S):
            self.output.open(settings)
        with self.world.agree("journal", SETUP_PATIENCE_S):
            run_id = self.world.allgather(self.output.run_id, "run id", SETUP_PATIENCE_S)[0]
            journal = Journal(settings.spool, run_id, self.world.rank, self.world.size)
        engine = self.connect(settings, plugin, placement, pattern)
        with self.world.agree("memory", SETUP_PATIENCE_S):
            engine.allocate(buffer_sizes(pattern, self.world.rank, self.world.size, rows), host)
        self.begin(settings, pattern, host, placement, plugin, engine, planner.plan(rows), journal)
        self.measurement = Measurement(
            self.world, settings, pattern, engine, journal,
            shared_clock=len({h.clock for h in hosts}) == 1,
            host_name=host.name,
            end_by_ns=planner.end_by_ns(_native.now_ns()),
        )  # fmt: skip
        for row in planner.cycles(rows):
            self.measure(self.measurement, row, journal)
        journal.close()
        return self.end(engine)

    def agree_settings(self, parsed: Settings | TcpxError) -> Settings:
        """Collective: the settings, valid and equal on all ranks."""
        with self.world.agree("arguments", SETUP_PATIENCE_S):
            if isinstance(parsed, TcpxError):
                raise parsed
            refusal = load(parsed.pattern).refuse(self.world.size)
            if refusal is not None:
                raise UsageError(refusal)
        assert isinstance(parsed, Settings)
        self.require_equal(parsed.fingerprint(), "arguments")
        return parsed

    def require_equal(self, fingerprint: str, what: str) -> None:
        """Collective: raise UsageError naming the first rank that differs from rank 0."""
        prints = self.world.allgather(fingerprint, what, SETUP_PATIENCE_S)
        with self.world.agree(what, SETUP_PATIENCE_S):
            for rank, other in enumerate(prints):
                if other != prints[0]:
                    raise UsageError(
                        f"rank {rank} differs from rank 0 in "
                        f"{fingerprint_difference(prints[0], other)}; "
                        f"start every rank with the same {what}"
                    )

    def load_plugin(self, settings: Settings) -> LoadedPlugin:
        """Collective: the plugin, initialised, the same file on all ranks."""
        with self.world.agree("plugin", SETUP_PATIENCE_S):
            plugin = load_plugin(settings, os.environ)
        self.require_equal(
            "\n".join(
                [f"plugin_sha256={plugin.file.sha256}", f"plugin_name={plugin.file.name}"]
                + [f"{name}={value}" for name, value, _ in plugin.derived]
            ),
            "plugin",
        )
        return plugin

    def connect(
        self, settings: Settings, plugin: LoadedPlugin, placement: Placement, pattern: Pattern
    ) -> RankEngine:
        """Collective: listen, exchange the handles, connect and accept."""
        world = self.world
        with world.agree("listen", SETUP_PATIENCE_S):
            schedule = pattern.schedule(world.rank, world.size)
            engine = RankEngine(settings, plugin, placement, schedule)
            handles = engine.listen(world.size)
        handles = world.exchange(handles, "handles", SETUP_PATIENCE_S)
        with world.agree("connect", SETUP_PATIENCE_S + settings.connect_timeout_s):
            engine.connect(handles)
        return engine

    def begin(
        self, settings: Settings, pattern: Pattern, host: Host, placement: Placement,
        plugin: LoadedPlugin, engine: RankEngine, plan: Plan, journal: Journal,
    ) -> None:  # fmt: skip
        """Collective: the circumstances of the run, in the file and on the screen."""
        info = circumstances.rank_info(
            self.world.rank, host, placement, plugin, settings.memory_kind()[0]
        )
        setup = SetupTimes.from_rows(engine.setup_rows(self.world.rank))
        parts: list[tuple[RankInfo, SetupTimes]] | None
        parts = self.world.gather((info, setup), "circumstances", SETUP_PATIENCE_S)
        with self.world.agree("header", SETUP_PATIENCE_S):
            if parts is not None:
                header = self.output.begin(
                    settings, pattern, self.argv, [part[0] for part in parts],
                    SetupTimes.joined([part[1] for part in parts]), plugin,
                    circumstances.facts(host, plugin, engine.native.sockets()["congestion_control"]),
                    plan, host.llc_bytes,
                )  # fmt: skip
                journal.write_header(header)

    def measure(self, measurement: Measurement, row: PlannedRow, journal: Journal) -> None:
        """Collective: one row, from the poison to the flushed file."""
        part = measurement.measure(row.facts, row.plan)
        journal.append_result(row.facts, part)
        parts = self.world.gather(part, "samples", measurement.patience_s)
        with self.world.agree("output", SETUP_PATIENCE_S):
            if parts is not None:
                self.output.row(row.facts, parts)
        journal.acknowledge(row.facts.index)

    def end(self, engine: RankEngine) -> int:
        """Collective: close in order, print the footer; the exit code of what was measured."""
        # A sender that closes early can give its receiver an error for data that is whole.
        self.world.barrier("close", SETUP_PATIENCE_S)
        with self.world.agree("close", SETUP_PATIENCE_S):
            engine.close()
        with self.world.agree("output", SETUP_PATIENCE_S):
            verdict = self.output.end() if self.world.rank == 0 else ExitCode.OK
        return int(self.world.allgather(int(verdict), "verdict", SETUP_PATIENCE_S)[0])

    def leave_in_trouble(self, trouble: TcpxError | Alarm) -> None:
        """Call the roll, let the lowest rank that is there speak, and end all ranks alike."""
        rank = self.world.rank
        code = int(trouble.exit_code) if isinstance(trouble, TcpxError) else int(ExitCode.OK)
        text = str(trouble) or f"rank {rank}: waited for the others"
        report = self.measurement.report() if self.measurement is not None else ()
        answers = self.world.roll_call(Answer(rank, code, text, report))
        if rank == min(answers):
            code = self.output.trouble(answers, self.world.size)
            self.world.dismiss(sorted(answers), code)
        else:
            code = self.world.await_dismissal(code or int(ExitCode.LOST_RANK))
        self.world.leave(code)

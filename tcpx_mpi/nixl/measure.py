"""The story of `tcpx-mpi nixl`: agents of all ranks over one backend, and beside them others."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence

from tcpx_mpi.errors import ExitCode, TcpxError, WrongBytes
from tcpx_mpi.nixl.agent_process import AgentPlan
from tcpx_mpi.nixl.agents import AgentFailed
from tcpx_mpi.nixl.header import header_of
from tcpx_mpi.nixl.ranks import Ranks
from tcpx_mpi.nixl.request import Request
from tcpx_mpi.nixl.roles import Roles, memory_bytes
from tcpx_mpi.nixl.settings import BESIDE, NixlSettings
from tcpx_mpi.nixl.side import Side, without_nixl_settings
from tcpx_mpi.nixl.table import Table
from tcpx_mpi.nixl.wheel import (
    BACKEND,
    Wheel,
    compiler_settings,
    installed_wheel,
    plugin_dir,
    require_tested,
)
from tcpx_mpi.records import (
    Row,
    RowFacts,
    Run,
    RunHeader,
    RunWriter,
    SetupTimes,
    SideKey,
    join_row,
    utc_now,
)
from tcpx_mpi.units import format_size

#: Blocks of iterations a row; sides take turns by them.
_BLOCKS = 10
#: Many agents connect at once, perhaps on few cores.
_CONNECT_PATIENCE, _CONNECT_PATIENCE_S = "TCPX_NIXL_CONNECT_PATIENCE_S", 60


class _Sides:
    """Ours, and those beside it for as long as they can."""

    def __init__(self, own: Side, beside: Sequence[Side]) -> None:
        self.own, self.beside = own, list(beside)
        #: Why one cannot (any more), by its backend.
        self.lost: dict[str, str] = {}

    def each(self, act: Callable[[Side], None]) -> None:
        """Raises what happens to ours; another that cannot is ended, and the run goes on."""
        act(self.own)
        for side in list(self.beside):
            try:
                act(side)
            except AgentFailed as error:
                self.lost[side.backend] = " ".join(str(error).split())
                self.beside.remove(side)
                side.kill()


def find_wheel() -> Wheel:
    """The NIXL of this node. Raises PluginMissing or UsageError."""
    return require_tested(installed_wheel())


def measure(
    settings: NixlSettings, roles: Roles, ranks: Ranks, wheel: Wheel, command: Sequence[str],
    table: Table,
) -> None:  # fmt: skip
    """Collective: the whole run. The leader prints it to the table.

    Raises what an agent of ours tells, WrongBytes where bytes are wrong, and how agents of ours
    ended where that was not in order. A baseline that could not go on is said in the table.
    """
    with contextlib.ExitStack() as cleanup:
        made = []
        for backend, environ in _backends(settings).items():
            plan = functools.partial(_plan, settings, roles, ranks, wheel, backend, environ)
            side = Side(backend, roles, ranks, plan)
            cleanup.callback(side.kill)
            made.append(side)
        sides = _Sides(made[0], made[1:])
        sides.each(Side.connect)
        sides.each(lambda side: side.try_out(settings.requests[0]))
        pids = ranks.together("processes", lambda: {r: a.pid for r, a in sides.own.agents.items()})
        header = header_of(
            settings, roles, ranks.hosts, pids, wheel, command, [s.backend for s in sides.beside],
            sides.lost,
        )  # fmt: skip
        told = set(sides.lost)
        results = _Results(settings, header, table, ranks)
        ranks.keeps_fault(results.keep_fault)
        for index in range(len(settings.requests)):
            results.row(_row(settings, roles, ranks, sides, index))
            for backend in sides.lost.keys() - told:
                table.lost(backend.lower(), f"n/a from here on: {sides.lost[backend]}")
            told |= sides.lost.keys()
        results.complete()
        for side in sides.beside:  # a library may end its process as it is unloaded
            if how := side.end():
                table.lost(side.backend.lower(), f"{how}, after its last row")
        how = sides.own.end()
        results.end(f"{how}, after all was moved" if how else "")


class _Results:
    """The run as the leader keeps it; nothing on other ranks."""

    def __init__(
        self, settings: NixlSettings, header: RunHeader, table: Table, ranks: Ranks
    ) -> None:
        self._table, self._ranks = table, ranks
        rows: list[Row] = []
        self._run = Run(path="", header=header, setup=SetupTimes.joined([]), rows=rows,
                        complete=False)  # fmt: skip
        self._rows, self._writer = rows, None
        with ranks.leading("output"):
            if ranks.leads and settings.hdf5 != "none":
                self._writer = RunWriter(settings.hdf5)
                self._run.path = self._writer.path
                self._writer.write_header(header)
                self._writer.write_setup(self._run.setup)
        if ranks.leads:
            table.begin(self._run)

    def keep_fault(self, code: int, texts: Mapping[int, str]) -> None:
        """Writes what ends the run early beside what was measured."""
        if not self._ranks.leads or self._run.complete:
            return
        with contextlib.suppress(TcpxError):
            self._table.ended_early(self._run, code)
        if self._writer is not None:
            with contextlib.suppress(TcpxError):
                self._writer.fail(ExitCode(code).name.lower(), code, texts)

    def row(self, row: Row | None) -> None:
        with self._ranks.leading("output"):
            if row is not None:
                if self._writer is not None:
                    self._writer.append_row(row)
                self._rows.append(row)
                self._table.row_done(self._run, row)

    def complete(self) -> None:
        self._run.complete = True
        with self._ranks.leading("output"):
            if self._writer is not None:
                self._writer.finish()

    def end(self, how: str) -> None:
        """Raises what makes the run none that counts."""
        error = None
        with self._ranks.leading("output"):
            if self._ranks.leads:
                error = self._table.end(self._run, wrong_bytes(self._run), how)
        self._ranks.agree(error)


def wrong_bytes(run: Run) -> WrongBytes | None:
    """The first row in which a byte was wrong, on either side."""
    for row in run.rows:
        for each in (row, *row.sides.values()):
            if (each.wrong > 0).any():
                faults = "; ".join(text for text in each.faults if text)
                return WrongBytes(f"{format_size(row.size_bytes)}: {faults}")
    return None


def _backends(settings: NixlSettings) -> dict[str, dict[str, str]]:
    """The environment of each side's agents, by backend."""
    patience_s = os.environ.get(_CONNECT_PATIENCE, str(_CONNECT_PATIENCE_S))
    own = {
        **compiler_settings(),
        "NIXL_PLUGIN_DIR": str(plugin_dir()),
        _CONNECT_PATIENCE: patience_s,
    }
    if settings.plugin:
        own["TCPX_NIXL_PLUGIN"] = settings.plugin
    backends = {BACKEND: own}
    for name in settings.against:
        backends[BESIDE[name].backend] = without_nixl_settings(BESIDE[name].variables())
    return backends


def _plan(
    settings: NixlSettings, roles: Roles, ranks: Ranks, wheel: Wheel, backend: str,
    environ: dict[str, str], rank: int,
) -> AgentPlan:  # fmt: skip
    node = ranks.hosts[rank].node
    local_rank = sum(host.node == node for host in ranks.hosts[:rank])
    if settings.devices:
        device = settings.devices[local_rank % len(settings.devices)]
        environ = {**environ, "TCPX_NIXL_DEVICE": str(device)}
    return AgentPlan(
        rank=rank,
        roles=roles,
        backend=backend,
        package=wheel.package,
        memory=settings.memory,
        slot_bytes=settings.slot_bytes,
        size_bytes=memory_bytes(roles, rank, settings.slot_bytes),
        local_rank=local_rank,
        threads=settings.threads,
        progress_thread=settings.progress_thread,
        environ=environ,
    )


def _facts(settings: NixlSettings, roles: Roles, index: int, request: Request) -> RowFacts:
    """The size is what an initiator has under way at once for one of a batch: a request to each
    target."""
    size_bytes = request.payload_bytes * len(roles.targets)
    return RowFacts(
        index=index,
        cycle=0,
        size_bytes=size_bytes,
        count=size_bytes,
        agg=settings.batch,
        messages_per_copy=len(roles.targets),
        chunk_bytes=request.block_bytes,
        slots=1,
        iterations=settings.iterations,
        warmup_iterations=0,
    )


def _row(
    settings: NixlSettings, roles: Roles, ranks: Ranks, sides: _Sides, index: int
) -> Row | None:
    """Collective: one row, for the leader; None elsewhere."""
    request = settings.requests[index]
    blocks = min(_BLOCKS, settings.iterations)
    counts = [settings.iterations * (k + 1) // blocks - settings.iterations * k // blocks
              for k in range(blocks)]  # fmt: skip
    facts = _facts(settings, roles, index, request)
    before: dict[str, dict[int, tuple[int, int]]] = {}
    rows: dict[str, Row] = {}

    def start(side: Side) -> None:
        with side.turn():
            side.begin(request, seed=1_000_003 * index + 7919 * (side is not sides.own))
            if settings.warmup_iterations:
                side.block(settings.warmup_iterations, check=False, warmup=True)
            before[side.backend] = side.cpu_ns()

    def end(side: Side) -> None:
        with side.turn():
            after = side.cpu_ns()
        cpu = {
            rank: (user - before[side.backend][rank][0], system - before[side.backend][rank][1])
            for rank, (user, system) in after.items()
        }
        if ranks.leads:
            rows[side.backend] = join_row(facts, side.parts(facts, settings.check, cpu), utc_now())

    def block(count: int, side: Side) -> None:
        with side.turn():
            side.block(count, settings.check)

    sides.each(start)
    for count in counts:
        sides.each(functools.partial(block, count))
    sides.each(end)
    if not ranks.leads:
        return None
    row = rows.pop(sides.own.backend)
    row.sides = {SideKey(backend.lower()): other for backend, other in rows.items()}
    return row

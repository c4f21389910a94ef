"""The story of `tcpx-mpi nixl`: two agents on this machine, and beside them two over UCX."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tcpx_mpi import _native
from tcpx_mpi._version import installed_version, source_state
from tcpx_mpi.cpu_lists import cpu_list_text
from tcpx_mpi.errors import TcpxError, WrongBytes
from tcpx_mpi.machine.topology import Host, read_host
from tcpx_mpi.nixl.agent_process import Request
from tcpx_mpi.nixl.side import Side, without_nixl_settings
from tcpx_mpi.nixl.wheel import (
    BACKEND,
    Wheel,
    compiler_settings,
    installed_wheel,
    plugin_dir,
    require_tested,
)
from tcpx_mpi.records import (
    BaselineInfo,
    Plan,
    RankInfo,
    Row,
    RowFacts,
    Run,
    RunHeader,
    RunWriter,
    SetupTimes,
    SideKey,
    filter_environment,
    join_row,
    utc_now,
)
from tcpx_mpi.units import counted, format_size

#: Blocks of iterations a row; two sides take turns by them.
_BLOCKS = 10
UCX = "ucx"


@dataclass(frozen=True)
class NixlSettings:
    """The settings of a measurement."""

    sizes: tuple[int, ...]
    operation: str
    memory: str
    #: Descriptors of a request, each of a part of the size and none beside another.
    descriptors: int
    iterations: int
    warmup_iterations: int
    against: str
    check: bool
    progress_thread: bool
    plugin: str
    hdf5: str


def request_of(settings: NixlSettings, size_bytes: int) -> Request:
    block = size_bytes // settings.descriptors
    stride = block if settings.descriptors == 1 else 2 * block
    return Request(settings.operation, settings.descriptors, block, stride)


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
            except TcpxError as error:
                self.lost[side.backend] = " ".join(str(error).split())
                self.beside.remove(side)
                side.end()


def measure(
    settings: NixlSettings, command: Sequence[str], begin: Callable[[Run], None],
    row_done: Callable[[Run, Row], None], lost: Callable[[str, str], None],
) -> tuple[Run, str]:  # fmt: skip
    """The whole run, and how agents of ours ended where that was not in order ("": it was).

    `begin` gets the run when all agents know each other, `row_done` after each row; `lost`, before
    that, the name of a baseline that could not go on, and why; at the end, how one ended that did
    not end in order. One that cannot begin is said by its description.

    Raises what an agent of ours tells.
    """
    wheel = require_tested(installed_wheel())
    extent = max(request_of(settings, size).extent_bytes for size in settings.sizes)
    with contextlib.ExitStack() as cleanup:
        made = []
        for backend, environ in _backends(settings).items():
            side = Side(
                backend, wheel.package, settings.memory, extent, settings.progress_thread, environ
            )
            cleanup.callback(side.end)
            made.append(side)
        sides = _Sides(made[0], made[1:])
        sides.each(Side.connect)
        sides.each(lambda side: side.try_out(request_of(settings, settings.sizes[0])))
        header = _header(settings, wheel, sides, command)
        told = set(sides.lost)
        rows: list[Row] = []
        run = Run(path="", header=header, setup=SetupTimes.joined([]), rows=rows, complete=False)
        writer = None
        if settings.hdf5 != "none":
            writer = RunWriter(settings.hdf5)
            run.path = writer.path
            writer.write_header(header)
            writer.write_setup(run.setup)
        begin(run)
        for index, size_bytes in enumerate(settings.sizes):
            row = _row(settings, sides, index, size_bytes)
            if writer is not None:
                writer.append_row(row)
            rows.append(row)
            for backend in sides.lost.keys() - told:
                lost(backend.lower(), f"n/a from here on: {sides.lost[backend]}")
            told |= sides.lost.keys()
            row_done(run, row)
        run.complete = True
        if writer is not None:
            writer.finish()
        for side in sides.beside:  # a library may end its process as it is unloaded
            if how := side.end():
                lost(side.backend.lower(), f"{how}, after its last row")
        return run, sides.own.end()


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
    own = {**compiler_settings(), "NIXL_PLUGIN_DIR": str(plugin_dir())}
    if settings.plugin:
        own["TCPX_NIXL_PLUGIN"] = settings.plugin
    backends = {BACKEND: own}
    if settings.against == UCX:
        # Its default would not use the network on one machine.
        backends["UCX"] = without_nixl_settings(
            {"UCX_TLS": os.environ.get("UCX_TLS", "tcp"), "UCX_WARN_UNUSED_ENV_VARS": "n"}
        )
    return backends


def _row(settings: NixlSettings, sides: _Sides, index: int, size_bytes: int) -> Row:
    request = request_of(settings, size_bytes)
    blocks = min(_BLOCKS, settings.iterations)
    counts = [settings.iterations * (k + 1) // blocks - settings.iterations * k // blocks
              for k in range(blocks)]  # fmt: skip
    facts = RowFacts(
        index=index,
        cycle=0,
        size_bytes=request.blocks * request.block_bytes,
        count=request.blocks * request.block_bytes,
        chunk_bytes=request.block_bytes,
        slots=1,
        iterations=settings.iterations,
        warmup_iterations=0,
    )
    before: dict[str, list[tuple[int, int]]] = {}
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
        cpu = [
            (user - user_before, system - system_before)
            for (user, system), (user_before, system_before) in zip(
                after, before[side.backend], strict=True
            )
        ]
        rows[side.backend] = join_row(facts, side.parts(facts, settings.check, cpu), utc_now())

    def block(count: int, side: Side) -> None:
        with side.turn():
            side.block(count, settings.check)

    sides.each(start)
    for count in counts:
        sides.each(functools.partial(block, count))
    sides.each(end)
    row = rows.pop(sides.own.backend)
    row.sides = {SideKey(backend.lower()): other for backend, other in rows.items()}
    return row


def _header(
    settings: NixlSettings, wheel: Wheel, sides: _Sides, command: Sequence[str]
) -> RunHeader:
    host = read_host()
    plugin = settings.plugin or os.environ.get("TCPX_NIXL_PLUGIN", "") or "softtcpx"
    return RunHeader(
        run_id=secrets.token_hex(8),
        pattern=f"nixl-{settings.operation}",
        start_time=utc_now(),
        command=list(command),
        plan=Plan(
            sizes=tuple(
                request_of(settings, size).blocks * request_of(settings, size).block_bytes
                for size in settings.sizes
            ),
            iters=settings.iterations,
            warmup_iters=settings.warmup_iterations,
            check=int(settings.check),
        ),
        settings=[(name, str(value), "command line") for name, value in vars(settings).items()],
        versions={
            "tcpx-mpi": installed_version(),
            "git": source_state(),
            "build": ", ".join(_native.BUILD.values()),
            "python": platform.python_version(),
            wheel.name: wheel.version,
        },
        environment=filter_environment(os.environ),
        facts={"kernel": host.kernel, "cpu_model": host.cpu_model},
        ranks=[_rank(rank, host, sides.own, plugin, settings) for rank in range(2)],
        world=2,
        busbw_factor=1.0,
        time_divisor=1,
        plugin_path=plugin,
        plugin_sha256="",
        plugin_abi=-1,
        plugin_name=os.path.basename(plugin),
        memory="device" if settings.memory == "vram" else "host",
        unpack="",
        llc_bytes=host.llc_bytes,
        mode="synchronised",
        notes=[
            f"NIXL {wheel.version} ({wheel.name}), backend {BACKEND}: rank 0 asks, rank 1 is asked",
            "a time is rank 0's, from the post to the end that NIXL tells",
            f"{counted(settings.descriptors, 'descriptor')} a request",
        ],
        baselines=[
            BaselineInfo(
                name=backend.lower(),
                kind=backend.lower(),
                streams=0,
                two_way=True,
                congestion_control="",
                send_buffer_bytes=0,
                description=f"NIXL's backend {backend}, UCX_TLS="
                f"{os.environ.get('UCX_TLS', 'tcp')}"
                + (f"; n/a: {sides.lost[backend]}" if backend in sides.lost else ""),
                own_process=True,
            )
            for backend in [*(side.backend for side in sides.beside), *sides.lost]
        ],
    )


def _rank(rank: int, host: Host, side: Side, plugin: str, settings: NixlSettings) -> RankInfo:
    return RankInfo(
        rank=rank,
        host=host.name,
        node=host.node,
        pid=side.agents[rank].pid,
        device=0,
        device_name=f"NIXL {side.agents[rank].plan.role}",
        nic="",
        nic_pci="",
        nic_speed_mbps=-1,
        numa_node=-1,
        cpus=cpu_list_text(host.cpus),
        progress_cpu=-1,
        plugin_path=plugin,
        plugin_sha256="",
        plugin_abi=-1,
        plugin_name=os.path.basename(plugin),
        memory="device" if settings.memory == "vram" else "host",
    )

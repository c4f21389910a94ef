"""The NCCL baseline, over its own TCP sockets: the same schedule by its sends and receives, or for
a program of nccl-tests NCCL's own collective where it has one (`collectives`).

NCCL runs in a *companion*, a process beside each rank, so that it has an environment of its own
and no plugin of ours. The companion has slots of its own on the rank's GPU, filled, poisoned and
checked by the same code; between its blocks it sleeps. The way of a request:

    baseline -> process -> channel = channel <- companion -> by_cupy
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.baselines import Connection
from tcpx_mpi.baselines.nccl.backend import NCCL_BACKEND
from tcpx_mpi.baselines.nccl.baseline import NcclBaseline
from tcpx_mpi.baselines.nccl.collectives import Arithmetic, arithmetic_of
from tcpx_mpi.baselines.nccl.presets import HOST_ID, apart, companion_environment, nccl_variables
from tcpx_mpi.baselines.nccl.process import CompanionFailed, CompanionProcess
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import SetupFailed, UsageError
from tcpx_mpi.machine.congestion import to_ask_for
from tcpx_mpi.machine.gpu.choice import obstacle_of_baselines
from tcpx_mpi.records import BaselineInfo
from tcpx_mpi.transport.interface import RankContext, Transport
from tcpx_mpi.workload import Workload
from tcpx_mpi.world import World
from tcpx_mpi.world.patience import SETUP_PATIENCE_S

KIND = "nccl"
#: Names another module to move bytes by, for tests where there is no GPU.
BACKEND_VARIABLE = "TCPX_MPI_NCCL_BACKEND"
#: The tuned preset reaches more than this one way between two H200s of one host (32 were
#: measured): with less, something has weakened it.
_FLOOR_GBPS, _FLOOR_GPU = 29.0, "H200"


def prepare(
    world: World, workload: Workload, context: RankContext, connection: Connection
) -> list[Transport]:
    """Collective: a companion for each preset, its buffers, and its connections."""
    backend = os.environ.get(BACKEND_VARIABLE, NCCL_BACKEND)
    nodes, gpu = context.nodes, context.placement.gpu_pci
    gpus = world.allgather(gpu, "nccl peer", SETUP_PATIENCE_S)
    places = list(zip(nodes, gpus, strict=True))
    # Of the ranks on this GPU, how many come before this one.
    turn = places[: world.rank].count(places[world.rank]) if gpu else 0
    shared = any(gpus) and len(set(places)) < len(places)
    settings, collective = workload.settings, bool(workload.program.nccl_call)
    # A collective is one of its group; sends and receives name ranks of the whole.
    ranks = workload.origins(world.rank) if collective else list(range(world.size))
    found: list[Transport] = []
    for preset in settings.nccl_presets:
        variables = nccl_variables(preset, settings.nccl_env, connection.interface)
        with world.agree("nccl peer", SETUP_PATIENCE_S), _named(preset):
            if backend == NCCL_BACKEND:
                _require_gpu_memory(settings)
            if shared:
                _refuse_one_host(settings)
            own_host = apart(nodes[world.rank], turn)
            environment = companion_environment(os.environ, {**own_host, **variables})
            companion = CompanionProcess(environment, backend, gpu)
            facts = companion.answer("facts", SETUP_PATIENCE_S)
            unique_id = companion.ask("unique_id", patience_s=SETUP_PATIENCE_S)
        everywhere = world.allgather((unique_id, facts), "nccl peer", SETUP_PATIENCE_S)
        arithmetic = arithmetic_of([each for _, each in everywhere], len(ranks))
        with world.agree("nccl peer", SETUP_PATIENCE_S), _named(preset):
            sizes = {buffer: memory.bytes for buffer, memory in context.buffers.items()}
            companion.ask("allocate", sizes, patience_s=SETUP_PATIENCE_S)
        sockets = _connected(
            world, companion, preset, settings.connect_timeout_s, everywhere[ranks[0]][0], ranks,
            [] if collective else _neighbours(context), to_ask_for(connection.congestion_control),
        )  # fmt: skip
        own = " ".join(f"{name}={value}" for name, value in variables.items())
        info = BaselineInfo(
            # The first one is what was asked for, others are variants of it.
            name=f"{KIND}_{preset}" if found else KIND,
            kind=KIND,
            streams=0,
            two_way=True,
            congestion_control=sockets["congestion_control"],
            send_buffer_bytes=0,
            description=f"{facts['name']}, {_what(workload, arithmetic)}preset {preset} ({own}), "
            f"{sockets['count']} TCP sockets on rank 0"
            + (", ranks of a GPU as if on hosts of their own" if shared else ""),
            own_process=True,
            floor_gbps=0.0 if shared else _floor(workload, world, context, preset, facts),
        )
        found.append(
            NcclBaseline(
                info, companion, sizes, world.rank, world.name(world.rank), workload.program,
                arithmetic, ranks.index(world.rank),
            )
        )  # fmt: skip
    return found


def _what(workload: Workload, arithmetic: Arithmetic) -> str:
    """The NCCL call, and the rows in which it is not used, if that is a collective."""
    if not (call := workload.program.nccl_call):
        return ""
    parts = [call, arithmetic.lacks_text(workload)]
    return "".join(f"{part}, " for part in parts if part)


def _connected(
    world: World, companion: CompanionProcess, preset: str, timeout_s: float, unique_id: Any,
    ranks: list[int], neighbours: list[tuple[bool, int]], congestion: str,
) -> _native.SocketTotals:  # fmt: skip
    """Collective: make the communicator of `ranks` and meet; totals of the sockets.

    All ranks raise what went wrong, and that of a rank which waited for it only if no other does.
    """
    failure = None
    try:
        sockets: _native.SocketTotals = companion.ask(
            "connect", unique_id, ranks.index(world.rank), len(ranks), neighbours, congestion,
            patience_s=timeout_s,
        )  # fmt: skip
    except CompanionFailed as error:
        failure = (error.late, world.rank, str(error))
    failures = world.allgather(failure, "nccl peer", SETUP_PATIENCE_S + timeout_s)
    with world.agree("nccl peer", SETUP_PATIENCE_S):
        if any(failures):
            _, rank, text = min(filter(None, failures))
            raise SetupFailed(f"{world.name(rank)}: nccl peer, preset {preset}: {text}")
    return sockets


@contextmanager
def _named(preset: str) -> Iterator[None]:
    """Ends the run with the fault of a companion that fails before anything is measured."""
    try:
        yield
    except CompanionFailed as error:
        raise SetupFailed(f"nccl peer, preset {preset}: {error}") from None


def _require_gpu_memory(settings: Settings) -> None:
    if settings.memory == "cuda":
        return
    others = ",".join(name for name in settings.against if name != KIND)
    why = settings.sources["memory"].removeprefix("auto: ")
    if others and obstacle_of_baselines(settings.against):
        raise UsageError(
            f"--against {others} moves host memory and nccl a GPU's: compare with them in two runs"
        )
    if why != settings.sources["memory"]:
        raise UsageError(f"--against nccl needs the memory of GPUs: {why}")
    raise UsageError(
        f"--against nccl needs the memory of GPUs, and this run has --memory {settings.memory} "
        f"({why}): use --memory cuda, or leave nccl out of --against"
    )


def _refuse_one_host(settings: Settings) -> None:
    if any(setting.startswith(f"{HOST_ID}=") for setting in settings.nccl_env):
        raise UsageError(
            f"--nccl-env {HOST_ID} is the same for all ranks, and those that share a GPU need one "
            "each, which they are given: leave it out"
        )


def _neighbours(context: RankContext) -> list[tuple[bool, int]]:
    """(to send to, the rank) of everybody whom this rank meets, each once."""
    schedule = context.schedule
    to = sorted({peer for peer, _ in schedule.peers_sent})
    of = sorted({peer for peer, _ in schedule.peers_received})
    return [*((True, peer) for peer in to), *((False, peer) for peer in of)]


def _floor(
    workload: Workload, world: World, context: RankContext, preset: str, facts: dict[str, str]
) -> float:
    """GB/s below which the ratio of a large row is void, where that is known; else 0."""
    known = (
        preset == "tuned"
        and not workload.settings.nccl_env
        and workload.connecting_pattern.sender is not None
        and world.size == 2
        and len(set(context.nodes)) == 1
        and _FLOOR_GPU in facts.get("model", "")
    )
    return _FLOOR_GBPS if known else 0.0

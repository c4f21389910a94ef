"""The raw baseline: plain TCP sockets and a native loop of their own, no plugin and no engine.

It is stated twice: with as many one-way streams as the plugin has, and at its own best of 1, 2 and
4 two-way streams, on which acknowledgements ride along with the answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcpx_mpi import _native
from tcpx_mpi.baselines import Connection
from tcpx_mpi.errors import SetupFailed
from tcpx_mpi.machine.congestion import to_ask_for
from tcpx_mpi.patterns.program import CHAIN
from tcpx_mpi.records import BaselineInfo, RowFacts
from tcpx_mpi.schedule.table import Layout
from tcpx_mpi.transport.engine import spins_before_yield
from tcpx_mpi.transport.interface import RankContext, Transport, load_native
from tcpx_mpi.workload import Workload
from tcpx_mpi.world import World, interrupted_by

KIND = "raw"
#: What `iperf3 -w 4M` has; more gains nothing, the kernel's own start is much slower.
SEND_BUFFER_BYTES = 4 << 20
#: The streams among which raw's best is looked for.
BEST_OF = (1, 2, 4)
_ALIGN = 64
#: The algorithm of programs in which ranks pass on what they receive, chunk by chunk.
#: A message of one stream is still cut here: the engine's offsets in a chunk have 32 bits.
_MOST_CHUNK_BYTES = 1 << 30


class RawBaseline:
    """One variant of the raw baseline on one rank."""

    processes = ()
    in_place = False

    def __init__(
        self,
        info: BaselineInfo,
        connection: Connection,
        context: RankContext,
        one_slot: bool,
        threads: int,
    ) -> None:
        self.info = info
        self.buffers = context.buffers
        self.timed_loop = _native.RawBaseline(
            connection.interface,
            to_ask_for(connection.congestion_control),
            info.send_buffer_bytes,
            info.streams,
            info.two_way,
            spins_before_yield(context.placement),
            one_slot,
            threads,
        )
        if context.placement.progress_cpu >= 0:
            self.timed_loop.pin([context.placement.progress_cpu])

    def has(self, facts: RowFacts) -> bool:
        return True

    def load(
        self, context: RankContext, facts: RowFacts, layout: Layout, longest_batch: int
    ) -> None:
        """A message is divided among the streams."""
        chunk = cut(context.longest_message(), self.info.streams, facts)
        load_native(self.timed_loop, context, layout, chunk, self.info.streams, longest_batch)

    def close(self) -> None:
        """Sockets are closed with the object: a closing peer frees nothing that others wait for."""


def cut(longest: int, streams: int, facts: RowFacts) -> int:
    """Bytes of a chunk, on all ranks alike: a message is one stretch for each stream. But along a
    chain ranks pass on what they receive, and a peer that stored each message whole at each hop
    would be a weakened one: there it has the plugin's chunks."""
    share = min(-(-longest // streams), _MOST_CHUNK_BYTES)
    if facts.algo == CHAIN:
        share = min(share, facts.chunk_bytes)
    return max(-(-share // _ALIGN) * _ALIGN, _ALIGN)


def prepare(
    world: World, workload: Workload, context: RankContext, connection: Connection
) -> list[Transport]:
    """Collective: connect all variants."""
    alike = _answers_on_the_same_link(context)
    two_way = any(world.allgather(alike, "two-way links"))
    timeout_s = workload.settings.connect_timeout_s
    return connect(variants(connection, two_way), world, timeout_s, context, connection)


def variants(connection: Connection, two_way: bool) -> list[BaselineInfo]:
    """Equal streams first, then the candidates for raw's best that differ from it."""
    equal = _info(KIND, connection, connection.streams, False)
    others = streams_of(connection, two_way)
    return [equal, *(each for each in others if two_way or each.streams != connection.streams)]


def streams_of(connection: Connection, two_way: bool) -> list[BaselineInfo]:
    """Raw TCP by the numbers of streams among which its best is looked for."""
    return [_info(f"{KIND}_{streams}", connection, streams, two_way) for streams in BEST_OF]


def connect(
    infos: Sequence[BaselineInfo], world: World, timeout_s: float, context: RankContext,
    connection: Connection, one_slot: bool = False,
) -> list[Transport]:  # fmt: skip
    """Collective: one transport for each variant, connected.

    `one_slot`: every iteration uses the first slot of its buffers, which then stay in the cache as
    those of iperf3 do; such bytes cannot be checked.
    """
    with world.agree("raw peer"):
        try:
            # A stream has one thread.
            transports = [
                RawBaseline(
                    info, connection, context, one_slot, min(connection.threads, info.streams)
                )
                for info in infos
            ]
            mine = [each.timed_loop.listen() for each in transports]
        except RuntimeError as error:
            raise SetupFailed(str(error)) from None
    addresses = world.allgather(mine, "raw peer's addresses")
    with world.agree("raw peer", world.limit_s + timeout_s):
        try:
            for number, transport in enumerate(transports):
                transport.timed_loop.establish(
                    world.rank,
                    [each[number] for each in addresses],
                    context.schedule.peers_sent,
                    context.schedule.peers_received,
                    timeout_s,
                )
        except _native.Interrupt:
            raise interrupted_by(_native.stop_signal()) from None
        except RuntimeError as error:
            raise SetupFailed(str(error)) from None
    return list(transports)


def _info(name: str, connection: Connection, streams: int, two_way: bool) -> BaselineInfo:
    ways = "two-way" if two_way else "one-way"
    return BaselineInfo(
        name=name,
        kind=KIND,
        streams=streams,
        two_way=two_way,
        congestion_control=connection.congestion_control,
        send_buffer_bytes=SEND_BUFFER_BYTES,
        description=f"plain TCP, {streams} {ways} stream{'s' if streams > 1 else ''}",
        interfaces=connection.interface,
    )


def _answers_on_the_same_link(context: RankContext) -> bool:
    """Whether this rank both sends to and receives from some rank."""
    schedule = context.schedule
    return bool(set(schedule.peers_sent) & set(schedule.peers_received))

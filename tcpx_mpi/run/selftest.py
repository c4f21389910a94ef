"""The story of `tcpx-mpi selftest`: what the tool itself costs, and how quiet this machine is.

Beside the ceilings: the clock, the engine over a plugin that completes at
once, how far apart ranks leave a barrier, what others take from a rank that does nothing else,
and how much equal pieces of work differ, all ranks at once. It answers which differences of results
may be the machine's, and it is kept as JSON, to lie beside them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi import _native
from tcpx_mpi.baselines import Connection
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import TcpxError
from tcpx_mpi.launch.watch import CONNECT
from tcpx_mpi.machine.topology import Host, read_host
from tcpx_mpi.records import require_writable, utc_now, write_text
from tcpx_mpi.run.agreement import agree_hosts, agree_workload
from tcpx_mpi.run.ceiling import Ceiling
from tcpx_mpi.run.story import RunState
from tcpx_mpi.transport.overhead import measure_overhead
from tcpx_mpi.world import World

_BARRIERS = 200
_WATCH_NS = 500_000_000
_PIECES = 500
_PIECE_NS = 1_000_000


@dataclass(frozen=True)
class Quiet:
    """The interruptions of one rank; plain numbers, for all ranks gather them."""

    lost_share: float
    longest_ns: int
    interruptions: int
    #: Of equal pieces of work: the fastest, and the 95th percentile over it less 1.
    piece_ns: int
    noise: float
    #: Of the node's CPU time, what its hypervisor gave to others; NaN if it does not say.
    steal_share: float


def quiet() -> Quiet:
    """Measures this rank for about a second."""
    before = _steal_and_all()
    watched, lost, longest, count = _native.interruptions(_WATCH_NS)
    times = _native.time_equal_work(_PIECES, _PIECE_NS)
    steal, everything = (after - b for after, b in zip(_steal_and_all(), before, strict=True))
    return Quiet(
        lost_share=lost / watched,
        longest_ns=longest,
        interruptions=count,
        piece_ns=int(times.min()),
        noise=spread(times),
        steal_share=steal / everything if everything > 0 else float("nan"),
    )


def spread(times: NDArray[np.int64]) -> float:
    """The 95th percentile over the fastest, less 1: what a disturbed piece costs more."""
    return float(np.quantile(times, 0.95) / times.min() - 1)


def _steal_and_all() -> tuple[float, float]:
    import psutil

    times = psutil.cpu_times()
    return getattr(times, "steal", float("nan")), float(sum(times[:8]))


def barrier_skews_ns(world: World) -> NDArray[np.int64]:
    """Collective: how far apart the first and the last rank leave each of many barriers.

    Their clocks must be one; on rank 0, nothing elsewhere.
    """
    mine = []
    for _ in range(_BARRIERS):
        world.barrier("barrier skew")
        mine.append(_native.now_ns())
    everybody = world.gather(mine, "barrier skew")
    if everybody is None:
        return np.empty(0, np.int64)
    table = np.array(everybody, np.int64)
    skews: NDArray[np.int64] = table.max(axis=0) - table.min(axis=0)
    return skews


class SelfTest:
    """The tool and the machines of one world, if not only their ceilings; then these."""

    def __init__(
        self, state: RunState, connection: Connection, more: Sequence[Settings], path: str | None,
        only_ceilings: bool,
    ) -> None:  # fmt: skip
        self.world = state.world
        self._ceiling = Ceiling(state, connection, more, self._say)
        self._path, self._only_ceilings = path, only_ceilings
        self._document: dict[str, Any] = {"start_time": utc_now(), "command": state.argv}

    def run(self, parsed: Settings | TcpxError) -> int:
        """Collective: the story, top to bottom; returns the exit code."""
        settings = agree_workload(self.world, parsed).settings
        hosts = agree_hosts(self.world, read_host())
        with self.world.agree("output"):
            if self._path is not None and self.world.rank == 0:
                require_writable(self._path, "--output")
        self._ceiling.agree_link()
        if not self._only_ceilings:
            self._test_ourselves(hosts, hosts[self.world.rank])
        self.world.enter(CONNECT, settings.connect_timeout_s)
        code = self._ceiling.measure(settings, hosts)
        with self.world.agree("output"):
            if self._path is not None and self.world.rank == 0:
                text = json.dumps(self._document, indent=1, allow_nan=False) + "\n"
                self._say([f"# wrote {write_text(self._path, text)}"])
        return code

    def _test_ourselves(self, hosts: Sequence[Host], host: Host) -> None:
        world = self.world
        one_clock = len({each.clock for each in hosts}) == 1
        skews = barrier_skews_ns(world) if one_clock else np.empty(0, np.int64)
        cost = measure_overhead() if world.rank == 0 else None
        world.barrier("own cost")  # others would disturb it
        ranks = world.gather(quiet(), "quiet")
        if ranks is None or cost is None:
            return
        self._document |= {
            "host": host.name,
            "ranks": len(ranks),
            "own": vars(cost),
            "barrier_skew_ns": skews.tolist(),
            "quiet": [_without_nan(vars(each)) for each in ranks],
        }
        self._say(
            ["# tcpx-mpi selftest", *own_lines(cost.clock_ns, cost.clock_step_ns, cost.chunk_ns)]
        )
        self._say(skew_lines(skews))
        self._say(quiet_lines(ranks))

    def _say(self, lines: Sequence[str]) -> None:
        """On rank 0 only: printed, and kept."""
        self._document.setdefault("lines", []).extend(lines)
        print("\n".join(lines), flush=True)


def own_lines(clock_ns: float, step_ns: int, chunk_ns: float) -> list[str]:
    """The cost of a time stamp and of a chunk."""
    return [
        _line("clock", f"{clock_ns:.1f} ns a call, steps of {step_ns} ns"),
        _line("engine, null plugin", f"{chunk_ns:.1f} ns a chunk"),
    ]


def skew_lines(skews_ns: NDArray[np.int64]) -> list[str]:
    """The lines on how far apart ranks leave a barrier."""
    if skews_ns.size == 0:
        return [_line("barrier skew", "n/a: the ranks have no common clock")]
    median, worst = np.quantile(skews_ns, (0.5, 0.95)) / 1e3
    return [_line("barrier skew", f"{median:.1f} us, p95 {worst:.1f} us, of {skews_ns.size}")]


def quiet_lines(ranks: Sequence[Quiet]) -> list[str]:
    """The rank that was disturbed most, in each respect."""
    lost = max(range(len(ranks)), key=lambda r: ranks[r].lost_share)
    noisy = max(range(len(ranks)), key=lambda r: ranks[r].noise)
    steals = [each.steal_share for each in ranks if each.steal_share == each.steal_share]
    worst = ranks[lost]
    return [
        _line(
            "interruptions",
            f"{100 * worst.lost_share:.2f} % of a CPU's time, the longest "
            f"{worst.longest_ns / 1e3:.0f} us (rank {lost})",
        ),
        _line("noise floor", f"{100 * ranks[noisy].noise:.2f} % (pieces of 1 ms, p95 over the "
              f"fastest; rank {noisy})"),
        _line("steal", f"{100 * max(steals):.2f} % of CPU time" if steals else "n/a"),
    ]  # fmt: skip


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value != value else value for name, value in values.items()}


def _line(what: str, text: str) -> str:
    return f"  {what:<22} {text}"

"""One row on one rank, its transports made up: whose turn it is, what is poisoned and checked."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import invented
import numpy as np
import pytest

from tcpx_mpi import _native
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.machine.placement import Placement
from tcpx_mpi.records import PHASES, BaselineInfo, RankRow, SideKey
from tcpx_mpi.run import run_batch
from tcpx_mpi.run.common_clock import CommonClock
from tcpx_mpi.run.measure import Measurement
from tcpx_mpi.run.run_batch import PLUGIN
from tcpx_mpi.schedule.table import BufferId
from tcpx_mpi.transport.interface import RankContext, TimedLoop
from tcpx_mpi.transport.slots import GUARD_BYTES, plan_row, slot_shape
from tcpx_mpi.workload import workload_of

RANK, WORLD = 1, 2  # the receiver of a pair
SIZE, ITERS, WARMUPS, SLOTS, SEED = 1000, 15, 3, 32, 7
BLOCKS = [2] * 7 + [1]


class OneRank:
    """A world in which the other rank always agrees."""

    rank, size = RANK, WORLD
    places = ("host0", "host0")

    @property
    def roll_call(self) -> OneRank:
        return self  # nobody calls it

    def name(self, rank: int) -> str:
        return f"rank {rank} on {self.places[rank]}"

    def barrier(self, what: str, patience_s: float, while_alive: bool = False) -> None:
        pass

    def maximum(self, value: int, what: str, patience_s: float, while_alive: bool = False) -> int:
        return value

    def alarmed(self) -> bool:
        return False

    def answer_inquiries(self) -> None:
        pass


class Stopped:
    """A clock that stands still, at 0."""

    def now_ns(self) -> int:
        return 0

    def suspended_ns(self) -> int:
        return 0


class Wire:
    """What the sender of the pair has sent: the same for all transports, as the frame counts it."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.iteration = 0
        #: Of each batch how far its agreed start lay ahead.
        self.leads: list[int] = []
        #: (name, first slot, iterations, whether every byte to come was poisoned) of each batch.
        self.batches: list[tuple[str, int, int, bool]] = []

    def slot(self, number: int) -> Any:
        begin = number * slot_shape(SIZE).stride_bytes
        return self.memory.view()[begin : begin + SIZE]

    def guard(self, number: int) -> Any:
        """The bytes behind a slot that nobody may write."""
        begin = number * slot_shape(SIZE).stride_bytes + SIZE
        return self.memory.view()[begin : begin + GUARD_BYTES]

    def bytes_of(self, iteration: int) -> Any:
        return np.frombuffer(_native.payload(SIZE, SEED, 0, iteration, 0), np.uint8)


class InventedLoop:
    """Delivers at once all that was sent, less `short` bytes at the end of each message, and as
    many too many if that is negative. A `late` one misses every start.
    """

    def __init__(self, name: str, wire: Wire, short: int, late: bool) -> None:
        self.name, self.wire, self.short, self.late = name, wire, short, late

    def start(
        self, first_slot: int, iterations: int, start_ns: int, stall_ns: int, end_by_ns: int
    ) -> None:
        wire = self.wire
        assert self.armed == iterations
        poisoned = True
        wire.leads.append(start_ns - _native.now_ns())
        begin = max(start_ns, _native.now_ns())
        self.begin = begin
        for k in range(iterations):
            there, due = wire.slot(first_slot + k), wire.bytes_of(wire.iteration + k)
            poisoned &= bool((there != due).all())
            there[: SIZE - self.short] = due[: SIZE - self.short]
            wire.guard(first_slot + k)[: max(-self.short, 0)] += 1
        wire.iteration += iterations
        wire.batches.append((self.name, first_slot, iterations, poisoned))

    def wait(self, seconds: float) -> bool:
        return True

    def arm(self, iterations: int) -> None:
        self.armed = iterations

    def request_stop(self) -> None:
        raise AssertionError("nobody asked for that")

    def idle_ns(self) -> int:
        return 0

    def stamps(self, iterations: int) -> _native.Stamps:
        ends = self.begin + 1000 * (1 + np.arange(iterations, dtype=np.int64))
        none = np.full(iterations, -1, np.int64)
        return _native.Stamps(self.begin, self.late, ends, none, ends)

    def cpu_time(self) -> tuple[int, int, int]:
        return 30, 20, 1

    def thread_id(self) -> int:
        return threading.get_native_id()

    def cpus_seen(self) -> list[int]:
        return [0]

    def fault(self) -> None:
        return None

    def picture(self) -> list[_native.FlowReport]:
        return []

    def take_picture_ready(self) -> bool:
        return False

    def sockets(self) -> dict[str, Any]:
        return {"sent": 0, "received": 0, "retransmits": 0, "rtt_us": 0, "readable": 0,
                "count": 0}  # fmt: skip


class InventedTransport:
    """The plugin's transport (without a name), or a baseline."""

    def __init__(self, name: str, wire: Wire, short: int = 0, late: bool = False) -> None:
        self.info: BaselineInfo | None = invented.baseline(name) if name else None
        self.timed_loop: TimedLoop = InventedLoop(name, wire, short, late)
        self.buffers = {BufferId.RECV: wire.memory}
        #: All transports but the plugin have a process; this one will do.
        self.processes: Sequence[int] = [os.getpid()] * bool(name)
        self.in_place = False
        self.loads = 0

    def has(self, facts: Any) -> bool:
        return True

    def load(self, context: RankContext, facts: Any, layout: Any, longest_batch: int) -> None:
        self.loads += 1
        assert longest_batch == max(*BLOCKS, WARMUPS)

    def close(self) -> None:
        pass


def measured(
    names: Sequence[str], short: str = "none", **options: str
) -> tuple[RankRow, list[tuple[str, int, int, bool]]]:
    """A row of the plugin and these baselines; the transport `short` leaves the last byte out."""
    row, wire = measured_over_wire(names, {short: 1}, **options)
    return row, wire.batches


def measured_over_wire(
    names: Sequence[str], short: Mapping[str, int], late: bool = False, **options: str
) -> tuple[RankRow, Wire]:
    settings = load_settings(
        {"pattern": "pair", "seed": str(SEED), "iters": str(ITERS), **options}, {}
    )
    workload = workload_of(settings, WORLD)
    memory = _native.SlotBuffer(SLOTS * slot_shape(SIZE).stride_bytes)
    context = RankContext(
        workload.connecting_pattern.schedule(RANK, WORLD),
        {BufferId.RECV: memory},
        Placement(RANK, WORLD, 0, -1, False),
        "lo",
        ["here"] * 2,
    )
    wire = Wire(memory)
    transports = [InventedTransport(name, wire, short.get(name, 0), late) for name in ("", *names)]
    measurement = Measurement(
        OneRank(), workload, context, transports, None,  # type: ignore[arg-type]  # a world
        CommonClock(OneRank(), ["one"] * WORLD, Stopped()), end_by_ns=0,  # type: ignore[arg-type]  # a world
    )  # fmt: skip
    facts = invented.row_facts(
        0, size_bytes=SIZE, count=SIZE, slots=SLOTS, iterations=ITERS, warmup_iterations=WARMUPS
    )
    row, _ = measurement.measure(facts, plan_row(SLOTS, ITERS, WARMUPS, 8))
    assert [each.loads for each in transports] == [1] * len(transports)
    return row, wire


def test_blocks_go_back_and_forth_so_that_drift_falls_on_all_alike() -> None:
    _, batches = measured(["raw", "raw_4", "mpi"])
    there, back = ["", "raw", "raw_4", "mpi"], ["mpi", "raw_4", "raw", ""]
    assert [name for name, *_ in batches] == there + (there + back) * 4
    assert [count for _, _, count, _ in batches] == [WARMUPS] * 4 + [
        n for n in BLOCKS for _ in there
    ]
    assert {first for _, first, _, _ in batches} == {0}, "all transports use the same slots"


def test_every_side_finds_its_slots_poisoned_and_the_payload_of_no_iteration_before() -> None:
    _, batches = measured(["raw", "mpi"])
    assert all(poisoned for *_, poisoned in batches)
    _, unchecked = measured(["raw", "mpi"], check="0")
    assert [poisoned for *_, poisoned in unchecked] != [True] * len(unchecked)


def test_a_row_pays_for_the_checks_of_what_was_timed_and_not_of_warm_ups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(run_batch.time, "monotonic_ns", lambda: next(ticks))
    row, batches = measured([])
    timed = [iterations for _, _, iterations, _ in batches[-len(batches) :]]
    assert sum(timed) == ITERS + WARMUPS
    assert row.check_ns == row.prepare_ns == len(batches) - 1  # all but the one of warm-ups


def test_every_side_has_all_its_samples_in_its_own_row() -> None:
    row, _ = measured(["raw", "mpi"])
    assert list(row.sides) == [SideKey("raw"), SideKey("mpi")]
    for side in (row, *row.sides.values()):
        for phase in PHASES:
            assert side.samples[phase].shape == (ITERS,)
            assert side.warmup[phase].shape == (WARMUPS,)
        assert side.batches.tolist() == BLOCKS
        assert side.batch_start.size == side.late.size == len(BLOCKS)
        assert (side.cpu_user_ns, side.cpu_system_ns, side.cpu_others_ns) == (240, 160, 8)
        assert (side.checked, side.wrong, side.fault) == (True, 0, "")
        assert side.payload_bytes_received == SIZE * ITERS
    assert all(not side.sides for side in row.sides.values())


@pytest.mark.parametrize("short", ["", "raw", "mpi"])
def test_a_byte_that_did_not_come_is_wrong_for_the_side_that_did_not_bring_it(short: str) -> None:
    row, _ = measured(["raw", "mpi"], short)
    sides = {PLUGIN: row, **{side.name: each for side, each in row.sides.items()}}
    wrong = {name: side.wrong for name, side in sides.items()}
    assert wrong == {name: ITERS + WARMUPS if name == short else 0 for name in sides}
    assert [name for name, side in sides.items() if side.fault] == [short]
    assert f"offset {SIZE - 1}: expected" in sides[short].fault


def test_a_byte_behind_a_message_is_as_wrong_as_one_within() -> None:
    row, _ = measured_over_wire(["raw"], {"raw": -1})
    assert (row.wrong, row.sides[SideKey("raw")].wrong) == (0, ITERS + WARMUPS)


def test_a_side_is_beside_the_processes_of_the_others_and_not_its_own() -> None:
    row, _ = measured(["nccl"])
    assert row.proof.waiting_cpu_ns >= 0
    assert row.sides[SideKey("nccl")].proof.waiting_cpu_ns == -1


def test_who_is_late_is_given_twice_the_time_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "now_ns", lambda: 0)
    first, longest = 500_000, 8_000_000
    assert set(measured_over_wire([], {})[1].leads) == {first}
    leads = measured_over_wire([], {}, late=True)[1].leads
    assert leads == [min(first << number, longest) for number in range(1 + len(BLOCKS))]


def test_unchecked_sides_claim_nothing() -> None:
    row, _ = measured(["raw"], "raw", check="0")
    for side in (row, row.sides[SideKey("raw")]):
        assert (side.checked, side.wrong, side.fault) == (False, -1, "")


def test_alone_the_plugin_has_every_turn() -> None:
    row, batches = measured([])
    assert row.sides == {}
    assert [count for _, _, count, _ in batches] == [WARMUPS, *BLOCKS]


def test_where_every_iteration_starts_together_a_side_keeps_its_turn_for_a_whole_block() -> None:
    row, batches = measured(["raw"], blocking="1")
    # A block of two is two batches of one slot each, one after the other.
    first = [(name, slot) for name, slot, _, _ in batches[2 * WARMUPS :]][:8]
    assert first == [("", 0), ("", 1), ("raw", 0), ("raw", 1), ("raw", 0), ("raw", 1), ("", 0),
                     ("", 1)]  # fmt: skip
    assert {count for _, _, count, _ in batches} == {1}
    assert all(poisoned for *_, poisoned in batches)
    assert row.sides[SideKey("raw")].batches.tolist() == BLOCKS
    assert row.sides[SideKey("raw")].samples["iteration"].shape == (ITERS,)

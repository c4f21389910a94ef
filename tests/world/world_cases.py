"""Cases for `mpirun -n 3 pytest --with-mpi`: `tcpx_mpi.world` between real ranks."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import numpy as np
import pytest

from tcpx_mpi import world as mpi
from tcpx_mpi.errors import ExitCode, LostRank, SetupFailed, UsageError
from tcpx_mpi.machine.disciplined_clock import Word
from tcpx_mpi.run.common_clock import CommonClock
from tcpx_mpi.world import AgreedError, Alarm, Answer, World, collectives, liveness

pytestmark = pytest.mark.mpi(min_size=3)
PATIENCE_S = 20.0


def go_on() -> None:
    """All ranks into the next test together. The world's barrier would hear the roll call of it,
    which a rank may begin while another still looks whether all have come."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()


@pytest.fixture(scope="module")
def world() -> World:
    return mpi.start(lambda: 0, os.environ)


def test_every_rank_gets_every_value(world: World) -> None:
    values = world.allgather({"rank": world.rank, "text": "x" * world.rank}, "test", PATIENCE_S)
    assert values == [{"rank": r, "text": "x" * r} for r in range(world.size)]


def test_only_rank_0_gets_what_is_gathered(world: World) -> None:
    values = world.gather(world.rank * 10, "test", PATIENCE_S)
    assert values == ([0, 10, 20] if world.rank == 0 else None)


@pytest.mark.parametrize("parcel_bytes", [24, 72, 1 << 20])
def test_series_are_gathered_in_parcels(
    world: World, monkeypatch: pytest.MonkeyPatch, parcel_bytes: int
) -> None:
    monkeypatch.setattr(collectives, "_PARCEL_BYTES", parcel_bytes)
    asked: list[int] = []
    finish = world._finish
    monkeypatch.setattr(world, "_finish", lambda *step: (asked.append(1), finish(*step)))
    lengths = (5, 0, 1, 7)
    # Each rank has them in an order of its own.
    order = [lengths[(at + world.rank) % len(lengths)] for at in range(len(lengths))]
    series = {n: np.arange(n) + 100 * n + 1000 * world.rank for n in order}
    found = world.gather_series(series, "test", PATIENCE_S)
    # Two are the allgather's.
    values_a_parcel = parcel_bytes // 8 // world.size
    assert len(asked) - 2 == -(-sum(lengths) // values_a_parcel)
    if world.rank:
        assert found is None
        return
    assert found is not None
    assert set(found) == set(lengths)
    for n, values in found.items():
        assert values.dtype == np.int64
        assert values.tolist() == [
            (np.arange(n) + 100 * n + 1000 * rank).tolist() for rank in range(world.size)
        ]


@pytest.mark.parametrize("own", [{"a": 3}, {"a": 2, "b": 1}, {"b": 2}])
def test_other_series_are_refused_by_all_ranks(world: World, own: dict[str, int]) -> None:
    lengths = own if world.rank == 1 else {"a": 2}
    series = {key: np.zeros(n, np.int64) for key, n in lengths.items()}
    with pytest.raises(ValueError, match="ranks have other numbers"):
        world.gather_series(series, "test", PATIENCE_S)


def test_each_rank_gets_what_was_meant_for_it_also_nothing(world: World) -> None:
    outgoing = [bytes([world.rank, peer]) * peer for peer in range(world.size)]
    incoming = world.exchange(outgoing, "test", PATIENCE_S)
    assert incoming == [bytes([peer, world.rank]) * world.rank for peer in range(world.size)]


def test_the_maximum_is_that_of_all_ranks(world: World) -> None:
    assert world.maximum(-5 + world.rank, "test", PATIENCE_S) == world.size - 6


def test_an_error_on_one_rank_is_raised_on_all_and_names_it(world: World) -> None:
    def step() -> None:
        with world.agree("step", PATIENCE_S):
            if world.rank == 1:
                raise UsageError("no such thing")

    with pytest.raises(AgreedError, match=r"^rank 1: no such thing$") as caught:
        step()
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.rank == 1


def test_the_same_error_on_all_ranks_names_none(world: World) -> None:
    with pytest.raises(AgreedError, match=r"^all alike$"), world.agree("step", PATIENCE_S):
        raise UsageError("all alike")


def test_who_fails_in_a_step_in_which_all_wait_for_each_other_ends_the_wait(world: World) -> None:
    def step() -> None:
        with world.agree("step", PATIENCE_S, tell=True):
            if world.rank == 1:
                raise SetupFailed("the cause")
            while not world.others_failed():
                time.sleep(0.001)
            error = SetupFailed(f"waited here on {world.rank}")
            error.second_hand = 2
            raise error

    with pytest.raises(AgreedError) as caught:
        step()
    assert str(caught.value) == "rank 1: the cause; rank 0: waited here on 0"


def test_a_failed_step_has_its_say_at_a_roll_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "ROLL_CALL_S", PATIENCE_S)  # the machine may be busy
    code, text = 0, ""
    if world.rank == 1:
        text = "hangs here"
    else:
        with pytest.raises(SetupFailed) as caught, world.agree("step", PATIENCE_S):
            raise SetupFailed("too late")
        code, text = 4, str(caught.value)
        assert text == f"rank {world.rank}: too late"
    answers = world.roll_call.call(Answer(world.rank, code, text, (), 1 if code else 0))
    if world.rank == 0:
        assert answers[2] == Answer(2, 4, "rank 2: too late", (), 1)
        world.roll_call.dismiss(4, answers)
    else:
        assert world.roll_call.await_dismissal(99) == 4
    # Nobody can take back the first collective of an allgather: the late rank completes it.
    if world.rank == 1:
        mine, sizes = np.zeros(1, np.int64), np.zeros(world.size, np.int64)
        world._finish(world._comm.Iallgather(mine, sizes), "step", PATIENCE_S)
    go_on()


def test_who_is_there_tells_whom_it_has_seen_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than this may take, for who is to wait for nobody in vain.
    monkeypatch.setattr(liveness, "PRESENCE_S", 0.1 if world.rank == 2 else 1000.0)
    heard = world.roll_call.present([2] if world.rank == 1 else [])
    if world.rank == 1:
        assert heard[0] == []  # and waited no longer for rank 2, which it has seen end
    else:
        assert heard.get(1) == ([2] if world.rank == 0 else None)
    go_on()


def test_a_rank_that_is_seen_to_have_died_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "ROLL_CALL_S", 1000.0)  # longer than this may take
    if world.rank == 2:
        heard = 0  # what the others tell all ranks: left there, it would be an alarm later
        while heard < 2:
            heard += world.roll_call._take_message(liveness._ALARM_TAG) is not None
            time.sleep(0.001)
    else:
        answers = world.roll_call.call(Answer(world.rank, 7, "lost"), lambda: {2})
        assert sorted(answers) == [0, 1]
    go_on()


def test_a_rank_that_does_not_come_is_noticed_within_the_patience(world: World) -> None:
    from mpi4py import MPI

    if world.rank == 2:
        for peer in (0, 1):
            MPI.COMM_WORLD.recv(source=peer)
        # Nobody can take a barrier back: the late rank completes it.
        world.barrier("somewhere", PATIENCE_S)
    else:
        with pytest.raises(LostRank, match="not all ranks came to `somewhere`"):
            world.barrier("somewhere", 0.2)
        MPI.COMM_WORLD.send("gave up", dest=2)
    go_on()


class Arriving:
    """A request that is complete at the n-th look: all of MPI's that `_finish` uses, which no type
    says, so its uses have a `type: ignore`."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def Test(self) -> bool:  # mpi4py's name
        self.looks -= 1
        return self.looks < 0


def pass_time_in_sleeps(monkeypatch: pytest.MonkeyPatch, sleep_s: float, first_s: float) -> None:
    passed = [0.0, first_s]
    real = time.monotonic

    def sleep(_: float) -> None:
        passed[0] += passed.pop() if len(passed) > 1 else sleep_s

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: real() + passed[0])


def test_what_has_come_by_the_deadline_is_not_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    spins = collectives._SPINS_BEFORE_SLEEP
    pass_time_in_sleeps(monkeypatch, 0.9, 0.9)
    world._finish(Arriving(spins), "it", 0.5)  # type: ignore[arg-type]
    with pytest.raises(LostRank, match="not all ranks came to `it`"):
        world._finish(Arriving(spins + 9), "it", 0.5)  # type: ignore[arg-type]
    go_on()


def test_time_in_which_this_process_was_stopped_is_no_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_time_in_sleeps(monkeypatch, 0.001, 1000)
    world._finish(Arriving(collectives._SPINS_BEFORE_SLEEP + 20), "it", 5.0)  # type: ignore[arg-type]
    go_on()


def test_a_roll_call_draws_in_ranks_that_wait_and_lets_all_go_with_one_code(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "ROLL_CALL_S", PATIENCE_S)  # the machine may be busy
    if world.rank == 1:
        trouble: Exception = UsageError("trouble here")
    else:
        with pytest.raises(Alarm) as caught:
            world.barrier("waiting", PATIENCE_S)
        trouble = caught.value
    code = 6 if world.rank == 1 else 0
    answers = world.roll_call.call(Answer(world.rank, code, str(trouble), ("line",)))
    assert answers[world.rank].text == str(trouble)
    if world.rank == 0:
        assert sorted(answers) == [0, 1, 2]
        assert answers[1] == Answer(1, 6, "trouble here", ("line",))
        world.roll_call.dismiss(6, answers)
    else:
        assert min(answers) == 0  # else two ranks would speak for all
        assert world.roll_call.await_dismissal(99) == 6
    if world.rank == 1:
        world.barrier("waiting", PATIENCE_S)


def test_a_rank_that_comes_when_the_roll_call_is_over_has_heard_who_dismisses(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpi4py import MPI

    # Of its own: what nobody reads here must not alarm another test.
    world = World(MPI.COMM_WORLD, lambda: 0)
    if world.rank == 0:
        monkeypatch.setattr(liveness, "ROLL_CALL_S", 0.0)
        world.roll_call.dismiss(6, world.roll_call.call(Answer(0, 6, "trouble here")))
        MPI.COMM_WORLD.send("over", dest=2)
    elif world.rank == 2:
        MPI.COMM_WORLD.recv(source=0)
        answers = world.roll_call.call(Answer(2, 0, "late"))
        assert answers[0] == Answer(0, 6, "trouble here")
        assert world.roll_call.dismissal(PATIENCE_S) == 6


@dataclass
class Lying:
    """A clock that is days ahead of this machine's, drifts, and tells its time late."""

    rank: int
    late_ns: int

    def of(self, true_ns: int) -> int:
        return true_ns + self.rank * 172_800 * 10**9 + round(self.rank * 20e-6 * true_ns)

    def now_ns(self) -> int:
        told = time.monotonic_ns()
        while time.monotonic_ns() < told + self.late_ns:
            pass  # its word is on its way for so long: one direction is slower
        return self.of(told)

    def suspended_ns(self) -> int:
        return 0


@pytest.mark.parametrize("late_ns", [0, 100_000, 5_000_000])
def test_clocks_that_lie_are_put_on_one_time_within_the_bound(world: World, late_ns: int) -> None:
    source = Lying(world.rank, late_ns)
    clock = CommonClock(world, [str(rank) for rank in range(world.size)], source)
    clock.begin_row(PATIENCE_S)
    began = time.monotonic_ns()
    start = clock.agreed_start(500_000, "start", PATIENCE_S)
    ended = time.monotonic_ns()
    found = clock.end_row(PATIENCE_S)
    assert found is not None
    # One machine, and so one true time: rank 0's is 0 ahead.
    truth = np.linspace(began, ended, 7).astype(np.int64)
    seen = np.array([source.of(int(at)) for at in truth])
    bound = found.tree.bound_ns(world.rank)
    assert np.abs(found.tree.to_common(world.rank, seen) - truth).max() <= bound
    assert bound >= (late_ns / 2 if world.rank else 0)
    assert all(fit.moved_ns == 0 for fit in found.fits)
    # All mean one instant.
    starts = world.allgather(found.tree.to_common(world.rank, start), "starts")
    assert max(starts) - min(starts) <= 2 * found.bound_ns


def test_the_next_row_begins_with_the_last_knots_of_the_one_before(world: World) -> None:
    clock = CommonClock(world, [str(rank) for rank in range(world.size)], Lying(world.rank, 0))
    clock.begin_row(PATIENCE_S)
    first, second = clock.end_row(PATIENCE_S), clock.end_row(PATIENCE_S)
    assert first is not None
    assert second is not None
    for number, edge in first.tree.edges.items():
        assert len(edge.knots) == 2
        assert second.tree.edges[number].knots[0] == edge.knots[-1]
    assert sorted(set(second.trips[:, 0].tolist())) == [1, 2]


@dataclass
class Broken(Lying):
    """One that is stepped, and whose machine was suspended, when a test says so."""

    stepped_ns: int = 0
    slept_ns: int = 0

    def of(self, true_ns: int) -> int:
        return super().of(true_ns) + self.stepped_ns

    def suspended_ns(self) -> int:
        return self.slept_ns


@pytest.mark.parametrize("by_ns", [3_000_000_000, -3_000_000_000])
def test_a_step_of_a_clock_is_told_of_its_row_and_in_the_bound(world: World, by_ns: int) -> None:
    source = Broken(world.rank, 0)
    clock = CommonClock(world, [str(rank) for rank in range(world.size)], source)
    clock.begin_row(PATIENCE_S)
    before = clock.end_row(PATIENCE_S)
    if world.rank == 2:
        source.stepped_ns = by_ns
    found, after = clock.end_row(PATIENCE_S), clock.end_row(PATIENCE_S)
    for row, moved in ((before, False), (found, True), (after, False)):
        assert row is not None
        one, other = row.fits
        assert one.moved_ns == 0
        # By as much, but for what the round trips leave open.
        assert other.moved_ns == pytest.approx(abs(by_ns) * moved, rel=0.1)
        assert (other.bound_ns > 2e9) is moved
        assert (row.tree.bound_between_ns(0, 1) > 1e9) is False


def test_a_suspended_machine_is_told_once_by_how_long(world: World) -> None:
    source = Broken(world.rank, 0, slept_ns=world.rank * 10**12)
    clock = CommonClock(world, [str(rank) for rank in range(world.size)], source)
    clock.begin_row(PATIENCE_S)
    source.slept_ns += 7_000_000_000 * (world.rank == 1)
    found, after = clock.end_row(PATIENCE_S), clock.end_row(PATIENCE_S)
    assert found is not None
    assert [fit.suspended_ns for fit in found.fits] == [7_000_000_000, 0]
    assert after is not None
    assert [fit.suspended_ns for fit in after.fits] == [0, 0]


@pytest.mark.parametrize("lie_ns", [0, 5_000_000_000])
def test_the_word_of_what_keeps_the_clocks_is_named_and_a_lie_is_not_believed(
    world: World, lie_ns: int
) -> None:
    source = Lying(world.rank, 0)

    def keeps() -> Word:
        # A time that all have: this machine's own.
        true_ns = time.monotonic_ns()
        ahead = true_ns - source.of(true_ns) + lie_ns * (world.rank == 1)
        return Word("PTP", "one master", ahead, 300)

    clock = CommonClock(world, [str(rank) for rank in range(world.size)], source, keeps)
    clock.begin_row(PATIENCE_S)
    found = clock.end_row(PATIENCE_S)
    assert found is not None
    one, other = found.fits
    assert other.source == "PTP"
    assert other.bound_ns < 10_000  # 600, and what the drift makes of a look that takes a while
    assert one.source == ("round trips" if lie_ns else "PTP")
    assert (one.contradicted_ns > 4e9) is bool(lie_ns)


def test_ranks_of_one_clock_send_nothing_for_it(world: World) -> None:
    clock = CommonClock(world, ["one"] * world.size)
    clock.begin_row(PATIENCE_S)
    before = time.monotonic_ns()
    start = clock.agreed_start(500_000, "start", PATIENCE_S)
    assert start >= before + 500_000
    assert world.allgather(start, "starts") == [start] * world.size
    assert clock.end_row(PATIENCE_S) is None

"""The collective acts of all ranks: exchange, agree, start at once. Each call has its deadline.

Every collective is non-blocking and polled with a deadline, so that a rank that hangs is named
instead of hanging all.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import pickle
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.arrays import Int64s
from tcpx_mpi.errors import ExitCode, Interrupted, LostRank, TcpxError
from tcpx_mpi.launch.watch import DEFAULT_S, OTHERS_LEAD_S, ROLL_CALL_LEAD_S, SET_UP, Phase
from tcpx_mpi.records import mapped_arrays
from tcpx_mpi.world.at_work import at_work
from tcpx_mpi.world.liveness import ROLL_CALL_S, Alarm, RollCall, interrupted_by
from tcpx_mpi.world.processes import Process, state_of

if TYPE_CHECKING:
    from mpi4py import MPI

_Key = TypeVar("_Key", bound=Hashable)
_NOTHING = np.empty(0, dtype=np.uint8)
#: Of messages by which two ranks compare their clocks.
_CLOCK_TAG = 45

#: Series are gathered in parcels of so much of all ranks: MPI counts what a call takes in 31 bits.
_PARCEL_BYTES = 1 << 23
#: A wait for others who may still move bytes looks for their signs of life from this age on.
_LONG_WAIT_S = 0.1
#: A poll yields so often, then sleeps: other ranks of this node may need the core to arrive.
_SPINS_BEFORE_SLEEP = 200
_POLL_S = 0.00005
#: Who needs longer for a poll was stopped, and has not waited meanwhile.
_STOPPED_S = 1.0
#: `second_hand` of a rank that has ended its step because others have told of theirs.
_WAITED = 2


class AgreedError(TcpxError):
    """An error of at least one rank that all ranks know of; `rank` is the lowest that had it."""

    def __init__(self, text: str, exit_code: ExitCode, rank: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.rank = rank


class World:
    """All ranks of a run. `stop_signal` tells which signal has asked this process to stop, or 0."""

    def __init__(self, comm: MPI.Intracomm, stop_signal: Callable[[], int]) -> None:
        self._comm = comm
        self._stop_signal = stop_signal
        self.roll_call = RollCall(comm.Dup(), stop_signal)
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        #: The host of every rank and its network interface, as far as they are known by now.
        self.places: list[str] = [""] * self.size
        #: Every rank's process, once they are known.
        self.processes: list[Process] = []
        #: What part of the run this is, and how long a step of it may take.
        self.phase, self.limit_s = SET_UP, DEFAULT_S

    def enter(self, phase: Phase, limit_s: float) -> None:
        """From now on a step, and a call of the plugin, may take as long as this phase's option
        says."""
        self.phase, self.limit_s = phase, limit_s
        _native.watch_enter(phase.option, limit_s, int(phase.hang))

    def name(self, rank: int) -> str:
        """A rank and its place: "rank 3 on HOST (NIC eth1)"."""
        return f"rank {rank} on {self.places[rank]}" if self.places[rank] else f"rank {rank}"

    def beside(self) -> dict[int, str]:
        """The ranks of this node, this one too, and the state of each process (see `state_of`)."""
        if not self.processes:
            return {}
        here = self.processes[self.rank].where
        seen = enumerate(self.processes)
        return {rank: state_of(each.pid) for rank, each in seen if each.where == here}

    def died(self) -> set[int]:
        """The ranks of this node that have ended, as seen now."""
        return {rank for rank, state in self.beside().items() if not state}

    def living(self) -> set[int]:
        """The ranks of this node that have neither ended nor been stopped; this one at least."""
        states = self.beside().items()
        return {rank for rank, state in states if state and state not in "Tt"} | {self.rank}

    def at_work(self) -> contextlib.AbstractContextManager[None]:
        """Around what this rank does before a step in which the others wait `while_alive`."""
        return at_work(self.roll_call)

    def absent(self) -> set[int]:
        """The ranks of this node that have ended or were stopped: they will not answer."""
        states = self.beside().items()
        return {rank for rank, state in states if not state or state in "Tt"} - {self.rank}

    def asked_to_stop(self) -> bool:
        """Whether a signal has asked this process to stop."""
        return self._stop_signal() != 0

    # --- Collectives: every rank calls these, in the same order ------------------------------

    def allgather(
        self, value: object, what: str, patience_s: float | None = None, while_alive: bool = False
    ) -> list[Any]:
        """Collective: every rank's value, by rank. `what` names the step in an error;
        `while_alive` is as in `barrier`."""
        blob = np.frombuffer(pickle.dumps(value, protocol=5), dtype=np.uint8)
        sizes = np.zeros(self.size, dtype=np.int64)
        mine = np.array([blob.size], dtype=np.int64)
        self._finish(self._comm.Iallgather(mine, sizes), what, patience_s, while_alive)
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        everything = np.empty(int(offsets[-1]), dtype=np.uint8)
        spec: Any = [everything, (sizes.tolist(), offsets[:-1].tolist()), self._byte_type()]
        self._finish(self._comm.Iallgatherv(blob, spec), what, patience_s)
        return [pickle.loads(everything[a:b].data) for a, b in _spans(offsets)]

    def gather(self, value: object, what: str, patience_s: float | None = None) -> list[Any] | None:
        """Collective: every rank's value on rank 0, None elsewhere."""
        blob = np.frombuffer(pickle.dumps(value, protocol=5), dtype=np.uint8)
        sizes = np.zeros(self.size, dtype=np.int64)
        mine = np.array([blob.size], dtype=np.int64)
        self._finish(self._comm.Igather(mine, sizes, root=0), what, patience_s)
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        everything = np.empty(int(offsets[-1]), dtype=np.uint8)
        spec: Any = None
        if self.rank == 0:
            spec = [everything, (sizes.tolist(), offsets[:-1].tolist()), self._byte_type()]
        self._finish(self._comm.Igatherv(blob, spec, root=0), what, patience_s)
        if self.rank != 0:
            return None
        return [pickle.loads(everything[a:b].data) for a, b in _spans(offsets)]

    def gather_series(
        self,
        series: Mapping[_Key, Int64s],
        what: str,
        patience_s: float | None = None,
        spool: str | None = None,
    ) -> dict[_Key, Int64s] | None:
        """Collective: of each series, by its key, int64[rank, value] on rank 0, None elsewhere.

        They may be larger than memory is; `spool` is as in `mapped_arrays`. Raises ValueError, on
        all ranks, if ranks do not have the same keys with series as long as each other's;
        OutputFailed on rank 0 if its disk has no room.
        """
        own = {key: values.size for key, values in series.items()}
        everybodys = self.allgather(own, what, patience_s)
        if any(lengths != own for lengths in everybodys):
            raise ValueError(f"{what}: ranks have other numbers of them")
        lengths: dict[_Key, int] = everybodys[0]  # in the order of rank 0, on all
        whole: dict[_Key, Int64s] = {}
        if self.rank == 0:
            for key, length in lengths.items():
                whole[key] = mapped_arrays.empty((self.size, length), np.int64, spool)
        for parcel in _parcels(lengths, max(_PARCEL_BYTES // 8 // self.size, 1)):
            mine = np.concatenate([series[key][part] for key, part in parcel])
            everybody = np.empty((self.size if self.rank == 0 else 0, mine.size), np.int64)
            self._finish(self._comm.Igather(mine, everybody, root=0), what, patience_s)
            if self.rank == 0:
                bounds = np.cumsum([part.stop - part.start for _, part in parcel])
                cut = np.split(everybody, bounds[:-1], axis=1)
                for (key, part), values in zip(parcel, cut, strict=True):
                    whole[key][:, part] = values
        return whole if self.rank == 0 else None

    def exchange(
        self, outgoing: list[bytes], what: str, patience_s: float | None = None
    ) -> list[bytes]:
        """Collective: outgoing[p] goes to rank p; returns what each rank sent here."""
        sizes = np.array([len(part) for part in outgoing], dtype=np.int64)
        incoming = np.zeros(self.size, dtype=np.int64)
        self._finish(self._comm.Ialltoall(sizes, incoming), what, patience_s)
        sent = np.frombuffer(b"".join(outgoing) or b"\0", dtype=np.uint8)
        offsets = np.concatenate(([0], np.cumsum(incoming)))
        received = np.empty(max(int(offsets[-1]), 1), dtype=np.uint8)
        send_offsets = np.concatenate(([0], np.cumsum(sizes)))[:-1]
        byte = self._byte_type()
        send_spec: Any = [sent, (sizes.tolist(), send_offsets.tolist()), byte]
        receive_spec: Any = [received, (incoming.tolist(), offsets[:-1].tolist()), byte]
        self._finish(self._comm.Ialltoallv(send_spec, receive_spec), what, patience_s)
        return [received[a:b].tobytes() for a, b in _spans(offsets)]

    def barrier(
        self, what: str, patience_s: float | None = None, while_alive: bool = False
    ) -> None:
        """Collective: nobody leaves before all have come.

        With `while_alive`, others may be at work for as long as it takes: a rank is late
        `patience_s` after its last sign of life, by this call or by `roll_call.answer_inquiries`.
        """
        self._finish(self._comm.Ibarrier(), what, patience_s, while_alive)

    def maximum(
        self, value: int, what: str, patience_s: float | None = None, while_alive: bool = False
    ) -> int:
        """Collective: the largest value of all ranks; `while_alive` is as in `barrier`."""
        mine = np.array([value], dtype=np.int64)
        largest = np.zeros(1, dtype=np.int64)
        from mpi4py import MPI

        self._finish(
            self._comm.Iallreduce(mine, largest, op=MPI.MAX), what, patience_s, while_alive
        )
        return int(largest[0])

    def acquainted(
        self, neighbours: Collection[int], patience_s: float | None = None
    ) -> MPI.Intracomm:
        """Collective: a communicator of its own over which this rank has met its neighbours, so
        that a library that connects at the first message has done so."""
        comm, request = self._comm.Idup()
        self._finish(request, "mpi peer", patience_s)
        requests = [comm.Irecv(np.empty(0, np.uint8), source=peer) for peer in neighbours]
        requests += [comm.Isend(_NOTHING, dest=peer) for peer in neighbours]
        for request in requests:
            self._finish(request, "mpi peer", patience_s)
        return comm

    # --- Two ranks at a time, by which their clocks are compared ----------------------------------

    def ask(
        self, peer: int, more: bool, now_ns: Callable[[], int], what: str, patience_s: float | None
    ) -> tuple[int, int, int]:
        """One round trip to a rank that `answer`s: when it was asked, what its clock then said, and
        when that was heard. `more`: another one will follow."""
        said = np.empty(1, np.int64)
        question = np.array([more], np.int64)
        reply = self._comm.Irecv(said, source=peer, tag=_CLOCK_TAG)
        asked = now_ns()
        sent = self._comm.Isend(question, dest=peer, tag=_CLOCK_TAG)
        self._finish(reply, what, patience_s, while_alive=True)
        heard = now_ns()
        self._finish(sent, what, patience_s)
        return asked, int(said[0]), heard

    def answer(
        self, peer: int, now_ns: Callable[[], int], what: str, patience_s: float | None
    ) -> bool:
        """The other side of `ask`; whether another one will follow."""
        question = np.empty(1, np.int64)
        asked = self._comm.Irecv(question, source=peer, tag=_CLOCK_TAG)
        self._finish(asked, what, patience_s, while_alive=True)
        mine = np.array([now_ns()], np.int64)
        self._finish(self._comm.Isend(mine, dest=peer, tag=_CLOCK_TAG), what, patience_s)
        return bool(question[0])

    @contextlib.contextmanager
    def agree(
        self,
        what: str,
        patience_s: float | None = None,
        tell: bool = False,
        while_alive: bool = False,
    ) -> Iterator[None]:
        """Collective around a local step: if it fails on any rank, all ranks raise AgreedError.

        A rank that hangs in its step is found by the others' deadline (LostRank), that of the phase
        where no other is given. With `tell` they wait for each other in it: who fails tells at
        once, and the others look by `others_failed`. `while_alive` is as in `barrier`.
        """
        error: TcpxError | None = None
        try:
            yield
        except (Interrupted, LostRank):
            raise
        except TcpxError as found:
            error = found
            if tell and error.second_hand < _WAITED:
                self.roll_call.tell_of_failure()
        verdict = None if error is None else (int(error.exit_code), str(error), error.second_hand)
        if error is not None and tell:
            patience_s = ROLL_CALL_S  # the others know, and have nothing to wait for any more
        try:
            verdicts = self.allgather(verdict, what, patience_s, while_alive=tell or while_alive)
        except (Alarm, LostRank):
            if error is None:
                raise
            error.args = (f"{self.name(self.rank)}: {error}",)
            raise error from None  # it says more at the roll call than who has called it, or why
        raise_agreed(verdicts, error, self.name)

    def others_failed(self) -> bool:
        """Whether another rank has failed in this step; raises Alarm when one calls the roll.

        Who asks is at work, and says so to those that have done their part.
        """
        self.roll_call.answer_inquiries()
        if self.roll_call.alarmed():
            raise Alarm
        return self.roll_call.failure_reported()

    def begun_connects(
        self, receivers: Collection[int], senders: Collection[int]
    ) -> Callable[[], bool]:
        """The begun connects of a step: this rank connects to `receivers`, and `senders` to it.

        What is returned is to be called from when its connects were begun until it says that those
        of all senders were, too. All ranks are done with one such step before the next one.
        """
        missing = set(senders)
        untold = [receivers]

        def begun() -> bool:
            if untold:
                self.roll_call.tell_of_connects(untold.pop())
            missing.difference_update(self.roll_call.connects_begun())
            return not missing

        return begun

    def _finish(
        self,
        request: MPI.Request,
        what: str,
        patience_s: float | None = None,
        while_alive: bool = False,
    ) -> None:
        """Poll a collective until it is complete; `while_alive` as in `barrier`.

        Raises LostRank after `patience_s`, Interrupted on a signal, Alarm when another rank calls
        the roll.
        """
        patience_s = self.limit_s if patience_s is None else patience_s
        left_s = _native.watch_left_s()
        in_set_up = left_s < math.inf
        if in_set_up:
            _native.watch_waits_for(f"the other ranks at the step `{what}`", ROLL_CALL_LEAD_S)
            patience_s = max(left_s, 0) + OTHERS_LEAD_S
        began = now = time.monotonic()
        deadline = began + patience_s
        alive: set[int] | None = None  # who has given a sign since all were asked
        spins = 0
        while not request.Test():
            spins += 1
            if spins < _SPINS_BEFORE_SLEEP:
                os.sched_yield()
                continue
            time.sleep(_POLL_S)  # between batches: who is late may need this core
            # What came meanwhile is not given up for a reason that came with it.
            if (signal_number := self._stop_signal()) and not request.Test():
                raise interrupted_by(signal_number)
            if self.roll_call.alarmed() and not request.Test():
                raise Alarm
            before, now = now, time.monotonic()
            if now - before > _STOPPED_S:
                deadline += now - before
            if while_alive and now - began > _LONG_WAIT_S:
                self.roll_call.answer_inquiries()
                if alive is None and now > deadline - patience_s / 2:
                    self.roll_call.inquire()
                    alive = set()
                if alive is not None:
                    alive.update(self.roll_call.signs())
                    if len(alive) == self.size - 1:
                        deadline, alive = now + patience_s, None
            if now > deadline and not request.Test():
                late = LostRank(f"not all ranks came to `{what}` within {patience_s:.3g} s")
                late.second_hand = 1  # who does not come may know why
                raise late
        if in_set_up:
            _native.watch_waits_for(f"its own work after the step `{what}`")

    def _byte_type(self) -> Any:
        from mpi4py import MPI

        return MPI.BYTE


def raise_agreed(
    verdicts: list[tuple[int, str, int] | None], own: TcpxError | None, name: Callable[[int], str]
) -> None:
    """Raise AgreedError if any rank's verdict is an error; equal input on all ranks, equal output.

    The error of the lowest rank that is nearest to the cause is the one that counts; what the next
    one saw of it second-hand follows. Ranks are named, by `name`, unless all say the same.
    """
    failed = sorted((verdict[2], rank, verdict) for rank, verdict in enumerate(verdicts) if verdict)
    if not failed:
        return
    _, first, (exit_code, text, _) = failed[0]
    alike = all(verdict is not None and verdict[1] == text for verdict in verdicts)
    where = "" if alike else f"{name(first)}: "
    others = [(rank, verdict) for away, rank, verdict in failed[1:] if away > 0]
    for rank, verdict in others[: 0 if alike else 1]:
        text += f"; {name(rank)}: {verdict[1]}"
    raise AgreedError(where + text, ExitCode(exit_code), first) from own


def _parcels(lengths: Mapping[_Key, int], most: int) -> Iterator[list[tuple[_Key, slice]]]:
    """Series one after the other in parcels of `most` values: which one, and what of it."""
    parcel: list[tuple[_Key, slice]] = []
    room = most
    for key, length in lengths.items():
        at = 0
        while at < length:
            end = min(at + room, length)
            parcel.append((key, slice(at, end)))
            room -= end - at
            at = end
            if not room:
                yield parcel
                parcel, room = [], most
    if parcel:
        yield parcel


def _spans(offsets: Any) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in itertools.pairwise(offsets)]

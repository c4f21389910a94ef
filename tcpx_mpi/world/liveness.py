"""Roll call when a rank hangs or dies: who is alive, who reports, how all leave together.

Messages of their own communicator, so that none is mixed up with a collective that hangs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.errors import ExitCode, Interrupted
from tcpx_mpi.world.library import library_version, load

if TYPE_CHECKING:
    from mpi4py import MPI

_NOTHING = np.empty(0, dtype=np.uint8)

#: How long the ranks that are alive may take to answer a roll call.
ROLL_CALL_S = 3.0
#: A rank that polls each millisecond and comes back later than this has waited for a CPU, as others
#: may: on a busy machine a roll call takes longer.
_TICK_S = 0.01
#: How long a rank waits to be dismissed after a roll call before it leaves on its own.
DISMISSAL_S = 5.0
#: How long ranks that a launcher ends may take to say that they are there: Open MPI 5 kills them
#: 0.25 s after its SIGTERM.
PRESENCE_S = 0.1
#: How long ranks wait for each other's last word, at most.
FAREWELL_S = 1.0

_ALARM_TAG = 1
_DISMISSAL_TAG = 2
_FAREWELL_TAG = 3
_INQUIRY_TAG = 4
_SIGN_TAG = 5
_FAILURE_TAG = 6
_HERE_TAG = 7
_BEGUN_TAG = 8


@dataclass(frozen=True)
class Answer:
    """A rank's answer at a roll call: its exit code, one line, and a report of any length."""

    rank: int
    exit_code: int
    text: str
    report: tuple[str, ...] = ()
    second_hand: int = 0  # see TcpxError
    #: Whether the rank itself speaks, and not a thread for one that cannot.
    present: bool = True


class Alarm(Exception):
    """Another rank has called the roll while this one waited for it."""


class RollCall:
    """The ranks' last words, and their signs of life before that."""

    def __init__(self, comm: MPI.Intracomm, stop_signal: Callable[[], int]) -> None:
        self._comm = comm
        self._stop_signal = stop_signal
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        #: Sends of empty messages under way.
        self._signs: list[MPI.Request] = []
        self._alarm_sends: list[MPI.Request] = []
        self._failure_reported = False

    def call(
        self, answer: Answer, died: Callable[[], Collection[int]] = tuple
    ) -> dict[int, Answer]:
        """Tell all ranks why this one stops, and hear who is still there, within ROLL_CALL_S.

        Not collective: whoever meets trouble calls it, and a rank that waits in a collective is
        drawn into it by `Alarm`. A rank that comes late may hear some only, the one that dismisses
        all of them at least. Ranks that are seen to have `died` are not waited for, and others not
        for long where the launcher ends this one.
        """
        self.say(answer)
        answers = {self.rank: answer}
        now, left_s, asked_to_stop = time.monotonic(), ROLL_CALL_S, False
        while len(answers.keys() | set(died())) < self.size and left_s > 0:
            before, now = now, time.monotonic()
            left_s -= now - before if asked_to_stop else min(now - before, _TICK_S)
            if not asked_to_stop and self._stop_signal():
                asked_to_stop = True
                left_s = min(left_s, PRESENCE_S)
            # Looked for first: who dismisses has answered before, and is then among the answers.
            over = self._comm.Iprobe(tag=_DISMISSAL_TAG)
            while (found := self._take_message(_ALARM_TAG)) is not None:
                rank, code, text, report, *more = json.loads(found)
                answers[rank] = Answer(rank, code, text, tuple(report), *more)
            if over:
                break  # this rank came late to it
            time.sleep(0.001)  # the run is over: nothing waits for this but the answers
        return answers

    def say(self, answer: Answer) -> None:
        """Tell all ranks, and hear nobody."""
        blob = json.dumps(dataclasses.astuple(answer))
        message = np.frombuffer(blob.encode(), dtype=np.uint8)
        # Kept until the process ends: a request to a hung rank never completes.
        self._alarm_sends += [
            self._comm.Isend(message, dest=peer, tag=_ALARM_TAG)
            for peer in range(self.size)
            if peer != self.rank
        ]

    def dismiss(self, exit_code: int, answered: Collection[int]) -> None:
        """Let all ranks go with this exit code, once what they said is printed and kept.

        Returns when those who `answered` the roll call know, at the latest after FAREWELL_S: a rank
        that still calls MPI when the connection to another breaks is ended by MPI itself.
        """
        note = np.array([exit_code, self.rank], dtype=np.int64)
        # To the missing ones too: one that was only stopped finds it when it wakes.
        self._dismissal_sends = [
            self._comm.Isend(note, dest=peer, tag=_DISMISSAL_TAG)
            for peer in range(self.size)
            if peer != self.rank
        ]
        left = len(answered) - 1
        deadline = time.monotonic() + FAREWELL_S
        while left and time.monotonic() < deadline:
            if self._take_message(_FAREWELL_TAG) is None:
                time.sleep(0.001)  # as in a roll call
            else:
                left -= 1

    def dismissal(self, patience_s: float = 0.0) -> int | None:
        """The exit code with which a roll call that this rank has missed let it go, or None.

        A rank that wakes needs a moment to find what was sent to it while it slept.
        """
        deadline = time.monotonic() + patience_s
        while (note := self._take_message(_DISMISSAL_TAG)) is None:
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.001)  # as in a roll call
        exit_code, speaker = np.frombuffer(note, dtype=np.int64).tolist()
        self._farewell = self._comm.Isend(_NOTHING, speaker, tag=_FAREWELL_TAG)
        return int(exit_code)

    def await_dismissal(self, exit_code: int, patience_s: float = DISMISSAL_S) -> int:
        """Wait until the speaker has printed and kept what this rank said, at most `patience_s`.

        Returns the exit code that all ranks leave with, `exit_code` if nobody says.
        """
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if (code := self.dismissal()) is not None:
                self.linger()
                return code
            time.sleep(0.001)  # as in a roll call
        return exit_code

    def linger(self) -> None:
        """Stay without a call to MPI until the launcher says that another rank has left: the one
        that speaks is ended by MPI itself where a connection breaks while it still calls it.
        """
        deadline = time.monotonic() + FAREWELL_S
        while time.monotonic() < deadline and not self._stop_signal():
            time.sleep(0.001)  # as in a roll call

    def leave(self, exit_code: int, speaks: bool = False) -> NoReturn:
        """End this process at once: where collectives hang nothing can be undone in order.

        `speaks`: it is the first to leave, for all. MPICH's mpirun kills the others then, and has
        their signal in its exit code (9) unless the first one aborts.
        """
        _native.watch_ending(exit_code)
        if speaks and library_version().startswith("MPICH"):
            load().COMM_WORLD.Abort(exit_code)
        os._exit(exit_code)

    def alarmed(self) -> bool:
        """Whether another rank has called the roll."""
        return bool(self._comm.Iprobe(tag=_ALARM_TAG))

    def tell_of_failure(self) -> None:
        """Let all others know that a step of this rank has failed, so that they end theirs."""
        if self.failure_reported():
            return  # by another rank, to all
        others = (peer for peer in range(self.size) if peer != self.rank)
        self._signs += [self._comm.Isend(_NOTHING, dest=peer, tag=_FAILURE_TAG) for peer in others]

    def failure_reported(self) -> bool:
        """Whether another rank has told of a failed step."""
        while self._take_from(_FAILURE_TAG) is not None:
            self._failure_reported = True
        return self._failure_reported

    def tell_of_connects(self, peers: Collection[int]) -> None:
        """Let these ranks know that this one has begun to connect to them."""
        self._signs += [self._comm.Isend(_NOTHING, dest=peer, tag=_BEGUN_TAG) for peer in peers]

    def connects_begun(self) -> Iterator[int]:
        """Ranks that have told of their connects since this was asked last."""
        while (peer := self._take_from(_BEGUN_TAG)) is not None:
            yield peer

    def present(self, ended: Collection[int]) -> dict[int, list[int]]:
        """Tells the other ranks, if a launcher ends them, that this one is there, and which ranks
        it has seen `ended`; by rank what those say that are there, too, within PRESENCE_S."""
        blob = np.frombuffer(json.dumps([self.rank, sorted(ended)]).encode(), dtype=np.uint8)
        others = set(range(self.size)) - {self.rank, *ended}
        self._signs += [self._comm.Isend(blob, dest=peer, tag=_HERE_TAG) for peer in others]
        heard: dict[int, list[int]] = {}
        deadline = time.monotonic() + PRESENCE_S
        while not heard.keys() >= others and time.monotonic() < deadline:
            if (message := self._take_message(_HERE_TAG)) is None:
                time.sleep(0.001)  # as in a roll call
            else:
                rank, seen = json.loads(message)
                heard[rank] = seen
        return heard

    def may_be_called_by_threads(self) -> bool:
        """Whether the MPI library lets another thread than the main one call it, in turns."""
        from mpi4py import MPI

        return bool(MPI.Query_thread() >= MPI.THREAD_SERIALIZED)

    def may_be_called_at_once(self) -> bool:
        """Whether the MPI library lets several threads call it at the same time."""
        from mpi4py import MPI

        return bool(MPI.Query_thread() >= MPI.THREAD_MULTIPLE)

    def answer_inquiries(self) -> None:
        """Give a sign of life to whoever has asked; for a rank that makes progress elsewhere."""
        self._signs = [sign for sign in self._signs if not sign.Test()]
        while (asker := self._take_from(_INQUIRY_TAG)) is not None:
            self._signs.append(self._comm.Isend(_NOTHING, dest=asker, tag=_SIGN_TAG))

    def inquire(self) -> None:
        """Ask all others for a sign of life; those given before count no more."""
        for _ in self.signs():
            pass
        others = (peer for peer in range(self.size) if peer != self.rank)
        self._signs += [self._comm.Isend(_NOTHING, dest=peer, tag=_INQUIRY_TAG) for peer in others]

    def signs(self) -> Iterator[int]:
        """Ranks with a sign of life that nobody has looked at yet."""
        while (peer := self._take_from(_SIGN_TAG)) is not None:
            yield peer

    def _take_from(self, tag: int) -> int | None:
        """The sender of the next message of this tag; None if there is none."""
        from mpi4py import MPI

        status = MPI.Status()
        if not self._comm.Iprobe(tag=tag, status=status):
            return None
        self._comm.Recv(np.empty(0, np.uint8), source=status.Get_source(), tag=tag)
        return status.Get_source()

    def _take_message(self, tag: int) -> bytes | None:
        from mpi4py import MPI

        status = MPI.Status()
        if not self._comm.Iprobe(tag=tag, status=status):
            return None
        blob = np.empty(status.Get_count(MPI.BYTE), dtype=np.uint8)
        self._comm.Recv(blob, source=status.Get_source(), tag=tag)
        return blob.tobytes()


def interrupted_by(signal_number: int) -> Interrupted:
    """The error of a run that a signal ends; its exit code is 128 + the signal's number."""
    text = f"interrupted by signal {signal_number}"
    if signal_number == signal.SIGTERM:  # mpirun's words above say which
        text += " (a launcher sends it when another rank has died, or when the job is stopped)"
    error = Interrupted(text)
    error.exit_code = ExitCode(128 + signal_number)
    return error

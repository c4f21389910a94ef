"""MPI as a service: exchange, agree, start together, call the roll. The only user of mpi4py.

Every collective is non-blocking and polled with a deadline, so that a rank that hangs is named
instead of hanging all. MPI runs between batches, never inside one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import re
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi import large, launch
from tcpx_mpi.errors import (
    ExitCode,
    Interrupted,
    LostRank,
    PluginMissing,
    SetupFailed,
    TcpxError,
)
from tcpx_mpi.launch import under_launcher

if TYPE_CHECKING:
    from mpi4py import MPI

Int64s = NDArray[np.int64]
_NOTHING = np.empty(0, dtype=np.uint8)

#: MPICH has one transport between nodes, UCX or libfabric, and a short cut within a node.
_MPICH_TCP_ONLY = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}

#: How long the ranks that are alive may take to answer a roll call.
ROLL_CALL_S = 3.0
#: How long a rank waits to be dismissed after a roll call before it leaves on its own.
DISMISSAL_S = 5.0
#: How long ranks wait for each other's last word, at most.
FAREWELL_S = 1.0

#: Series are gathered in parcels of so much of all ranks: MPI counts what a call takes in 31 bits.
_PARCEL_BYTES = 1 << 23

_ALARM_TAG = 1
_DISMISSAL_TAG = 2
_FAREWELL_TAG = 3
_INQUIRY_TAG = 4
_SIGN_TAG = 5
#: A wait for others who may still move bytes looks for their signs of life from this age on.
_LONG_WAIT_S = 0.1
#: A poll yields so often, then sleeps: other ranks of this node may need the core to arrive.
_SPINS_BEFORE_SLEEP = 200
_POLL_S = 0.00005


@dataclass(frozen=True)
class Answer:
    """What a rank says at a roll call: its exit code, one line, and a report of any length."""

    rank: int
    exit_code: int
    text: str
    report: tuple[str, ...] = ()


class Alarm(Exception):
    """Another rank has called the roll while this one waited for it."""


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
        # The roll call must not be mixed up with a collective that hangs.
        self._alarms = comm.Dup()
        self._stop_signal = stop_signal
        #: Sends of empty messages under way.
        self._signs: list[MPI.Request] = []
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        #: The host of every rank and its network interface, as far as they are known by now.
        self.places: list[str] = [""] * self.size

    def name(self, rank: int) -> str:
        """A rank and its place: "rank 3 on HOST (NIC eth1)"."""
        return f"rank {rank} on {self.places[rank]}" if self.places[rank] else f"rank {rank}"

    # --- Collectives: every rank calls these, in the same order ------------------------------

    def allgather(self, value: object, what: str, patience_s: float) -> list[Any]:
        """Collective: every rank's value, by rank. `what` names the step in an error."""
        blob = np.frombuffer(pickle.dumps(value, protocol=5), dtype=np.uint8)
        sizes = np.zeros(self.size, dtype=np.int64)
        mine = np.array([blob.size], dtype=np.int64)
        self._finish(self._comm.Iallgather(mine, sizes), what, patience_s)
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        everything = np.empty(int(offsets[-1]), dtype=np.uint8)
        spec: Any = [everything, (sizes.tolist(), offsets[:-1].tolist()), self._byte_type()]
        self._finish(self._comm.Iallgatherv(blob, spec), what, patience_s)
        return [pickle.loads(everything[a:b].data) for a, b in _spans(offsets)]

    def gather(self, value: object, what: str, patience_s: float) -> list[Any] | None:
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
        self, series: Sequence[Int64s], what: str, patience_s: float
    ) -> list[Int64s] | None:
        """Collective: of each series int64[rank, value] on rank 0, None elsewhere.

        They may be larger than memory is. Raises ValueError, on all ranks, where ranks do not have
        equally many, as long as each other's; OutputFailed on rank 0 where its disk has no room.
        """
        lengths = [values.size for values in series]
        if self.allgather(lengths, what, patience_s) != [lengths] * self.size:
            raise ValueError(f"{what}: ranks have other numbers of them")
        whole = [large.empty((self.size, n), np.int64) for n in lengths if self.rank == 0]
        for parcel in _parcels(lengths, max(_PARCEL_BYTES // 8 // self.size, 1)):
            mine = np.concatenate([series[number][part] for number, part in parcel])
            everybody = np.empty((self.size if self.rank == 0 else 0, mine.size), np.int64)
            self._finish(self._comm.Igather(mine, everybody, root=0), what, patience_s)
            if self.rank == 0:
                bounds = np.cumsum([part.stop - part.start for _, part in parcel])
                cut = np.split(everybody, bounds[:-1], axis=1)
                for (number, part), values in zip(parcel, cut, strict=True):
                    whole[number][:, part] = values
        return whole if self.rank == 0 else None

    def exchange(self, outgoing: list[bytes], what: str, patience_s: float) -> list[bytes]:
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

    def barrier(self, what: str, patience_s: float, moving: bool = False) -> None:
        """Collective: nobody leaves before all have come.

        With `moving`, others may be at work for as long as it takes: a rank is late `patience_s`
        after its last sign of life, by this call or by `answer_inquiries`.
        """
        self._finish(self._comm.Ibarrier(), what, patience_s, moving)

    def maximum(self, value: int, what: str, patience_s: float) -> int:
        """Collective: the largest value of all ranks."""
        mine = np.array([value], dtype=np.int64)
        largest = np.zeros(1, dtype=np.int64)
        from mpi4py import MPI

        self._finish(self._comm.Iallreduce(mine, largest, op=MPI.MAX), what, patience_s)
        return int(largest[0])

    def acquainted(self, neighbours: Collection[int], patience_s: float) -> MPI.Intracomm:
        """Collective: a communicator of its own over which this rank has met its neighbours, so
        that a library that connects at the first message has done so."""
        comm, request = self._comm.Idup()
        self._finish(request, "mpi peer", patience_s)
        requests = [comm.Irecv(np.empty(0, np.uint8), source=peer) for peer in neighbours]
        requests += [comm.Isend(_NOTHING, dest=peer) for peer in neighbours]
        for request in requests:
            self._finish(request, "mpi peer", patience_s)
        return comm

    @contextlib.contextmanager
    def agree(self, what: str, patience_s: float) -> Iterator[None]:
        """Collective around a local step: if it fails on any rank, all ranks raise AgreedError.

        A rank that hangs in its step is found by the others' deadline (LostRank).
        """
        error: TcpxError | None = None
        try:
            yield
        except (Interrupted, LostRank):
            raise
        except TcpxError as found:
            error = found
        verdict = None if error is None else (int(error.exit_code), str(error))
        verdicts = self.allgather(verdict, what, patience_s)
        raise_agreed(verdicts, error, self.name)

    # --- When a rank hangs or dies ------------------------------------------------------------

    def roll_call(self, answer: Answer) -> dict[int, Answer]:
        """Tell all ranks why this one stops, and hear who is still there, within ROLL_CALL_S.

        Not collective: whoever meets trouble calls it, and a rank that waits in a collective is
        drawn into it by `Alarm`. A rank that comes late may hear some only, the one that dismisses
        all of them at least.
        """
        blob = json.dumps([answer.rank, answer.exit_code, answer.text, list(answer.report)])
        message = np.frombuffer(blob.encode(), dtype=np.uint8)
        # Kept until the process ends: a request to a hung rank never completes.
        self._alarm_sends = [
            self._alarms.Isend(message, dest=peer, tag=_ALARM_TAG)
            for peer in range(self.size)
            if peer != self.rank
        ]
        answers = {self.rank: answer}
        deadline = time.monotonic() + ROLL_CALL_S
        while len(answers) < self.size and time.monotonic() < deadline:
            # Looked for first: who dismisses has answered before, and is then among the answers.
            over = self._alarms.Iprobe(tag=_DISMISSAL_TAG)
            while (found := self._take_message(_ALARM_TAG)) is not None:
                rank, exit_code, text, report = json.loads(found)
                answers[rank] = Answer(rank, exit_code, text, tuple(report))
            if over:
                break  # this rank came late to it
            time.sleep(0.001)  # the run is over: nothing waits for this but the answers
        return answers

    def dismiss(self, exit_code: int, answered: Collection[int]) -> None:
        """Let all ranks go with this exit code, once what they said is printed and kept.

        Returns when those who `answered` the roll call know, at the latest after FAREWELL_S: a rank
        that still calls MPI when the connection to another breaks is ended by MPI itself.
        """
        note = np.array([exit_code, self.rank], dtype=np.int64)
        # To the missing ones too: one that was only stopped finds it when it wakes.
        self._dismissal_sends = [
            self._alarms.Isend(note, dest=peer, tag=_DISMISSAL_TAG)
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
        self._farewell = self._alarms.Isend(np.empty(0, np.uint8), speaker, tag=_FAREWELL_TAG)
        return int(exit_code)

    def await_dismissal(self, exit_code: int) -> int:
        """Wait until the speaker has printed and kept what this rank said, at most DISMISSAL_S.

        Returns the exit code that all ranks leave with, `exit_code` if nobody says.
        """
        deadline = time.monotonic() + DISMISSAL_S
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
        if speaks and library_version().startswith("MPICH"):
            self._comm.Abort(exit_code)
        os._exit(exit_code)

    def alarmed(self) -> bool:
        """Whether another rank has called the roll."""
        return bool(self._alarms.Iprobe(tag=_ALARM_TAG))

    def answer_inquiries(self) -> None:
        """Give a sign of life to whoever has asked; for a rank that makes progress elsewhere."""
        self._signs = [sign for sign in self._signs if not sign.Test()]
        while (asker := self._take_from(_INQUIRY_TAG)) is not None:
            self._signs.append(self._alarms.Isend(_NOTHING, dest=asker, tag=_SIGN_TAG))

    # --- Inside --------------------------------------------------------------------------------

    def _inquire(self) -> list[MPI.Request]:
        """Ask all others for a sign of life; those of before count no more."""
        while self._take_from(_SIGN_TAG) is not None:
            pass
        others = (peer for peer in range(self.size) if peer != self.rank)
        return [self._alarms.Isend(_NOTHING, dest=peer, tag=_INQUIRY_TAG) for peer in others]

    def _finish(
        self, request: MPI.Request, what: str, patience_s: float, moving: bool = False
    ) -> None:
        """Poll a collective until it is complete; `moving` as in `barrier`.

        Raises LostRank after `patience_s`, Interrupted on a signal, Alarm when another rank calls
        the roll.
        """
        began = time.monotonic()
        deadline = began + patience_s
        alive: set[int] | None = None  # who has given a sign since all were asked
        spins = 0
        while not request.Test():
            spins += 1
            if spins < _SPINS_BEFORE_SLEEP:
                os.sched_yield()
                continue
            time.sleep(_POLL_S)
            if signal_number := self._stop_signal():
                raise interrupted_by(signal_number)
            if self._alarms.Iprobe(tag=_ALARM_TAG):
                raise Alarm
            now = time.monotonic()
            if moving and now - began > _LONG_WAIT_S:
                self.answer_inquiries()
                if alive is None and now > deadline - patience_s / 2:
                    self._signs += self._inquire()
                    alive = set()
                while alive is not None and (peer := self._take_from(_SIGN_TAG)) is not None:
                    alive.add(peer)
                if alive is not None and len(alive) == self.size - 1:
                    deadline, alive = now + patience_s, None
            if now > deadline:
                raise LostRank(f"not all ranks came to `{what}` within {patience_s:.3g} s")

    def _take_from(self, tag: int) -> int | None:
        """Who sent the next message of this tag that is there; None where there is none."""
        from mpi4py import MPI

        status = MPI.Status()
        if not self._alarms.Iprobe(tag=tag, status=status):
            return None
        self._alarms.Recv(np.empty(0, np.uint8), source=status.Get_source(), tag=tag)
        return status.Get_source()

    def _take_message(self, tag: int) -> bytes | None:
        from mpi4py import MPI

        status = MPI.Status()
        if not self._alarms.Iprobe(tag=tag, status=status):
            return None
        blob = np.empty(status.Get_count(MPI.BYTE), dtype=np.uint8)
        self._alarms.Recv(blob, source=status.Get_source(), tag=tag)
        return blob.tobytes()

    def _byte_type(self) -> Any:
        from mpi4py import MPI

        return MPI.BYTE


def interrupted_by(signal_number: int) -> Interrupted:
    """The error of a run that a signal ends; its exit code is 128 + the signal's number."""
    text = f"interrupted by signal {signal_number}"
    if signal_number == signal.SIGTERM:  # mpirun's words above say which
        text += " (a launcher sends it when another rank has died, or when the job is stopped)"
    error = Interrupted(text)
    error.exit_code = ExitCode(128 + signal_number)
    return error


def raise_agreed(
    verdicts: list[tuple[int, str] | None], own: TcpxError | None, name: Callable[[int], str]
) -> None:
    """Raise AgreedError if any rank's verdict is an error; equal input on all ranks, equal output.

    The lowest rank's error is the one that counts. Its text names that rank, by `name`, unless all
    ranks say the same.
    """
    failed = [rank for rank, verdict in enumerate(verdicts) if verdict is not None]
    if not failed:
        return
    first = failed[0]
    exit_code, text = verdicts[first] or (int(ExitCode.DEFECT), "")
    alike = all(verdict is not None and verdict[1] == text for verdict in verdicts)
    where = "" if alike else f"{name(first)}: "
    raise AgreedError(where + text, ExitCode(exit_code), first) from own


def start(
    stop_signal: Callable[[], int], environ: MutableMapping[str, str], tcp_only: bool = False
) -> World:
    """Initialise MPI (once a process) and return the world.

    `tcp_only`: messages between ranks of a node must not take a short cut through memory. Raises
    PluginMissing where no MPI library can be loaded, SetupFailed where it is not the launcher's.
    """
    MPI = _library()
    for name, value in library_settings(library_version(), tcp_only).items():
        environ.setdefault(name, value)
    if not MPI.Is_initialized():
        # mpi4py warns of a launcher of another MPI, which is refused below in one line.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
    launched = under_launcher(environ)
    refusal = launch.foreign_library(launched, MPI.COMM_WORLD.Get_size(), library_version())
    if refusal is not None:
        raise SetupFailed(refusal)
    _end_all_ranks_on_a_defect()
    try:
        return World(MPI.COMM_WORLD, stop_signal)
    except MPI.Exception as error:
        # Others may have reached whom they need, and now wait for this rank without a deadline.
        rank, host = MPI.COMM_WORLD.Get_rank(), socket.gethostname()
        print(
            f"tcpx-mpi: error: rank {rank} on {host}: MPI cannot reach every other rank ({error}): "
            "check that the interfaces of btl_tcp_if_include are up on all nodes",
            file=sys.stderr,
            flush=True,
        )
        MPI.COMM_WORLD.Abort(int(ExitCode.SETUP_FAILED))
        raise


def _end_all_ranks_on_a_defect() -> None:
    """An exception that nobody expected ends all ranks: the others would wait for this one."""
    show = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        show(kind, error, trace)
        sys.stderr.flush()
        _library().COMM_WORLD.Abort(int(ExitCode.DEFECT))

    sys.excepthook = end


def library_settings(library: str, tcp_only: bool = False) -> dict[str, str]:
    """Variables that an MPI library of this version text should find, where a user sets none.

    Open MPI starts 1 s faster without its search for fabrics that this tool never uses.
    """
    version = re.match(r"Open MPI v(\d+)", library)
    if version is None:
        return dict(_MPICH_TCP_ONLY) if tcp_only else {}
    # Its shared memory has another name since 5.0, and an unknown name is fatal.
    memory = "sm" if int(version[1]) >= 5 else "vader"
    ways = "tcp,self" if tcp_only else f"tcp,{memory},self"
    return {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": ways}


def library_version() -> str:
    """The MPI library in use, its first line. Starts no MPI. Raises PluginMissing."""
    return " ".join(_library().Get_library_version().splitlines()[0].rstrip("\0").split())


def _library() -> Any:
    """mpi4py's module over the MPI library that it finds, loaded but not initialised."""
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        # The library's version, which says how to set it up, is known without starting it.
        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # see `start`
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        # The linker names what it did not find last.
        cause = str(error).strip().splitlines()[-1]
        raise PluginMissing(
            f"no MPI library can be loaded on {socket.gethostname()} ({cause}): set MPI4PY_LIBMPI "
            "to its path, and LD_LIBRARY_PATH to its directory (see docs/launching.md)"
        ) from None
    return MPI


def _parcels(lengths: Sequence[int], most: int) -> Iterator[list[tuple[int, slice]]]:
    """Series one after the other in parcels of `most` values: which one, and what of it."""
    parcel: list[tuple[int, slice]] = []
    room = most
    for number, length in enumerate(lengths):
        at = 0
        while at < length:
            end = min(at + room, length)
            parcel.append((number, slice(at, end)))
            room -= end - at
            at = end
            if not room:
                yield parcel
                parcel, room = [], most
    if parcel:
        yield parcel


def _spans(offsets: Any) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in itertools.pairwise(offsets)]

"""One agent of a measurement, in a process of its own that takes its orders from a pipe."""

from __future__ import annotations

import gc
import importlib
import inspect
import multiprocessing
import os
import resource
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.errors import ExitCode, SetupFailed, TcpxError
from tcpx_mpi.nixl.memory import make_memory, pattern, poison, wrong_bytes
from tcpx_mpi.nixl.request import Request
from tcpx_mpi.nixl.roles import Roles
from tcpx_mpi.parent_death import end_with_parent

#: How long an agent is given for the requests of one iteration.
PATIENCE_S = 60.0
_LOOKS_AT_CLOCK = 1024
#: Python's lock goes from one thread that looks for the end of its requests to the next so often.
_SWITCHES_S = 0.00005


@dataclass(frozen=True)
class AgentPlan:
    """The plan of an agent process."""

    rank: int
    roles: Roles
    backend: str
    package: str
    memory: str
    #: Of one request, and of all of this agent.
    slot_bytes: int
    size_bytes: int
    #: Of the ranks of this node that have one: the GPU is its number modulo their number.
    local_rank: int
    threads: int
    progress_thread: bool
    environ: dict[str, str]

    @property
    def role(self) -> str:
        return self.roles.role(self.rank)

    @property
    def name(self) -> str:
        return f"{self.roles.name(self.rank)} over {self.backend}"


class Description(NamedTuple):
    """The facts that another agent needs to ask this one."""

    metadata: bytes
    address: int
    device: int


class Block(NamedTuple):
    """Iterations of an initiator, in ns: until all is there, until all posts have returned, when
    each began on its clock, and [target, iteration] until all with a target was there."""

    time: Int64s
    post: Int64s
    start: Int64s
    by_target: Int64s


class Wrong(NamedTuple):
    """Wrong bytes of the requests with a peer; `first` is the offset of the first one."""

    peer: int
    bytes: int
    first: int


def serve(pipe: Connection, plan: AgentPlan) -> None:
    """Answers until it is asked to end: (True, answer), or (False, exit code, text)."""
    parent = multiprocessing.parent_process()
    if parent is not None and not end_with_parent(parent.pid or -1):
        return  # it is stopped between its turns, when nobody else would end it
    os.environ.update(plan.environ)
    os.environ.setdefault("NIXL_LOG_LEVEL", "WARN")
    try:
        agent = Agent(plan, pipe)
        pipe.send((True, None))
        while True:
            name, *arguments = agent.next_command()
            if name == "end":
                return
            pipe.send((True, getattr(agent, name)(*arguments)))
    except TcpxError as error:
        pipe.send((False, int(error.exit_code), str(error)))
    except (EOFError, KeyboardInterrupt):
        pass
    except Exception as error:
        pipe.send((False, int(ExitCode.SETUP_FAILED), f"{type(error).__name__}: {error}"))


class _Handle(NamedTuple):
    """A prepared request."""

    target: int
    request: Any


class Agent:
    """The agent and its memory."""

    def __init__(self, plan: AgentPlan, pipe: Connection) -> None:
        api: Any = importlib.import_module(f"{plan.package}._api")
        self._pipe, self._plan, self._roles = pipe, plan, plan.roles
        # Several sides may run at the same time, and a name is one agent's.
        self._agent = api.nixl_agent(f"{plan.role}-{plan.rank}-{plan.backend}", _config(api, plan))
        self._memory = make_memory(plan.memory, plan.size_bytes, plan.local_rank)
        region = (self._memory.address, plan.size_bytes, self._memory.device, "")
        self._agent.register_memory([region], self._memory.kind, backends=[plan.backend])
        self._remotes: dict[int, str] = {}
        self._handles: list[_Handle] = []
        self._serving = False

    def next_command(self) -> tuple[Any, ...]:
        """A target that serves asks for notifications meanwhile, as programs do."""
        while self._serving and not self._pipe.poll(0):
            self._agent.get_new_notifs()
        received: tuple[Any, ...] = self._pipe.recv()
        return received

    # --- Both

    def describe(self) -> Description:
        metadata = self._agent.get_agent_metadata()
        return Description(metadata, self._memory.address, self._memory.device)

    def know(self, others: Mapping[int, Description]) -> None:
        for peer in self._roles.peers(self._plan.rank):
            name = self._agent.add_remote_agent(others[peer].metadata)
            self._remotes[peer] = name.decode() if isinstance(name, bytes) else name

    def fill(self, seed: int, request: Request) -> None:
        for peer, number, at in self._slots():
            values = pattern(self._seed(seed, peer, number), request.extent_bytes)
            self._memory.write(values, at)

    def poison(self, request: Request) -> None:
        for _, _, at in self._slots():
            poison(self._memory, request.extent_bytes, at)

    def judge(self, seed: int, request: Request) -> list[Wrong]:
        """The peers whose requests left wrong bytes."""
        found = []
        for peer, number, at in self._slots():
            count, first = wrong_bytes(
                self._memory, self._seed(seed, peer, number), request.blocks, request.block_bytes,
                request.stride_bytes, at,
            )  # fmt: skip
            if count:
                found.append(Wrong(peer, count, first))
        return found

    def cpu_ns(self) -> tuple[int, int]:
        """User and system time of this process so far."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return int(used.ru_utime * 1e9), int(used.ru_stime * 1e9)

    def _slots(self) -> list[tuple[int, int, int]]:
        """(peer, number, offset) of each request's memory here."""
        return [
            (peer, number, self._offset(self._plan.rank, peer, number))
            for peer in self._roles.peers(self._plan.rank)
            for number in range(self._roles.batch)
        ]

    def _offset(self, rank: int, peer: int, number: int) -> int:
        return self._roles.slot(rank, peer, number) * self._plan.slot_bytes

    def _seed(self, seed: int, peer: int, number: int) -> tuple[int, ...]:
        """Both sides of a request have the same, and no other request has it."""
        ends = (self._plan.rank, peer)
        return (seed, *(ends if self._plan.role == "initiator" else ends[::-1]), number)

    # --- A target

    def serve_requests(self, serving: bool) -> None:
        self._serving = serving

    # --- An initiator

    def prepare(self, request: Request, others: Mapping[int, Description]) -> None:
        for handle in self._handles:
            self._agent.release_xfer_handle(handle.request)
        rank, self._handles = self._plan.rank, []
        for place, peer in enumerate(self._roles.peers(rank)):
            there = others[peer]
            for number in range(self._roles.batch):
                here_at = self._memory.address + self._offset(rank, peer, number)
                there_at = there.address + self._offset(peer, rank, number)
                prepared = self._agent.initialize_xfer(
                    request.operation.upper(),
                    self._blocks(request, here_at, self._memory.device),
                    self._blocks(request, there_at, there.device),
                    self._remotes[peer],
                    backends=[self._plan.backend],
                )
                self._handles.append(_Handle(place, prepared))

    def _blocks(self, request: Request, base: int, device: int) -> Any:
        places = [
            (base + block * request.stride_bytes, request.block_bytes, device)
            for block in range(request.blocks)
        ]
        return self._agent.get_xfer_descs(places, self._memory.kind)

    def run(self, iterations: int) -> Block:
        """Posts all requests in each iteration, then waits for them; each iteration begins with
        another target, so that none is always asked last."""
        targets = len(self._roles.targets)
        time_ns, post_ns, start_ns = np.zeros((3, iterations), np.int64)
        block = Block(time_ns, post_ns, start_ns, np.zeros((targets, iterations), np.int64))
        threads = self._plan.threads
        shares = [self._handles[thread::threads] for thread in range(threads)]
        switches_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCHES_S)
        gc.disable()
        try:
            with _Workers(self._agent, shares) as workers:
                for number in range(iterations):
                    first = (number + self._plan.rank) % targets
                    start, posts, ends = workers.iteration(first)
                    block.start[number] = start
                    block.post[number] = max(posts) - start
                    for target, end in ends:
                        passed = end - start
                        block.by_target[target, number] = max(
                            passed, block.by_target[target, number]
                        )
                    block.time[number] = block.by_target[:, number].max()
        finally:
            gc.enable()
            sys.setswitchinterval(switches_s)
        return block


def _config(api: Any, plan: AgentPlan) -> Any:
    """NIXL's own locks are for agents that say that several threads will ask them."""
    values: dict[str, Any] = {}
    if plan.threads > 1 and plan.role == "initiator":
        if "sync_mode" not in inspect.signature(api.nixl_agent_config).parameters:
            raise SetupFailed(
                f"--threads ({plan.threads}): this NIXL's nixl_agent_config has no sync_mode; use "
                "NIXL 1.3 or newer, or --threads 1"
            )
        values["sync_mode"] = api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
    return api.nixl_agent_config(
        enable_prog_thread=plan.progress_thread, backends=[plan.backend], **values
    )


_Ends = list[tuple[int, int]]


class _Workers:
    """Threads that post a share of the requests each, and wait for them; the first is the
    caller's."""

    def __init__(self, agent: Any, shares: Sequence[Sequence[_Handle]]) -> None:
        self._agent, self._shares = agent, [share for share in shares if share]
        self._gate = threading.Barrier(len(self._shares))
        self._posts = [0] * len(self._shares)
        self._ends: list[_Ends] = [[] for _ in self._shares]
        self._error: Exception | None = None
        self._first = -1
        self._threads = [
            threading.Thread(target=self._work, args=(place,), daemon=True)
            for place in range(1, len(self._shares))
        ]

    def __enter__(self) -> _Workers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._gate.abort()
        for thread in self._threads:
            thread.join()

    def iteration(self, first: int) -> tuple[int, list[int], _Ends]:
        """The instants when it began, when each thread had posted, and (target, end) of each
        request."""
        self._first = first
        start = time.perf_counter_ns()
        if self._threads:
            self._gate.wait()
        self._share(0)
        if self._threads:
            self._gate.wait()
        if self._error is not None:
            raise self._error
        return start, self._posts, [end for share in self._ends for end in share]

    def _work(self, place: int) -> None:
        try:
            while True:
                self._gate.wait()
                self._share(place)
                self._gate.wait()
        except threading.BrokenBarrierError:
            pass

    def _share(self, place: int) -> None:
        try:
            self._posts[place], self._ends[place] = _post_and_wait(
                self._agent, self._shares[place], self._first
            )
        except Exception as error:
            self._error = error


def _post_and_wait(agent: Any, handles: Sequence[_Handle], first: int) -> tuple[int, _Ends]:
    """Posts all, those with the target `first` and behind it first; the instant when that was done,
    and (target, instant) of the end of each."""
    clock = time.perf_counter_ns
    cut = next((place for place, handle in enumerate(handles) if handle.target >= first), 0)
    states = [
        (handle, agent.transfer(handle.request)) for handle in [*handles[cut:], *handles[:cut]]
    ]
    posted = clock()
    ends: _Ends = []
    looks = 0
    while True:
        pending = []
        for handle, state in states:
            if state == "PROC":
                pending.append(handle)
            elif state == "DONE":
                ends.append((handle.target, clock()))
            else:
                raise RuntimeError(f"a transfer ended as {state}")
        if not pending:
            return posted, ends
        looks += 1
        if looks % _LOOKS_AT_CLOCK == 0 and clock() - posted > PATIENCE_S * 1e9:
            raise TimeoutError(f"a transfer did not end in {PATIENCE_S:.0f} s")
        states = [(handle, agent.check_xfer_state(handle.request)) for handle in pending]

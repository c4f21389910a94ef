"""One agent of a measurement, in a process of its own that takes its orders from a pipe."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import resource
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tcpx_mpi.errors import ExitCode, TcpxError
from tcpx_mpi.nixl.memory import make_memory, pattern, poison, wrong_bytes
from tcpx_mpi.parent_death import end_with_parent

#: How long an agent is given for one transfer.
_PATIENCE_S = 60.0
_LOOKS_AT_CLOCK = 1024


@dataclass(frozen=True)
class AgentPlan:
    """The plan of an agent process."""

    #: "initiator" or "target".
    role: str
    backend: str
    package: str
    memory: str
    size_bytes: int
    progress_thread: bool
    environ: dict[str, str]


@dataclass(frozen=True)
class Request:
    """One request: so many blocks of so many bytes, each `stride_bytes` behind the one before."""

    operation: str
    blocks: int
    block_bytes: int
    stride_bytes: int

    @property
    def extent_bytes(self) -> int:
        return (self.blocks - 1) * self.stride_bytes + self.block_bytes


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


class Agent:
    """The agent and its memory."""

    def __init__(self, plan: AgentPlan, pipe: Connection) -> None:
        api: Any = importlib.import_module(f"{plan.package}._api")
        self._pipe, self._plan = pipe, plan
        config = api.nixl_agent_config(
            enable_prog_thread=plan.progress_thread, backends=[plan.backend]
        )
        # Two sides may run at the same time, and a name is one agent's.
        self._agent = api.nixl_agent(f"{plan.role}-{plan.backend}", config)
        self._memory = make_memory(plan.memory, plan.size_bytes)
        region = (self._memory.address, plan.size_bytes, self._memory.device, "")
        self._agent.register_memory([region], self._memory.kind, backends=[plan.backend])
        self._handle: Any = None
        self._serving = False

    def next_command(self) -> tuple[Any, ...]:
        """A target that serves asks for notifications meanwhile, as programs do."""
        while self._serving and not self._pipe.poll(0):
            self._agent.get_new_notifs()
        received: tuple[Any, ...] = self._pipe.recv()
        return received

    # --- Both

    def describe(self) -> tuple[bytes, int, int]:
        return self._agent.get_agent_metadata(), self._memory.address, self._memory.device

    def know(self, metadata: bytes) -> None:
        name = self._agent.add_remote_agent(metadata)
        self._remote = name.decode() if isinstance(name, bytes) else name

    def fill(self, seed: int, request: Request) -> None:
        self._memory.write(pattern(seed, request.extent_bytes))

    def poison(self, request: Request) -> None:
        poison(self._memory, request.extent_bytes)

    def judge(self, seed: int, request: Request) -> tuple[int, int]:
        return wrong_bytes(
            self._memory, seed, request.blocks, request.block_bytes, request.stride_bytes
        )

    def cpu_ns(self) -> tuple[int, int]:
        """User and system time of this process so far."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return int(used.ru_utime * 1e9), int(used.ru_stime * 1e9)

    # --- The target

    def serve_requests(self, serving: bool) -> None:
        self._serving = serving

    # --- The initiator

    def prepare(self, request: Request, address: int, device: int) -> None:
        def blocks(base: int, of_device: int) -> Any:
            places = [
                (base + block * request.stride_bytes, request.block_bytes, of_device)
                for block in range(request.blocks)
            ]
            return self._agent.get_xfer_descs(places, self._memory.kind)

        if self._handle is not None:
            self._agent.release_xfer_handle(self._handle)
        self._handle = self._agent.initialize_xfer(
            request.operation.upper(),
            blocks(self._memory.address, self._memory.device),
            blocks(address, device),
            self._remote,
            backends=[self._plan.backend],
        )

    def run(self, iterations: int) -> tuple[list[int], list[int]]:
        """Nanoseconds of each, from the post to the end that the agent tells; and its start."""
        times, starts = [], []
        agent, handle, clock = self._agent, self._handle, time.perf_counter_ns
        gc.disable()
        try:
            for _ in range(iterations):
                start = clock()
                state = agent.transfer(handle)
                looks = 0
                while state == "PROC":
                    state = agent.check_xfer_state(handle)
                    looks += 1
                    if looks % _LOOKS_AT_CLOCK == 0 and clock() - start > _PATIENCE_S * 1e9:
                        raise TimeoutError(f"a transfer did not end in {_PATIENCE_S:.0f} s")
                if state != "DONE":
                    raise RuntimeError(f"a transfer ended as {state}")
                times.append(clock() - start)
                starts.append(start)
        finally:
            gc.enable()
        return times, starts

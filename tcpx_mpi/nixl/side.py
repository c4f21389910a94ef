"""A pair of agents over one backend, and the blocks of iterations that it runs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tcpx_mpi.errors import ExitCode, LostRank, SetupFailed, TcpxError
from tcpx_mpi.nixl.agent_process import AgentPlan, Request, serve
from tcpx_mpi.records import PHASES, RankRow, RowFacts

#: Importing NIXL and its libraries takes seconds on a busy machine.
_PATIENCE_S = 120.0
_END_PATIENCE_S = 30.0


class AgentChild:
    """The parent's end of an agent process."""

    def __init__(self, plan: AgentPlan) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe: Connection
        self._pipe, theirs = context.Pipe()
        self.plan = plan
        self._process = context.Process(target=serve, args=(theirs, plan), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid or -1

    def tell(self, command: str, *arguments: Any) -> None:
        try:
            self._pipe.send((command, *arguments))
        except (BrokenPipeError, ConnectionResetError):
            raise self._lost() from None

    def answer(self) -> Any:
        """Raises the error that the agent told, LostRank if it died or says nothing."""
        try:
            if not self._pipe.poll(_PATIENCE_S):
                raise LostRank(f"the {self._name} did not answer in {_PATIENCE_S:.0f} s")
            good, *rest = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._lost() from None
        if good:
            return rest[0]
        code, text = rest
        error = SetupFailed(f"the {self._name}: {text}")
        error.exit_code = ExitCode(code)
        raise error

    def ask(self, command: str, *arguments: Any) -> Any:
        self.tell(command, *arguments)
        return self.answer()

    def pause(self) -> None:
        """No thread of it runs until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process.is_alive():  # else its number may be another's
            os.kill(self.pid, number)

    def end(self) -> str:
        """The end of the agent, in words, if it was not in order, or ""."""
        self.resume()
        try:
            self._pipe.send(("end",))
            self._process.join(_END_PATIENCE_S)
        except (OSError, ValueError):
            pass
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
            return f"the {self._name} did not end in {_END_PATIENCE_S:.0f} s"
        code = self._process.exitcode
        return f"the {self._name} ended with {code}" if code else ""

    @property
    def _name(self) -> str:
        return f"{self.plan.role} over {self.plan.backend}"

    def _lost(self) -> TcpxError:
        self._process.join(5)
        return LostRank(f"the {self._name} ended with {self._process.exitcode}")


class Side:
    """Initiator and target over one backend."""

    def __init__(
        self, backend: str, package: str, memory: str, size_bytes: int, progress_thread: bool,
        environ: dict[str, str],
    ) -> None:  # fmt: skip
        def child(role: str) -> AgentChild:
            return AgentChild(
                AgentPlan(role, backend, package, memory, size_bytes, progress_thread, environ)
            )

        self.backend = backend
        self.agents = [child("initiator"), child("target")]
        self.initiator, self.target = self.agents

    def connect(self) -> None:
        for agent in self.agents:
            agent.answer()
        ours, _, _ = self.initiator.ask("describe")
        theirs, self._address, self._device = self.target.ask("describe")
        self.initiator.ask("know", theirs)
        self.target.ask("know", ours)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While it lasts this side's agents run; between its turns they are stopped.

        UCX's progress thread looks for work all the time: it would take half of a small machine's
        CPU from the side that is timed.
        """
        for agent in self.agents:
            agent.resume()
        yield
        for agent in self.agents:
            agent.pause()

    def try_out(self, request: Request) -> None:
        """One request, so that a side that cannot is known before the first row."""
        with self.turn():
            self.begin(request, seed=0)
            self.block(1, check=False, warmup=True)

    def begin(self, request: Request, seed: int) -> None:
        self._request, self._seed = request, seed
        self.initiator.ask("prepare", request, self._address, self._device)
        self._times: list[list[int]] = []
        self._starts: list[list[int]] = []
        self._wrong = [0, 0]
        self._fault = ""
        self._check_ns = 0

    def block(self, iterations: int, check: bool, warmup: bool = False) -> None:
        """Iterations back to back, with the bytes of before and after."""
        writes = self._request.operation == "write"
        source, sink = (self.initiator, self.target) if writes else (self.target, self.initiator)
        seed = self._seed + len(self._times)
        if check:
            source.ask("fill", seed, self._request)
            sink.ask("poison", self._request)
        self.target.ask("serve_requests", True)
        times, starts = self.initiator.ask("run", iterations)
        self.target.ask("serve_requests", False)
        if check:
            began = time.monotonic_ns()
            wrong, first = sink.ask("judge", seed, self._request)
            self._check_ns += time.monotonic_ns() - began
            if wrong and not self._fault:
                self._fault = f"{wrong} wrong bytes over {self.backend}, the first at {first}"
            self._wrong[int(writes)] += wrong
        if not warmup:
            self._times.append(times)
            self._starts.append(starts)

    def cpu_ns(self) -> list[tuple[int, int]]:
        return [agent.ask("cpu_ns") for agent in self.agents]

    def parts(self, facts: RowFacts, check: bool, cpu_ns: list[tuple[int, int]]) -> list[RankRow]:
        """Both agents' parts of the row. The clock is the initiator's, which hears when a
        write has arrived; so it counts as the one that receives."""
        times, starts = (
            np.array([value for block in blocks for value in block], np.int64)
            for blocks in (self._times, self._starts)
        )
        writes = self._request.operation == "write"
        payload = facts.size_bytes * facts.iterations
        parts = []
        for rank in range(2):
            sends = (rank == 0) == writes
            values = {"iteration": times, "send": times, "receive": times, "start": starts}
            if rank == 1:
                values = {phase: np.zeros_like(times) for phase in PHASES}
            user_ns, system_ns = cpu_ns[rank]
            parts.append(
                RankRow(
                    rank=rank,
                    receives=rank == 0,
                    checked=check,
                    wrong=self._wrong[rank] if check else -1,
                    chunks=-1,
                    payload_bytes_sent=payload if sends else 0,
                    payload_bytes_received=0 if sends else payload,
                    prepare_ns=0,
                    check_ns=self._check_ns if rank == 0 else 0,
                    cpu_user_ns=user_ns,
                    cpu_system_ns=system_ns,
                    cpu_others_ns=-1,
                    net_sent=-1,
                    net_received=-1,
                    tcp_retransmits=-1,
                    fault=self._fault if rank == int(writes) else "",
                    samples=values,
                    warmup={phase: np.zeros(0, np.int64) for phase in PHASES},
                    batches=np.array([len(block) for block in self._times], np.int64),
                    batch_start=np.array([block[0] for block in self._starts], np.int64),
                    late=np.zeros(len(self._times), np.bool_),
                )
            )
        return parts

    def end(self) -> str:
        """The end of the agents, in words, if it was not in order, or ""."""
        return "; ".join(filter(None, [agent.end() for agent in self.agents]))


def without_nixl_settings(environ: dict[str, str]) -> dict[str, str]:
    """Takes NIXL's settings out of this process: the wheel's own backends need NIXL to look where
    it always does."""
    return {**environ, "NIXL_PLUGIN_DIR": ""} if "NIXL_PLUGIN_DIR" in os.environ else environ

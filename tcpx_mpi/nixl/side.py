"""The agents of all ranks over one backend, and the blocks of iterations that they run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tcpx_mpi.nixl.agent_process import PATIENCE_S, AgentPlan, Block, Description, Wrong
from tcpx_mpi.nixl.agents import AgentChild, AgentFailed
from tcpx_mpi.nixl.ranks import Ranks
from tcpx_mpi.nixl.request import Request
from tcpx_mpi.nixl.roles import Roles
from tcpx_mpi.records import PHASES, RankRow, RowFacts
from tcpx_mpi.stragglers.arrivals import Arrivals


class Side:
    """Initiators and targets over one backend; every method but `turn` and `kill` is collective."""

    def __init__(
        self, backend: str, roles: Roles, ranks: Ranks, plan: Callable[[int], AgentPlan]
    ) -> None:
        self.backend, self._roles, self._ranks = backend, roles, ranks
        self.agents = {rank: AgentChild(plan(rank), ranks.look) for rank in ranks.local}
        self._others: dict[int, Description] = {}

    def connect(self) -> None:
        self._together("agents", lambda: {r: each.answer() for r, each in self.agents.items()})
        self._others = self._ask("describe")
        self._ask("know", self._others)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While it lasts this side's agents run; between its turns they are stopped.

        UCX's progress thread looks for work all the time: it would take half of a small machine's
        CPU from the side that is timed.
        """
        for agent in self.agents.values():
            agent.resume()
        yield
        for agent in self.agents.values():
            agent.pause()

    def try_out(self, request: Request) -> None:
        """One request, so that a side that cannot is known before the first row."""
        with self.turn():
            self.begin(request, seed=0)
            self.block(1, check=False, warmup=True)

    def begin(self, request: Request, seed: int) -> None:
        self._request, self._seed = request, seed
        self._ask("prepare", request, self._others, of=self._roles.initiators)
        self._blocks: list[dict[int, Block]] = []
        self._wrong = dict.fromkeys(range(self._roles.world), 0)
        self._faults: dict[int, str] = {}
        self._check_ns = 0

    def block(self, iterations: int, check: bool, warmup: bool = False) -> None:
        """Iterations back to back on each initiator, which all begin together, with the bytes of
        before and after."""
        initiators, targets = self._roles.initiators, self._roles.targets
        writes = self._request.operation == "write"
        sources, sinks = (initiators, targets) if writes else (targets, initiators)
        seed = self._seed + len(self._blocks)
        if check:
            self._ask("fill", seed, self._request, of=sources)
            self._ask("poison", self._request, of=sinks)
        self._ask("serve_requests", True, of=targets)
        failed: AgentFailed | None = None
        try:
            blocks = self._ask("run", iterations, of=initiators, more_s=iterations * PATIENCE_S)
        except AgentFailed as error:
            failed = error
        try:
            self._ask("serve_requests", False, of=targets)
        except AgentFailed as cause:  # a target that has died is what initiators tell of
            raise cause from failed
        if failed is not None:
            raise failed
        if check:
            began = time.monotonic_ns()
            for sink, wrong in self._ask("judge", seed, self._request, of=sinks).items():
                self._keep_wrong(sink, wrong)
            self._check_ns += time.monotonic_ns() - began
        if not warmup:
            self._blocks.append(blocks)

    def cpu_ns(self) -> dict[int, tuple[int, int]]:
        return self._ask("cpu_ns")

    def parts(
        self, facts: RowFacts, check: bool, cpu_ns: dict[int, tuple[int, int]]
    ) -> list[RankRow]:
        """The parts of the row, by rank. The clock is an initiator's, which hears when a write has
        arrived; so it counts as the one that receives."""
        roles, writes = self._roles, self._request.operation == "write"
        arrivals = self._arrivals()
        batches = np.array([len(block[roles.initiators[0]].time) for block in self._blocks],
                           np.int64)  # fmt: skip
        parts = []
        for rank in range(roles.world):
            asks = rank in roles.initiators
            blocks = [block[rank] for block in self._blocks] if asks else []
            zeros = np.zeros(facts.iterations, np.int64)
            values = dict.fromkeys(PHASES, zeros)
            if asks:
                times = np.concatenate([block.time for block in blocks])
                posts = np.concatenate([block.post for block in blocks])
                starts = np.concatenate([block.start for block in blocks])
                values = {"iteration": times, "send": posts, "receive": times, "start": starts}
            payload = self._request.payload_bytes * roles.slots(rank) * facts.iterations
            user_ns, system_ns = cpu_ns[rank]
            parts.append(
                RankRow(
                    rank=rank,
                    receives=asks,
                    checked=check,
                    wrong=self._wrong[rank] if check else -1,
                    chunks=-1,
                    payload_bytes_sent=payload if asks == writes else 0,
                    payload_bytes_received=0 if asks == writes else payload,
                    prepare_ns=0,
                    check_ns=self._check_ns if rank == roles.initiators[0] else 0,
                    cpu_user_ns=user_ns,
                    cpu_system_ns=system_ns,
                    cpu_others_ns=-1,
                    net_sent=-1,
                    net_received=-1,
                    tcp_retransmits=-1,
                    fault=self._faults.get(rank, ""),
                    samples=values,
                    warmup={phase: np.zeros(0, np.int64) for phase in PHASES},
                    batches=batches,
                    batch_start=np.array([block.start[0] for block in blocks], np.int64)
                    if asks
                    else np.zeros(batches.size, np.int64),
                    late=np.zeros(batches.size, np.bool_),
                    arrivals=arrivals[rank].arrival_ns,
                    arrival_blocks=arrivals[rank].counts,
                )
            )
        return parts

    def end(self) -> str:
        """The end of the agents, in words, if it was not in order, or ""."""
        how = self._together("end", lambda: {r: each.end() for r, each in self.agents.items()})
        return "; ".join(filter(None, how.values()))

    def kill(self) -> None:
        """At once, those of this process."""
        for agent in self.agents.values():
            agent.kill()

    def _arrivals(self) -> list[Arrivals]:
        """By rank: when all bytes of each peer were there, by the initiator's clock; none of a
        single pair, whose times are the row's."""
        roles = self._roles
        found = [Arrivals(roles.world) for _ in range(roles.world)]
        if roles.world == 2:
            return found
        for block in self._blocks:
            if self._request.operation == "read":
                for rank in roles.initiators:
                    found[rank].add(roles.targets, block[rank].by_target.T)
            else:
                for place, rank in enumerate(roles.targets):
                    by_initiator = [block[each].by_target[place] for each in roles.initiators]
                    found[rank].add(roles.initiators, np.transpose(by_initiator))
        return found

    def _keep_wrong(self, sink: int, wrong: list[Wrong]) -> None:
        self._wrong[sink] += sum(each.bytes for each in wrong)
        if wrong and sink not in self._faults:
            peer, count, first = wrong[0]
            whose = "" if self._roles.world == 2 else f" of rank {peer} on rank {sink}"
            text = f"{count} wrong bytes over {self.backend}{whose}, the first at {first}"
            self._faults[sink] = text

    def _ask(
        self, command: str, *arguments: Any, of: Collection[int] | None = None, more_s: float = 0.0
    ) -> dict[int, Any]:
        """The answers of all agents, or `of` these ranks alone; all at work at the same time."""

        def step() -> dict[int, Any]:
            asked = {r: each for r, each in self.agents.items() if of is None or r in of}
            for agent in asked.values():
                agent.tell(command, *arguments)
            return {rank: agent.answer(more_s) for rank, agent in asked.items()}

        return self._together(command, step)

    def _together(self, what: str, step: Callable[[], dict[int, Any]]) -> dict[int, Any]:
        return self._ranks.together(f"{what} of {self.backend}", step)


def without_nixl_settings(environ: dict[str, str]) -> dict[str, str]:
    """Takes NIXL's settings out of this process: the wheel's own backends need NIXL to look where
    it always does."""
    return {**environ, "NIXL_PLUGIN_DIR": ""} if "NIXL_PLUGIN_DIR" in os.environ else environ

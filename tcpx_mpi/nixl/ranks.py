"""Who is in a measurement: all ranks' agents as children of this process, or of one rank each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from tcpx_mpi import _native
from tcpx_mpi.errors import ExitCode, TcpxError
from tcpx_mpi.machine.topology import Host
from tcpx_mpi.nixl.agents import AgentFailed
from tcpx_mpi.run.story import RunState
from tcpx_mpi.world import AgreedError, Alarm, interrupted_by

T = TypeVar("T")
#: Gets the exit code, and what each rank says.
KeepFault = Callable[[int, Mapping[int, str]], None]


class Ranks(Protocol):
    """The ranks of a measurement; those that are not `local` are other processes'. Every method but
    `look` and `keeps_fault` is collective."""

    #: Those whose agents are children of this process.
    local: Sequence[int]
    #: Whether this process prints and writes.
    leads: bool
    #: By rank.
    hosts: Sequence[Host]

    def together(self, what: str, step: Callable[[], dict[int, T]]) -> dict[int, T]:
        """The values of all ranks, by rank, of a step that makes those of `local`. Raises
        AgentFailed, on all, if the step did on one."""

    def agree(self, error: TcpxError | None) -> None:
        """Raises the leader's error, on all."""

    def leading(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Around what the leader does by itself; its error is all ranks'."""

    def look(self) -> None:
        """Called while agents work: raises what ends the run meanwhile."""

    def keeps_fault(self, keep: KeepFault) -> None:
        """Sets who writes down what ends the run early, once that has been said."""


class Alone:
    """The ranks as children of one process, on this machine."""

    def __init__(self, size: int, host: Host) -> None:
        self.local: Sequence[int] = range(size)
        self.leads = True
        self.hosts: Sequence[Host] = [host] * size
        self.keep_fault: KeepFault = lambda _, __: None

    def together(self, what: str, step: Callable[[], dict[int, T]]) -> dict[int, T]:
        return step()

    def agree(self, error: TcpxError | None) -> None:
        if error is not None:
            raise error

    def leading(self, what: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def look(self) -> None: ...

    def keeps_fault(self, keep: KeepFault) -> None:
        self.keep_fault = keep


class OverMpi:
    """The ranks as those of a world, one in each process."""

    def __init__(self, state: RunState, hosts: Sequence[Host]) -> None:
        self._output, self._world, self.hosts = state.output, state.world, hosts
        world = state.world
        self.local: Sequence[int] = [world.rank]
        self.leads = world.rank == 0

    def together(self, what: str, step: Callable[[], dict[int, T]]) -> dict[int, T]:
        mine: dict[int, T] = {}
        failed: AgentFailed | None = None
        try:
            mine = step()
        except AgentFailed as error:
            failed = error
        fault = None if failed is None else (str(failed), int(failed.exit_code))
        told = self._world.allgather((mine, fault), what, while_alive=True)
        for rank, (_, of_rank) in enumerate(told):
            if of_rank is not None:
                text, code = of_rank
                place = self._world.name(rank)
                raise AgentFailed(f"{place}: {text}", ExitCode(code), rank) from failed
        return {rank: value for values, _ in told for rank, value in values.items()}

    def agree(self, error: TcpxError | None) -> None:
        mine = None if error is None else (str(error), int(error.exit_code))
        told = self._world.allgather(mine, "verdict", while_alive=True)[0]
        if told is not None:
            text, code = told
            raise AgreedError(text, ExitCode(code), 0) from error

    @contextlib.contextmanager
    def leading(self, what: str) -> Iterator[None]:
        with self._world.agree(what, while_alive=True), self._world.at_work():
            yield

    def keeps_fault(self, keep: KeepFault) -> None:
        self._output.keeps_fault = keep

    def look(self) -> None:
        if number := _native.stop_signal():
            raise interrupted_by(number)
        if self._world.roll_call.alarmed():
            raise Alarm
        self._world.roll_call.answer_inquiries()

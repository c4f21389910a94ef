"""The parent's end of an agent process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.nixl.agent_process import AgentPlan, serve
from tcpx_mpi.world import AgreedError

#: Importing NIXL and its libraries takes seconds on a busy machine.
_PATIENCE_S = 120.0
_END_PATIENCE_S = 30.0
#: How often a parent looks round while it waits for its agents.
_LOOK_S = 0.05


class AgentFailed(AgreedError):
    """The error of an agent, or its death: known to all ranks."""


class AgentChild:
    """An agent process; `look` is called while its answer is waited for, and may raise."""

    def __init__(self, plan: AgentPlan, look: Callable[[], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe: Connection
        self._pipe, theirs = context.Pipe()
        self.plan, self._look = plan, look
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

    def answer(self, more_s: float = 0.0) -> Any:
        """Raises AgentFailed with what the agent told; or if it died, or says nothing so long."""
        patience_s = _PATIENCE_S + more_s
        deadline = time.monotonic() + patience_s
        try:
            while not self._pipe.poll(_LOOK_S):
                self._look()
                if time.monotonic() > deadline:
                    text = f"the {self.plan.name} did not answer in {patience_s:.0f} s"
                    raise AgentFailed(text, ExitCode.LOST_RANK, self.plan.rank)
            good, *rest = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._lost() from None
        if good:
            return rest[0]
        code, text = rest
        raise AgentFailed(f"the {self.plan.name}: {text}", ExitCode(code), self.plan.rank)

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
        except (OSError, ValueError):
            pass
        else:
            deadline = time.monotonic() + _END_PATIENCE_S
            while self._process.is_alive() and time.monotonic() < deadline:
                self._process.join(_LOOK_S)
                self._look()
        if self._process.is_alive():
            self.kill()
            return f"the {self.plan.name} did not end in {_END_PATIENCE_S:.0f} s"
        self._process.join()
        code = self._process.exitcode
        return f"the {self.plan.name} ended with {code}" if code else ""

    def kill(self) -> None:
        """Ends it at once, whatever it does."""
        self._process.kill()
        self._process.join()

    def _lost(self) -> AgentFailed:
        self._process.join(5)
        text = f"the {self.plan.name} ended with {self._process.exitcode}"
        return AgentFailed(text, ExitCode.LOST_RANK, self.plan.rank)

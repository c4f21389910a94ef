"""The companion process as its rank sees it: start it, ask it, say why it is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.baselines.nccl.channel import DONE, PROGRESS, Channel, Closed
from tcpx_mpi.launch.own_python import module_command, without_here
from tcpx_mpi.world import interrupted_by

_PROGRAM = "tcpx_mpi.baselines.nccl.companion"
#: What it said last is kept, to be shown where it fails.
_KEPT_BYTES = 8192
#: So often a wait looks for a signal that asks this rank to stop.
_LOOK_S = 0.05
#: A companion that is asked for something takes a request at once, unless it was stopped.
_TAKEN_S = 30.0
#: One that was told to end may take so long.
_END_S = 5.0


class CompanionFailed(Exception):
    """`code` is NCCL's result, or -1: it is gone, it hangs, or something else failed in it.

    `late`: it hangs, perhaps because another one has failed.
    """

    def __init__(self, text: str, code: int = -1, late: bool = False) -> None:
        super().__init__(text)
        self.code, self.late = code, late


class CompanionProcess:
    """One companion; requests are answered in order, one at a time."""

    def __init__(self, environment: Mapping[str, str], backend: str, gpu_pci: str) -> None:
        """Starts it and waits for nothing; its first answer is that of `facts`."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = module_command(_PROGRAM, [str(theirs.fileno()), str(os.getpid())])
            self._process = subprocess.Popen(
                [*command, backend, gpu_pci],
                env=without_here(environment),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # where NCCL logs to
                stderr=subprocess.STDOUT,
            )
        self._channel = Channel(ours)
        self._said = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: str, *arguments: object, patience_s: float) -> Any:
        """The answer to a request of `companion.Companion`.

        Raises CompanionFailed if it fails or does not come, after which the companion is gone,
        and Interrupted on a signal.
        """
        self.request(request, *arguments)
        return self.answer(request, patience_s)

    def request(self, request: str, *arguments: object, patience_s: float = _TAKEN_S) -> None:
        """Ask, without waiting for the answer. Raises as `ask` where it does not take the request
        for `patience_s`: it has nothing else to do.
        """
        deadline = time.monotonic() + patience_s
        self._channel.post((request, arguments))
        try:
            while not self._channel.flush(_LOOK_S):
                self._look_around(f"`{request}` was not taken", deadline, patience_s)
        except Closed:
            raise self._gone() from None

    def answer(self, request: str, patience_s: float) -> Any:
        """The answer to what was asked, as in `ask`."""
        deadline = time.monotonic() + patience_s
        while True:
            message = self.message(_LOOK_S)
            if message is not None and message[0] != PROGRESS:
                return self.result(message)
            self._look_around(f"`{request}` was not done", deadline, patience_s)

    def message(self, patience_s: float) -> Any:
        """Its next message, or None after `patience_s`. Raises CompanionFailed if it is gone."""
        try:
            return self._channel.receive(patience_s)
        except Closed:
            raise self._gone() from None

    def result(self, message: Any) -> Any:
        """The content of an answer. Raises CompanionFailed for one that says that it failed."""
        kind, content = message
        if kind == DONE:
            return content
        call, code, text = content
        self.kill()
        raise CompanionFailed(f"{call}: {text}{self._last_words()}", code)

    def close(self) -> None:
        """Ends it in order where it can be, else by force."""
        self._channel.close()
        self._wait()
        self.kill()

    def kill(self) -> None:
        """It is gone when this returns, and with it what it holds of the GPU."""
        self._process.kill()
        self._wait()
        self._channel.close()
        self._listener.join(_END_S)  # until all that it said is here

    def _look_around(self, what: str, deadline: float, patience_s: float) -> None:
        if number := _native.stop_signal():
            self.kill()
            raise interrupted_by(number)
        if time.monotonic() > deadline:
            self.kill()
            late = f"{what} within {patience_s:.3g} s"
            raise CompanionFailed(late + self._last_words(), late=True)

    def _wait(self) -> None:
        # In a call of the driver it may take its time to die, for which nobody need wait longer.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)

    def _gone(self) -> CompanionFailed:
        self._wait()
        code = self._process.returncode
        self.kill()
        if code is None:
            how = "has closed its channel"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"has ended with exit code {code}"
        return CompanionFailed(f"the companion process {self.pid} {how}{self._last_words()}")

    def _last_words(self) -> str:
        """The last line that it wrote, for an error; all that is kept goes to our stderr."""
        lines = [
            line for line in self._said.decode("utf-8", "replace").splitlines() if line.strip()
        ]
        for line in lines:
            print(f"# companion {self.pid}: {line}", file=sys.stderr)
        return f"; it said: {' '.join(lines[-1].split())}" if lines else ""

    def _listen(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        with pipe:
            while said := os.read(pipe.fileno(), _KEPT_BYTES):
                self._said = (self._said + said)[-_KEPT_BYTES:]

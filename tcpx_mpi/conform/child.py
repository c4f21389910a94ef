"""One clause in a process of its own: a crash, a hang or an exit there is a verdict."""

from __future__ import annotations

import json
import os
import select
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, NoReturn

from tcpx_mpi import _native
from tcpx_mpi.conform.bench import Bench
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.outcome import Broken, NotOffered, NotTried, Outcome, Verdict
from tcpx_mpi.parent_death import end_with_parent
from tcpx_mpi.plugin.trial import END_BY_PLUGIN

#: Of a clause's time a wait within it has so much: the clause then says what it waited for.
_PATIENCE = 0.6
_STEP, _OUTCOME, _DEFECT = "step", "outcome", "defect"
_MOST_SAID = 160


@dataclass(frozen=True)
class Target:
    """The plugin, the version and the memory that are tried."""

    path: str
    abi: int
    memory: str
    deadline_s: float


def try_clause(clause: Clause, target: Target) -> Outcome:
    """The outcome of a clause. No process of it is left afterwards."""
    with tempfile.TemporaryFile() as said:
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # nothing of ours runs in threads
            process = os.fork()
        if process == 0:
            os.close(read)
            _in_child(clause, target, write, said)
        os.close(write)
        try:
            return _follow(process, read, target.deadline_s, said)
        finally:
            os.close(read)
            _end_all(process)


def _end_all(process: int) -> None:
    """Ends it and what it started; it is the leader of their group."""
    for end in (os.killpg, os.kill):
        try:
            end(process, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    try:
        os.waitpid(process, 0)
    except ChildProcessError:
        return


class _Steps:
    """The step that each thread of a clause is at."""

    def __init__(self) -> None:
        self._last = "starting"
        self._by_thread: dict[int, str] = {}

    def take(self, thread: int, step: str) -> None:
        self._by_thread[thread] = step
        self._last = step or self._last

    def __str__(self) -> str:
        threads = len(self._by_thread)
        under_way = " and ".join(dict.fromkeys(filter(None, self._by_thread.values())))
        by = f" by {threads - 1} threads" if threads > 1 else ""  # the main one waits for them
        return (under_way or self._last) + by


def _follow(process: int, pipe: int, deadline_s: float, said: IO[bytes]) -> Outcome:
    deadline = time.monotonic() + deadline_s
    end = os.pidfd_open(process)
    steps, rest, waiting = _Steps(), b"", {pipe, end}
    try:
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                return Outcome(Verdict.FAIL, f"hangs: {steps} did not end within {deadline_s:g} s")
            if pipe not in ready:  # it has ended, and all that it had to say is read
                break
            piece = os.read(pipe, 1 << 16)
            waiting -= set() if piece else {pipe}
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                kind, value = json.loads(line)
                if kind == _DEFECT:
                    raise RuntimeError(f"the check of a clause is broken:\n{value}")
                if kind == _OUTCOME:
                    verdict, *rest = value
                    return Outcome(Verdict(verdict), *rest)
                steps.take(*value)
    finally:
        os.close(end)
    _, status = os.waitpid(process, 0)
    return Outcome(Verdict.FAIL, f"{steps}: {_ended(os.waitstatus_to_exitcode(status), said)}")


def _ended(code: int, said: IO[bytes]) -> str:
    """The end of a process without a verdict, in words."""
    said.seek(0)
    lines = [line.strip() for line in said.read().decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    if told := END_BY_PLUGIN.fullmatch(last):
        return f"the plugin has {told[1]}"
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process was ended by exit({code})" + (f": {last[:_MOST_SAID]}" if last else "")


# --- In the process of its own --------------------------------------------------------------------


def _in_child(clause: Clause, target: Target, pipe: int, said: IO[bytes]) -> NoReturn:
    def say(kind: str, value: object) -> None:
        os.write(pipe, json.dumps([kind, value]).encode() + b"\n")

    def tell(thread: int, step: str) -> None:
        say(_STEP, (thread, step))

    try:
        if not end_with_parent(os.getppid()):
            os._exit(1)
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for stream in (1, 2):  # a plugin prints what it likes
            os.dup2(said.fileno(), stream)

        outcome = _outcome(clause, target, tell)
        say(_OUTCOME, (outcome.verdict.value, outcome.reason, outcome.hurts))
    except BaseException:  # this is the end of the process: nobody above may see it
        say(_DEFECT, traceback.format_exc())
    os._exit(0)


def _outcome(clause: Clause, target: Target, tell: Callable[[int, str], None]) -> Outcome:
    patience_s = target.deadline_s * _PATIENCE
    bench = Bench(target.path, target.abi, target.memory, patience_s, tell)
    try:
        return Outcome(Verdict.PASS, clause.check(bench))
    except Broken as broken:
        return Outcome(Verdict.FAIL, str(broken), broken.hurts)
    except _native.LibraryError as broken:
        return Outcome(Verdict.FAIL, str(broken))
    except NotOffered as without:
        return Outcome(Verdict.NOT_OFFERED, str(without))
    except NotTried as why:
        return Outcome(Verdict.NOT_TRIED, str(why))

"""One rank of the judge: does what it is told, a line of JSON a step, and answers with a line.

    nccl_rank.py --rank R --world N --gpu G [--library NAME] [--patience SECONDS]

NAME: nccl, or what stands in for it without a GPU: stand-in, unpacking. Steps, by `do`:

    facts                               versions; {"missing": why} where there is no NCCL or GPU
    id                                  what all ranks must have of one to meet
    meet, comm, id                      make a communicator of that name
    run, cases                          launch all of them, wait, compare every byte
    time, case, warm, times             launch one often, and say how long it took, and which
                                        threads were busy for which share of that
    die, case                           kill this process in the midst of what is launched
    lose, case                          launch until a failure ends it, and say which
    abort, comm                         abort a communicator; the seconds that took
    leave, comm                         destroy a communicator
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from nccl_cases import GUARD, POISON, Case, layout_of, source_of, verdict
from nccl_library import Communicator, Library, LibraryError, Memory

#: Launches between two looks at whether the peer is still there.
_BURST = 8


class Rank:
    """The steps of one rank."""

    def __init__(self, library: Library, rank: int, world: int, patience_s: float) -> None:
        self._library, self._rank, self._world = library, rank, world
        self._patience_s = patience_s
        self._comms: dict[str, Communicator] = {}

    def answer(self, step: dict[str, Any]) -> Any:
        name = step.pop("do")
        return getattr(self, f"do_{name}")(**step)

    def do_facts(self) -> Any:
        return self._library.facts()

    def do_id(self) -> Any:
        return self._library.unique_id()

    def do_meet(self, comm: str, id: list[int]) -> Any:
        self._comms[comm] = self._library.communicator(id, self._rank, self._world)
        return comm

    def do_leave(self, comm: str) -> Any:
        self._comms.pop(comm).destroy()
        return comm

    def do_run(self, cases: list[dict[str, Any]]) -> Any:
        prepared = [(case, *self._prepared(case)) for case in (Case(**each) for each in cases)]
        for case, source, source_at, target in prepared:
            self._launch(case, source, source_at, target)
        end_by = time.monotonic() + self._patience_s
        for comm in {case.comm for case, *_ in prepared}:
            self._comms[comm].wait(end_by)
        return [
            verdict(case, self._rank, self._world, target.download())
            for case, _, _, target in prepared
        ]

    def do_time(self, case: dict[str, Any], warm: int, times: int) -> Any:
        timed = Case(**case)
        comm, prepared = self._comms[timed.comm], self._prepared(timed)
        elapsed, before = 0.0, busy_threads()
        for repeats in (warm, times):
            before = busy_threads()
            end_by = time.monotonic() + self._patience_s
            start = time.perf_counter()
            for _ in range(repeats):
                self._launch(timed, *prepared)
            comm.wait(end_by)
            elapsed = time.perf_counter() - start
        shares: dict[str, list[float]] = {}
        for thread, (name, busy) in busy_threads().items():
            share = (busy - before.get(thread, (name, 0.0))[1]) / elapsed
            shares.setdefault(name, []).append(round(share, 2))
        return {
            "seconds": elapsed / times,
            "busy": {name: sorted(each, reverse=True) for name, each in shares.items()},
        }

    def do_die(self, case: dict[str, Any]) -> Any:
        dying = Case(**case)
        prepared = self._prepared(dying)
        for _ in range(_BURST):
            self._launch(dying, *prepared)
        os.kill(os.getpid(), signal.SIGKILL)

    def do_lose(self, case: dict[str, Any]) -> Any:
        losing = Case(**case)
        comm, prepared = self._comms[losing.comm], self._prepared(losing)
        end_by = time.monotonic() + self._patience_s
        try:
            while time.monotonic() < end_by:
                for _ in range(_BURST):
                    self._launch(losing, *prepared)
                comm.wait(end_by)
        except LibraryError as error:
            return str(error)
        return ""

    def do_abort(self, comm: str) -> Any:
        told = threading.Timer(self._patience_s / 2, say_threads)
        told.start()
        start = time.monotonic()
        self._comms.pop(comm).abort()
        told.cancel()
        return time.monotonic() - start

    def _prepared(self, case: Case) -> tuple[Memory, int, Memory]:
        """Source, where in it this rank's part begins, target; both filled."""
        layout = layout_of(case, self._rank, self._world)
        target = self._library.memory(layout.target_with_guards)
        filled = np.full(layout.target_with_guards, POISON, np.uint8)
        data = source_of(case, self._rank, self._world)
        if case.in_place:
            at = GUARD + layout.source_at
            filled[at : at + len(data)] = data
            target.upload(filled)
            return target, at, target
        target.upload(filled)
        source = self._library.memory(len(data))
        source.upload(data)
        return source, 0, target

    def _launch(self, case: Case, source: Memory, source_at: int, target: Memory) -> None:
        self._comms[case.comm].launch(case, source, source_at, target, GUARD)


def busy_threads() -> dict[int, tuple[str, float]]:
    """Name and CPU seconds of each thread of this process."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            found[int(task.name)] = (name, int((task / "schedstat").read_text().split()[0]) / 1e9)
        except OSError:  # it has ended
            continue
    return found


def say_threads() -> None:
    """What each thread of this process does, on standard error: NCCL's and the plugin's, too."""
    for task in sorted(Path("/proc/self/task").iterdir()):
        said = [task.name]
        for file in ("comm", "wchan", "syscall"):
            try:
                said.append((task / file).read_text().strip())
            except OSError as error:
                said.append(str(error.strerror))
        print(" | ".join(said), file=sys.stderr, flush=True)


def library_of(name: str, gpu: int) -> Library:
    if name == "stand-in":
        from nccl_stand_in import StandInLibrary

        return StandInLibrary()
    if name == "unpacking":
        from nccl_unpacking import UnpackingLibrary

        return UnpackingLibrary()
    from nccl_by_cupy import CupyLibrary

    return CupyLibrary(gpu)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--gpu", type=int, required=True)
    parser.add_argument("--library", choices=("nccl", "stand-in", "unpacking"), default="nccl")
    parser.add_argument("--patience", type=float, default=30.0)
    arguments = parser.parse_args()
    # The answers' way out is ours alone: NCCL and its plugins write to standard output, too.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    rank: Rank | None = None
    missing = ""
    try:
        library = library_of(arguments.library, arguments.gpu)
        rank = Rank(library, arguments.rank, arguments.world, arguments.patience)
    except LibraryError as error:
        missing = str(error)
    for line in sys.stdin:
        # Whatever hangs, this process does not outlive its patience by much, and says where.
        faulthandler.dump_traceback_later(2 * arguments.patience, exit=True)
        try:
            answer = {"missing": missing} if rank is None else {"ok": rank.answer(json.loads(line))}
        except LibraryError as error:
            answer = {"failed": str(error)}
        answers.write(json.dumps(answer) + "\n")
        faulthandler.cancel_dump_traceback_later()
    answers.flush()
    # Where a communicator was lost, its end may never come.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())

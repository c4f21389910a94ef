"""Ranks of the judge in processes of their own: started, told, ended; every wait has a deadline."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from nccl_cases import Case

RANK = Path(__file__).with_name("nccl_rank.py")
#: As the recipe of TCPX has it, and nothing but the net between two GPUs of a host.
NET_ONLY = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
RECIPE = {"NCCL_NET_GDR_LEVEL": "SYS", "NCCL_PROTO": "Simple", "NCCL_ALGO": "Ring"}
#: What a rank must not inherit.
STEERING = ("NCCL_", "SOFTTCPX_", "UCCL_", "TCPX_")
_UNPACKS = "NCCL_NET_DEVICE_UNPACK"
_CHANNELS = re.compile(r"\d+ coll channels.*")
_WAY = re.compile(r" via (\S+)")
_OVER_SOFTTCPX = re.compile(r"NET/softtcpx_v\d+/\d+/GDRDMA")


class SessionError(Exception):
    """A rank did not answer, or answered that a step failed."""


class NothingHere(Exception):
    """There is no NCCL, or no such GPU."""


def over_softtcpx(plugin: str, interface: str = "lo") -> dict[str, str]:
    """What NCCL is told so that it uses our plugin, and nothing of how fast to be."""
    return {**NET_ONLY, **RECIPE, "NCCL_NET_PLUGIN": plugin, "NCCL_SOCKET_IFNAME": interface}


def channels_of(log: str) -> str:
    """How many channels NCCL says that it has."""
    found = _CHANNELS.search(log)
    return found.group() if found else "channels are not told"


def ways_of(log: str, unpacked: bool = True) -> list[str]:
    """What is wrong with the ways that NCCL says it took; nothing: all over softtcpx, and NCCL
    unpacks what it receives, or does not."""
    has, not_so = ("has no", unpacked) if _UNPACKS not in log else ("has", not unpacked)
    faults = [f"the log {has} {_UNPACKS}"] if not_so else []
    ways = _WAY.findall(log)
    if not ways:
        faults.append("the log names no way between two ranks")
    others = sorted({way for way in ways if not _OVER_SOFTTCPX.match(way)})
    return [*faults, *(f"a channel went via {way}" for way in others)]


class NcclJob:
    """Ranks with one environment; `gpus` has one number a rank; `apart`: each is on a host of its
    own to NCCL."""

    def __init__(
        self, place: Path, gpus: Sequence[int], variables: Mapping[str, str],
        library: str = "nccl", patience_s: float = 30.0, apart: bool = False,
    ) -> None:  # fmt: skip
        self.world = len(gpus)
        self._place, self._patience_s = place, patience_s
        self._broken = ""
        place.mkdir(parents=True, exist_ok=True)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
        self._ranks = []
        #: Of rank 0, the last time that it timed: by thread's name, shares of a CPU.
        self.busy: dict[str, list[float]] = {}
        for rank, gpu in enumerate(gpus):
            # NCCL takes a GPU of a host once: who shares one is on a host of its own.
            turn = rank if apart else list(gpus[:rank]).count(gpu)
            host = {"NCCL_HOSTID": f"judge-{turn}"} if turn else {}
            own = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,TUNING",
                   "NCCL_DEBUG_FILE": str(place / f"nccl.{rank}.log")}  # fmt: skip
            command = [sys.executable, str(RANK), "--rank", str(rank), "--world", str(self.world),
                       "--gpu", str(gpu), "--library", library,
                       "--patience", str(patience_s)]  # fmt: skip
            self._ranks.append(
                _Process(command, {**clean, **own, **host, **variables}, place, rank)
            )

    def facts(self) -> dict[str, Any]:
        """Of rank 0. Raises NothingHere."""
        facts: dict[str, Any] = self.tell({"do": "facts"})[0]
        return facts

    def meet(self, comm: str = "first") -> None:
        """All ranks make a communicator of that name."""
        (unique_id,) = self.tell({"do": "id"}, ranks=[0])
        self.tell({"do": "meet", "comm": comm, "id": unique_id})

    def leave(self, comm: str = "first") -> None:
        self.tell({"do": "leave", "comm": comm})

    def run(self, *cases: Case) -> list[dict[str, Any]]:
        """All of these at once; the verdicts of all ranks."""
        answers = self.tell({"do": "run", "cases": [asdict(case) for case in cases]})
        return [{"rank": rank, **each} for rank, mine in enumerate(answers) for each in mine]

    def seconds(self, case: Case, warm: int, times: int) -> float:
        """How long one of many took, on the rank for which it was longest."""
        told = {"do": "time", "case": asdict(case), "warm": warm, "times": times}
        answers = self.tell(told)
        self.busy = answers[0]["busy"]
        return float(max(each["seconds"] for each in answers))

    def tell(self, step: dict[str, Any], ranks: Sequence[int] | None = None) -> list[Any]:
        """Each of these ranks does this; what they answer."""
        if self._broken:
            raise SessionError(f"not tried, as before it: {self._broken}")
        among = [self._ranks[rank] for rank in (range(self.world) if ranks is None else ranks)]
        for process in among:
            process.tell(step)
        return [self.answer(process.rank) for process in among]

    def begin(self, step: dict[str, Any], rank: int) -> None:
        """A rank does this; its answer is asked for later, or never comes."""
        self._ranks[rank].tell(step)

    def answer(self, rank: int) -> Any:
        try:
            return self._ranks[rank].answer(time.monotonic() + 2.5 * self._patience_s)
        except SessionError as error:
            # What is stuck stays so, and each further step would wait for its deadline.
            self._broken = str(error).splitlines()[0]
            raise

    def exit_code(self, rank: int) -> int:
        """Once the rank has ended by itself."""
        return self._ranks[rank].ended(2.5 * self._patience_s)

    def log(self) -> str:
        """What NCCL said on all ranks."""
        files = sorted(self._place.glob("nccl.*.log"))
        return "".join(path.read_text(errors="replace") for path in files)

    def close(self) -> None:
        for process in self._ranks:
            process.close()

    def __enter__(self) -> NcclJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


class _Process:
    """One rank's process; a thread reads its answers, so that each wait can have a deadline."""

    def __init__(
        self, command: list[str], environ: Mapping[str, str], place: Path, rank: int
    ) -> None:
        self.rank = rank
        self._said = place / f"rank.{rank}.err"
        with self._said.open("w") as errors:
            self._process = subprocess.Popen(
                command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True, bufsize=1,
            )  # fmt: skip
        self._answers: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def tell(self, step: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(step) + "\n")
        except OSError as error:
            raise SessionError(f"rank {self.rank} is gone ({error}): {self._tail()}") from None

    def answer(self, end_by: float) -> Any:
        try:
            line = self._answers.get(timeout=max(0.0, end_by - time.monotonic()))
        except queue.Empty:
            raise SessionError(f"rank {self.rank} does not answer: {self._tail()}") from None
        if not line:
            code = self._process.wait(5)
            raise SessionError(f"rank {self.rank} ended with {code}: {self._tail()}")
        answer = json.loads(line)
        if "missing" in answer:
            raise NothingHere(answer["missing"])
        if "failed" in answer:
            raise SessionError(f"rank {self.rank}: {answer['failed']}: {self._tail()}")
        return answer["ok"]

    def ended(self, patience_s: float) -> int:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise SessionError(f"rank {self.rank} does not end: {self._tail()}") from None

    def _tail(self) -> str:
        """What it said last, and what NCCL warned of."""
        log = self._said.with_name(f"nccl.{self.rank}.log")
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        warnings = [line for line in lines if " WARN " in line][-5:]
        return "\n".join([self._said.read_text(errors="replace")[-2000:], *warnings])

    def close(self) -> None:
        try:
            self.ended(5.0)
        except (SessionError, OSError):
            self._process.kill()
            self._process.wait(5)
        self._reader.join(5)
        if self._process.stdout is not None:
            self._process.stdout.close()

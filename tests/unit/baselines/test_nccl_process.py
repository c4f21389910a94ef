"""A rank's hold on its companion: what it answers, and how it ends, always told and never left."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tcpx_mpi.baselines.nccl.baseline import CompanionSlots
from tcpx_mpi.baselines.nccl.process import CompanionFailed, CompanionProcess
from tcpx_mpi.errors import PluginFailed
from tcpx_mpi.schedule.table import BufferId

PATIENCE_S = 30.0
Start = Callable[[str], CompanionProcess]

#: Backends, as a companion imports them; each goes wrong in its own way.
BACKENDS = """
import os, signal, sys, threading

class Backend:
    def facts(self):
        return {"name": "a backend", "model": os.environ["GPU"]}

    def unique_id(self):
        KIND(self)

def open_backend(gpu_pci):
    os.environ["GPU"] = gpu_pci
    return Backend()
"""
KINDS = {
    "sound": "return b'id'",
    "killed": "print('about to die', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)",
    "exits": "os._exit(3)",
    "defect": "raise ZeroDivisionError('a defect')",
    "hangs": "print('waits'); sys.stdout.flush(); threading.Event().wait()",
    "talks": "print('x' * 1_000_000 + ' the end', flush=True); os._exit(4)",
    "broken GPU": "from tcpx_mpi import _native; raise _native.CudaError('cuLaunchKernel: (719)')",
    "unwilling": "from tcpx_mpi.baselines.nccl.backend import BackendError; "
                 "raise BackendError('ncclGetUniqueId', 6, 'remote error')",
}  # fmt: skip


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[CompanionProcess] = []

    def of_kind(kind: str) -> CompanionProcess:
        code = BACKENDS.replace("KIND(self)", KINDS[kind])
        (tmp_path / "a_backend.py").write_text(code)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        started.append(CompanionProcess(environment, "a_backend", "0000:01:00"))
        return started[-1]

    yield of_kind
    for companion in started:
        companion.kill()


def gone(pid: int) -> bool:
    """Whether a process has ended, within the patience."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    ended = bool(poll.poll(1e3 * PATIENCE_S))
    os.close(watch)
    return ended


def test_it_answers_and_ends_when_it_is_closed(start: Start) -> None:
    companion = start("sound")
    facts = companion.answer("facts", PATIENCE_S)
    assert facts == {"name": "a backend", "model": "0000:01:00"}
    assert companion.ask("unique_id", patience_s=PATIENCE_S) == b"id"
    pid = companion.pid
    companion.close()
    assert gone(pid)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("killed", ["was ended by SIGKILL", "it said: about to die"]),
        ("exits", ["has ended with exit code 3"]),
        ("defect", ["has ended with exit code 1", "ZeroDivisionError: a defect"]),
        ("talks", ["exit code 4", "the end"]),
        ("unwilling", ["ncclGetUniqueId: remote error"]),
        ("broken GPU", ["CUDA driver call: cuLaunchKernel: (719)"]),
    ],
)
def test_what_went_wrong_is_one_line(kind: str, words: list[str], start: Start) -> None:
    companion = start(kind)
    companion.answer("facts", PATIENCE_S)
    with pytest.raises(CompanionFailed) as caught:
        companion.ask("unique_id", patience_s=PATIENCE_S)
    text = str(caught.value)
    assert "\n" not in text
    assert all(word in text for word in words), text
    assert len(text) < 10_000, "what it said is kept within bounds"
    assert caught.value.code == (6 if kind == "unwilling" else -1)
    assert gone(companion.pid)


def test_one_that_does_not_answer_is_ended(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    companion = start("hangs")
    companion.answer("facts", PATIENCE_S)
    companion.request("unique_id")
    while b"waits" not in companion._said:
        time.sleep(0.001)  # until it hangs: it told us so
    with pytest.raises(CompanionFailed, match=r"`unique_id` was not done within 0.1 s; it said"):
        companion.answer("unique_id", 0.1)
    assert gone(companion.pid)
    assert f"# companion {companion.pid}: waits" in capfd.readouterr().err


def test_one_that_takes_no_request_is_ended(start: Start) -> None:
    companion = start("sound")
    companion.answer("facts", PATIENCE_S)
    os.kill(companion.pid, signal.SIGSTOP)
    more_than_sockets_hold = bytes(16 << 20)
    with pytest.raises(CompanionFailed, match=r"`load` was not taken within 0.1 s") as failed:
        companion.request("load", more_than_sockets_hold, patience_s=0.1)
    assert failed.value.late
    assert gone(companion.pid)


def test_one_without_a_backend_says_so_at_once(start: Start) -> None:
    companion = CompanionProcess(os.environ, "tcpx_mpi.nowhere", "")
    with pytest.raises(CompanionFailed, match=r"No module named 'tcpx_mpi\.nowhere'"):
        companion.answer("facts", PATIENCE_S)


def test_a_signal_to_all_of_the_process_group_is_for_the_rank_to_understand(start: Start) -> None:
    companion = start("sound")
    companion.answer("facts", PATIENCE_S)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(companion.pid, number)
    assert companion.ask("unique_id", patience_s=PATIENCE_S) == b"id"


def test_one_that_dies_between_two_batches_is_named_with_its_rank(start: Start) -> None:
    companion = start("sound")
    companion.answer("facts", PATIENCE_S)
    os.kill(companion.pid, signal.SIGKILL)
    assert gone(companion.pid)  # or the request would reach it
    slots = CompanionSlots(companion, "rank 1 on b, peer nccl", BufferId.SEND, 4096)
    with pytest.raises(PluginFailed) as failed:
        slots.cut(8, 0, 4096, 1)
    assert re.match(r"rank 1 on b, peer nccl: the companion process \d+ was ended by SIGKILL",
                    str(failed.value))  # fmt: skip


PARENT = """
import sys, os, signal
from tcpx_mpi.baselines.nccl.process import CompanionProcess
companion = CompanionProcess(os.environ, "a_backend", "")
companion.answer("facts", 30)
if sys.argv[1] == "busy":
    companion.request("unique_id")
print(companion.pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("state", ["asleep", "busy"])
def test_it_ends_with_its_rank_however_that_ends(state: str, tmp_path: Path) -> None:
    (tmp_path / "a_backend.py").write_text(BACKENDS.replace("KIND(self)", KINDS["hangs"]))
    command = [sys.executable, "-c", PARENT, state]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        parent.kill()
    assert gone(pid)

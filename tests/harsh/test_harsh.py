"""What softtcpx spares its callers and TCPX does not: exits, errors that only the log tells, counts
left in a slot, set-up of one thread at a time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from jobs import run, tcpx_mpi
from refplugin_build import build

from tcpx_mpi.plugin.find import bundled_dir

SOURCE = Path(__file__).parent / "harsh.cc"
RUN = ("--ranks", "2", "-w", "0", "--hdf5", "none", "--spool", ".")


@pytest.fixture(scope="session")
def harsh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("harsh"), SOURCE)


def habits(*names: str) -> dict[str, str]:
    return {
        "HARSH_INNER": os.path.join(bundled_dir(), "libnccl-net-softtcpx.so"),
        "HARSH_HABITS": ",".join(names),
    }


def session(harsh: Path, place: Path, body: str, *names: str) -> subprocess.CompletedProcess[str]:
    """A program that is its own peer, in a process of its own."""
    prelude = f"""
    import os, sys, threading, time
    import numpy as np
    from tcpx_mpi import Session
    def alone(**settings):
        s = Session(plugin={str(harsh)!r}, channels=1, **settings)
        s.load_remote_conn_info(s.listen())
        return s
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(body)],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "NCCL_SOCKET_IFNAME": "lo", **habits(*names),
             "HARSH_GATE": str(place / "gate")},
    )  # fmt: skip


# --- Exits ----------------------------------------------------------------------------------------


@pytest.mark.multirank
@pytest.mark.parametrize(
    ("habit", "code", "words"),
    [
        ("exits-at-init", 4, "exit(1); the plugin said: harsh: no GPU here"),
        ("exits-in-batch", 13,
         "exit(1), in a batch; the plugin said: harsh: a truncated control message"),
    ],
)  # fmt: skip
def test_a_plugin_that_calls_exit_is_named_and_its_reason_quoted(
    harsh: Path, tmp_path: Path, habit: str, code: int, words: str
) -> None:
    command = tcpx_mpi("run", "pair", "--plugin", str(harsh), "-b", "1M", "-e", "1M", *RUN)
    result = run(command, tmp_path, habits(habit))
    assert result.code == code, result.text
    said = [line for line in result.errors if words in line]
    assert said, result.text
    assert said[0].startswith("rank ")
    # One that calls exit in its init is met in a process of its own first.
    by = f"{harsh}: init of the plugin ended this process by "
    if habit != "exits-at-init":
        by = f": the plugin {harsh} has ended this process by "
    assert by in said[0]


def test_a_program_that_a_plugin_ends_is_told_who_did(harsh: Path, tmp_path: Path) -> None:
    done = session(harsh, tmp_path, "alone()", "exits-at-init")
    # It was met in a process of its own first, and the program goes on with an error.
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert f"{harsh}: init of the plugin ended this process by exit(1)" in last
    assert last.endswith("; the plugin said: harsh: no GPU here")


def test_an_exit_of_the_programs_own_is_nobody_elses(harsh: Path, tmp_path: Path) -> None:
    done = session(harsh, tmp_path, "s = alone(); s.establish(); sys.exit(7)")
    assert (done.returncode, done.stderr) == (7, "")


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.multirank
def test_the_reason_of_a_call_that_fails_in_a_batch_is_what_the_plugin_logged(
    harsh: Path, tmp_path: Path
) -> None:
    command = tcpx_mpi("run", "pair", "--plugin", str(harsh), "-b", "1M", "-e", "1M", *RUN)
    result = run(command, tmp_path, habits("fails-in-batch"))
    assert result.code == 13, result.text
    assert "plugin call isend returned 3 (internal error); send to rank" in result.errors[0]
    assert result.errors[0].endswith("; the plugin said: harsh: a truncated control message")


def test_the_reason_of_a_failed_transfer_is_what_the_plugin_logged(
    harsh: Path, tmp_path: Path
) -> None:
    body = """
    s = alone()
    s.establish()
    memory = s.register_memory(np.zeros(64, np.uint8))
    for _ in range(20):
        with s.create_transfer() as t:
            t.post_recv(memory, 0, 8)
            t.post_send(memory, 8, 8)
            t.wait()
    """
    done = session(harsh, tmp_path, body, "fails-in-batch")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith(
        "plugin call isend returned 3 (internal error); the plugin said: harsh: a truncated "
        "control message"
    )


# --- Receives -------------------------------------------------------------------------------------


@pytest.mark.multirank
def test_an_empty_receive_has_no_fragments_whatever_its_slot_says(
    harsh: Path, tmp_path: Path
) -> None:
    command = tcpx_mpi(
        "run", "ring", "--plugin", str(harsh), "--sizes", "256K,0", "-N", "2", "-n", "40",
        "--channels", "1", "--memory", "emulated", *RUN,
    )  # fmt: skip
    result = run(command, tmp_path, habits("keeps-counts"))
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0, None, 0, None]  # nothing to check


@pytest.mark.multirank
def test_host_memory_is_no_gpu_to_a_plugin_that_takes_real_ones(
    harsh: Path, tmp_path: Path
) -> None:
    command = tcpx_mpi("run", "pair", "--plugin", str(harsh), "-b", "8", "-e", "8",
                       "--memory", "emulated", *RUN)  # fmt: skip
    result = run(command, tmp_path, {**habits("named-tcpx"), "CUDA_VISIBLE_DEVICES": "0"})
    assert result.code == 2, result.text
    assert result.errors == [
        "--memory emulated: plugin GPUDirectTCPX_v7 has no receive path of GPUs for host memory, "
        "which softtcpx alone has; use --plugin softtcpx, or --memory cuda"
    ]


# --- Set-up ---------------------------------------------------------------------------------------


def test_sessions_of_two_threads_set_up_one_after_the_other(harsh: Path, tmp_path: Path) -> None:
    body = """
    def work():
        for _ in range(4):
            with alone() as s:
                s.register_memory(np.zeros(64, np.uint8))
                s.establish()
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    """
    done = session(harsh, tmp_path, body, "one-set-up")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "call",
    ["create_transfer()", "register_memory(np.zeros(8, np.uint8))",
     "_native.is_complete(t)", "_native.release(t)"],
)  # fmt: skip
def test_who_waits_for_a_plugin_lets_other_threads_go_on(
    harsh: Path, tmp_path: Path, call: str
) -> None:
    body = f"""
    sys.setswitchinterval(60)  # who does not give the interpreter away has it until it waits
    gate = os.environ["HARSH_GATE"]
    s = alone()
    t = s._native.create()
    calls = threading.Event()
    def caller():
        while not os.path.exists(gate + ".waits"):
            time.sleep(0.001)  # between two looks at a file that accept makes
        calls.set()
        s.{call}
    def opener():
        calls.wait()
        open(gate, "w").close()
    threads = [threading.Thread(target=each) for each in (caller, opener)]
    for thread in threads: thread.start()
    s.establish()
    for thread in threads: thread.join()
    """
    done = session(harsh, tmp_path, body, "slow-accept")
    assert (done.returncode, done.stderr) == (0, "")

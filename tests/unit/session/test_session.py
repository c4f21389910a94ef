"""Session and Transfer over softtcpx: each test in a process of its own, which is its own peer.

A plugin is initialised once a process, and reads its environment then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import gc, mmap, threading, weakref
import numpy as np
from tcpx_mpi import Session, Transfer
from tcpx_mpi import errors
from tcpx_mpi.errors import SetupFailed, Stalled, TcpxError, UsageError

def alone(**settings):
    # A session whose peer is itself.
    s = Session(plugin="softtcpx", **settings)
    s.load_remote_conn_info(s.listen())
    s.establish()
    return s

def moved(s, source, target):
    a, b = s.register_memory(source), s.register_memory(target)
    with s.create_transfer() as t:
        t.post_recv(b)
        t.post_send(a)
        t.wait()
        assert t.is_complete()
    s.deregister_memory(a)
    s.deregister_memory(b)

def refusal(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except TcpxError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("not refused")
"""


def start(body: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NCCL_SOCKET_IFNAME": "lo", **variables},
    )


def run(body: str, **variables: str) -> str:
    with start(body, **variables) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip()


# --- Bytes ----------------------------------------------------------------------------------------


def test_every_size_arrives_whole_over_every_number_of_channels() -> None:
    run("""
    for channels in (1, 2, 3):
        with alone(channels=channels, chunk_bytes=1024) as s:
            for size in (0, 1, 23, 1023, 1024, 1025, 3 * 1024, 100_003):
                source = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
                target = np.zeros(size + 16, np.uint8)
                moved(s, source, target[:size])
                assert (target[:size] == source).all() and not target[size:].any(), size
    """)


def test_more_than_10000_chunks_arrive_in_order() -> None:
    run("""
    with alone(chunk_bytes=7) as s:
        source = np.random.default_rng(1).integers(0, 256, 80_003, dtype=np.uint8)
        target = np.zeros_like(source)
        moved(s, source, target)
        assert (target == source).all()
    """)


def test_many_messages_of_many_transfers_meet_in_the_order_of_their_posts() -> None:
    run("""
    with alone(channels=2, chunk_bytes=64) as s:
        source, target = np.arange(6400, dtype=np.uint8), np.zeros(6400, np.uint8)
        a, b = s.register_memory(source), s.register_memory(target)
        receives = [s.create_transfer() for _ in range(80)]
        for i, t in enumerate(receives):  # far more than a window, the last place first
            t.post_recv(b, 80 * (79 - i), 80)
        sends = s.create_transfer()
        for i in range(80):
            sends.post_send(a, 80 * i, 80)
        sends.wait()
        for t in receives:
            t.wait()
            t.release()
        assert (target.reshape(80, 80) == source[:6400].reshape(80, 80)[::-1]).all()
    """)


def test_a_thread_may_post_while_another_waits() -> None:
    run("""
    with alone() as s:
        source, target = np.arange(256, dtype=np.uint8), np.zeros(256, np.uint8)
        a, b = s.register_memory(source), s.register_memory(target)
        t = s.create_transfer()
        t.post_recv(b)
        waiter = threading.Thread(target=t.wait)
        waiter.start()
        with s.create_transfer() as send:
            send.post_send(a)
            send.wait()
        waiter.join()
        assert (target == source).all()
    """)


# --- Memory ---------------------------------------------------------------------------------------


def test_anything_with_a_writable_contiguous_buffer_can_be_registered() -> None:
    run("""
    record = np.dtype([("a", "i4"), ("b", "f8")])
    plain = bytearray(24)
    with alone() as s:
        for target in (plain, memoryview(bytearray(24)), mmap.mmap(-1, 24), np.zeros((2, 3), "f4"),
                       np.zeros(2, record), np.array(0.0), np.zeros((3, 8), "u1")[1:]):
            size = np.asarray(memoryview(target)).nbytes
            source = np.arange(size, dtype=np.uint8) + 1
            moved(s, source, target)
            assert bytes(memoryview(target))[:size] == source.tobytes(), target
        assert s.register_memory(np.zeros(0)) > 0
    assert plain[0] == 1
    """)


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("[1, 2]", "needs an array or a writable buffer, found list"),
        ("None", "needs an array or a writable buffer, found NoneType"),
        ("b'abc'", "the array is read-only; register a writable copy"),
        ("np.zeros((4, 4))[:, 1]", "the array is not contiguous; register its base, or a copy"),
        ("np.array([None])", "an array of Python objects has no bytes to move"),
        ("Cuda()", "the array is a GPU's, and the session has none: make it with Session(gpu=...)"),
    ],
)
def test_what_cannot_be_registered_is_refused_in_one_line(what: str, line: str) -> None:
    out = run(f"""
    class Cuda:
        __cuda_array_interface__ = {{}}
    with alone() as s:
        print(refusal(s.register_memory, {what}))
    """)
    assert out.startswith("UsageError: register_memory")
    assert line in out
    assert "\n" not in out


def test_an_array_lives_as_long_as_it_is_registered() -> None:
    run("""
    with alone() as s:
        array = np.zeros(100, np.uint8)
        alive = weakref.ref(array)
        mem_id = s.register_memory(array)
        del array
        gc.collect()
        assert alive() is not None
        s.deregister_memory(mem_id)
        gc.collect()
        assert alive() is None
        other = np.zeros(100, np.uint8)
        alive = weakref.ref(other)
        s.register_memory(other)
        del other
    del s
    gc.collect()
    assert alive() is None
    """)


def test_a_session_that_is_dropped_in_mid_transfer_takes_nothing_along() -> None:
    run("""
    s = alone()
    t = s.create_transfer()
    t.post_recv(s.register_memory(np.zeros(100_000)))
    del s, t
    gc.collect()
    """)


@pytest.mark.parametrize(
    ("offset", "size", "line"),
    [
        ("2**64", "1", f"offset ({2**64}) + bytes (1) is outside of mem_id 1"),
        ("1", "2**64 - 1", f"offset (1) + bytes ({2**64 - 1}) is outside of mem_id 1"),
        ("101", "None", "offset (101) + bytes (0) is outside of mem_id 1"),
        ("-1", "1", "offset (-1) and bytes (1) must not be negative"),
        ("1", "-1", "offset (1) and bytes (-1) must not be negative"),
        ("0.5", "1", "offset (0.5) is not a whole number of bytes"),
    ],
)
def test_numbers_that_are_no_place_in_memory_are_refused_in_one_line(
    offset: str, size: str, line: str
) -> None:
    out = run(f"""
    with alone() as s:
        m = s.register_memory(np.zeros(100, np.uint8))
        t = s.create_transfer()
        print(refusal(t.post_send, m, {offset}, {size}))
        print(refusal(t.post_recv, m, {offset}, {size}))
        assert t.is_complete()
    """)
    assert [text.startswith(f"UsageError: {line}") for text in out.splitlines()] == [True, True]


# --- Steps ----------------------------------------------------------------------------------------


def test_steps_out_of_order_are_refused_with_what_comes_first() -> None:
    out = run("""
    s = Session(plugin="softtcpx")
    print(refusal(s.accept))
    print(refusal(s.connect))
    print(refusal(s.establish))
    m = s.register_memory(np.zeros(10))
    t = s.create_transfer()
    print(refusal(t.post_send, m))
    print(refusal(t.post_recv, m))
    info = s.listen()
    assert s.listen() == info
    s.load_remote_conn_info(info)
    print(refusal(s.load_remote_conn_info, info))
    s.accept()
    s.connect()
    t.release()
    t.release()
    print(refusal(t.post_send, m))
    print(refusal(t.wait))
    s.close()
    s.close()
    for call in (s.listen, s.create_transfer, s.establish):
        print(refusal(call))
    print(refusal(s.register_memory, np.zeros(1)))
    """).splitlines()
    assert out == [
        "UsageError: accept() before listen(): the peer cannot know where to connect",
        "UsageError: connect() before load_remote_conn_info(): the peer is not known",
        "UsageError: establish() needs listen() and load_remote_conn_info() before it",
        "UsageError: no connections of that direction: connect() or establish() comes before a "
        "send",
        "UsageError: no connections of that direction: accept() or establish() comes before a "
        "receive",
        "UsageError: the peer's connection info was loaded before: a session has one peer",
        "UsageError: transfer 1 was released: create another",
        "UsageError: transfer 1 was released: create another",
        *["UsageError: the session is closed: make a new one"] * 4,
    ]


def test_a_peer_that_does_not_come_is_a_set_up_failure_and_may_come_later() -> None:
    out = run("""
    s = Session(plugin="softtcpx", channels=2, connect_timeout_s=0.1)
    info = s.listen()
    print(refusal(s.accept))
    print(refusal(s.accept, timeout_s=0.05))
    s.load_remote_conn_info(info)
    s.establish(timeout_s=20)
    """).splitlines()
    names = "from the peer, channel 0; from the peer, channel 1"
    came = "2 of 2 connections did not come up within"
    assert out == [f"SetupFailed: {came} 0.100 s: {names}", f"SetupFailed: {came} 0.050 s: {names}"]


def test_settings_come_from_the_environment_unless_they_are_given() -> None:
    body = """
    s = Session(plugin="softtcpx")
    print(s._settings.channels, s._settings.chunk_bytes)
    print(Session(plugin="softtcpx", channels=5)._settings.channels)
    print(refusal(Session, plugin="softtcpx", channels=0))
    print(refusal(Session, plugin="softtcpx", chunk_bytes=8192))
    print(refusal(Session, plugin="softtcpx", device=99))
    """
    out = run(body, UCCL_TCPX_NUM_CHANNELS="3", UCCL_TCPX_CHUNK_BYTES="4096").splitlines()
    assert out[:2] == ["3 4096", "5"]
    assert "--channels (0) is too small" in out[2]
    assert "chunk_bytes (8192) is larger than NCCL_DYNAMIC_CHUNK_SIZE (4096)" in out[3]
    assert out[4].startswith("UsageError: device (99) is not one of the plugin's ")


def test_a_plugin_that_is_missing_is_its_own_error() -> None:
    out = run("print(refusal(Session))", UCCL_TCPX_PLUGIN_PATH="/nowhere/plugin.so")
    assert out.startswith("PluginMissing: UCCL_TCPX_PLUGIN_PATH (/nowhere/plugin.so)")


@pytest.mark.parametrize(
    ("environ", "found"),
    [({}, "0"), ({"SOFTTCPX_ANSWER_TIMEOUT_MS": "7000"}, "7000")],
)
def test_softtcpx_waits_for_an_accept_as_long_as_the_session_unless_the_user_says_otherwise(
    environ: dict[str, str], found: str
) -> None:
    body = """
    import os
    Session(plugin="softtcpx", connect_timeout_s=300)
    print(os.environ["SOFTTCPX_ANSWER_TIMEOUT_MS"])
    """
    assert run(body, **environ) == found


# --- Waiting --------------------------------------------------------------------------------------


def test_a_transfer_without_messages_is_complete() -> None:
    run("""
    with alone() as s, s.create_transfer() as t:
        assert t.is_complete()
        t.wait()
    """)


def test_a_session_of_a_gpu_is_refused_by_what_its_plugin_says_of_gpus() -> None:
    # Before CUDA is asked: the same where there is a GPU.
    out = run("""print(refusal(Session, plugin="null", gpu=0))""")
    assert out.startswith("UsageError: gpu (0): plugin null ")


def test_what_a_plugin_has_read_is_read_once_a_process() -> None:
    out = run("""
    import os
    os.environ["NCCL_SOCKET_IFNAME"] = "=nosuch"
    print(refusal(Session, plugin="softtcpx"))
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    print(refusal(Session, plugin="softtcpx"))
    """)
    first, second = out.splitlines()
    assert first.startswith("RefusedAfterInit: ")
    assert second == (
        f"{first} (the plugin was initialised then, which is possible once a process: correct it "
        "and start a new one)"
    )


def test_ctrl_c_ends_a_wait() -> None:
    with start("""
    import signal
    # As at a terminal: a shell's background jobs, which tests may be, ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with alone() as s, s.create_transfer() as t:
        t.post_recv(s.register_memory(np.zeros(10)))
        try:
            print("waiting", flush=True)
            t.wait()
        except KeyboardInterrupt:
            print("interrupted")
    """) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "interrupted\n"), err


@pytest.mark.parametrize("threads", ["0", "1"])
def test_a_forked_child_that_closes_leaves_its_parents_connections_alone(threads: str) -> None:
    run(
        """
        import os
        s = alone(channels=8)
        moved(s, np.arange(1 << 20), np.zeros(1 << 20, np.int64))
        child = os.fork()
        if child == 0:
            s.close()
            del s
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        source, target = np.arange(1 << 20), np.zeros(1 << 20, np.int64)
        moved(s, source, target)
        assert (source == target).all()
        s.close()
        """,
        NCCL_SOCKET_NTHREADS=threads,
    )


def test_closing_from_another_thread_ends_a_wait() -> None:
    out = run("""
    s = alone()
    t = s.create_transfer()
    t.post_recv(s.register_memory(np.zeros(10)))
    waits = threading.Event()
    closer = threading.Thread(target=lambda: (waits.wait(), s.close()))
    closer.start()
    waits.set()
    print(refusal(t.wait))
    closer.join()
    """)
    # The second where the other thread was so quick that the wait had not begun.
    assert out in (
        "UsageError: the session was closed while transfer 1 was under way",
        "UsageError: the session is closed: make a new one",
    )

"""Sessions with arrays in GPUs' memory: bytes there and back, host arrays beside, refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpus import Gpus
from variants import variant

TESTS = Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "examples" / "two_gpus.py"

#: What both sides, and processes of their own, have before their own lines.
PRELUDE = """
import ctypes
import cupy
import numpy as np
from tcpx_mpi import Session
from tcpx_mpi.errors import TcpxError

class OnGpu:
    '''Bytes that begin at a multiple of 4096, plus `off`.'''
    def __init__(self, bytes, off=0, **changes):
        room = cupy.cuda.alloc(bytes + 8192)
        self.at = room + (-room.ptr % 4096 + off)
        self.shown = {"shape": (bytes,), "typestr": "|u1", "data": (self.at.ptr, False),
                      "strides": None, "version": 3, **changes}
        self.bytes = bytes
        self.set(np.zeros(bytes, np.uint8))
    @property
    def __cuda_array_interface__(self):
        return self.shown
    def set(self, data):
        self.at.copy_from_host(ctypes.c_void_p(data.ctypes.data), self.bytes)
        cupy.cuda.Device().synchronize()  # the bytes may still be on their way
    def get(self):
        data = np.empty(self.bytes, np.uint8)
        self.at.copy_to_host(ctypes.c_void_p(data.ctypes.data), self.bytes)
        return data

def refusal(call, *arguments):
    try:
        call(*arguments)
    except TcpxError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("not refused")
"""

LEFT = """
cupy.cuda.Device(0).use()
s = session(0)
source, back = OnGpu(SIZE), OnGpu(SIZE)
data = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8)
source.set(data)
a, b = s.register_memory(source), s.register_memory(back)
host = np.zeros(SIZE, np.uint8)
h = s.register_memory(host)
with s.create_transfer() as t:
    for start, size in PIECES:
        t.post_send(a, start, size)
    t.wait()
with s.create_transfer() as t:
    for start, size in PIECES:
        t.post_recv(b, start, size)
    t.post_recv(h)
    t.wait()
got, expected = back.get(), np.zeros(SIZE, np.uint8)
for start, size in PIECES:
    expected[start:start + size] = data[start:start + size] + 1
assert (got == expected).all(), np.flatnonzero(got != expected)[:5]
assert (host == expected).all(), np.flatnonzero(host != expected)[:5]
meet()
s.close()
print("all right")
"""

RIGHT = """
last = int(sys.argv[2])
cupy.cuda.Device(last).use()
s = session(last)
memory = OnGpu(SIZE)
m = s.register_memory(memory)
with s.create_transfer() as t:
    for start, size in PIECES:
        t.post_recv(m, start, size)
    t.wait()
data = memory.get()
for start, size in PIECES:
    data[start:start + size] += 1
memory.set(data)
with s.create_transfer() as t:
    for start, size in PIECES:
        t.post_send(m, start, size)
    t.post_send(m)
    t.wait()
meet()
s.close()
"""

TWO = """
import sys
from multiprocessing.connection import Connection
line = Connection(int(sys.argv[1]))
SIZE = 3 << 20
#: Odd offsets and lengths, an empty one, more than a chunk.
PIECES = [(0, 1), (1, 4097), (5000, 0), (5001, 1460), (65537, 700001), (1 << 20, 2 << 20)]

def session(gpu):
    s = Session(plugin="softtcpx", channels=2, chunk_bytes=65536, stall_timeout_s=40, gpu=gpu)
    line.send_bytes(s.listen())
    s.load_remote_conn_info(line.recv_bytes())
    s.establish()
    return s

def meet():
    line.send_bytes(b"here")
    line.recv_bytes()
"""


#: By a plugin that puts data into a GPU's memory itself.
IN_PLACE = "in place"


def environment(gpus: Gpus, **variables: str) -> dict[str, str]:
    return {**os.environ, "NCCL_SOCKET_IFNAME": "lo", **gpus.variables, **variables}


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("kernel", marks=pytest.mark.stand_in),
        pytest.param(IN_PLACE, marks=pytest.mark.stand_in),
        variant("d2d"),
        variant("host"),
    ],
)
def test_arrays_of_gpus_go_there_and_back_beside_host_arrays(mode: str, gpus: Gpus) -> None:
    import socket

    ends = socket.socketpair()
    if mode == IN_PLACE:  # what is received there is hidden until the session has flushed it
        environ = environment(gpus, SOFTTCPX_LIKE="direct", SOFTTCPX_TRAP_HIDDEN="1",
                              NCCL_NET_FORCE_FLUSH="1")  # fmt: skip
    else:
        environ = environment(gpus, UCCL_TCPX_UNPACK_IMPL=mode, SOFTTCPX_FRAGMENTS="random",
                              SOFTTCPX_POISON="1")  # fmt: skip
    sides = [
        subprocess.Popen(
            [sys.executable, "-c", PRELUDE + TWO + body, str(end.fileno()), str(gpus.count - 1)],
            pass_fds=[end.fileno()], env=environ, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for body, end in zip((LEFT, RIGHT), ends, strict=True)
    ]  # fmt: skip
    for end in ends:
        end.close()
    outputs = [side.communicate(timeout=120) for side in sides]
    assert [side.returncode for side in sides] == [0, 0], outputs
    assert outputs[0][0] == "all right\n"


def alone(gpus: Gpus, body: str) -> str:
    """What a process with an unconnected session `s` on GPU 0 prints."""
    code = PRELUDE + "s = Session(plugin='softtcpx', gpu=0)\ncupy.cuda.Device(0).use()\n" + body
    done = subprocess.run([sys.executable, "-c", code], env=environment(gpus), text=True,
                          capture_output=True, timeout=120, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("array", "line"),
    [
        ("OnGpu(8192, off=512)", "does not begin at a multiple of 4096"),
        ("OnGpu(8191)", "is not a multiple of 4096 long"),
        ("OnGpu(8192, shape=(1 << 30,))", "goes beyond its allocation"),
        ("OnGpu(8192, shape=(4096,), strides=(2,))", "the array is not contiguous"),
        ("OnGpu(8192, data=(4096, True))", "the array is read-only"),
        ("OnGpu(8192, data=(np.zeros(9000, 'u1').ctypes.data, False))", "no GPU has memory there"),
    ],
)
def test_what_cannot_be_registered_is_refused_in_one_line(
    array: str, line: str, gpus: Gpus
) -> None:
    said = alone(gpus, f"print(refusal(s.register_memory, {array}))").rstrip("\n")
    assert said.startswith("UsageError: register_memory: ")
    assert line in said
    assert "\n" not in said


def test_a_gpu_that_is_not_there_and_a_session_without_one(gpus: Gpus) -> None:
    said = alone(
        gpus,
        """
        print(refusal(lambda: Session(plugin="softtcpx", gpu=99)))
        print(refusal(Session(plugin="softtcpx").register_memory, OnGpu(4096)))
        """.replace("\n        ", "\n"),
    ).splitlines()
    assert said[0].startswith(
        f"UsageError: gpu (99) is not one of the {gpus.count} that CUDA shows"
    )
    assert "Session(gpu=...)" in said[1]


@pytest.mark.stand_in
def test_the_callers_own_gpu_stays_current(gpus: Gpus) -> None:
    """What a session makes current is so within its calls, from the first to the last."""
    body = """
driver = ctypes.CDLL("libcuda.so.1")
def current(after):
    device = ctypes.c_int(-1)
    assert driver.cuCtxGetDevice(ctypes.byref(device)) == 0
    print(after, device.value)

memory = OnGpu(8192)
cupy.cuda.Device(LAST).use()
s = Session(plugin="softtcpx", gpu=0)
current("made")
s.listen()
current("listen")
m = s.register_memory(memory)
current("registered")
s.deregister_memory(m)
current("deregistered")
s.close()
current("closed")
del s
current("gone")
""".replace("LAST", str(gpus.count - 1))
    said = [line.split() for line in alone(gpus, body).splitlines()]
    steps = ["made", "listen", "registered", "deregistered", "closed", "gone"]
    assert said == [[step, str(gpus.count - 1)] for step in steps]


def test_the_example_runs_as_its_first_lines_say(gpus: Gpus) -> None:
    if not gpus.real:
        pytest.skip("needs cupy: the example computes with it, and the stand-in cannot")
    done = subprocess.run([sys.executable, str(EXAMPLE)], env=environment(gpus), text=True,
                          capture_output=True, timeout=120, check=False)  # fmt: skip
    assert (done.returncode, done.stdout) == (
        0, "8388608 bytes from GPU to GPU and back: all right\n"), done.stderr  # fmt: skip

"""softtcpx's table of each ABI version, call by call, through the adapter of that version."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tcpx_mpi import _native

#: Bytes of the properties that a field owns, by version.
OWNED = {6: 48, 7: 56, 8: 60, 9: 100, 10: 100, 11: 104, 12: 124}
VERSIONS = sorted(OWNED)

PREFACE = """
import numpy as np, os, sys, time
from tcpx_mpi import _native
ABI = int(sys.argv[1])
FOLDER = os.path.dirname(_native.__file__)
PATH = f"{FOLDER}/libnccl-net-softtcpx{'' if ABI == 7 else f'-v{ABI}'}.so"
def good(result):
    code, *rest = result if isinstance(result, tuple) else (result,)
    assert code == 0, code
    return rest[0] if len(rest) == 1 else rest
def connected(table):
    handle, listener = good(table.listen(0))
    handle, send, receive = np.frombuffer(handle, np.uint8).copy(), 0, 0
    give_up = time.monotonic() + 30
    while not (send and receive):
        assert time.monotonic() < give_up
        send = send or good(table.connect(0, handle))[0]
        receive = receive or good(table.accept(listener))[0]
    return send, receive, listener
table = _native.Table(PATH, ABI)
assert table.abi == ABI and table.name == f"softtcpx_v{ABI}" and not table.missing()
good(table.init(int(os.environ["TRAFFIC_CLASS"])))
"""


def run(abi: int, body: str, traffic_class: int = -1) -> str:
    """What `body` prints in a process of its own: a plugin is initialised once a process."""
    environ = os.environ | {"NCCL_SOCKET_IFNAME": "lo", "TRAFFIC_CLASS": str(traffic_class)}
    done = subprocess.run([sys.executable, "-c", PREFACE + body, str(abi)],
                          capture_output=True, text=True, timeout=60, env=environ)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_version_that_we_can_drive_has_a_table() -> None:
    assert _native.KNOWN_ABI == VERSIONS


@pytest.mark.parametrize("abi", VERSIONS)
def test_the_fields_of_the_properties_are_where_the_version_has_them(abi: int) -> None:
    fields = _native.properties_layout(abi)
    assert sum(size for _, _, size in fields) == OWNED[abi]
    ends = [offset + size for _, offset, size in fields]
    assert all(end <= offset for end, (_, offset, _) in zip(ends, fields[1:], strict=False))


def test_v6_takes_host_memory_alone() -> None:
    body = """
send, receive, _ = connected(table)
memory = np.zeros(8192, np.uint8)
print(table.reg_mr(send, memory.ctypes.data, 4096, 2)[0], table.extras())
"""
    assert run(6, body) == "4 []"


@pytest.mark.parametrize("abi", [v for v in VERSIONS if v < 9])
def test_sizes_that_the_version_cannot_express_are_refused_here(abi: int) -> None:
    body = """
try: table.isend(1, 0, 1 << 31, 0, 0)
except ValueError as error: print(error)
"""
    assert run(abi, body) == "this ABI has int sizes"


@pytest.mark.parametrize("abi", [11, 12])
def test_contexts_share_the_devices_and_the_last_one_ends_them(abi: int) -> None:
    body = """
def descriptors(): return len(os.listdir("/proc/self/fd"))
good(table.finalize())
before = descriptors()
second = _native.Table(PATH, ABI)
good(table.init()); good(second.init())
comms = connected(table)
for close, comm in zip((table.close_send, table.close_recv, table.close_listen), comms):
    good(close(comm))
assert good(table.set_net_attr()) == []
good(table.finalize())
good(second.devices())
assert table.listen(0)[0] != 0  # its context is gone
good(second.finalize())
assert second.devices()[0] != 0
print(descriptors() - before)
good(table.init()); good(table.devices())
"""
    assert run(abi, body) == "0"


@pytest.mark.parametrize("abi", VERSIONS)
def test_each_file_has_the_table_of_its_version_alone(abi: int) -> None:
    body = """
names = {f"ncclNetPlugin_v{v}" for v in table.abi_versions}
print(*names)
"""
    assert run(abi, body) == f"ncclNetPlugin_v{abi}"


#: The traffic classes of this process's connected TCP sockets, each once.
CLASSES = """
import socket
def classes():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                one.getpeername()
                found.add(one.getsockopt(socket.IPPROTO_IP, socket.IP_TOS))
        except OSError:
            pass
    return found
"""


@pytest.mark.parametrize("abi", [10, 11, 12])
def test_connections_have_the_traffic_class_of_their_version(abi: int) -> None:
    body = CLASSES + "ends = connected(table)\nprint(sorted(classes()))"
    # 107 without TCP's own two bits; the accepting side keeps its 0.
    assert run(abi, body, traffic_class=107) == "[0, 104]"


def test_a_class_that_ip_has_not_is_refused() -> None:
    body = """
handle, _ = good(table.listen(0))
print(table.connect(0, np.frombuffer(handle, np.uint8).copy())[0])
"""
    assert run(12, body, traffic_class=256) == "4"

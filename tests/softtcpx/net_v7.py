"""The v7 table of a net plugin, called from Python: every call returns the plugin's own code."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SUCCESS, SYSTEM, INTERNAL, INVALID_ARGUMENT, INVALID_USAGE = 0, 2, 3, 4, 5
PTR_HOST, PTR_CUDA = 1, 2
WARN, INFO = 2, 3
SLOTS = 16
HANDLE_BYTES = 128

_int, _void_p, _char_p = ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p
_void_pp, _int_p = ctypes.POINTER(_void_p), ctypes.POINTER(_int)
_Logger = ctypes.CFUNCTYPE(None, _int, ctypes.c_ulong, _char_p, _int, _char_p, _char_p)


class Properties(ctypes.Structure):
    """ncclNetProperties_v7_t."""

    _fields_ = [  # noqa: RUF012 (ctypes reads it so)
        ("name", _char_p),
        ("pci_path", _char_p),
        ("guid", ctypes.c_uint64),
        ("ptr_support", _int),
        ("speed_mbps", _int),
        ("port", _int),
        ("latency_us", ctypes.c_float),
        ("max_comms", _int),
        ("max_recvs", _int),
        ("net_device_type", _int),
        ("net_device_version", _int),
    ]


def _call(*arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(_int, *arguments)


class Table(ctypes.Structure):
    """ncclNet_v7_t."""

    _fields_ = [  # noqa: RUF012 (ctypes reads it so)
        ("name", _char_p),
        ("init", _call(_void_p)),
        ("devices", _call(_int_p)),
        ("get_properties", _call(_int, ctypes.POINTER(Properties))),
        ("listen", _call(_int, _void_p, _void_pp)),
        ("connect", _call(_int, _void_p, _void_pp, _void_pp)),
        ("accept", _call(_void_p, _void_pp, _void_pp)),
        ("reg_mr", _call(_void_p, _void_p, _int, _int, _void_pp)),
        ("reg_mr_dma_buf", _void_p),
        ("dereg_mr", _call(_void_p, _void_p)),
        ("isend", _call(_void_p, _void_p, _int, _int, _void_p, _void_pp)),
        ("irecv", _call(_void_p, _int, _void_pp, _int_p, _int_p, _void_pp, _void_pp)),
        ("iflush", _call(_void_p, _int, _void_pp, _int_p, _void_pp, _void_pp)),
        ("test", _call(_void_p, _int_p, _int_p)),
        ("close_send", _call(_void_p)),
        ("close_recv", _call(_void_p)),
        ("close_listen", _call(_void_p)),
        ("get_device_mr", _call(_void_p, _void_p, _void_pp)),
        ("irecv_consumed", _call(_void_p, _int, _void_p)),
    ]


#: Registered memory is kept to the end of the process: a worker of the plugin may still move bytes
#: of a request that a test body leaves behind.
REGISTERED: list[object] = []

LIBRARY = "TCPX_MPI_SOFTTCPX_LIB"
#: Read at import: a test sees none of the variables of the shell that started it.
_named = os.environ.get(LIBRARY)


def softtcpx_path() -> Path:
    """The library under test: named by the environment, or the one in the package."""
    if _named:
        return Path(_named)
    from tcpx_mpi import _native

    return Path(_native.__file__).parent / "libnccl-net-softtcpx.so"


def until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Poll `condition`, giving the processor away in between, until it holds or time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        os.sched_yield()


class Memory:
    """A block of host memory between two guards, with a registration for one connection."""

    GUARD = bytes(range(64))

    def __init__(self, content: bytes | int) -> None:
        body = bytes(content) if isinstance(content, int) else content
        self.size = len(body)
        self._block = (ctypes.c_char * (self.size + 2 * len(self.GUARD))).from_buffer_copy(
            self.GUARD + body + self.GUARD
        )
        self.address = ctypes.addressof(self._block) + len(self.GUARD)

    def content(self) -> bytes:
        """Return the bytes, after a look at the guards."""
        whole = bytes(self._block)
        guard = len(self.GUARD)
        assert whole[:guard] == self.GUARD, "bytes before the buffer were overwritten"
        assert whole[guard + self.size :] == self.GUARD, "bytes behind the buffer were overwritten"
        return whole[guard : guard + self.size]

    def registered(self, net: Net, comm: int) -> int:
        """As memory of other kinds (unpack_queue.Pages, gpu.GpuMemory) is."""
        return net.registered(comm, self)


class Net:
    """A loaded plugin. Methods return NCCL's codes, or the object made where only 0 is right."""

    def __init__(self, log: bool = False) -> None:
        self.path = softtcpx_path()
        library = ctypes.CDLL(str(self.path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        self.table = Table.in_dll(library, "ncclNetPlugin_v7")
        self.log_lines: list[str] = []
        self.log_levels: list[int] = []
        self._logger = _Logger(self._keep)
        self._log = log

    def _keep(
        self, level: int, _flags: int, _where: bytes, _at: int, _form: bytes, text: bytes
    ) -> None:
        # softtcpx formats its own lines: "%s" and one text, which may be NULL.
        self.log_levels.append(level)
        self.log_lines.append((text or b"(null)").decode())

    def init(self) -> int:
        return int(self.table.init(ctypes.cast(self._logger, _void_p) if self._log else None))

    def started(self) -> Net:
        assert self.init() == SUCCESS
        return self

    def devices(self) -> int:
        count = _int(-1)
        assert self.table.devices(ctypes.byref(count)) == SUCCESS
        return count.value

    def properties(self, device: int) -> Properties:
        properties = Properties()
        assert self.table.get_properties(device, ctypes.byref(properties)) == SUCCESS
        return properties

    def listen(self, device: int = 0) -> tuple[int, bytes]:
        handle = ctypes.create_string_buffer(HANDLE_BYTES)
        comm = _void_p()
        assert self.table.listen(device, handle, ctypes.byref(comm)) == SUCCESS
        assert comm.value is not None
        return comm.value, handle.raw

    def accept(self, listen_comm: int) -> tuple[int, int | None]:
        comm, device_handle = _void_p(), _void_p()
        code = self.table.accept(listen_comm, ctypes.byref(comm), ctypes.byref(device_handle))
        return code, comm.value

    def reg_mr(self, comm: int, memory: Memory, kind: int = PTR_HOST) -> tuple[int, int | None]:
        mhandle = _void_p()
        REGISTERED.append(memory)
        code = self.table.reg_mr(comm, memory.address, memory.size, kind, ctypes.byref(mhandle))
        return code, mhandle.value

    def registered(self, comm: int, memory: Memory) -> int:
        code, mhandle = self.reg_mr(comm, memory)
        assert code == SUCCESS
        assert mhandle is not None
        return mhandle

    def isend(
        self, comm: int, address: int, size: int, mhandle: int | None, request: int = 0
    ) -> tuple[int, int | None]:
        slot = _void_p(request)
        code = self.table.isend(comm, address, size, 7, mhandle, ctypes.byref(slot))
        return code, slot.value

    def irecv(
        self,
        comm: int,
        address: int,
        size: int,
        mhandle: int | None,
        request: int = 0,
        n: int = 1,
    ) -> tuple[int, int | None]:
        slot, data, mhandles = _void_p(request), _void_p(address), _void_p(mhandle)
        sizes, tags = _int(size), _int(9)
        code = self.table.irecv(
            comm,
            n,
            ctypes.byref(data),
            ctypes.byref(sizes),
            ctypes.byref(tags),
            ctypes.byref(mhandles),
            ctypes.byref(slot),
        )
        return code, slot.value

    def test(self, request: int | None) -> tuple[int, bool]:
        done = _int(-1)
        code = self.table.test(request, ctypes.byref(done), None)
        return code, done.value == 1

    def consumed(self, comm: int, request: int | None) -> int:
        return int(self.table.irecv_consumed(comm, 1, request))

    def finish(self, *requests: int | None) -> None:
        """Poll all of them, oldest first, until each is done; any code but 0 is a failure."""
        left = list(requests)

        def all_done() -> bool:
            for request in tuple(left):
                code, done = self.test(request)
                assert code == SUCCESS, f"test returned {code}"
                if done:
                    left.remove(request)
            return not left

        until(all_done, "requests to finish")

    def code_of(self, request: int | None) -> int:
        """Poll a request that must not finish until test returns an error."""
        code = SUCCESS

        def failed() -> bool:
            nonlocal code
            code, done = self.test(request)
            assert not done, "the request finished"
            return code != SUCCESS

        until(failed, "an error")
        return code


class Connecting:
    """A connect under way: the handle's buffer stays where it is."""

    def __init__(self, net: Net, handle: bytes, device: int = 0) -> None:
        self.net, self.device = net, device
        self.handle = ctypes.create_string_buffer(handle, HANDLE_BYTES)

    def step(self) -> tuple[int, int | None]:
        comm, device_handle = _void_p(), _void_p()
        code = self.net.table.connect(
            self.device, self.handle, ctypes.byref(comm), ctypes.byref(device_handle)
        )
        return code, comm.value


def made_by(poll: Callable[[], tuple[int, int | None]], what: str) -> int:
    """The comm that polling connect or accept comes to."""
    made: list[int] = []

    def step() -> bool:
        code, comm = poll()
        assert code == SUCCESS, f"{what} returned {code}"
        if comm is not None:
            made.append(comm)
        return bool(made)

    until(step, what)
    return made[0]


def connect(net: Net, handle: bytes) -> int:
    return made_by(Connecting(net, handle).step, "connect")


def accept(net: Net, listen_comm: int) -> int:
    return made_by(lambda: net.accept(listen_comm), "accept")


def handshake(
    net: Net, listen_comm: int, connecting: Connecting, meanwhile: Callable[[], object] = int
) -> tuple[int, int]:
    """Both ends of a connection, by polling connect and accept in turn, and `meanwhile`."""
    ends: dict[str, int] = {}

    def step() -> bool:
        meanwhile()
        for name, poll in (("send", connecting.step), ("recv", lambda: net.accept(listen_comm))):
            if name not in ends:
                code, comm = poll()
                assert code == SUCCESS, f"{name} side: {code}"
                if comm is not None:
                    ends[name] = comm
        return len(ends) == 2

    until(step, "the handshake")
    assert net.table.close_listen(listen_comm) == SUCCESS
    return ends["send"], ends["recv"]


def connected(net: Net) -> tuple[int, int]:
    """Return both ends of one connection, made within this process."""
    listen_comm, handle = net.listen()
    return handshake(net, listen_comm, Connecting(net, handle))

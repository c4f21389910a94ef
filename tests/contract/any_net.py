"""A net plugin of any version, called from Python without our native code.

Every call returns the plugin's own code first. Which plugin it is, is in the environment of the
process of a test body (`subjects`).
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from net_tables import properties_of, table_of
from net_v7 import HANDLE_BYTES, LIBRARY, PTR_HOST, REGISTERED, SUCCESS, Memory, until
from unpack_queue import DeviceBlock

#: Names the version to the process of a test body; LIBRARY names the file.
ABI = "TCPX_MPI_CONTRACT_ABI"
#: Names the requests that a comm of it has room for; NCCL has 8 in flight where nothing is known.
WINDOW, USUAL_WINDOW = "TCPX_MPI_CONTRACT_WINDOW", 8
UNPACK, UNPACK_VERSION = 1, 7
TAG = 7

_int, _void_p, _size_t = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
_Logger = ctypes.CFUNCTYPE(None, _int, ctypes.c_ulong, _void_p, _int, _void_p)
_Profiler = ctypes.CFUNCTYPE(_int, _void_p, _int, _void_p, ctypes.c_int64, _void_p)


class AnyNet:
    """The plugin under test, initialised."""

    def __init__(self) -> None:
        self.abi = int(os.environ[ABI])
        library = ctypes.CDLL(os.environ[LIBRARY], mode=os.RTLD_NOW | os.RTLD_LOCAL)
        self.table: Any = table_of(self.abi).in_dll(library, f"ncclNetPlugin_v{self.abi}")
        self._log = _Logger(lambda *_: None)
        self._profiler = _Profiler(lambda *_: 0)
        self._context = _void_p()
        self._config = _int(-1)  # a traffic class: none was asked for
        self._kept: list[Any] = []
        assert self.init() == SUCCESS
        self.window = int(os.environ.get(WINDOW, USUAL_WINDOW))
        # Of each message, looked up once: each look makes a function. Init may fill the table.
        self._isend, self._irecv, self._test = (
            getattr(self.table, name) for name in ("isend", "irecv", "test")
        )
        self._consumed = self.table.irecv_consumed if self.abi >= 7 else None
        #: Whether a receive that is done has its slot until irecvConsumed.
        self.consumes = bool(self._consumed)

    def init(self) -> int:
        log = ctypes.cast(self._log, _void_p)
        profiler = ctypes.cast(self._profiler, _void_p)
        if self.abi >= 11:
            context, config = ctypes.byref(self._context), ctypes.byref(self._config)
            return int(self.table.init(context, 1, config, log, profiler))
        return int(self.table.init(log, profiler) if self.abi == 10 else self.table.init(log))

    def devices(self) -> int:
        count = _int(-1)
        assert self.table.devices(ctypes.byref(count)) == SUCCESS
        return count.value

    def properties(self, device: int = 0) -> Any:
        found = properties_of(self.abi)()
        assert self.table.get_properties(device, ctypes.byref(found)) == SUCCESS
        return found

    # --- Connections ----------------------------------------------------------------------------

    def _with_context(self) -> list[Any]:
        return [self._context] if self.abi >= 11 else []

    def listen(self) -> tuple[int, bytes]:
        handle, comm = ctypes.create_string_buffer(HANDLE_BYTES), _void_p()
        code = self.table.listen(*self._with_context(), 0, handle, ctypes.byref(comm))
        assert code == SUCCESS
        assert comm.value is not None
        return comm.value, handle.raw

    def connect(self, handle: Any) -> tuple[int, int | None]:
        """One call; `handle` is a buffer that stays where it is until there is a comm."""
        comm, device = _void_p(), _void_p()
        config = [ctypes.byref(self._config)] if self.abi == 10 else []
        more = [ctypes.byref(device)] if self.abi >= 7 else []
        context = self._with_context()
        code = self.table.connect(*context, 0, *config, handle, ctypes.byref(comm), *more)
        return code, comm.value

    def accept(self, listener: int, block: Any = None) -> tuple[int, int | None]:
        """One call; where the plugin unpacks, with the block that it asks for."""
        comm = _void_p()
        if self.abi < 7:
            return self.table.accept(listener, ctypes.byref(comm)), comm.value
        place = ctypes.cast(ctypes.pointer(block), _void_p) if block is not None else _void_p()
        code = self.table.accept(listener, ctypes.byref(comm), ctypes.byref(place))
        return code, comm.value

    def block(self) -> DeviceBlock | None:
        """What accept of a plugin that unpacks is given; None for others."""
        if self.abi < 7 or self.properties().net_device_type != UNPACK:
            return None
        block = DeviceBlock(UNPACK, UNPACK_VERSION)
        self._kept.append(block)
        return block

    def connected(self, block: DeviceBlock | None = None) -> tuple[int, int]:
        """Both ends of a connection within this process."""
        send, recv, listener = self.opened(block)
        assert self.table.close_listen(listener) == SUCCESS
        return send, recv

    def opened(self, block: DeviceBlock | None = None) -> tuple[int, int, int]:
        """Both ends of a connection within this process, and its listener."""
        listener, handle = self.listen()
        buffer, block = ctypes.create_string_buffer(handle, HANDLE_BYTES), block or self.block()
        ends: dict[str, int] = {}

        def step() -> bool:
            for name, poll in (("send", lambda: self.connect(buffer)),
                               ("recv", lambda: self.accept(listener, block))):  # fmt: skip
                if name not in ends:
                    code, comm = poll()
                    assert code == SUCCESS, f"{name} side: {code}"
                    ends.update({name: comm} if comm is not None else {})
            return len(ends) == 2

        until(step, "a connection")
        return ends["send"], ends["recv"], listener

    def connect_to(self, handle: bytes) -> int:
        """The sending end of a connection to another process."""
        buffer, made = ctypes.create_string_buffer(handle, HANDLE_BYTES), [0]

        def step() -> bool:
            code, comm = self.connect(buffer)
            assert code == SUCCESS, f"connect returned {code}"
            made[0] = comm or 0
            return comm is not None

        until(step, "connect")
        return made[0]

    def accept_from(self, listener: int) -> int:
        """The receiving end of a connection from another process."""
        block, made = self.block(), [0]

        def step() -> bool:
            code, comm = self.accept(listener, block)
            assert code == SUCCESS, f"accept returned {code}"
            made[0] = comm or 0
            return comm is not None

        until(step, "accept")
        return made[0]

    # --- Messages -------------------------------------------------------------------------------

    def reg_mr(self, comm: int, address: int, size: int) -> tuple[int, int | None]:
        mhandle = _void_p()
        code = self.table.reg_mr(comm, address, size, PTR_HOST, ctypes.byref(mhandle))
        return code, mhandle.value

    def registered(self, comm: int, memory: Memory) -> int | None:
        REGISTERED.append(memory)
        code, mhandle = self.reg_mr(comm, memory.address, memory.size)
        assert code == SUCCESS
        return mhandle

    def isend(
        self, comm: int, address: int, size: int, mhandle: int | None
    ) -> tuple[int, int | None]:
        request = _void_p()
        phandle = [None] if self.abi >= 10 else []
        at = ctypes.byref(request)
        return self._isend(comm, address, size, TAG, mhandle, *phandle, at), request.value

    def irecv(
        self, comm: int, address: int, size: int, mhandle: int | None
    ) -> tuple[int, int | None]:
        request, data, region, tag = _void_p(), _void_p(address), _void_p(mhandle), _int(TAG)
        sizes = (_size_t if self.abi >= 9 else _int)(size)
        phandles = [ctypes.byref(_void_p())] if self.abi >= 10 else []
        places = (ctypes.byref(data), ctypes.byref(sizes), ctypes.byref(tag), ctypes.byref(region))
        code = self._irecv(comm, 1, *places, *phandles, ctypes.byref(request))
        return code, request.value

    def test(self, request: int | None) -> tuple[int, bool, int]:
        """Its code, whether it is done, and the size that was written (-7: none)."""
        done, size = _int(0), _int(-7)
        code = self._test(request, ctypes.byref(done), ctypes.byref(size))
        return code, done.value == 1, size.value

    def consumed(self, comm: int, request: int | None) -> int:
        assert self._consumed is not None
        return int(self._consumed(comm, 1, request))

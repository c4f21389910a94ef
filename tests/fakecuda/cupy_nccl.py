"""The parts of CuPy that the NCCL peer uses, over the stand-in for the driver and TCP sockets.

One stream a process, one communicator; what is queued runs later, on a thread of the stream.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

available = True
NCCL_UINT8 = 1
_STREAM = 7


class NcclError(RuntimeError):
    """As CuPy has it: NCCL's result is its status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"NCCL_ERROR: {status}")
        self.status = status


class CUDARuntimeError(RuntimeError):
    """A call of the runtime failed."""


def get_version() -> int:
    return 22809


def get_unique_id() -> Any:
    return _device().unique_id()


def groupStart() -> None:
    _device().grouped.clear()


def groupEnd() -> None:
    _device().group(list(_device().grouped))


class NcclCommunicator:
    """The companions of all ranks."""

    def __init__(self, world: int, unique_id: Any, rank: int) -> None:
        from tcpx_mpi.baselines.nccl.backend import BackendError

        try:
            _device().connect(unique_id, rank, world)
        except BackendError as error:
            raise NcclError(error.code) from None

    def send(self, address: int, count: int, kind: int, peer: int, stream: int) -> None:
        self._add(True, address, count, kind, peer, stream)

    def recv(self, address: int, count: int, kind: int, peer: int, stream: int) -> None:
        self._add(False, address, count, kind, peer, stream)

    def check_async_error(self) -> None:
        from tcpx_mpi.baselines.nccl.backend import BackendError

        try:
            _device().check()
        except BackendError as error:
            raise NcclError(error.code) from None

    def destroy(self) -> None:
        _device().close()

    def _add(
        self, sends: bool, address: int, count: int, kind: int, peer: int, stream: int
    ) -> None:
        from tcpx_mpi.baselines.nccl.backend import Transfer

        assert (kind, stream) == (NCCL_UINT8, _STREAM)
        _device().grouped.append(Transfer(sends, peer, address, count))


class Stream:
    """The stream of this process, in the context that was current when it was made."""

    def __init__(self, non_blocking: bool = False) -> None:
        assert non_blocking, "the default stream waits for what others do"
        self.ptr = _STREAM
        _device()


class Event:
    """A mark on the stream."""

    def __init__(self) -> None:
        self.mark = _device().new_mark()

    def record(self, stream: Stream) -> None:
        assert stream.ptr == _STREAM
        _device().record(self.mark)

    @property
    def done(self) -> bool:
        return bool(_device().reached(self.mark))


def get_elapsed_time(start: Event, end: Event) -> float:
    """Milliseconds."""
    return float(_device().ns_between(start.mark, end.mark)) / 1e6


@functools.cache
def _device() -> Any:
    """This process's stream and its sockets, which move memory by way of the driver."""
    import cupy
    import nccl_by_sockets

    context = ctypes.c_void_p()
    assert cupy._driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
    assert context.value, "no GPU is current"

    class Device(nccl_by_sockets.SocketBackend):
        def __init__(self) -> None:
            self.grouped: list[Any] = []
            super().__init__(nccl_by_sockets.fault_here())

        def gpu(self) -> str:
            # As NCCL tells them apart: the host that it takes itself to be on, and the GPU there.
            number, address = ctypes.c_int(), ctypes.create_string_buffer(16)
            assert cupy._driver.cuCtxGetDevice(ctypes.byref(number)) == 0
            assert cupy._driver.cuDeviceGetPCIBusId(address, len(address), number) == 0
            return f"{os.environ.get('NCCL_HOSTID', 'this host')} {address.value.decode()}"

        def new_mark(self) -> int:
            self._marks.append(-1)
            return len(self._marks) - 1

        def _stream(self) -> None:
            assert cupy._driver.cuCtxSetCurrent(context) == 0
            super()._stream()

        def opened(self, each: Any) -> memoryview:
            memory = bytearray(each.length)
            if each.sends:
                host = (ctypes.c_char * each.length).from_buffer(memory)
                _copied(cupy._driver.cuMemcpyDtoH_v2(host, *_span(each)))
            return memoryview(memory)

        def closed(self, each: Any, memory: memoryview) -> None:
            if not each.sends:
                address, length = _span(each)
                _copied(cupy._driver.cuMemcpyHtoD_v2(address, bytes(memory), length))

    return Device()


def _span(each: Any) -> tuple[ctypes.c_uint64, ctypes.c_size_t]:
    return ctypes.c_uint64(each.address), ctypes.c_size_t(each.length)


def _copied(code: int) -> None:
    if code:
        raise OSError(f"the driver said {code}")

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
    _device().grouped = []


def groupEnd() -> None:
    grouped, _device().grouped = _device().grouped, None
    if all(hasattr(each, "peer") for each in grouped):
        _device().group(grouped)
    else:
        _device().collectives(grouped)


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

    @property
    def comm(self) -> int:
        """What a pointer is to NCCL."""
        return 1

    def allReduce(
        self, source: int, target: int, count: int, kind: int, op: int, stream: int
    ) -> None:
        self._collect("ncclAllReduce", source, target, count, kind, op, 0, stream)

    def reduceScatter(
        self, source: int, target: int, count: int, kind: int, op: int, stream: int
    ) -> None:
        self._collect("ncclReduceScatter", source, target, count, kind, op, 0, stream)

    def reduce(
        self, source: int, target: int, count: int, kind: int, op: int, root: int, stream: int
    ) -> None:
        self._collect("ncclReduce", source, target, count, kind, op, root, stream)

    def allGather(self, source: int, target: int, count: int, kind: int, stream: int) -> None:
        self._collect("ncclAllGather", source, target, count, kind, None, 0, stream)

    def broadcast(
        self, source: int, target: int, count: int, kind: int, root: int, stream: int
    ) -> None:
        self._collect("ncclBroadcast", source, target, count, kind, None, root, stream)

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
        from tcpx_mpi.baselines.nccl.backend import PointToPoint

        assert (kind, stream) == (NCCL_UINT8, _STREAM)
        assert _device().grouped is not None, "outside of a group a send and a receive may wait"
        _device().grouped.append(PointToPoint(sends, peer, address, count))

    def _collect(
        self, call: str, source: int, target: int, count: int, kind: int, op: int | None,
        root: int, stream: int,
    ) -> None:  # fmt: skip
        from tcpx_mpi.baselines.nccl.backend import Collective
        from tcpx_mpi.schedule.elements import ElementType

        assert stream == _STREAM
        element = ElementType(kind)
        redop, factor = (None, 1.0) if op is None else _operation(op, element)
        collective = Collective(call, source, target, count, element, redop, factor, root)
        if _device().grouped is None:
            _device().collectives([collective])
        else:
            _device().grouped.append(collective)


def _operation(op: int, element: Any) -> tuple[Any, float]:
    """Of ncclRedOp_t, and the factor of one that was made."""
    import numpy as np

    from tcpx_mpi.schedule.elements import ReduceOp

    known = (ReduceOp.SUM, ReduceOp.PROD, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.AVG)
    if op < len(known):
        return known[op], 1.0
    library = ctypes.CDLL("libnccl.so.2")
    library.fakenccl_factor.restype = ctypes.c_void_p
    address = library.fakenccl_factor(op, int(element))
    assert address, f"operation {op} was not made for {element.label}"
    factor = np.frombuffer(ctypes.string_at(address, element.bytes), element.dtype)
    return ReduceOp.MULSUM, float(factor[0])


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
            self.grouped: list[Any] | None = None
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
                _copied(cupy._driver.cuStreamSynchronize(None))

    return Device()


def _span(each: Any) -> tuple[ctypes.c_uint64, ctypes.c_size_t]:
    return ctypes.c_uint64(each.address), ctypes.c_size_t(each.length)


def _copied(code: int) -> None:
    if code:
        raise OSError(f"the driver said {code}")

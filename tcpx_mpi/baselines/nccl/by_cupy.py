"""NCCL by CuPy: its binding `cupy.cuda.nccl`, its streams and events. Only a companion imports it.

CuPy's wheels are built with NCCL and find libnccl.so.2 in the wheel `nvidia-nccl-cu12` or `-cu13`,
or where the loader finds it. A binding of our own would be one more to keep; nccl4py would be one
more to install.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.baselines.nccl.backend import Backend, BackendError, Collective, Memory, PointToPoint
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.gpu.compiler import configure_compiler
from tcpx_mpi.machine.gpu.driver import ordinal_of
from tcpx_mpi.schedule.elements import ElementType, ReduceOp
from tcpx_mpi.transport.gpu_memory import PAGE_BYTES, load_cupy

#: ncclRedOp_t; ncclDataType_t has the numbers of our element types.
_OPERATIONS = {
    ReduceOp.SUM: 0,
    ReduceOp.PROD: 1,
    ReduceOp.MAX: 2,
    ReduceOp.MIN: 3,
    ReduceOp.AVG: 4,
}
_SCALAR_IN_HOST_MEMORY = 1
#: What CuPy has loaded, wherever it found it.
_LIBRARY = "libnccl.so.2"


def open_backend(gpu_pci: str) -> Backend:
    """NCCL on the GPU at a PCI address. Raises BackendError with what is missing."""
    try:
        cupy = load_cupy()
    except UsageError as error:
        raise BackendError("CuPy", -1, str(error)) from None
    nccl = importlib.import_module("cupy.cuda.nccl")
    if not nccl.available:
        raise BackendError(
            "NCCL",
            -1,
            f"CuPy {cupy.__version__} finds none: install nvidia-nccl-cu12 or nvidia-nccl-cu13, as "
            "fits CuPy",
        )
    return CupyBackend(cupy, nccl, gpu_pci)


class CupyBackend:
    """A communicator and a stream on one GPU."""

    def __init__(self, cupy: Any, nccl: Any, gpu_pci: str) -> None:
        self._cupy, self._nccl = cupy, nccl
        #: NcclError looks its text up in a table, which lacks the codes of newer versions.
        self._errors = (nccl.NcclError, cupy.cuda.runtime.CUDARuntimeError, KeyError)
        self._comm: Any = None
        self._marks: list[Any] = []
        #: NCCL's numbers of `mulsum`, by type and factor.
        self._scaled: dict[tuple[ElementType, float], int] = {}
        self._allocations: list[Any] = []
        try:
            gpus = _native.cuda_devices()
        except _native.CudaUnavailable as error:
            raise BackendError(f"GPU {gpu_pci}", -1, str(error)) from None
        ordinal = ordinal_of(gpu_pci, gpus)
        if ordinal is None:
            raise BackendError(f"GPU {gpu_pci}", -1, "is none that CUDA shows to its companion")
        self._gpu, self._model = ordinal, gpus[ordinal]["name"]
        configure_compiler()
        try:
            cupy.cuda.Device(ordinal).use()
            self._stream = cupy.cuda.Stream(non_blocking=True)
        except self._errors as error:
            raise self._error(f"GPU {gpu_pci}", error) from None
        _native.cuda_select(ordinal)

    def facts(self) -> dict[str, str]:
        version = int(self._nccl.get_version())
        # 22703 is 2.27.3; before 2.9 it was 2804.
        text = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
        name = f"NCCL {text} by CuPy {self._cupy.__version__}"
        capability = str(self._cupy.cuda.Device(self._gpu).compute_capability)
        return {
            "name": name, "model": self._model, "version": str(version), "capability": capability,
        }  # fmt: skip

    def unique_id(self) -> Any:
        try:
            return self._nccl.get_unique_id()
        except self._errors as error:
            raise self._error("ncclGetUniqueId", error) from None

    def connect(self, unique_id: Any, rank: int, world: int) -> None:
        try:
            self._comm = self._nccl.NcclCommunicator(world, unique_id, rank)
        except self._errors as error:
            raise self._error("ncclCommInitRank", error) from None

    def allocate(self, size: int) -> Memory:
        whole = -(-size // PAGE_BYTES) * PAGE_BYTES
        try:
            # A page more: CuPy's blocks begin on borders of 512 bytes.
            allocation = self._cupy.cuda.alloc(whole + PAGE_BYTES)
        except (*self._errors, MemoryError) as error:
            raise self._error("cudaMalloc", error) from None
        self._allocations.append(allocation)
        address = -(-int(allocation.ptr) // PAGE_BYTES) * PAGE_BYTES
        return Memory(_native.CudaSlots(address, whole, self._gpu), address)

    def group(self, transfers: Sequence[PointToPoint]) -> None:
        nccl, comm, stream = self._nccl, self._comm, self._stream.ptr
        try:
            nccl.groupStart()
            for each in transfers:
                call = comm.send if each.sends else comm.recv
                call(each.address, each.length, nccl.NCCL_UINT8, each.peer, stream)
            nccl.groupEnd()
        except self._errors as error:
            raise self._error("ncclGroup", error) from None

    def collectives(self, calls: Sequence[Collective]) -> None:
        nccl = self._nccl
        try:
            if len(calls) > 1:
                nccl.groupStart()
            for each in calls:
                self._call(each)
            if len(calls) > 1:
                nccl.groupEnd()
        except self._errors as error:
            raise self._error(calls[0].call, error) from None

    def _call(self, each: Collective) -> None:
        comm, stream, element = self._comm, self._stream.ptr, int(each.element)
        source, target, count = each.source, each.target, each.elements
        match each.call:
            case "ncclAllReduce":
                comm.allReduce(source, target, count, element, self._redop(each), stream)
            case "ncclReduceScatter":
                comm.reduceScatter(source, target, count, element, self._redop(each), stream)
            case "ncclReduce":
                comm.reduce(source, target, count, element, self._redop(each), each.root, stream)
            # What only moves has elements of any type, in whichever version: as bytes.
            case "ncclAllGather":
                bytes_ = count * each.element.bytes
                comm.allGather(source, target, bytes_, self._nccl.NCCL_UINT8, stream)
            case "ncclBroadcast":
                bytes_ = count * each.element.bytes
                comm.broadcast(source, target, bytes_, self._nccl.NCCL_UINT8, each.root, stream)

    def _redop(self, each: Collective) -> int:
        """NCCL's number of an operation; CuPy has no call that makes that of `mulsum`."""
        assert each.redop is not None
        if each.redop != ReduceOp.MULSUM:
            return _OPERATIONS[each.redop]
        key = each.element, each.factor
        if key not in self._scaled:
            made, scalar = ctypes.c_int(), np.array(each.factor, each.element.dtype).tobytes()
            code = ctypes.CDLL(_LIBRARY).ncclRedOpCreatePreMulSum(
                ctypes.byref(made), scalar, int(each.element), _SCALAR_IN_HOST_MEMORY,
                ctypes.c_void_p(self._comm.comm),
            )  # fmt: skip
            if code:
                raise BackendError("ncclRedOpCreatePreMulSum", code, f"NCCL result {code}")
            self._scaled[key] = made.value
        return self._scaled[key]

    def reserve(self, marks: int) -> None:
        missing = marks - len(self._marks)
        self._marks += [self._cupy.cuda.Event() for _ in range(missing)]

    def record(self, mark: int) -> None:
        self._marks[mark].record(self._stream)

    def reached(self, mark: int) -> bool:
        try:
            return bool(self._marks[mark].done)
        except self._errors as error:
            raise self._error("cudaEventQuery", error) from None

    def ns_between(self, first: int, last: int) -> int:
        elapsed_ms: float = self._cupy.cuda.get_elapsed_time(self._marks[first], self._marks[last])
        return round(elapsed_ms * 1e6)

    def check(self) -> None:
        try:
            self._comm.check_async_error()
        except self._errors as error:
            raise self._error("ncclCommGetAsyncError", error) from None

    def close(self) -> None:
        if self._comm is not None:
            self._comm.destroy()

    def _error(self, call: str, error: BaseException) -> BackendError:
        if isinstance(error, KeyError):
            return BackendError(call, int(error.args[0]), f"NCCL result {error.args[0]}")
        nccls = isinstance(error, self._nccl.NcclError)
        code = int(getattr(error, "status", -1)) if nccls else -1
        return BackendError(call, code, " ".join(str(error).split()))

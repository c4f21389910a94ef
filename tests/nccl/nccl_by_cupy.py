"""NCCL by CuPy's binding of it. No kernel of CuPy's is needed, so nothing is compiled."""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np
from nccl_cases import GROUPED, OPERATIONS, TYPES, Bytes, Case, dtype_of
from nccl_library import LibraryError
from nccl_rounds import Round, rounds_of

#: Between two looks at NCCL's own errors, in looks at the stream.
_LOOKS = 256


class CupyLibrary:
    """NCCL on one GPU. Raises LibraryError where CuPy, NCCL or the GPU is missing."""

    def __init__(self, gpu: int) -> None:
        try:
            self.cupy = importlib.import_module("cupy")
            self.nccl = importlib.import_module("cupy.cuda.nccl")
        except ImportError as error:
            raise LibraryError(f"no CuPy: {error}") from None
        if not self.nccl.available:
            raise LibraryError(f"CuPy {self.cupy.__version__} finds no NCCL")
        try:
            self.cupy.cuda.Device(gpu).use()
            self.cupy.cuda.runtime.free(0)  # makes the context
        except self.cupy.cuda.runtime.CUDARuntimeError as error:
            raise LibraryError(f"no GPU {gpu}: {error}") from None

    def facts(self) -> dict[str, Any]:
        device = self.cupy.cuda.runtime.getDevice()
        name = self.cupy.cuda.runtime.getDeviceProperties(device)["name"].decode()
        capability = int(self.cupy.cuda.Device(device).compute_capability)
        return {"nccl": int(self.nccl.get_version()), "gpu": name, "capability": capability}

    def unique_id(self) -> list[int]:
        return list(self.nccl.get_unique_id())

    def memory(self, size: int) -> CupyMemory:
        return CupyMemory(self.cupy, size)

    def communicator(self, unique_id: list[int], rank: int, world: int) -> CupyCommunicator:
        return CupyCommunicator(self, unique_id, rank, world)


class CupyMemory:
    """Memory of the GPU."""

    def __init__(self, cupy: Any, size: int) -> None:
        self._cupy, self._size = cupy, size
        self._allocation = cupy.cuda.alloc(max(size, 1))
        self.address = int(self._allocation.ptr)

    def upload(self, data: Bytes, at: int = 0) -> None:
        runtime = self._cupy.cuda.runtime
        data = np.ascontiguousarray(data)
        if len(data):
            runtime.memcpy(
                self.address + at, data.ctypes.data, len(data), runtime.memcpyHostToDevice
            )
            runtime.deviceSynchronize()  # the copy may return when the bytes are on their way

    def download(self) -> Bytes:
        runtime = self._cupy.cuda.runtime
        data = np.empty(self._size, np.uint8)
        if self._size:
            runtime.memcpy(data.ctypes.data, self.address, self._size, runtime.memcpyDeviceToHost)
        return data


class CupyCommunicator:
    """A communicator of NCCL's."""

    def __init__(self, library: CupyLibrary, unique_id: list[int], rank: int, world: int) -> None:
        self._cupy, self._nccl = library.cupy, library.nccl
        self._rank, self._world = rank, world
        # A code newer than CuPy's table of texts is a KeyError.
        self._errors = (
            self._nccl.NcclError, self._cupy.cuda.runtime.CUDARuntimeError, KeyError,
        )  # fmt: skip
        met = self._nccl.NcclCommunicator
        try:
            try:
                self._comm = met(world, bytes(value % 256 for value in unique_id), rank)
            except TypeError:  # CuPy before 14 has a tuple of C's chars
                self._comm = met(world, tuple(unique_id), rank)
        except self._errors as error:
            raise LibraryError(f"ncclCommInitRank: {error}") from None
        self._stream = self._cupy.cuda.Stream(non_blocking=True)

    def launch(
        self, case: Case, source: CupyMemory, source_at: int, target: CupyMemory, target_at: int
    ) -> None:
        try:
            self._launch(case, source.address + source_at, target.address + target_at)
        except self._errors as error:
            raise LibraryError(f"{case.program}: {error}") from None

    def _launch(self, case: Case, source: int, target: int) -> None:
        comm, stream = self._comm, self._stream.ptr
        count, kind = case.count, TYPES[case.kind]
        operation = OPERATIONS[case.operation]
        if case.program in GROUPED:
            for each in rounds_of(case, self._rank, self._world):
                self._group(each, target if each.passed_on else source, target, case.kind)
        elif case.program == "all_reduce":
            comm.allReduce(source, target, count, kind, operation, stream)
        elif case.program == "all_gather":
            comm.allGather(source, target, count, kind, stream)
        elif case.program == "reduce_scatter":
            comm.reduceScatter(source, target, count, kind, operation, stream)
        elif case.program == "reduce":
            comm.reduce(source, target, count, kind, operation, case.root, stream)
        else:
            comm.broadcast(source, target, count, kind, case.root, stream)

    def _group(self, one: Round, source: int, target: int, kind: str) -> None:
        size, number, stream = dtype_of(kind).itemsize, TYPES[kind], self._stream.ptr
        self._nccl.groupStart()
        for part in one.sends:
            self._comm.send(source + part.at * size, part.count, number, part.peer, stream)
        for part in one.receives:
            self._comm.recv(target + part.at * size, part.count, number, part.peer, stream)
        self._nccl.groupEnd()

    def wait(self, end_by: float) -> None:
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(self._stream)
        looks = 0
        try:
            while not event.done:
                looks += 1
                if looks % _LOOKS:
                    continue
                self._comm.check_async_error()
                if time.monotonic() > end_by:
                    raise LibraryError("not complete by its deadline")
        except self._errors as error:
            raise LibraryError(f"NCCL: {error}") from None

    def destroy(self) -> None:
        try:
            self._comm.destroy()
        except self._errors as error:
            raise LibraryError(f"ncclCommDestroy: {error}") from None

    def abort(self) -> None:
        try:
            self._comm.abort()
        except self._errors as error:
            raise LibraryError(f"ncclCommAbort: {error}") from None

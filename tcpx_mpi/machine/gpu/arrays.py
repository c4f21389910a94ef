"""Arrays in a GPU's memory, as any library shows them: `__cuda_array_interface__`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.errors import UsageError


def gpu_slots(array: Any, gpu: int) -> _native.CudaSlots:
    """The bytes of an array on GPU `gpu`, checked for what a plugin takes on trust.

    Raises UsageError for one that is not contiguous, may not be written to, does not begin at a
    multiple of 4096 or is not as long, or is on another GPU.
    """
    shown = array.__cuda_array_interface__
    try:
        shape, dtype = tuple(shown["shape"]), np.dtype(shown["typestr"])
        pointer, read_only = shown["data"]
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"register_memory: __cuda_array_interface__ of {type(array).__name__} is not as it "
            f"should be ({type(error).__name__}: {error})"
        ) from None
    if read_only:
        raise UsageError("register_memory: the array is read-only; register a writable copy")
    if not _contiguous(shape, dtype.itemsize, shown.get("strides")):
        raise UsageError(
            "register_memory: the array is not contiguous; register its base, or a copy "
            "(cupy.ascontiguousarray)"
        )
    try:
        return _native.CudaSlots(int(pointer), math.prod(shape) * dtype.itemsize, gpu)
    except ValueError as error:
        raise UsageError(f"register_memory: {error}") from None


def _contiguous(shape: tuple[int, ...], item: int, strides: tuple[int, ...] | None) -> bool:
    """Whether strides are those of C order; axes of length 1 may have any."""
    if strides is None or math.prod(shape) == 0:
        return True
    expected = item
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != expected:
            return False
        expected *= length
    return True

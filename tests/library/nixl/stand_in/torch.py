"""As much of torch (2 GB) as NIXL's Python and its examples use, of numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

float32 = np.float32


class Tensor:
    """An array in host memory."""

    device = "cpu"

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    shape = property(lambda self: self.array.shape)

    def __getitem__(self, index: Any) -> Tensor:
        return Tensor(self.array[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[index] = value

    def __eq__(self, other: object) -> Any:
        return Tensor(self.array == other)

    __hash__ = None  # type: ignore[assignment]  # as an array's

    def __bool__(self) -> bool:
        return bool(self.array)

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def numel(self) -> int:
        return int(self.array.size)

    def element_size(self) -> int:
        return int(self.array.itemsize)

    def get_device(self) -> int:
        return -1

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)


def ones(shape: Sequence[int], dtype: Any = float32) -> Tensor:
    return Tensor(np.ones(shape, dtype))


def zeros(shape: Sequence[int], dtype: Any = float32) -> Tensor:
    return Tensor(np.zeros(shape, dtype))


def zeros_like(tensor: Tensor) -> Tensor:
    return Tensor(np.zeros_like(tensor.array))


def allclose(left: Tensor, right: Tensor) -> bool:
    return bool(np.allclose(left.array, right.array))


def any(tensor: Tensor) -> Tensor:  # torch's name
    return Tensor(np.any(tensor.array))


def set_default_device(device: str) -> None: ...

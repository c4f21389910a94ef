"""The memory of a rank, at marks: of its process, and of its GPU."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence


class MemoryMarks:
    """The marks of one rank; what was taken between two marks is what was begun at the first of
    them."""

    def __init__(self) -> None:
        self._host: list[int] = []
        self._gpu: list[int] = []

    def mark(self, gpu_free: Callable[[], int] | None = None) -> None:
        """`gpu_free`: what is free on its GPU, where it has one."""
        self._host.append(resident_bytes())
        if gpu_free is not None:
            self._gpu.append(-gpu_free())

    def taken(self) -> tuple[list[int], list[int]]:
        """Between marks, of the host's memory and of the GPU's (nothing without one)."""
        return _steps(self._host), _steps(self._gpu)


def _steps(marks: Sequence[int]) -> list[int]:
    return [later - before for before, later in itertools.pairwise(marks)]


def resident_bytes() -> int:
    """The resident bytes of this process; pages that it shares with others, too."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

"""What a piece of work allocates; numpy reports to tracemalloc, maps of files are none of it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that were allocated at a time while it ran."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

"""What a failed run puts away is given a moment, and no more."""

from __future__ import annotations

import threading

import pytest

from tcpx_mpi.errors import OutputFailed
from tcpx_mpi.run.hanging_disk import within


def test_a_step_that_hangs_is_left_behind() -> None:
    over = threading.Event()
    assert not within(0.01, lambda: over.wait(60) and None)
    over.set()


def test_a_step_that_ends_is_waited_for_and_what_it_raises_is_raised() -> None:
    done: list[int] = []
    assert within(60, lambda: done.append(1))
    assert within(None, lambda: done.append(2))
    assert done == [1, 2]

    def fails() -> None:
        raise OutputFailed("no room")

    with pytest.raises(OutputFailed, match="no room"):
        within(60, fails)

"""How a run ends in trouble: what each kind of it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from tcpx_mpi import _native
from tcpx_mpi.errors import Interrupted
from tcpx_mpi.run import failure


class _Left(Exception):
    """In place of the end of the process."""


def test_a_native_wait_that_a_signal_ended_is_an_interrupt_with_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Interrupted] = []

    def leave(world: Any, output: Any, error: Interrupted) -> None:
        seen.append(error)
        raise _Left

    class Output:
        def erase_progress(self) -> None:
            pass

    monkeypatch.setattr(_native, "stop_signal", lambda: 2)
    monkeypatch.setattr(failure, "leave_interrupted", leave)
    world: Any = None
    output: Any = Output()
    with pytest.raises(_Left):
        failure.end(world, output, _native.Interrupt("interrupted"), ())
    assert [int(error.exit_code) for error in seen] == [130]

"""A plugin call that does not return: a second thread ends this rank.

TCPX waits in accept for its manager's answer, without a deadline of its own; any call may wait so.
The native watch tells of it (`native/engine/watch.h`), and ends a rank in which no thread can.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from tcpx_mpi import _native
from tcpx_mpi.errors import ExitCode, SetupFailed, Stalled, TcpxError
from tcpx_mpi.run.failure import leave_after_failure
from tcpx_mpi.run.recorder import Output
from tcpx_mpi.transport.setup_errors import manager_hint
from tcpx_mpi.world import World

#: The watch wakes the thread; it need not look by itself.
_LOOK_S = 3600.0


@contextlib.contextmanager
def telling_of_calls_that_hang(
    world: World, output: Output, needs_manager: Callable[[], bool]
) -> Iterator[None]:
    """Ends the run, by a roll call, once a call of the plugin took longer than the phase allows, or
    another rank calls the roll meanwhile. The block ends with `_native.watch_ending`."""
    over = threading.Event()

    def tell() -> None:
        while not over.is_set():
            call = _native.watch_await(_LOOK_S)
            if call is None or over.is_set():
                continue
            text, age_s, late = call
            if late or (world.roll_call.may_be_called_at_once() and world.roll_call.alarmed()):
                error = _error(world, text + manager_hint(text, needs_manager()), age_s, late)
                leave_after_failure(world, output, error, (), world.phase.lost)

    threading.Thread(target=tell, name="hanging call", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _error(world: World, text: str, age_s: float, late: bool) -> TcpxError:
    text += _native.plugin_warned_within(age_s)
    kind = Stalled if world.phase.hang == ExitCode.STALL else SetupFailed
    error = kind(f"{world.name(world.rank)}: {text}")
    error.second_hand = -1 if late else 0
    return error

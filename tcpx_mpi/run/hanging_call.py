"""A connect or accept of the plugin that never returns: this rank ends from a thread beside it.

TCPX waits in accept for its manager's answer, without a deadline of its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from tcpx_mpi.errors import SetupFailed
from tcpx_mpi.run.failure import leave_after_failure
from tcpx_mpi.run.recorder import Output
from tcpx_mpi.transport.engine import RankEngine
from tcpx_mpi.transport.setup_errors import manager_hint
from tcpx_mpi.world import World

#: How often the thread looks: a look is two loads and a lock of Python's.
_LOOK_S = 0.2


@contextlib.contextmanager
def ending_a_call_that_hangs(world: World, output: Output, engine: RankEngine) -> Iterator[None]:
    """Ends the run, by a roll call, once a connect or accept took longer than --connect-timeout."""
    over = threading.Event()
    patience_s = engine.settings.connect_timeout_s

    def watch() -> None:
        while not over.wait(_LOOK_S):
            call = engine.native.call_under_way()
            if call is not None and call[1] > patience_s * 1e9:
                text = f"plugin call {call[0]} has not returned for {patience_s:.3g} s"
                text += manager_hint(text, engine.needs_manager)
                error = SetupFailed(f"{world.name(world.rank)}: {text}")
                leave_after_failure(world, output, error, ())

    watcher = threading.Thread(target=watch, name="call watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()

"""The native errors of set-up and of closing, as ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tcpx_mpi import _native
from tcpx_mpi.errors import SetupFailed
from tcpx_mpi.world import interrupted_by


@contextlib.contextmanager
def setup_errors() -> Iterator[None]:
    """Raise SetupFailed, or what a signal means, where native code within raises its own."""
    try:
        yield
    except (_native.PluginError, _native.ConnectTimeout) as error:
        raise SetupFailed(str(error)) from None
    except _native.Interrupt:
        raise interrupted_by(_native.stop_signal()) from None
    except MemoryError:
        raise SetupFailed("the system refused the memory that this needs") from None

"""Errors of the native session library, as errors of this package.

The numbers are those of native/library/include/tcpx_p2p.h; an error has its one as `status`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tcpx_mpi import _native
from tcpx_mpi.errors import (
    LostRank,
    PluginFailed,
    PluginMissing,
    SetupFailed,
    Stalled,
    TcpxError,
    UsageError,
    WrongBytes,
)
from tcpx_mpi.transport.setup_errors import manager_hint, second_hand, setup_errors

UNKNOWN_MEMORY = 2
OUT_OF_BOUNDS = 4
ALREADY_DONE = 8
RELEASED = 14
CLOSED = 15
TIMED_OUT = 32
SETUP_FAILED = 49
PLUGIN_FAILED = 51

#: Below it, mistakes of the caller's.
_USAGE_END = 32
_ERRORS: dict[int, type[TcpxError]] = {
    TIMED_OUT: Stalled,
    48: PluginMissing,
    SETUP_FAILED: SetupFailed,
    50: LostRank,
    PLUGIN_FAILED: PluginFailed,
    52: WrongBytes,
    53: PluginFailed,
    54: LostRank,
    55: SetupFailed,
    56: TcpxError,
}


def error_of(status: int, text: str) -> TcpxError:
    """The error of a status, with the library's text."""
    kind = UsageError if status < _USAGE_END else _ERRORS[status]
    return _noted(kind(text), status)


@contextlib.contextmanager
def session_errors(in_setup: int = SETUP_FAILED) -> Iterator[None]:
    """Raise what native code within raises as errors of this package.

    A status of `in_setup` is a failure of set-up here: connections that do not come up in time,
    what the plugin does not take back.
    """
    try:
        with setup_errors():
            yield
    except _native.SessionError as error:
        status, text = error.args
        if status not in (in_setup, SETUP_FAILED):
            raise error_of(status, text) from None
        failed = second_hand(text + manager_hint(text), int(status == TIMED_OUT))
        raise _noted(failed, status) from None


def _noted(error: TcpxError, status: int) -> TcpxError:
    error.status = status
    return error

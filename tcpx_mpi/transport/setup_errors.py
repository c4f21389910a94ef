"""Native errors of set-up and close, as errors of this package."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from tcpx_mpi import _native
from tcpx_mpi.errors import SetupFailed
from tcpx_mpi.world import interrupted_by

#: How the errors begin of a rank that may have them because another one failed, which knows why.
_SECOND_HAND = ("plugin call connect ",)
_MANAGER = "receive-datapath-manager"
#: An accept that is pending, in the text of an error.
_ACCEPTS = re.compile(r"(: |; |call accept )from rank \d+, lane")


@contextlib.contextmanager
def setup_errors(places: Sequence[str] = (), needs_manager: bool = False) -> Iterator[None]:
    """Raise SetupFailed, or what a signal means, where native code within raises its own.

    Native code knows peers by rank alone; with `places`, by rank, an error says where they are.
    `needs_manager`: accepts of this plugin wait for the receive-datapath manager's answer.
    """
    try:
        yield
    except (
        _native.PluginError, _native.ConnectTimeout, _native.CudaError, _native.CudaUnavailable
    ) as error:  # fmt: skip
        late = isinstance(error, _native.ConnectTimeout)
        text = _with_places(str(error), places) + manager_hint(str(error), needs_manager)
        # A connect fails because the other rank's accept did, which knows why.
        away = int(late or str(error).startswith(_SECOND_HAND))
        raise second_hand(text, away) from None
    except _native.Interrupt:
        raise interrupted_by(_native.stop_signal()) from None
    except MemoryError:
        raise SetupFailed("the system refused the memory that this needs") from None


def second_hand(text: str, away: int) -> SetupFailed:
    """The error of a rank so far from the cause (see TcpxError)."""
    error = SetupFailed(text)
    error.second_hand = away
    return error


def _with_places(text: str, places: Sequence[str]) -> str:
    """The text, with the place of every rank that it names at its end."""
    ranks = dict.fromkeys(int(found) for found in re.findall(r"\brank (\d+)", text))
    named = [f"rank {rank} is on {places[rank]}" for rank in ranks if rank < len(places)]
    return "; ".join([text, *named])


def manager_hint(text: str, needs_manager: bool = False) -> str:
    """The hint behind an error that the receive-datapath manager may be the cause of."""
    sockets = (
        "the sockets of the receive-datapath manager, in NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX "
        "(/tmp unless set)"
    )
    if _MANAGER in text:
        return (
            f"; TCPX needs {sockets}: is it running on that node, and its directory mounted here? "
            "(docs/how-to/a3-high.md)"
        )
    if needs_manager and _ACCEPTS.search(text):
        return (
            f"; an accept of TCPX needs {sockets}, and waits for its answer: a manager that hangs "
            "is to be started again (docs/how-to/a3-high.md)"
        )
    return ""

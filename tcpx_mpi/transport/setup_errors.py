"""The native errors of set-up and of closing, as ours."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from tcpx_mpi import _native
from tcpx_mpi.errors import SetupFailed
from tcpx_mpi.world import interrupted_by

_SECOND_HAND = ("plugin call connect ",)
_MANAGER = "receive-datapath-manager"


@contextlib.contextmanager
def setup_errors(places: Sequence[str] = ()) -> Iterator[None]:
    """Raise SetupFailed, or what a signal means, where native code within raises its own.

    Native code knows peers by rank alone; with `places`, by rank, an error says where they are.
    """
    try:
        yield
    except (
        _native.PluginError, _native.ConnectTimeout, _native.CudaError, _native.CudaUnavailable
    ) as error:  # fmt: skip
        failed = SetupFailed(_with_places(str(error), places) + _hint(str(error)))
        # A connect fails because the other rank's accept did, which knows why.
        failed.second_hand = str(error).startswith(_SECOND_HAND)
        raise failed from None
    except _native.Interrupt:
        raise interrupted_by(_native.stop_signal()) from None
    except MemoryError:
        raise SetupFailed("the system refused the memory that this needs") from None


def _with_places(text: str, places: Sequence[str]) -> str:
    """The text, with the place of every rank that it names at its end."""
    ranks = dict.fromkeys(int(found) for found in re.findall(r"\brank (\d+)", text))
    named = [f"rank {rank} is on {places[rank]}" for rank in ranks if rank < len(places)]
    return "; ".join([text, *named])


def _hint(text: str) -> str:
    if _MANAGER not in text:
        return ""
    return (
        "; TCPX needs the sockets of the receive-datapath manager, in "
        "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX (/tmp unless set): is it running on that node, and "
        "its directory mounted here? (docs/how-to/a3-high.md)"
    )

"""The native errors of set-up and of closing, as ours."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from tcpx_mpi import _native
from tcpx_mpi.errors import SetupFailed
from tcpx_mpi.world import interrupted_by


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
        raise SetupFailed(_with_places(str(error), places)) from None
    except _native.Interrupt:
        raise interrupted_by(_native.stop_signal()) from None
    except MemoryError:
        raise SetupFailed("the system refused the memory that this needs") from None


def _with_places(text: str, places: Sequence[str]) -> str:
    """The text, with the place of every rank that it names at its end."""
    ranks = dict.fromkeys(int(found) for found in re.findall(r"\brank (\d+)", text))
    named = [f"rank {rank} is on {places[rank]}" for rank in ranks if rank < len(places)]
    return "; ".join([text, *named])

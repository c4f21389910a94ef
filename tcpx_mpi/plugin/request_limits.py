"""The limit of requests in flight on a comm by the version of the plugin's table. Pure."""

from __future__ import annotations

import dataclasses

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError

#: What NCCL keeps to with a plugin of v6, so that some have room for no more; later 32.
REQUESTS_OF_V6 = 8
_WINDOWS = (("window_send", "--window-send"), ("window_recv", "--window-recv"))


def within_requests_of(abi: int, settings: Settings) -> Settings:
    """With windows that a plugin of this version has room for.

    Raises UsageError for a larger one that was asked for.
    """
    if abi > 6:
        return settings
    fitted = {name: min(getattr(settings, name), REQUESTS_OF_V6) for name, _ in _WINDOWS}
    for name, option in _WINDOWS:
        asked = getattr(settings, name)
        if asked > REQUESTS_OF_V6 and settings.sources[name] != "default":
            raise UsageError(
                f"{option} ({asked}) is larger than the {REQUESTS_OF_V6} requests of a plugin of "
                f"ABI v6: use {REQUESTS_OF_V6} or less"
            )
    sources = dict.fromkeys(fitted, f"a plugin of ABI v6 has {REQUESTS_OF_V6} requests")
    return dataclasses.replace(settings, **fitted, sources={**settings.sources, **sources})

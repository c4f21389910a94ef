"""The version of the package, as installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version in the package's metadata; "0+unknown" for a source tree never installed."""
    try:
        return version("tcpx-mpi")
    except PackageNotFoundError:
        return "0+unknown"

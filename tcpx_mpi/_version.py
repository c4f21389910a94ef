"""The version of the package, as installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tcpx-mpi")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"

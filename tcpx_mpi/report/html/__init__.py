"""`report --html`: a run as one page that needs nothing but itself, plots inline.

Needs the extra `analysis` (jinja2, matplotlib), which is loaded when a page is made and not before.
"""

from __future__ import annotations

import importlib
import os

from tcpx_mpi.compare import Comparison
from tcpx_mpi.errors import OutputFailed, PluginMissing, UsageError
from tcpx_mpi.printable import printable_lines
from tcpx_mpi.records import Run, require_writable
from tcpx_mpi.report.fleet import Fleet

__all__ = ["require_page_possible", "write_comparison", "write_fleet", "write_html"]


def require_page_possible(path: str) -> None:
    """Refuses, before any work, a page that could not be written; creates nothing.

    Raises UsageError for a name that is taken or no name of a new file, PluginMissing where a
    library of the extra is not installed.
    """
    require_writable(path, "--html")
    if os.path.lexists(path):
        raise _taken(path)
    for library in ("jinja2", "matplotlib"):
        try:
            importlib.import_module(library)
        except ImportError as error:
            raise PluginMissing(
                f"--html needs {library}, which is not installed: pip install 'tcpx-mpi[analysis]'"
            ) from error


def write_html(run: Run, path: str, plugin_trace: str | None = None) -> None:
    """Writes the page of a run, whole or not, to `path`, which must not exist. `plugin_trace`:
    SOFTTCPX_TRACE where it is not that of the run.

    Raises UsageError where it exists or cannot be made, and OutputFailed, leaving no half of a
    file, where it cannot be filled.
    """
    from tcpx_mpi.report.html.page import page_of

    _write_new(page_of(run, plugin_trace), path)


def write_comparison(comparison: Comparison, path: str) -> None:
    """Writes the page of a comparison, as `write_html` does."""
    from tcpx_mpi.report.html.comparison import comparison_page

    _write_new(comparison_page(comparison), path)


def write_fleet(fleet: Fleet, path: str) -> None:
    """Writes the page of a fleet, as `write_html` does."""
    from tcpx_mpi.report.html.fleet import fleet_page

    _write_new(fleet_page(fleet), path)


def _write_new(text: str, path: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError as error:
        raise UsageError(f"cannot create {path}: {error.strerror}") from error
    try:
        # What was never UTF-8 in a name stands as an escape, as in the HDF5 file.
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(printable_lines(text))
    except OSError as error:
        os.unlink(path)
        raise OutputFailed(f"{path}: cannot write: {error.strerror}") from error


def _taken(path: str) -> UsageError:
    return UsageError(f"--html: {path} exists and is kept; give another name, or remove it first")

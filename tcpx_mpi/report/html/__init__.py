"""`report --html`: a run as one page that needs nothing but itself, plots inline.

Needs the extra `analysis` (jinja2, matplotlib), which is loaded when a page is made and not before.
"""

from __future__ import annotations

import importlib

from tcpx_mpi.compare import Comparison
from tcpx_mpi.errors import PluginMissing
from tcpx_mpi.printable import printable_lines
from tcpx_mpi.records import Run
from tcpx_mpi.records.new_file import require_new, write_new_file
from tcpx_mpi.report.fleet import Fleet
from tcpx_mpi.tap.joined import Job
from tcpx_mpi.tap.ways import Summary
from tcpx_mpi.tune.text import Tuned

__all__ = [
    "require_page_possible",
    "write_comparison",
    "write_fleet",
    "write_html",
    "write_tap",
    "write_tune",
]

OPTION = "--html"


def require_page_possible(path: str) -> None:
    """Refuses, before any work, a page that could not be written; creates nothing.

    Raises UsageError for a name that is taken or no name of a new file, PluginMissing if a
    library of the extra is not installed.
    """
    require_new(path, OPTION)
    for library in ("jinja2", "matplotlib"):
        try:
            importlib.import_module(library)
        except ImportError as error:
            raise PluginMissing(
                f"{OPTION} needs {library}, which is not installed: "
                "pip install 'tcpx-mpi[analysis]'"
            ) from error


def write_html(run: Run, path: str, plugin_trace: str | None = None) -> None:
    """Writes the page of a run, whole or not, to `path`, which must not exist. `plugin_trace`:
    SOFTTCPX_TRACE where it is not that of the run.

    Raises UsageError if it exists or cannot be made, and OutputFailed, leaving no half of a
    file, where it cannot be filled.
    """
    from tcpx_mpi.report.html.page import page_of

    _write(page_of(run, plugin_trace), path)


def write_comparison(comparison: Comparison, path: str) -> None:
    """Writes the page of a comparison, as `write_html` does."""
    from tcpx_mpi.report.html.comparison import comparison_page

    _write(comparison_page(comparison), path)


def write_fleet(fleet: Fleet, path: str) -> None:
    """Writes the page of a fleet, as `write_html` does."""
    from tcpx_mpi.report.html.fleet import fleet_page

    _write(fleet_page(fleet), path)


def write_tune(tuned: Tuned, path: str) -> None:
    """Writes the page of a tune, as `write_html` does."""
    from tcpx_mpi.report.html.tune import tune_page

    _write(tune_page(tuned), path)


def write_tap(job: Job, summary: Summary, path: str) -> None:
    """Writes the page of what the tap recorded, as `write_html` does."""
    from tcpx_mpi.report.html.tap import tap_page

    _write(tap_page(job, summary), path)


def _write(text: str, path: str) -> None:
    # What was never UTF-8 in a name stands as an escape, as in the HDF5 file.
    page = printable_lines(text).encode("utf-8", "backslashreplace")
    write_new_file(path, lambda file: file.writelines([page]), OPTION)

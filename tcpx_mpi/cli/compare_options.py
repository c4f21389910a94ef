"""Options that `compare`, `ab` and `tune` share: limits of a verdict, and files for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tcpx_mpi.errors import UsageError
from tcpx_mpi.folded import show

if TYPE_CHECKING:
    from tcpx_mpi.compare import Comparison, Limits
    from tcpx_mpi.records import Run

_OPTIONS = (
    click.option(
        "--tolerance",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="Largest difference that counts as none [0.01].",
    ),
    click.option(
        "--resolution",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="Say 'same' only if a larger difference is excluded [0.05].",
    ),
    click.option("--json", "json_path", type=click.Path(), metavar="FILE", help="Also write JSON."),
    click.option(
        "--html", "page", type=click.Path(), metavar="PAGE", help="Also write one HTML page."
    ),
)
_ANYWAY = click.option(
    "--anyway", is_flag=True, help="Compare even what differs in kind, is partial or unchecked."
)


def comparison_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a comparison to a command."""
    return verdict_options(_ANYWAY(command))


def verdict_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds those of a verdict alone."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def limits_of(tolerance: float, resolution: float) -> Limits:
    """Raises UsageError for limits that cannot be."""
    from tcpx_mpi.compare import Limits

    if not 0 <= tolerance <= resolution < 1:
        raise UsageError(
            f"--tolerance ({tolerance:g}) and --resolution ({resolution:g}) are shares below 1, "
            "the first not above the second: use like 0.01 and 0.05"
        )
    return Limits(tolerance, resolution)


def require_outputs(json_path: str | None, page: str | None) -> None:
    """Raises UsageError for what could not be written once there is something to write."""
    from tcpx_mpi.records import require_writable
    from tcpx_mpi.report.html import require_page_possible

    if json_path is not None:
        require_writable(json_path, "--json")
    if page is not None:
        require_page_possible(page)


def require_comparable(first: Run, second: Run, *, anyway: bool, spread: Run | None = None) -> None:
    """Raises UsageError for files that must not be compared; only warns where it is asked for."""
    from tcpx_mpi.compare import refusals, refusals_of_spread

    reasons = refusals(first, second)
    if spread is not None:
        reasons += refusals_of_spread(first, spread)
    if reasons and not anyway:
        rest = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        raise UsageError(f"not comparable: {reasons[0]}{rest}; --anyway compares all the same")
    for reason in reasons:
        print(f"# warning: not comparable: {reason}", file=sys.stderr)


def show_comparison(comparison: Comparison, json_path: str | None, page: str | None) -> int:
    """Prints and writes a comparison; its exit code."""
    from tcpx_mpi.compare import comparison_document, comparison_lines
    from tcpx_mpi.report import write_json
    from tcpx_mpi.report.html import write_comparison

    lines = list(comparison_lines(comparison))
    if json_path is not None:
        lines.append(f"# wrote {write_json(json_path, comparison_document(comparison))}")
    if page is not None:
        write_comparison(comparison, page)
        lines.append(f"# wrote {page}")
    show(lines)
    return int(comparison.verdict.exit_code)

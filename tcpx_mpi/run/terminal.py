"""Output for a person at a terminal, and its width."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.launch.terminal import USUAL_COLUMNS, Terminal, can_erase
from tcpx_mpi.report import Screen


def screen_of_run(
    settings: Settings, terminal: Terminal | None, environ: Mapping[str, str]
) -> Screen | None:
    """The screen for a run's table, by --screen and the terminal; None: all columns, as in a
    file."""
    if settings.wide or settings.screen == "never" or settings.events_to_stdout():
        return None
    if terminal is not None and terminal.shows_table:
        return Screen(terminal.columns, _has_colour(environ), settings.verbose)
    if settings.screen == "always":  # nobody knows what the table goes through: no escapes
        told = environ.get("COLUMNS", "")
        columns = int(told) if told.isdecimal() else USUAL_COLUMNS
        return Screen(columns, colour=False, verbose=settings.verbose)
    return None


def screen_here(environ: Mapping[str, str], verbose: bool = False) -> Screen | None:
    """The screen of this process's standard output; None if that is no terminal."""
    if not sys.stdout.isatty():
        return None
    columns = os.get_terminal_size(sys.stdout.fileno()).columns or USUAL_COLUMNS
    return Screen(columns, _has_colour(environ), verbose)


def _has_colour(environ: Mapping[str, str]) -> bool:
    return can_erase(environ) and not environ.get("NO_COLOR")

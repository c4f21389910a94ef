"""The standard output of commands, and what becomes of it when nobody reads on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable


def drop_output() -> None:
    """Nothing more may be written, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_verdict(lines: Iterable[str]) -> None:
    """Prints the lines of a command whose exit code is a verdict, which stays what it is when
    nobody reads them to the end (`| head`)."""
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        drop_output()

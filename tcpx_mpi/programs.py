"""External programs that are started here, found by their whole path."""

from __future__ import annotations

import os
import shutil


def find_program(name: str, path: str) -> str | None:
    """The path of a program by this PATH, or None.

    A part of PATH that is empty, or begins with no slash, is a place below the current directory:
    what lies there is whoever's, and is never started.
    """
    parts = [part for part in path.split(os.pathsep) if os.path.isabs(part)]
    return shutil.which(name, path=os.pathsep.join(parts)) if parts else None

"""The programs that builds need: those of wheels beside this Python, else those in PATH."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def find_tool(name: str) -> str | None:
    """Its path; None where there is none."""
    return shutil.which(name, path=tools_path())


def tools_path() -> str:
    """A PATH that has them first."""
    return os.pathsep.join([*_wheels(), os.environ.get("PATH", os.defpath)])


def _wheels() -> list[str]:
    """Cmake's wheel starts its programs by a Python each time, hundreds of times in these tests."""
    beside = str(Path(sys.executable).parent)
    try:
        from cmake import CMAKE_BIN_DIR
    except ImportError:
        return [beside]
    return [CMAKE_BIN_DIR, beside]

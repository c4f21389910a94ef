"""Commands that start this Python again without imports from the current directory.

A `random.py` that lies there would else be executed in place of Python's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

_PATH_VARIABLE = "PYTHONPATH"
#: Before Python 3.11, which has -P: the directory is taken out before anything is imported.
_TAKE_OUT = "import sys; del sys.path[0]; "
_RUN_MODULE = "import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"


def module_command(
    module: str, arguments: Sequence[str] = (), version: tuple[int, ...] = sys.version_info[:2]
) -> list[str]:
    """The command of `python -m MODULE ARGUMENTS`."""
    # Absolute, because a node that does not find a bare `python` makes mpirun hang.
    python = os.path.abspath(sys.executable)
    if version >= (3, 11):
        return [python, "-P", "-m", module, *arguments]
    return [python, "-c", _TAKE_OUT + _RUN_MODULE, module, *arguments]


def code_command(code: str, version: tuple[int, ...] = sys.version_info[:2]) -> list[str]:
    """The command of `python -c CODE`."""
    python = os.path.abspath(sys.executable)
    return [python, "-P", "-c", code] if version >= (3, 11) else [python, "-c", _TAKE_OUT + code]


def without_here(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, without the current directory that an empty part of PYTHONPATH stands for,
    as `PYTHONPATH=$PYTHONPATH:DIR` makes one by mistake."""
    made = dict(environ)
    if _PATH_VARIABLE in made:
        parts = made[_PATH_VARIABLE].split(os.pathsep)
        made[_PATH_VARIABLE] = os.pathsep.join(filter(None, parts))
    return made

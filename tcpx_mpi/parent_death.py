"""End this process when its parent ends, for whatever reason."""

from __future__ import annotations

import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> bool:
    """Has the kernel kill this process, a stopped one too, when the thread that forked it ends.

    False: the process `parent` has ended before that could be asked for.
    """
    import ctypes  # milliseconds, in which few processes have a use for it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent

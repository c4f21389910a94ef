"""A failed run does not wait for a disk: message and exit code come first."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: How long it may take to put away what a failed run leaves.
HANGING_DISK_S = 1.0


def within(seconds: float | None, step: Callable[[], None]) -> bool:
    """Whether a step ended in time, None being any; what it raises is raised.

    One that did not goes on beside this thread, until the process ends.
    """
    raised: list[Exception] = []

    def run() -> None:
        try:
            step()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="hanging disk", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # there is no memory for one
        step()
        return True
    thread.join(seconds)
    if raised:
        raise raised[0]
    return not thread.is_alive()

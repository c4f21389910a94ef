"""The limit of open files, raised as far as allowed: each connection of a plugin needs some."""

from __future__ import annotations

import resource
import sys


def raise_limit() -> None:
    """As many as the system lets this user have (`ulimit -Hn`), without privileges.

    What is usual for a shell (1024) is made for programs that use `select`. Silent, but where that
    is refused.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        print(
            f"# warning: the limit of open files stays {soft} (ulimit -Sn), {hard} was refused: "
            f"{error}",
            file=sys.stderr,
            flush=True,
        )

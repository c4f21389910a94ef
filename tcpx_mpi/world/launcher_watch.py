"""A rank does not outlive its launcher.

Where a connection breaks, Open MPI ends the process from within whatever call it is in: it reports
to mpirun and waits for the answer without a deadline, for ever where mpirun has ended meanwhile.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from tcpx_mpi.errors import ExitCode

#: How often a rank looks whether its launcher is there; a look takes some microseconds.
LOOK_S = 2.0
#: A rank whose launcher has ended has so long to end in good order.
GRACE_S = 20.0


def watch_launcher(name: str) -> None:
    """Begin to watch for the end of this process's parent; `name` says who this is.

    After it this process gets SIGTERM, and is ended with the code of a lost rank if that does not
    end it. A thread of its own looks: the main one may be the one that waits.
    """
    arguments = (name, os.getppid())
    threading.Thread(target=_watch, args=arguments, name="launcher watch", daemon=True).start()


def _watch(name: str, launcher: int) -> None:
    while os.getppid() == launcher:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    text = (
        f"tcpx-mpi: error: {name}: its launcher (process {launcher}) has ended, and it did not end "
        f"in good order within {GRACE_S:.3g} s\n"
    )
    try:
        os.write(2, text.encode())
    finally:  # nobody may be left to read it
        os._exit(ExitCode.LOST_RANK)

"""End a rank when its launcher is gone.

Where a connection breaks, Open MPI ends the process from within whatever call it is in: it reports
to mpirun and waits for the answer without a deadline, for ever where mpirun has ended meanwhile.

It is the parent process that is looked at, again and again. The kernel's own signal of a parent's
end (PR_SET_PDEATHSIG) comes with the end of the thread that forked, and that of a launcher may end
in the midst of a run.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from tcpx_mpi.errors import ExitCode

#: How often a rank looks whether its launcher is there: a look takes 20 us of CPU, which must be
#: nothing beside what is measured.
LOOK_S = 2.0
#: A rank whose launcher has ended has so long to end in good order: a roll call takes 3 s, and who
#: answered it waits 5 s for the speaker.
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
        time.sleep(LOOK_S)  # a poll: see above
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)  # whoever ends in good order ends this thread with it
    text = (
        f"tcpx-mpi: error: {name}: its launcher (process {launcher}) has ended, and it did not end "
        f"in good order within {GRACE_S:.3g} s\n"
    )
    try:
        os.write(2, text.encode())
    finally:  # nobody may be left to read it
        os._exit(ExitCode.LOST_RANK)

"""`tcpx-mpi` as a rank that also writes the handles of its listeners to a file of the test.

    python telling_rank.py FOLDER ARGUMENTS...

In FOLDER, for each rank a file named after its process with the handles as they are.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tcpx_mpi.cli import main
from tcpx_mpi.transport.engine import RankEngine

_listen = RankEngine.listen
_folder = Path(sys.argv.pop(1))


def _listen_and_tell(engine: RankEngine, world_size: int) -> list[bytes]:
    handles = _listen(engine, world_size)
    (_folder / str(os.getpid())).write_bytes(b"".join(handles))
    return handles


RankEngine.listen = _listen_and_tell  # type: ignore[method-assign]  # for a test
sys.exit(main())

"""Whether ncclCommAbort returns once the peer was killed: over softtcpx, and over NCCL's sockets.

    aborts.py

Each in two processes of its own, one after another. Where it does not return, what every thread of
the rank that is left does is printed: its name, where in the kernel it waits, its system call.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from nccl_cases import case_of_bytes
from nccl_session import NET_ONLY, NcclJob, SessionError, over_softtcpx

from tcpx_mpi import _native
from tcpx_mpi.plugin.find import bundled_dir

SOCKETS = {**NET_ONLY, "NCCL_NET_PLUGIN": "none", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo"}


def tried(place: Path, gpus: int, variables: dict[str, str]) -> str:
    """How it went."""
    with NcclJob(place, (0, min(1, gpus - 1)), variables, patience_s=8.0) as session:
        try:
            session.facts()
            session.meet()
            case = vars(case_of_bytes("all_reduce", 4 << 20, session.world, "float32"))
            session.begin({"do": "lose", "case": case}, rank=0)
            session.begin({"do": "die", "case": case}, rank=1)
            told = session.answer(0)
            (took,) = session.tell({"do": "abort", "comm": "first"}, ranks=[0])
        except SessionError as error:
            return str(error)
        return f"told of {told!r}, and aborted in {took:.2f} s"


def main() -> int:
    try:
        gpus = len(_native.cuda_devices())
    except _native.CudaUnavailable as error:
        print(f"found no GPU ({error}): this needs one with its driver, and CuPy", file=sys.stderr)
        return 2
    ours = over_softtcpx(os.path.join(bundled_dir(), "libnccl-net-softtcpx.so"))
    ways = {
        "softtcpx": ours,
        "softtcpx without workers": {**ours, "SOFTTCPX_WORKERS": "0"},
        "NCCL's sockets": SOCKETS,
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, variables in ways.items():
            print(
                f"{name}: {tried(Path(folder) / name.replace(' ', '-'), gpus, variables)}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

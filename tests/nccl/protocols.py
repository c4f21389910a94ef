"""Which of NCCL's protocols and algorithms come to an end over a plugin that the GPU unpacks for.

    protocols.py [SECONDS]

Small collectives between two ranks over softtcpx, each pair of NCCL_PROTO and NCCL_ALGO in
processes of its own, all at once. What is not complete after so many seconds (12) has not ended.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nccl_cases import case_of_bytes
from nccl_session import Session, SessionError, over_softtcpx

from tcpx_mpi import _native
from tcpx_mpi.plugin.find import bundled_dir

#: "": NCCL chooses.
WAYS = (("Simple", "Ring"), ("Simple", "Tree"), ("Simple", ""), ("LL", "Ring"), ("LL", "Tree"),
        ("LL128", "Ring"), ("", "Ring"), ("", ""))  # fmt: skip
PROGRAMS = ("all_reduce", "all_gather")
SIZE = 8 << 10
_CHOSEN = re.compile(r"(?:AllReduce|AllGather): .*?(?:->|Algo).*", re.IGNORECASE)


def tried(place: Path, gpus: int, proto: str, algo: str, program: str, patience_s: float) -> str:
    """How it went, in a line."""
    plugin = os.path.join(bundled_dir(), "libnccl-net-softtcpx.so")
    variables = {**over_softtcpx(plugin), "NCCL_PROTO": proto, "NCCL_ALGO": algo}
    chosen = {name: value for name, value in variables.items() if value}
    with Session(place, (0, min(1, gpus - 1)), chosen, patience_s=patience_s) as session:
        try:
            session.facts()
            session.meet()
            case = case_of_bytes(program, SIZE, session.world, "float32")
            said = "right"
            for turn in range(40):
                verdicts = session.run(case)
                if any(each["wrong"] for each in verdicts):
                    said = f"wrong in call {turn}: {verdicts}"
                    break
        except SessionError as error:
            said = " ".join(str(error).split())[:120]
        found = _CHOSEN.search(session.log())
        return f"{said}; {found.group()[:90] if found else 'NCCL does not say what it chose'}"


def main(patience_s: float = 12.0) -> int:
    try:
        gpus = len(_native.cuda_devices())
    except _native.CudaUnavailable as error:
        print(f"found no GPU ({error}): this needs one with its driver, and CuPy", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(WAYS)) as pool:
        for program in PROGRAMS:
            begun = [
                pool.submit(tried, Path(folder) / f"{program}{number}", gpus, proto, algo, program,
                            patience_s)
                for number, (proto, algo) in enumerate(WAYS)
            ]  # fmt: skip
            for (proto, algo), job in zip(WAYS, begun, strict=True):
                print(f"{program:<11} PROTO={proto:<7} ALGO={algo:<5} {job.result()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))

"""Which of NCCL's protocols and algorithms come to an end over a plugin that the GPU unpacks for.

    protocols.py [--seconds S] [--programs NAME,...] [--ways PROTO/ALGO,...] [--abi N] [NAME=VALUE]

Small collectives between two ranks over softtcpx, each pair of NCCL_PROTO and NCCL_ALGO in
processes of its own, all at once. What is not complete after so many seconds has not ended.
Behind that is what softtcpx's own trace says: of how many messages it was asked for, on all
connections, and of how many it has said that they are done.
"""

from __future__ import annotations

import argparse
import os
import re
import struct
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nccl_cases import case_of_bytes
from nccl_session import NcclJob, SessionError, over_softtcpx

from tcpx_mpi import _native
from tcpx_mpi.plugin.find import bundled_dir

WAYS = "Simple/Ring,Simple/Tree,Simple/,LL/Ring,LL/Tree,LL128/Ring,/Ring,/"
SIZE = 8 << 10
#: Steps of softtcpx's trace.
_POSTED, _DONE = 1, 11
_OF_ONE_SIDE = {7: "sends", 9: "receives"}
_CHOSEN = re.compile(r"(?:AllReduce|AllGather): .*?(?:->|Algo).*", re.IGNORECASE)


def tried(
    place: Path, gpus: int, proto: str, algo: str, program: str, asked: argparse.Namespace
) -> str:
    """How it went, in a line."""
    name = f"libnccl-net-softtcpx{f'-v{asked.abi}' if asked.abi != 7 else ''}.so"
    variables = {
        **over_softtcpx(os.path.join(bundled_dir(), name)),
        "NCCL_PROTO": proto,
        "NCCL_ALGO": algo,
        "SOFTTCPX_TRACE": str(place / "trace"),
        **dict(each.split("=", 1) for each in asked.settings),
    }
    chosen = {name: value for name, value in variables.items() if value}
    turn = 0
    with NcclJob(place, (0, min(1, gpus - 1)), chosen, patience_s=asked.seconds) as session:
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
            said = f"call {turn}: " + " ".join(str(error).split())[:90]
        found = _CHOSEN.search(session.log())
        chose = found.group()[:75] if found else "NCCL does not say what it chose"
    return f"{said}; {chose}; {done_of(place)}"


def done_of(place: Path) -> str:
    """By the traces of all ranks: messages that test has called done, of those that were posted."""
    posted: dict[tuple[str, int], set[int]] = {}
    done: dict[tuple[str, int], set[int]] = {}
    kinds: dict[tuple[str, int], str] = {}
    for file in place.glob("trace.*"):
        content = file.read_bytes()
        written = min(struct.unpack_from("<Q", content, 24)[0], 65536)
        for record in struct.iter_unpack("<qQQIIHHI", content[4096 : 4096 + 40 * written]):
            _, connection, _, message, _, step, _, _ = record
            which = (file.name, connection)
            if step == _POSTED:
                posted.setdefault(which, set()).add(message)
            elif step == _DONE:
                done.setdefault(which, set()).add(message)
            elif step in _OF_ONE_SIDE:
                kinds[which] = _OF_ONE_SIDE[step]
    totals: dict[str, list[int]] = {}
    for which, messages in posted.items():
        total = totals.setdefault(kinds.get(which, "silent"), [0, 0])
        total[0] += len(done.get(which, ()))
        total[1] += len(messages)
    said = ", ".join(f"{kind} {some} of {whole}" for kind, (some, whole) in sorted(totals.items()))
    return f"done: {said or 'nothing was posted'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--programs", default="all_reduce,all_gather")
    parser.add_argument("--ways", default=WAYS, help="PROTO/ALGO,...; an empty one: NCCL chooses")
    parser.add_argument("--abi", type=int, default=7, help="version of softtcpx's table")
    parser.add_argument("settings", nargs="*", metavar="VARIABLE=VALUE")
    asked = parser.parse_args()
    try:
        gpus = len(_native.cuda_devices())
    except _native.CudaUnavailable as error:
        print(f"found no GPU ({error}): this needs one with its driver, and CuPy", file=sys.stderr)
        return 2
    ways = [way.split("/") for way in asked.ways.split(",")]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(ways)) as pool:
        for program in asked.programs.split(","):
            begun = [
                pool.submit(tried, Path(folder) / f"{program}{number}", gpus, proto, algo, program,
                            asked)
                for number, (proto, algo) in enumerate(ways)
            ]  # fmt: skip
            for (proto, algo), job in zip(ways, begun, strict=True):
                print(f"{program:<11} PROTO={proto:<7} ALGO={algo:<5} {job.result()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

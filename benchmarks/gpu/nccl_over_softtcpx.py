"""NCCL over softtcpx beside NCCL over its own sockets, in turns: one table with ratios.

    nccl_over_softtcpx.py [--rounds N] [--json FILE] [--also NAME:VARIABLE=VALUE,...]

Two ranks on a GPU each, or both on the only one, over loopback TCP. All sides are up at once and
take turns, each result is compared byte by byte first, figures are medians of the rounds. Time is
that of one call of many that are queued together, as nccl-tests measures; sizes are those of the
larger buffer. "softtcpx" has nothing set but the plugin, GDR level, PROTO and ALGO.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tcpx_mpi import _native
from tcpx_mpi.baselines.nccl.presets import PRESETS, nccl_variables
from tcpx_mpi.plugin.find import bundled_dir

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path.append(str(TESTS / "nccl"))

from nccl_cases import case_of_bytes  # noqa: E402 (the path)
from nccl_session import (  # noqa: E402 (the path)
    RECIPE,
    NcclJob,
    NothingHere,
    SessionError,
    channels_of,
    over_softtcpx,
    ways_of,
)

PROGRAMS = ("sendrecv", "all_reduce", "all_gather", "alltoall")
#: Bytes, and how many calls are queued together for one time.
SIZES = {8 << 10: 100, 1 << 20: 40, 64 << 20: 6}
OURS = "softtcpx"
SOCKETS = ("default", "tuned", "same")
PLUGIN = "libnccl-net-softtcpx.so"
INTERFACE = "lo"
WRONG, USAGE, FAILED = 5, 2, 3


def sides(also: Sequence[str]) -> dict[str, dict[str, str]]:
    """The environment of each side, by its name."""
    held = {name: nccl_variables(name, (), INTERFACE) for name in PRESETS}
    ours = over_softtcpx(os.path.join(bundled_dir(), PLUGIN), INTERFACE)
    like_ours = {name: value for name, value in RECIPE.items() if name != "NCCL_NET_GDR_LEVEL"}
    found = {
        "default": held["default"],
        "tuned": held["tuned"],
        "same": {**held["default"], **like_ours},
        OURS: ours,
    }
    for text in also:
        name, _, settings = text.partition(":")
        pairs = [each.partition("=") for each in settings.split(",")]
        if not name or not all(variable and equals for variable, equals, _ in pairs):
            raise ValueError(f"--also {text}: expected NAME:VARIABLE=VALUE,...")
        found[name] = {**ours, **{variable: value for variable, _, value in pairs}}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="every time, into this file")
    parser.add_argument("--only", default="", help="sides, comma between them (default: all)")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--busy", action="store_true",
                        help="below each row rank 0's busiest threads, in CPUs")  # fmt: skip
    parser.add_argument("--apart", action="store_true", help="to NCCL each rank has its own host")
    parser.add_argument("--also", action="append", default=[], metavar="NAME:VARIABLE=VALUE,...",
                        help="softtcpx once more, with these set")  # fmt: skip
    asked = parser.parse_args()
    try:
        environments = sides(asked.also)
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE
    names = [name for name in asked.only.split(",") if name] or list(environments)
    if unknown := [name for name in names if name not in environments]:
        print(f"no side {', '.join(unknown)}: there are {', '.join(environments)}", file=sys.stderr)
        return USAGE
    try:
        gpus = len(_native.cuda_devices())
    except _native.CudaUnavailable as error:
        print(f"found no GPU ({error}): this needs one with its driver, and CuPy", file=sys.stderr)
        return USAGE
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sessions = {
            name: stack.enter_context(
                NcclJob(place / name, (0, min(1, gpus - 1)), environments[name], apart=asked.apart)
            )
            for name in names
        }
        try:
            programs = asked.programs.split(",")
            return measured(sessions, programs, asked.rounds, asked.json, asked.busy)
        except NothingHere as error:
            print(f"cannot run NCCL here: {error}", file=sys.stderr)
            return USAGE
        except SessionError as error:
            print(error, file=sys.stderr)
            for name, session in sessions.items():
                print(f"--- {name}\n{session.log()[-3000:]}", file=sys.stderr)
            return FAILED


def measured(
    sessions: Mapping[str, NcclJob], programs: Sequence[str], rounds: int,
    file: Path | None = None, busy: bool = False,
) -> int:  # fmt: skip
    """All sides by turns; prints the table."""
    for name, session in sessions.items():
        facts = session.facts()
        session.meet()
        print(f"# {name}: {channels_of(session.log())}")
    cpus = len(os.sched_getaffinity(0))
    print(f"# NCCL {facts['nccl']}, {facts['gpu']}, {cpus} CPUs, medians of {rounds} rounds")
    print("# microseconds of a call, and how many times faster than NCCL's sockets")
    print("program     bytes    " + "".join(f"{name:>12}" for name in sessions)
          + "".join(f"  {OURS}/{name}" for name in SOCKETS if name in sessions))  # fmt: skip
    kept: dict[str, dict[str, list[float]]] = {}
    for program in programs:
        for size, times in SIZES.items():
            found = _row(sessions, program, size, times, rounds)
            if found is None:
                return WRONG
            kept[f"{program} {size}"] = found
            _print_row(program, size, found)
            for name, session in sessions.items() if busy else ():
                print(f"    {name}: {_busiest(session.busy)}", flush=True)
    for name, session in sessions.items():
        if name not in SOCKETS and (faults := ways_of(session.log())):
            print(f"{name}: {'; '.join(faults)}", file=sys.stderr)
            return FAILED
    if file is not None:
        file.write_text(json.dumps(kept, indent=1))
    return 0


def _row(
    sessions: Mapping[str, NcclJob], program: str, size: int, times: int, rounds: int
) -> dict[str, list[float]] | None:
    """Seconds of each side in each round; none where a byte was wrong."""
    found: dict[str, list[float]] = {name: [] for name in sessions}
    for name, session in sessions.items():
        case = case_of_bytes(program, size, session.world, "float32", seed=size % 1009)
        for each in session.run(case):
            if each["wrong"] or each["beyond"]:
                print(f"{name}: {each}", file=sys.stderr)
                return None
    names = list(sessions)
    for turn in range(rounds):
        # Nobody always comes behind the same one.
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            case = case_of_bytes(program, size, sessions[name].world, "float32")
            found[name].append(sessions[name].seconds(case, max(2, times // 10), times))
    return found


def _print_row(program: str, size: int, found: Mapping[str, Sequence[float]]) -> None:
    middle = {name: statistics.median(seconds) for name, seconds in found.items()}
    ratios = [f"{middle[name] / middle[OURS]:>{11 + len(name) - 2}.2f}"
              for name in SOCKETS if name in middle and OURS in middle]  # fmt: skip
    print(f"{program:<12}{size:<9}" + "".join(f"{1e6 * value:>12.1f}" for value in middle.values())
          + "".join(ratios), flush=True)  # fmt: skip


def _busiest(busy: Mapping[str, Sequence[float]]) -> str:
    order = sorted(busy.items(), key=lambda each: -each[1][0])[:4]
    return ", ".join(
        f"{name} {' '.join(map(str, shares[:4]))}" for name, shares in order if shares[0] >= 0.05
    )


if __name__ == "__main__":
    sys.exit(main())

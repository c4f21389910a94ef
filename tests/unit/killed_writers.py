"""Child program of `test_records_crash`: writers that die, or fail, at a chosen write.

Usage: killed_writers.py begin|launches|run|journal DIRECTORY whole|torn|error

For n = 1, 2, ... it forks a writer that is killed by SIGKILL instead of its n-th write (torn: after
half of it; error: the write fails with ENOSPC instead), until one survives. Each writer tells by a
pipe what it had acknowledged. Prints {"writers": n, "violations": [...]} as JSON.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

import invented
import numpy as np

from tcpx_mpi.errors import OutputFailed, PartialResult, UsageError
from tcpx_mpi.records import (
    Journal,
    LaunchesWriter,
    RunWriter,
    mapped_arrays,
    read_journal,
    read_run,
)

ROWS = 2

#: The samples of a row are mapped, its warm-ups are read through HDF5.
mapped_arrays.LARGE_BYTES = 4096


def arm(nth: int, how: str) -> None:
    """Let this process die, or fail, at its n-th system call that changes a file."""
    count = 0

    def due() -> bool:
        nonlocal count
        count += 1
        return count == nth

    def end() -> None:
        if how == "error":
            raise OSError(errno.ENOSPC, "No space left on device")
        os.kill(os.getpid(), signal.SIGKILL)

    real_pwrite, real_ftruncate = os.pwrite, os.ftruncate

    def pwrite(descriptor: int, data: memoryview | bytes, offset: int) -> int:
        if due():
            if how == "torn":
                real_pwrite(descriptor, data[: len(data) // 2], offset)
            end()
        return real_pwrite(descriptor, data, offset)

    def ftruncate(descriptor: int, length: int) -> None:
        if due():
            end()
        real_ftruncate(descriptor, length)

    # The writers give nothing but memoryviews, the journal bytes.
    os.pwrite, os.ftruncate = pwrite, ftruncate  # type: ignore[assignment]  # they take more


def begin_run(path: str, acknowledge: Callable[[], None]) -> None:
    RunWriter(path)
    acknowledge()


def begin_launches(path: str, acknowledge: Callable[[], None]) -> None:
    LaunchesWriter(path, 2)
    acknowledge()


def check_begun(path: str, acknowledged: int) -> str:
    """What is wrong with a file that a run, or launches, have begun: where there is one it can be
    read."""
    try:
        read_run(path)
    except PartialResult:
        return ""
    except UsageError as error:
        return str(error)
    return "it is whole"


def write_run(path: str, acknowledge: Callable[[], None]) -> None:
    writer = RunWriter(path)
    writer.write_header(invented.run_header())
    writer.write_setup(invented.setup_times())
    acknowledge()
    for index in range(ROWS):
        writer.append_row(invented.row(index, iterations=300))
        acknowledge()
    writer.finish()


def check_run(path: str, acknowledged: int) -> str:
    """What is wrong with a run of which the header and some rows were acknowledged, or ""."""
    try:
        run = read_run(path)
    except PartialResult as error:
        return "" if acknowledged == 0 else str(error)
    except UsageError as error:
        return str(error)
    if len(run.rows) < acknowledged - 1:
        return f"{len(run.rows)} rows of {acknowledged - 1}"
    expected = invented.row(0, iterations=300)
    for row in run.rows:
        if not np.array_equal(row.samples["send"], expected.samples["send"]):
            return f"row {row.index} has other samples"
        if not np.array_equal(row.warmup["send"], expected.warmup["send"]):
            return f"row {row.index} has other warm-ups"
    return ""


def write_journal(path: str, acknowledge: Callable[[], None]) -> None:
    journal = Journal(path, "0011", 0, 4)
    acknowledge()
    for index in range(ROWS):
        facts = invented.row_facts(index)
        part = invented.rank_row(0, facts)
        journal.append_batch(index, facts.size_bytes, "timed", 0, part.samples)
        acknowledge()


def check_journal(path: str, acknowledged: int) -> str:
    try:
        content = read_journal(os.path.join(path, os.listdir(path)[0]))
    except (UsageError, IndexError) as error:
        return "" if acknowledged == 0 else str(error)
    if len(content.rows) < acknowledged - 1:
        return f"{len(content.rows)} rows of {acknowledged - 1}"
    expected = invented.rank_row(0, invented.row_facts(0)).samples["start"].tolist()
    if any(row.samples["start"].tolist() != expected for row in content.rows.values()):
        return "other samples"
    return ""


#: Of each kind: what writes, and what is wrong with what it left.
KINDS = {
    "begin": (begin_run, check_begun),
    "launches": (begin_launches, check_begun),
    "run": (write_run, check_run),
    "journal": (write_journal, check_journal),
}


def run_writer(kind: str, path: str, writing: int) -> NoReturn:
    """The forked writer: 0 if it survived, 8 if it reported a failed write."""

    def acknowledge() -> None:
        os.write(writing, b".")

    status = 1
    try:
        KINDS[kind][0](path, acknowledge)
        status = 0
    except (OutputFailed, UsageError):
        status = 8
    finally:
        # Not by way of the interpreter's end: nothing may tidy up after the failure.
        os._exit(status)


def main() -> None:
    kind, directory, how = sys.argv[1:]
    violations, nth = [], 0
    while True:
        nth += 1
        path = os.path.join(directory, f"{nth}")
        if kind == "journal":
            os.mkdir(path)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            arm(nth, how)
            status = 1
            run_writer(kind, path, writing)
        os.close(writing)
        _, status = os.waitpid(child, 0)
        acknowledged = len(os.read(reading, 100))
        os.close(reading)
        if (os.path.exists(path) or acknowledged) and (wrong := KINDS[kind][1](path, acknowledged)):
            violations.append(f"write {nth}: {wrong}")
        if os.waitstatus_to_exitcode(status) not in (0, 8, -signal.SIGKILL):
            violations.append(f"write {nth}: the writer ended with {status}")
        if status == 0 or len(violations) > 100:
            print(json.dumps({"writers": nth, "violations": violations}))
            return


if __name__ == "__main__":
    main()

"""The output of nccl-tests: comments, one table, and whatever NCCL said in between."""

from __future__ import annotations

import math
import re

from tcpx_mpi.errors import UsageError
from tcpx_mpi.exchange.nccl_tests.log import Device, Log, LogRow
from tcpx_mpi.records import Average

_VERSION = re.compile(r"# nccl-tests version (\S+)(?: .*nccl-library=(\d+))?")
_TEST = re.compile(r"# Collective test starting: (\S+)")
_SETTINGS = re.compile(
    r"# nThread \d+ nGpus \d+ minBytes (\d+) maxBytes (\d+) step: (\d+)\((bytes|factor)\) "
    r"warmup iters: (\d+) iters: (\d+) agg iters: (\d+) validation: (\d+)"
)
# Older versions have no group, and less than an address in the brackets.
_DEVICE = re.compile(
    r"# +Rank +(\d+)(?: Group +(\d+))? Pid +(\d+) on +(\S+) device +(\d+) \[([^]]*)\] *(.*)"
)
_TITLES = re.compile(r"# +size +count +type +redop +root +\S+ +algbw +busbw ")
_ROW = re.compile(r" *(\d+) +(\d+) +([a-z]\w*) +([a-z]\w*) +(-?\d+)(?![^ ])(.*)")
#: What begins as a row does, whatever follows: lines of NCCL may stand in the middle of one.
_ROW_BEGINS = re.compile(r" *\d+ +\d+ +(?:u?int|float|half|double|bfloat|f8|fp)\w* ")
_BANDWIDTH = re.compile(r"# Avg bus bandwidth +: (\S+)")
_ENVIRONMENT = re.compile(r"NCCL INFO (NCCL_\w+) set by environment to (.*?)\.?$")


def parse_text(path: str, text: str) -> Log:
    """The one run in the text; raises UsageError for our own table, and for several runs.

    A row counts when it ended with its line: the last number of a cut one could be a part of it.
    """
    log = Log()
    titles: list[str] = []
    settings = 0
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("# tcpx-mpi version"):
            raise UsageError(f"{path} is a table of tcpx-mpi: give its HDF5 file to report")
        if found := _SETTINGS.match(line):
            settings += 1
            _set(log, found)
        elif found := _VERSION.match(line):
            log.versions["nccl-tests"] = found[1]
            if found[2]:
                log.versions["NCCL"] = found[2]
        elif found := _TEST.match(line):
            log.test = found[1].removesuffix("_perf")
        elif found := _DEVICE.match(line):
            rank, group, pid, host, device, pci, name = found.groups()
            log.devices.append(
                Device(int(rank), int(group or 0), int(pid), host, int(device), pci, name)
            )
        elif _TITLES.match(line):
            titles = line[1:].split()[5:]
            _refuse_cpu_time(path, titles)
        elif found := _BANDWIDTH.match(line):
            log.concluded = True
            log.facts["average bus bandwidth as printed, GB/s"] = found[1]
        elif found := _ENVIRONMENT.search(line):
            log.environment[found[1]] = found[2]
        elif not line.startswith("#") and titles:
            whole = number < len(lines) - 1
            _read_row(log, titles, line, whole)
    if settings > 1:
        raise UsageError(
            f"{path} holds {settings} runs of nccl-tests: write each to a file of its own, as "
            "jobs/nccl-tests.sbatch does"
        )
    if "i_min" in titles:
        log.notes.append("the per-iteration columns of the log (-I) are not imported")
    return log


def _set(log: Log, found: re.Match[str]) -> None:
    log.min_bytes, log.max_bytes = int(found[1]), int(found[2])
    step = int(found[3])
    log.step_bytes, log.step_factor = (step, -1) if found[4] == "bytes" else (-1, step)
    log.warmup_iters, log.iters = int(found[5]), int(found[6])
    log.agg_iters, log.check = int(found[7]), int(found[8])


def _refuse_cpu_time(path: str, titles: list[str]) -> None:
    if "cputime" in titles:
        raise UsageError(
            f"{path} was made with -C, whose time is what the CPU took to start an operation: "
            "run nccl-tests without it"
        )


def _read_row(log: Log, titles: list[str], line: str, whole: bool) -> None:
    row = _row(titles, line) if whole else None
    if row is not None:
        log.rows.append(row)
    elif _ROW_BEGINS.match(line):
        log.damaged.append(f"a row that is not whole in the log: {' '.join(line.split())!r}")


def _row(titles: list[str], line: str) -> LogRow | None:
    """A row, or None for a line that is none or has not all of its columns."""
    found = _ROW.fullmatch(line)
    if found is None:
        return None
    words = found[6].split()
    starts = [column for column, title in enumerate(titles) if title == "time"]
    names = ("out_of_place", "in_place")[: len(starts)]
    if len(words) < len(titles):
        return None
    try:
        averages = tuple(
            _side(name, words[start : start + 4]) for name, start in zip(names, starts, strict=True)
        )
    except ValueError:
        return None
    return LogRow(int(found[1]), int(found[2]), found[3], found[4], int(found[5]), averages)


def _side(name: str, words: list[str]) -> Average:
    """time algbw busbw #wrong; ValueError where one is neither a number nor N/A."""
    time_us, algbw, busbw, wrong = (math.nan if word == "N/A" else float(word) for word in words)
    return Average(name, time_us * 1e3, algbw, busbw, -1 if math.isnan(wrong) else int(wrong))

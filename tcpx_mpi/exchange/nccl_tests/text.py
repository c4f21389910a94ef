"""The output of nccl-tests: comments, one table, and whatever NCCL said in between."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from tcpx_mpi.errors import UsageError
from tcpx_mpi.exchange.nccl_tests.gaps import are_all_there
from tcpx_mpi.exchange.nccl_tests.model import (
    Device,
    Log,
    LogRow,
    read_average,
    stored_integer,
    test_name,
)
from tcpx_mpi.exchange.nccl_tests.prefix import Prefix, split_by_owner, without_inner_tags
from tcpx_mpi.exchange.nccl_tests.settings import take_settings
from tcpx_mpi.exchange.nccl_tests.titles import Titles
from tcpx_mpi.records import IMPORTED_BOUNDS, Average

#: A comment, whose # may be lost.
_HASH = r"(?:# *)?"
_VERSION = re.compile(_HASH + r"nccl-tests version (\S+)(?: .*nccl-library=(\d+))?")
_RCCL_TESTS = re.compile(r"rccl-tests: Version (\S+)")
_TEST = re.compile(_HASH + r"Collective test starting: (\S+)")
#: Where a line of settings begins, whatever stands before it and whatever became of the rest.
_SETTINGS_BEGIN = re.compile(r"(?:# *)?nThreads?:? *\d+ +nGpus:? *\d+")
_SETTINGS = re.compile(
    _HASH + r"nThreads?:? *(\d+) +nGpus:? *(\d+) +minBytes:? *(\d+) +maxBytes:? *(\d+) +"
    r"step: *(\d+) *\((\w+)\) +(.*iters: *\d+.*)"
)
_VALUE = re.compile(r" *(-?\w+)")
_LETTERS = re.compile(r"[A-Za-z_]+")
#: Names of settings as printed, without blanks, by the name in the JSON of nccl-tests.
_JSON_NAMES = {
    "warmupiters": "warmup_iters", "iters": "iterations", "aggiters": "aggregated_iterations",
    "validate": "validation", "blocking": "blocking_collectives",
}  # fmt: skip
# Older versions have no group, and less than an address in the brackets.
_DEVICE = re.compile(
    _HASH
    + r"Rank +(\d+)(?: Group +(\d+))? +Pid +(\d+) +on +(\S+) +device +(\d+) +\[([^]]*)\] *(.*)"
)
_BANDWIDTH = re.compile(_HASH + r"Avg bus bandwidth *: *(\S+)")
_REDUCED = re.compile(_HASH + r"Reducing maxBytes to (\d{1,18}) due to memory limitation")
_BOUNDS = re.compile(_HASH + r"Out of bounds values *: *(\d+) +(OK|FAILED)")
#: A row, whatever stands before and after it.
_ROW_LIKE = re.compile(
    r"(?:^|[^\w.#])\d+ +\d+ +(?:u?int|char|float|half|double|bfloat|f8|fp)\w*(?= |$)"
)
_ENVIRONMENT = re.compile(r"[NR]CCL INFO (\w+) set by environment to (.*?)\.?$")
#: A line of NCCL alone, and what such a line tells if another was joined to it.
_OF_NCCL = re.compile(r".*\b[NR]CCL (?:INFO|TRACE|CALL) ")
_TELLING = re.compile(
    r"#|nThreads?:|nThreads? |Rank +\d+ |algbw|Avg bus|Out of bounds|version|" + _ROW_LIKE.pattern
)
_RANK = re.compile(r"Rank +\d")
#: Lines of NCCL, RCCL and nccl-tests beside comments: they say nothing of the table.
_KNOWN = re.compile(
    r"#|.*\b[NR]CCL (?:INFO|WARN|TRACE|ERROR|CALL|VERSION|version)\b"
    r"|(?:HIP|ROCm) version *:|(?:Librccl|Library) path *:|Hostname *:"
    # Of a log that lost its #.
    r"|Using devices$|Out of bounds|Collective test |out-of-place|in-place|\(B\) +\(elements\)"
    r"|Writing JSON output|Check|Average"
)
_CPU_TIME = (
    "was made with -C, whose time is what the CPU took to start an operation: run nccl-tests "
    "without it"
)
#: So many of the lines that are not understood are shown.
_SHOWN = 3
#: Letters of all lines that are kept, each of which takes some by itself.
_MOST_KEPT = 96 << 20
_OF_A_LINE = 64


def parse_lines(path: str, lines: Iterable[str]) -> Log:
    """The one run in these lines; raises UsageError for our own table, and for several runs.

    A row counts when it ended with its line: the last number of a cut one could be a part of it.
    """
    kept = _Kept(path)
    for line in lines:
        kept.take(line)
    begin = kept.begin
    if begin is None:
        raise _no_log(path, kept.lines)
    prefix = Prefix(begin.string[: begin.start()])
    streams = split_by_owner(prefix, kept.lines)
    _refuse_several(path, {
        owner: sum(_SETTINGS_BEGIN.search(line) is not None for _, line in stream)
        for owner, stream in streams.items()
    })  # fmt: skip
    reader = _Reader(path, last=len(kept.lines))
    of_settings = (
        stream for stream in streams.values() if any(_SETTINGS_BEGIN.search(x) for _, x in stream)
    )
    if (ours := next(of_settings, None)) is None:  # what stands before them is no prefix
        raise _no_log(path, kept.lines)
    outside = streams.get("", [])
    for number, line in sorted(ours if ours is outside else [*ours, *outside]):
        reader.read(number, line.strip())
    reader.log.environment.update(kept.environment)
    return reader.end(begin.string)


@dataclass
class _Kept:
    """The lines of a log as they come; of those that are only NCCL's, most of a large one, their
    number alone."""

    path: str
    lines: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    #: The first line of settings.
    begin: re.Match[str] | None = None
    room: int = _MOST_KEPT

    def take(self, line: str) -> None:
        if "# tcpx-mpi version" in line:
            raise UsageError(f"{self.path} is a table of tcpx-mpi: give its HDF5 file to report")
        line = without_inner_tags(line)
        if found := _ENVIRONMENT.search(line):
            self.environment[found[1]] = found[2]
        if self.begin is None:
            self.begin = _SETTINGS_BEGIN.search(line)
        if self.lines and _OF_NCCL.match(line) and not _TELLING.search(line):
            line = ""
        self.room -= len(line) + _OF_A_LINE
        if self.room < 0:
            raise UsageError(
                f"{self.path} is larger than any log of nccl-tests: take out what is not of it"
            )
        self.lines.append(line)


def _no_log(path: str, lines: list[str]) -> UsageError:
    # What is most like a line of the table or of its header.
    first = next((line for line in lines if _likely(line)), None)
    if first is None and any(" NCCL " in line for line in lines):
        return UsageError(
            f"{path} has lines of NCCL and none of nccl-tests: `tcpx-mpi doctor {path}` reads it"
        )
    first = first or next((line for line in lines if line.strip()), "")
    return UsageError(
        f"{path} is no log of nccl-tests, or ends in its header: expected its line of settings "
        "(# nThread ...) and its rank lines (#  Rank  0 ...), found "
        + (repr(" ".join(first.split())[:80]) if first else "nothing")
    )


def _likely(line: str) -> bool:
    if "algbw" in line or "minBytes" in line or _ROW_LIKE.search(line):
        return True
    rank = _RANK.search(line)
    return rank is not None and "device" in line[rank.end() :]


def _refuse_several(path: str, settings: dict[str, int]) -> None:
    """Refuses a log of several runs; `settings` counts lines of settings by whose they are."""
    if (count := sum(settings.values())) > 1:
        raise _several(path, f"{count} runs of nccl-tests")


def _several(path: str, what: str) -> UsageError:
    return UsageError(
        f"{path} holds {what}: write each to a file of its own, as jobs/nccl-tests.sbatch does"
    )


@dataclass
class _Reader:
    """Reads the lines of one run, one by one."""

    path: str
    #: The number of the last line, which has no end.
    last: int
    log: Log = field(default_factory=Log)
    titles: Titles | None = None
    #: Words of the line above the titles.
    above: str = ""
    tables: int = 0
    footers: int = 0
    #: Lines with a row outside of header and footer.
    outside: int = 0
    unknown: list[str] = field(default_factory=list)
    begun: bool = False

    def read(self, number: int, line: str) -> None:
        log = self.log
        if _SETTINGS_BEGIN.search(line):
            self.begun = True
            if found := _SETTINGS.search(line):
                self._set(found)
            elif number < self.last:
                log.damaged.append(f"the line of settings is not whole: {_short(line)}")
        elif found := _VERSION.match(line):
            log.versions["nccl-tests"] = found[1]
            if found[2]:
                log.versions["NCCL"] = found[2]
        elif found := _RCCL_TESTS.match(line):
            log.versions["rccl-tests"] = found[1]
        elif found := _TEST.match(line):
            log.test = test_name(found[1])
        elif found := _DEVICE.match(line):
            self._device(found)
        elif titles := Titles.read(line, self.above):
            self.titles = titles
            self.tables += 1
            if titles.cpu_time:
                raise UsageError(f"{self.path} {_CPU_TIME}")
        elif found := _REDUCED.match(line):
            log.max_bytes = max(min(log.max_bytes, stored_integer(found[1])), log.min_bytes)
            log.facts["maximum bytes, reduced to the memory there is"] = found[1]
        elif found := _BOUNDS.match(line):
            log.facts[IMPORTED_BOUNDS] = f"{found[1]} {found[2]}"
        elif found := _BANDWIDTH.match(line):
            log.concluded = True
            self.footers += 1
            log.facts["average bus bandwidth as printed, GB/s"] = found[1]
        elif number < self.last or not self.begun:
            self._read_row(number, line)
        self.above = line

    def _set(self, found: re.Match[str]) -> None:
        log = self.log
        told = {
            "nthreads": found[1],
            "ngpus": found[2],
            "minimum_bytes": found[3],
            "maximum_bytes": found[4],
            f"step_{found[6]}": found[5],
        }
        for name, value in _settings(found[7]):
            told[_JSON_NAMES.get(name, name)] = value
        take_settings(log, told)

    def _device(self, found: re.Match[str]) -> None:
        numbers = (found[1], found[2] or 0, found[3], found[5])
        try:
            rank, group, pid, device = map(stored_integer, numbers)
        except ValueError as error:
            self.log.damaged.append(f"a rank line: {error}: {_short(found.string)}")
            return
        self.log.devices.append(Device(rank, group, pid, found[4], device, found[6], found[7]))

    def _read_row(self, number: int, line: str) -> None:
        log = self.log
        if not self.begun or self.footers:
            self.outside += bool(_ROW_LIKE.search(line))
            return
        reasons: list[str] = []
        row = self._row(line, reasons) if self.titles is not None else None
        if row is not None:
            log.rows.append(row)
            log.damaged += [
                f"the row of {row.size_bytes} bytes has {reason}, which is no figure"
                for reason in reasons
            ]
        elif _ROW_LIKE.search(line):
            why = f" ({reasons[0]})" if reasons else ""
            log.damaged.append(f"a row that is not whole in the log: {_short(line)}{why}")
            log.rows_in_pieces += 1
        elif line and not _KNOWN.match(line):
            self.unknown.append(f"line {number}: {_short(line)}")

    def _row(self, line: str, reasons: list[str]) -> LogRow | None:
        """A row, or None for a line that is none or has not all of its columns."""
        assert self.titles is not None
        words = self.titles.words(line)
        if words is None:
            return None
        try:
            averages: list[Average] = []
            for side, values in words.sides:
                average, odd = read_average(side, *values)
                averages.append(average)
                reasons += odd
            size, count, root = map(stored_integer, (words.size, words.count, words.root))
        except ValueError as error:
            reasons[:] = [str(error)] if "2^63" in str(error) else []
            return None
        return LogRow(size, count, words.type_name, words.redop, root, tuple(averages))

    def end(self, header: str) -> Log:
        """The run, all of it read."""
        log = self.log
        runs = max(self.tables, self.footers, 2 if self.outside else 1)
        if runs > 1:
            raise _several(self.path, f"{runs} runs of nccl-tests, not all with their header")
        if not log.devices or not (log.rows or log.asked_count()):
            raise _no_log(self.path, [header])
        self._refuse_second_pass()
        if self.unknown:
            count, shown = len(self.unknown), "; ".join(self.unknown[:_SHOWN])
            more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
            what = "1 line is" if count == 1 else f"{count} lines are"
            # Where every row is there it was none of them.
            where = log.damaged if log.damaged or not are_all_there(log) else log.notes
            where.append(f"{what} not understood: {shown}{more}")
        if self.titles is not None:
            log.notes += self.titles.notes()
        return log

    def _refuse_second_pass(self) -> None:
        """Refuses rows whose sizes begin again: nccl-tests has one pass a type, operation, root."""
        passes: dict[tuple[str, str, int], list[int]] = {}
        asked = self.log.asked_count()
        for row in self.log.rows:
            sizes = passes.setdefault((row.type_name, row.redop, row.root), [])
            if sizes and (row.size_bytes < sizes[-1] or 0 < asked <= len(sizes)):
                raise _several(
                    self.path,
                    f"several runs of nccl-tests: the sizes begin again at {row.size_bytes} bytes",
                )
            sizes.append(row.size_bytes)


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """`warmup iters: 5 iters: 20` by name, which is what stands between a value and a colon."""
    before, *others = text.split(":")
    for part in others:
        name = list(takewhile(_LETTERS.fullmatch, reversed(before.split())))
        value = _VALUE.match(part)
        if name and value is not None:
            yield "".join(reversed(name)).lower(), value[1]
        before = part if value is None else part[value.end() :]


def _short(line: str) -> str:
    text = " ".join(line.split())
    return repr(text if len(text) <= 160 else f"{text[:157]}...")

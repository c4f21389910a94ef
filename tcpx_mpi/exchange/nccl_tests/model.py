"""A run of nccl-tests as parsed: the form into which both kinds of log are read."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field

from tcpx_mpi.records import Average

#: The largest number that a file can hold.
MOST = (1 << 63) - 1
#: A plan of more sizes is not written out: a step of one byte makes thousands of millions.
MOST_SIZES = 4096


@dataclass(frozen=True)
class Device:
    """A rank as nccl-tests lists it; `pci` is its bracket, a PCI address or less."""

    rank: int
    group: int
    pid: int
    host: str
    device: int
    pci: str
    name: str


@dataclass(frozen=True)
class LogRow:
    """A row with its sides: out of place, and in place if it was run."""

    size_bytes: int
    count: int
    type_name: str
    redop: str
    root: int
    averages: tuple[Average, ...]


@dataclass
class Log:
    """A run as its log tells it. What a log does not tell is empty here, or -1."""

    #: Without `_perf`; empty if the log does not say.
    test: str = ""
    min_bytes: int = -1
    max_bytes: int = -1
    #: One of them is -1.
    step_bytes: int = -1
    step_factor: int = -1
    warmup_iters: int = -1
    iters: int = -1
    agg_iters: int = -1
    check: int = -1
    #: 1: nccl-tests waited for each operation (`-z`).
    blocking: int = -1
    #: GPUs of a process: threads of it times GPUs of a thread.
    gpus_of_process: int = 1
    #: What the log says was asked for, by the names of nccl-tests' JSON; none that it does not say.
    settings: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    rows: list[LogRow] = field(default_factory=list)
    #: nccl-tests came to its end: its footer is there.
    concluded: bool = False
    #: What is there in pieces only, in words; how many of them are rows.
    damaged: list[str] = field(default_factory=list)
    rows_in_pieces: int = 0
    #: It may have been given less memory than the largest size takes, and would not say so.
    may_be_shortened: bool = False
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    #: What else it says, by a name of ours: "start time (local)".
    facts: dict[str, str] = field(default_factory=dict)
    #: Words for the header of the table.
    notes: list[str] = field(default_factory=list)
    name: str = ""
    sha256: str = ""

    def asked_count(self) -> int:
        """The number of sizes of one pass as asked for; 0 if the log does not say."""
        if not 0 <= self.min_bytes <= self.max_bytes:
            return 0
        if self.step_factor > 1 and self.min_bytes > 0:
            count, size = 1, self.min_bytes
            while (size := size * self.step_factor) <= self.max_bytes:
                count += 1
            return count
        if self.step_bytes > 0:
            return (self.max_bytes - self.min_bytes) // self.step_bytes + 1
        return 1

    def asked_sizes(self, first: int = 0) -> list[int]:
        """The sizes of one pass from the `first` on, at most MOST_SIZES; nccl-tests rounds some
        down to what divides."""
        indices = range(first, min(self.asked_count(), first + MOST_SIZES))
        if self.step_factor > 1:
            return [self.min_bytes * self.step_factor**index for index in indices]
        return [self.min_bytes + max(self.step_bytes, 0) * index for index in indices]


def test_name(program: str) -> str:
    """The test of a program: all_reduce of /opt/build/all_reduce_perf_mpi."""
    return os.path.basename(program).removesuffix("_mpi").removesuffix("_perf")


def stored_integer(value: object) -> int:
    """A number that a file can hold. Raises ValueError for a larger one."""
    number = int(str(value))
    if not -MOST - 1 <= number <= MOST:
        raise ValueError(f"{number} is larger than 2^63 - 1")
    return number


def read_average(
    side: str, time_us: object, algbw: object, busbw: object, wrong: object
) -> tuple[Average, list[str]]:
    """One side of a row, and in words what of it is no figure and so not told: inf, half a count.

    "N/A", "nan" and None are not told. Raises ValueError for what is no number at all.
    """
    odd = []

    def figure(name: str, value: object) -> float:
        number = math.nan if value in (None, "N/A") else float(str(value))
        if math.isinf(number):
            odd.append(f"{name} {value}")
        return number if math.isfinite(number) else math.nan

    told = [
        figure(name, value)
        for name, value in (("time", time_us), ("algbw", algbw), ("busbw", busbw))
    ]
    count = figure("#wrong", wrong)
    if not math.isnan(count) and not (count.is_integer() and 0 <= count <= MOST):
        odd.append(f"#wrong {wrong}")
        count = math.nan
    known = -1 if math.isnan(count) else int(count)
    return Average(side, told[0] * 1e3, told[1], told[2], known), odd

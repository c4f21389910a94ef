"""What one run of nccl-tests tells, whichever of its two forms it is in."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

from tcpx_mpi.errors import UsageError
from tcpx_mpi.records import Average

#: More than any log; reading a device or a wrong file ends here.
_MAX_BYTES = 1 << 30


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
    agg_iters: int = 1
    check: int = -1
    devices: list[Device] = field(default_factory=list)
    rows: list[LogRow] = field(default_factory=list)
    #: nccl-tests came to its end: its footer is there.
    concluded: bool = False
    #: What is there in pieces only, in words.
    damaged: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    #: What else it says, by a name of ours: "start time (local)".
    facts: dict[str, str] = field(default_factory=dict)
    #: Words for the header of the table.
    notes: list[str] = field(default_factory=list)
    name: str = ""
    sha256: str = ""

    def asked_sizes(self) -> list[int]:
        """The sizes of one pass, as asked for; nccl-tests rounds some down to what divides."""
        sizes = []
        size = self.min_bytes
        while 0 <= size <= self.max_bytes:
            sizes.append(size)
            larger = size * self.step_factor if self.step_factor > 1 else size + self.step_bytes
            if larger <= size:
                break
            size = larger
        return sizes


def read_log(path: str) -> Log:
    """The run of nccl-tests in a file, as far as it is whole: its output, or its JSON.

    Raises UsageError for a file that is missing, is neither, or holds several runs.
    """
    from tcpx_mpi.exchange.nccl_tests.document import parse_document
    from tcpx_mpi.exchange.nccl_tests.text import parse_text

    if not os.path.isfile(path):
        what = "is a directory" if os.path.isdir(path) else "no such file"
        raise UsageError(f"{path}: {what}; give what nccl-tests printed, or wrote by -J")
    if os.path.getsize(path) > _MAX_BYTES:
        raise UsageError(f"{path} is larger than 1 GiB: that is no log of nccl-tests")
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    # A log has what ranks print, too, in whatever encoding.
    text = content.decode("utf-8", "replace").replace("\r\n", "\n")
    log = (parse_document if text.lstrip().startswith("{") else parse_text)(path, text)
    if not log.devices or not log.asked_sizes():
        raise UsageError(
            f"{path} is no log of nccl-tests, or ends in its header: expected its line of settings "
            "(# nThread ...) and its rank lines (#  Rank  0 ...)"
        )
    log.name = os.path.basename(path)
    log.sha256 = hashlib.sha256(content).hexdigest()
    return log

"""The lines of a log of NCCL: who says what, whatever a launcher or a store wrote around it. Pure.

What stands around a line has too many forms to know: a line is found by NCCL's own head.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tcpx_mpi.inputs import parse_json

#: host:pid:tid [device] WHERE NCCL LEVEL text. WHERE is of a warning or a trace: file:line, NCCL
#: 2.30 has the function behind it, TCPX a whole signature. Logs that are passed on have lost hosts,
#: processes or all of it.
_LEVEL = re.compile(
    # NCCL 2.0 to 2.2 have no NCCL before LEVEL; a time (10:22:33) is no head.
    r"(?:\bNCCL |(?<!^\d\d)(?<![\sT(\[]\d\d):\d{1,10}:\d{1,10} \[-?\d{1,4}\] "
    r"(?:[\w./-]{1,80}:\d{1,6} )?)(INFO|WARN|TRACE|VERSION|ABORT)\b ?"
)
_LEVEL_WORDS = ("NCCL ", "INFO ", "WARN ")
_DEVICE = re.compile(r"\[(-?\d{1,4})\] ")
#: The device of a line's communicator; a head has that of the thread, which may be another rank's.
_OF_COMM = re.compile(r"\brank \d+ n[rR]anks \d+ cudaDev (\d{1,4})\b")
_PROCESS = re.compile(r"(?:([^\s:|\"'\],;=()]{0,255}):)?([^\s:]{1,20}):[^\s:]{1,20} $")
#: Where a process is redacted, its thread may be gone: the host is what is left.
_HOST = re.compile(r"([^\s:|\"'\],;=()]{1,255}):[^\s:]{1,20} $")
#: What a page or a person wrote before a host: marks of Markdown and of tables, a byte order mark.
_MARKS = re.compile(r"[^\w<{$]+")
#: The longest head that is looked at: a host has 64 letters, a signature some hundreds.
_HEAD_LETTERS = 700
#: A time that touches what follows it: CloudWatch's.
_TIME = re.compile(r"(\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)(?=[A-Za-z_<])")
#: Open MPI's, wherever a piece of output began: [1,0]<stdout>:
_TAG = re.compile(r"(\[[^\]\s]{1,100}\])<std(?:out|err|diag)>: ?")
#: The rank in such a tag: [1,0], [1,mpirank:13,algo-2].
_TAGGED = re.compile(r"\[[^\]\s,]{1,100},(?:mpirank:)?(\d{1,6})[^\]\s]{0,100}\]<std")
#: Ray's, for lines that it leaves out; what follows explains it.
_REPEATED = re.compile(r" ?\[repeated (\d{1,9})x across cluster\]")
#: What the text before a host ends with, where nothing is between them.
_TEXT_END = re.compile(
    r".*(?:START|COMPLETE|GDRDMA|Shared|<0>|Socket|FasTrak|Libfabric|IB|_v\d)(?=[A-Za-z])"
)
#: The message of an entry in JSON of a log store: Cloud Logging, CloudWatch, Docker, journald.
_MESSAGE = re.compile(
    r'"(?:textPayload|@?message|MESSAGE|msg|log|body|line|text)" ?: ?("(?:[^"\\]|\\.)*")'
)
#: What HTML writes in place of letters, perhaps twice, where a log comes from a page.
_LETTER_OF = {"gt": ">", "lt": "<", "nbsp": " ", None: "&"}
_LETTER_OF |= dict.fromkeys(("quot", "#34", "#x22"), '"')
_LETTER_OF |= dict.fromkeys(("apos", "#39", "#039", "#x27"), "'")
_HTML = re.compile(rf"&(?:amp;)*({'|'.join(filter(None, _LETTER_OF))});|&(?:amp;)+")
#: NCCL writes 1,024 letters at most; what a line has beyond these says nothing.
_LETTERS = 2000
#: Of a line of a file: a store's answer may be one.
FILE_LETTERS = 1 << 26


@dataclass(frozen=True, order=True)
class Rank:
    """A rank as a log knows it: NCCL prints no rank number before its lines. Files of one host and
    pid are of two containers."""

    host: str
    pid: str
    device: str
    source: str = field(default="", repr=False)

    @property
    def process(self) -> tuple[str, str, str]:
        return self.source, self.host, self.pid

    def __str__(self) -> str:
        process = " ".join(filter(None, (self.host, self.pid and f"pid {self.pid}")))
        return (process or "a rank") + (self.device and f" [{self.device}]")


@dataclass(frozen=True)
class Line:
    """One line of a log; `rank` is None and `level` "" if NCCL did not write it."""

    source: str
    number: int
    rank: Rank | None
    level: str
    text: str
    #: How many more ranks said the same, which the log leaves out (Ray).
    repeated: int = 0
    #: The ranks of the launcher's tags in its line.
    tagged: frozenset[int] = frozenset()
    #: What follows it without a head, which may be its rest where lines were wrapped; None if the
    #: log ends with it, perhaps in its midst.
    rest: str | None = ""

    @property
    def place(self) -> str:
        return f"{self.source}:{self.number}"


def read_lines(logs: Iterable[tuple[str, Iterable[str]]]) -> Iterator[Line]:
    """The lines that say something, of (name, lines) of each log."""
    for name, text in logs:
        found = [
            (number, line, _heads(line), tagged)
            for number, whole in enumerate(text, 1)
            for tagged in [_ranks_tagged(_without_html(whole))]
            for line in _unwrapped(whole)
        ]
        hosts = {heads[0].host for _, _, heads, _ in found if heads}
        rests = ["" if heads else line[:_LETTERS].rstrip() for _, line, heads, _ in found[1:]]
        for (number, line, heads, tagged), rest in zip(found, [*rests, None], strict=True):
            if heads:
                for said in _by_heads(name, number, line, heads, hosts):
                    yield replace(said, tagged=tagged, rest=rest) if tagged or rest != "" else said
            elif line.strip():
                yield Line(name, number, None, "", line[:_LETTERS].strip())


@dataclass(frozen=True)
class _Head:
    host: str
    pid: str
    device: str
    level: str
    #: Where it begins in its line, and where its text does.
    start: int
    end: int


def _heads(line: str) -> list[_Head]:
    found: list[_Head] = []
    if not any(words in line for words in _LEVEL_WORDS):
        return found
    for match in _LEVEL.finditer(line):
        first = max(found[-1].end if found else 0, match.start(1) - _HEAD_LETTERS)
        devices = [*_DEVICE.finditer(line, first, match.start(1))]
        if not devices:
            found.append(_Head("", "", "", match[1], match.start(), match.end()))
            continue
        start = devices[-1].start()
        process = _PROCESS.search(line, max(first, start - 300), start)
        host, pid = process.groups("") if process is not None else ("", "")
        if pid and not (host or pid.isdigit()):
            process = _HOST.search(line, max(first, start - 300), start)
            host, pid = process[1] if process is not None else "", ""
        start = start if process is None else process.start()
        if marks := _MARKS.match(host):
            host, start = host[marks.end() :], start + marks.end()
        found.append(_Head(host, pid, devices[-1][1], match[1], start, match.end()))
    return found


def _by_heads(
    name: str, number: int, line: str, heads: list[_Head], hosts: set[str]
) -> Iterator[Line]:
    """Each line of NCCL in a line of the log: two may have lost what was between them."""
    for index, head in enumerate(heads):
        if index:
            # Where nothing is between them, the host is one that is known.
            ends = (head.host[cut:] for cut in range(len(head.host)))
            host = next((end for end in ends if end in hosts), _TEXT_END.sub("", head.host))
            head = replace(head, host=host, start=head.start + len(head.host) - len(host))
            heads[index] = head
    for head, end in zip(heads, [*(head.start for head in heads[1:]), len(line)], strict=True):
        text = line[head.end : min(end, head.end + _LETTERS)].rstrip(" :|*`~").lstrip()
        if text[-1:] in ('"', "'") and text.count(text[-1]) % 2:
            text = text[:-1]  # a wrapper's
        again = _REPEATED.search(text) if "[repeated " in text else None
        if again is not None:
            text = text[: again.start()]
        of_comm = _OF_COMM.search(text) if "cudaDev" in text else None
        rank = Rank(head.host, head.pid, of_comm[1] if of_comm else head.device, name)
        yield Line(name, number, rank, head.level, text, int(again[1]) if again else 0)


def _ranks_tagged(line: str) -> frozenset[int]:
    return frozenset(map(int, _TAGGED.findall(line) if ">:" in line else ()))


def _unwrapped(line: str) -> Iterator[str]:
    """The lines within a line of the file: of the messages of a store, of each of Open MPI's
    ranks."""
    messages = _MESSAGE.findall(line) if '"' in line else []
    if not messages and (plain := _without_html(line)) != line:
        line = plain
        messages = _MESSAGE.findall(line) if '"' in line else []
    if messages:
        for message in messages:
            for part in _decoded(message).split("\n"):
                yield from _unwrapped(part)
        return
    if ">:" in line:
        first, *tagged = _TAG.split(line)
        pieces = [("", first)]
        for rank, piece in zip(tagged[::2], tagged[1::2], strict=True):
            if pieces[-1][0] == rank:
                piece = pieces.pop()[1] + piece
            pieces.append((rank, piece))
        yield from (_TIME.sub(r"\1 ", piece) for _, piece in pieces if piece)
    elif "NCCL " in line:
        # What a program printed as a value has \n for the ends of lines.
        yield from (_TIME.sub(r"\1 ", piece) for piece in line.split("\\n"))
    else:
        yield line


def _without_html(line: str) -> str:
    return _HTML.sub(lambda found: _LETTER_OF[found[1]], line) if "&" in line else line


def _decoded(message: str) -> str:
    try:
        return str(parse_json(message))
    except ValueError:
        return message

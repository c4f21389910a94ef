"""What the tap said in a log while the job ran: slow requests, stalls, what each comm moved. Pure.

The tap (native/tap) prints as NCCL does; `tcpx-mpi tap` has more, of its files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tcpx_mpi.doctor.lines import Line
from tcpx_mpi.units import counted

_PREFIX = "tcpx-mpi tap: "
_COMM = r"comm \d{1,10} \((?P<side>send|receive)s, (?P<nic>[^,]{1,80}), handle (?P<handle>\w{16})\)"
_TIME = r"\d{1,12}(?:\.\d{1,6})? [num]?s"
_RANK = r"(?:rank (?P<rank>-?\d{1,9}): )"
_SLOW = re.compile(
    rf"{_RANK}slow: {_COMM}: request \d{{1,20}} of (?P<bytes>\d{{1,20}}) bytes, .{{0,80}}"
    rf"done after (?P<took>{_TIME}), \d{{1,20}} polls, (?P<plugin>{_TIME}) of it within the "
    r"plugin's calls"
    r"(?:; (?P<more>\d{1,9}) more)?"
)
_STALL = re.compile(rf"{_RANK}nothing has moved for (?P<took>{_TIME}), requests are under way on")
_TURN = re.compile(
    rf"{_COMM}: request \d{{1,20}} of .{{0,200}} ago: (?P<turn>the caller's turn|the t)"
)
_SUMMARY = re.compile(
    rf"{_COMM}: (?P<requests>\d{{1,20}}) requests of (?P<bytes>[^,;]{{1,20}}), .{{0,1200}}"
    rf"post to done p50 (?P<p50>{_TIME}), p99 (?P<tail>{_TIME}), max (?P<most>{_TIME}), "
    rf"(?P<share>\d{{1,3}}) % of it within the plugin's calls; between the caller's polls p50 "
    rf"(?P<polls>{_TIME})"
)
_FAULTS = re.compile(r"puts faults in: (?P<what>.{1,200})")
_LOSSES = re.compile(
    r"records are dropped, (?P<count>\d{1,20}) so far|.* has TCPX_TAP_FILES bytes"
    r"|nothing more is written down"
)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}

_SLOW_DO = "tcpx-mpi tap FILES of all ranks says whose the time was, by way"
_CALLERS = "the caller does not poll, so it is no matter of the network: see what that process does"


@dataclass(frozen=True)
class Said:
    """What the lines of one kind say together; `line` is the one that says most."""

    what: str
    do: str
    line: Line
    times: int = 1
    #: It is a fact, and no doubt about the job.
    fact: bool = False
    #: The job stood still.
    stall: bool = False


def is_of_tap(line: Line) -> bool:
    """Whether the tap has printed a line."""
    return line.rank is not None and line.text.startswith(_PREFIX)


def findings_of_tap(lines: Sequence[Line]) -> list[Said]:
    """All of it, the worst first; nothing where no rank ran with the tap."""
    told = [(line, line.text.removeprefix(_PREFIX)) for line in lines if is_of_tap(line)]
    ends: dict[str, set[str]] = defaultdict(set)
    for line, text in told:
        if found := re.search(_COMM, text):
            ends[found["handle"]].add(str(line.rank))
    return [*_stalls(told, ends), *_slow(told), *_losses(told), *_faults(told), *_moved(told)]


Told = Sequence[tuple[Line, str]]


def _stalls(told: Told, ends: dict[str, set[str]]) -> list[Said]:
    """Of each rank the longest, with its oldest request: the line behind it."""
    stalls: dict[str, tuple[float, Line, str, int]] = {}
    turns: dict[str, re.Match[str]] = {}
    for line, text in told:
        who = str(line.rank)
        if found := _STALL.match(text):
            took, times = _seconds(found["took"]), stalls[who][3] + 1 if who in stalls else 1
            if who not in stalls or took > stalls[who][0]:
                stalls[who] = (
                    took,
                    line,
                    f"{_name(found, line)}: nothing moved for {found['took']}",
                    0,
                )
                turns.pop(who, None)
            stalls[who] = (*stalls[who][:3], times)
        elif (found := _TURN.match(text)) and who in stalls:
            turns.setdefault(who, found)
    made = []
    for who, (_, line, what, times) in sorted(stalls.items(), key=lambda each: -each[1][0]):
        turn, do = turns.get(who), _SLOW_DO
        if turn is not None:
            callers = turn["turn"] != "the t"
            others = sorted(ends[turn["handle"]] - {who})
            other = f" (the other end: {others[0]})" if others else ""
            what += f", the oldest request is a {turn['side']} over {turn['nic']}{other}"
            what += ", the caller's turn" if callers else ", the plugin's turn or its peer's"
            do = _CALLERS if callers else f"see the other end, handle {turn['handle']}, in all logs"
        made.append(Said(what, do, line, times, stall=True))
    return made


def _slow(told: Told) -> list[Said]:
    """All ranks together, by the slowest."""
    found = [(match, line) for line, text in told if (match := _SLOW.match(text))]
    if not found:
        return []
    count = len(found) + sum(int(match["more"] or 0) for match, _ in found)
    ranks = len({str(line.rank) for _, line in found})
    slowest, line = max(found, key=lambda each: _seconds(each[0]["took"]))
    what = (
        f"{counted(count, 'request')} of {counted(ranks, 'rank')} slower than TCPX_TAP_SLOW_US: "
        f"the slowest, a {slowest['side']} of {slowest['bytes']} bytes of {_name(slowest, line)} "
        f"over {slowest['nic']}, took {slowest['took']}, {slowest['plugin']} of it within the "
        "plugin's calls"
    )
    return [Said(what, _SLOW_DO, line, len(found))]


def _losses(told: Told) -> list[Said]:
    found = [(match, line) for line, text in told if (match := _LOSSES.match(text))]
    if not found:
        return []
    dropped = sum(int(match["count"] or 0) for match, _ in found)
    ranks = len({str(line.rank) for _, line in found})
    more = f", {counted(dropped, 'record')} or more dropped" if dropped else ""
    what = f"the tap's record of {counted(ranks, 'rank')} is not whole{more}"
    do = "raise TCPX_TAP_MEMORY and TCPX_TAP_FILES, and see that its folder has room"
    return [Said(what, do, found[0][1], len(found))]


def _faults(told: Told) -> list[Said]:
    found = [(match, line) for line, text in told if (match := _FAULTS.match(text))]
    if not found:
        return []
    what = f"the tap puts faults in on purpose: {found[0][0]['what']}"
    return [Said(what, "unset TCPX_TAP_FAULT", found[0][1], len(found))]


def _moved(told: Told) -> list[Said]:
    """The last summary of each comm, by the slowest of them."""
    last: dict[tuple[str, str, str], tuple[re.Match[str], Line]] = {}
    for line, text in told:
        if found := _SUMMARY.match(text):
            last[str(line.rank), found["handle"], found["side"]] = found, line
    if not last:
        return []
    slowest, line = max(last.values(), key=lambda each: _seconds(each[0]["tail"]))
    requests = sum(int(found["requests"]) for found, _ in last.values())
    what = (
        f"the tap saw {counted(requests, 'request')} on {counted(len(last), 'comm')}; the slowest "
        f"comm, {slowest['side']}s of {line.rank} over {slowest['nic']}: post to done p50 "
        f"{slowest['p50']}, p99 {slowest['tail']}, max {slowest['most']}, {slowest['share']} % of "
        f"it within the plugin's calls; between the caller's polls p50 {slowest['polls']}"
    )
    return [Said(what, "", line, len(last), fact=True)]


def _name(found: re.Match[str], line: Line) -> str:
    return f"rank {found['rank']}" if not found["rank"].startswith("-") else str(line.rank)


def _seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * _SECONDS[unit]

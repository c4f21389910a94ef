"""The findings on slow ranks and links, if pairs were measured apart."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi import patterns
from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.records import Row, RunHeader, rank_name
from tcpx_mpi.schedule.pattern import pairs_of_text, text_of_pairs
from tcpx_mpi.stats import batch_means, rank_times_ns
from tcpx_mpi.stragglers.detect import find_stragglers, sensitivities
from tcpx_mpi.stragglers.links import (
    ONE_DIRECTION,
    ROUND_TRIP,
    Link,
    Measured,
    Places,
    Sensitivity,
    Straggler,
)
from tcpx_mpi.stragglers.outlier import QUARTERS, TIMES_NOISE
from tcpx_mpi.stragglers.retest import judged, retests
from tcpx_mpi.units import figure, format_size

#: A wider matrix is for notebooks (analysis/).
_WIDEST = 16
_MOST_LINES = 8
#: Ranks that move so many times as much as others are not compared.
_ALIKE = 1.1
#: The title of what is slow.
SLOW = "Slow"

BySize = dict[int, dict[Link, Measured]]


def links_by_size(header: RunHeader, rows: Iterable[Row]) -> BySize:
    """Links by size, of patterns whose links can be told apart; repeats of a link are taken
    together."""
    found: dict[int, dict[Link, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    for row in rows if not header.averages_only else []:
        if row.size_bytes:
            if header.targets:
                of_row = _of_requests(row)
            else:
                of_row = (
                    _half_round_trips(row) if row.arrivals.size else _one_direction(header, row)
                )
            for link, measured in of_row.items():
                found[row.size_bytes][link].append(measured)
    return {
        size: {link: _together(parts) for link, parts in links.items()}
        for size, links in found.items()
    }


def _one_direction(header: RunHeader, row: Row) -> dict[Link, Measured]:
    """Links of patterns in which each receiving rank has one sender, and waits for nobody else."""
    found: dict[Link, Measured] = {}
    if not is_one_direction(header):
        return found
    samples = row.samples["iteration"]
    for receiver in np.flatnonzero(row.receives).tolist():
        times = rank_times_ns(samples[receiver], row.agg, row.spool)
        by_batch = batch_means(times, row.batches)
        if by_batch.size and not np.isnan(by_batch).any():
            found[_sender(header, row, receiver), receiver] = _measured(times, by_batch)
    return found


def senders_of(header: RunHeader, row: Row) -> dict[int, int]:
    """Receiver -> the one that sends to it, of a pattern in which there is but one."""
    if not is_one_direction(header):
        return {}
    receivers = np.flatnonzero(row.receives).tolist()
    return {receiver: _sender(header, row, receiver) for receiver in receivers}


def ends_of(header: RunHeader, row: Row) -> tuple[list[int], list[int]]:
    """The ranks of a row that begin its iterations, and those that know when one is over: who waits
    for an answer is both, else senders begin and receivers know."""
    pairs, answered = ways_of(header, row)
    if answered:
        return [sender for sender, _ in pairs], [sender for sender, _ in pairs]
    receivers = np.flatnonzero(row.receives).tolist()
    return [rank for rank in range(header.world) if rank not in receivers], receivers


def ways_of(header: RunHeader, row: Row) -> tuple[list[tuple[int, int]], bool]:
    """(sender, receiver) of a row in which each rank has one of them at most, and whether the
    receiver answers; none of other patterns."""
    pattern = patterns.find(header.pattern)
    if pattern is not None and pattern.answers is not None:
        met = {rank: pattern.answers(rank, header.world) for rank in range(header.world)}
        return [(other, rank) for rank, other in met.items() if other is not None], True
    return [(sender, receiver) for receiver, sender in senders_of(header, row).items()], False


def _sender(header: RunHeader, row: Row, receiver: int) -> int:
    if row.pairs:
        return next(a for a, b in pairs_of_text(row.pairs) if b == receiver)
    pattern = patterns.load(header.pattern)
    assert pattern.sender is not None
    numbers = _rounds_of(header)
    return pattern.sender(numbers[row.cycle % len(numbers)], receiver, header.world)


def is_one_direction(header: RunHeader) -> bool:
    """Whether each rank that receives has one sender, and waits for nobody else."""
    pattern = patterns.find(header.pattern)
    return pattern is not None and pattern.sender is not None


def _has_ways(header: RunHeader) -> bool:
    """Whether a link's time is that of one direction."""
    return is_one_direction(header) or bool(header.targets)


def has_rounds(header: RunHeader) -> bool:
    """Whether ranks meet several others, in rounds."""
    pattern = patterns.find(header.pattern)
    return pattern is not None and pattern.rounds is not None


def _rounds_of(header: RunHeader) -> Sequence[int]:
    """The numbers of the rounds that rows of a run have in turn."""
    told = {name: value for name, value, *_ in header.settings}
    most = told.get("most_pairs", "0")  # files of older versions have no such setting
    return _numbers(header.pattern, header.world, told.get("all_pairs") == "true", int(most))


@functools.lru_cache(maxsize=64)
def _numbers(name: str, world: int, everybody: bool, most_pairs: int) -> Sequence[int]:
    return patterns.load(name).round_numbers(world, everybody, most_pairs)


def _measured(times: NDArray[np.float64], by_batch: NDArray[np.float64]) -> Measured:
    """Medians over batches, for single iterations run back to back, and of both halves."""
    if by_batch.size < 2:  # `pair` with few iterations
        half = max(times.size // 2, 1)
        halves = float(times[:half].mean()), float(times[-half:].mean())
        quarters = np.array_split(times, min(QUARTERS, times.size))
        return Measured(float(by_batch[0]), *halves, tuple(float(q.mean()) for q in quarters))
    return _of_blocks(by_batch)


def _of_blocks(times: NDArray[np.float64]) -> Measured:
    half = max(times.size // 2, 1)
    first, second = float(np.median(times[:half])), float(np.median(times[-half:]))
    quarters = np.array_split(times, min(QUARTERS, times.size))
    by_quarter = tuple(float(np.median(each)) for each in quarters)
    return Measured(float(np.median(times)), first, second, by_quarter)


def _of_requests(row: Row) -> dict[Link, Measured]:
    """Links of initiators with their targets, each by the initiator's clock alone."""
    return {
        (sender, receiver): _of_blocks(times)
        for receiver, of_receiver in enumerate(row.arrivals)
        for sender, times in enumerate(of_receiver)
        if bool((times > 0).all())
    }


def _half_round_trips(row: Row) -> dict[Link, Measured]:
    """Links of a rank with several peers at a time: half of the time there and back.

    A peer's bytes come as late as it began its iteration, and that is as late as what it waited
    for itself. In the sum of both directions neither this nor the clocks count: a later start adds
    to one direction what it takes from the other, in each single iteration. (Files of older
    versions have means of blocks.)
    """
    moved = row.payload_bytes_sent + row.payload_bytes_received
    if moved.max() > _ALIKE * moved.min():
        return {}  # who has more to move than others is not slow
    both = (row.arrivals + row.arrivals.transpose(1, 0, 2)) / 2
    return {
        (a, b): _of_blocks(both[a, b])
        for a in range(len(both))
        for b in range(a + 1, len(both))
        if bool((both[a, b] > 0).all())
    }


def _together(parts: Sequence[Measured]) -> Measured:
    """Several times the same link, in cycles: medians, and the first cycles against the last."""
    if len(parts) == 1:
        return parts[0]
    found = _of_blocks(np.array([ns for part in parts for ns in part.quarters_ns]))
    times = [part.time_ns for part in parts]
    return replace(found, time_ns=float(np.median(times)))


def pairs_to_retest(header: RunHeader, rows: Sequence[Row]) -> dict[int, list[str]]:
    """Pairs by size of the rows in which the stragglers of a tournament meet others again."""
    places = places_of(header)
    if (
        places is None
        or not has_rounds(header)
        or len(_rounds_of(header)) <= len(_numbers(header.pattern, header.world, False, 0))
    ):
        return {}
    found = {}
    for size, links in links_by_size(header, rows).items():
        again = retests(find_stragglers(links, places), links, places)
        found[size] = [
            text_of_pairs(link)
            for pairs in again
            for link in (pairs, [(receiver, sender) for sender, receiver in pairs])
        ]
    return found


def matrices(header: RunHeader, rows: Iterable[Row]) -> BySize:
    """Speeds from rank to rank by size, of a run in rounds that is not too wide to be shown."""
    if not has_rounds(header) or header.world > _WIDEST:
        return {}
    return links_by_size(header, (row for row in rows if not row.pairs))


def stragglers(header: RunHeader, rows: Sequence[Row]) -> list[Finding[str]]:
    """The finding on stragglers: which, that there are none, or that the noise hides them."""
    named: list[str] = []
    doubted: list[str] = []
    unconfirmed: list[str] = []
    places = places_of(header)
    by_size = links_by_size(header, [row for row in rows if not row.pairs])
    fresh_by_size = links_by_size(header, [row for row in rows if row.pairs])
    if places is None or not by_size:
        return []
    roles = ONE_DIRECTION if _has_ways(header) else ROUND_TRIP
    for size, links in by_size.items():
        fresh = fresh_by_size.get(size, {})
        for each in judged(links, fresh, places, roles):
            sentence = _sentence(header, size, each.suspect)
            if each.again is not None:
                sentence += f"; again {each.again:.3g} x{_met(each.suspect, fresh, places)}"
            elif fresh:
                sentence += "; not measured again"
            if each.doubted:
                sentence = f"cannot tell of {sentence}"
            (named if each.named else doubted if each.doubted else unconfirmed).append(sentence)
    found = [*_titled(SLOW, named, Severity.BAD), *_titled(SLOW, doubted, Severity.DOUBTFUL)]
    if not found and (has_rounds(header) or not is_one_direction(header)):
        found = _nobody(header, by_size, places, roles)
    return [*found, *_titled("Not confirmed", unconfirmed)]


def _nobody(
    header: RunHeader, by_size: BySize, places: Places, roles: Sequence[str]
) -> list[Finding[str]]:
    """The finding that no rank is slow, and how slow one can be unseen, at the sizes where that is
    most and least; nothing if no rank could be named. Of sizes whose noise hides what matters that
    it cannot be told.
    """
    found = sorted(
        (
            (size, each)
            for size, links in by_size.items()
            for each in sensitivities(links, places, roles)
        ),
        key=lambda item: item[1].most,
        reverse=True,
    )
    hidden = [item for item in found if item[1].hides]
    clear = [item for item in found if not item[1].hides]
    said = _titled(SLOW, [_cannot_tell(header, *item) for item in hidden], Severity.DOUBTFUL)
    if clear:
        why = "the least that is named"
        if clear[0][1].by_noise:
            why = f"{TIMES_NOISE:g} x the noise: more iterations (-n) see smaller differences"
        limits = " and ".join(dict.fromkeys(_limit(*item) for item in (clear[0], clear[-1])))
        who = "elsewhere" if hidden else "nobody;"
        said += _titled(SLOW, [f"{who} a rank goes unseen below {limits} ({why})"])
    return said


def _cannot_tell(header: RunHeader, size: int, found: Sensitivity) -> str:
    farthest = f"{rank_name(header, found.rank)}, {found.role}: {found.farthest:.3g} x"
    return (
        f"cannot tell (noise {_noise(found.noise)}); "
        f"farthest: {farthest if found.farthest > 1 else 'none is slower'}; a rank goes unseen "
        f"below {_limit(size, found)}: use more iterations (-n), or a quieter machine"
    )


def _noise(noise: float) -> str:
    """In log time."""
    return f"{100 * math.expm1(noise):.1f} %" if noise < math.log(2) else f"{math.exp(noise):.3g} x"


def _limit(size: int, sensitivity: Sensitivity) -> str:
    where = (" within a node", " between nodes")[sensitivity.apart]
    factors = dict.fromkeys(f"{each:.3g}" for each in (sensitivity.least, sensitivity.most))
    good = f"the {figure(sensitivity.good_ns / 1e3, 4)} us of the good ones{where}"
    return f"{' to '.join(factors)} x {good} at {format_size(size)}"


def _titled(
    title: str, sentences: Sequence[str], severity: Severity = Severity.NOTE
) -> list[Finding[str]]:
    shown = list(sentences[:_MOST_LINES])
    if len(sentences) > len(shown):
        shown.append(f"and {len(sentences) - len(shown)} more: the slowest is above")
    return [Finding(severity, title, text) for text in shown]


def places_of(header: RunHeader) -> Places | None:
    infos = {info.rank: info for info in header.ranks}
    if sorted(infos) != list(range(header.world)):
        return None
    ranks = [infos[rank] for rank in range(header.world)]
    return Places([info.node for info in ranks], [info.nic for info in ranks])


def _sentence(header: RunHeader, size: int, suspect: Straggler) -> str:
    """The sentence on a straggler: its role, its factor, and the figures that say so."""
    names = [rank_name(header, rank) for rank in suspect.ranks]
    one_direction = _has_ways(header)
    measured = (
        f"{suspect.factor:.3g} x the {figure(suspect.good_ns / 1e3, 4)} us of the good ones at "
        f"{format_size(size)}, in {suspect.links} of {suspect.of_links} links "
        f"(noise {_noise(suspect.noise)})"
    )
    roles = " and ".join(suspect.roles)
    if suspect.kind == "rank":
        return f"{names[0]}, {roles}: {measured}"
    if suspect.kind == "NIC":
        info = next(info for info in header.ranks if info.rank == suspect.ranks[0])
        nic = f"NIC {info.nic} of {info.host} ({_ranks(suspect.ranks)})"
        return f"{nic}, {roles}: {measured}, not within the node"
    if suspect.kind == "rail":
        both = "from one to another" if one_direction else "between each other"
        return f"{_rail(header, suspect.ranks)}, {roles or both}: {measured}"
    if suspect.kind == "link":
        link = f"from {names[0]} to" if one_direction else f"between {names[0]} and"
        return f"the link {link} {names[1]}: {measured}, both are fast with others"
    return f"{names[0]} or {names[1]}, or their link: {measured}; `run pairs --all` tells which"


def _rail(header: RunHeader, ranks: Sequence[int]) -> str:
    """Its NICs by their name, on how many nodes, and their ranks. No node is named: none of them
    is what is slow.
    """
    nics = {info.nic for info in header.ranks if info.rank in ranks}
    slow = {info.node for info in header.ranks if info.rank in ranks}
    having = {info.node for info in header.ranks if info.nic in nics}
    nodes = f"{len(slow)} nodes" if slow == having else f"{len(slow)} of {len(having)} nodes"
    many = len(nics) > 1
    name = f"rail{'s' if many else ''} {', '.join(sorted(nics))}"
    names = "these names" if many else "this name"
    return f"{name} (NICs of {names} on {nodes}: {_ranks(ranks)})"


def _met(suspect: Straggler, fresh: Mapping[Link, Measured], places: Places) -> str:
    """Whom it met again."""
    met = {
        other
        for link in fresh
        if places.apart(link) == suspect.apart and not set(suspect.ranks).isdisjoint(link)
        for other in link
        if other not in suspect.ranks
    }
    return f" with {_ranks(sorted(met))}" if suspect.roles else ""


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"

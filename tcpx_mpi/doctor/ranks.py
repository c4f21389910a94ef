"""The ranks of a log: its last attempt, and which names are one rank's. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcpx_mpi.doctor.facts import COMM, VERSION, RankFacts
from tcpx_mpi.doctor.job import Job
from tcpx_mpi.doctor.lines import Line, Rank


def last_attempt(lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """The lines without those of processes that a later one took the place of, and the last line of
    each of these: a launcher that starts a job again writes into the same log. A rank has one
    number among all ranks, so a process that begins behind the end of another with its number is
    that rank again."""
    numbers: dict[tuple[str, str, str], set[tuple[int, int]]] = defaultdict(set)
    first: dict[tuple[str, str, str], int] = {}
    last: dict[tuple[str, str, str], int] = {}
    for at, line in enumerate(lines):
        if line.rank is None or not line.rank.pid:
            continue
        process = line.rank.process
        first.setdefault(process, at)
        last[process] = at
        if found := COMM.search(line.text):
            numbers[process].add((int(found["ranks"]), int(found["rank"])))
    size = max((size for of in numbers.values() for size, _ in of), default=0)
    among_all = {
        process: frozenset(number for each, number in of if each == size)
        for process, of in numbers.items()
    }
    begun: dict[tuple[str, frozenset[int]], int] = {}
    for process, of in among_all.items():
        begun[process[0], of] = max(begun.get((process[0], of), 0), first[process])
    gone = {
        process for process, of in among_all.items() if of and begun[process[0], of] > last[process]
    }
    kept = [line for line in lines if line.rank is None or line.rank.process not in gone]
    return kept, [lines[last[process]] for process in sorted(gone)]


def read_job(lines: Sequence[Line]) -> Job:
    """The job of these ranks, in the order of their names."""
    said: dict[Rank, list[Line]] = defaultdict(list)
    versions: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        if line.rank is not None:
            said[line.rank].append(line)
        elif found := VERSION.search(line.text):
            # Printed without a head, beside the same with one.
            versions[found["version"]] += []
    alone = {rank: _facts(rank, [rank], said) for rank in sorted(said)}
    broken = _broken_names(alone)
    for rank, whole in broken.items():
        said[whole] += said[rank]
        alone[whole] = _facts(whole, [whole], said)
        del alone[rank]
    parts = _parts(alone)
    ranks = {
        rank: _facts(rank, of, said) if len(of) > 1 else alone[rank] for rank, of in parts.items()
    }
    _guess_choices([*ranks.values()])
    owners: dict[Rank, list[RankFacts]] = defaultdict(list)
    for rank, of in parts.items():
        for part in of:
            owners[part].append(ranks[rank])
    owners |= {rank: owners[whole] for rank, whole in broken.items()}
    for facts in ranks.values():
        if facts.version:
            versions[facts.version].append(str(facts))
    size = max((size for facts in ranks.values() for size in facts.numbers), default=0)
    if not size:
        mentioned = {number for facts in ranks.values() for number in facts.mentioned}
        size = max(mentioned, default=-1) + 1
    return Job([*ranks.values()], size, owners, versions)


def _facts(rank: Rank, parts: Sequence[Rank], said: Mapping[Rank, Sequence[Line]]) -> RankFacts:
    facts = RankFacts(rank, gpu=int(rank.device or -1))
    for part in parts:
        for line in said[part]:
            facts.take(line)
    return facts


def _guess_choices(ranks: Sequence[RankFacts]) -> None:
    """The choice of ranks that do not say it: before NCCL 2.14 the first of a process says it for
    all its GPUs; before 2.6 none does, and it is what their process came to."""
    chosen: dict[tuple[str, str, str], dict[str, Line]] = defaultdict(dict)
    for facts in ranks:
        chosen[facts.rank.process].update(facts.chosen if facts.rank.pid else {})
    for facts in ranks:
        of_process = chosen[facts.rank.process]
        if facts.has_number and not facts.networks and len(of_process) == 1:
            facts.chosen.update(of_process)
    by_process = {facts.rank.process: facts.came_to for facts in ranks if facts.came_to}
    newer = {facts.rank.process for facts in ranks if facts.is_newer}
    for facts in ranks:
        is_rank = facts.numbers or facts.near
        came_to = facts.came_to or (is_rank and by_process.get(facts.rank.process))
        if facts.rank.process in newer or facts.networks:
            continue
        if came_to and came_to[0] != "plugin":
            facts.chosen.update([came_to])
            facts.is_guess = True


def _broken_names(alone: Mapping[Rank, RankFacts]) -> dict[Rank, Rank]:
    """The names that are the tail of another, or have another as theirs, with what is the rank's:
    two ranks that write at once cut a head, or have one behind a piece of another's."""
    tails = sorted(
        (rank.source, rank.device, f"{rank.host}:{rank.pid}".lstrip(":")[::-1], rank)
        for rank in alone
        if rank.pid
    )
    broken: dict[Rank, Rank] = {}
    for at, (*group, tail, rank) in enumerate(tails):
        longer = [
            other
            for *others, name, other in tails[at + 1 : at + 3]
            if others == group and name.startswith(tail)
        ]
        if len(longer) != 1 or not _may_be_one(alone[rank], alone[longer[0]]):
            continue
        whole, part = sorted([longer[0], rank], key=lambda one: not alone[one].has_number)
        if not broken.keys() & {whole, part}:
            broken[part] = whole
    return broken


def _may_be_one(one: RankFacts, other: RankFacts) -> bool:
    """Whether no number says that two names are of two ranks."""
    if one.has_number and other.has_number:
        return _shares_number(one, other)
    return not (one.spoken and other.spoken and one.spoken.isdisjoint(other.spoken))


def _parts(alone: Mapping[Rank, RankFacts]) -> dict[Rank, list[Rank]]:
    """Each rank, and under which names it speaks: a process that has not yet chosen its GPU has
    that of another, and a rank's log may be in two files."""
    parts: dict[Rank, list[Rank]] = {}
    processes: dict[tuple[str, str, str], list[Rank]] = defaultdict(list)
    names: dict[Rank, list[Rank]] = defaultdict(list)
    for rank, facts in sorted(alone.items(), key=lambda item: not item[1].names_network):
        alike = names[replace(rank, source="")]
        near = [] if facts.names_network else processes[rank.process]
        if facts.has_number:  # a thread had another device current
            only = len(near) == 1 and not alone[near[0]].has_number
            near = [home for home in near if only or _shares_number(alone[home], facts)]
        same = [one for one in alike if _is_one(alone[one], facts)]
        homes = near or (same if len(same) == 1 else [])
        for home in homes:
            parts[home].append(rank)
        if not homes:
            parts[rank] = [rank]
            if facts.names_network:
                processes[rank.process].append(rank)
                alike.append(rank)
    return parts


def _shares_number(one: RankFacts, other: RankFacts) -> bool:
    """Whether both have the same number in the largest communicator that the other has one of."""
    size = max(size for size, numbers in other.numbers.items() if numbers)
    return not one.numbers.get(size, set()).isdisjoint(other.numbers[size])


def _is_one(one: RankFacts, other: RankFacts) -> bool:
    """Whether two files may have lines of one rank: by its numbers, or where one says little."""
    both = [(of, other.numbers.get(size)) for size, of in one.numbers.items()]
    alike = [mine == theirs for mine, theirs in both if mine and theirs]
    if alike:
        return all(alike)
    return not other.names_network

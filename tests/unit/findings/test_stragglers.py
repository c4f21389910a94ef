"""What `report` says of a tournament: its rows, those in which suspects met again, and both."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

import invented
import numpy as np
import pytest

from tcpx_mpi.findings.stragglers import links_by_size, matrices, pairs_to_retest, stragglers
from tcpx_mpi.patterns.pairs import sender_of
from tcpx_mpi.records import Row, Run
from tcpx_mpi.report.html.page import page_of
from tcpx_mpi.schedule.pattern import pairs_of_text
from tcpx_mpi.stragglers.detect import Link, Measured

pytestmark = pytest.mark.usefixtures("in_one_and_in_pieces")

WORLD, ROUNDS, BLOCKS = 4, 6, 8
HEADER = invented.run_header(
    world=WORLD,
    pattern="pairs",
    settings=[("all_pairs", "true", "command line --all")],
    ranks=[invented.rank_info(r, host="host0", node="boot-0", nic="lo") for r in range(WORLD)],
)
SLOW_SENDER = {(2, other): 3.0 for other in (0, 1, 3)}


def row(index: int, senders: Mapping[int, int], slow: Mapping[Link, float], pairs: str = "") -> Row:
    """Receiver -> sender; every iteration of a good way takes 100 us, give or take 2 %."""
    random = np.random.default_rng(index)
    iteration = np.full((WORLD, BLOCKS), 5000)
    for receiver, sender in senders.items():
        noise = np.exp(0.02 * random.standard_normal(BLOCKS))
        iteration[receiver] = 100e3 * slow.get((sender, receiver), 1.0) * noise
    found = invented.row(
        index, WORLD, size_bytes=1024, iterations=BLOCKS, cycle=index, pairs=pairs,
        batches=np.ones(BLOCKS, np.int64),
        receives=np.array([rank in senders for rank in range(WORLD)]),
    )  # fmt: skip
    found.samples["iteration"] = iteration.astype(np.int64)
    return found


def tournament(slow: Mapping[Link, float]) -> list[Row]:
    rows = []
    for number in range(ROUNDS):
        of_all = {rank: sender_of(number, rank, WORLD) for rank in range(WORLD)}
        rows.append(row(number, {r: s for r, s in of_all.items() if s >= 0}, slow))
    return rows


def met_again(rows: list[Row], slow: Mapping[Link, float]) -> list[Row]:
    (texts,) = pairs_to_retest(HEADER, rows).values()
    return [
        row(ROUNDS + number, {b: a for a, b in pairs_of_text(text)}, slow, text)
        for number, text in enumerate(texts)
    ]


def words(rows: list[Row]) -> list[str]:
    return [f"{each.title}: {each.text}" for each in stragglers(HEADER, rows)]


def test_a_way_has_the_time_of_one_copy_and_for_halves_its_first_and_last_cycle() -> None:
    """Three cycles of the tournament's second round, with four copies an iteration."""
    senders = {r: s for r in range(WORLD) if (s := sender_of(1, r, WORLD)) >= 0}
    rows = [row(1 + cycle * ROUNDS, senders, {}) for cycle in range(3)]
    for each, time_ns in zip(rows, (1000, 3000, 2000), strict=True):
        each.agg = 4
        each.samples["iteration"][:] = time_ns
    (links,) = links_by_size(HEADER, rows).values()
    assert links == {(s, r): Measured(500.0, 250.0, 500.0) for r, s in senders.items()}


def test_suspects_meet_two_others_both_ways() -> None:
    texts = pairs_to_retest(HEADER, tournament(SLOW_SENDER))[1024]
    assert len(texts) == 4
    met = " ".join(texts).split()
    assert len(set(met)) == len(met) == 8
    assert sum(link.startswith("2>") for link in met) == 2
    assert sum(link.endswith(">2") for link in met) == 2


def test_nobody_meets_again_where_nobody_is_suspected_or_each_met_one_other_only() -> None:
    assert pairs_to_retest(HEADER, tournament({})) == {1024: []}
    once = invented.run_header(world=WORLD, pattern="pairs", settings=[], ranks=HEADER.ranks)
    assert pairs_to_retest(once, tournament(SLOW_SENDER)[:2]) == {}


def test_who_is_slow_again_is_named_with_both_figures() -> None:
    rows = tournament(SLOW_SENDER)
    (line,) = words(rows + met_again(rows, SLOW_SENDER))
    assert re.fullmatch(
        r"Slow: rank 2 on host0 \(device 0, NIC lo\), sending: [23](\.\d+)? x the \d+(\.\d+)? "
        r"us of the good ones at 1 KiB, in 3 of 3 ways \(noise \d\.\d%\); again [23](\.\d+)? x "
        r"with ranks \d, \d",
        line,
    ), line


def test_who_was_slow_once_is_not_named_but_told() -> None:
    rows = tournament(SLOW_SENDER)
    slow, told = words(rows + met_again(rows, {}))
    assert re.search(r"^Slow: nobody; a rank goes unseen below 1\.[0-3]\d* x the \d+", slow)
    assert re.search(r"^Not confirmed: rank 2 .*; again (1|0\.9\d*|1\.0\d*) x with ranks ", told)


def test_a_run_that_ended_before_they_met_again_names_its_suspects() -> None:
    (line,) = words(tournament(SLOW_SENDER))
    assert re.search(r"^Slow: rank 2 .* \(noise \d\.\d%\)$", line)


def test_the_matrix_is_that_of_the_tournament() -> None:
    rows = tournament(SLOW_SENDER)
    again = met_again(rows, dict.fromkeys(SLOW_SENDER, 50.0))
    assert matrices(HEADER, rows) == matrices(HEADER, rows + again) != {}


def test_the_page_of_a_tournament_has_its_matrix_and_who_is_slow() -> None:
    rows = tournament(SLOW_SENDER)
    rows += met_again(rows, SLOW_SENDER)
    (slow,) = (each.text for each in stragglers(HEADER, rows) if each.title == "Slow")
    page = page_of(Run("pairs.h5", HEADER, invented.setup_times(), rows, True))
    assert html.escape(slow) in page
    matrix = page.partition("<caption>1 KiB, GB/s: a row sends, a column receives</caption>")[2]
    cells = re.findall(r"<t[hd](?: scope=\"row\")?(?: class=\"text\")?>([^<]*)</t", matrix)[:20]
    assert cells[::5] == ["0", "1", "2", "3"]
    assert [cells[6 * rank + 1] for rank in range(WORLD)] == ["-"] * WORLD
    speeds = [[float(c) for c in cells[5 * r + 1 : 5 * r + 5] if c != "-"] for r in range(WORLD)]
    assert max(speeds[2]) < min(speeds[0] + speeds[1] + speeds[3]) / 2

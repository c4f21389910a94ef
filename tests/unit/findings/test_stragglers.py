"""What `report` says of a tournament: its rows, those in which suspects met again, and both."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Mapping

import invented
import numpy as np
import pytest

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings import Finding, Severity, verdict
from tcpx_mpi.findings.stragglers import links_by_size, matrices, pairs_to_retest, stragglers
from tcpx_mpi.patterns.pairs import sender_of
from tcpx_mpi.records import Row, Run
from tcpx_mpi.report import report_lines, strict_outcome, to_json
from tcpx_mpi.report.html.page import page_of
from tcpx_mpi.schedule.pattern import pairs_of_text
from tcpx_mpi.stragglers.links import Link, Measured

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
    quarters = (250.0, 750.0, 750.0, 500.0)
    assert links == {(s, r): Measured(500.0, 250.0, 500.0, quarters) for r, s in senders.items()}


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
        r"us of the good ones at 1 KiB, in 3 of 3 links \(noise \d\.\d %\); again [23](\.\d+)? x "
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
    assert re.search(r"^Slow: rank 2 .* \(noise \d\.\d %\)$", line)


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


def test_a_slow_rail_has_its_nics_and_ranks_and_no_node_to_blame() -> None:
    """Ranks 1 and 3 are on eth2 of two nodes; what arrives there is slow."""
    ranks = [
        invented.rank_info(r, host=f"host{r // 2}", node=f"boot-{r // 2}", nic=f"eth{1 + r % 2}")
        for r in range(WORLD)
    ]
    slow = {(a, b): 4.0 for a in range(WORLD) for b in (1, 3) if a // 2 != b // 2}
    rows = tournament(slow)
    header = dataclasses.replace(HEADER, ranks=ranks)
    (texts,) = pairs_to_retest(header, rows).values()
    # What has no part in the rail meets beside it.
    assert texts[0] == "1>3 0>2"
    again = [
        row(ROUNDS + number, {b: a for a, b in pairs_of_text(text)}, slow, text)
        for number, text in enumerate(texts)
    ]
    (found,) = stragglers(header, rows + again)
    assert found.severity is Severity.BAD
    assert re.fullmatch(
        r"rail eth2 \(NICs of this name on 2 nodes: ranks 1, 3\), receiving: [34](\.\d+)? x the "
        r"\d+(\.\d+)? us of the good ones at 1 KiB, in 4 of 4 links \(noise \d\.\d %\); "
        r"again [34](\.\d+)? x with ranks 0, 2",
        found.text,
    ), found.text
    assert "host" not in found.text
    assert verdict.strict_outcome([found])[0] == ExitCode.WORSE


# --- On a machine that is busy with something else ------------------------------------------------


def busy(spread: float, seed: int = 1) -> dict[Link, float]:
    """Ways that differ by so much (a standard deviation of their logarithm), in no order."""
    random = np.random.default_rng(seed)
    links = [(a, b) for a in range(WORLD) for b in range(WORLD) if a != b]
    return {link: float(np.exp(spread * random.standard_normal())) for link in links}


def slowed(links: Mapping[Link, float], rank: int, side: str, factor: float) -> dict[Link, float]:
    ends = {"sending": (0,), "receiving": (1,), "both": (0, 1)}[side]
    return {
        link: each * (factor if any(link[end] == rank for end in ends) else 1)
        for link, each in links.items()
    }


def judged(links: Mapping[Link, float]) -> list[Finding[str]]:
    rows = tournament(links)
    return stragglers(HEADER, rows + met_again(rows, links))


@pytest.mark.parametrize("side", ["sending", "receiving", "both"])
@pytest.mark.parametrize("rank", range(WORLD))
@pytest.mark.parametrize("seed", range(3))
def test_whose_links_are_all_slower_than_all_others_is_named_whatever_the_noise(
    rank: int, side: str, seed: int
) -> None:
    """The others differ by a factor of 10 and more, and the noise asks for hundreds."""
    (found,) = judged(slowed(busy(0.8, seed), rank, side, 37.0))
    assert found.severity is Severity.BAD
    roles = "sending and receiving" if side == "both" else side
    # Of these ways, which differ as much again as before, some others may stand apart by chance.
    assert re.match(rf"rank {rank} on host0 \(device \d, NIC lo\), .*{roles}.*: ", found.text)
    assert "in 3 of 3 links" in found.text or "in 6 of 6 links" in found.text


@pytest.mark.parametrize("factor", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("seed", range(5))
def test_where_noise_hides_half_the_speed_nobody_is_no_answer(factor: float, seed: int) -> None:
    found = judged(slowed(busy(1.5, seed), 2, "receiving", factor))
    assert not any("nobody" in each.text for each in found)
    first = found[0]
    assert first.title == "Slow"
    if first.severity is Severity.BAD:  # apart all the same
        assert first.text.startswith("rank 2 ")
    else:
        assert first.severity is Severity.DOUBTFUL
        farthest = r"farthest: (rank \d on|none is slower)"
        hidden = rf"cannot tell (\(noise \S+( x)?\); {farthest}|of rank \d)"
        assert re.match(hidden, first.text)


def test_a_suspect_that_noise_hides_when_it_meets_again_is_no_nobody() -> None:
    rows = tournament(SLOW_SENDER)
    (found,) = stragglers(HEADER, rows + met_again(rows, slowed(busy(1.5), 2, "sending", 20.0)))
    assert found.severity is not Severity.NOTE
    assert "rank 2 on host0" in found.text


def test_cannot_tell_is_in_text_page_json_and_exit_code() -> None:
    links = busy(1.5, 3)
    rows = tournament(links)
    run = Run("pairs.h5", HEADER, invented.setup_times(), rows + met_again(rows, links), True)
    (text,) = (each.text for each in stragglers(HEADER, run.rows) if each.title == "Slow")
    assert f"# Slow                 : {text}" in report_lines(run)
    assert html.escape(f"Slow: {text}") in page_of(run).partition("</h2>")[0]
    said = [each for each in to_json(run)["tcpx_mpi"]["findings"] if each["title"] == "Slow"]
    assert [(each["severity"], each["text"]) for each in said] == [("doubtful", text)]
    assert strict_outcome(run)[0] == ExitCode.INCONCLUSIVE


@pytest.mark.parametrize(("slow", "code"), [(SLOW_SENDER, ExitCode.WORSE), ({}, ExitCode.OK)])
def test_strict_ends_by_who_is_slow(slow: dict[Link, float], code: ExitCode) -> None:
    rows = tournament(slow)
    found = stragglers(HEADER, rows + (met_again(rows, slow)))
    assert verdict.strict_outcome(found)[0] == code

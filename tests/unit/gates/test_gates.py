"""Gates: what is not known to be good fails; limits out of launches raise few false alarms."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gates_by_hand import (
    BREAKS,
    change_header,
    deliver_wrong_bytes,
    gate_for,
    in_two_cycles,
    leave_unchecked,
    run_of,
)

from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.findings import Severity
from tcpx_mpi.gates import Limit, gate_text, judge, read_gate, require_judgeable
from tcpx_mpi.gates.figures import figures_of
from tcpx_mpi.records import IN_PLACE, LOADED, Run, SideKey
from tcpx_mpi.report import without_nan

HEAD = '[gate]\nplugin = "p"\nranks = 4\nprovenance = "by hand"\n'
LIMIT = '[[limit]]\npattern = "ring"\nmemory = "host"\nsize = "1K"\nbusbw_min = 1.0\n'


def test_a_run_above_all_limits_passes_and_one_below_one_of_them_does_not() -> None:
    run = run_of()
    assert judge(gate_for(run), run).passed
    gate = gate_for(run)
    tight = dataclasses.replace(gate.limits[1], value=2 * gate.limits[1].value)
    judgement = judge(dataclasses.replace(gate, limits=(gate.limits[0], tight)), run)
    assert [each.severity is Severity.GOOD for each, _ in judgement.limits] == [True, False]
    assert not judgement.passed
    assert "2 KiB" in judgement.in_short()
    assert judgement.lines()[-1].endswith("FAILED, 1 of 2 limits met")


def beside(run: Run, side: str, **changes: object) -> Run:
    row = run.rows[1]
    row.sides[SideKey.of_name(side)] = dataclasses.replace(row, sides={}, **changes)  # type: ignore[arg-type]  # by name
    return run


@pytest.mark.parametrize("side", [IN_PLACE, LOADED])
def test_what_is_wrong_in_place_or_under_load_fails_the_run(side: str) -> None:
    row = run_of().rows[1]
    sound, spoilt = row.wrong, np.array([0, 0, 7, 0])
    assert judge(gate_for(run_of()), beside(run_of(), side, wrong=sound)).passed
    for changes, said in (
        ({"wrong": spoilt}, "7 wrong bytes"),
        ({"checked": ~row.checked}, "bytes were not checked"),
    ):
        judgement = judge(gate_for(run_of()), beside(run_of(), side, **changes))
        assert not judgement.passed
        assert said in "\n".join(judgement.lines())


def test_a_bandwidth_has_all_factors_of_its_pattern_as_the_table_has() -> None:
    run = run_of()
    whole = figures_of(run, run.rows[2]).busbw
    run.header.algbw_factor = 0.75
    assert figures_of(run, run.rows[2]).busbw == 0.75 * whole


def test_a_percentile_of_bursts_is_none() -> None:
    run = run_of(rows=1)
    row = run.rows[0]
    row.samples["iteration"][:] = 10
    row.samples["iteration"][:, ::10] = 1_000_000
    assert run.header.back_to_back
    assert math.isnan(figures_of(run, row).p99_ns)


@pytest.mark.usefixtures("in_one_and_in_pieces")
def test_the_figure_of_a_limit_is_the_median_batch_of_the_slowest_rank() -> None:
    run = run_of(rows=1)
    row = run.rows[0]
    row.batches = np.array([100, 100, 100])
    row.samples["iteration"][:] = 1000
    row.samples["iteration"][2] = 2000  # the slowest rank
    row.samples["iteration"][:, 3] = 10**9  # one batch of three was disturbed
    row.samples["iteration"][2, 100:300:2] = 0  # bytes were there already, and so
    row.samples["iteration"][2, 101:300:2] = 4000  # the iteration before took twice as long
    figures = figures_of(run, row)
    assert figures.time_ns == 2000
    assert figures.p99_ns == 4000
    assert figures.busbw == row.size_bytes / 2000 * run.header.busbw_factor


@pytest.mark.parametrize("spoil", BREAKS)
@pytest.mark.usefixtures("in_one_and_in_pieces")
def test_whatever_is_missing_or_unlike_fails(spoil: Callable[[Run], None]) -> None:
    run = run_of()
    gate = gate_for(run, share=1e-6)
    spoil(run)
    judgement = judge(gate, run)
    assert not judgement.passed
    assert judgement.in_short().startswith(BREAKS[spoil])


def test_a_size_that_was_not_run_fails() -> None:
    run = run_of()
    gate = gate_for(run)
    more = dataclasses.replace(gate.limits[0], size_bytes=1 << 20)
    judgement = judge(dataclasses.replace(gate, limits=(*gate.limits, more)), run)
    document = without_nan(judgement.document())
    assert document["failures"] == judgement.failures()
    assert [limit["passed"] for limit in document["limits"]] == [True, True, True, False]
    assert [limit["size"] for limit in document["limits"]] == [1024, 2048, 4096, 1 << 20]
    assert document["limits"][0]["found"] == judgement.limits[0][1].found
    assert document["limits"][3]["found"] is None
    assert (document["passed"], document["launches"]) == (False, 1)
    assert judgement.failures() == ["ring, host, 1 MiB: no row of this size"]
    assert [each.severity is Severity.GOOD for each, _ in judgement.limits] == [
        True,
        True,
        True,
        False,
    ]
    # Two limits of that size have one reason, of one launch.
    time = dataclasses.replace(more, bound="time_us_max")
    twice = judge(dataclasses.replace(gate, limits=(*gate.limits, more, time)), run)
    assert twice.failures() == judgement.failures()


def test_another_file_of_the_plugin_fails_where_the_gate_names_one() -> None:
    run = run_of()
    assert judge(gate_for(run, plugin_sha256=run.header.plugin_sha256), run).passed
    assert not judge(gate_for(run, plugin_sha256="0" * 64), run).passed


@pytest.mark.parametrize("key", ["nodes", "channels", "chunk_bytes", "mode"])
def test_other_circumstances_fail_where_the_gate_names_them(key: str) -> None:
    assert not judge(gate_for(run_of(), **{key: 77}), run_of()).passed


def test_an_unknown_figure_never_passes() -> None:
    """NaN compares false both ways; a gate must not read that as "not below"."""
    run = run_of(rows=1)
    row = run.rows[0]
    row.size_bytes = 0
    row.checked[:] = False  # there is nothing to check
    limits = (Limit("ring", "host", 0, "busbw_min", 1e-9),)
    run.header.plan = dataclasses.replace(run.header.plan, sizes=(0,))
    ((finding, held),) = judge(gate_for(run, limits=limits), run).limits
    assert math.isnan(held.found)
    assert finding.severity is Severity.BAD


def test_a_tail_of_too_few_iterations_never_passes() -> None:
    run = run_of(rows=1)
    row = run.rows[0]
    row.iterations = 100
    row.samples = {phase: samples[:, :100] for phase, samples in row.samples.items()}
    limit = Limit("ring", "host", row.size_bytes, "p99_us_max", 1e9)
    judgement = judge(gate_for(run, limits=(limit,)), run)
    assert judgement.limits[0][0].severity is Severity.BAD
    assert judgement.failures() == [
        "ring, host, 1 KiB: no p99: too few iterations, or they came in bursts"
    ]


def test_a_limit_of_p99_is_held_against_p99_and_not_the_median() -> None:
    run = run_of(rows=1)
    row = run.rows[0]
    row.samples["iteration"][:, ::20] *= 3
    figures = figures_of(run, row)
    between = (figures.p99_ns + figures.time_ns) / 2e3
    limit = Limit("ring", "host", row.size_bytes, "p99_us_max", between)
    ((finding, held),) = judge(gate_for(run, limits=(limit,)), run).limits
    assert (held.found, finding.severity) == (figures.p99_ns / 1e3, Severity.BAD)


def test_one_launch_that_is_missing_fails() -> None:
    run = run_of()
    run.launches_planned = 2
    assert judge(gate_for(run), run).refusals() == ["the file lacks 1 of 2 launches"]


def test_figures_are_of_one_copy_and_without_what_is_skipped() -> None:
    run = run_of(rows=1)
    row = run.rows[0]
    row.iterations, row.batches = 400, np.array([100] * 4)
    row.samples["iteration"] = np.full((4, 400), 2000)
    row.samples["iteration"][:, :100] = 10**6
    plan = dataclasses.replace(run.header.plan, per_iter_skip=100)
    run.header = dataclasses.replace(run.header, plan=plan, time_divisor=2)
    figures = figures_of(run, row)
    assert (figures.time_ns, figures.p99_ns) == (1000, 1000)


def test_nodes_are_counted_as_nodes_and_not_as_names() -> None:
    run = run_of()
    run.header.ranks = [dataclasses.replace(info, host="same") for info in run.header.ranks]
    assert judge(gate_for(run, nodes=2), run).passed


def test_every_cycle_of_a_size_is_judged() -> None:
    assert judge(gate_for(run_of(rows=1)), in_two_cycles(1)).passed
    assert not judge(gate_for(run_of(rows=1)), in_two_cycles(3)).passed


@pytest.mark.parametrize("cycle", [0, 1])
def test_a_cycle_without_a_figure_is_not_made_up_for_by_another(cycle: int) -> None:
    run = in_two_cycles(1)
    row = run.rows[cycle]
    row.iterations = 100
    row.samples = {phase: samples[:, :100] for phase, samples in row.samples.items()}
    limit = Limit("ring", "host", row.size_bytes, "p99_us_max", 1e9)
    assert not judge(gate_for(run, limits=(limit,)), run).passed


def test_a_gate_without_limits_passes_nothing() -> None:
    run = run_of()
    assert not judge(gate_for(run, limits=()), run).passed


@pytest.mark.parametrize("spoil", [leave_unchecked, deliver_wrong_bytes])
def test_a_bad_row_without_a_limit_fails_the_gate(spoil: Callable[[Run], None]) -> None:
    run = run_of()
    gate = gate_for(run)
    gate = dataclasses.replace(gate, limits=(gate.limits[0], gate.limits[2]))
    assert judge(gate, run).passed
    spoil(run)
    assert not judge(gate, run).passed


def test_an_imported_run_is_refused_without_a_look_at_samples_it_never_had() -> None:
    run = run_of()
    change_header(mode="averages")(run)
    for row in run.rows:
        row.samples = {}
    assert "imported" in judge(gate_for(run_of()), run).in_short()


# --- The file -------------------------------------------------------------------------------------


def test_a_gate_comes_back_from_its_file(tmp_path: Path) -> None:
    gate = gate_for(run_of(), plugin_sha256="ab", nodes=1, mode="back-to-back", channels=2)
    path = tmp_path / "g.toml"
    path.write_text(gate_text(gate, ["a comment"]))
    assert read_gate(str(path)) == gate


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no table [gate]"),
        (HEAD, "no [[limit]]"),
        (HEAD + LIMIT + LIMIT, "twice"),
        (HEAD + LIMIT.replace("1.0", "nan"), "finite"),
        (HEAD + LIMIT.replace("1.0", "inf"), "finite"),
        (HEAD + LIMIT.replace("1.0", "0"), "above 0"),
        (HEAD + LIMIT.replace("1.0", "true"), "above 0"),
        (HEAD + LIMIT.replace("busbw_min = 1.0", ""), "bounds nothing"),
        (HEAD + LIMIT.replace("busbw_min", "bandwidth"), "bandwidth is unknown"),
        (HEAD + LIMIT.replace('"1K"', '"1KB"'), "1KB is ambiguous"),
        (HEAD + LIMIT.replace('memory = "host"\n', ""), "no memory"),
        (HEAD.replace('plugin = "p"\n', "") + LIMIT, "no plugin"),
        (HEAD.replace("ranks = 4", "ranks = 0") + LIMIT, "ranks (0)"),
        (HEAD + "colour = 1\n" + LIMIT, "colour is unknown"),
        (HEAD + LIMIT + "[other]\n", "other is unknown"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "g.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"g\.toml") as refused:
        read_gate(str(path))
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


# --- Before a run ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"pattern": "mesh"}, "no limit for mesh, only for ring"),
        ({"ranks": "2"}, "holds for 4 ranks, not for 2"),
        ({"blocking": "1"}, "holds for back-to-back iterations, not for synchronised ones"),
        ({"memory": "emulated"}, "no limit for ring in emulated memory, only in host"),
        ({"check": "0"}, "checked bytes only"),
        ({"sizes": "1K,2K"}, "add --sizes 4K"),
    ],
)
def test_a_run_that_would_fail_for_certain_is_refused(given: dict[str, str], part: str) -> None:
    whole = {"pattern": "ring", "sizes": "1K,2K,4K", "ranks": "4", "memory": "host"}
    gate = gate_for(run_of(), mode="back-to-back")

    def refuse(**changes: str) -> None:
        settings = load_settings({**whole, **changes}, {})
        require_judgeable(gate, settings, settings.ranks)

    refuse()
    refuse(memory="auto")
    with pytest.raises(UsageError, match=re.escape(part)):
        refuse(**given)


def test_the_gate_of_a_kind_of_machine_is_known_by_its_name_and_says_where_a_limit_is_from() -> (
    None
):
    gate = read_gate("a3-highgpu-8g")
    assert {(limit.pattern, limit.bound, limit.value) for limit in gate.limits} == {
        ("all_gather", "busbw_min", 42.4),
        ("all_gather", "busbw_min", 63.8),
        ("all_reduce", "busbw_min", 75.0),
        ("all_reduce", "time_us_max", 422.0),
    }
    assert all(limit.provenance for limit in gate.limits)
    run = run_of()
    assert not judge(gate, run).passed
    header = dataclasses.replace(run.header, pattern="all_gather")
    (refusal,) = [
        text
        for text in judge(gate, dataclasses.replace(run, header=header)).refusals()
        if "no limit" in text
    ]
    assert "cuda, 64 MiB: busbw >= 42.4 GB/s [0.9 x 47.1 GB/s" in refusal
    # The same limit, for sizes and circumstances of this run: it fails, and says why it is there.
    limit = dataclasses.replace(gate.limits[0], pattern="ring", memory="host", size_bytes=1024)
    lines = judge(dataclasses.replace(gate_for(run), limits=(limit,)), run).lines()
    assert [line for line in lines if "[0.9 x 47.1 GB/s" in line and "FAILED" in line]

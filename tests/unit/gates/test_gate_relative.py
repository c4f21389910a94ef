"""Limits of a run against itself: its baselines, its NICs' rate, its nodes beside each other."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import invented_runs
import numpy as np
import pytest

from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.gates import Gate, Judgement, Limit, calibrate, gate_text, judge, read_gate
from tcpx_mpi.gates import require_judgeable as require
from tcpx_mpi.gates.figures import figures_of
from tcpx_mpi.records import ObservedPlacement, Run, SideKey
from tcpx_mpi.stats.spread import node_spread


def of_any(bound: str, value: float, size_bytes: int = 1) -> Limit:
    return Limit(None, None, size_bytes, bound, value, and_above=True)


def judged(run: Run, *limits: Limit) -> Judgement:
    return judge(Gate(limits, None, None, "invented"), run)


def test_a_ratio_is_the_one_to_the_best_of_its_kind() -> None:
    """`raw` has 0.8 of the plugin's time, so the plugin has 0.8 of its speed; `raw_4` has 0.5."""
    run = invented_runs.beside_baselines()
    assert figures_of(run, run.rows[2]).ratio_to("raw") == pytest.approx(0.5, abs=0.01)
    assert judged(run, of_any("ratio_raw_min", 0.49)).passed
    below = judged(run, of_any("ratio_raw_min", 0.51))
    (failure,) = below.failures()
    assert re.fullmatch(r"from 1 B on: ratio to raw 0\.\d+ x, must be >= 0.51", failure)


def test_a_ratio_to_what_did_not_run_or_was_wrong_or_void_fails() -> None:
    sound = invented_runs.sound(rows=2)
    (first, *_) = judged(sound, of_any("ratio_raw_min", 1e-9)).failures()
    assert first.startswith("ring, host, 1 KiB: no ratio to raw: it did not run beside this row")
    for spoil in (wrong_baseline, void_baseline, baseline_of_another_network):
        run = invented_runs.beside_baselines()
        spoil(run)
        (first, *_) = judged(run, of_any("ratio_raw_min", 1e-9)).failures()
        assert "no ratio to raw" in first


def wrong_baseline(run: Run) -> None:
    for row in run.rows:
        for name in ("raw", "raw_4"):
            row.sides[SideKey(name)] = dataclasses.replace(
                row.sides[SideKey(name)], wrong=np.ones(4, np.int64)
            )


def baseline_of_another_network(run: Run) -> None:
    run.header.baselines = [
        dataclasses.replace(each, interfaces="eth7") for each in run.header.baselines
    ]


def void_baseline(run: Run) -> None:
    run.header.baselines = [
        dataclasses.replace(each, floor_gbps=1e9) for each in run.header.baselines
    ]
    for row in run.rows:
        row.size_bytes = 64 << 20


def with_nics(*received: int) -> Run:
    """A row of 4 ranks in 1 ms, over NICs of 200 Gb/s: 25 MB each way is all of it."""
    run = invented_runs.sound(rows=1)
    row = run.rows[0]
    row.samples["iteration"][:] = 10**6 // row.iterations
    elapsed_ns = 10**6 // row.iterations * row.iterations
    row.proof = [
        ObservedPlacement(
            nic_sent=0, nic_received=count * elapsed_ns // 10**6, remote_bytes=1 if count else 0
        )
        for count in received
    ]
    return run


def test_a_share_of_the_line_rate_is_that_of_the_nic_with_the_least() -> None:
    run = with_nics(25_000_000, 10_000_000, 20_000_000, 0)
    assert figures_of(run, run.rows[0]).line_rate_percent == pytest.approx(40, rel=1e-3)
    assert judged(run, of_any("line_rate_percent_min", 39)).passed
    assert not judged(run, of_any("line_rate_percent_min", 41)).passed


def test_a_line_rate_that_one_nic_does_not_state_is_unknown() -> None:
    run = with_nics(25_000_000, 25_000_000, 0, 0)
    run.header.ranks[1] = dataclasses.replace(run.header.ranks[1], nic_speed_mbps=-1)
    judgement = judged(run, of_any("line_rate_percent_min", 1))
    assert judgement.refusals() == [
        "ring, host, 1 KiB: no share of a line rate: nothing went to another node, or a NIC "
        "states no rate"
    ]
    assert not judged(with_nics(0, 0, 0, 0), of_any("line_rate_percent_min", 1)).passed


def spread_of(change: Callable[[np.ndarray], None], world: int = 8, alone: bool = False) -> float:
    """Of rows of 4 nodes with 2 ranks, or of one node; 40 blocks of 1 us an iteration."""
    run = invented_runs.sound(world=world, rows=1)
    row = run.rows[0]
    row.samples["iteration"][:] = 1000
    row.batches = np.full(10, row.iterations // 10, dtype=np.int64)
    change(row.samples["iteration"])
    nodes = ["one" if alone else info.node for info in run.header.ranks]
    return node_spread(row, nodes)


def test_a_node_that_is_slow_throughout_is_behind_by_so_much() -> None:
    def slow(times: np.ndarray) -> None:
        times[2:4] *= 3

    assert spread_of(slow) == 3
    assert spread_of(lambda times: None) == 1
    # Of one node the ranks are compared; of one receiver there is nothing to compare.
    assert spread_of(slow, alone=True) == 3
    assert np.isnan(spread_of(lambda times: None, world=1))


def test_a_node_that_was_disturbed_for_a_while_is_not_behind() -> None:
    def disturbed(times: np.ndarray) -> None:
        times[2:4, :200] *= 50

    assert spread_of(disturbed) == 1


def test_one_slow_rank_of_many_on_a_node_is_no_slow_node() -> None:
    def slow(times: np.ndarray) -> None:
        times[0] *= 3

    assert spread_of(slow) == 2  # the median of two is between them
    assert spread_of(slow, alone=True) == 3


# --- The file -------------------------------------------------------------------------------------


def gate_file(place: Path, text: str) -> Gate:
    path = place / "g.toml"
    path.write_text('[gate]\nprovenance = "by hand"\n[[limit]]\n' + text)
    return read_gate(str(path))


def test_a_limit_that_holds_anywhere_may_leave_out_for_what(tmp_path: Path) -> None:
    gate = gate_file(tmp_path, 'size_from = "1M"\nratio_raw_min = 0.5\n')
    assert (gate.plugin, gate.ranks) == (None, None)
    assert gate.limits == (of_any("ratio_raw_min", 0.5, 1 << 20),)
    gate = gate_file(tmp_path, 'memory = "host"\nnode_spread_max = 1.5\n')
    assert gate.limits == (Limit(None, "host", 1, "node_spread_max", 1.5, and_above=True),)
    (tmp_path / "again.toml").write_text(gate_text(gate))
    assert read_gate(str(tmp_path / "again.toml")) == gate


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('size = "1M"\nmemory = "host"\nbusbw_min = 1', "has no pattern, which busbw_min needs"),
        ('size_from = "1M"\npattern = "a"\nmemory = "b"\np99_us_max = 1', "has no size, which p99"),
        ('size = "1M"\nsize_from = "1M"\nratio_raw_min = 1', "a size and a size_from: keep one"),
        ('pattern = "a"\nmemory = "b"\nsize = 1\nbusbw_min = 1', "[gate] has no plugin"),
        (
            "ratio_raw_min = 1\n[[limit]]\nratio_raw_min = 2",
            "ratio_raw_min of from 1 B on is there twice",
        ),
        ('size_from = "1KB"\nratio_raw_min = 1', "1KB is ambiguous"),
        ("ratio_tcp_min = 1", "ratio_tcp_min is unknown"),
    ],
)
def test_a_limit_that_holds_only_somewhere_must_say_where(
    tmp_path: Path, text: str, part: str
) -> None:
    with pytest.raises(UsageError) as refused:
        gate_file(tmp_path, text)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_limit_of_a_ratio_asks_for_its_baseline_before_the_run() -> None:
    gate = Gate((of_any("ratio_mpi_min", 0.5),), None, None, "invented")
    given = {"pattern": "ring", "sizes": "1M", "gate": "g.toml"}
    require(gate, load_settings({**given, "against": "raw,mpi"}, {}), 64)
    with pytest.raises(UsageError, match="which does not run: add --against raw,mpi"):
        require(gate, load_settings({**given, "against": "raw"}, {}), 64)
    large = Gate((of_any("node_spread_max", 2, 2 << 20),), None, None, "invented")
    with pytest.raises(UsageError, match="add --sizes 2M"):
        require(large, load_settings(given, {}))


def test_the_shipped_gate_of_any_machine_bounds_nothing_but_a_run_against_itself() -> None:
    gate = read_gate("any-machine")
    assert {limit.bound for limit in gate.limits} == {"ratio_raw_min", "node_spread_max"}
    run = invented_runs.beside_baselines()
    for row in run.rows:
        row.size_bytes <<= 10
        del row.sides[SideKey("raw_4")]
    run.header.plan = dataclasses.replace(
        run.header.plan, sizes=tuple(row.size_bytes for row in run.rows)
    )
    assert judge(gate, run).passed, judge(gate, run).failures()
    run.rows[4].samples["iteration"][2:] *= 4
    failures = judge(gate, run).failures()
    assert len(failures) == 2, failures


# --- Calibration ----------------------------------------------------------------------------------


def launches_beside(count: int = 6) -> list[Run]:
    random = np.random.default_rng(3)
    runs = []
    for number in range(count):
        run = invented_runs.beside_baselines()
        run.header.run_id = str(number)
        for row in run.rows:
            for side in (row, *row.sides.values()):
                times = side.samples["iteration"]
                times[:] = (times * np.exp(0.02 * random.standard_normal())).astype(np.int64)
                side.wrong[:] = 0
        runs.append(run)
    return runs


def test_a_calibration_has_all_figures_that_the_launches_have_each_with_its_provenance() -> None:
    runs = launches_beside()
    made = calibrate(runs, 0.01)
    of_first = [limit for limit in made.gate.limits if limit.size_bytes == 1024]
    bounds = ["busbw_min", "ratio_raw_min", "ratio_mpi_min", "node_spread_max"]
    assert [limit.bound for limit in of_first] == bounds
    assert "6 launches, median 0.4967 x, " in of_first[1].provenance
    assert all(judge(made.gate, run).passed for run in runs)
    slow = launches_beside(1)[0]
    for side in (slow.rows[0].sides[SideKey("raw")], slow.rows[0].sides[SideKey("raw_4")]):
        side.samples["iteration"] //= 2
    (failure,) = judge(made.gate, slow).failures()
    assert failure.startswith("ring, host, 1 KiB: ratio to raw 0.2")


def test_a_figure_that_some_launches_lack_is_no_part_of_a_calibration() -> None:
    runs = launches_beside()
    # In the first of two cycles.
    cycle = [dataclasses.replace(row, index=row.index + 5, cycle=1) for row in runs[4].rows]
    for row in runs[4].rows:
        row.sides = {}
    runs[4].rows = [*runs[4].rows, *cycle]
    runs[4].header.plan = dataclasses.replace(runs[4].header.plan, run_cycles=2)
    with pytest.raises(UsageError, match="ratio to raw is unknown in 1 of 6 launches"):
        calibrate(runs, 0.01)

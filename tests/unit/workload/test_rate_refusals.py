"""What --rate cannot be: one line each."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.topology import read_host
from tcpx_mpi.run.connect import require_rate
from tcpx_mpi.run.plan import RowPlanner
from tcpx_mpi.workload import workload_of
from tcpx_mpi.workload.refusals import require_line_rate


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "fast", "1e-9", "1e12"])
def test_a_rate_is_a_number_above_0(text: str) -> None:
    with pytest.raises(UsageError, match=r"--rate \(.*\) is no rate; use iterations a second"):
        load_settings({"pattern": "pair", "rate": f"5,{text}"}, {})
    with pytest.raises(UsageError, match=r"--rate \(.*\) is no rate; use iterations a second"):
        load_settings({"pattern": "pair", "rate": text}, {})


@pytest.mark.parametrize(
    ("pattern", "options", "said"),
    [
        ("ring", {}, "--rate (100) has no ring, whose ranks wait for each other: use pair, "
                     "pingpong, fan_in"),
        ("pair", {"blocking": "1"}, "--rate and -z/--blocking exclude each other"),
        ("pair", {"against": "raw"}, "--rate and --against exclude each other"),
        ("pair", {"trace": "8"}, "--rate and --trace exclude each other"),
        ("pair", {"one_way": "1"}, "--rate and --one-way exclude each other"),
        ("pair", {"rate": "50,0.01"}, "--rate (0.01) leaves 100 s between two iterations"),
        ("pair", {"rate": "5,70,5"}, "--rate (5,70,5) has a rate twice"),
    ],
)  # fmt: skip
def test_what_an_open_loop_cannot_be_with(pattern: str, options: dict[str, str], said: str) -> None:
    settings = load_settings({"pattern": pattern, "rate": "100", **options}, {})
    with pytest.raises(UsageError) as refused:
        workload_of(settings, 4)
    assert said in str(refused.value)


@pytest.mark.parametrize("pattern", ["pair", "pingpong", "fan_in"])
def test_patterns_with_ranks_that_begin_by_the_clock_are_taken(pattern: str) -> None:
    settings = load_settings({"pattern": pattern, "rate": "100"}, {})
    assert workload_of(settings, 4).single.open_loop


def test_each_rate_has_rows_of_all_sizes() -> None:
    settings = load_settings({"pattern": "pair", "rate": "30,10,20", "sizes": "8,64"}, {})
    planner = RowPlanner(workload_of(settings, 2), [read_host()] * 2)
    rows = [row.facts for row in planner.run(planner.rows(), dict)]
    assert [(row.rate_per_s, row.size_bytes) for row in rows] == [
        (30, 8), (30, 64), (10, 8), (10, 64), (20, 8), (20, 64),
    ]  # fmt: skip
    assert [row.index for row in rows] == list(range(6))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"iters": "15"}, "-n/--iters (15) is too few to see whether ranks keep up with --rate"),
        ({"sizes": "8,8M", "check_memory": "64M"},
         "--rate needs 16 iterations one after the other, and --check-memory (64 MiB) has room "),
    ],
)  # fmt: skip
def test_an_open_loop_of_a_few_iterations_is_refused(options: dict[str, str], said: str) -> None:
    def require(**more: str) -> None:
        settings = load_settings({"pattern": "pair", **options, **more}, {})
        planner = RowPlanner(workload_of(settings, 2), [read_host()] * 2)
        planner.require_room()

    require()
    with pytest.raises(UsageError) as refused:
        require(rate="100")
    assert str(refused.value).startswith(said)


def test_more_than_a_nic_can_carry_is_refused_with_the_figures() -> None:
    settings = load_settings({"pattern": "pair", "rate": "20000,7", "sizes": "1K,64K"}, {})
    require_line_rate(settings, 65_536, 11_000, "eth1")
    require_line_rate(settings, 65_536, -1, "eth1")  # nobody knows
    with pytest.raises(UsageError) as refused:
        require_line_rate(settings, 65_536, 10_000, "eth1")
    assert str(refused.value) == (
        "--rate (20000) is 10486 Mbit/s at 64 KiB, more than the 10000 of eth1: use "
        "19073 or less, or smaller sizes"
    )


@pytest.mark.parametrize(
    ("pattern", "rank", "most"),
    # 3 ranks send a third each to one; of 4 ranks in pairs each sends one message, or gets one.
    [("fan_in", 0, 3), ("fan_in", 2, 9), ("pair", 0, 3), ("pair", 3, 3), ("pingpong", 1, 3)],
)
def test_what_the_busier_direction_of_a_ranks_nic_carries_is_what_counts(
    pattern: str, rank: int, most: int
) -> None:
    # A million bytes are 8 Mbit, and the NIC has 24 Mbit/s, by the plugin's word.
    nic = {"name": "of-no-machine", "speed_mbps": 24}
    plugin, place = SimpleNamespace(nic=lambda _: nic), SimpleNamespace(device=0)
    world = SimpleNamespace(rank=rank, size=4)

    def require(rate: float) -> None:
        given = {"pattern": pattern, "rate": f"0.5,{rate}", "sizes": "8,1000000"}
        workload = workload_of(load_settings(given, {}), 4)
        require_rate(world, workload, plugin, place)  # type: ignore[arg-type]  # of each no more is asked

    require(most)
    with pytest.raises(UsageError, match=rf"more than the 24 of of-no-machine: use {most} or less"):
        require(most + 0.1)

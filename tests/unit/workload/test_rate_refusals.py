"""What --rate cannot be: one line each."""

from __future__ import annotations

import pytest

from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.workload import workload_of
from tcpx_mpi.workload.refusals import require_line_rate


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "fast", "1e-9", "1e12"])
def test_a_rate_is_a_number_above_0(text: str) -> None:
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
        ("pair", {"rate": "0.01"}, "leaves 100 s between two iterations"),
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


def test_more_than_a_nic_can_carry_is_refused_with_the_figures() -> None:
    settings = load_settings({"pattern": "pair", "rate": "20000", "sizes": "1K,64K"}, {})
    require_line_rate(settings, 65_536, 11_000, "eth1")
    require_line_rate(settings, 65_536, -1, "eth1")  # nobody knows
    with pytest.raises(UsageError) as refused:
        require_line_rate(settings, 65_536, 10_000, "eth1")
    assert str(refused.value) == (
        "--rate (20000) is 1.049e+04 Mbit/s at 64 KiB, more than the 10000 of eth1: use "
        "1.907e+04 or less, or smaller sizes"
    )

"""A schedule or a buffer that no rank has memory for is refused before any of it is made."""

from __future__ import annotations

import pytest

from tcpx_mpi import patterns
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.run import admission, schedule_room
from tcpx_mpi.run.schedule_room import require_schedule_room
from tcpx_mpi.schedule.pattern import Pattern


def refusal(pattern: str, **cli: str) -> str:
    with pytest.raises(UsageError) as caught:
        require_schedule_room(load_settings({"pattern": pattern, **cli}, {}), 2)
    (line,) = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize("pattern", ["all_reduce", "ring", "alltoall", "pair"])
def test_count_times_size_that_overflows_is_refused(pattern: str) -> None:
    line = refusal(pattern, sizes="1T", agg_iters="100000000")
    assert "(1099511627776) times -m/--agg_iters (100000000) is more than any buffer" in line


@pytest.mark.parametrize(
    ("pattern", "cli"),
    [
        ("ring", {"sizes": "1G", "chunk": "1"}),
        ("all_reduce", {"sizes": "4K,1G", "chunk": "8"}),
        ("alltoall", {"sizes": "1K", "agg_iters": "100000000"}),
        ("pair", {"sizes": "8", "agg_iters": "100000000"}),
        ("hypercube", {"sizes": "64G", "chunk": "64"}),
    ],
)
def test_a_schedule_over_the_limit_is_refused(pattern: str, cli: dict[str, str]) -> None:
    line = refusal(pattern, **cli)
    assert "on a rank, more than the 1 GiB that it may have" in line
    assert "use a larger --chunk, or a smaller -m or -e" in line


def test_what_users_run_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require_schedule_room(load_settings({"pattern": "mesh", "sizes": "16G"}, {}), 4096)
    require_schedule_room(load_settings({"pattern": "ring", "agg_iters": "4096"}, {}), 2)
    few = load_settings({"pattern": "all_reduce", "sizes": "1G", "chunk": "4K"}, {})

    def made(self: Pattern, rank: int, world: int) -> None:
        raise AssertionError("few steps need no closer look")

    require_schedule_room(few, 8)
    monkeypatch.setattr(schedule_room, "_bytes_of_a_copy", made)
    for name in patterns.NAMES:
        require_schedule_room(load_settings({"pattern": name, "sizes": "1G"}, {}), 16)


def test_a_parent_refuses_it_before_any_rank_starts() -> None:
    asked = load_settings({"pattern": "ring", "sizes": "1G", "chunk": "1"}, {})
    with pytest.raises(UsageError, match="makes a schedule of"):
        admission.admit_parent(asked, {}, 2, admission.RUN)

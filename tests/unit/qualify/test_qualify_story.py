"""How long a qualification waits for whom."""

from __future__ import annotations

import pytest

from tcpx_mpi.qualify.story import patience_s, set_up_patience_s


@pytest.mark.parametrize(
    ("within_s", "ranks_a_node", "progress_s", "set_up_s"),
    [
        (12, 2, 2, 2),
        (90, 8, 15, 15),
        (600, 8, 30, 30),
        # Ranks that share cores come up one after the other.
        (120, 64, 20, 32),
        (60, 64, 10, 20),
    ],
)
def test_a_share_of_the_whole_time_is_waited_and_longer_for_many_ranks_to_come_up(
    within_s: float, ranks_a_node: int, progress_s: float, set_up_s: float
) -> None:
    assert patience_s(within_s) == progress_s
    assert set_up_patience_s(within_s, ranks_a_node) == set_up_s

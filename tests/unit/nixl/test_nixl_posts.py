"""In which order an initiator posts its requests, and what it makes of their ends."""

from __future__ import annotations

import pytest

from tcpx_mpi.nixl.agent_process import _Handle, _post_and_wait, _Workers


class Agent:
    """NIXL's, whose requests are over at the second look."""

    def __init__(self, end: str = "DONE") -> None:
        self.posted: list[str] = []
        self._end = end

    def transfer(self, request: str) -> str:
        self.posted.append(request)
        return "PROC"

    def check_xfer_state(self, request: str) -> str:
        return self._end


HANDLES = [_Handle(target, f"{target}{number}") for target in range(3) for number in "ab"]


@pytest.mark.parametrize(
    ("first", "order"),
    [(0, "0a 0b 1a 1b 2a 2b"), (1, "1a 1b 2a 2b 0a 0b"), (2, "2a 2b 0a 0b 1a 1b")],
)
def test_each_iteration_may_begin_with_another_target(first: int, order: str) -> None:
    agent = Agent()
    posted, ends = _post_and_wait(agent, HANDLES, first)
    assert agent.posted == order.split()
    assert sorted(target for target, _ in ends) == [0, 0, 1, 1, 2, 2]
    assert all(end >= posted for _, end in ends)


def test_threads_post_every_request_once_and_one_that_fails_is_an_error() -> None:
    agent = Agent()
    shares = [HANDLES[thread::4] for thread in range(4)]
    with _Workers(agent, shares) as workers:
        for number in range(3):
            start, posts, ends = workers.iteration(number)
            assert len(posts) == 4
            assert all(post >= start for post in posts)
            assert len(ends) == len(HANDLES)
    assert sorted(agent.posted) == sorted([handle.request for handle in HANDLES] * 3)
    failing = _Workers(Agent("ERR"), shares)
    with failing, pytest.raises(RuntimeError, match="a transfer ended as ERR"):
        failing.iteration(0)

"""Sessions over softtcpx as unkind as TCPX 3.1.9: nothing here counts on kinder ways."""

from __future__ import annotations

import pytest
from two_sides import Side, run_sides


@pytest.fixture(autouse=True)
def like_tcpx(monkeypatch: pytest.MonkeyPatch) -> None:
    """For both sides."""
    monkeypatch.setenv("SOFTTCPX_LIKE", "tcpx-3.1.9")


def well(*sides: Side) -> None:
    for side in sides:
        assert side.code == 0, side.err


def test_every_size_goes_there_and_back_whole() -> None:
    left, right = run_sides(
        "softtcpx",
        """
        for size in (0, 1, 1024, 1025, 100_003):
            source = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
            back = np.zeros(size, np.uint8)
            send(source)
            receive(back)
            assert (back == source + np.uint8(1)).all(), size
        meet()
        s.close()
        """,
        """
        for size in (0, 1, 1024, 1025, 100_003):
            data = np.zeros(size, np.uint8)
            receive(data)
            data += np.uint8(1)
            send(data)
        meet()
        s.close()
        """,
    )
    well(left, right)


def test_a_peer_that_dies_is_lost() -> None:
    left, right = run_sides(
        "softtcpx",
        """
        with s.create_transfer() as t:
            t.post_recv(s.register_memory(np.zeros(100_000, np.uint8)))
            meet()
            print(refusal(t.wait))
        """,
        """
        meet()
        os._exit(0)
        """,
    )
    well(left, right)
    assert left.out.startswith("LostRank: "), left.out

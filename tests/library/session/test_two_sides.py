"""Sessions between two processes, over both plugins: bytes, sizes that differ, a peer that dies."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_sides import Side, run_sides
from variants import variant


@pytest.fixture(params=["softtcpx", "tcpx-3.1.9", "refplugin"])
def plugin(request: pytest.FixtureRequest, refplugin: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every plugin in turn, softtcpx also as unkind as TCPX: the session is the same."""
    if request.param == "refplugin":
        return str(refplugin)
    if request.param != "softtcpx":
        monkeypatch.setenv("SOFTTCPX_LIKE", request.param)
    return "softtcpx"


LIKE_TCPX_IS_A_VARIANT = pytest.mark.parametrize(
    "plugin", ["softtcpx", variant("tcpx-3.1.9"), "refplugin"], indirect=True
)


def well(*sides: Side) -> None:
    for side in sides:
        assert side.code == 0, side.err


@LIKE_TCPX_IS_A_VARIANT
def test_every_size_goes_there_and_back_whole(plugin: str) -> None:
    sizes = "(0, 1, 23, 1024, 1025, 100_003, 2_000_000)"
    left, right = run_sides(
        plugin,
        f"""
        for size in {sizes}:
            source = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
            back = np.zeros(size, np.uint8)
            send(source)
            receive(back)
            assert (back == source + np.uint8(1)).all(), size
        meet()
        s.close()
        """,
        f"""
        for size in {sizes}:
            data = np.zeros(size, np.uint8)
            receive(data)
            data += np.uint8(1)
            send(data)
        meet()
        s.close()
        """,
    )
    well(left, right)


@pytest.mark.parametrize(
    "plugin", ["softtcpx", variant("tcpx-3.1.9"), variant("refplugin")], indirect=True
)
def test_both_directions_at_once_in_one_transfer_on_both_sides(plugin: str) -> None:
    body = """
    mine, other = np.full(300_001, {mine}, np.uint8), np.zeros(300_001, np.uint8)
    a, b = s.register_memory(mine), s.register_memory(other)
    with s.create_transfer() as t:
        for start in range(0, 300_000, 3000):
            t.post_send(a, start, 3000)
            t.post_recv(b, start, 3000)
        t.wait()
    assert (other[:300_000] == {theirs}).all() and other[300_000] == 0
    meet()
    s.close()
    """
    well(*run_sides(plugin, body.format(mine=1, theirs=2), body.format(mine=2, theirs=1)))


def test_a_message_shorter_than_its_receive_is_named_where_the_plugin_tells_sizes(
    refplugin: Path,
) -> None:
    left, right = run_sides(
        str(refplugin),
        "send(np.zeros(24, np.uint8)); meet()",
        """
        m = s.register_memory(np.zeros(25, np.uint8))
        t = s.create_transfer()
        t.post_recv(m)
        print(refusal(t.wait))
        print(refusal(t.is_complete))
        print(refusal(t.post_send, m))
        meet()
        s.close()
        """,
    )
    well(left, right)
    line = (
        "WrongBytes: transfer 1: receive message 0, channel 0, chunk 0 (25 B): the plugin reports "
        "24 B: the peer's message has another size"
    )
    assert right.out.splitlines() == [line] * 3, "an error stays"


def test_a_message_longer_than_its_receive_is_an_error_and_writes_nothing_behind_it(
    refplugin: Path,
) -> None:
    left, right = run_sides(
        str(refplugin),
        "send(np.ones(26, np.uint8)); meet()",
        """
        target = np.zeros(64, np.uint8)
        t = s.create_transfer()
        t.post_recv(s.register_memory(target), 0, 25)
        print(refusal(t.wait))
        assert not target[25:].any()
        meet()
        """,
    )
    well(left, right)
    assert right.out == (
        "PluginFailed: transfer 1: receive message 0, channel 0, chunk 0 (25 B): plugin call test "
        "returned 5 (invalid usage)"
    )


def test_a_peer_that_dies_in_mid_transfer_is_a_lost_one_and_stays_so(refplugin: Path) -> None:
    left, right = run_sides(
        str(refplugin),
        """
        send(np.zeros(2000, np.uint8))
        meet()
        os._exit(0)
        """,
        """
        whole = s.create_transfer()
        m = s.register_memory(np.zeros(4000, np.uint8))
        whole.post_recv(m, 0, 2000)
        whole.wait()
        t = s.create_transfer()
        t.post_recv(m)
        meet()
        print(refusal(t.wait))
        print(refusal(t.wait))
        print(refusal(s.create_transfer().post_recv, m))
        assert whole.is_complete()
        s.close()
        """,
    )
    well(left, right)
    lines = right.out.splitlines()
    assert lines[0].startswith("LostRank: transfer 2: receive message 1, channel ")
    assert "plugin call test returned 6 (remote error): the peer is gone" in lines[0]
    assert lines == lines[:1] * 3


@LIKE_TCPX_IS_A_VARIANT
def test_a_peer_that_dies_is_lost(plugin: str) -> None:
    left, right = run_sides(
        plugin,
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


@LIKE_TCPX_IS_A_VARIANT
def test_a_peer_that_is_silent_is_a_stall_and_no_error_of_the_session(plugin: str) -> None:
    left, right = run_sides(
        plugin,
        """
        meet()
        send(np.ones(10, np.uint8))
        meet()
        """,
        """
        target = np.zeros(10, np.uint8)
        t = s.create_transfer()
        t.post_recv(s.register_memory(target))
        print(refusal(t.wait, 0.1))
        meet()
        t.wait()
        assert target.all()
        meet()
        """,
    )
    well(left, right)
    assert right.out.startswith("Stalled: transfer 1: no progress for 0.1 s; receive, channel 0: ")

"""Many remotes of one session, through C++ and C, and NIXL: Python's session has one."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from p2p_drivers import (
    CLOSED,
    MEMORY_IN_USE,
    PLUGIN_MISSING,
    REMOTE_FAILED,
    REMOTE_LOST,
    UNKNOWN_REMOTE,
    Driver,
    Start,
)
from variants import variant, variants_where

CHUNK = 512
LIMIT_S = 30.0
CONNECTED, FAILED, GONE = "2", "3", "4"


@pytest.fixture(params=["c++", "c"])
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


#: Of a test: NIXL keeps this promise too.
AND_NIXL = pytest.mark.parametrize("language", ["c++", "c", "nixl"], indirect=True)
C_IS_A_VARIANT = pytest.mark.parametrize("language", ["c++", variant("c")], indirect=True)


@pytest.fixture(params=["caller", "thread"])
def hub(request: pytest.FixtureRequest, language: str, start: Start) -> Driver:
    """A program with the session `hub`, and three others that it is connected to by their names."""
    driver = start(language)
    driver.does(f"session hub 2 softtcpx {CHUNK} {request.param}")
    for name in ("x", "y", "z"):
        driver.does(f"session {name} 2 softtcpx {CHUNK} {request.param}")
        meet(driver, name)
    return driver


def meet(driver: Driver, name: str) -> None:
    driver.does(f"load hub {name} {driver.does(f'listen {name} hub')}")
    driver.does(f"load {name} hub {driver.does(f'listen hub {name}')}")
    driver.does(f"establish hub {name} 20", f"establish {name} hub 20")
    driver.does(f"register {name} m{name} 5000", f"transfer {name} r{name} hub")
    driver.does(f"transfer hub t{name} {name}")


@pytest.mark.parametrize(
    ("hub", "language"),
    variants_where(
        lambda mode, language: mode == "thread" and language == "c",
        itertools.product(("caller", "thread"), ("c++", "c", "nixl")),
    ),
    indirect=True,
)
def test_one_memory_goes_to_many_remotes_and_from_them(hub: Driver) -> None:
    hub.does("register hub m 15000", "fill m 0 5000 9")
    for name in ("x", "y", "z"):
        hub.does(f"recv r{name} m{name} 0 5000", f"send t{name} m 0 5000")
    for name in ("z", "y", "x"):
        hub.does(f"wait t{name} 20", f"wait r{name} 20")
        assert hub.does(f"check m{name} 0 5000 9") == ""
    for number, name in enumerate(("x", "y", "z")):
        hub.does(f"fill m{name} 0 5000 {number}", f"recv t{name} m {5000 * number} 5000")
        hub.does(f"send r{name} m{name} 0 5000")
    for number, name in enumerate(("x", "y", "z")):
        hub.does(f"wait t{name} 20", f"wait r{name} 20")
        assert hub.does(f"check m {5000 * number} 5000 {number}") == ""


@C_IS_A_VARIANT
def test_memory_that_one_remote_uses_stays_with_all(hub: Driver) -> None:
    hub.does("register hub m 5000", "fill m 0 5000 3", "recv tz m 0 5000")
    hub.refuses("deregister hub m", MEMORY_IN_USE)
    hub.does("recv rx mx 0 5000", "send tx m 0 5000", "wait tx 20", "wait rx 20")
    assert hub.does("check mx 0 5000 3") == ""
    hub.does("send rz mz 0 5000", "wait tz 20", "wait rz 20", "deregister hub m")


def descriptors(driver: Driver) -> int:
    return len(list(Path(f"/proc/{driver.process.pid}/fd").iterdir()))


@C_IS_A_VARIANT
@pytest.mark.parametrize("mode", ["caller", "thread"])
def test_remotes_that_nobody_connected_to_give_back_what_they_have_open(
    language: str, start: Start, mode: str
) -> None:
    driver = start(language)
    driver.does(f"session first 2 softtcpx {CHUNK} {mode}", "close first")
    driver.does(f"session early 2 softtcpx {CHUNK} {mode}")
    before = descriptors(driver)
    for _ in range(100):
        driver.does("listen early x", "progress early", "leave early x")
    deadline = time.monotonic() + LIMIT_S
    while descriptors(driver) > before and time.monotonic() < deadline:
        driver.does("progress early")
    assert descriptors(driver) == before
    # Without an accept under way there is nothing to wait for.
    driver.does(f"session late 2 softtcpx {CHUNK} {mode} late")
    before = descriptors(driver)
    driver.does("listen late x", "progress late", "leave late x")
    assert descriptors(driver) == before


@C_IS_A_VARIANT
def test_who_closes_a_remote_is_lost_to_it(hub: Driver) -> None:
    hub.does("recv rx mx 0 5000", "leave hub x")
    hub.refuses("wait rx 20", REMOTE_LOST)


@C_IS_A_VARIANT
def test_a_remote_that_is_failed_leaves_the_others_alone(hub: Driver) -> None:
    hub.does("register hub m 5000", "recv ty m 0 5000", "fail hub y on-purpose")
    assert "remote 'y': on-purpose" in hub.refuses("wait ty 20", REMOTE_FAILED)
    hub.refuses("complete ty", REMOTE_FAILED)
    hub.refuses("send ty m 0 1", REMOTE_FAILED)
    assert [hub.does(f"stage hub {name}") for name in "xyz"] == [CONNECTED, FAILED, CONNECTED]
    hub.does("fill m 0 5000 4", "recv rx mx 0 5000", "send tx m 0 5000", "wait tx 20", "wait rx 20")
    assert hub.does("check mx 0 5000 4") == ""
    # Closed, it uses the memory no more, and its name is free.
    hub.does("leave hub y", "deregister hub m", "leave y hub", "leave hub nobody")
    assert hub.does("stage hub y") == GONE
    hub.refuses("complete ty", CLOSED)
    hub.does("register hub m 5000", "fill m 0 5000 6")
    hub.does("release ry", "release ty")
    meet(hub, "y")
    hub.does("recv ry my 0 5000", "send ty m 0 5000", "wait ty 20", "wait ry 20")
    assert hub.does("check my 0 5000 6") == ""


def test_a_remote_whose_process_dies_is_lost_and_no_other(start: Start, language: str) -> None:
    driver = start(language)
    driver.does(f"session hub 1 softtcpx {CHUNK} thread")
    driver.does(f"session x 1 softtcpx {CHUNK} thread")
    meet(driver, "x")
    mortal = start("c++")
    mortal.does(f"session s 1 softtcpx {CHUNK} thread")
    driver.does(f"load hub far {mortal.does('listen s hub')}")
    mortal.does(f"load s hub {driver.does('listen hub far')}")
    driver.does("establish hub far 20")
    mortal.does("establish s hub 20")
    driver.does("register hub m 5000", "transfer hub t far", "recv t m 0 5000")
    mortal.does("close s")
    driver.refuses("wait t 20", REMOTE_LOST)
    driver.refuses("wait t 20", REMOTE_LOST)
    assert [driver.does(f"stage hub {name}") for name in ("far", "x")] == [FAILED, CONNECTED]
    driver.does("leave hub far", "fill m 0 5000 2", "recv rx mx 0 5000", "send tx m 0 5000")
    driver.does("wait rx 20", "wait tx 20")
    assert driver.does("check mx 0 5000 2") == ""


@AND_NIXL
def test_a_remote_that_nobody_named_and_a_plugin_that_is_not_there(
    start: Start, language: str, tmp_path: Path
) -> None:
    driver = start(language)
    driver.does(f"session s 1 softtcpx {CHUNK} caller")
    if driver.is_nixl:
        text = driver.refuses("connect s x 1", UNKNOWN_REMOTE)
        assert "agent s: no connection info of agent x was loaded" in text
    else:
        for command in ("transfer s t x", "accept s x 1", "connect s x 1", "fail s x y"):
            text = driver.refuses(command, UNKNOWN_REMOTE)
            assert "no remote is known as 'x' (known: none)" in text
    missing = tmp_path / "no.so"
    text = driver.refuses(f"session t 1 {missing} {CHUNK} caller", PLUGIN_MISSING)
    assert f"cannot load plugin {missing}" in text

"""What a session and its transfers promise, through C++, C and Python alike, and through NIXL."""

from __future__ import annotations

import re
import struct
import zlib

import pytest
from p2p_drivers import (
    ALREADY_DONE,
    BAD_INFO,
    CLOSED,
    FOREIGN_MEMORY,
    MEMORY_IN_USE,
    NOT_CONNECTED,
    OTHER_PLUGIN,
    OTHER_SETTINGS,
    OTHER_VERSION,
    OUT_OF_BOUNDS,
    OUT_OF_ORDER,
    RELEASED,
    TIMED_OUT,
    UNKNOWN_MEMORY,
    WRONG_BYTES,
    Driver,
    Start,
)
from variants import variant

CHUNK = 1024
MODES = ("caller", "thread")


def session(driver: Driver, name: str, mode: str = "caller", channels: int = 2) -> None:
    driver.does(f"session {name} {channels} softtcpx {CHUNK} {mode}")


def join(driver: Driver, a: str, b: str) -> None:
    """Two sessions of one program know each other as `peer`, and are connected."""
    for here, there in ((a, b), (b, a)):
        driver.does(f"load {here} peer {driver.does(f'listen {there} peer')}")
    driver.does(f"establish {a} peer 20", f"establish {b} peer 20")


def pair(driver: Driver, mode: str = "caller") -> None:
    session(driver, "a", mode)
    session(driver, "b", mode)
    join(driver, "a", "b")


def modes_of(driver: Driver) -> tuple[str, ...]:
    """Python's session moves bytes within calls only."""
    return MODES[:1] if driver.language == "python" else MODES


def test_every_size_arrives_whole_in_either_mode(driver_or_nixl: Driver) -> None:
    driver = driver_or_nixl
    for mode in modes_of(driver):
        a, b = f"a-{mode}", f"b-{mode}"
        session(driver, a, mode)
        session(driver, b, mode)
        join(driver, a, b)
        for size in (0, 1, CHUNK - 1, CHUNK, 3 * CHUNK + 5, 200_003):
            out, back = f"out{mode}{size}", f"in{mode}{size}"
            driver.does(
                f"register {a} {out} {size + 3}",
                f"register {b} {back} {size + 9}",
                f"fill {out} 3 {size} {size}",
                f"transfer {a} t peer",
                f"transfer {b} r peer",
                f"recv r {back} 7 {size}",
                f"send t {out} 3 {size}",
                "wait r 20",
                "wait t 20",
            )
            assert driver.does("complete r") == driver.does("complete t") == "1"
            assert driver.does(f"check {back} 7 {size} {size}") == ""
            assert driver.does(f"check {back} {7 + size} 2 0").startswith("WRONG"), "beyond its end"
            driver.does("release t", "release r")


def test_bad_places_are_named_and_nothing_moves(driver_or_nixl: Driver) -> None:
    driver = driver_or_nixl
    pair(driver)
    driver.does("register a m 100", "register b n 100", "transfer a t peer", "transfer b r peer")
    driver.does("fill m 0 100 5", "recv r n 0 100")
    for place in ("1 100", "101 0", f"{2**64 - 1} 2"):
        assert "is outside of " in driver.refuses(f"send t m {place}", OUT_OF_BOUNDS)
    driver.refuses("send t n 0 1", FOREIGN_MEMORY)
    assert driver.does("complete r") == "0"
    assert driver.does("complete t") == "1"
    # The session is as good as before.
    driver.does("send t m 0 100", "wait r 20", "wait t 20")
    assert driver.does("check n 0 100 5") == ""


def test_unknown_memory_is_named_and_a_bad_place_with_its_numbers(driver: Driver) -> None:
    pair(driver)
    driver.does("register a m 100", "register b n 100", "transfer a t peer", "transfer b r peer")
    text = driver.refuses("send t m 1 100", OUT_OF_BOUNDS)
    assert "offset (1) + bytes (100) is outside of mem_id" in text
    assert "which has 100 bytes" in text
    driver.refuses(f"recv r n {2**64 - 1} 2", OUT_OF_BOUNDS)
    assert "mem_id 4711" in driver.refuses("send t #4711 0 1", UNKNOWN_MEMORY)
    driver.refuses("deregister a #4711", UNKNOWN_MEMORY)
    assert "of another session" in driver.refuses("send t n 0 1", FOREIGN_MEMORY)
    assert driver.does("complete t") == driver.does("complete r") == "1"


@pytest.mark.parametrize("driver", ["c++", variant("c"), variant("python")], indirect=True)
@pytest.mark.parametrize(("sent", "expected"), [(300_000, 500_000), (0, 500), (10, 1000)])
def test_a_message_shorter_than_its_receive_is_wrong_bytes(
    driver: Driver, sent: int, expected: int
) -> None:
    for mode in modes_of(driver):
        a, b = f"a-{mode}", f"b-{mode}"
        session(driver, a, mode)
        session(driver, b, mode)
        join(driver, a, b)
        driver.does(f"register {a} m{mode} {sent}", f"register {b} n{mode} {expected}")
        driver.does(f"transfer {a} t peer", f"transfer {b} r peer")
        driver.does(f"recv r n{mode} 0 {expected}", f"send t m{mode} 0 {sent}", "wait t 20")
        text = driver.refuses("wait r 20", WRONG_BYTES)
        assert "the peer's message has another size" in text
        driver.refuses("complete r", WRONG_BYTES)
        driver.does("release t", "release r")


def test_memory_in_use_is_not_deregistered(driver: Driver) -> None:
    pair(driver)
    driver.does("register a m 5000", "register b n 5000", "transfer a t peer", "transfer b r peer")
    driver.does("recv r n 0 5000")
    assert "in use by 1 unfinished messages" in driver.refuses("deregister b n", MEMORY_IN_USE)
    driver.does("send t m 0 5000", "wait r 20", "wait t 20", "deregister b n", "deregister a m")
    driver.refuses("deregister b n", UNKNOWN_MEMORY)


def test_steps_out_of_order_and_second_ones_are_named(driver: Driver) -> None:
    session(driver, "a")
    session(driver, "b")
    driver.does("register a m 10")
    info = driver.does("listen b peer")
    driver.does("listen a peer")
    driver.refuses("connect a peer 1", OUT_OF_ORDER)
    driver.refuses("establish a peer 1", OUT_OF_ORDER)
    driver.does("transfer a t peer")
    driver.refuses("send t m 0 10", NOT_CONNECTED)
    driver.does(f"load a peer {info}")
    driver.refuses(f"load a peer {info}", ALREADY_DONE)
    driver.refuses("accept a peer 0.05", TIMED_OUT)
    driver.does(f"load b peer {driver.does('listen a peer')}")
    driver.does("accept a peer 20", "connect a peer 20", "establish b peer 20")
    for again in ("accept a peer 1", "connect a peer 1", "accept b peer 1"):
        driver.refuses(again, ALREADY_DONE)
    driver.does("establish a peer 1")  # there is nothing left to do


def test_connection_info_that_does_not_fit_is_named_and_the_right_one_taken_then(
    driver_or_nixl: Driver,
) -> None:
    driver = driver_or_nixl
    session(driver, "a")
    session(driver, "b")
    session(driver, "four", channels=4)
    info = driver.does("listen b peer")
    for bad, status in (
        (b"garbage".hex(), BAD_INFO),
        (info[:40], BAD_INFO),
        (info[:-2], BAD_INFO),
        (info + b"x".hex(), BAD_INFO),
        (driver.does("listen four peer"), OTHER_SETTINGS),
    ):
        assert driver.refuses(f"load a peer {bad}", status)
    driver.does("listen a peer", f"load a peer {info}")
    driver.does(f"load b peer {driver.does('listen a peer')}")
    driver.does("establish a peer 20", "establish b peer 20")


def test_connection_info_of_which_one_field_differs_is_named(driver: Driver) -> None:
    session(driver, "a")
    session(driver, "b")
    info = bytes.fromhex(driver.does("listen b peer"))

    def changed(at: int, form: str, value: int) -> str:
        body = bytearray(info[:-4])
        struct.pack_into(form, body, at, value)
        return (bytes(body) + struct.pack("<I", zlib.crc32(body))).hex()

    name_at = info.index(b"softtcpx")
    for bad, status in (
        ((info[:60] + bytes([info[60] ^ 1]) + info[61:]).hex(), BAD_INFO),
        (changed(8, "<H", 99), OTHER_VERSION),
        (changed(name_at, "<B", ord("S")), OTHER_PLUGIN),
        (changed(16, "<Q", 2048), OTHER_SETTINGS),
    ):
        driver.refuses(f"load a peer {bad}", status)


def test_a_wait_in_vain_ends_and_may_be_repeated(driver: Driver) -> None:
    for mode in modes_of(driver):
        a, b = f"a-{mode}", f"b-{mode}"
        session(driver, a, mode)
        session(driver, b, mode)
        join(driver, a, b)
        driver.does(f"register {a} m{mode} 4096", f"register {b} n{mode} 4096")
        driver.does(f"transfer {a} t peer", f"transfer {b} r peer", f"recv r n{mode} 0 4096")
        # Long enough for a thread of the library to have posted, on a busy machine too.
        text = driver.refuses("wait r 0.4", TIMED_OUT)
        assert re.search(
            r"no progress for 0.4 s; receive, channel [01]: window 2/16, oldest: transfer 1", text
        )
        assert driver.does("complete r") == "0"
        driver.does(f"send t m{mode} 0 4096", "wait r 20", "wait t 20", "release t", "release r")


def test_a_transfer_that_is_released_goes_on(driver: Driver) -> None:
    pair(driver)
    driver.does("register a m 9000", "register b n 9000", "fill m 0 9000 8")
    driver.does("transfer a t peer", "transfer b r peer", "transfer b last peer")
    driver.does("recv r n 0 8000", "release r", "recv last n 8000 1000")
    driver.does("send t m 0 8000", "send t m 8000 1000", "wait t 20", "wait last 20")
    assert driver.does("check n 0 9000 8") == ""


@pytest.mark.parametrize("language", ["c++", "python"])  # C has freed it
def test_a_transfer_that_was_released_takes_nothing_any_more(start: Start, language: str) -> None:
    driver = start(language)
    pair(driver)
    driver.does("register a m 10", "transfer a t peer", "transfer a waits peer")
    driver.does("recv waits m 0 1", "release waits", "release t", "release t")
    for number, name in ((1, "t"), (2, "waits")):
        for command in (f"send {name} m 0 1", f"recv {name} m 0 1", f"complete {name}"):
            said = driver.refuses(command, RELEASED)
            assert f"transfer {number} was released" in said
        driver.refuses(f"wait {name} 1", RELEASED)


def test_a_closed_session_says_so_and_only_that(driver: Driver) -> None:
    pair(driver)
    driver.does("register a m 100", "transfer a t peer", "transfer a pending peer")
    driver.does("recv pending m 0 100")
    driver.does("close a", "close a")
    for command in (
        "send t m 0 1",
        "wait pending 1",
        "complete pending",
        "register a other 10",
        "listen a other",
        "transfer a t2 peer",
        "deregister a m",
    ):
        driver.refuses(command, CLOSED)


@pytest.mark.parametrize("languages", [("c++", "python"), ("c", "c++"), ("python", "c")])
def test_two_languages_meet(start: Start, languages: tuple[str, str]) -> None:
    left, right = (start(language) for language in languages)
    for driver in (left, right):
        session(driver, "s")
    for here, there in ((left, right), (right, left)):
        here.does(f"load s peer {there.does('listen s peer')}")
    for driver in (left, right):
        driver.tell("establish s peer 20")
    assert (left.answer(), right.answer()) == ("ok", "ok")
    for driver, seed in ((left, 1), (right, 2)):
        driver.does("register s out 100000", "register s in 100000", f"fill out 0 100000 {seed}")
        driver.does("transfer s t peer", "recv t in 0 70000", "recv t in 70000 30000")
        driver.does("send t out 0 70000", "send t out 70000 30000")
    for driver in (left, right):
        driver.tell("wait t 20")
    assert (left.answer(), right.answer()) == ("ok", "ok")
    # The second message begins a pattern of its own place, the same on both sides.
    assert left.does("check in 0 100000 2") == right.does("check in 0 100000 1") == ""

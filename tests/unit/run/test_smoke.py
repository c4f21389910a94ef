"""Smoke without ranks: its pattern, what its command line refuses, the lines of its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcpx_mpi import cli
from tcpx_mpi.cli.smoke import settings_of
from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.patterns import NAMES, SMOKE, load
from tcpx_mpi.run.smoke import Arrival, arrival_lines, footer_lines
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter import prove
from tcpx_mpi.schedule.pattern import Pattern


@pytest.mark.parametrize("world", [2, 3, 6])
def test_rounds_deliver_what_they_promise_and_are_the_pairs_of_the_whole_each_way_once(
    world: int,
) -> None:
    engine = EngineModel(chunk_bytes=16, channels=2, window_send=1, window_recv=1)
    smoke = load(SMOKE)
    rounds = smoke.rounds_run(world, everybody=False)
    for size in (0, 1, 23, 70):
        for pattern in rounds:
            prove(pattern, world, size, engine)

    def pairs(pattern: Pattern) -> list[tuple[int, int]]:
        ranks = range(world)
        return [(rank, to) for rank in ranks for to, _ in pattern.schedule(rank, world).peers_sent]

    apart = [pair for pattern in rounds for pair in pairs(pattern)]
    assert len(set(apart)) == len(apart) == world * (world - 1)
    assert sorted(apart) == sorted(pairs(smoke))


def test_run_does_not_offer_it_but_it_can_be_loaded() -> None:
    assert SMOKE not in NAMES
    assert "smoke needs at least 2 ranks" in str(load(SMOKE).refuse(1))


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        ([], "run needs at least 2 ranks: start it with `mpirun -n 4 tcpx-mpi run smoke`"),
        (["--ranks", "1"], "smoke needs at least 2 ranks; found 1"),
        (["--ranks", "2", "--payload-bytes", "x"], "--payload-bytes: "),
        (["--ranks", "2", "--payload-bytes", "1,2"], "--payload-bytes (1,2) is not one size"),
        (["--ranks", "2", "--payload-bytes", ","], "--payload-bytes (,) lists no size"),
        (["--ranks", "2", "--window-send", "17"], "--window-send (17)"),
        (["--ranks", "2", "--memory", "emulated", "--unpack", "none"], "smoke checks every byte"),
        (["--ranks", "2", "-b", "1"], "smoke, which sends one message each way, has no use for -b"),
        (["--ranks", "2", "-D", "1"], "has no use for -D: leave it out"),
        (["ring"], "ring is a second pattern beside smoke: give each a run of its own"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    argv: list[str], part: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert cli.main(["smoke", *argv]) == ExitCode.USAGE
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert part in errors


def test_a_bad_variable_is_named_and_the_option_is_a_way_out() -> None:
    environ = {"UCCL_TCPX_PAYLOAD_BYTES": "many"}
    with pytest.raises(UsageError, match=r"^UCCL_TCPX_PAYLOAD_BYTES: "):
        settings_of({}, None, environ)
    assert settings_of({}, "7", environ).sizes == (7,)
    assert settings_of({}, None, {"UCCL_TCPX_PAYLOAD_BYTES": ""}).sizes == (23,)


def test_sizes_of_a_benchmark_in_the_environment_have_no_effect() -> None:
    environ = {"UCCL_TCPX_PERF_SIZE": "64M", "UCCL_TCPX_PERF_ITERS": "100"}
    settings = settings_of({}, None, environ)
    assert (settings.sizes, settings.iters, settings.warmup_iters) == ((23,), 1, 0)


def test_a_row_says_who_what_and_how_long() -> None:
    right = Arrival(0, 1, 0, "", 45_300, ())
    assert arrival_lines(right) == ["       0       1    right                45.30"]
    wrong = Arrival(12, 3, 23, "fault", 5_000_000, ())
    assert arrival_lines(wrong) == ["      12       3    23 bytes WRONG     5000.00"]
    assert arrival_lines(Arrival(1, 0, -1, "", 1000, ()))[0].split()[2:4] == ["came,", "empty"]
    assert footer_lines([right, right]) == ["# 2 messages: all right"]
    assert footer_lines([right, wrong]) == ["# 2 messages: 1 WRONG"]


def test_what_was_seen_in_a_queue_is_below_its_row() -> None:
    sight = {"channel": 1, "slot": 3, "count": 9, "probe": b"\x00\xff",
             "fragments": [(4096, 2, 0), (0, 1, 2)]}  # fmt: skip
    assert arrival_lines(Arrival(0, 1, 0, "", 1, (sight,)))[1:] == [
        "#   channel 1, slot 3: 9 fragments: 2 B at 4096 -> 0, 1 B at 0 -> 2, and 7 more",
        "#   bounce probe: 00 ff",
    ]
    alone = {**sight, "count": 1, "probe": b"", "fragments": [(0, 1, 2)]}
    assert arrival_lines(Arrival(0, 1, 0, "", 1, (alone,)))[1:] == [
        "#   channel 1, slot 3: 1 fragment: 1 B at 0 -> 2"
    ]
    empty = {"channel": 0, "slot": 0, "count": 0, "probe": b"", "fragments": []}
    assert arrival_lines(Arrival(0, 1, 0, "", 1, (empty,)))[1:] == [
        "#   channel 0, slot 0: 0 fragments: none"
    ]

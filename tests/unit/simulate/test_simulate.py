"""`tcpx-mpi simulate`: its rows, its fit, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import invented_runs
import pytest
from invented_tap import Message, write_job

from tcpx_mpi import patterns
from tcpx_mpi.cli import main
from tcpx_mpi.errors import UsageError
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.simulator import Costs, predict
from tcpx_mpi.simulate.fit import MeasuredRow, fit_rows, measured_rows

NETWORK = ("--latency", "20", "--bandwidth", "10")
RING = str(Path(__file__).resolve().parents[3] / "docs" / "evidence" / "ring.h5")


def table(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    """The rows that are printed, each as its fields."""
    assert main(["simulate", *arguments]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines() if line[0] != "#"]


def test_a_fit_takes_no_open_loop() -> None:
    run = invented_runs.sound(rows=2)
    assert measured_rows(run)
    run.header.mode = "open loop"
    with pytest.raises(UsageError, match="has the pace of --rate for its times"):
        measured_rows(run)


def test_what_a_plugin_takes_at_once_is_not_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.toml").write_text("multi_recv = 4\n")
    config = ["--config", str(tmp_path / "c.toml")]
    assert main(["simulate", "ring", "--ranks", "2", *NETWORK, *config]) == 2
    assert "--multi-recv (4) is of a plugin's calls" in capsys.readouterr().err


def test_a_fit_takes_no_several_messages_a_chunk() -> None:
    run = invented_runs.sound(rows=2)
    run.header.plan = dataclasses.replace(run.header.plan, multi_recv=4)
    with pytest.raises(UsageError, match=r"has 4 messages a chunk \(--multi-recv\)"):
        measured_rows(run)


@pytest.mark.parametrize(("nics", "sharing"), [("abcd", 1), ("aabb", 2), ("aaab", None)])
def test_a_fit_knows_how_many_ranks_share_a_nic(nics: str, sharing: int | None) -> None:
    run = invented_runs.sound(world=8, rows=2)
    run.header.ranks = [
        dataclasses.replace(info, node=f"node{info.rank // 4}", nic=nics[info.rank % 4])
        for info in run.header.ranks
    ]
    if sharing is None:
        with pytest.raises(UsageError, match="NICs with 1 and with 3 ranks"):
            measured_rows(run)
        return
    costs = Costs(0.0, 1.0)
    engine = EngineModel(run.rows[1].chunk_bytes, 1, 16, 16)
    for shared, same in ((sharing, True), (3 - sharing, False)):
        expected = predict(patterns.find("ring"), 8, 2048, engine, costs, 1, shared)
        found = measured_rows(run)[1].predict_ns(costs)
        assert (found == pytest.approx(expected.by_average(1), rel=0.2)) == same


def test_iterations_that_differ_are_simulated_one_by_one_and_busbw_is_what_left_a_rank(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shape = ["--moe", "batch=100,hidden=1000,experts=4,topk=1,dispatch=1,combine=2"]
    (hot,) = table(capsys, "moe", *shape, "--skew", "hot-rank", "--ranks", "4", *NETWORK,
                   "-n", "4", "-a", "3")  # fmt: skip
    # Three ranks' tokens into one NIC, and twice as much out of it: 20 us and 10 GB/s.
    assert float(hot[5]) == pytest.approx(20 + 30 + 20 + 60, rel=0.1)
    assert float(hot[7]) == pytest.approx(3 * 300e3 / 4 / (float(hot[5]) * 1e3), abs=0.01)


def test_a_row_has_the_13_fields_of_a_run_and_what_it_needs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    (row,) = table(
        capsys, "all_reduce_perf", "--ranks", "4", *NETWORK, "-b", "4M", "-e", "4M", "--algo",
        "ring", "-z", "1", "--chunk", "1M", "--json", str(path),
    )  # fmt: skip
    assert row[:5] == ["4194304", "1048576", "float", "sum", "-1"]
    # 6 hops of 1 MiB: 20 us and 104.86 us each.
    assert float(row[5]) == pytest.approx(6 * (20 + 104.86), rel=1e-3)
    assert float(row[7]) == pytest.approx(1.5 * float(row[6]), rel=0.01)
    assert row[8:] == ["N/A"] * 5 + ["ring", "12", "4", str(6 << 20)]
    document = json.loads(path.read_text())
    assert document["costs"] == {
        "latency_us": 20,
        "bandwidth_gbps": 10,
        "overhead_us": 0,
        "half_duplex": False,
        "reduction_ns_a_byte": 0,
    }
    (result,) = document["results"]
    assert result["out_of_place"]["time"] == pytest.approx(float(row[5]), abs=0.01)
    assert (result["algo"], result["nic_bytes"]) == ("ring", 6 << 20)


def test_every_pattern_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    for name in patterns.NAMES:
        if patterns.load(name).loaded is not None or name == patterns.RECORDED:
            continue
        rows = table(capsys, name, "--ranks", "4", *NETWORK, "--sizes", "4K,64K")
        assert [len(row) for row in rows] == [17, 17], name
        assert all(float(row[5]) > 0 for row in rows), name


def test_a_recording_takes_its_pauses_and_its_messages(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """1 MB, which takes 100 us and 20 us of latency; the answer, 40 ms after it came."""
    there = Message(0, 400_000, 0, 400_000, 1_000_000)
    answer = Message(40_400_000, 40_500_000, 0, 40_500_000)
    folder = write_job(tmp_path / "taps", {(0, 1, 0): [there], (1, 0, 0): [answer]}, 2)
    for gaps, least_us in (("keep", 40_000), ("0", 120)):
        (row,) = table(capsys, "--replay", str(folder), "--gaps", gaps, "--ranks", "2", *NETWORK)
        assert least_us < float(row[5]) < least_us + 300, row


@pytest.mark.parametrize("columns", [79, 166, 167])
def test_a_terminal_without_room_for_all_columns_has_those_that_a_prediction_fills(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["ring", "--ranks", "2", *NETWORK, "-b", "1M", "-e", "1M"]
    (whole,) = table(capsys, *command)
    monkeypatch.setattr("tcpx_mpi.cli.simulate.terminal_columns", lambda: columns)
    assert main(["simulate", *command]) == 0
    *_, names, _, row = capsys.readouterr().out.splitlines()
    assert max(map(len, (names, row))) <= columns
    shown = [whole[0], whole[5], whole[7], *whole[13:]]
    assert row.split() == (whole if columns == 167 else shown)


def test_what_has_no_rows_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "hypercube", "--ranks", "6", *NETWORK]) == 0
    assert "# Note: nRanks 6 is not a power of 2, skipping" in capsys.readouterr().out


def test_costs_come_out_of_a_measured_run(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = table(
        capsys, "ring", "--ranks", "64", "--fit", RING, "-b", "1M", "-e", "1M"
    )  # fmt: skip
    assert float(row[7]) > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ring", "--ranks", "4"], "needs --latency US, or --fit RUN.h5"),
        (["ring", "--ranks", "4", "--latency", "1"], "needs --bandwidth GBPS, or --fit"),
        (["ring", *NETWORK], "needs --ranks N"),
        (["ring", "--ranks", "65537", *NETWORK], r"--ranks \(65537\) is larger than .* 65536"),
        (["ring", "--ranks", "4", *NETWORK, "--latency", "nan"], r"--latency \(nan\) cannot be"),
        (["ring", "--ranks", "4", *NETWORK, "--bandwidth", "0"], r"--bandwidth \(0\) cannot be"),
        (["ring", "--ranks", "4", *NETWORK, "--overhead", "x"], r"--overhead \(x\) cannot be"),
        (["ring", "--ranks", "4", *NETWORK, "--ranks-per-nic", "5"], r"--ranks-per-nic \(5\)"),
        (["ring", "--ranks", "1", *NETWORK], "needs at least 2 ranks"),
        (["pair", "--ranks", "3", *NETWORK], "even number of ranks"),
        (["reduce", "--ranks", "3", *NETWORK, "-r", "3"], "none of 3 ranks"),
        (["reduce", "--ranks", "3", *NETWORK, "--algo", "pairwise"], "none of reduce"),
        (["loaded_pingpong", "--ranks", "4", *NETWORK], "times a part of its iteration"),
        (["rong", "--ranks", "3", *NETWORK], "did you mean ring"),
        (["ring", "--ranks", "4", "--fit", "/none.h5"], "no such file"),
        (["ring", "--ranks", "4", *NETWORK, "--json", "/"], "--json"),
        (["permutation", "--ranks", "4096", *NETWORK, "-b", "1G", "-e", "1G"], "can be simulated"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert re.search(said, told[0])


# --- The fit --------------------------------------------------------------------------------------

TRUE = Costs(17_000.0, 0.12, 900.0)


def rows_of(name: str, true: Costs = TRUE) -> list[MeasuredRow]:
    """Rows that the model itself has made, with costs that the fit is to find."""
    pattern = patterns.load(name)

    def of_size(size: int) -> MeasuredRow:
        def predict_ns(costs: Costs) -> float:
            found = predict(pattern, 2, size, EngineModel(), costs, 20)
            return found.mean_ns / pattern.time_divisor

        return MeasuredRow(size, "", predict_ns(true), predict_ns)

    return [of_size(size) for size in (8, 4096, 1 << 16, 1 << 20, 1 << 23)]


def test_the_fit_finds_the_costs_that_made_the_times() -> None:
    found = fit_rows([*rows_of("pingpong"), *rows_of("pair")], {}, "both")
    for name in ("latency_ns", "ns_a_byte", "overhead_ns"):
        assert getattr(found.costs, name) == pytest.approx(getattr(TRUE, name), rel=0.02)
    assert 0.99 < found.least <= found.most < 1.01


def test_a_fit_on_reductions_finds_what_they_cost() -> None:
    true = dataclasses.replace(TRUE, half_duplex=True, ns_a_reduced_byte=0.05)
    rows = [*rows_of("pingpong", true), *rows_of("pair", true), *rows_of("all_reduce", true)]
    found = fit_rows(rows, {}, "three", half_duplex=True)
    assert found.costs.ns_a_reduced_byte == pytest.approx(0.05, rel=0.02)
    assert found.costs.latency_ns == pytest.approx(TRUE.latency_ns, rel=0.02)


def test_what_is_known_is_not_fitted() -> None:
    found = fit_rows(rows_of("pair"), {"latency_ns": 5.0}, "pair")
    assert found.costs.latency_ns == 5.0
    assert found.costs.ns_a_byte == pytest.approx(TRUE.ns_a_byte, rel=0.02)


def test_rows_without_a_wait_have_no_latency() -> None:
    with pytest.raises(UsageError, match=r"no latency in its rows.*pingpong"):
        fit_rows(rows_of("pair"), {}, "pair.h5")


def test_one_row_is_too_few() -> None:
    with pytest.raises(UsageError, match="fewer than 2 rows"):
        fit_rows(rows_of("ring")[:1], {}, "ring.h5")

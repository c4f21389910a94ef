"""A run beside its gate, and a gate out of runs, as a user types them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jobs import run, tcpx_mpi
from prometheus_client.parser import text_string_to_metric_families
from variants import variant

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

RING = ("run", "ring", "--ranks", "2", "--plugin", "softtcpx", "--spool", ".", "-n", "5")


def test_calibrated_limits_pass_their_run_and_higher_ones_end_with_code_9(place: Path) -> None:
    five = run(tcpx_mpi(*RING, "--sizes", "4K", "--hdf5", "five.h5", "--runs", "5"), place)
    assert five.code == 0, five.text
    made = run(tcpx_mpi("gate", "--calibrate", "five.h5", "--output", "g.toml"), place)
    assert made.code == 0, made.text
    text = (place / "g.toml").read_text()
    (limit,) = (line for line in text.splitlines() if line.startswith("busbw_min"))
    (place / "low.toml").write_text(text.replace(limit, "busbw_min = 1e-6"))
    (place / "high.toml").write_text(text.replace(limit, "busbw_min = 1e6"))

    low = run(tcpx_mpi(*RING, "--sizes", "4K", "--hdf5", "o.h5", "--gate", "low.toml", "-J",
                       "o.json"), place)  # fmt: skip
    assert low.code == 0, low.text
    assert "# Gate verdict         : OK, 1 of 1 limits met" in low.out
    again = run(tcpx_mpi("gate", "o.h5", "low.toml", "--json", "again.json"), place)
    assert again.code == 0
    assert "# wrote again.json" in again.out
    said = json.loads((place / "again.json").read_text())
    assert json.loads((place / "o.json").read_text())["tcpx_mpi"]["gate"] == said
    assert (said["passed"], said["limits"][0]["limit"]) == (True, 1e-6)
    later = run(tcpx_mpi("gate", "o.h5", "high.toml"), place)
    assert later.code == 9
    assert "# Gate verdict         : FAILED, 0 of 1 limits met" in later.out
    assert later.err.startswith("tcpx-mpi: error: o.h5 fails high.toml: ring, host, 4 KiB: busbw")


def gate_of(limit: str, memory: str = "host", sizes: str = "4K") -> str:
    head = '[gate]\nplugin = "softtcpx_v7"\nranks = 2\nprovenance = "by hand"\n'
    return head + "".join(
        f'[[limit]]\npattern = "ring"\nmemory = "{memory}"\nsize = "{size}"\n{limit}\n'
        for size in sizes.split(",")
    )


@pytest.mark.parametrize(
    ("limit", "least", "verdict"),
    [
        variant("busbw_min = 1e6", "0", "FAILED, 0 of 1 limits met"),
        ("busbw_min = 1e-6", "1e6", "OK, 1 of 1 limits met"),
    ],
)
def test_launches_are_judged_together_once_they_are_all_there(
    limit: str, least: str, verdict: str, place: Path
) -> None:
    (place / "g.toml").write_text(gate_of(limit))
    arguments = (
        "--sizes",
        "4K",
        "--hdf5",
        "o.h5",
        "--gate",
        "g.toml",
        "--runs",
        "2",
        "-J",
        "o.json",
    )
    result = run(tcpx_mpi(*RING, *arguments), place, {"NCCL_TESTS_MIN_BW": least})
    assert result.code == 9, result.text
    assert "by the median of 2 launches" in result.out
    assert f"# Gate verdict         : {verdict}" in result.out
    assert result.out.count("# Gate verdict") == 1
    said = json.loads((place / "o.json").read_text())["tcpx_mpi"]["gate"]
    assert (said["launches"], said["passed"]) == (2, verdict.startswith("OK"))
    assert read_run(str(place / "o.h5")).missing == []


def test_a_launch_that_breaks_fails_the_gate_and_keeps_its_exit_code(place: Path) -> None:
    (place / "g.toml").write_text(gate_of("busbw_min = 1e-6", "emulated"))
    arguments = ("--sizes", "4K", "--hdf5", "o.h5", "--gate", "g.toml", "--runs", "3")
    trap = {"SOFTTCPX_TRAP_CORRUPT_AT": "3"}
    result = run(tcpx_mpi(*RING, *arguments, "--memory", "emulated"), place, trap)
    assert result.code == 5, result.text
    failed = [line for line in result.out.splitlines() if line.startswith("# Gate failed")]
    assert re.search(r": ring, emulated, 4 KiB: \d+ wrong bytes$", failed[0])
    assert failed[1].endswith(": the file lacks 2 of 3 launches")
    assert "# Gate verdict         : FAILED" in result.out


def test_a_run_that_would_fail_for_certain_is_refused_before_it_starts(place: Path) -> None:
    (place / "g.toml").write_text(gate_of("busbw_min = 1.0"))
    result = run(tcpx_mpi(*RING, "--gate", "g.toml", "--hdf5", "o.h5", "--sizes", "8K"), place)
    assert result.code == 2
    assert "add --sizes 4K" in result.err
    assert not (place / "o.h5").exists()


def figures(path: Path, name: str) -> list[float]:
    """The values of a metric, by Prometheus' own parser."""
    families = text_string_to_metric_families(path.read_text())
    return [s.value for family in families for s in family.samples if s.name == f"tcpx_mpi_{name}"]


@pytest.mark.variant
def test_figures_for_prometheus_and_junit_say_what_the_exit_code_says(place: Path) -> None:
    ring = (*RING, "--sizes", "4K", "--prom", "a.prom")
    (place / "high.toml").write_text(gate_of("busbw_min = 1e6"))
    assert run(tcpx_mpi(*ring, "--hdf5", "a.h5"), place).code == 0
    assert figures(place / "a.prom", "exit_code") == [0]
    assert figures(place / "a.prom", "gate_passed") == []
    assert len(figures(place / "a.prom", "bus_bandwidth_gbs")) == 1
    assert run(tcpx_mpi(*ring, "--hdf5", "none", "--gate", "high.toml"), place).code == 9
    assert figures(place / "a.prom", "exit_code") == [9]
    # A run that ends early replaces what an earlier one said.
    for trap, codes in (("ERROR_AT", (7, 13)), ("CORRUPT_AT", (5,))):
        bad = run(tcpx_mpi(*ring, "--hdf5", "none"), place, {f"SOFTTCPX_TRAP_{trap}": "3"})
        assert bad.code in codes, bad.text
        assert figures(place / "a.prom", "exit_code") == [bad.code]
    assert figures(place / "a.prom", "wrong_bytes")[0] > 0
    judged = ("gate", "a.h5", "high.toml", "--prom", "g.prom", "--junit", "g.xml")
    assert run(tcpx_mpi(*judged), place).code == 9
    assert figures(place / "g.prom", "gate_passed") == [0]
    (suite,) = ElementTree.parse(place / "g.xml").getroot()
    assert [case[0].tag if len(case) else "" for case in suite] == ["", "failure"]


@pytest.mark.parametrize("path", ["none/a.prom", "a.txt"])
def test_a_prom_file_that_cannot_be_is_refused_before_any_rank_starts(
    path: str, place: Path
) -> None:
    refused = run(tcpx_mpi(*RING, "--sizes", "4K", "--prom", path, "--hdf5", "a.h5"), place)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("tcpx-mpi: error: --prom")
    assert refused.err.count("\n") == 1
    assert not list(place.glob("*.*"))

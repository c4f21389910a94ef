"""Many runs as a fleet: the slow NIC is found, whoever its peers are, and pages stay small."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import invented_runs
import pytest

from tcpx_mpi import cli
from tcpx_mpi.errors import UsageError
from tcpx_mpi.exchange.nccl_tests.run import write_run
from tcpx_mpi.report.fleet import Fleet, fleet_lines, fleet_of
from tcpx_mpi.report.html.fleet import fleet_page


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return fleet_of(invented_runs.fleet())


def test_the_slow_nic_is_named_and_its_peers_are_not(fleet: Fleet) -> None:
    assert len(fleet.hosts) == 16
    assert len(fleet.nics) == 64
    (slow,) = fleet.slow_nics()
    assert (slow.host, slow.name) == ("node03", "eth3")
    assert 1 / fleet.share(slow.gb_per_s) == pytest.approx(1.6, rel=0.03)
    assert slow.figures == 15
    assert len(fleet.links) == 120 * 4


def test_the_worst_ways_come_first_and_all_end_at_the_slow_nic(fleet: Fleet) -> None:
    worst = fleet.links[:15]
    assert all("node03 eth3" in link.sender + link.receiver for link in worst)
    rates = [link.gb_per_s for link in fleet.links]
    assert rates == sorted(rates)
    assert fleet.share(fleet.links[15].gb_per_s) > 0.9


def test_the_lines_say_what_is_slow_and_nothing_where_nothing_is(fleet: Fleet) -> None:
    lines = fleet_lines(fleet)
    assert lines[0] == ("# 16 nodes, 64 NICs, 120 files: pair, softtcpx, host memory")
    (named,) = [line for line in lines if line.startswith("# Slow  ")]
    assert "NIC eth3 of node03" in named
    sound = fleet_lines(fleet_of(invented_runs.fleet(4, by=1.0)))
    assert "# Slow                 : no NIC is below 0.9 of the median" in sound


def test_every_launch_of_a_file_counts() -> None:
    runs = invented_runs.fleet(4, slow=("node01", "eth2"))
    files = [
        dataclasses.replace(sound, launches=[slow])
        for sound, slow in zip(invented_runs.fleet(4, by=1.0), runs, strict=True)
    ]
    files[0].launches[0].rows[0].wrong[1] = 5
    fleet = fleet_of(files)
    assert fleet.nics["node01", "eth2"].figures == 2 * fleet_of(runs).nics["node01", "eth2"].figures
    assert (files[0].path, "5 wrong bytes") in fleet.troubles


def test_ranks_stand_for_themselves_where_a_pattern_does_not_tell_its_ways() -> None:
    runs = [
        invented_runs.sound(world=4, rows=2),
        dataclasses.replace(invented_runs.sound(world=4, rows=3), path="b.h5"),
    ]
    fleet = fleet_of(runs)
    assert fleet.size_bytes == 2048
    assert not fleet.links
    assert not fleet.between
    # rank 3 of `sound` takes 1.3 times as long.
    (slow,) = fleet.slow_nics()
    assert (slow.host, slow.name, slow.figures) == ("host1", "eth2", 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pattern": "mesh"}, "b.h5 has pattern mesh, o.h5 has ring"),
        ({"memory": "cuda"}, "b.h5 has memory cuda"),
        ({"plugin_name": "other"}, "b.h5 has plugin other"),
    ],
)
def test_runs_of_different_kinds_are_no_fleet(change: dict[str, str], words: str) -> None:
    one, other = invented_runs.sound(), invented_runs.sound()
    header = dataclasses.replace(other.header, **change)
    with pytest.raises(UsageError, match=words):
        fleet_of([one, dataclasses.replace(other, path="b.h5", header=header)])


def test_wrong_bytes_and_what_is_missing_are_troubles() -> None:
    run = invented_runs.sound()
    run.rows[0].wrong[1] = 3
    partial = dataclasses.replace(invented_runs.sound(rows=3), path="b.h5", complete=False)
    troubles = dict(fleet_of([run, partial]).troubles)
    assert troubles["o.h5"] == "3 wrong bytes"
    assert "b.h5" in troubles


def test_the_page_has_a_cell_for_each_nic_and_each_way_and_is_small(fleet: Fleet) -> None:
    page = fleet_page(fleet)
    assert len(page) < 2_000_000
    assert page.count("--heat:") == 64 + 120
    (slow,) = re.findall(r'title="node03 eth3: ([^"]+)" style="--heat: (\d+)%"', page)
    assert slow[0].endswith("0.62 of the median")
    assert int(slow[1]) == 100
    assert "1 slow NIC" in page


def test_a_large_fleet_has_no_figures_in_its_map_of_ways_and_is_small_too() -> None:
    page = fleet_page(fleet_of(invented_runs.fleet(20)))
    assert len(page) < 2_000_000
    assert re.search(r'title="node00 to node01: [^"]+" style="--heat: \d+%"></td>', page)


def test_the_command_writes_the_page_of_several_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for number, run in enumerate(invented_runs.fleet(3)):
        path = tmp_path / f"{number}.h5"
        write_run(run, str(path))
        paths.append(str(path))
    page = tmp_path / "fleet.html"
    assert cli.main(["report", *paths, "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert "# 3 nodes, 12 NICs, 3 files: pair" in out
    assert out.splitlines()[-1] == f"# wrote {page}"
    assert "<h1>3 nodes, pair, softtcpx</h1>" in page.read_text()

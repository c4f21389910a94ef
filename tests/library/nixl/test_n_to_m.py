"""`tcpx-mpi nixl` of N initiators to M targets: alone, under mpirun and on two nodes; NIXL's
stand-in moves bytes between processes by sockets. With NIXL itself: `wheels.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import network_faults as faults
import numpy as np
import psutil
import pytest
from jobs import Result, mpirun, run, started, tcpx_mpi
from launcher import Launcher, cluster_or_skip
from nodes import WORK, Cluster
from variants import variant

from tcpx_mpi.records import Run, read_run

STAND_IN = Path(__file__).parent / "socket_nixl"
FEW = ("--size", "100,70K", "-n", "12", "-w", "1")


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))


def alone(place: Path, *options: str) -> Result:
    return run(tcpx_mpi("nixl", *options), place)


def assert_all_moved(done: Run, operation: str, initiators: int, targets: int, batch: int) -> None:
    """Every rank has moved and checked what it should, and targets are told apart."""
    world = initiators + targets
    assert (done.complete, done.header.world) == (True, world)
    assert done.header.targets == tuple(range(initiators, world))
    for row in done.rows:
        each = row.size_bytes // targets * batch * row.iterations
        here, there = [each * targets] * initiators, [each * initiators] * targets
        ways = [here + [0] * targets, [0] * initiators + there]
        sent, received = ways if operation == "write" else ([0] * initiators + there,
                                                            here + [0] * targets)  # fmt: skip
        assert row.payload_bytes_sent.tolist() == sent
        assert row.payload_bytes_received.tolist() == received
        assert row.wrong.tolist() == [0] * world
        known = ~np.isnan(row.arrivals).all(axis=2)
        expected = np.zeros((world, world), bool)
        expected[:initiators, initiators:] = operation == "read"
        expected[initiators:, :initiators] = operation == "write"
        assert (known == expected).all()
        asking = row.receives
        assert (row.samples["send"][asking] <= row.samples["iteration"][asking]).all()
        assert (row.samples["send"][asking] > 0).all()


@pytest.mark.parametrize(
    ("operation", "initiators", "targets", "options"),
    [
        ("write", 2, 2, ("--batch", "2", "--threads", "2")),
        variant("read", 1, 3, ("--descriptors", "5")),
        variant("write", 3, 1, ()),
    ],
)
def test_every_initiator_reaches_every_target_with_every_byte(
    operation: str, initiators: int, targets: int, options: tuple[str, ...], place: Path
) -> None:
    world = initiators + targets
    ranks = ("--initiators", f"0-{initiators - 1}", "--targets", f"{initiators}-{world - 1}")
    files = ("--hdf5", "o.h5", "--prom", "o.prom")
    result = alone(place, *FEW, "--op", operation, *ranks, *options, *files)
    assert result.code == 0, result.text
    batch = 2 if "--batch" in options else 1
    assert_all_moved(read_run(str(place / "o.h5")), operation, initiators, targets, batch)
    told = re.findall(r"^# Tails +: .* by target: (.*)$", result.out, re.M)
    assert len(told) == 2, result.text
    for line in told:
        ranks_told = [f"rank {rank} p50" for rank in range(initiators, world)]
        assert [each.split(" p50")[0] + " p50" for each in line.split("; ")] == ranks_told
    of_targets = re.findall(r'target="(\d)",quantile="0.5"', (place / "o.prom").read_text())
    assert of_targets == [str(rank) for rank in range(initiators, world)] * 2


@pytest.mark.multirank
def test_under_mpirun_each_rank_is_an_agent(place: Path) -> None:
    ranks = ("--initiators", "0,2", "--targets", "1,3", "--batch", "2", "--op", "read")
    # There is room between descriptors, where all is poison before and has to be afterwards.
    options = (*ranks, "--descriptors", "4", "--hdf5", "o.h5")
    result = run(mpirun(4, "nixl", *FEW, *options), place)
    assert result.code == 0, result.text
    assert len(result.rows) == 2, result.text
    assert "Note: NIXL 1.5.1 (nixl-cu12), backend TCPX: ranks 0,2 ask, ranks 1,3 are asked" in (
        result.out
    )
    done = read_run(str(place / "o.h5"))
    assert [row.wrong.tolist() for row in done.rows] == [[0] * 4] * 2
    assert len({info.pid for info in done.header.ranks}) == 4


@pytest.mark.parametrize(
    ("fault", "batch", "count", "wrong_of_each"),
    [("flip", 2, "1 wrong", 1), ("late", 1, r"\d+ wrong", 100), ("late", 2, r"\d+ wrong", 100)],
)
def test_a_wrong_byte_is_counted_where_it_is_and_names_both_ranks(
    fault: str, batch: int, count: str, wrong_of_each: int, place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("SOCKET_NIXL_FAULT", f"{fault} target-3-TCPX")
    ranks = ("--initiators", "0-1", "--targets", "2-3", "--size", "100", "-n", "4")
    result = alone(place, *ranks, "--batch", str(batch), "--hdf5", "o.h5")
    assert result.code == 5, result.text
    first = "50$" if fault == "flip" else r"\d+$"
    assert re.search(f": {count} bytes over TCPX of rank 0 on rank 3, the first at {first}",
                     result.errors[0]), result.text  # fmt: skip
    (wrong,) = (row.wrong.tolist() for row in read_run(str(place / "o.h5")).rows)
    most = 2 * 4 * batch * wrong_of_each  # of two initiators, in 4 iterations
    assert wrong[:3] == [0, 0, 0]
    assert 0.95 * most <= wrong[3] <= most  # some are alike by chance


@pytest.mark.multirank
def test_a_target_that_dies_is_every_ranks_error_and_is_named(place: Path) -> None:
    ranks = ("--initiators", "0-1", "--targets", "2-3", "--size", "100", "-n", "4")
    fault = {"SOCKET_NIXL_FAULT": "die target-3-TCPX"}
    result = run(mpirun(4, "nixl", *ranks, "--prom", "o.prom", **fault), place)
    assert result.code == 7, result.text
    assert len(result.errors) == 1, result.text
    text = r"rank 3 on \S+: the target of rank 3 over TCPX ended with -9$"
    assert re.match(text, result.errors[0]), result.text
    assert not (place / "o.prom").exists()  # nothing was known of the run yet


def test_what_ends_a_run_early_is_kept_beside_its_rows(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOCKET_NIXL_FAULT", "die target-1-TCPX at 8")
    result = alone(place, *FEW, "--hdf5", "o.h5", "--prom", "o.prom")
    assert result.code == 7, result.text
    assert result.errors == ["the target over TCPX ended with -9"]
    kept = read_run(str(place / "o.h5"))
    assert (kept.complete, len(kept.rows)) == (False, 0)
    assert kept.fault is not None
    assert (kept.fault.kind, kept.fault.exit_code) == ("lost_rank", 7)
    assert "tcpx_mpi_exit_code{" in (text := (place / "o.prom").read_text())
    assert re.search(r"exit_code\{.*\} 7$", text, re.M)


@pytest.mark.multirank
@pytest.mark.variant  # as of `run`, whose roll call it is
def test_a_rank_that_is_killed_is_named_and_its_agents_end_with_it(place: Path) -> None:
    # The second row goes on for minutes.
    command = mpirun(2, "nixl", "--size", "100,32M", "-n", "2000", "-w", "0", "--hdf5", "o.h5")
    with started(command, place) as job:
        job.wait_for_row(100)
        told = [job.wait_for(rf"^#  Rank +{rank} ") for rank in range(2)]
        agents = [psutil.Process(int(line.split()[6])) for line in told]
        killed = agents[1].parent()
        assert killed is not None
        killed.kill()
        result = job.finish()
        gone, left = psutil.wait_procs(agents, 20)
    assert (len(gone), left) == (2, [])
    assert result.code == 137, result.text
    assert len(result.errors) == 1, result.text
    assert re.match(r"rank 1 on \S+ has died[;,] ", result.errors[0]), result.text
    kept = read_run(str(place / "o.h5"))
    assert ([row.size_bytes for row in kept.rows], kept.complete) == ([100], False)


@pytest.mark.multirank
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--targets", "2"), "name rank 2, and mpirun started 2 (0 to 1): start more, or name"),
        variant(("--initiators", "0-1", "--targets", "1"), "overlap in rank 1: a rank asks or is"),
        variant(("--op", "copy"), "'copy' is not one of 'read', 'write'"),
    ],
)
def test_under_mpirun_a_mistake_is_one_line_of_one_rank(
    options: tuple[str, ...], text: str, place: Path
) -> None:
    result = run(mpirun(2, "nixl", *options), place)
    assert result.code == 2, result.text
    assert [text in line for line in result.errors] == [True], result.text


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with cluster_or_skip() as made:
        yield made


@pytest.mark.variant  # 9 to 31 s: what the policer drops is sent again after TCP's time-out
@pytest.mark.multirank
def test_a_slow_target_on_another_node_is_named_and_nobody_else(
    nodes: Cluster, tmp_path: Path
) -> None:
    """Ranks 0 and 1 ask on one node, 2 and 3 are asked on the other, 3 by a NIC that is slow."""
    options = ("--initiators", "0-1", "--targets", "2-3", "--size", "64K", "-n", "12", "-w", "1",
               "--device", "1,2")  # fmt: skip
    command = Launcher(nodes).command(
        "nixl", *options, "--hdf5", f"{WORK}/o.h5", PYTHONPATH=str(STAND_IN),
        SOCKET_NIXL_INTERFACE="eth",
    )  # fmt: skip
    with faults.slow_arrivals(nodes.nodes, at=1, interface="eth2", rate="3mbit"):
        result = run(command, tmp_path)
    assert result.code == 0, result.text
    slow = [line for line in result.out.splitlines() if re.match("# Slow +:", line)]
    assert len(slow) == 1, result.text
    assert re.match(
        r"# Slow +: rank 3 on tcpx-node-1 \(.*\), receiving: \d+(\.\d+)? x the .* us of the good "
        r"ones at 128 KiB, in 2 of 2 links", slow[0],
    ), result.text  # fmt: skip
    tails = re.search(r"by target: rank 2 p50 (\S+) .* rank 3 p50 (\S+)", result.out)
    assert tails, result.text
    assert float(tails[2]) > 3 * float(tails[1])
    assert len(read_run(str(nodes.nodes[0].file("o.h5"))).rows) == 1

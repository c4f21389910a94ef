"""Baselines beside the plugin on real runs: same frame, by turns, each sample kept and checked."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import LIMIT_S, Job, Result, run, started, tcpx_mpi
from launcher import Launcher, cluster_or_skip
from nodes import WORK, Cluster
from turns import assert_turns_were_taken
from variants import variant

from tcpx_mpi.records import PHASES, Row, Run, SideKey, merge, read_journal, read_run
from tcpx_mpi.report import summarise_row

pytestmark = pytest.mark.multirank

#: 8 blocks of 2 and one of 1: nothing may rest on blocks of one length.
ITERS, WARMUPS = 15, 3
#: Host and network interface of a rank, as errors have them.
PLACE = r"\S+ \(NIC \S+\)"
BLOCKS = [2] * 7 + [1]
SIZES = (0, 17, 100_003)

#: As many streams as the plugin has (2 with one thread, which cores could make more), and the
#: candidates for raw's best.
ONE_THREAD = ("--progress-threads", "1")
ONE_DIRECTION = ("raw", "raw_1", "raw_4")
TWO_WAY = ("raw", "raw_1", "raw_2", "raw_4")
STREAMS = {"raw": 2, "raw_1": 1, "raw_2": 2, "raw_4": 4, "mpi": 0}


def measured(
    place: Path, *arguments: str, ranks: int, against: str, **environ: str
) -> tuple[Result, Run]:
    """A run beside baselines that must succeed, and its file."""
    common = ["--plugin", "softtcpx", "--ranks", str(ranks), "--against", against, *ONE_THREAD,
              "-n", str(ITERS), "-w", str(WARMUPS), "--check-memory", "16M",
              "--hdf5", "o.h5", "--spool", "spool"]  # fmt: skip
    result = run(tcpx_mpi("run", *arguments, *common), place, environ)
    assert result.code == 0, result.text
    assert not result.errors, result.text
    assert list((place / "spool").iterdir()) == [], "journals of a run that is whole"
    found = read_run(str(place / "o.h5"))
    assert found.complete
    assert found.missing == []
    return result, found


def test_another_plugin_takes_turns_over_the_same_buffers(place: Path) -> None:
    result, found = measured(place, "ring", *sizes(0, 17, 100_003), ranks=2,
                             against="plugin:softtcpx@9")  # fmt: skip
    assert [(peer.name, peer.kind) for peer in found.header.baselines] == [("plugin", "plugin")]
    assert found.header.baselines[0].description.startswith("softtcpx_v9, ABI v9, ")
    assert "beside plugin" in result.out
    for row in found.rows:
        assert_every_sample_is_there(row, 2)
        assert_checked_and_right(row)
        assert_every_sample_is_there(row.sides[SideKey("plugin")], 2)
        assert_checked_and_right(row.sides[SideKey("plugin")])
        assert_bytes_went_over_the_wire(row)
        assert_as_without_baselines(row)


def sizes(*wanted: int) -> tuple[str, str]:
    return "--sizes", ",".join(map(str, wanted))


def assert_every_sample_is_there(row: Row, ranks: int) -> None:
    """The plugin's row, or a baseline's: equal in form, and each iteration took some time."""
    for phase in PHASES:
        assert row.samples[phase].shape == (ranks, ITERS), phase
        assert row.warmup[phase].shape == (ranks, WARMUPS), phase
    assert (row.samples["iteration"] >= 0).all()
    assert row.batches.tolist() == BLOCKS
    assert row.batch_start.shape == row.late.shape == (ranks, len(BLOCKS))
    assert ((row.samples["receive"] >= 0).all(axis=1) == row.receives).all()
    assert (row.cpu_others_ns >= 0).all()


def assert_checked_and_right(row: Row) -> None:
    assert row.checked.all() == (row.size_bytes > 0)
    assert row.wrong.tolist() == [0 if row.size_bytes else -1] * row.wrong.size
    assert row.faults == []


def assert_bytes_went_over_the_wire(row: Row) -> None:
    for name, baseline in ((key.name, side) for key, side in row.sides.items()):
        assert (baseline.payload_bytes_sent == row.payload_bytes_sent).all()
        assert (baseline.payload_bytes_received == row.payload_bytes_received).all()
        assert (baseline.net_sent >= baseline.payload_bytes_sent).all(), name
        assert (baseline.net_received >= baseline.payload_bytes_received).all(), name
        if name.startswith("raw"):  # and not a byte of anything else
            assert (baseline.net_received == baseline.payload_bytes_received).all(), name


def assert_as_without_baselines(row: Row) -> None:
    """The plugin's own sockets carried its own payload once, whatever ran beside it."""
    headers = 256 * max(row.chunks, 1) * ITERS
    assert (row.net_sent >= row.payload_bytes_sent).all()
    assert (row.net_sent <= 1.2 * row.payload_bytes_sent + headers).all()


@pytest.mark.parametrize(
    ("pattern", "ranks", "against", "names", "options"),
    [
        variant("pair", 2, "raw", ONE_DIRECTION, ()),
        ("pair", 4, "raw,mpi", (*ONE_DIRECTION, "mpi"), ("-m", "4")),
        variant("pingpong", 2, "mpi,raw", ("mpi", *TWO_WAY), ("-z", "1")),
        variant("ring", 4, "raw,mpi", (*ONE_DIRECTION, "mpi"), ()),
        variant("mesh", 4, "raw,mpi", (*TWO_WAY, "mpi"), ()),
        variant("ring", 2, "raw,mpi", (*TWO_WAY, "mpi"), ("--memory", "emulated", "-m", "4")),
    ],
)
def test_every_side_of_a_row_moves_the_same_bytes_in_turn(
    pattern: str, ranks: int, against: str, names: tuple[str, ...], options: tuple[str, ...],
    place: Path,
) -> None:  # fmt: skip
    arguments = (pattern, *sizes(*SIZES), *options)
    result, found = measured(place, *arguments, ranks=ranks, against=against)
    assert [baseline.name for baseline in found.header.baselines] == list(names)
    assert {baseline.congestion_control for baseline in found.header.baselines} == {"cubic"}
    for baseline in found.header.baselines:
        assert baseline.streams == STREAMS[baseline.name]
        assert baseline.two_way == (
            baseline.name == "mpi" or (baseline.name != "raw" and "raw_2" in names)
        )
    assert [row.wrong for row in result.rows] == [0 if size else None for size in SIZES]
    for row in found.rows:
        assert {side.name for side in row.sides} == set(names)
        ordered = {side: row.sides[side] for side in map(SideKey.of_name, names)}
        row.sides = ordered  # HDF5 sorts names; turns go by the order of the header
        for side in (row, *ordered.values()):
            assert_every_sample_is_there(side, ranks)
            assert_checked_and_right(side)
        assert_turns_were_taken(row)
        assert_bytes_went_over_the_wire(row)
        assert_as_without_baselines(row)
    # A ratio with its interval for each baseline that was asked for, and for the best of raw.
    ratios = [word for word in result.rows[-1].ours if re.fullmatch(r"\d+\.\d{3}", word)]
    assert len(ratios) >= 3 * (1 + len(against.split(","))), result.text


@pytest.mark.variant
def test_peers_have_the_congestion_control_of_the_plugin(place: Path) -> None:
    result, found = measured(place, "ring", *sizes(4096), ranks=2, against="raw,mpi",
                             SOFTTCPX_CONGESTION="reno")  # fmt: skip
    assert {baseline.congestion_control for baseline in found.header.baselines} == {"reno"}
    assert "# Peer raw: plain TCP, 2 one-way streams, reno, send buffer 4 MiB" in result.out


@pytest.mark.variant
def test_unchecked_peers_claim_nothing(place: Path) -> None:
    result, found = measured(place, "ring", *sizes(4096), "-c", "0", ranks=2, against="raw,mpi")
    assert [row.wrong for row in result.rows] == [None]
    for side in (found.rows[0], *found.rows[0].sides.values()):
        assert_every_sample_is_there(side, 2)
        assert not side.checked.any()
        assert side.wrong.tolist() == [-1, -1]
    (names,) = re.findall("# WARNING +: not checked in every row, of the peers: (.+)", result.out)
    assert sorted(names.split(", ")) == sorted(side.name for side in found.rows[0].sides)


@pytest.mark.variant
def test_sides_that_wait_use_no_cpu_in_the_blocks_of_a_peer(place: Path) -> None:
    # Blocks of tens of milliseconds: what a thread costs that wakes at the end of each is lost in
    # them. It is CPU time, which no load of the machine adds to; a side that spun had all of a CPU,
    # and one that waits has had 2 % on a machine of 64.
    arguments = ["run", "pair", "--ranks", "2", "--plugin", "softtcpx", "--against", "raw,mpi",
                 "--sizes", "16M", "-n", "80", "-w", "1", "-c", "0", "--check-memory", "64M",
                 "--hdf5", "o.h5", "--spool", ".", *ONE_THREAD]  # fmt: skip
    result = run(tcpx_mpi(*arguments), place)
    assert result.code == 0, result.text
    found = read_run(str(place / "o.h5"))
    by_side = summarise_row(found.header, found.rows[0]).ratios
    ratios = {side.name: ratio for side, ratio in by_side.items()}
    assert set(ratios) == {*ONE_DIRECTION, "mpi"}
    assert {
        name: share for name, each in ratios.items() if not (share := each.idle_share) < 0.05
    } == {}


def test_a_peer_that_cannot_run_here_ends_all_ranks_before_anything_is_measured(
    place: Path,
) -> None:
    # The null plugin's device is no network interface, so that raw has no address to listen on.
    command = tcpx_mpi("run", "ring", "--ranks", "3", "--plugin", "null", "--against", "raw",
                       "--sizes", "4K", "--hdf5", "o.h5", "-J", "o.json",
                       "--spool", "spool")  # fmt: skip
    result = run(command, place)
    assert result.code == 4, result.text
    assert result.errors == ["raw peer: network interface null0 has no IP address to listen on"]
    assert not result.rows
    assert [path.name for path in place.rglob("*")] == ["spool"]


# --- A rank that stops in a baseline's block -----------------------------------------------------

LARGE, STALL_S = 1 << 20, 3
#: A short row, then one of seconds; without checks, so that nearly all of it is in blocks.
TWO_ROWS = ("--sizes", f"0,{LARGE}", "-n", "12000", "-w", "0", "-c", "0", "--check-memory", "256M",
            "--stall-timeout", str(STALL_S))  # fmt: skip
STANDS = r"^rank 0 on .*, row 1 \(1 MiB\)(, peer (\w+))?: (\d of \d flows unfinished)?"


def wait_for_the_next_block(place: Path) -> None:
    """Returns when rank 0 has put a block into its journal, which it does when one has ended."""
    (journal,) = (place / "spool").glob("*rank000000.journal")
    before, deadline = journal.stat().st_size, time.monotonic() + LIMIT_S
    while journal.stat().st_size == before:
        assert time.monotonic() < deadline, "no further block"
        time.sleep(0.02)  # seen too soon, the next one has not begun


def wait_for_a_block_of(place: Path, baseline: str) -> None:
    """Returns when rank 0's journal has a whole block of the baseline in row 1."""
    (journal,) = (place / "spool").glob("*rank000000.journal")
    deadline = time.monotonic() + LIMIT_S
    while True:
        row = read_journal(str(journal)).rows.get(1)
        if row is not None and any(side.name.startswith(baseline) for side in row.sides):
            return
        assert time.monotonic() < deadline, f"no block of {baseline}"
        time.sleep(0.02)  # a block takes longer


def stop_in_a_block_of(job: Job, place: Path, baseline: str) -> None:
    """Stops rank 1 in a block of the baseline, as rank 0 says, which then waits for it."""
    job.wait_for_row(0)
    wait_for_a_block_of(place, baseline)
    for _ in range(20):
        job.send_rank(1, signal.SIGSTOP)
        asked = job.lines_like(STANDS)
        job.send_rank(0, signal.SIGUSR1)
        try:
            line = job.wait_for_another(STANDS, asked, limit_s=STALL_S / 3)
        except AssertionError:  # between two blocks: it answers in the next one
            line = ""
        said = re.match(STANDS, line)
        if said is not None and (said[2] or "").startswith(baseline) and said[3]:
            return
        job.send_rank(1, signal.SIGCONT)
        job.wait_for_another(STANDS, asked)
        wait_for_the_next_block(place)
    raise AssertionError(f"never in a block of {baseline}")


@pytest.mark.parametrize("baseline", ["raw", variant("mpi")])
def test_a_rank_that_stops_in_a_block_of_a_peer_is_named_with_the_peer(
    baseline: str, place: Path
) -> None:
    command = tcpx_mpi("run", "ring", "--ranks", "2", "--plugin", "softtcpx", "--against", baseline,
                       *TWO_ROWS, "--hdf5", "o.h5", "--spool", "spool")  # fmt: skip
    with started(command, place) as job:
        stop_in_a_block_of(job, place, baseline)
        result = job.finish(LIMIT_S)
    assert result.code == 7, result.text
    assert len(result.errors) == 1, result.text
    assert re.match(
        rf"rank 1 on {PLACE} did not answer the roll call; rank 0 on {PLACE}, row 1 \(1 MiB\), "
        rf"peer {baseline}\w*: no progress for {STALL_S} s; waiting for rank 1( on {PLACE})?: "
        rf"(receive from|send to) rank 1 on {PLACE}, ",
        result.errors[0],
    ), result.text
    found = read_run(str(place / "o.h5"))
    assert not found.complete
    assert [row.size_bytes for row in found.rows] == [0]
    assert SideKey(baseline) in found.rows[0].sides
    assert found.fault is not None
    assert (found.fault.kind, found.fault.missing_ranks) == ("lost_rank", (1,))
    # What every side had done in that row is in the journals, and in the file that they make.
    journals = [str(path) for path in (place / "spool").iterdir()]
    (part,) = read_run(merge(str(place / "merged.h5"), journals, str(place / "o.h5"))).partial
    assert any(side.name.startswith(baseline) for side in part.sides)
    for side in (part, *part.sides.values()):
        assert side.samples[0]["iteration"].size > 0


# --- Two nodes ----------------------------------------------------------------------------------


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with cluster_or_skip() as made:
        yield made


def test_raw_goes_over_the_data_network_of_two_nodes(nodes: Cluster, place: Path) -> None:
    first = nodes.nodes[0]
    command = Launcher(nodes).command(
        "run", "ring", "--plugin", "softtcpx", *sizes(17, 100_003), "-n", str(ITERS),
        "-w", str(WARMUPS), "--against", "raw", "--check-memory", "16M",
        "--hdf5", f"{WORK}/o.h5", hosts=nodes.hostfile((1, 1)),
    )  # fmt: skip
    before = first.network_bytes()["eth1"]
    result = run(command, place)
    assert result.code == 0, result.text
    moved = first.network_bytes()["eth1"] - before
    found = read_run(str(first.file("o.h5")))
    assert {info.nic for info in found.header.ranks} == {"eth1"}
    payload = 0
    for row in found.rows:
        assert {side.name for side in row.sides} == set(TWO_WAY)
        for side in (row, *row.sides.values()):
            assert_every_sample_is_there(side, 2)
            assert_checked_and_right(side)
            payload += int(side.payload_bytes_sent[0] + side.payload_bytes_received[0])
        assert_bytes_went_over_the_wire(row)
    # What the plugin and all of raw's variants sent and received went by this node's data NIC.
    assert moved >= payload


@pytest.mark.parametrize("include", ["eth0", variant("eth1")])
def test_mpi_between_two_nodes_says_by_which_interface_it_went(
    include: str, nodes: Cluster, place: Path
) -> None:
    command = Launcher(nodes).command(
        "run", "ring", "--plugin", "softtcpx", *sizes(17), "-n", str(ITERS), "--against", "mpi",
        "--check-memory", "16M", "--hdf5", f"{WORK}/o.h5", hosts=nodes.hostfile((1, 1)),
    )  # fmt: skip
    at = command.index("btl_tcp_if_include") + 1
    command[at] = include
    result = run(command, place)
    assert result.code == 0, result.text
    found = read_run(str(nodes.nodes[0].file("o.h5")))
    assert [baseline.interfaces for baseline in found.header.baselines] == [include]
    assert f", cubic, over {include}\n" in result.out
    warning = "peer mpi went over eth0, the plugin over eth1: no ratio"
    assert (warning in result.out) == (include == "eth0")

"""The NCCL baseline on real runs: companions in the frame, turn by turn, and what they can die of.

Where there is no GPU sockets move its bytes (nccl_by_sockets.py); all else is as it is with one.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jobs import Result, run, tcpx_mpi
from nccl_by_sockets import FAULT_VARIABLE
from turns import assert_turns_were_taken
from variants import variant

from tcpx_mpi.baselines.nccl import BACKEND_VARIABLE
from tcpx_mpi.records import PHASES, Row, Run, SideKey, read_run

pytestmark = pytest.mark.multirank

#: 8 blocks of 2 and one of 1, after two warm-ups: groups that a companion has met by then.
ITERS, WARMUPS = 15, 2
SIZES = "0,17,100003"
#: A fault in the middle of the timed blocks of the first row that has bytes.
LATER = 9
RANK_0 = r"rank 0 on \S+ \(NIC \S+\)"
RANK_1 = r"rank 1 on \S+ \(NIC \S+\)"


def with_nccl(
    place: Path, *arguments: str, ranks: int, fault: str = "", backend: str = "nccl_by_sockets",
    against: str = "nccl",
) -> Result:  # fmt: skip
    # One companion a rank, but for tests of several.
    preset = () if "--nccl-preset" in arguments else ("--nccl-preset", "tuned")
    command = tcpx_mpi(
        "run", "--ranks", str(ranks), "--plugin", "softtcpx", "--against", against, *preset,
        "-n", str(ITERS), "-w", str(WARMUPS), "--check-memory", "8M",
        "--hdf5", "o.h5", "--spool", "spool", *arguments,
    )  # fmt: skip
    environ = {"PYTHONPATH": str(Path(__file__).parent), FAULT_VARIABLE: fault}
    return run(command, place, {**environ, BACKEND_VARIABLE: backend} if backend else environ)


def complete(result: Result, place: Path) -> Run:
    """The file of a run that succeeded, and left nothing behind."""
    assert result.code == 0, result.text
    assert not result.errors, result.text
    assert list((place / "spool").iterdir()) == [], "journals of a run that is whole"
    found = read_run(str(place / "o.h5"))
    assert found.complete
    return found


def assert_same_shape(row: Row, baseline: Row) -> None:
    for phase in PHASES:
        assert baseline.samples[phase].shape == row.samples[phase].shape
        assert ((baseline.samples[phase] >= 0) == (row.samples[phase] >= 0)).all(), phase
    assert (baseline.batches == row.batches).all()
    assert (baseline.receives == row.receives).all()
    assert (baseline.payload_bytes_sent == row.payload_bytes_sent).all()
    assert baseline.checked.all() == (row.size_bytes > 0)
    assert baseline.wrong.tolist() == row.wrong.tolist()
    assert (baseline.net_sent >= baseline.payload_bytes_sent).all()
    assert (baseline.net_received >= baseline.payload_bytes_received).all()
    assert (baseline.cpu_others_ns >= 0).all(), "the rank's own, which waited"
    if row.size_bytes:
        assert (baseline.cpu_user_ns + baseline.cpu_system_ns).min() > 0, "the companion's"
    # What the companions had of a CPU while the plugin ran, and the rank while they did.
    assert all(seen.waiting_cpu_ns >= 0 for seen in row.proof)


@pytest.mark.parametrize(
    ("pattern", "ranks", "options", "names"),
    [
        variant("pair", 2, (), ("nccl",)),
        variant("pingpong", 2, ("-z", "1"), ("nccl",)),
        variant("ring", 3, ("--memory", "emulated"), ("nccl",)),
        ("pair", 2, ("-m", "2", "--nccl-preset", "tuned,default"), ("nccl", "nccl_default")),
        variant("mesh", 3, ("-m", "2"), ("nccl",)),
    ],
)
def test_nccl_takes_turns_with_the_plugin_over_slots_of_its_own(
    pattern: str, ranks: int, options: tuple[str, ...], names: tuple[str, ...], place: Path
) -> None:
    result = with_nccl(place, pattern, "--sizes", SIZES, *options, ranks=ranks)
    found = complete(result, place)
    assert tuple(baseline.name for baseline in found.header.baselines) == names
    for baseline in found.header.baselines:
        assert (baseline.kind, baseline.own_process, baseline.congestion_control) == (
            "nccl",
            True,
            "cubic",
        )
        assert baseline.floor_gbps == 0, "known of H200s only"
    for row in found.rows:
        row.sides = {side: row.sides[side] for side in map(SideKey.of_name, names)}
        for peer_row in row.sides.values():
            assert_same_shape(row, peer_row)
        assert_turns_were_taken(row)
    assert "beside nccl" in result.out
    assert ("nccl at its best" in result.out) == (len(names) > 1)


@pytest.mark.variant
def test_the_header_says_what_nccl_was_given(place: Path) -> None:
    options = ("--sizes", "17", "--nccl-env", "NCCL_ALGO=Ring,Tree,NCCL_BUFFSIZE=77")
    found = complete(with_nccl(place, "ring", *options, ranks=2), place)
    (baseline,) = found.header.baselines
    assert baseline.description.startswith("sockets of Socket, preset tuned (")
    settings = re.search(r"\((.*)\), \d+ TCP sockets on rank 0$", baseline.description)
    assert settings is not None
    given = dict(each.split("=", 1) for each in settings[1].split())
    assert given["NCCL_NET_PLUGIN"] == "none"
    assert given["NCCL_SOCKET_IFNAME"] == f"={found.header.ranks[0].nic}"
    assert (given["NCCL_ALGO"], given["NCCL_BUFFSIZE"]) == ("Ring,Tree", "77")
    assert given["NCCL_SOCKET_NTHREADS"] == "4"


def test_wrong_bytes_of_nccl_are_found_and_are_its_own(place: Path) -> None:
    result = with_nccl(place, "pair", "--sizes", "4096", ranks=2, fault=f"wrong:1:{LATER}")
    assert result.code == 5, result.text
    assert "WARNING              : peer nccl delivered 1 wrong byte" in result.out
    (row,) = read_run(str(place / "o.h5")).rows
    assert row.wrong.tolist() == [0, 0]
    assert row.sides[SideKey("nccl")].wrong.tolist() == [0, 1]
    assert [row.wrong for row in result.rows] == [0]


@pytest.mark.parametrize("fault", [variant(""), f"wrong:1:{LATER}"])
def test_elements_of_a_program_are_checked_in_the_companion(fault: str, place: Path) -> None:
    options = ("-d", "bfloat16", "--sizes", "4096", "-r", "1")
    result = with_nccl(place, "gather", *options, ranks=2, fault=fault)
    assert result.code == (5 if fault else 0), result.text
    (row,) = read_run(str(place / "o.h5")).rows
    assert row.wrong.tolist() == [0, 0]
    beside = row.sides[SideKey("nccl")]
    assert beside.checked.all()
    assert beside.wrong.tolist() == [0, 1 if fault else 0]
    if fault:
        assert "bfloat16" in str(beside.faults)


@pytest.mark.parametrize(
    ("program", "options", "fault"),
    [
        variant("all_reduce", ("-o", "all"), ""),
        ("reduce_scatter", ("-o", "mulsum", "-d", "half", "-m", "2"), f"wrong:1:{LATER}"),
        variant("all_gather", ("-m", "2"), ""),
        variant("broadcast", ("-r", "all"), ""),
        variant("reduce", ("-r", "2", "-d", "f8e4m3"), ""),
    ],
)
def test_a_program_is_beside_nccls_own_collective(
    program: str, options: tuple[str, ...], fault: str, place: Path
) -> None:
    result = with_nccl(place, program, "--sizes", "4096", *options, ranks=3, fault=fault)
    assert result.code == (5 if fault else 0), result.text
    found = read_run(str(place / "o.h5"))
    called = {
        "all_reduce": "ncclAllReduce",
        "reduce_scatter": "ncclReduceScatter",
        "all_gather": "ncclAllGather",
        "broadcast": "ncclBroadcast",
        "reduce": "ncclReduce",
    }
    assert f", {called[program]}, " in found.header.baselines[0].description
    for row in found.rows:
        if row.redop == "avg":  # of three floats NCCL rounds elsewhere
            assert SideKey("nccl") not in row.sides
            continue
        beside = [row.sides[SideKey.of_name(side)] for side in ("nccl", "nccl_in_place")]
        assert all(side.checked.all() for side in beside)
        assert sum(side.wrong.sum() for side in beside) == (1 if fault else 0)
        assert row.wrong.sum() == row.sides[SideKey(place="in_place")].wrong.sum() == 0
        sides = ("nccl", "in_place", "nccl_in_place")
        row.sides = {side: row.sides[side] for side in map(SideKey.of_name, sides)}
        assert_turns_were_taken(row)
    if program == "all_reduce":
        assert len(found.rows) == 6
        assert "n/a for avg in floating point (NCCL divides before it adds" in result.out


@pytest.mark.variant
def test_a_companion_that_does_not_sleep_is_a_warning(place: Path) -> None:
    # Long enough on any machine: of less than 10 ms nothing is told.
    options = ("--sizes", "4M", "-n", "120", "--check-memory", "64M")
    result = with_nccl(place, "pair", *options, ranks=2, fault="restless:0:0")
    found = complete(result, place)
    seen = found.rows[0].proof
    assert seen[0].waiting_cpu_ns > 10 * seen[1].waiting_cpu_ns
    assert re.search(
        r"WARNING +: in the plugin's blocks processes of waiting peers had up to \d+(\.\d+)? % of "
        r"a CPU: the plugin was slowed",
        result.out,
    ), result.text


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("die:1", 13, rf"{RANK_1}, row 1 \(17 B\), peer nccl: the companion process \d+ was ended "
                      r"by SIGKILL; it said: killed on purpose"),
        variant("error:0", 13, rf"{RANK_0}, row 1 \(17 B\), peer nccl: ncclGroup: internal error"),
        ("hang:1", 6, r"rank [01] on \S+ \(NIC \S+\), row 1 \(17 B\), peer nccl: no progress for "
                      r"3 s; waiting for rank [01]: "),
    ],
    ids=["dies", "fails", "hangs"],
)  # fmt: skip
def test_a_companion_that_fails_ends_all_ranks_and_keeps_the_rows_before(
    fault: str, code: int, words: str, place: Path
) -> None:
    options = ("--sizes", SIZES, "--stall-timeout", "3")
    result = with_nccl(place, "ring", *options, ranks=2, fault=f"{fault}:{LATER}")
    assert result.code == code, result.text
    assert len(result.errors) == 1, result.text
    assert re.match(words, result.errors[0]), result.text
    assert "# kept: 1 row in o.h5" in result.err
    found = read_run(str(place / "o.h5"))
    assert not found.complete
    assert [row.size_bytes for row in found.rows] == [0]
    assert found.fault is not None
    assert found.fault.exit_code == code
    assert any("17 B" in text for text in found.missing), found.missing


@pytest.mark.parametrize(
    ("fault", "backend", "words"),
    [
        ("missing", "nccl_by_sockets", r"nccl peer, preset tuned: NCCL: needs what is not here: "
                                       r"install it"),
        variant("", "no_such_module", r".*the companion process \d+ has ended with exit code 1; it "
                                      r"said: ModuleNotFoundError: No module named "
                                      r"'no_such_module'"),
        variant("refused:1:0", "nccl_by_sockets", rf"{RANK_1}: nccl peer, preset tuned: "
                                                  r"ncclCommInitRank: invalid usage"),
    ],
    ids=["no NCCL", "no module", "refuses to connect"],
)  # fmt: skip
def test_nccl_that_cannot_run_here_ends_all_ranks_before_anything_is_measured(
    fault: str, backend: str, words: str, place: Path
) -> None:
    options = ("--sizes", "17", "--connect-timeout", "2")
    result = with_nccl(place, "ring", *options, ranks=2, fault=fault, backend=backend)
    assert result.code == 4, result.text
    assert len(result.errors) == 1, result.text
    assert re.match(words, result.errors[0]), result.text
    assert not result.rows
    assert [path.name for path in place.rglob("*")] == ["spool"]


@pytest.mark.parametrize(
    ("options", "against", "words"),
    [
        ((), "nccl", r"--against nccl needs the memory of GPUs: \S+ has no usable GPU \(.*\): "
                     r"start on machines that have one"),
        (("--memory", "host"), "nccl", r"--against nccl needs the memory of GPUs, and this run has "
                                       r"--memory host \(command line --memory\): use --memory "),
        variant((), "raw,nccl", r"--against raw moves host memory and nccl a GPU's: compare with "
                                r"them in two runs"),
    ],
    ids=["no GPU", "host memory", "beside raw"],
)  # fmt: skip
def test_nccl_without_the_memory_of_gpus_is_the_users_mistake(
    options: tuple[str, ...], against: str, words: str, place: Path
) -> None:
    options = ("--sizes", "17", *options)
    result = with_nccl(place, "ring", *options, ranks=2, backend="", against=against)
    assert result.code == 2, result.text
    assert len(result.errors) == 1, result.text
    assert re.match(words, result.errors[0]), result.text
    assert not result.rows
    assert [path.name for path in place.rglob("*")] == ["spool"]

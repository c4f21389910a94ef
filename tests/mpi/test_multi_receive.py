"""Several messages in one receive request (--multi-recv): over real sockets, and plugins that
mistake them for each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs import Result, run, tcpx_mpi
from refplugin_build import build
from variants import variant, variants_where

from tcpx_mpi.plugin.find import bundled_dir
from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

GROUPS = Path(__file__).parents[1] / "refplugin" / "groups.cc"
SOFTTCPX = Path(bundled_dir(), "libnccl-net-softtcpx.so")
DIRECT = {"SOFTTCPX_LIKE": "direct"}
SIZES = ("--sizes", "8,100001")
SHAPE = "batch=37,hidden=24,experts=24,topk=3,dispatch=1,combine=2"


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build(tmp_path_factory.mktemp("groups"), GROUPS))


def ran(place: Path, *command: str, plugin: str = "softtcpx", **variables: str) -> Result:
    # Small chunks: many groups.
    common = ["--plugin", plugin, "--chunk", "3001", "-n", "10", "--spool", "spool"]
    variables = {"GROUPS_REAL": str(SOFTTCPX), **DIRECT, **variables}
    if "--hdf5" not in command:
        common += ["--hdf5", "none"]
    return run(tcpx_mpi("run", *command, *common), place, variables)


def require_right(result: Result) -> None:
    assert result.code == 0, result.text
    assert not result.errors, result.text
    assert "# Out of bounds values : 0 OK" in result.out


def require_refusal(result: Result, place: Path, said: str) -> None:
    assert result.code == 2, result.text
    (error,) = set(result.errors)
    assert said in error
    assert list(place.glob("*.h5")) == []


def test_every_byte_is_right_and_the_run_says_how_many(place: Path) -> None:
    result = ran(
        place, "ring", "--ranks", "3", *SIZES, "--multi-recv", "8", "--hdf5", "o.h5", "-J", "o.json"
    )
    require_right(result)
    assert "window send 12 receive 16, 8 receives a request\n" in result.out
    header = read_run(str(place / "o.h5")).header
    assert header.plan.multi_recv == 8
    assert ("multi_recv", "8", "command line --multi-recv") in header.settings
    assert '"multi_recv"' in json.dumps(json.loads((place / "o.json").read_text()))


@pytest.mark.parametrize(("ranks", "arguments", "receives"), variants_where(
    lambda ranks, arguments, receives: (ranks, arguments[0], receives)
    != (4, "pair", "2"),
    ((*run_of, receives) for receives in ("2", "4", "8") for run_of in (
        (2, ["alltoall", "--memory", "emulated", "--sizes", "96,100008"]),
        (4, ["pair", *SIZES, "--progress-threads", "2", "-z", "1"]),
        (3, ["alltoall", "--sizes", "96,99984", "--memory", "emulated"]),
        (4, ["all_reduce", "--sizes", "1K,100000", "--memory", "emulated"]),
        (4, ["alltoall", "--sizes", "0,96,100000", "--against", "raw"]),
        (2, ["pingpong", *SIZES, "--window-send", "8", "--window-recv", "8"]),
    )),
))  # fmt: skip
def test_so_it_is_of_any_pattern(
    place: Path, ranks: int, arguments: list[str], receives: str
) -> None:
    require_right(ran(place, *arguments, "--ranks", str(ranks), "--multi-recv", receives))


def test_so_it_is_where_iterations_differ(place: Path) -> None:
    options = ["--moe", SHAPE, "--skew", "zipf", "-w", "2", "--ranks", "3", "--multi-recv", "8"]
    require_right(ran(place, "moe", *options))


def test_what_is_hidden_until_it_is_flushed_is_whole_or_found(place: Path) -> None:
    hidden = {"SOFTTCPX_TRAP_HIDDEN": "1", "NCCL_NET_FORCE_FLUSH": "1"}
    pair = ["pair", "--ranks", "2", "--memory", "emulated", *SIZES, "--multi-recv", "8"]
    require_right(ran(place, *pair, **hidden))
    result = ran(place, *pair, "--flush", "never", **hidden)
    assert result.code == 5, result.text
    assert "not flushed (--flush never)" in result.text


@pytest.mark.parametrize("abi", [6, 12, *(
    pytest.param(abi, marks=pytest.mark.variant) for abi in (7, 8, 9, 10, 11)
)])  # fmt: skip
def test_so_it_is_by_each_version_of_the_table(place: Path, abi: int) -> None:
    require_right(
        ran(place, "ring", "--ranks", "2", *SIZES, "--multi-recv", "4", "--abi", str(abi))
    )


def test_a_plugin_that_looks_at_the_receives_in_another_order_is_lawful(
    place: Path, groups: str
) -> None:
    options = ["ring", "--ranks", "2", *SIZES, "--multi-recv", "8"]
    require_right(ran(place, *options, plugin=groups, GROUPS_DO="reversed"))


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("tags", "the plugin reports "),
        ("untold", ""),
        variant("sizes", "the plugin reports "),
        variant("room", "the plugin reports "),
        ("spills", ""),
    ],
)
def test_a_plugin_that_mistakes_one_message_for_another_is_found(
    place: Path, groups: str, does: str, said: str
) -> None:
    options = ["ring", "--ranks", "2", *SIZES, "--multi-recv", "4"]
    result = ran(place, *options, plugin=groups, GROUPS_DO=does)
    assert result.code == 5, result.text
    assert said in result.text
    if not said:
        assert sum(row.wrong or 0 for row in result.rows) > 0, result.text


@pytest.mark.parametrize(
    ("variables", "remedy"),
    [
        ({"SOFTTCPX_MAX_RECVS": "1"}, "(1): leave it out, or use another plugin"),
        ({"SOFTTCPX_MAX_RECVS": "3"}, "(3): use 3 or less"),
        pytest.param({"SOFTTCPX_LIKE": ""}, "(1): leave it out", marks=pytest.mark.variant),
    ],
)
def test_more_than_the_plugin_takes_is_one_line(
    place: Path, variables: dict[str, str], remedy: str
) -> None:
    result = ran(place, "ring", "--ranks", "2", *SIZES, "--multi-recv", "4", "--hdf5", "o.h5",
                 **variables)  # fmt: skip
    require_refusal(
        result, place, f"--multi-recv (4) is larger than maxRecvs of softtcpx_v7 {remedy}"
    )

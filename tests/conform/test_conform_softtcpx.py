"""softtcpx keeps the contract in each version; what is said of it is one golden table."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import verdicts
from conform_command import conform
from ends import OWNERS
from variants import variant, variants_where

from tcpx_mpi.plugin.find import SOFTTCPX_ABI, bundled_dir


@pytest.mark.parametrize(("memory", "abi"), [
    ("host", "7"),
    ("emulated", "12"),  # the newest version has every clause
    *(variant(memory, "all") for memory in ("host", "emulated")),
])  # fmt: skip
def test_softtcpx_passes_in_each_version(memory: str, abi: str, tmp_path: Path) -> None:
    which = ("--abi", abi, "--memory", memory, "--quick")
    found = conform(tmp_path, "softtcpx", *which, NCCL_SOCKET_IFNAME="=lo")  # one device
    assert (found.code, found.err) == (0, ""), found.out
    versions = verdicts.VERSIONS[memory] if abi == "all" else [int(abi)]
    assert found.document == {
        "format": 1, "memory": memory,
        "versions": [expected(memory, abi) for abi in versions],
    }  # fmt: skip


def expected(memory: str, abi: int) -> dict[str, Any]:
    """What the table says of a version, as the JSON has it."""
    name = f"libnccl-net-softtcpx{'' if abi == SOFTTCPX_ABI else f'-v{abi}'}.so"
    return {
        "abi": abi,
        "plugin": f"softtcpx_v{abi}",
        "path": str(Path(bundled_dir()) / name),
        "clauses": verdicts.expected(memory, abi, quick=True),
    }


@pytest.mark.parametrize(
    "environ",
    variants_where(lambda environ: environ not in (OWNERS[0], OWNERS[6]), OWNERS),
    ids=lambda environ: ",".join(environ.values()),
)
def test_whoever_moves_the_bytes_says_the_same(environ: dict[str, str], tmp_path: Path) -> None:
    found = conform(tmp_path, "softtcpx", NCCL_SOCKET_IFNAME="=lo", **environ)
    assert (found.code, found.err) == (0, ""), found.out
    (version,) = found.document["versions"]
    assert version["clauses"] == verdicts.expected("host", SOFTTCPX_ABI, quick=False)


@pytest.mark.parametrize(("memory", "abi", "variables"), [
    ("emulated", "12", {}),
    ("emulated", "6", {"SOFTTCPX_TRAP_HIDDEN": "1", "NCCL_NET_FORCE_FLUSH": "1"}),
    ("host", "6", {}),
])  # fmt: skip
def test_softtcpx_passes_as_a_plugin_that_puts_data_in_place(
    memory: str, abi: str, variables: dict[str, str], tmp_path: Path
) -> None:
    which = ("--abi", abi, "--memory", memory, "--quick")
    direct = {"NCCL_SOCKET_IFNAME": "=lo", "SOFTTCPX_LIKE": "direct", **variables}
    found = conform(tmp_path, "softtcpx", *which, **direct)
    assert (found.code, found.err) == (0, ""), found.out
    verdicts = found.verdicts()
    assert "fail" not in verdicts.values(), found.out
    for clause in ("message", "flush", "grouped", "tags"):
        assert verdicts[clause] == "pass" or (clause == "flush" and memory == "host"), found.out


def test_what_is_hidden_and_asks_for_no_flush_is_wrong_bytes(tmp_path: Path) -> None:
    found = conform(tmp_path, "softtcpx", "--abi", "7", "--memory", "emulated", "--only", "message",
                    SOFTTCPX_LIKE="direct", SOFTTCPX_TRAP_HIDDEN="1")  # fmt: skip
    assert found.verdicts()["message"] == "fail", found.out
    assert "bytes of a message are wrong" in found.reasons()["message"]


def test_junit_has_a_case_for_each_clause(tmp_path: Path) -> None:
    junit = tmp_path / "conform.xml"
    found = conform(tmp_path, "softtcpx", "--only", "dma-buf", "--junit", str(junit))
    assert found.code == 0, found.err
    (suite,) = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "0", "1")
    cases = {case.get("name"): [child.get("message") for child in case] for case in suite}
    assert cases["devices"] == []
    assert cases["dma-buf"] == ["not offered: regMrDmaBuf is NULL"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("softtcpx", "--only", "nothing"), 2, "--only: nothing is no clause; `tcpx-mpi"),
        (("./nowhere.so",), 3, "./nowhere.so): no such file"),
        ((), 2, "conform needs the PLUGIN"),
        (("softtcpx", "--abi", "6", "--memory", "emulated"), 2, "of softtcpx has not: use host"),
        (("tcpx",), 3, "TCPX is asked for by --plugin tcpx but is not in"),
        (("softtcpx", "--expect", "nowhere.toml"), 2, "nowhere.toml: no such file"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_line(
    arguments: tuple[str, ...], code: int, text: str, tmp_path: Path
) -> None:
    found = conform(tmp_path, *arguments)
    assert found.code == code, found.err
    assert text in found.err
    assert len(found.err.splitlines()) == 1


def test_a_plugin_without_an_interface_does_not_start(tmp_path: Path) -> None:
    found = conform(tmp_path, "softtcpx", NCCL_SOCKET_IFNAME="=none0")
    assert found.code == 4
    assert found.verdicts()["devices"] == "fail"
    assert found.reasons()["listen"] == "needs devices"
    assert "softtcpx_v7: its table of v7 does not start (devices): it has 0 devices" in found.err

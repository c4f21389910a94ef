"""How a node is set: what is read, and how many nodes are told as one text."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import machines
import pytest

from tcpx_mpi.machine import ethtool
from tcpx_mpi.machine.ethtool import Driver, attributes_of, read_driver
from tcpx_mpi.machine.topology import Tree, open_tree, this_machine
from tcpx_mpi.machine.tuning import of_all_nodes, read_tuning

CPU = "/sys/devices/system/cpu"
FILES = {
    f"{CPU}/cpufreq/policy0/scaling_governor": "performance",
    f"{CPU}/cpufreq/policy1/scaling_governor": "powersave",
    f"{CPU}/cpufreq/boost": "1",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "/proc/sys/kernel/numa_balancing": "1",
    "/proc/sys/net/core/rmem_max": "212992",
    "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456",
}


def tree_of(place: Path, files: dict[str, str]) -> Tree:
    path = place / "machine.json"
    path.write_text(json.dumps({"files": files, "links": {}}))
    return open_tree(str(path))


def test_what_an_operator_sets_is_read(tmp_path: Path) -> None:
    found = read_tuning(tree_of(tmp_path, FILES), machines.flat(2), [])
    assert found == {
        "cpu_governor": "performance, powersave",
        "cpu_turbo": "on",
        "transparent_huge_pages": "madvise",
        "cgroup_cpus": "no limit",
        "cgroup_memory": "no limit",
        "kernel.numa_balancing": "1",
        "net.core.rmem_max": "212992",
        "net.ipv4.tcp_rmem": "4096 131072 6291456",
    }


@pytest.mark.parametrize(
    ("file", "text", "turbo"),
    [
        ("intel_pstate/no_turbo", "1", "off"),
        ("intel_pstate/no_turbo", "0", "on"),
        ("cpufreq/boost", "0", "off"),
    ],
)
def test_turbo_goes_by_two_names(file: str, text: str, turbo: str, tmp_path: Path) -> None:
    found = read_tuning(tree_of(tmp_path, {f"{CPU}/{file}": text}), machines.flat(1), [])
    assert found["cpu_turbo"] == turbo


def test_nics_that_are_alike_are_told_once_and_others_by_name(tmp_path: Path) -> None:
    drivers = {
        "eth0": Driver("gve", "1.4", "rx 1024, tx 1024", "GRO, TSO", "on"),
        "eth1": Driver("gve", "1.4", "rx 512, tx 1024", "GRO, TSO", ""),
    }
    found = read_tuning(tree_of(tmp_path, {}), machines.flat(1, nics=2), [*drivers, "gone"],
                        drivers.__getitem__)  # fmt: skip
    assert {name: text for name, text in found.items() if name.startswith("nic_")} == {
        "nic_driver": "gve",
        "nic_firmware": "1.4",
        "nic_rings": "eth0 rx 1024, tx 1024; eth1 rx 512, tx 1024",
        "nic_offloads": "GRO, TSO",
        "nic_header_split": "eth0 on; eth1 unknown",
    }


def test_many_nodes_are_told_as_one_text_for_each_setting() -> None:
    like = {"a": "1"}
    assert of_all_nodes({"n0": like, "n1": like}) == {"a": "1"}
    assert of_all_nodes({"n0": like, "n1": {"a": "2"}, "n2": like}) == {"a": "1; 2 on n1"}
    assert of_all_nodes({"n0": like, "n1": {}}) == {"a": "1 on n0; unknown on n1"}
    assert of_all_nodes({}) == {}


# --- This machine ---------------------------------------------------------------------------------


def test_the_kernel_tells_of_a_real_interface_and_nothing_of_one_that_is_not_there() -> None:
    assert {"GSO", "TSO"} <= set(read_driver("lo").offloads.split(", "))
    assert read_driver("no-such-nic") == Driver()


def test_this_machine_is_read_without_any_right() -> None:
    found = read_tuning(Tree(), this_machine(), ["lo"])
    assert len(found["net.ipv4.tcp_rmem"].split()) == 3


def test_the_layouts_are_those_of_the_kernels_structures() -> None:
    """By linux/ethtool.h: what a number or a text of each field becomes."""
    # cmd, the most of rx, rx_mini, rx_jumbo and tx, then what each of these has.
    assert ethtool._RINGS.unpack(struct.pack("=9I", *range(9))) == (5, 8)
    texts = [name.encode() for name in ("driver", "version", "firmware", "bus", "erom")]
    raw = struct.pack("=I32s32s32s32s32s12sIIIII", 3, *texts, b"", 7, 8, 9, 10, 11)
    _, driver, version, firmware, flags = ethtool._DRIVER.unpack(raw)
    found = [each.rstrip(b"\0") for each in (driver, version, firmware)]
    assert (found, flags) == ([b"driver", b"version", b"firmware"], 7)


def test_attributes_that_are_cut_end_the_list() -> None:
    whole = b"\x05\0\x01\0a\0\0\0" + b"\x06\0\x02\x80bc\0\0"
    assert list(attributes_of(whole)) == [(1, b"a"), (2, b"bc")]
    assert list(attributes_of(whole[:9])) == [(1, b"a")]
    assert list(attributes_of(b"\0\0\x01\0")) == []

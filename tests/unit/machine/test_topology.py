"""What is read of a machine: recorded ones, this one, and ones that lack nearly everything."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
from pathlib import Path

import machines
import pytest
from machines import GOLDEN, MACHINES, record_of

from tcpx_mpi import cli
from tcpx_mpi.cpu_lists import cpu_list_text, parse_cpu_list, ranges_of
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.topology import (
    Distance,
    Gpu,
    Tree,
    gpu_facts,
    node_names,
    open_tree,
    pci_address,
    read_topology,
)
from tcpx_mpi.machine.topology import tree as topology_tree
from tcpx_mpi.machine.topology.gpus import find_gpus, gpus_on_pci, visible_gpus
from tcpx_mpi.machine.topology.host import last_level_cache_bytes
from tcpx_mpi.machine.topology.pci import distance, pci_function
from tcpx_mpi.machine.topology.picture import picture_lines


def test_nodes_of_one_host_name_get_one_each_and_others_keep_theirs() -> None:
    assert node_names(["a", "b", "a", "c"]) == ["a#0", "b", "a#2", "c"]
    assert node_names(["a"]) == ["a"]


def test_the_last_level_cache_is_the_largest(tmp_path: Path) -> None:
    for number, size in enumerate(("48K", "32M", "1024K", "")):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(size)
    assert last_level_cache_bytes(str(tmp_path)) == 32 << 20
    assert last_level_cache_bytes(str(tmp_path / "none")) == 0


# --- Recorded machines --------------------------------------------------------------------------


@pytest.mark.parametrize("name", MACHINES)
def test_the_picture_of_a_recorded_machine(name: str) -> None:
    picture = "\n".join(picture_lines(machines.machine(name))) + "\n"
    assert picture == (GOLDEN / f"{name}.picture.txt").read_text()


def test_the_synthetic_machines_say_so() -> None:
    for name in ("a3-highgpu-8g", "gpu-server"):
        assert machines.machine(name).about.startswith("synthetic")


def test_a_real_machine_with_gpus_has_them_beside_its_nic() -> None:
    found = machines.machine("two-h200")
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA H200"] * 2
    assert [gpu.numa_node for gpu in found.gpus] == [-1, -1], "as virtual machines say"
    (eth0,) = [nic for nic in found.nics if nic.name == "eth0"]
    assert {found.distance(gpu, eth0)[0].name for gpu in found.gpus} == {"SAME_ROOT"}


def test_an_a3_machine_has_the_pairs_of_gpus_and_nics_that_are_known_of_it() -> None:
    a3 = machines.machine("a3-highgpu-8g")
    nearest = {
        gpu.index: min(a3.nics, key=lambda nic, gpu=gpu: a3.distance(gpu, nic)[0]).name
        for gpu in a3.gpus
    }
    assert nearest == {0: "eth1", 1: "eth1", 2: "eth2", 3: "eth2",
                       4: "eth3", 5: "eth3", 6: "eth4", 7: "eth4"}  # fmt: skip
    assert [cpu_list_text(node.cpus) for node in a3.numa_nodes] == [
        "0-51,104-155",
        "52-103,156-207",
    ]
    assert {gpu.numa_node for gpu in a3.gpus[:4]} == {0}
    assert {gpu.numa_node for gpu in a3.gpus[4:]} == {1}


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_recorded_is_read_back_the_same(name: str, tmp_path: Path) -> None:
    tree = open_tree(record_of(name))
    first = read_topology(tree)
    copy = tmp_path / "copy"
    tree.record(str(copy), "again", gpu_facts(first.gpus))
    again = read_topology(open_tree(str(copy)))
    assert dataclasses.replace(again, about=first.about) == first
    assert again.about == "again"


def test_this_machine_is_read_and_its_record_read_back(tmp_path: Path) -> None:
    tree = Tree()
    here = read_topology(tree)
    assert set(here.limits.affinity) == os.sched_getaffinity(0)
    assert "lo" in [nic.name for nic in here.nics if nic.loopback]
    tree.record(str(tmp_path / "copy"), "", gpu_facts(here.gpus))
    assert read_topology(open_tree(str(tmp_path / "copy"))) == here


def test_a_record_has_of_long_files_only_the_lines_that_are_read(tmp_path: Path) -> None:
    tree = Tree()
    here = read_topology(tree)
    tree.record(str(tmp_path / "copy"), "", gpu_facts(here.gpus))
    recorded = json.loads((tmp_path / "copy").read_text())["files"]
    (line,) = recorded["/proc/self/status"].splitlines()
    assert line.startswith("Cpus_allowed_list:")


# --- Machines that lack things ------------------------------------------------------------------


def tree_of(
    place: Path,
    files: dict[str, str],
    links: dict[str, str] | None = None,
    gpus: object = (),
) -> Tree:
    files = {"proc/self/status": "Cpus_allowed_list:\t0-3", **files}
    document = {
        "gpus": gpus,
        "files": {f"/{path}": text for path, text in files.items()},
        "links": {f"/{path}": target for path, target in (links or {}).items()},
    }
    file = place / "machine.json"
    place.mkdir(exist_ok=True)
    file.write_text(json.dumps(document))
    return open_tree(str(file))


def test_an_affinity_mask_alone_is_a_machine(tmp_path: Path) -> None:
    bare = read_topology(tree_of(tmp_path, {}))
    assert bare.cpus == (0, 1, 2, 3)
    assert bare.cores == ((0,), (1,), (2,), (3,))
    assert (bare.numa_nodes, bare.gpus, bare.nics) == ((), (), ())
    assert (bare.limits.cpuset, bare.limits.cpu_quota, bare.limits.memory_bytes) == ((), 0.0, 0)
    assert "NUMA nodes: unknown, GPUs: 0, NICs: 0" in picture_lines(bare)[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ('{"files": {"/a": 1}, "links": {}}', '"files" is no table'),
        ('{"files": {}}', '"links" is no table'),
        ('{"files": {}, "links": {}}', "has no /proc/self/status"),
    ],
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "machine.json").write_text(text)
    with pytest.raises(UsageError, match=f"{why}.*topo --record"):
        read_topology(open_tree(str(tmp_path / "machine.json")))


@pytest.mark.parametrize("gpus", [{"a": 1}, [{"name": "x"}], [1], 7])
def test_an_unreadable_list_of_gpus_is_refused(tmp_path: Path, gpus: object) -> None:
    with pytest.raises(UsageError, match='"gpus" is no list of GPUs'):
        read_topology(tree_of(tmp_path, {}, gpus=gpus))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, 0.0),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        # The limit of an outer group holds as well, and the tightest counts.
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "max 100000",
          "sys/fs/cgroup/a/cpu.max": "300000 100000", "sys/fs/cgroup/cpu.max": "800000 100000"}, 3),
        # A container sees its own group as the root.
        ({"proc/self/cgroup": "0::/pod/x", "sys/fs/cgroup/cpu.max": "200000 100000"}, 2.0),
        ({"proc/self/cgroup": "4:cpu,cpuacct:/a", "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us":
          "250000", "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, 2.5),
        ({"proc/self/cgroup": "4:cpu:/a", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1",
          "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000"}, 0.0),
    ],
)  # fmt: skip
def test_the_limit_of_cpu_time_is_that_of_the_cgroups(
    tmp_path: Path, files: dict[str, str], expected: float
) -> None:
    assert read_topology(tree_of(tmp_path, files)).limits.cpu_quota == expected


def test_memory_and_cpus_of_both_versions_of_cgroups(tmp_path: Path) -> None:
    two = tree_of(tmp_path / "2", {"proc/self/cgroup": "0::/a/b",
                                   "sys/fs/cgroup/a/b/memory.max": "max",
                                   "sys/fs/cgroup/a/memory.max": "8192",
                                   "sys/fs/cgroup/memory.max": "4096",
                                   "sys/fs/cgroup/a/b/cpuset.cpus.effective": "1-2"})  # fmt: skip
    assert read_topology(two).limits.memory_bytes == 4096
    assert read_topology(two).limits.cpuset == (1, 2)
    one = tree_of(tmp_path / "1", {
        "proc/self/cgroup": "3:cpuset:/\n4:memory:/a",
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "8192",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": str((1 << 63) - 4096),
        "sys/fs/cgroup/cpuset/cpuset.effective_cpus": "0,3",
    })  # fmt: skip
    assert read_topology(one).limits.memory_bytes == 8192
    assert read_topology(one).limits.cpuset == (0, 3)


def test_a_line_rate_is_that_of_a_link_whatever_a_plugin_makes_up() -> None:
    made_up = 10_000
    real = machines.nic("eth0", speed_mbps=200_000, pci="0000:06:00.0")
    silent = dataclasses.replace(real, name="eth1", speed_mbps=-1)
    veth = machines.nic("eth2", speed_mbps=10_000)
    machine = dataclasses.replace(machines.flat(2), nics=(real, silent, veth))
    rates = {name: machine.line_rate_mbps(name, made_up) for name in ("eth0", "eth1", "eth2")}
    assert rates == {"eth0": 200_000, "eth1": -1, "eth2": -1}
    # A device of a plugin that is no interface of the kernel's.
    assert machine.line_rate_mbps("mlx5_0", 400_000) == 400_000


def test_a_nic_without_a_numa_node_is_on_the_only_one_and_else_unknown() -> None:
    laptop, server = machines.machine("laptop"), machines.machine("gpu-server")
    eth0 = laptop.nic("eth0")
    eno1 = server.nic("eno1")
    assert eth0 is not None
    assert eno1 is not None
    assert (eth0.numa_node, laptop.numa_of(eth0.numa_node)) == (-1, 0)
    assert (eno1.numa_node, server.numa_of(eno1.numa_node)) == (-1, -1)
    assert any("TCPX reads as node 1" in line for line in picture_lines(server))
    assert not any("TCPX reads" in line for line in picture_lines(laptop))


def test_up_is_what_the_flags_and_the_state_say(tmp_path: Path) -> None:
    states = {"a": ("up", "0x1003"), "b": ("down", "0x1003"), "c": ("unknown", "0x9"),
              "d": ("up", "0x1002"), "e": ("lowerlayerdown", "0x1003")}  # fmt: skip
    files, links = {}, {}
    for name, (state, flags) in states.items():
        files[f"sys/devices/virtual/net/{name}/operstate"] = state
        files[f"sys/devices/virtual/net/{name}/flags"] = flags
        links[f"sys/class/net/{name}"] = f"../../devices/virtual/net/{name}"
    files["sys/class/net/bonding_masters"] = "bond0"
    found = read_topology(tree_of(tmp_path, files, links)).nics
    assert {nic.name: nic.up for nic in found} == {
        "a": True, "b": False, "c": True, "d": False, "e": False,
    }  # fmt: skip


def test_interrupts_go_where_they_are_allowed_to_if_the_kernel_does_not_say_where(
    tmp_path: Path,
) -> None:
    device = "sys/devices/pci0000:00/0000:00:05.0"
    tree = tree_of(
        tmp_path,
        {
            f"{device}/net/a/operstate": "up",
            f"{device}/msi_irqs/31": "msi",
            f"{device}/msi_irqs/32": "msi",
            "proc/irq/31/smp_affinity_list": "2-3",
            "proc/irq/32/smp_affinity_list": "0-3",
            "proc/irq/32/effective_affinity_list": "1",
        },
        {"sys/class/net/a": f"../../{device.removeprefix('sys/')}/net/a"},
    )
    (nic,) = read_topology(tree).nics
    assert nic.irq_cpus == (1, 2, 3)
    assert nic.pci == "0000:00:05.0"


def test_a_line_that_is_read_twice_is_recorded_once(tmp_path: Path) -> None:
    tree = tree_of(tmp_path / "a", {"proc/x": "A: 1\nB: 2\nC: 3"})
    for name in ("A", "C", "A"):
        tree.field("/proc/x", name)
    tree.record(str(tmp_path / "b"), "", [])
    assert json.loads((tmp_path / "b").read_text())["files"] == {"/proc/x": "A: 1\nC: 3"}


# --- PCI ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:04:00.0", "0000:04:00.0"),
        ("00000000:8B:00.0", "0000:8b:00.0"),
        ("0000:8B:00.0", "0000:8b:00.0"),
        (" 8B:00.1\n", "0000:8b:00.1"),
        ("0000:8b:00", "0000:8b:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("virtio0", ""),
        ("", ""),
    ],
)
def test_a_pci_address_has_one_spelling(text: str, address: str) -> None:
    assert pci_address(text) == address


def test_what_lies_below_a_pci_function_is_no_place_on_the_bus() -> None:
    assert pci_function("/sys/devices/pci0000:00/0000:00:03.0/virtio2/net/eth0") == (
        "/sys/devices/pci0000:00/0000:00:03.0"
    )
    assert pci_function("/sys/devices/virtual/net/lo") == ""


ROOT = "/sys/devices/pci0000:10"


@pytest.mark.parametrize(
    ("path", "numa_node", "expected"),
    [
        (f"{ROOT}/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:14:00.0", 0, Distance.SAME_SWITCH),
        (f"{ROOT}/0000:10:02.0/0000:18:00.0", 0, Distance.SAME_ROOT),
        ("/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0", 0, Distance.SAME_NUMA),
        ("/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0", 1, Distance.ACROSS),
        ("/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0", -1, Distance.UNKNOWN),
        ("", -1, Distance.UNKNOWN),
        ("", 0, Distance.SAME_NUMA),
    ],
)
def test_distance_goes_by_the_pci_path_then_by_the_numa_node(
    path: str, numa_node: int, expected: Distance
) -> None:
    gpu = f"{ROOT}/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0"
    assert distance(gpu, 0, path, numa_node)[0] == expected
    assert distance(path, numa_node, gpu, 0)[0] == expected


def test_the_nearer_of_two_switches_has_more_bridges_in_common() -> None:
    gpu = f"{ROOT}/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0"
    near = distance(gpu, 0, f"{ROOT}/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:14:00.0", 0)
    far = distance(gpu, 0, f"{ROOT}/0000:10:01.0/0000:15:00.0", 0)
    assert near[0] == far[0] == Distance.SAME_SWITCH
    assert near[1] > far[1]


# --- CPU lists ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cpus"), [("", ()), ("3", (3,)), ("0-2,8", (0, 1, 2, 8)), ("8, 0-1,1", (0, 1, 8))]
)
def test_cpu_lists_are_read_as_the_kernel_writes_them(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == cpus
    assert parse_cpu_list(cpu_list_text(cpus)) == cpus


@pytest.mark.parametrize("text", ["x", "1-", "-1", "3-1", "0-99999999", "1.5"])
def test_other_texts_are_no_cpu_lists(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_cpu_list(text)


def test_ranges_are_runs_of_neighbours() -> None:
    assert ranges_of((5, 1, 2, 3, 3)) == [(1, 3), (5, 5)]


# --- GPUs ---------------------------------------------------------------------------------------

FOUR = [Gpu(index, "G", f"GPU-{index}abc", f"0000:0{index}:00.0") for index in range(4)]


@pytest.mark.parametrize(
    ("visible", "buses"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("2,0", [2, 0]),
        ("GPU-3,GPU-1a", [3, 1]),
        ("1,9,2", [1]),  # up to the first that is none
        ("-1", []),
        ("GPU-", []),  # not one GPU only
        ("1,1", [1]),
    ],
)
def test_the_visible_gpus_are_those_that_cuda_would_show(
    visible: str | None, buses: list[int]
) -> None:
    found = visible_gpus(FOUR, visible)
    assert [gpu.pci for gpu in found] == [f"0000:0{bus}:00.0" for bus in buses]
    assert [gpu.index for gpu in found] == list(range(len(buses)))


def test_without_a_driver_there_are_no_gpus() -> None:
    assert find_gpus(None, nvml="libno-such-nvml.so", cuda="libno-such-cuda.so") == []


# --- The command --------------------------------------------------------------------------------

Captured = pytest.CaptureFixture[str]


def test_topo_shows_this_machine_and_a_place(capsys: Captured) -> None:
    assert cli.main(["topo"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    assert output.startswith("CPUs: ")
    assert "affinity mask: CPUs" in output


def test_topo_records_a_file_that_it_reads_again(capsys: Captured, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    assert cli.main(["topo", "--record", copy]) == 0
    assert capsys.readouterr().out.startswith("# wrote ")
    assert cli.main(["topo", "--from", copy, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["about"].startswith("recorded by tcpx-mpi")
    assert set(document["cpus"]) >= os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("number", "code", "what_to_do"),
    [(errno.ENOSPC, 8, ""), (errno.EACCES, 2, "; name a file that you may write")],
)
def test_a_record_that_cannot_be_written_leaves_no_file(
    capsys: Captured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    code: int,
    what_to_do: str,
) -> None:
    class Full(io.TextIOWrapper):
        def write(self, text: str) -> int:
            super().write(text[:4])
            raise OSError(number, os.strerror(number))

    def on_a_full_disk(file: str, mode: str) -> Full:
        return Full(open(file, f"{mode}b"))

    monkeypatch.setattr(topology_tree, "open", on_a_full_disk, raising=False)
    copy = tmp_path / "copy"
    assert cli.main(["topo", "--record", str(copy)]) == code
    said = f"--record ({copy}) cannot be written: {os.strerror(number)}{what_to_do}\n"
    assert capsys.readouterr().err == f"tcpx-mpi: error: {said}"
    assert not copy.exists()


def test_topo_says_what_a_profile_of_another_machine_lacks(capsys: Captured) -> None:
    for name, lacking in ("gpu-server", "eth0"), ("a3-highgpu-8g", "eth5"):
        assert cli.main(["topo", "--from", record_of(name), "--profile", "a3-megagpu-8g"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert any(f" has no NIC {lacking}: a run refuses profile" in line for line in lines)
        assert not any("no NIC is up" in line for line in lines)


def test_topo_in_json_has_distances_and_places(capsys: Captured) -> None:
    assert cli.main(["topo", "--json", "--from", record_of("a3-highgpu-8g")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"gpu": 5, "nic": "eth3", "distance": "same switch"} in document["distances"]
    assert [place["nic"] for place in document["placement"]][2:4] == ["eth2", "eth2"]
    assert document["profile"] == "profile a3-highgpu-8g (auto)"


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["--ranks", "0"], "--ranks (0)"),
        (["--ranks", "x"], "--ranks (x)"),
        (["--from", "/no/such"], "/no/such"),
        (["--record", "/proc/x"], "--record (/proc/x) cannot be written"),
        (["--record", record_of("laptop")], "exists: name a new file"),
        (["--profile", "a4"], "a3-highgpu-8g"),
    ],
)
def test_bad_input_of_topo_is_one_line(capsys: Captured, argv: list[str], part: str) -> None:
    assert cli.main(["topo", *argv]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert part in errors


def test_gpus_on_pci_are_those_of_nvidia_that_display_or_compute(tmp_path: Path) -> None:
    devices = {
        "0000:81:00.0": ("0x10de", "0x030200"),
        "0000:04:00.0": ("0x10de", "0x030000"),
        "0000:02:00.0": ("0x10de", "0x068000"),  # a bridge
        "0000:01:00.0": ("0x1ae0", "0x020000"),
    }
    for name, (vendor, kind) in devices.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    (tmp_path / "gone").mkdir()
    assert gpus_on_pci(str(tmp_path)) == ["0000:04:00.0", "0000:81:00.0"]
    assert gpus_on_pci(str(tmp_path / "nothing")) == []

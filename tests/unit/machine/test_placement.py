"""Where ranks go: on recorded machines as kept, on made-up ones by rule, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import machines
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import FIXTURES, GOLDEN

from tcpx_mpi.cli.topo import placed, placement_lines
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine import profiles
from tcpx_mpi.machine.cpu_bindings import bindings_in
from tcpx_mpi.machine.placement import (
    Node,
    Placement,
    RankPlace,
    Request,
    channels_within,
    place_node,
)
from tcpx_mpi.machine.placement_file import read_placement
from tcpx_mpi.machine.topology import Gpu, NumaNode, Topology

SPLIT = FIXTURES / "split.toml"

# --- Recorded machines --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("golden", "name", "ranks", "profile"),
    [
        ("a3-highgpu-8g", "a3-highgpu-8g", 8, "auto"),
        ("a3-highgpu-8g-no-profile", "a3-highgpu-8g", 8, "none"),
        ("gpu-server", "gpu-server", 4, "auto"),
        ("gpu-server-split", "gpu-server", 4, str(SPLIT)),
        ("gpu-server-slots", "gpu-server", 8, "auto"),
        ("laptop", "laptop", 2, "auto"),
        ("two-h200", "two-h200", 2, "auto"),
        ("laptop-oversubscribed", "laptop", 4, "auto"),
    ],
)
def test_the_places_of_ranks_on_a_recorded_machine(
    golden: str, name: str, ranks: int, profile: str
) -> None:
    topology = machines.machine(name)
    found = profiles.find_profile(profile, topology)
    places = placed(topology, found, ranks, name, {})
    lines = [line for line in placement_lines(places, found) if not line.startswith("#")]
    assert "\n".join(lines) + "\n" == (GOLDEN / f"{golden}.placement.txt").read_text()


def test_distance_alone_gives_the_pairs_of_the_a3_profile() -> None:
    a3 = machines.machine("a3-highgpu-8g")
    by_profile = placed(a3, profiles.find_profile("auto", a3), 8, "a3", {})
    by_distance = placed(a3, None, 8, "a3", {})
    assert [each.nic for each in by_distance] == [each.nic for each in by_profile]
    assert [each.nic for each in by_distance] == [
        "eth1", "eth1", "eth2", "eth2", "eth3", "eth3", "eth4", "eth4",
    ]  # fmt: skip


@settings(max_examples=24)
@given(ranks=st.integers(1, 46))
def test_progress_threads_share_no_core_with_each_other_or_the_plugin(ranks: int) -> None:
    a3 = machines.machine("a3-highgpu-8g")
    places = placed(a3, profiles.find_profile("auto", a3), ranks, "a3", {})
    core_of = {cpu: core for core in a3.cores for cpu in core}
    cores = [core_of[place.progress_cpu] for place in places]
    assert len(set(cores)) == ranks
    for place, core in zip(places, cores, strict=True):
        assert place.plugin_cpus
        assert not set(core) & {cpu for other in places for cpu in other.plugin_cpus}
        assert place.progress_cpu in a3.cpus_of(place.numa_node)
        assert place.memory_node == place.numa_node


def test_where_there_are_more_ranks_than_free_cores_siblings_are_used_before_the_plugins() -> None:
    a3 = machines.machine("a3-highgpu-8g")
    places = placed(a3, profiles.find_profile("auto", a3), 64, "a3", {})
    cpus = {place.progress_cpu for place in places}
    assert len(cpus) == 64
    assert not cpus & {cpu for place in places for cpu in place.plugin_cpus}


# --- Made-up machines ---------------------------------------------------------------------------


def places(
    topology: Topology, ranks: int, request: Request | None = None, **node: object
) -> list[Placement]:
    devices = [(nic.name, nic.pci) for nic in topology.nics if nic.up]
    facts = Node(**{"host": "here", "topology": topology, "devices": devices, **node})  # type: ignore[arg-type]  # as the class says
    return place_node(facts, [topology.limits.affinity] * ranks, request or Request())


@given(cpus=st.integers(1, 16), nics=st.integers(1, 4), ranks=st.integers(1, 24))
def test_ranks_share_the_nics_of_a_plain_machine_in_turn_and_have_a_cpu_each_if_they_can(
    cpus: int, nics: int, ranks: int
) -> None:
    found = places(machines.flat(cpus, nics), ranks)
    assert [each.device for each in found] == [rank % nics for rank in range(ranks)]
    progress = [each.progress_cpu for each in found]
    if ranks > cpus:
        assert progress == [-1] * ranks
    else:
        assert len(set(progress)) == ranks
        assert set(progress) <= set(range(cpus))
    assert {each.oversubscribed for each in found} == {ranks > cpus}
    # One NUMA node leaves nothing to bind to.
    assert {each.memory_node for each in found} == {-1}
    assert {each.gpu for each in found} == {-1}


def test_with_as_many_ranks_as_cpus_rank_i_has_the_ith_cpu() -> None:
    assert [each.progress_cpu for each in places(machines.flat(4), 4)] == [0, 1, 2, 3]


def test_cpu_0_and_the_cpus_of_interrupts_are_left_alone_where_there_are_others() -> None:
    topology = machines.flat(8)
    nics = (dataclasses.replace(topology.nics[0], irq_cpus=(2, 3)),)
    found = places(dataclasses.replace(topology, nics=nics), 2)
    assert [each.progress_cpu for each in found] == [1, 5]


def test_a_limit_of_cpu_time_below_the_ranks_is_as_few_cpus() -> None:
    topology = machines.flat(8)
    limits = dataclasses.replace(topology.limits, cpu_quota=2.0)
    limited = dataclasses.replace(topology, limits=limits)
    assert {each.oversubscribed for each in places(limited, 4)} == {True}
    assert {each.oversubscribed for each in places(limited, 2)} == {False}


def test_ranks_that_a_launcher_bound_apart_keep_to_their_own_cpus() -> None:
    topology = machines.flat(8)
    node = Node("here", topology, [("eth0", "")])
    found = place_node(node, [(0, 1, 2, 3), (4, 5, 6, 7)], Request())
    assert found[0].progress_cpu in (0, 1, 2, 3)
    assert found[1].progress_cpu in (4, 5, 6, 7)
    assert not found[0].oversubscribed
    bound = place_node(node, [(0,), (1,)], Request())
    assert [each.progress_cpu for each in bound] == [0, 1]
    # The plugin's threads are bound to that one CPU as well.
    assert bound[0].oversubscribed


@given(cpus=st.integers(1, 16), ranks=st.integers(1, 24))
def test_threads_that_the_plugin_binds_to_none_leave_progress_threads_alone(
    cpus: int, ranks: int
) -> None:
    found = places(machines.flat(cpus), ranks)
    left = set(range(cpus)) - {each.progress_cpu for each in found}
    wanted = tuple(sorted(left)) if len(left) >= ranks else ()
    assert {each.unbound_cpus for each in found} == {wanted}


def test_each_rank_keeps_to_its_own_cpus_for_threads_that_the_plugin_binds_to_none() -> None:
    node = Node("here", machines.flat(8), [("eth0", "")])
    found = place_node(node, [(0, 1, 2, 3), (4, 5, 6, 7)], Request())
    assert [each.progress_cpu for each in found] == [1, 4]
    assert [each.unbound_cpus for each in found] == [(0, 2, 3), (5, 6, 7)]
    bound = place_node(node, [(0,), (1,)], Request())
    assert [each.unbound_cpus for each in bound] == [(), ()]
    # Of three ranks two share CPUs, and with them those that are left.
    three = place_node(node, [(0, 1, 2), (0, 1, 2), (4, 5, 6, 7)], Request())
    assert [each.unbound_cpus for each in three[:2]] == [(), ()]
    assert set(three[2].unbound_cpus) == {4, 5, 6, 7} - {three[2].progress_cpu}


def test_a_device_that_the_machine_does_not_know_is_found_by_its_pci_address() -> None:
    a3 = machines.machine("a3-highgpu-8g")
    devices = [("mlx5_0", "0000:78:00.0"), ("mlx5_1", "0000:48:00.0")]
    found = places(a3, 8, devices=devices)
    assert [each.nic for each in found] == ["mlx5_1"] * 2 + ["mlx5_1", "mlx5_1"] + ["mlx5_0"] * 4


def test_the_numa_node_is_the_nics_before_the_gpus() -> None:
    server = machines.machine("gpu-server")
    (one,) = places(server, 1, Request(nics=("ens2f0",), gpus=(0,)))
    assert (one.gpu, one.nic, one.numa_node, one.memory_node) == (0, "ens2f0", 1, 1)
    assert one.progress_cpu in server.cpus_of(1)


def test_of_two_switches_above_a_gpu_the_nic_behind_the_nearer_is_taken() -> None:
    above = "/sys/devices/pci0000:10/0000:10:01.0"
    plain = machines.flat(4, nics=0, gpus=1)
    topology = dataclasses.replace(
        plain,
        gpus=(dataclasses.replace(plain.gpus[0], path=f"{above}/0000:11:00.0/0000:12:00.0"),),
        nics=(
            machines.nic("far", path=f"{above}/0000:15:00.0", pci="0000:15:00.0"),
            machines.nic("near", path=f"{above}/0000:11:00.0/0000:13:00.0", pci="0000:13:00.0"),
        ),
    )
    (one,) = places(topology, 1)
    assert one.nic == "near"


def test_ranks_that_may_be_anywhere_leave_the_cpus_of_others_alone() -> None:
    plain = machines.flat(8)
    topology = dataclasses.replace(
        plain,
        cores=((0, 4), (1, 5), (2, 6), (3, 7)),
        numa_nodes=(NumaNode(0, (0, 1, 4, 5), 1 << 30), NumaNode(1, (2, 3, 6, 7), 1 << 30)),
        nics=(machines.nic("a", numa_node=0), machines.nic("b")),
    )
    found = places(topology, 8, Request(nics=("a", "b", "b", "b")))
    assert len({each.progress_cpu for each in found}) == 8
    near = [each for each in found if each.nic == "a"]
    assert all(each.progress_cpu in (0, 1, 4, 5) for each in near)
    assert all(each.memory_node == topology.numa_of_cpu(each.progress_cpu) for each in found)


# --- What is asked for --------------------------------------------------------------------------


def test_lists_go_by_local_rank_in_turn() -> None:
    topology = machines.flat(8, nics=3, gpus=4)
    found = places(
        topology, 4, Request(nics=("eth2", "eth0"), gpus=(3, 2, 1, 0), cpus=(1, 2, 5, 6))
    )
    assert [each.nic for each in found] == ["eth2", "eth0", "eth2", "eth0"]
    assert [each.gpu for each in found] == [3, 2, 1, 0]
    assert [each.progress_cpu for each in found] == [1, 2, 5, 6]


def test_one_gpu_a_rank_unless_they_are_to_be_shared_or_left_out() -> None:
    topology = machines.flat(8, gpus=2)
    assert [each.gpu for each in places(topology, 2)] == [0, 1]
    assert [each.gpu for each in places(topology, 4)] == [-1] * 4
    assert [each.gpu for each in places(topology, 4, Request(share_gpu=True))] == [0, 1, 0, 1]
    assert [each.gpu for each in places(topology, 2, Request(gpus=()))] == [-1, -1]
    shared = Request(gpus=(1,), share_gpu=True)
    assert [each.gpu for each in places(topology, 2, shared)] == [1, 1]


def test_a_placement_file_wins_for_its_ranks_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "places.toml"
    path.write_text(
        '[[rank]]\nlocal_rank = 1\nnic = "eth1"\ncpu = 7\nmemory_node = 0\n'
        "[[rank]]\nlocal_rank = 0\ngpu = 1\n"
    )
    topology = machines.flat(8, nics=2, gpus=2)
    request = Request(
        nics=("eth0",), gpus=(), rank_places=read_placement(str(path)), places_from="FILE"
    )
    first, second = places(topology, 2, request)
    assert (first.gpu, first.nic) == (1, "eth0")
    assert (second.gpu, second.nic, second.progress_cpu, second.memory_node) == (-1, "eth1", 7, 0)


@pytest.mark.parametrize(
    ("ranks", "request_", "parts"),
    [
        (1, Request(nics=("eth9",)), ["--nic", "here has no NIC eth9", "eth0, eth1, off"]),
        (1, Request(nics=("off",)), ["--nic", "NIC off of here is down"]),
        (1, Request(nics=("eth1",)), ["does not offer NIC eth1", "only eth0"]),
        (1, Request(gpus=(0,)), ["--gpu", "here has none"]),
        (2, Request(cpus=(1,)), ["--cpus has 1 CPU for 2 ranks of here"]),
        (1, Request(cpus=(8,)), ["--cpus: CPU 8 is outside of the affinity mask", "(0-3)"]),
        (
            1,
            Request(rank_places={0: RankPlace(cpu=9)}, places_from="F"),
            ["F: CPU 9", "affinity mask"],
        ),
        (
            2,
            Request(rank_places={0: RankPlace(cpu=2), 1: RankPlace(cpu=2)}, places_from="F"),
            ["F: two", "CPU 2"],
        ),
        (
            1,
            Request(rank_places={0: RankPlace(nic="eth9")}, places_from="F"),
            ["F: here has no NIC eth9"],
        ),
        (
            1,
            Request(rank_places={0: RankPlace(gpu=0)}, places_from="F"),
            ["F: GPU 0", "here has none"],
        ),
        (
            1,
            Request(rank_places={0: RankPlace(memory_node=3)}, places_from="F"),
            ["F: here has no NUMA node 3"],
        ),
    ],
)
def test_what_a_node_cannot_give_is_refused_by_name(
    ranks: int, request_: Request, parts: list[str]
) -> None:
    plain = machines.flat(4, nics=2)
    off = machines.nic("off", up=False, state="down")
    topology = dataclasses.replace(plain, nics=(*plain.nics, off))
    with pytest.raises(UsageError) as caught:
        places(topology, ranks, request_, devices=[("eth0", "")])
    text = str(caught.value)
    assert "\n" not in text
    assert all(part in text for part in parts), text


def test_ranks_that_need_gpus_are_no_slots() -> None:
    topology = machines.flat(4, gpus=2)
    assert [each.gpu for each in places(topology, 3, Request())] == [-1, -1, -1]
    with pytest.raises(
        UsageError, match=r"local ranks 0 and 2 of here would both have GPU 0.*--sh"
    ):
        places(topology, 3, Request(needs_gpus=True))
    shared = places(topology, 3, Request(needs_gpus=True, share_gpu=True))
    assert [(each.gpu, each.gpu_sharers) for each in shared] == [(0, 2), (1, 1), (0, 2)]


# --- GPUs that a launcher gave to each rank ------------------------------------------------------


def apart(topology: Topology, *shown: tuple[int, ...]) -> list[list[Gpu]]:
    """What ranks see of these GPUs of the machine: each numbers its own from 0."""
    return [
        [dataclasses.replace(topology.gpus[one], index=n) for n, one in enumerate(each)]
        for each in shown
    ]


def placed_apart(
    topology: Topology, *shown: tuple[int, ...], request: Request | None = None, **node: object
) -> list[Placement]:
    devices = [(nic.name, nic.pci) for nic in topology.nics if nic.up]
    facts = Node("here", dataclasses.replace(topology, gpus=()), devices, **node)  # type: ignore[arg-type]  # as the class says
    masks = [topology.limits.affinity] * len(shown)
    return place_node(facts, masks, request or Request(), apart(topology, *shown))


def test_ranks_that_see_one_gpu_each_have_it_and_the_nic_near_it() -> None:
    a3 = machines.machine("a3-highgpu-8g")
    profile = profiles.find_profile("auto", a3)
    assert profile is not None
    together = places(a3, 8, nic_of_gpu=profile.nic_of_gpu)
    for more in ({"nic_of_gpu": profile.nic_of_gpu}, {}):
        alone = placed_apart(a3, *((number,) for number in range(8)), **more)
        assert [each.gpu for each in alone] == [0] * 8
        for one, other in zip(alone, together, strict=True):
            assert dataclasses.replace(one, gpu=other.gpu, device=0) == dataclasses.replace(
                other, device=0
            )
            assert one.gpu_sharers == 1


def test_the_profiles_nic_is_that_of_the_gpu_however_a_rank_numbers_it() -> None:
    topology = dataclasses.replace(
        machines.flat(8, nics=4, gpus=4), pci_gpus=tuple(f"0000:0{n}:00.0" for n in range(4))
    )
    nics = ("eth3", "eth2", "eth1", "eth0")
    found = placed_apart(topology, *[(3, 2, 1, 0)] * 4, nic_of_gpu=nics)
    assert [each.gpu for each in found] == [0, 1, 2, 3]
    assert [each.nic for each in found] == ["eth0", "eth1", "eth2", "eth3"]


def test_ranks_that_see_the_same_gpus_have_one_each() -> None:
    topology = machines.flat(8, gpus=4)
    found = placed_apart(topology, (2, 3), (0, 1), (3, 2), (0, 1))
    assert [each.gpu_pci[6] for each in found] == ["2", "0", "3", "1"]
    assert [each.gpu for each in found] == [0, 0, 0, 1]
    shared = placed_apart(topology, (2, 3), (2, 3), (3, 2), request=Request(share_gpu=True))
    assert [each.gpu_pci[6] for each in shared] == ["2", "3", "3"]
    assert [each.gpu_sharers for each in shared] == [1, 2, 2]
    too_few = placed_apart(topology, (2, 3), (2, 3), (3, 2))
    assert [each.gpu for each in too_few] == [-1] * 3


def test_what_ranks_ask_for_is_by_their_own_numbers() -> None:
    topology = machines.flat(8, gpus=4)
    zero = placed_apart(topology, (3,), (1,), request=Request(gpus=(0,)))
    assert [each.gpu_pci for each in zero] == ["0000:03:00.0", "0000:01:00.0"]
    with pytest.raises(UsageError, match=r"--gpu: here has no GPU 1: it has GPU 0"):
        placed_apart(topology, (3,), (1,), request=Request(gpus=(0, 1)))


def test_a_gpu_that_ranks_know_by_two_numbers_is_one() -> None:
    topology = machines.flat(8, gpus=4)
    asked = Request(gpus=(0, 1))
    with pytest.raises(UsageError, match=r"local ranks 0 and 1 of here would both have GPU 1"):
        placed_apart(topology, (2, 3), (3, 2), request=asked)
    shared = dataclasses.replace(asked, share_gpu=True)
    found = placed_apart(topology, (2, 3), (3, 2), request=shared)
    assert [(each.gpu, each.gpu_pci, each.gpu_sharers) for each in found] == [
        (0, "0000:02:00.0", 2), (1, "0000:02:00.0", 2),
    ]  # fmt: skip


def test_where_one_rank_sees_no_gpu_all_are_slots() -> None:
    found = placed_apart(machines.flat(8, gpus=4), (0,), ())
    assert [each.gpu for each in found] == [-1, -1]


def test_a_gpu_twice_or_unknown_is_refused_where_there_are_gpus() -> None:
    topology = machines.flat(4, gpus=2)
    with pytest.raises(
        UsageError, match=r"local ranks 0 and 2 of here would both have GPU 0.*--sh"
    ):
        places(topology, 3, Request(gpus=(0, 1)))
    with pytest.raises(UsageError, match=r"--gpu: here has no GPU 7: it has GPUs 0-1"):
        places(topology, 1, Request(gpus=(7,)))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is no list of ranks"),
        ("x = 1", "is no list of ranks"),
        ("[[rank]]\nnic = 'eth1'", "rank entry 1 has no local_rank"),
        ("[[rank]]\nlocal_rank = 0\n[[rank]]\nlocal_rank = 0", "local_rank 0 is there twice"),
        ("[[rank]]\nlocal_rank = 0\ncpus = 1", "cpus is unknown"),
        ("[[rank]]\nlocal_rank = -1", "local_rank (-1)"),
        ("[[rank]]\nlocal_rank = true", "local_rank (True)"),
        ("[[rank]]\nlocal_rank = 0\nnic = 1", "nic (1) is not a name"),
        ("[[rank]]\nlocal_rank = 0\nnic = ''", "nic () is not a name"),
        ("[[rank]", "is no TOML"),
    ],
)
def test_a_bad_placement_file_is_named_with_its_entry(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "places.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_placement(str(path))
    assert str(path) in str(caught.value)
    assert part in str(caught.value)


# --- Connections --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "sockets", "wanted", "channels"),
    [
        (2, 2, 2, 2),
        (4, 1, 2, 2),
        (5, 1, 2, 1),
        (4, 2, 2, 1),
        (8, 8, 2, 1),
        (1, 1, 2, 2),
        (1, 8, 4, 1),
    ],
)
def test_channels_keep_a_nic_to_8_connections_where_they_can(
    ranks: int, sockets: int, wanted: int, channels: int
) -> None:
    assert channels_within(ranks, sockets, wanted) == channels


def test_an_a3_machine_has_the_default_channels_with_its_profile() -> None:
    a3 = machines.machine("a3-highgpu-8g")
    profile = profiles.find_profile("auto", a3)
    assert profile is not None
    environ = dict(profile.variables(a3))
    assert channels_within(2, int(environ["NCCL_NSOCKS_PERTHREAD"]), 2) == 2
    assert set(bindings_in(environ)) == {"eth1", "eth2", "eth3", "eth4"}

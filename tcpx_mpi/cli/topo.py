"""`tcpx-mpi topo`: what this machine has, as text, JSON or a record, and where ranks would go."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import click

import tcpx_mpi
from tcpx_mpi.cpu_lists import cpu_list_text
from tcpx_mpi.errors import UsageError
from tcpx_mpi.folded import show
from tcpx_mpi.machine import profiles
from tcpx_mpi.machine.cpu_bindings import bindings_in
from tcpx_mpi.machine.placement import Node, Placement, Request, place_node
from tcpx_mpi.machine.topology import Topology, gpu_facts, open_tree, read_topology
from tcpx_mpi.machine.topology.picture import aligned, picture_lines
from tcpx_mpi.units import counted

#: No node runs more.
_MOST_RANKS = 4096


@click.command("topo")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--record", metavar="FILE", help="Write what was read into a new file.")
@click.option("--from", "recorded", metavar="FILE", help="Read such a file, not this machine.")
@click.option("--ranks", metavar="N", help="Ranks of the node to place (one a GPU, or 1).")
@click.option("--profile", default=profiles.AUTO, metavar="PROFILE", help="As for `run`.")
def command(
    as_json: bool, record: str | None, recorded: str | None, ranks: str | None, profile: str
) -> int:
    """Shows GPUs, NICs, NUMA nodes, CPUs and limits, and the place of each rank.

    Placement here goes by the NICs that are up and by the profile; a run knows the plugin's devices
    and the other options.
    """
    tree = open_tree(recorded)
    topology = read_topology(tree)
    if record is not None:
        about = f"recorded by tcpx-mpi {tcpx_mpi.__version__}"
        files = tree.record(record, about, gpu_facts(topology.gpus))
        print(f"# wrote the text of {files} files and links to {record}")
        return 0
    name = recorded or socket.gethostname()
    found = profiles.find_profile(profile, topology)
    places = placed(topology, found, _count(ranks, topology), name, os.environ)
    if as_json:
        print(json.dumps(document(topology, places, found), indent=2))
    else:
        lacks = found.lacks(topology) if found is not None else ""
        said = [f"# {name} has {lacks}: a run refuses {found.source}"] if found and lacks else []
        show([*picture_lines(topology), "", *said, *placement_lines(places, found)])
    return 0


def placed(
    topology: Topology,
    profile: profiles.Profile | None,
    ranks: int,
    host: str,
    environ: Mapping[str, str],
) -> list[Placement]:
    """The places of the ranks of this node; none if no NIC is up."""
    variables = profiles.environment_of(profile, topology, environ)
    node = Node(
        host=host,
        topology=topology,
        devices=_devices(topology, profile),
        bindings=bindings_in({**environ, **{name: value for name, value, _ in variables}}),
        nic_of_gpu=profile.nic_of_gpu if profile is not None else (),
    )
    masks = [topology.limits.affinity or topology.cpus] * ranks
    return place_node(node, masks, Request()) if node.devices else []


def _devices(topology: Topology, profile: profiles.Profile | None) -> list[tuple[str, str]]:
    """The NICs that a plugin would offer: a profile's, else those that are up, loopback last."""
    up = [nic for nic in topology.nics if nic.up]
    if profile is not None:
        up = [nic for nic in up if nic.name in profile.data_nics]
    outside = [nic for nic in up if not nic.loopback]
    return [(nic.name, nic.pci) for nic in outside or up]


def placement_lines(places: Sequence[Placement], profile: profiles.Profile | None) -> list[str]:
    """A line a rank."""
    if not places:
        return ["# no NIC for data is up: no place for a rank"]
    source = profile.source if profile is not None else "no profile"
    lines = [f"# {counted(len(places), 'rank')}, {source}"]
    table = [("rank", "GPU", "NIC", "NUMA", "progress CPU", "plugin CPUs", "memory node")]
    for place in places:
        numbers = (place.gpu, place.numa_node, place.progress_cpu, place.memory_node)
        gpu, numa, cpu, memory = (str(number) if number >= 0 else "-" for number in numbers)
        plugin = cpu_list_text(place.plugin_cpus) or "-"
        table.append((str(place.local_rank), gpu, place.nic, numa, cpu, plugin, memory))
    return lines + aligned(table)


def document(
    topology: Topology, places: Sequence[Placement], profile: profiles.Profile | None
) -> dict[str, Any]:
    """The same for programs. -1 stands for unknown, as in the file of a run."""
    distances = [
        {"gpu": gpu.index, "nic": nic.name, "distance": str(topology.distance(gpu, nic)[0])}
        for gpu in topology.gpus
        for nic in topology.nics
    ]
    return {
        **dataclasses.asdict(topology),
        "distances": distances,
        "profile": profile.source if profile is not None else None,
        "placement": [dataclasses.asdict(place) for place in places],
    }


def _count(text: str | None, topology: Topology) -> int:
    if text is None:
        return max(len(topology.gpus), 1)
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_RANKS:
        raise UsageError(f"--ranks ({text}) is no number of ranks from 1 to {_MOST_RANKS}")
    return int(text)

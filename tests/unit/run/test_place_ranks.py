"""From settings to a rank's place: channels that fit, requests, and memory that is really bound."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import invented
import pytest

from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.machine.placement import Node, RankPlace, Request
from tcpx_mpi.machine.topology import Gpu, read_host, this_machine
from tcpx_mpi.records import SetupTimes
from tcpx_mpi.run import place_ranks
from tcpx_mpi.run.metadata import connections
from tcpx_mpi.run.place_ranks import choose_gpus, fitted, place_at, request_of
from tcpx_mpi.world import World


def settings(pattern: str = "pair", **given: str) -> Settings:
    return load_settings({"pattern": pattern, **given}, {})


# --- Channels -----------------------------------------------------------------------------------


def test_only_the_default_channels_of_pair_are_made_to_fit() -> None:
    assert fitted(settings(), ranks_a_nic=4, sockets=1).channels == 2
    fewer = fitted(settings(), ranks_a_nic=4, sockets=2)
    assert fewer.channels == 1
    assert fewer.sources["channels"] == "default with 4 ranks a NIC"
    assert fitted(settings(channels="4"), ranks_a_nic=8, sockets=8).channels == 4
    assert fitted(settings("ring"), ranks_a_nic=8, sockets=8).channels == 2


def test_connections_between_nodes_are_counted_on_the_busiest_nic_both_ways() -> None:
    ranks = [invented.rank_info(rank) for rank in range(4)]
    assert ranks[0].node == ranks[1].node != ranks[2].node
    # Of each rank: 2 connects to the other node; rank 1 accepts 3 more from there.
    rows = [(rank, "connect", 3 - rank, 0, channel, 1) for rank in range(4) for channel in (0, 1)]
    rows += [(1, "accept", 2, 0, channel, 1) for channel in range(3)]
    rows += [(2, "regMr", -1, 0, 0, 1), (2, "listen", 1, 0, 0, 1)]
    # Many within a node, which go by no NIC.
    rows += [(0, "connect", 1, 0, channel, 1) for channel in range(9)]
    found = connections(ranks, SetupTimes.from_rows(rows), sockets=2)
    assert found == {"connections_a_nic": "10", "busiest_nic": "eth2 of host0"}


def test_a_run_on_one_node_has_no_connections_on_a_nic() -> None:
    ranks = [invented.rank_info(rank) for rank in (0, 1)]
    setup = SetupTimes.from_rows([(0, "connect", 1, 0, 0, 1), (1, "accept", 0, 0, 0, 1)])
    assert connections(ranks, setup, sockets=1) == {}


# --- Requests -----------------------------------------------------------------------------------


def test_a_request_is_what_the_settings_say(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text("[[rank]]\nlocal_rank = 2\ncpu = 5\n")
    asked = settings(nic="eth1, eth2", gpu="3,1", share_gpu="1", cpus="9,4-5", placement=str(path))
    assert request_of(asked) == Request(
        nics=("eth1", "eth2"), gpus=(3, 1), share_gpu=True, cpus=(4, 5, 9),
        rank_places={2: RankPlace(cpu=5)}, places_from=f"--placement {path}",
    )  # fmt: skip
    plain = request_of(settings())
    assert (plain.nics, plain.gpus, plain.cpus, plain.rank_places) == ((), None, (), {})
    assert request_of(settings(gpu="none")).gpus == ()


def test_files_and_gpus_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.toml"
    path.write_text("[[rank]]\nlocal_rank = 0\ngpu = 5\n")
    gpus = tuple(Gpu(number, "H100", f"uuid-{number}", "") for number in (4, 5))
    hosts = [dataclasses.replace(read_host(), cpus=(0, 1), gpus=gpus)] * 2
    world = cast(World, SimpleNamespace(rank=1, agree=lambda *_: contextlib.nullcontext()))
    chosen = choose_gpus(world, settings(memory="host", gpu="4", placement=str(path)), hosts)
    assert [gpu.index if gpu else -1 for gpu in chosen.gpus] == [5, 4]
    assert chosen.workers == 0
    path.unlink()
    monkeypatch.setattr(place_ranks, "rank_gpus", None)
    node = Node("host", this_machine(), [("eth0", "")])
    assert place_at(1, hosts, node, chosen.request, chosen.gpus).gpu == 4


# --- Memory -------------------------------------------------------------------------------------

CODE = """
from tcpx_mpi import _native
bound = _native.bind_memory_to(0)
print(bound, _native.bind_memory_to(1023), _native.bind_memory_to(-1), _native.bind_memory_to(4096))
buffer = _native.SlotBuffer(64 << 20)
maps = open("/proc/self/numa_maps")
print(sum(" bind:0 " in x and "N0=" in x and "file=" not in x for x in maps))
"""


def test_memory_touched_after_the_binding_lies_on_the_node_and_no_other_node_is_taken() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    if done.stdout.startswith("False"):
        pytest.skip("needs mempolicy: the kernel lets no process bind its memory here")
    if "numa_maps" in done.stderr:
        pytest.skip("needs mempolicy: the kernel does not tell where memory lies")
    answers, bound = done.stdout.splitlines()
    assert answers == "True False False False"
    assert int(bound) > 0

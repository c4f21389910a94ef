"""Where a rank's work goes: device and CPU. Pure: decides from facts, touches nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """One rank's place. `progress_cpu` is -1 where the thread is left to the scheduler."""

    local_rank: int
    local_ranks: int
    device: int
    progress_cpu: int
    oversubscribed: bool


def place(rank: int, nodes: list[str], cpus: tuple[int, ...], devices: int) -> Placement:
    """The place of `rank`, given the node of every rank and this rank's CPUs and net devices.

    Ranks of a node share its net devices in turn. A rank's progress thread has a CPU of its own
    where every rank of the node can have one besides the CPU that the plugin's own threads and the
    rest of the system run on; else nothing is pinned and idle loops yield at once.
    """
    local = [other for other, node in enumerate(nodes) if node == nodes[rank]]
    local_rank = local.index(rank)
    oversubscribed = len(local) > len(cpus)
    room = len(cpus) >= len(local)
    return Placement(
        local_rank=local_rank,
        local_ranks=len(local),
        device=local_rank % devices,
        progress_cpu=cpus[local_rank * len(cpus) // len(local)] if room else -1,
        oversubscribed=oversubscribed,
    )

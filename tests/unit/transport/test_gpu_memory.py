"""Whether buffers fit into a GPU's memory: all that a run takes, before any rank takes some."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.topology import read_host
from tcpx_mpi.run import agreement
from tcpx_mpi.schedule.table import BufferId
from tcpx_mpi.transport.gpu_memory import RankGpu

MIB = 1 << 20


def gpu_shared_by(ranks: int) -> RankGpu:
    gpu = RankGpu.__new__(RankGpu)  # one that CUDA shows is not needed to be refused
    gpu.ordinal, gpu.name, gpu._sharers = 0, "GPU", ranks
    return gpu


def test_the_memory_that_a_gpus_own_times_take_is_counted() -> None:
    gpu = gpu_shared_by(2)
    with pytest.raises(
        UsageError, match=r"need 70.01 MiB, free on GPU 0 \(GPU\) are 50 MiB a rank"
    ):
        gpu.slot_buffers({BufferId.SEND: 20 * MIB, BufferId.RECV: 10 * MIB}, 100 * MIB)


def test_the_memory_of_companions_is_counted() -> None:
    with pytest.raises(
        UsageError,
        match=r"the buffers of this rank and as large ones of 2 companions need 100.01 MiB, free ",
    ):
        gpu_shared_by(2).slot_buffers({BufferId.SEND: 20 * MIB}, 200 * MIB, companions=2)


def test_buffers_are_handed_out_when_their_zeros_are_there() -> None:
    said: list[str] = []
    gpu: Any = gpu_shared_by(1)
    gpu._slots = lambda size: said.append("zeroes") or size
    device = SimpleNamespace(synchronize=lambda: said.append("waits"))
    gpu._cupy = SimpleNamespace(cuda=SimpleNamespace(Device=lambda ordinal: device))
    sizes = {BufferId.SEND: 1, BufferId.RECV: 4097}
    assert gpu.slot_buffers(sizes, 100 * MIB) == {BufferId.SEND: 4096, BufferId.RECV: 8192}
    assert said == ["zeroes", "zeroes", "waits"]


def test_all_ranks_see_what_is_free_before_any_of_them_takes_some() -> None:
    said: list[object] = []

    @contextlib.contextmanager
    def agree(what: str) -> Iterator[None]:
        yield
        said.append("all ranks are here")

    def look(host: Any) -> int:
        said.append("looks")
        return 7

    world: Any = SimpleNamespace(agree=agree)
    assert agreement.free_bytes(world, SimpleNamespace(free_bytes=look), read_host()) == 7
    assert said == ["looks", "all ranks are here"]

"""Which memory a plugin takes, and which GPU it finds current while it sets up."""

from __future__ import annotations

import dataclasses
import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tcpx_mpi import _native
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.placement import Placement
from tcpx_mpi.plugin.find import PluginFile
from tcpx_mpi.run.metadata import by_ranks
from tcpx_mpi.transport.engine import confined_to
from tcpx_mpi.transport.load_plugin import require_traffic_class, traps_of
from tcpx_mpi.transport.memory import require_memory, require_receives, setup_gpu

GPUS = [{"ordinal": 0, "pci": "0000:05:00.0"}, {"ordinal": 1, "pci": "0000:84:00.0"}]
NO_GPU = Placement(0, 1, 0, -1, False)
PLACE = dataclasses.replace(NO_GPU, gpu=1, gpu_pci="0000:84:00.0")


def plugin(
    name: str,
    device_type: int = _native.DEVICE_UNPACK,
    ptr_support: int = 3,
    pci_less: bool = False,
    max_recvs: int = 1,
) -> Any:
    pci = "" if pci_less else "/sys/devices/pci0000:00/0000:00:04.0"
    properties = {
        "device_type": device_type,
        "ptr_support": ptr_support,
        "name": "lo",
        "pci_path": pci,
        "max_recvs": max_recvs,
    }
    return SimpleNamespace(file=SimpleNamespace(name=name), nic=lambda device: properties)


def test_tcpx_finds_the_ranks_gpu_current_for_host_memory_too() -> None:
    tcpx = plugin("GPUDirectTCPX_v7")
    assert setup_gpu("host", tcpx, PLACE, GPUS) == 1
    assert setup_gpu("host", tcpx, PLACE, ()) == -1  # without CUDA
    assert setup_gpu("host", tcpx, NO_GPU, GPUS) == -1  # a rank without a GPU
    # Buffers in its memory bring the GPU with them.
    assert setup_gpu("cuda", tcpx, PLACE, GPUS) == -1


@pytest.mark.parametrize(
    "other",
    [
        plugin("softtcpx_v7"),  # which would page-lock its pages
        plugin("Socket", device_type=0),
        plugin("GPUDirectTCPX_v7", ptr_support=1),
    ],
    ids=["softtcpx", "no receive path of GPUs", "no GPU memory"],
)
def test_other_plugins_find_no_gpu_current_for_host_memory(other: Any) -> None:
    assert setup_gpu("host", other, PLACE, GPUS) == -1


def test_a_session_of_a_gpu_needs_a_plugin_with_a_receive_path_for_it() -> None:
    assert require_memory("cuda", plugin("x"), 0, "gpu (0)") == _native.PTR_CUDA
    assert require_memory("cuda", plugin("x", device_type=0), 0, "gpu (0)") == _native.PTR_CUDA
    with pytest.raises(UsageError, match=r"^gpu \(0\): plugin x does not take such buffers"):
        require_memory("cuda", plugin("x", ptr_support=1), 0, "gpu (0)")
    with pytest.raises(UsageError, match=r"^gpu \(0\): plugin GPUDirectTCPX_v7 .* lo has none"):
        require_memory("cuda", plugin("GPUDirectTCPX_v7", pci_less=True), 0, "gpu (0)")
    assert require_memory("cuda", plugin("softtcpx_v7", pci_less=True), 0) == _native.PTR_CUDA


@pytest.mark.parametrize(
    ("asked", "most", "memory", "said"),
    [
        ("1", 0, "host", None),
        ("1", 1, "emulated", None),
        ("4", 4, "host", None),
        ("4", 3, "host", r"^--multi-recv \(4\) is larger than maxRecvs of x \(3\): use 3 or less$"),
        ("2", 1, "host", r"maxRecvs of x \(1\): leave it out, or use another plugin$"),
        ("2", -5, "host", r"maxRecvs of x \(-5\): leave it out, or use another plugin$"),
        ("2", 8, "emulated", r"^--multi-recv \(2\) has no receives in fragments, as x makes them"),
    ],
)
def test_a_request_takes_as_many_receives_as_the_plugin_says(
    asked: str, most: int, memory: str, said: str | None
) -> None:
    settings = load_settings({"multi_recv": asked, "memory": memory}, {})
    if said is None:
        return require_receives(settings, plugin("x", max_recvs=most), 0)
    with pytest.raises(UsageError, match=said):
        require_receives(settings, plugin("x", max_recvs=most), 0)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs cpus: some to leave alone")
def test_threads_that_start_while_confined_stay_so_and_no_other_does() -> None:
    allowed = os.sched_getaffinity(0)
    one, ended = {max(allowed)}, threading.Event()

    def started() -> int:
        thread = threading.Thread(target=ended.wait)
        thread.start()
        assert thread.native_id is not None
        return thread.native_id

    def started_on(*cpus: int, fails: bool) -> None:
        with confined_to(cpus):
            threads.append(started())
            assert not fails, "set-up failed"

    threads: list[int] = []
    try:
        started_on(*one, fails=False)
        with pytest.raises(AssertionError, match="set-up failed"):
            started_on(*one, fails=True)
        started_on(fails=False)
        threads += [started(), 0]
        assert [os.sched_getaffinity(each) for each in threads] == [one] * 2 + [allowed] * 3
    finally:
        ended.set()


def test_where_a_thread_may_not_choose_its_cpus_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refused)
    with confined_to((0,)):
        pass


def test_traps_are_those_that_do_something_and_told_by_rank() -> None:
    only_whom = {"SOFTTCPX_TRAP_RANK": "1", "SOFTTCPX_TRAP_SIDE": "send"}
    assert traps_of({"HOME": "/", "SOFTTCPX_TRAP_DELAY": " ", **only_whom}) == []
    trapped = traps_of({"SOFTTCPX_TRAP_DELAY": "7", "SOFTTCPX_TRAP_SIDE": "send"})
    assert trapped == ["SOFTTCPX_TRAP_DELAY=7", "SOFTTCPX_TRAP_SIDE=send"]
    assert by_ranks([["a"], ["a"]]) == ["a"]
    assert by_ranks([[], ["a", "b"], ["b"]]) == ["a (rank 1)", "b (rank 1, 2)"]


@pytest.mark.parametrize(
    ("name", "versions", "remedy"),
    [
        ("softtcpx_v7", (7,), "use --abi 12, or leave it out"),
        ("other", (8, 9, 10, 11), "use --abi 11, or leave it out"),
        ("other", (7, 8), "use another plugin, or leave it out"),
    ],
)
def test_a_traffic_class_that_a_table_cannot_take_is_refused(
    name: str, versions: tuple[int, ...], remedy: str
) -> None:
    file = PluginFile("/p.so", "", versions[0], versions, name)
    old, new = (SimpleNamespace(offers_traffic_class=offers) for offers in (False, True))
    with pytest.raises(UsageError, match=f"--traffic-class .0.: {name} is .* v{versions[0]}, .*"
                       f"from v10 on: {remedy}"):  # fmt: skip
        require_traffic_class(0, file, old)
    require_traffic_class(0, file, new)
    require_traffic_class(None, file, old)

"""Workers, channels and chunks that a run in GPUs' memory gets where nobody asked for any."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.gpu.compiler import kernel_cache, nvrtc_folders
from tcpx_mpi.machine.topology import Host, read_host
from tcpx_mpi.plugin.find import bundled_dir
from tcpx_mpi.plugin.softtcpx_defaults import (
    chunk_of,
    stay_variables,
    thread_variables,
    with_channels,
    with_defaults,
    with_even_chunks,
    with_progress_threads,
    worker_variables,
    workers_asked_for,
    workers_for,
)
from tcpx_mpi.plugin.turned_off import turned_off
from tcpx_mpi.schedule.table import chunks_of


def host(node: str, cpus: range) -> Host:
    return dataclasses.replace(read_host(), node=node, cpus=tuple(cpus))


@pytest.mark.parametrize(
    ("hosts", "workers"),
    [
        ([host("a", range(32))] * 2, 14),
        ([host("a", range(208))] * 8, 16),  # what softtcpx has at most
        ([host("a", range(2))] * 2, 1),
        ([host("a", range(64)), host("b", range(8)), host("b", range(8))], 2),  # the fullest node
        ([host("a", range(8)), host("a", range(8, 16))], 6),  # bound apart by the launcher
    ],
)
def test_workers_are_the_cores_that_are_left(hosts: list[Host], workers: int) -> None:
    assert workers_for(hosts) == workers


@pytest.mark.parametrize(
    ("cores", "memory", "plugin", "environ", "threads"),
    [
        (2, "host", "softtcpx_v7", {}, 1),  # a core each: nothing changes
        (6, "emulated", "softtcpx_v7", {}, 1),
        (8, "host", "softtcpx_v7", {}, 3),
        (32, "emulated", "softtcpx_v7", {}, 8),
        (32, "host", "softtcpx_v7", {"SOFTTCPX_WORKERS": "4"}, 1),  # which move the bytes
        (32, "host", "GPUDirectTCPX_v7", {}, 1),  # has threads of its own
        (208, "cuda", "softtcpx_v7", {}, 1),
    ],
)
def test_host_memory_has_threads_by_the_cores_of_two_ranks(
    cores: int, memory: str, plugin: str, environ: dict[str, str], threads: int
) -> None:
    hosts = [host("a", range(cores))] * 2
    settings = load_settings({"pattern": "ring", "memory": memory}, {})
    found = with_progress_threads(settings, plugin, environ, hosts)
    assert found.progress_threads == threads
    assert found.sources["progress_threads"] == "default by cores left"


def test_progress_threads_that_were_asked_for_stay_and_gpus_have_one() -> None:
    asked = load_settings({"pattern": "ring", "memory": "host", "progress_threads": "3"}, {})
    hosts = [host("a", range(2))] * 2
    assert with_progress_threads(asked, "softtcpx_v7", {}, hosts) == asked
    with pytest.raises(UsageError, match="--progress-threads 3: a GPU unpacks by itself"):
        with_progress_threads(dataclasses.replace(asked, memory="cuda"), "softtcpx_v7", {}, hosts)


def test_each_progress_thread_has_a_channel_and_its_sockets_are_tried() -> None:
    asked = load_settings({"pattern": "ring", "memory": "host", "progress_threads": "8"}, {})
    found = with_defaults(asked, "softtcpx_v7", {}, 1, False)
    assert found.channels == 8
    assert chunks_of(MIB, chunk_of(found, MIB, 1)) == 5
    assert chunks_of(8, chunk_of(found, 8, 1)) == 1
    assert found.sources["channels"] == "default by cores left with 8 progress threads"
    assert thread_variables(8, {})[0][:2] == ("SOFTTCPX_DIRECT_SOCKETS", "32")
    assert thread_variables(8, {"SOFTTCPX_DIRECT_SOCKETS": "2"}) == []
    assert thread_variables(1, {}) == []


def test_the_users_word_stands() -> None:
    assert worker_variables(14, {})[0][:2] == ("SOFTTCPX_WORKERS", "14")
    assert worker_variables(14, {"NCCL_SOCKET_NTHREADS": "2"}) == []
    assert worker_variables(14, {"SOFTTCPX_WORKERS": "0"}) == []
    assert stay_variables({})[0][:2] == ("SOFTTCPX_STAY_US", "200")
    assert stay_variables({"SOFTTCPX_STAY_US": "0"}) == []


#: Says how many workers softtcpx has in this process.
COUNT = """
import sys
from tcpx_mpi import _native
_native.Plugin(sys.argv[1]).init()
(line,) = [line for line in _native.plugin_log_of_init() if "sockets and workers in use" in line]
print(line.partition("=")[2].partition(" (")[0].split(" and ")[1])
"""


@pytest.mark.parametrize(
    ("environ", "workers"),
    [
        ({}, 0),
        ({"NCCL_SOCKET_NTHREADS": "2"}, 2),
        ({"NCCL_SOCKET_NTHREADS": "12"}, 8),  # SOFTTCPX_MAX_SOCKETS
        ({"NCCL_SOCKET_NTHREADS": "12", "SOFTTCPX_MAX_SOCKETS": "16"}, 12),
        ({"SOFTTCPX_WORKERS": "16", "NCCL_SOCKET_NTHREADS": "2"}, 16),
        ({"SOFTTCPX_WORKERS": "0", "NCCL_SOCKET_NTHREADS": "4"}, 4),
        ({"SOFTTCPX_WORKERS": "99"}, 0),  # beyond its limit
        ({"SOFTTCPX_WORKERS": "many", "NCCL_SOCKET_NTHREADS": " +3"}, 3),
        ({"SOFTTCPX_WORKERS": "4 ", "NCCL_SOCKET_NTHREADS": "-1"}, 1),
    ],
)
def test_workers_are_counted_as_softtcpx_counts_them(environ: dict[str, str], workers: int) -> None:
    assert workers_asked_for(environ) == workers
    done = subprocess.run(
        [sys.executable, "-c", COUNT, os.path.join(bundled_dir(), "libnccl-net-softtcpx.so")],
        env={**os.environ, **environ}, text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) == workers


def test_every_worker_gets_a_channel_unless_channels_were_asked_for() -> None:
    default = load_settings({"pattern": "mesh"}, {})
    assert with_channels(default, 14, 1).channels == 14
    assert with_channels(default, 14, 3).channels == 4
    assert with_channels(default, 2, 7).channels == 1
    assert "14 workers" in with_channels(default, 14, 1).sources["channels"]
    asked = load_settings({"pattern": "mesh", "channels": "2"}, {})
    assert with_channels(asked, 14, 1) == asked


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 32])
def test_each_channel_has_as_many_chunks_of_a_large_message(channels: int) -> None:
    default = load_settings({"pattern": "ring", "channels": str(channels)}, {})
    even = with_even_chunks(default)
    assert even.chunk_bytes % 4096 == 0
    assert default.chunk_bytes / 2 < even.chunk_bytes <= default.chunk_bytes
    for mib in (32, 64, 128, 1024):
        most = -(-chunks_of(mib << 20, even.chunk_bytes) // channels)
        assert most * even.chunk_bytes < (mib << 20) / channels * 1.03
    assert even.sources["chunk_bytes"].startswith("default in GPU memory")


def test_chunks_that_were_asked_for_stay() -> None:
    for sources in ({"chunk": "512K"}, {"chunk": "1M"}):
        asked = load_settings({"pattern": "ring", "channels": "14", **sources}, {})
        assert with_even_chunks(asked) == asked


def in_gpu_memory(channels: int, **given: str) -> Settings:
    settings = load_settings({"pattern": "pair", "channels": str(channels), **given}, {})
    return with_even_chunks(settings)


KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("message", "chunks"),
    [(0, 1), (8, 1), (64 * KIB, 1), (128 * KIB, 2), (256 * KIB, 3), (512 * KIB, 4), (MIB, 5),
     (2 * MIB, 7), (4 * MIB, 10), (8 * MIB, 18), (64 * MIB, 139)],
)  # fmt: skip
def test_a_message_has_as_many_chunks_as_its_copies_are_worth(message: int, chunks: int) -> None:
    settings = in_gpu_memory(14)
    chunk = chunk_of(settings, message, 1)
    assert chunks_of(message, chunk) == chunks
    assert chunk % 4096 == 0
    assert chunk <= settings.chunk_bytes


@given(channels=st.integers(1, 16), message=st.integers(0, 1 << 30), messages=st.integers(1, 64))
def test_chunks_are_pages_and_no_more_than_go_side_by_side(
    channels: int, message: int, messages: int
) -> None:
    settings = in_gpu_memory(channels)
    chunk = chunk_of(settings, message, messages)
    assert chunk % 4096 == 0
    assert 0 < chunk <= settings.chunk_bytes
    assert chunk == settings.chunk_bytes or chunks_of(message, chunk) <= channels
    # Of several at once each has its copies less often.
    assert chunk >= chunk_of(settings, message, 1)


def test_chunks_that_were_asked_for_are_the_same_in_every_row() -> None:
    for settings in (
        in_gpu_memory(14, chunk="512K"),
        load_settings({"pattern": "pair", "channels": "14"}, {}),  # in host memory
    ):
        assert [chunk_of(settings, size, 1) for size in (8, 512 * KIB, 64 * MIB)] == [512 * KIB] * 3


def test_only_our_own_plugin_has_channels_by_its_workers() -> None:
    environ = {"NCCL_SOCKET_NTHREADS": "1"}  # as the profile of A3 machines has it
    default = load_settings({"pattern": "ring", "memory": "cuda"}, {})
    assert with_defaults(default, "GPUDirectTCPX_v7", environ, 1, False) == default
    assert with_defaults(default, "softtcpx_v7", environ, 1, False).channels == 1
    workers = {"SOFTTCPX_WORKERS": "14"}
    assert with_defaults(default, "softtcpx_v7", workers, 1, False).channels == 14
    assert with_defaults(default, "softtcpx_v7", {}, 1, False) == default
    host = load_settings({"pattern": "ring", "memory": "host"}, {})
    assert with_defaults(host, "softtcpx_v7", environ, 1, False) == host


def test_on_gpus_that_ranks_share_chunks_are_the_same_in_every_row() -> None:
    default = load_settings({"pattern": "ring", "memory": "cuda"}, {})
    workers = {"SOFTTCPX_WORKERS": "14"}
    apart, shared = (
        with_defaults(default, "softtcpx_v7", workers, 1, shared) for shared in (False, True)
    )
    assert apart.chunk_bytes == shared.chunk_bytes == 483328
    assert chunk_of(apart, 512 * KIB, 1) == 128 * KIB
    assert chunk_of(shared, 512 * KIB, 1) == 483328
    assert shared.sources["chunk_bytes"] == "default in GPU memory: as many on each channel"


def test_the_compiler_is_found_beside_packages_and_in_a_toolkit(tmp_path: Path) -> None:
    for folder in ("site/nvidia/cuda_nvrtc/lib", "site/nvidia/cublas/lib", "toolkit/lib64"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "site/nvidia/cuda_nvrtc/lib/libnvrtc.so.13").touch()
    (tmp_path / "toolkit/lib64/libnvrtc.so.12").touch()
    found = nvrtc_folders([str(tmp_path / "site"), ""], {"CUDA_HOME": str(tmp_path / "toolkit")})
    assert found[:2] == [str(tmp_path / "site/nvidia/cuda_nvrtc/lib"),
                         str(tmp_path / "toolkit/lib64")]  # fmt: skip


def test_kernels_are_kept_where_one_can_write_or_not_at_all(tmp_path: Path) -> None:
    assert kernel_cache({"XDG_CACHE_HOME": str(tmp_path)}) == str(tmp_path / "tcpx-mpi")
    assert (tmp_path / "tcpx-mpi").is_dir()
    (tmp_path / "file").touch()
    assert kernel_cache({"XDG_CACHE_HOME": str(tmp_path / "file")}) == ""


# --- What takes the place of what the cores give --------------------------------------------------


def off(environ: dict[str, str], cores: int = 32, memory: str = "cuda", **given: str) -> list[str]:
    settings = load_settings({"pattern": "ring", "memory": memory, **given}, {})
    hosts = [host("a", range(cores))] * 2
    return turned_off(settings, "softtcpx_v7", environ, (), hosts, 1, False)


@pytest.mark.parametrize(
    ("environ", "given", "value"),
    [
        ({"SOFTTCPX_WORKERS": "2"}, "SOFTTCPX_WORKERS=2", "2"),
        ({"NCCL_SOCKET_NTHREADS": "2"}, "NCCL_SOCKET_NTHREADS=2", "2"),
        ({"SOFTTCPX_WORKERS": "99"}, "SOFTTCPX_WORKERS=99", "2"),  # beyond its limit: none
    ],
)
def test_workers_that_are_given_say_what_they_make_of_channels_and_what_that_cost(
    environ: dict[str, str], given: str, value: str
) -> None:
    (line,) = off(environ)
    assert line.startswith(f"{given} turns derived settings off: channels {value}, by the cores 14")
    assert "fell from 17.9 to 6.4 GB/s" in line
    assert line.endswith("; leave it out, or set these too")


def test_more_workers_than_by_the_cores_cost_nothing_that_was_measured() -> None:
    (line,) = off({"SOFTTCPX_WORKERS": "16"})
    assert "channels 16, by the cores 14" in line
    assert "GB/s" not in line


def test_in_host_memory_workers_turn_progress_threads_off() -> None:
    (line,) = off({"SOFTTCPX_WORKERS": "4"}, memory="host")
    assert "progress threads 1, by the cores 8; channels 2, by the cores 8; chunk" in line
    assert "GB/s" not in line
    assert off({"SOFTTCPX_WORKERS": "4"}, cores=2, memory="host") == []


def test_an_option_that_is_given_says_what_it_changes_besides_itself() -> None:
    (line,) = off({}, memory="host", progress_threads="1")
    assert line.startswith("--progress-threads 1 turns derived settings off: channels 2, by the")
    (line,) = off({}, channels="4")
    assert line.startswith("--channels 4 turns derived settings off: chunk 512 KiB")
    assert off({}, chunk="512K") == []


def test_nothing_is_turned_off_where_nothing_is_given_or_by_another_plugin() -> None:
    assert off({}) == off({}, memory="host") == off({"SOFTTCPX_SPIN_US": "5"}) == []
    settings = load_settings({"pattern": "ring", "memory": "cuda"}, {})
    hosts, environ = [host("a", range(32))] * 2, {"NCCL_SOCKET_NTHREADS": "2"}
    assert turned_off(settings, "GPUDirectTCPX_v7", environ, (), hosts, 1, False) == []
    ours = ["SOFTTCPX_WORKERS"]
    environ = {"SOFTTCPX_WORKERS": "14"}
    assert turned_off(settings, "softtcpx_v7", environ, ours, hosts, 1, False) == []

"""Runs in the memory of GPUs: every byte checked, in every mode and pattern, alone and sharing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gpus import Gpus
from jobs import Result, mpirun, run, tcpx_mpi
from variants import variant

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

BASE = ("--plugin", "softtcpx", "--spool", "spool", "--hdf5", "o.h5", "--check-memory", "1M")
#: Nothing, a byte, a fragment that ends in the midst of a page, several messages a queue holds.
SIZES = ("--sizes", "0,1,4097,300001,3M", "-n", "4", "--chunk", "64K")
#: Ranks start one after the other on one GPU, each with a context of its own.
LIMIT_S = 120.0


def ran(
    gpus: Gpus, place: Path, pattern: str, ranks: int, *options: str, **variables: str
) -> Result:
    """A run of so many ranks in GPUs' memory, which share GPUs where there are too few."""
    command = tcpx_mpi("run", pattern, "--ranks", str(ranks), "--memory", "cuda", *BASE,
                       *gpus.sharing(ranks), *options)  # fmt: skip
    return run(command, place, {**gpus.variables, **variables}, LIMIT_S)


def require_all_right(result: Result, sizes: int = 5) -> None:
    """Every row is there, and every byte that it received was checked and right."""
    assert result.code == 0, result.text
    empty = result.rows[0].size == 0
    assert [row.wrong for row in result.rows] == [None] * empty + [0] * (sizes - empty), result.text
    assert "Checked              : 100 % of the timed bytes" in result.out, result.text


@pytest.mark.parametrize(
    ("mode", "fragments"),
    [
        variant("kernel", "mss"),
        pytest.param("kernel", "random", marks=pytest.mark.stand_in),
        variant("d2d", "mss"),
        pytest.param("d2d", "random", marks=[pytest.mark.stand_in, pytest.mark.variant]),
        ("host", "mss"),
        pytest.param("host", "random", marks=[pytest.mark.stand_in, pytest.mark.variant]),
    ],
)
def test_every_mode_puts_every_byte_in_place(
    mode: str, fragments: str, gpus: Gpus, place: Path
) -> None:
    variables = {"SOFTTCPX_FRAGMENTS": fragments, "SOFTTCPX_POISON": "1"}
    result = ran(gpus, place, "ring", 2, *SIZES, "--unpack", mode, **variables)
    require_all_right(result)
    assert f"memory cuda, unpack {mode}\n" in result.out, result.text


@pytest.mark.parametrize(
    ("pattern", "ranks", "fragments", "sockets", "threads"),
    [
        variant("pair", 2, "page", 1, 1),
        variant("pingpong", 2, "random", 1, 0),
        variant("ring", 2, "page", 4, 1),
        variant("mesh", 2, "mss", 1, 1),
        ("ring", 4, "page", 1, 1),
        pytest.param("mesh", 4, "random", 2, 1, marks=pytest.mark.stand_in),
        variant("pair", 8, "page", 1, 1),
        variant("mesh", 8, "mss", 1, 0),
    ],
)
def test_every_pattern_alone_and_sharing_gpus(
    pattern: str, ranks: int, fragments: str, sockets: int, threads: int, gpus: Gpus, place: Path
) -> None:
    variables = {
        "SOFTTCPX_FRAGMENTS": fragments,
        "SOFTTCPX_POISON": "1",
        "NCCL_NSOCKS_PERTHREAD": str(sockets),
        "NCCL_SOCKET_NTHREADS": str(threads),
    }
    require_all_right(ran(gpus, place, pattern, ranks, *SIZES, **variables))


@pytest.mark.parametrize(
    "options",
    [
        variant("ring"),
        variant("mesh"),
        "alltoall",
        variant("all_reduce"),
        variant("fan_in"),
        "pairs --all",
    ],
)
def test_every_gpu_of_the_machine_takes_part(options: str, gpus: Gpus, place: Path) -> None:
    """A rank each; where there is one GPU, two ranks share it."""
    ranks = max(2, gpus.count)
    pattern, *more = options.split()
    sizes = ("--sizes", "0,4096,300032,3M", "-n", "4", "--chunk", "64K")
    result = ran(gpus, place, pattern, ranks, *sizes, *more, SOFTTCPX_POISON="1")
    assert result.code == 0, result.text
    found = read_run(str(place / "o.h5"))
    assert found.complete
    assert [info.gpu_pci for info in found.header.ranks] == [
        gpus.addresses[rank % gpus.count] for rank in range(ranks)
    ]
    assert len({row.size_bytes for row in found.rows}) == 4
    for row in found.rows:
        assert row.checked.tolist() == [row.size_bytes > 0] * ranks
        assert row.wrong.max() <= 0, result.text


@pytest.mark.parametrize("chunk", ["4K", "2M"])
def test_chunks_from_a_page_to_the_largest(chunk: str, gpus: Gpus, place: Path) -> None:
    """The smallest make the queue go round within a message, the largest fill it."""
    sizes = ("--sizes", "4095,2M,5000001", "-n", "3", "--chunk", chunk, "--channels", "3")
    require_all_right(ran(gpus, place, "pair", 2, *sizes, SOFTTCPX_POISON="1"), sizes=3)


@pytest.mark.parametrize("settings", [{}, {"SOFTTCPX_WORKERS": "0"}], ids=["workers", "inline"])
def test_messages_larger_than_a_ring_bring_the_same_bytes(
    settings: dict[str, str], gpus: Gpus, place: Path
) -> None:
    """A copy waits for the sockets, and what is done for what is sent."""
    sizes = ("--sizes", "1,4097,64K,300001,3M", "-n", "4", "--chunk", "1M", "--channels", "1")
    settings = {**settings, "SOFTTCPX_COPIES": "2", "SOFTTCPX_COPY_BYTES": "65536"}
    require_all_right(ran(gpus, place, "ring", 2, *sizes, **settings), sizes=5)


def test_an_ablation_is_no_bandwidth(gpus: Gpus, place: Path) -> None:
    result = ran(gpus, place, "pair", 2, "-b", "64K", "-e", "64K", "-n", "5", "--unpack", "none")
    assert result.code == 0, result.text
    line = next(x for x in result.out.splitlines() if " uint8 " in x)
    assert line.split()[6:9] == ["N/A", "N/A", "N/A"], result.text


@pytest.mark.stand_in
def test_chunks_are_as_many_on_each_channel_where_none_were_asked_for(
    gpus: Gpus, place: Path
) -> None:
    result = ran(gpus, place, "pair", 2, "-b", "3M", "-e", "3M", "-n", "2", "--channels", "3")
    require_all_right(result, 1)
    assert "# Setting: chunk_bytes = 512000 (default in GPU memory" in result.out, result.text
    assert read_run(str(place / "o.h5")).header.plan.chunk_bytes == 500 << 10


@pytest.mark.variant
@pytest.mark.stand_in
@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
def test_messages_of_middle_size_have_smaller_chunks_on_a_gpu_for_each_rank(
    shared: bool, gpus: Gpus, place: Path
) -> None:
    if not shared and gpus.count < 2:
        pytest.skip("needs two-gpus: one for each rank")
    sizes = ("--sizes", "8,256K,1M,5000001", "-n", "3", "--channels", "3")
    result = ran(gpus, place, "ring", 2, *sizes, *(("--gpu", "0", "--share-gpu") if shared else ()))
    require_all_right(result, 4)
    rows = read_run(str(place / "o.h5")).rows
    kib = [500, 500, 500, 500] if shared else [500, 88, 344, 500]
    assert [row.chunk_bytes >> 10 for row in rows] == kib
    assert [row.chunks for row in rows] == ([2, 2, 6, 20] if shared else [2, 6, 6, 20])
    up_to = "" if shared else "up to "
    assert f"# Engine: chunk {up_to}500 KiB, 3 channels" in result.out


def test_one_gpu_for_both_ranks_is_shared_where_that_is_asked_for(gpus: Gpus, place: Path) -> None:
    result = ran(gpus, place, "ring", 2, "-b", "1M", "-e", "1M", "-n", "4", "--gpu", "0",
                 "--share-gpu")  # fmt: skip
    require_all_right(result, sizes=1)
    assert [info.gpu for info in read_run(str(place / "o.h5")).header.ranks] == [0, 0]


@pytest.mark.stand_in
def test_the_file_tells_of_each_gpu_and_how_it_fared(gpus: Gpus, place: Path) -> None:
    require_all_right(ran(gpus, place, "ring", 2, "-b", "1M", "-e", "1M", "-n", "8"), sizes=1)
    found = read_run(str(place / "o.h5"))
    for info in found.header.ranks:
        assert info.gpu_name, "the model of a GPU is not there"
        assert info.gpu_pci == gpus.addresses[info.rank % gpus.count]
        assert info.device_name == info.gpu_name
    facts = found.header.facts
    assert facts["memory_chosen"] == "cuda (command line --memory)"
    assert facts["gpu_driver_cuda"] not in ("", "0.0")
    (row,) = found.rows
    assert len(row.gpu) == 2
    if gpus.real:
        assert facts["gpu_clocks"] == "read by NVML"
        assert all(gpu.sm_mhz_after > 0 and gpu.temperature_c_after > 0 for gpu in row.gpu)
    assert all(gpu.unpack_gpu_ns > 0 for gpu in row.gpu)
    assert all(gpu.unpack_bytes >= 1 << 20 for gpu in row.gpu)


@pytest.mark.stand_in
def test_the_gpus_that_are_visible_are_used_by_their_addresses(gpus: Gpus, place: Path) -> None:
    last = gpus.count - 1
    result = ran(gpus, place, "pair", 2, "-b", "64K", "-e", "64K", "-n", "4", "--share-gpu",
                 CUDA_VISIBLE_DEVICES=str(last))  # fmt: skip
    require_all_right(result, sizes=1)
    ranks = read_run(str(place / "o.h5")).header.ranks
    assert [(info.gpu, info.gpu_pci) for info in ranks] == [(0, gpus.addresses[last])] * 2


@pytest.mark.stand_in
def test_a_gpu_that_the_launcher_shows_to_one_rank_only_is_its_own(gpus: Gpus, place: Path) -> None:
    if gpus.count < 2:
        pytest.skip("needs two-gpus: one for each rank")
    command = mpirun(2, "run", "pair", *BASE, "-b", "64K", "-e", "64K", "-n", "4")
    own = 'CUDA_VISIBLE_DEVICES=${OMPI_COMM_WORLD_LOCAL_RANK:?} exec "$@"'
    command[3:3] = ["bash", "-c", own, "a rank"]
    result = run(command, place, gpus.variables, LIMIT_S)
    require_all_right(result, sizes=1)
    assert "# Setting: memory = cuda (auto: every rank has a GPU" in result.out, result.text
    ranks = read_run(str(place / "o.h5")).header.ranks
    assert [(info.gpu, info.gpu_pci) for info in ranks] == [
        (0, each) for each in gpus.addresses[:2]
    ]


def test_auto_takes_a_gpus_memory_and_says_so(gpus: Gpus, place: Path) -> None:
    command = tcpx_mpi("run", "pair", "--ranks", "2", *BASE, "-b", "64K", "-e", "64K", "-n", "4",
                       *gpus.sharing(2))  # fmt: skip
    result = run(command, place, gpus.variables, LIMIT_S)
    require_all_right(result, sizes=1)
    assert "# Setting: memory = cuda (auto: every rank has a GPU" in result.out, result.text


@pytest.mark.variant
@pytest.mark.stand_in
def test_auto_beside_a_peer_of_host_memory_is_host(gpus: Gpus, place: Path) -> None:
    command = tcpx_mpi("run", "pair", "--ranks", "2", *BASE, "-b", "64K", "-e", "64K", "-n", "8",
                       "--against", "raw", *gpus.sharing(2))  # fmt: skip
    result = run(command, place, gpus.variables, LIMIT_S)
    require_all_right(result, sizes=1)
    assert "memory = host (auto: --against raw moves host memory)" in result.out, result.text
    assert "GPU memory" not in result.out, result.text  # as the source of another setting


@pytest.mark.stand_in
def test_auto_with_more_ranks_than_gpus_is_host_and_the_plugin_as_there(
    gpus: Gpus, place: Path
) -> None:
    command = tcpx_mpi("run", "pair", "--ranks", str(2 * (gpus.count // 2 + 1)), *BASE,
                       "-b", "64K", "-e", "64K", "-n", "4")  # fmt: skip
    result = run(command, place, gpus.variables, LIMIT_S)
    require_all_right(result, sizes=1)
    few = rf"# Setting: memory = host \(auto: .* has no GPU \(\d+ ranks, {gpus.count} GPUs?\): "
    assert re.search(few, result.out), result.text
    assert "GPU memory" not in result.out, result.text  # as the source of another setting

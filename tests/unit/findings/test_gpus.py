"""GPUs in the report: the header's line, the place of a rank, and what the footer warns of."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import invented
import pytest
from judged import run_of, summaries_of

from tcpx_mpi.findings.gpus import gpus as judge
from tcpx_mpi.records import (
    GpuRow,
    GpuState,
    Journal,
    RunHeader,
    RunWriter,
    gpu_row,
    read_journal,
    read_run,
)
from tcpx_mpi.report import header_lines, summarise_row
from tcpx_mpi.report.json_document import row_document
from tcpx_mpi.report.lines import words_of

GPU = {"memory": "cuda", "gpu": 1, "gpu_pci": "0000:9a:00.0", "gpu_name": "NVIDIA X",
       "device_name": "NVIDIA X", "gpu_numa_node": 1}  # fmt: skip
FACTS = {"gpu_driver": "580.1", "gpu_driver_cuda": "13.0", "gpu_nvrtc": "13.0",
         "gpu_cupy": "14.2.0", "gpu_clocks": "read by NVML"}  # fmt: skip
HEADER = invented.run_header(
    world=2, memory="cuda", unpack="kernel", facts=FACTS,
    ranks=[invented.rank_info(rank, **GPU) for rank in range(2)],
)  # fmt: skip


def lines(*gpus: GpuRow, header: RunHeader = HEADER) -> list[str]:
    run = run_of([invented.row(0, world=2, gpu=list(gpus))], header)
    return [words_of(finding) for finding in judge(header, summaries_of(run))]


def test_the_header_names_driver_and_compiler_and_the_rank_its_gpu() -> None:
    text = header_lines(HEADER)
    assert (
        "# GPUs: driver 580.1 for CUDA 13.0, NVRTC 13.0, CuPy 14.2.0, clocks read by NVML" in text
    )
    assert "[0000:9a:00] NVIDIA X, NIC eth1 200000 Mb/s, GPU 1 on NUMA node 1, " in text[-2]
    assert not any("in host memory" in line for line in text)


def test_a_run_without_gpus_says_nothing_of_them() -> None:
    assert lines() == []
    assert not any(line.startswith("# GPUs:") for line in header_lines(invented.run_header()))


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        (("a", "b", "a", "b"), []),  # on two hosts
        (("", "", "", ""), []),  # nobody knows
        (("a", "a", "a", "b"), ["2 ranks on GPU a of host0: what"]),
        (("a", "b", "c", "c"), ["2 ranks on GPU c of host1: what"]),
        (("a", "a", "a", "a"), ["2 ranks on GPU a of host0, and 1 other with several: what"]),
    ],
)
def test_that_ranks_share_gpus_is_said(gpus: tuple[str, ...], said: list[str]) -> None:
    ranks = tuple(
        invented.rank_info(rank, gpu=0, gpu_pci=pci, memory="cuda") for rank, pci in enumerate(gpus)
    )
    header = invented.run_header(ranks=ranks, memory="cuda")
    lines = [line for line in header_lines(header) if line.startswith("# Shared: ")]
    assert [line.removeprefix("# Shared: ").split(" one does")[0] for line in lines] == said


def test_being_idle_is_no_throttling_and_a_power_cap_is() -> None:
    assert lines(GpuRow(throttle_reasons_before=1, throttle_reasons_after=3), GpuRow()) == []
    (line,) = lines(GpuRow(), GpuRow(throttle_reasons_before=0x41, throttle_reasons_after=0x4))
    assert "rank 1 on host0" in line
    assert "throttled (power cap, thermal slowdown by hardware) at 1 KiB" in line


def test_clocks_that_differ_by_more_than_a_tenth_are_told() -> None:
    assert lines(GpuRow(sm_mhz_after=1900), GpuRow(sm_mhz_after=1980)) == []
    (line,) = lines(GpuRow(sm_mhz_after=1200), GpuRow(sm_mhz_after=1980))
    assert "1200 to 1980 MHz" in line


def test_the_gpus_own_time_is_told_apart_from_the_hosts() -> None:
    (line,) = lines(GpuRow(unpack_gpu_ns=2000, unpack_bytes=8000, unpack_launches=4), GpuRow())
    assert "1 KiB: 4 GB/s while it ran, 0.5 us a launch, 4 launches" in line
    assert "handing over" not in line


def test_a_time_with_the_cpus_part_in_it_says_so() -> None:
    gpu = GpuRow(unpack_gpu_ns=2, unpack_launches=1)
    for mode in ("d2d", "host"):
        header = dataclasses.replace(HEADER, unpack=mode)
        (line,) = lines(gpu, GpuRow(), header=header)
        assert "the CPU's handing over of each copy included" in line


def test_a_launch_of_a_kernel_has_no_part_of_the_cpus() -> None:
    gpu = GpuRow(unpack_gpu_ns=2, unpack_launches=1)
    for mode in ("kernel", "launch"):
        header = dataclasses.replace(HEADER, unpack=mode)
        (line,) = lines(gpu, GpuRow(), header=header)
        assert "handing over" not in line


def test_what_was_read_of_a_gpu_comes_back_from_file_journal_and_json(tmp_path: Path) -> None:
    before = GpuState(sm_mhz=345, memory_mhz=3201, temperature_c=30, power_mw=70000,
                      throttle_reasons=1)  # fmt: skip
    gpu = gpu_row(before, GpuState(sm_mhz=1980), unpack_gpu_ns=5, unpack_bytes=6, unpack_launches=7)
    assert (gpu.sm_mhz_before, gpu.sm_mhz_after, gpu.power_mw_after) == (345, 1980, -1)
    row = invented.row(0, world=2, gpu=[gpu, GpuRow()])
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(HEADER)
    writer.write_setup(invented.setup_times(2))
    writer.append_row(row)
    writer.finish()
    assert read_run(writer.path).rows[0].gpu == [gpu, GpuRow()]

    facts = invented.row_facts(0)
    journal = Journal(str(tmp_path), "id", 0, 1)
    part = invented.rank_row(0, facts, gpu=gpu)
    for kind, samples in (("warmup", part.warmup), ("timed", part.samples)):
        journal.append_batch(0, facts.size_bytes, kind, 0, samples)
    journal.append_result(facts, part)
    (path,) = tmp_path.glob("*.journal")
    read_back = read_journal(str(path)).rows[0].part
    assert read_back is not None
    assert read_back.gpu == gpu

    (first, second) = row_document(HEADER, row, summarise_row(HEADER, row))["gpus"]
    assert (first["sm_mhz_before"], first["unpack_bytes"]) == (345, 6)
    assert second["sm_mhz_before"] is None

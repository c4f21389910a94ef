"""What to do, by what the log has."""

from __future__ import annotations

import pytest
from lines_of_logs import BAD, DOUBTFUL, GOOD, nccl_line, networks, verdict_of

NOT_FOUND = nccl_line("INFO NET/Plugin : No plugin found (libnccl-net.so), using internal one")


@pytest.mark.parametrize(
    ("lines", "remedy"),
    [
        ([nccl_line("INFO cudaDriverVersion 12080")], "give the whole log, from its first line"),
        (networks("Acme", "Acme"), "give the whole log, from its first line"),
        (networks("Socket"), "give the whole log, from its first line"),
        ([nccl_line("WARN Something failed")], "run the job with NCCL_DEBUG=INFO"),
        (["Epoch 1"], "run the job with NCCL_DEBUG=INFO"),
    ],
)
def test_a_log_of_info_is_to_be_whole_and_another_to_have_it(lines: list[str], remedy: str) -> None:
    verdict = verdict_of(lines)
    assert verdict.code == 11
    assert verdict.findings[0].remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("more", "directory"),
    [
        ([], ""),
        (["NCCL_IB_DISABLE set by environment to 1."], ""),
        (["NCCL_GPUDIRECTTCPX_CTRL_DEV set by environment to eth0"], "/var/lib/tcpx/lib64"),
        (["NCCL_FASTRAK_CTRL_DEV set by environment to eth0"], "/var/lib/tcpxo/lib64"),
    ],
)
def test_a_directory_is_named_where_something_says_whose_machine_it_is(
    more: list[str], directory: str
) -> None:
    lines = [NOT_FOUND, *networks("Socket", "Socket", "Socket")]
    verdict = verdict_of([*lines, *(nccl_line(f"INFO {text}") for text in more)])
    (missing,) = [f for f in verdict.findings if "did not find the plugin" in f.text]
    assert missing.severity is BAD
    assert ("/lib64" in missing.remedy) is bool(directory)
    assert directory in missing.remedy


@pytest.mark.parametrize(
    ("network", "first"),
    [("IB", "load nvidia-peermem"), ("IBext_v8", "load nvidia-peermem"),
     ("AWS Libfabric", "Libfabric's provider"), ("Libfabric", "Libfabric's provider"),
     ("GPUDirectTCPX_v7", "set NCCL_NET_GDR_LEVEL")],
)  # fmt: skip
def test_gpu_memory_is_advised_on_by_what_decides_it(network: str, first: str) -> None:
    via = nccl_line(f"INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/{network}/0/Shared")
    (staged,) = [f for f in verdict_of(via).findings if f.severity is BAD]
    assert staged.remedy.startswith(first)


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        ("Plugin name set by env to librccl-net-ofi.so", "librccl-net-ofi.so"),
        ("NET/Plugin: Plugin name set by env to libnccl-net-ofi.so", "libnccl-net-ofi.so"),
        ("NCCL_NET_PLUGIN set by environment to aws-ofi", "libnccl-net-aws-ofi.so"),
    ],
)
def test_a_plugin_that_was_asked_for_by_name_is_missed(asked: str, missing: str) -> None:
    failed = f"NET/Plugin: Could not find: {missing} libnccl-net.so"
    for more, severity in (([asked], DOUBTFUL), ([], GOOD)):
        lines = [nccl_line(f"INFO {text}") for text in (*more, failed, "Using network Socket")]
        verdict = verdict_of([*lines, nccl_line("INFO comm 0x5 rank 0 nranks 1")])
        assert verdict.code == 0
        (found,) = [f for f in verdict.findings if "did not find the plugin" in f.text]
        assert found.severity is severity


@pytest.mark.parametrize(
    ("line", "advises"),
    [
        ("Got completion from peer 10.0.0.3<5> with error 12, opcode 0, len 0", "NCCL_IB_HCA"),
        ("Got completion with error 12, opcode 1, len 0, vendor err 129", "NCCL_IB_HCA"),
        ("Got completion from peer 10.0.0.3<5> with status=12 opcode=1 len=5", "NCCL_IB_HCA"),
        ("mlx5_3:1 async fatal event on QP (0x7): invalid request local work queue error", "dmesg"),
        ("mlx5_3:1 async fatal event on QP (0x7): local access violation work queue error",
         "dmesg"),
        ("Got completion from peer 10.0.0.3<5> with error 5, opcode 5, len 7", "ended first"),
        ("Got completion from peer 10.0.0.3<5> with status=112 opcode=12 len=5", "ended first"),
    ],
)  # fmt: skip
def test_a_connection_that_broke_is_advised_on_by_how(line: str, advises: str) -> None:
    verdict = verdict_of([nccl_line(f"WARN NET/IB : {line}")])
    (lost,) = [f for f in verdict.findings if "a connection broke" in f.text]
    assert advises in lost.remedy
    assert ("NCCL_IB_HCA" in lost.remedy) is (advises == "NCCL_IB_HCA")


def test_no_network_at_all_is_not_one_that_was_asked_for() -> None:
    for text, asked in (
        ("Failed to initialize any NET plugin", False),
        ("Error: network FasTrak not found.", True),
    ):
        verdict = verdict_of(nccl_line(f"WARN {text}"))
        assert verdict.code == 9
        assert ("was asked for" in verdict.headline) is asked

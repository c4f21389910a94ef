"""The verdict on the logs of public reports (tests/fixtures/doctor), and the command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from lines_of_logs import TCPX, nccl_line, networks, verdict_of

from tcpx_mpi import cli
from tcpx_mpi.doctor.here import driver_version
from tcpx_mpi.doctor.text import lines as printed_lines

LOGS = Path(__file__).parents[2] / "fixtures" / "doctor"


EXPECTED = {
    "01": (0, "on the fast path: GPUDirectTCPX_v7 on 4 of 4 ranks", ""),
    "02": (9, "Socket on 4 of 4 ranks", "NCCL did not find the plugin's library"),
    "03": (9, "GPUDirectTCPX_v7 on 3 of 4 ranks, Socket on 1", "node-1 pid 4103 [1]: sockets"),
    "04": (9, "no GPU memory can be registered", "node-1 pid 4102 [0]: the plugin's dma-buf call"),
    "05": (9, "manager is not there", "its socket is missing or does not answer"),
    "06": (0, "GPUDirectTCPX_v7 on 4 of 4 ranks", "start takes minutes (likely) [41 times]"),
    "07": (9, "Socket on 4 of 4 ranks", "does not read NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"),
    "08": (9, "without GPU memory", "each message is staged in host memory [4 times]"),
    "09": (0, "FasTrak on 4 of 4 ranks", "harmless  FasTrak's shim"),
    "10": (11, "cannot tell: no line of NCCL", "NCCL_DEBUG=INFO"),
}


@pytest.mark.parametrize("number", EXPECTED)
def test_a_log_of_a_public_report_is_judged_rightly(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, headline, finding = EXPECTED[number]
    (path,) = LOGS.glob(f"{number}-*.log")
    assert cli.main(["doctor", str(path)]) == code
    first, *rest = capsys.readouterr().out.splitlines()
    assert headline in first
    assert finding in "\n".join(rest)


def test_several_logs_are_one_job_packed_or_not_and_json_has_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a.log", tmp_path / "b.log.gz"
    first.write_text(networks(TCPX)[0])
    second.write_bytes(gzip.compress(networks(TCPX, "Socket")[1].encode()))
    assert cli.main(["doctor", "--json", str(first), str(second)]) == 9
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 9
    assert document["verdict"] == (
        "off the fast path: GPUDirectTCPX_v7 on 1 of 2 ranks seen, Socket on 1 (likely)"
    )
    assert document["findings"][0]["evidence"] == {
        "file": str(second), "line": 1, "text": "Using network Socket",
    }  # fmt: skip


def test_a_log_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "no.log"]) == 2
    assert "no.log: no such file" in capsys.readouterr().err


def test_without_a_log_this_machine_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--plugin", "softtcpx"]) == 9
    out = capsys.readouterr().out
    assert "softtcpx, which is plain sockets" in out
    assert "driver: " in out


def test_the_driver_is_read_from_the_kernel_modules_word(tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n")
    assert driver_version(version) == "535.183.01"
    version.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release\n"
    )
    assert driver_version(version) == "580.95.05"
    assert driver_version(tmp_path / "none") == "none"


def test_what_a_rank_printed_cannot_steer_the_terminal() -> None:
    printed = printed_lines(verdict_of(nccl_line("INFO Using network Socket\x9b2J\u202e")))
    assert all(line.isprintable() for line in printed)

"""Which TCP congestion control a process may have, by what the kernel says to a socket of its."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from tcpx_mpi.machine import congestion


class Kernel:
    """A socket of a kernel that grants some, has some for root alone, and no others."""

    granted = ("reno", "bbr")
    for_root = ("cubic",)

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is open."""

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        if value.decode() in self.for_root:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        if value.decode() not in self.granted:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    made: Any = Kernel
    monkeypatch.setattr(congestion.socket, "socket", made)
    monkeypatch.setattr(congestion, "_SYSCTL", tmp_path)
    (tmp_path / "tcp_available_congestion_control").write_text("reno bbr cubic\n")
    (tmp_path / "tcp_allowed_congestion_control").write_text("reno bbr\n")
    (tmp_path / "tcp_congestion_control").write_text("bbr\n")
    return tmp_path


def test_one_that_is_there_for_root_alone_is_told_from_one_that_is_not_there() -> None:
    refused = congestion.refusal_of("cubic")
    assert refused is not None
    assert refused.cause == (
        "cubic is available, but not allowed to this user: this kernel has reno, bbr, cubic"
    )
    assert "sysctl -w net.ipv4.tcp_allowed_congestion_control='reno bbr cubic' as root" in (
        refused.remedy
    )
    absent = congestion.refusal_of("vegas")
    assert absent is not None
    assert absent.cause == "vegas is not available: this kernel has reno, bbr, cubic"
    assert absent.remedy.startswith("modprobe tcp_vegas")


def test_what_is_granted_and_the_kernels_own_are_no_refusal() -> None:
    assert [congestion.refusal_of(name) for name in ("reno", "bbr", "default", "")] == [None] * 4


def test_a_kernel_without_lists_has_a_remedy_too(kernel: Path) -> None:
    (kernel / "tcp_allowed_congestion_control").unlink()  # as in a network namespace
    refused = congestion.refusal_of("cubic")
    assert refused is not None
    assert refused.remedy.endswith("_congestion_control='cubic' as root")


def test_the_kernels_own_is_not_asked_for_where_that_would_be_refused(kernel: Path) -> None:
    assert congestion.to_ask_for("reno") == "reno"
    assert congestion.to_ask_for("cubic") == "cubic"
    (kernel / "tcp_congestion_control").write_text("cubic\n")
    assert congestion.to_ask_for("cubic") == ""

"""The driver is asked for a GPU where there may be one, and only there."""

from __future__ import annotations

import pytest

from tcpx_mpi import _native
from tcpx_mpi.plugin.current_gpu import make_gpu_current


@pytest.mark.parametrize(
    ("visible", "asked"), [("", False), ("-1", False), (" ", False), ("1", True), (None, True)]
)
def test_no_driver_is_asked_where_all_gpus_are_hidden(
    visible: str | None, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def devices() -> None:
        calls.append(1)
        raise _native.CudaUnavailable("no driver")

    monkeypatch.setattr(_native, "cuda_devices", devices)
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    make_gpu_current("/opt/libnccl-net-others.so", environ)
    assert bool(calls) is asked

"""A traced run in the memory of GPUs: copies, launches and unpacks among the steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpus import Gpus
from jobs import run, tcpx_mpi
from traces import CHAIN, require_causal, traced

pytestmark = pytest.mark.multirank


@pytest.mark.stand_in
def test_copies_and_unpacks_are_in_causal_order(gpus: Gpus, place: Path) -> None:
    command = tcpx_mpi("run", "pair", "--ranks", "2", "--memory", "cuda", *gpus.sharing(2),
                       "--plugin", "softtcpx", "--spool", "spool", "--hdf5", "o.h5", "-n", "4",
                       "--trace", "16", "-z", "1", "--sizes", "300000", "--chunk", "128K",
                       "--check-memory", "1M")  # fmt: skip
    variables = {"SOFTTCPX_TRACE": str(place / "soft"), "SOFTTCPX_WORKERS": "1"}
    result = run(command, place, {**gpus.variables, **variables}, 120.0)
    assert result.code == 0, result.text
    (found,) = traced(place / "o.h5")
    assert found.messages == 4
    copied = [("send", "copy begun *"), ("send", "first copy landed *")]
    unpacked = [("receive", name) for name in ("unpack launched", "unpacked", "consumed")]
    require_causal(found, [CHAIN[0], *copied, *CHAIN[1:], *unpacked])

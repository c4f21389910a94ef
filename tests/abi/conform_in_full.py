"""`conform` over each version of softtcpx, gigabytes too; of SUITE=abi, not in `make test`."""

from __future__ import annotations

from pathlib import Path

import pytest
import verdicts
from conform_command import conform


@pytest.mark.parametrize("memory", ["host", "emulated"])
def test_softtcpx_passes_in_full(memory: str, tmp_path: Path) -> None:
    found = conform(
        tmp_path, "softtcpx", "--abi", "all", "--memory", memory, NCCL_SOCKET_IFNAME="=lo"
    )
    assert (found.code, found.err) == (0, ""), found.out
    said = {each["abi"]: each["clauses"] for each in found.document["versions"]}
    for abi in verdicts.VERSIONS[memory]:
        assert said[abi] == verdicts.expected(memory, abi, quick=False)

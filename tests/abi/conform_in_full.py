"""`conform` over each version of softtcpx, gigabytes too; of SUITE=abi, not in `make test`."""

from __future__ import annotations

from pathlib import Path

import pytest
from conform_command import conform

from tcpx_mpi.conform.table import BY_NAME


@pytest.mark.parametrize("memory", ["host", "emulated"])
def test_softtcpx_passes_in_full(memory: str, tmp_path: Path) -> None:
    found = conform(tmp_path, "softtcpx", "--abi", "all", "--memory", memory)
    assert (found.code, found.err) == (0, ""), found.out
    for version in found.document["versions"]:
        verdicts = {each["clause"]: each["verdict"] for each in version["clauses"]}
        assert list(verdicts) == list(BY_NAME)
        moved = {name: verdicts[name] for name in ("register-large", "large-message")}
        assert moved == {
            "register-large": "pass" if version["abi"] >= 8 else "not offered",
            "large-message": "not offered" if version["abi"] < 9
            else "pass" if memory == "host" else "not tried",
        }  # fmt: skip

"""Every pattern by every version of softtcpx's table: `make test SUITE=abi`, not in `make test`."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import run, tcpx_mpi

from tcpx_mpi import patterns
from tcpx_mpi.config.options import ABI_VERSIONS

pytestmark = pytest.mark.multirank

#: v6 has no receive path for GPUs.
MEMORIES = [(abi, "host") for abi in ABI_VERSIONS] + [(abi, "emulated") for abi in ABI_VERSIONS[1:]]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("pattern", [n for n in patterns.NAMES if n != patterns.RECORDED])
@pytest.mark.parametrize(("abi", "memory"), MEMORIES)
def test_every_byte_arrives(abi: int, memory: str, pattern: str, ranks: int, place: Path) -> None:
    command = tcpx_mpi("run", pattern, "--ranks", str(ranks), "--plugin", "softtcpx",
                       "--abi", str(abi), "--memory", memory, "--sizes", "0,1,100003,8M",
                       "-n", "2", "--hdf5", "none")  # fmt: skip
    result = run(command, place)
    assert result.code == 0, result.text
    assert f"ABI v{abi} name softtcpx_v{abi} memory {memory}" in result.out
    # Of `pairs` once for each round; of no bytes there are none to check.
    # moe rounds sizes down to whole tokens.
    sizes = [row.size for row in result.rows]
    asked = [0, 0, 93_184, 8_386_560] if pattern == "moe" else [0, 1, 100_003, 8 << 20]
    assert sizes == asked * (len(sizes) // 4)
    assert [row.wrong for row in result.rows] == [0 if size else None for size in sizes]

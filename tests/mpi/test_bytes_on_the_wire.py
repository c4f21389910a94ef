"""What the kernel counted on the plugin's sockets, against the payload."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import run, tcpx_mpi
from variants import variant

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

#: From here on a message's own header is small beside it.
LARGE = 64 << 10


@pytest.mark.parametrize(
    "pattern",
    [
        "mesh",
        *(variant(each) for each in ("pair", "pingpong", "ring")),
    ],
)
def test_the_kernel_counted_at_least_the_payload_on_every_rank_in_every_row(
    pattern: str, place: Path
) -> None:
    command = tcpx_mpi("run", pattern, "--ranks", "4", "--plugin", "softtcpx", "--sizes",
                       "1,17,4K,64K,1000003", "-n", "20", "--check-memory", "64M", "--hdf5", "o.h5",
                       "--spool", "spool")  # fmt: skip
    result = run(command, place)
    assert result.code == 0, result.text
    for row in read_run(str(place / "o.h5")).rows:
        pairs = ((row.net_sent, row.payload_bytes_sent),
                 (row.net_received, row.payload_bytes_received))  # fmt: skip
        for counted, payload in pairs:
            assert (counted >= payload).all(), (row.size_bytes, counted, payload)
            if row.size_bytes >= LARGE:
                # Beside the payload only headers: nothing is sent twice. What a rank that only
                # receives sends, or only sends receives, is control messages alone.
                headers = 256 * row.chunks * row.iterations
                assert (counted <= 1.2 * payload + headers).all(), (counted, payload)
    warnings = [line for line in result.out.splitlines() if "WARNING" in line]
    assert [line for line in warnings if "hypervisor" not in line] == []  # that is no fault of ours

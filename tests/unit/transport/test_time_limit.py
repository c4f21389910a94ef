"""`-T` counts from when the process began."""

from __future__ import annotations

import pytest

from tcpx_mpi import _native
from tcpx_mpi.errors import Stalled
from tcpx_mpi.transport.time_limit import began_ns, end_by_ns, require_time

#: When this file was read: the process is older.
_READ_NS = _native.now_ns()


def test_the_limit_counts_from_before_anything_was_read() -> None:
    assert 0 < began_ns() < _READ_NS
    assert end_by_ns(5.0) < _READ_NS + 5_000_000_000
    assert end_by_ns(0.0) == 0


def test_a_process_older_than_its_limit_is_refused_with_what_took_so_long() -> None:
    with pytest.raises(Stalled, match=r"longer than -T 1e-09 s: its buffers were there \d+\.\d s"):
        require_time(1e-9, "its buffers were there")
    require_time(1e6, "its buffers were there")
    require_time(0.0, "its buffers were there")

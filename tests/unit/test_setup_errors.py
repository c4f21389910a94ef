"""What native code raises while a rank sets up or closes is one of our errors."""

from __future__ import annotations

import pytest

from tcpx_mpi import _native
from tcpx_mpi.errors import SetupFailed, UsageError
from tcpx_mpi.setup_errors import setup_errors


def test_memory_that_the_system_refuses_is_a_set_up_that_failed() -> None:
    with pytest.raises(SetupFailed, match="the system refused the memory"), setup_errors():
        _native.SlotBuffer(1 << 60)


def test_other_errors_pass_as_they_are() -> None:
    with pytest.raises(UsageError, match="as it is"), setup_errors():
        raise UsageError("as it is")

"""What native code raises while a rank sets up or closes is one of our errors."""

from __future__ import annotations

import pytest

from tcpx_mpi import _native
from tcpx_mpi.errors import SetupFailed, UsageError
from tcpx_mpi.transport.setup_errors import setup_errors


def test_memory_that_the_system_refuses_is_a_set_up_that_failed() -> None:
    with pytest.raises(SetupFailed, match="the system refused the memory"), setup_errors():
        _native.SlotBuffer(1 << 60)


def test_other_errors_pass_as_they_are() -> None:
    with pytest.raises(UsageError, match="as it is"), setup_errors():
        raise UsageError("as it is")


def test_ranks_that_an_error_names_are_named_with_their_places() -> None:
    places = ["a (NIC eth1)", "b (NIC eth1)", "b (NIC eth2)"]
    text = "did not come up: to rank 2, lane 0; to rank 2, lane 1; from rank 0, lane 0"
    with pytest.raises(SetupFailed) as caught, setup_errors(places):
        raise _native.ConnectTimeout(text)
    assert str(caught.value) == f"{text}; rank 2 is on b (NIC eth2); rank 0 is on a (NIC eth1)"


def test_a_connect_that_fails_is_second_hand_and_an_accept_is_not() -> None:
    for call, expected in (("connect", True), ("accept", False)):
        with pytest.raises(SetupFailed) as caught, setup_errors():
            raise _native.ConnectTimeout(f"plugin call {call} returned 3 (internal error)")
        assert caught.value.second_hand is expected


def test_an_error_of_the_manager_says_where_its_sockets_are_looked_for() -> None:
    with pytest.raises(SetupFailed, match="NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX"), setup_errors():
        raise _native.ConnectTimeout("the plugin said: failed against receive-datapath-manager")

"""What native code raises while a rank sets up or closes is one of our errors."""

from __future__ import annotations

import pytest

from tcpx_mpi import _native
from tcpx_mpi.errors import SetupFailed, UsageError
from tcpx_mpi.transport.setup_errors import manager_hint, setup_errors


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


def test_a_connect_that_fails_is_farther_from_the_cause_than_an_accept() -> None:
    for call, expected in (("connect", 1), ("accept", 0)):
        with pytest.raises(SetupFailed) as caught, setup_errors():
            raise _native.PluginError(f"plugin call {call} returned 3 (internal error)")
        assert caught.value.second_hand == expected
    with pytest.raises(SetupFailed) as caught, setup_errors():
        raise _native.ConnectTimeout("1 of 1 connections did not come up within 1 s")
    assert caught.value.second_hand == 1


def test_an_error_of_the_manager_says_where_its_sockets_are_looked_for() -> None:
    with pytest.raises(SetupFailed, match="NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX"), setup_errors():
        raise _native.ConnectTimeout("the plugin said: failed against receive-datapath-manager")


@pytest.mark.parametrize(
    ("text", "hinted"),
    [
        ("2 of 2 connections did not come up within 1 s: from rank 0, lane 0, channel 0", True),
        ("2 of 3 connections were not up yet: to rank 0, lane 0; from rank 1, lane 0", True),
        ("plugin call accept from rank 0, lane 0, channel 0 has not returned for 1 s", True),
        ("plugin call connect to rank 0, lane 0, channel 0 has not returned for 1 s", False),
        ("2 of 2 connections did not come up within 1 s: to rank 0, lane 0, channel 0", False),
    ],
)
def test_an_accept_that_does_not_end_may_wait_for_the_manager(text: str, hinted: bool) -> None:
    assert ("a manager that hangs" in manager_hint(text, needs_manager=True)) is hinted
    assert not manager_hint(text)  # other plugins have none

"""Windows by the version of the plugin's table."""

from __future__ import annotations

import pytest

from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.plugin.request_limits import within_requests_of


def test_v6_has_room_for_8_requests() -> None:
    fitted = within_requests_of(6, load_settings({}, {}))
    assert (fitted.window_send, fitted.window_recv) == (8, 8)
    assert "ABI v6" in fitted.sources["window_send"]
    small = within_requests_of(6, load_settings({"window_send": "3"}, {}))
    assert (small.window_send, small.window_recv) == (3, 8)


def test_a_larger_window_that_was_asked_for_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--window-recv \(9\) is larger than the 8 requests"):
        within_requests_of(6, load_settings({"window_recv": "9"}, {}))


def test_later_versions_keep_their_windows() -> None:
    settings = load_settings({}, {})
    assert within_requests_of(7, settings) is settings

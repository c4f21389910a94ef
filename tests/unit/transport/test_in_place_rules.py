"""Whether receives that a plugin puts into a GPU's memory are flushed: by NCCL's rule, and why."""

from __future__ import annotations

from typing import Any

import pytest

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.transport.in_place import cause_of, is_in_place, need_of_flush, with_flush

AMPERE, HOPPER = (8, 0), (9, 0)


def nic(**changes: Any) -> dict[str, Any]:
    return {"device_type": 0, "force_flush": 0, **changes}


@pytest.mark.parametrize(
    ("force_flush", "environ", "capability", "expected"),
    [
        (0, {}, HOPPER, ""),
        (0, {}, (10, 0), ""),
        (0, {}, None, ""),
        (1, {}, HOPPER, "plugin x asks for it (forceFlush)"),
        (1, {}, None, "plugin x asks for it (forceFlush)"),
        (0, {"NCCL_NET_FORCE_FLUSH": "1"}, HOPPER, "NCCL_NET_FORCE_FLUSH=1"),
        (0, {"NCCL_NET_FORCE_FLUSH": "0"}, HOPPER, ""),
        (0, {}, AMPERE, "the GPU is older than Hopper (compute capability 8.0)"),
    ],
)
def test_receives_are_flushed_where_nccl_would(
    force_flush: int,
    environ: dict[str, str],
    capability: tuple[int, int] | None,
    expected: str,
) -> None:
    assert need_of_flush("x", force_flush, environ, capability) == expected


def test_a_plugin_that_hands_over_fragments_puts_nothing_in_place() -> None:
    assert [is_in_place(nic(device_type=kind)) for kind in (0, 1, 2, 5)] == [
        True, False, True, True,
    ]  # fmt: skip
    assert _native.DEVICE_UNPACK == 1


def decided(needs: list[str], in_place: bool = True, **given: str) -> Settings:
    settings = load_settings({"pattern": "pair", "memory": "emulated", **given}, {})
    return with_flush(settings, "x", in_place, needs)


def test_all_ranks_flush_if_one_needs_it_and_the_reason_is_kept() -> None:
    found = decided(["", "a reason"])
    assert (found.flush, found.sources["flush"]) == ("always", "auto: a reason")
    assert found.flushes()
    assert found.unpack_mode() == "in place"


def test_without_need_nothing_is_flushed_unless_it_is_typed() -> None:
    found = decided(["", ""])
    assert (found.flush, found.flushes()) == ("never", False)
    assert found.sources["flush"].startswith("auto: no forceFlush, no NCCL_NET_FORCE_FLUSH=1")
    typed = decided(["", ""], flush="always")
    assert typed.flushes()
    assert typed.sources["flush"] == "command line --flush"


def test_a_flush_left_out_against_the_rule_says_what_nccl_would_do() -> None:
    found = decided(["a reason"], flush="never")
    assert not found.flushes()
    assert found.sources["flush"] == "command line --flush; NCCL would flush: a reason"


def test_what_has_no_meaning_for_a_plugin_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"^--flush never: plugin x hands over fragments.*leave"):
        decided([""], in_place=False, flush="never")
    with pytest.raises(UsageError, match=r"^--unpack host: plugin x puts data in place.*leave"):
        decided([""], unpack="host")
    untouched = decided([""], in_place=False, unpack="host")
    assert (untouched.flush, untouched.unpack_mode()) == ("auto", "host")


@pytest.mark.parametrize(
    ("needs", "given", "found", "expected"),
    [
        (["x"], {"flush": "never"}, 0x04, ": not flushed (--flush never)"),
        (["x"], {"flush": "never"}, 0x05, ""),  # neither what was there nor what was sent
        ([""], {}, 0x04, ": not flushed (--flush auto found no need: see --flush always)"),
        (["x"], {}, 0x04, ""),
    ],
)
def test_a_byte_that_is_still_what_it_was_may_not_have_been_flushed(
    needs: list[str], given: dict[str, str], found: int, expected: str
) -> None:
    place = {"element": None, "expected": b"\xfb", "found": bytes([found])}
    assert cause_of(decided(needs, **given), place) == expected


def test_host_memory_is_never_flushed() -> None:
    settings = load_settings({"pattern": "pair", "memory": "host", "flush": "always"}, {})
    assert with_flush(settings, "x", True, ["a reason"]) is settings
    assert not settings.flushes()

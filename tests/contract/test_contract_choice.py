"""Which plugin the general part of the contract is asked of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from net_tables import NEWEST, OLDEST
from subjects import ABI_OPTION, PLUGIN_OPTION, chosen, softtcpx


def asked(plugin: str | None, abi: int | None = None) -> Any:
    """A command line with these options."""
    given = {PLUGIN_OPTION: plugin, ABI_OPTION: abi}
    return SimpleNamespace(getoption=lambda name, default: given.get(name, default))


@pytest.mark.parametrize("abi", range(OLDEST, NEWEST + 1))
def test_of_a_file_that_is_named_the_newest_version_is_asked(abi: int) -> None:
    path = softtcpx(abi)["path"]
    found = chosen(asked(path))
    assert found is not None
    assert (found["path"], found["abi"]) == (str(Path(path).resolve()), abi)


def test_without_a_plugin_ours_are_asked_and_a_version_may_be_named() -> None:
    assert chosen(asked(None)) is None
    found = chosen(asked(softtcpx(9)["path"], 7))
    assert found is not None
    assert found["abi"] == 7


@pytest.mark.parametrize(("path", "said"), [("nowhere.so", "no such file"),
                                            (__file__, "is it a net plugin?")])  # fmt: skip
def test_what_is_no_plugin_is_refused_in_a_line(path: str, said: str) -> None:
    with pytest.raises(pytest.UsageError, match=said.replace("?", r"\?")):
        chosen(asked(path))

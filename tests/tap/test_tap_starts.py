"""How the tap comes to the plugin below it, and what it says where it cannot."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tap_files import LIMIT_S, bundled, command, environment, send

NOTHING = "broken: init returned {code}; the plugin said: tcpx-mpi tap: "


@pytest.mark.parametrize(("abi", "plugin", "code", "line"), [
    (7, "", 5, "TCPX_TAP_PLUGIN is not set: set it to the path or the name of the plugin to use"),
    (7, "/nowhere/libnccl-net-x.so", 2, "TCPX_TAP_PLUGIN (/nowhere/libnccl-net-x.so) cannot be "
        "loaded: /nowhere/libnccl-net-x.so: cannot open shared object file"),
    (7, "{softtcpx-v9}", 5, "{softtcpx-v9} offers v9, this tap v7: use {tap-v9}"),
    (12, "{softtcpx}", 5, "{softtcpx} offers v7, this tap v12: use {tap}"),
    (7, "{tap}", 5, "{tap} is a tap itself: set TCPX_TAP_PLUGIN to a plugin"),
    (7, "{tap-v9}", 5, "{tap-v9} is a tap itself: set TCPX_TAP_PLUGIN to a plugin"),
    (7, "{libc}", 5, "is no NCCL network plugin of v6 to v12"),
])  # fmt: skip
def test_what_cannot_be_used_is_one_line_at_init(
    abi: int, plugin: str, code: int, line: str
) -> None:
    names = {
        "softtcpx": bundled("softtcpx"), "softtcpx-v9": bundled("softtcpx", 9),
        "tap": bundled("tap"), "tap-v9": bundled("tap", 9), "libc": "libc.so.6",
    }  # fmt: skip
    sent = send([64], abi=abi, TCPX_TAP_PLUGIN=plugin.format(**names))
    assert len(sent.messages) == 1
    assert sent.messages[0].startswith(NOTHING.format(code=code))
    assert line.format(**names) in sent.messages[0]
    assert len([each for each in sent.err.splitlines() if "tcpx-mpi tap" in each]) == 1


def test_a_plugin_is_found_by_its_name_as_nccl_finds_it(tmp_path: Path) -> None:
    mine = tmp_path / "libnccl-net-mine.so"
    shutil.copy(bundled("softtcpx"), mine)
    for name in ("softtcpx", str(mine)):
        assert send([64], TCPX_TAP_PLUGIN=name).messages == ["ok"]
    for name in ("mine", mine.name):
        assert send([64], TCPX_TAP_PLUGIN=name, LD_LIBRARY_PATH=str(tmp_path)).messages == ["ok"]


def test_the_code_of_a_plugin_that_does_not_start_is_its_own() -> None:
    plain, tapped = (
        subprocess.run(
            command([64], "again", plugin=plugin), env=environment(), capture_output=True,
            text=True, timeout=LIMIT_S,
        )
        for plugin in (bundled("softtcpx"), None)
    )  # fmt: skip
    assert "init returned 3" in plain.stdout  # the second of a process
    assert tapped.stdout == plain.stdout


@pytest.mark.parametrize(("variable", "value", "line"), [
    ("TCPX_TAP_MEMORY", "1K", "TCPX_TAP_MEMORY (1K) is not a size of 64K"),
    ("TCPX_TAP_FILES", "many", "TCPX_TAP_FILES (many) is not a size"),
    ("TCPX_TAP_SLOW_US", "-1", "TCPX_TAP_SLOW_US (-1) is not a number, 0 or more"),
    ("TCPX_TAP_STALL_S", "1s", "TCPX_TAP_STALL_S (1s) is not a number"),
    ("TCPX_TAP_FAULT", "dely=5", "TCPX_TAP_FAULT: dely=5: expected delay=US, stuck"),
    ("TCPX_TAP_FAULT", "drop,at=x", "TCPX_TAP_FAULT: at=x: expected a whole number"),
    ("TCPX_TAP_FAULT", "error=0", "TCPX_TAP_FAULT: error=0: expected a code of 1 to 255"),
    ("TCPX_TAP_FAULT", "drop,call=send", "TCPX_TAP_FAULT: call=send: expected a call in"),
    ("TCPX_TAP_FAULT", "drop,call=listen", "TCPX_TAP_FAULT: drop,call=listen: expected call=isend"),
])  # fmt: skip
def test_a_setting_that_means_nothing_is_one_line_at_init(
    variable: str, value: str, line: str
) -> None:
    sent = send([64], **{variable: value})
    assert len(sent.messages) == 1
    assert sent.messages[0].startswith(NOTHING.format(code=5) + line)

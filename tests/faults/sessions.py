"""SUITE=faults: two programs with a Session each, and a fault in a call of the plugin of one or of
both: whoever is left hears of it within the deadline, and a call that hangs ends its process.
"""

from __future__ import annotations

import os
import re
import sys

import pytest
from cell import TESTS, build_planted

from tcpx_mpi.plugin.find import bundled_dir

sys.path.append(str(TESTS / "library" / "session"))
from two_sides import run_sides  # the folder is no helpers' folder

CALL_TIMEOUT_S = 3
#: One side sends, the other receives, message by message.
BODY = """
try:
    for _ in range(200):
        {step}(np.zeros(5000, np.uint8))
    print("done")
except TcpxError as error:
    print(f"{{type(error).__name__}}: {{error}}")
"""
SENDS, RECEIVES = BODY.format(step="send"), BODY.format(step="receive")
LOST = "LostRank: "


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_planted(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize(
    ("call", "what", "code", "says", "other"),
    [
        ("isend", "hang", 6, "plugin call isend.* has not returned for", LOST),
        ("isend", "spin", 6, "plugin call isend.* has not returned for", LOST),
        ("isend", "kill", -9, "", LOST),
        ("isend", "exit", 4, r"the plugin .* has ended this process by exit\(0\)", LOST),
        ("isend", "abort", 4, "the plugin .* has crashed by SIGABRT", LOST),
        ("isend", "throw", 0, r"plugin call isend or test, by an exception of C\+\+,", LOST),
        ("regMr", "hang", 6, "plugin call regMr.* has not returned for", ""),
        ("test", "hang", 6, "plugin call test.* has not returned for", ""),
        ("closeSend", "hang", 6, "plugin call closeSend.* has not returned for", ""),
    ],
)
def test_a_fault_in_a_session_is_named_on_both_sides(
    call: str, what: str, code: int, says: str, other: str, planted: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in {
        "PLANT_REAL": os.path.join(bundled_dir(), "libnccl-net-softtcpx.so"),
        "PLANT_CALL": call,
        "PLANT_AT": "30" if call in ("isend", "test") else "1",
        "PLANT_DO": what,
        "TCPX_P2P_CALL_TIMEOUT_S": str(CALL_TIMEOUT_S),
    }.items():
        monkeypatch.setenv(name, value)
    closes = "\ns.close()" if call == "closeSend" else ""
    left, right = run_sides(planted, SENDS + closes, RECEIVES + closes)
    text = f"left {left}\nright {right}"
    assert left.code == code, text
    assert re.search(says, left.out + left.err), text
    if other:
        assert right.out.startswith(other), text
    else:  # its call hangs, too
        assert right.code == code, text
    assert "Traceback" not in left.err + right.err, text

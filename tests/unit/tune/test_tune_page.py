"""docs/how-to/tune.md names every key of `--json`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from tcpx_mpi.tune import document

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "tune.md").read_text()
#: Of the command and its file, which name themselves.
PLAIN = {
    "version", "command", "file", "pattern", "world", "plugin", "plugin_sha256", "memory",
    "seconds", "launches", "final_rounds", "confidence_of_an_interval",
    "setting", "nearest", "run", "environment",
}  # fmt: skip


def test_every_key_of_the_document_is_on_the_page() -> None:
    keys = set(re.findall(r'^ +"(\w+)": ', inspect.getsource(document), re.MULTILINE))
    assert len(keys) > 20
    assert keys - PLAIN == {key for key in keys - PLAIN if f"`{key}`" in PAGE}

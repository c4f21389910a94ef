"""Who is judged where UCX beside the backend ends the process: NIXL's stand-in ends in each way."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from ten_lines import ucx_beside_it

COPYING = Path(__file__).parent / "copying_nixl"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """NIXL 1.5.1 as it is installed, with a UCX."""
    folder = tmp_path / "wheel"
    shutil.copytree(COPYING, folder)
    plugin = folder / "nixl_cu12.libs" / "plugins" / "libplugin_UCX.so"
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    info = folder / "nixl_cu12-1.5.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nixl-cu12\nVersion: 1.5.1\n")
    (info / "RECORD").write_text(f"{plugin.relative_to(folder)},,\n")
    return folder


def judged(wheel: Path, ends: str) -> str:
    ours = {name: value for name, value in os.environ.items()
            if not name.startswith(("NIXL_", "TCPX_NIXL_"))}  # fmt: skip
    return ucx_beside_it({**ours, "PYTHONPATH": str(wheel), "ENDS": ends})


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("", ""),
        (r"-11 TCPX\+UCX at the end", "by SIGSEGV after the last line; alone it ended with 0"),
        ("-11 .* at once", None),
        ("-11 .* at the end", None),  # ours, too
        (r"-11 TCPX\+UCX at once", None),
        (r"-6 TCPX\+UCX at the end", None),
        ("nothing moves", None),
    ],
)
def test_ours_is_judged_by_what_moved_and_by_its_own_end(
    ends: str, said: str | None, wheel: Path
) -> None:
    if said is None:
        with pytest.raises(AssertionError):
            judged(wheel, ends)
    else:
        assert judged(wheel, ends).endswith(said)


def test_a_ucx_that_ends_badly_alone_is_told_so(wheel: Path) -> None:
    assert judged(wheel, "-11 .*UCX at the end").endswith("alone it ended with -11")

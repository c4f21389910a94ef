"""The same engine over a second plugin, which shares no line with the first: all bytes right.

It holds 4 requests where our windows have 12 and 16, so that every window meets "busy" all the
time; it works by threads, reports sizes and has nothing to consume.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jobs import run, tcpx_mpi
from refplugin_build import SOURCE
from variants import variant

#: Nothing, less than a word, less than a rank's share, ragged, several chunks on every channel.
SIZES = (0, 1, 3, 4097, 100_003)
ITERS = 5


def test_it_is_written_from_the_contract_alone_in_under_400_lines() -> None:
    text = SOURCE.read_text()
    assert len(text.splitlines()) < 400
    assert re.findall(r'#include "([^"]+)"', text) == ["net/abi_v7.h"]


def test_the_loader_knows_it_by_its_name_and_abi(refplugin: Path, tmp_path: Path) -> None:
    listed = run(tcpx_mpi("plugins", "--plugin", str(refplugin), "--json"), tmp_path)
    assert listed.code == 0, listed.text
    assert json.loads(listed.out)["chosen"]["path"] == str(refplugin)


@pytest.mark.multirank
@pytest.mark.parametrize(
    ("pattern", "ranks", "channels", "chunk"),
    [
        variant("pair", 2, 1, "1K"),
        variant("pair", 4, 3, "4K"),
        variant("pingpong", 2, 2, "1K"),
        variant("pingpong", 4, 1, "2M"),
        variant("ring", 2, 3, "1K"),
        variant("ring", 3, 1, "4K"),
        variant("mesh", 2, 2, "1K"),
        variant("mesh", 3, 1, "1K"),
        ("mesh", 4, 2, "4K"),
    ],
)
def test_a_pattern_moves_every_byte_over_the_second_plugin_as_over_the_first(
    pattern: str, ranks: int, channels: int, chunk: str, refplugin: Path, tmp_path: Path
) -> None:
    result = run(
        tcpx_mpi(
            "run", pattern, "--ranks", str(ranks), "--plugin", str(refplugin),
            "--sizes", ",".join(map(str, SIZES)), "-n", str(ITERS), "--channels", str(channels),
            "--chunk", chunk, "--check-memory", "16M", "--hdf5", "none", "--spool", str(tmp_path),
        ),
        tmp_path,
    )  # fmt: skip
    assert result.code == 0, result.text
    assert not result.errors, result.text
    assert [row.size for row in result.rows] == list(SIZES), result.text
    assert [row.wrong for row in result.rows] == [None, 0, 0, 0, 0], result.text
    assert "refplugin" in result.out


@pytest.mark.multirank
def test_a_window_of_one_and_windows_of_16_move_the_same_bytes(
    refplugin: Path, tmp_path: Path
) -> None:
    for window in ("1", "16"):
        result = run(
            tcpx_mpi(
                "run", "ring", "--ranks", "2", "--plugin", str(refplugin), "--sizes", "64K",
                "-n", str(ITERS), "--chunk", "1K", "--window-send", window,
                "--window-recv", window, "--hdf5", "none", "--spool", str(tmp_path),
            ),
            tmp_path,
        )  # fmt: skip
        assert result.code == 0, result.text
        assert result.rows[0].wrong == 0


@pytest.mark.multirank
def test_a_variable_of_tcpx_is_nothing_to_a_plugin_that_does_not_read_it(
    refplugin: Path, tmp_path: Path
) -> None:
    command = tcpx_mpi("run", "pair", "--ranks", "2", "--plugin", str(refplugin), "--sizes", "4K",
                       "-n", "2", "--hdf5", "none", "--spool", str(tmp_path))  # fmt: skip
    elsewhere = {"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "nothing-like-it"}
    assert run(command, tmp_path, elsewhere).code == 0

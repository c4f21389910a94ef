"""`tune` before anything is launched: what it refuses, in one line, and leaves nothing of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcpx_mpi import cli

#: With no time for a second launch, so that what is not refused ends all the same.
RING = ["ring", "--ranks", "2", "--plugin", "softtcpx", "--sizes", "4K", "--within", "1ms"]
Captured = pytest.CaptureFixture[str]


def refusal(monkeypatch: pytest.MonkeyPatch, place: Path, capsys: Captured, *words: str) -> str:
    monkeypatch.chdir(place)
    before = sorted(place.iterdir())
    assert cli.main(["tune", *words]) == 2
    error = capsys.readouterr().err
    assert len([line for line in error.splitlines() if "warning" not in line]) == 1
    assert sorted(place.iterdir()) == before
    return error


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["ring"], "launches need --ranks N"),
        (["rign", "--ranks", "2"], "unknown pattern rign (did you mean ring?)"),
        ([*RING[:-1], "soon"], "'soon' is not a duration"),
        ([*RING, "--chanels", "2"], "unknown option --chanels"),
        ([*RING, "-c", "0"], "tune compares checked bytes: use -c 1"),
        ([*RING, "--hdf5", "o.h5"], "--hdf5 is of one command: leave it out; `tune` keeps all"),
        ([*RING, "--space", "none.toml"], "none.toml"),
        ([*RING, "--write", "p.txt"], "--write (p.txt) is no FILE.toml"),
        ([*RING, "--html", "no/p.html"], "the directory no does not exist"),
        ([*RING, "--out", "no/t.h5"], "--out: the directory no does not exist"),
        ([*RING, "--resume", "none.h5"], "none.h5"),
        ([*RING, "--tolerance", "2"], "--tolerance (2)"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_launched(
    arguments: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:  # fmt: skip
    assert text in refusal(monkeypatch, tmp_path, capsys, *arguments)


@pytest.mark.parametrize(
    ("space", "text"),
    [
        ("", "an empty space"),
        ("chunk = [\"4M\"]", "chunk (4M"),
        ("[environment]\nNCCL_BUFFSIZE = [1, 2]", "NCCL alone reads it"),
        ("[environment]\nNCCL_DYNAMIC_CHUNK_SIZE = [4096]",
         "--space: NCCL_DYNAMIC_CHUNK_SIZE=4096: NCCL_DYNAMIC_CHUNK_SIZE (4096) is smaller than"),
    ],
)  # fmt: skip
def test_a_space_that_cannot_be_is_refused(
    space: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "s.toml").write_text(space)
    assert text in refusal(monkeypatch, tmp_path, capsys, *RING, "--space", "s.toml")


def test_a_value_that_the_plugin_would_not_outlive_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    from tcpx_mpi.plugin import unsafe_settings

    # As if softtcpx were the plugin that dies of it.
    monkeypatch.setattr(unsafe_settings, "is_tcpx", lambda name: True)
    (tmp_path / "s.toml").write_text("[environment]\nNCCL_SOCKET_NTHREADS = [2, 12]")
    error = refusal(monkeypatch, tmp_path, capsys, *RING, "--space", "s.toml")
    assert "--space: NCCL_SOCKET_NTHREADS=12: NCCL_SOCKET_NTHREADS (12) leaves a conn" in error
    assert "use 8 or less" in error


def test_a_profile_that_exists_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "p.toml").write_text("mine")
    error = refusal(monkeypatch, tmp_path, capsys, *RING, "--write", "p.toml")
    assert "--write: p.toml exists and is kept" in error
    assert (tmp_path / "p.toml").read_text() == "mine"

"""`tcpx-mpi smoke` between real ranks: every pair each way, right or wrong, and what -v shows."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from jobs import Result, mpirun, run, tcpx_mpi
from variants import variant

pytestmark = pytest.mark.multirank

ROW = re.compile(r"^ +(\d+) +(\d+) {4}(.{16}) +(\d+(?:\.\d+)?)$", re.MULTILINE)
PROBE = re.compile(r"^#   bounce probe: ([0-9a-f ]+)$", re.MULTILINE)
SLOT = re.compile(r"^#   channel (\d+), slot (\d+): (\d+) fragments?: (.+)$", re.MULTILINE)


def smoke(place: Path, *arguments: str, ranks: int = 2, environ: dict[str, str] | None = None
          ) -> Result:  # fmt: skip
    return run(tcpx_mpi("smoke", "--ranks", str(ranks), *arguments), place, environ)


def results(result: Result) -> dict[tuple[int, int], str]:
    """(sender, receiver) -> result, of the rows of the table."""
    rows = ROW.findall(result.out)
    found = {(int(sender), int(receiver)): text.strip() for sender, receiver, text, _ in rows}
    assert len(found) == len(rows), result.text
    return found


@pytest.mark.parametrize(("ranks", "channels"), [variant(2, 1), variant(3, 2), (4, 3)])
def test_every_pair_of_ranks_is_tried_each_way_and_right(
    ranks: int, channels: int, tmp_path: Path
) -> None:
    result = smoke(tmp_path, "--plugin", "softtcpx", "--channels", str(channels), ranks=ranks)
    assert result.code == 0, result.text
    assert result.err == "", result.text
    pairs = itertools.permutations(range(ranks), 2)
    assert results(result) == dict.fromkeys(pairs, "right")
    assert "# smoke: 23 B each way between every two of " in result.out
    assert result.out.endswith(f"# {ranks * (ranks - 1)} messages: all right\n")
    assert list(tmp_path.iterdir()) == [], "it leaves no file"


def test_it_runs_under_mpirun_and_over_the_second_plugin(refplugin: Path, tmp_path: Path) -> None:
    result = run(mpirun(3, "smoke", "--plugin", str(refplugin), "-v"), tmp_path)
    assert result.code == 0, result.text
    assert set(results(result).values()) == {"right"}
    assert "# plugin: refplugin (ABI v7)" in result.out
    assert "# no descriptor queue: the plugin delivers into host memory\n" in result.out


def test_wrong_bytes_are_exit_code_5_and_one_line_of_error(tmp_path: Path) -> None:
    result = smoke(tmp_path, "--plugin", "null", ranks=3)  # moves nothing
    assert result.code == 5, result.text
    assert set(results(result).values()) == {"23 bytes WRONG"}
    assert result.out.endswith("# 6 messages: 6 WRONG\n")
    assert len(result.errors) == 1, result.text
    assert re.match(r"rank \d, peer \d, iteration 0, chunk 0, offset 0: expected", result.errors[0])


@pytest.mark.parametrize(
    ("arguments", "environ", "size"),
    [
        variant(("--payload-bytes", "4097"), {}, "4 KiB"),
        (("--payload-bytes", "100003", "--chunk", "1K"), {}, "97.66 KiB"),
        variant((), {"UCCL_TCPX_PAYLOAD_BYTES": "100"}, "100 B"),
        variant(("--payload-bytes", "1"), {"UCCL_TCPX_PAYLOAD_BYTES": "100"}, "1 B"),
    ],
)
def test_the_payload_has_the_size_that_is_asked_for(
    arguments: tuple[str, ...], environ: dict[str, str], size: str, tmp_path: Path
) -> None:
    result = smoke(tmp_path, "--plugin", "softtcpx", *arguments, environ=environ)
    assert result.code == 0, result.text
    assert f"# smoke: {size} each way" in result.out
    assert set(results(result).values()) == {"right"}


def test_verbose_shows_the_descriptors_and_the_bytes_of_the_bounce_buffer(tmp_path: Path) -> None:
    sizes = ("--payload-bytes", "10000", "--chunk", "6000", "--channels", "2")
    result = smoke(tmp_path, "--plugin", "softtcpx", "--memory", "emulated", "-v", *sizes)
    assert result.code == 0, result.text
    assert "no descriptor queue" not in result.out
    shown = SLOT.findall(result.out)
    # Two chunks a message, one on each channel, both the first receive of their comm.
    assert (
        sorted((channel, slot) for channel, slot, _, _ in shown)
        == [("0", "0")] * 2 + [("1", "0")] * 2
    )
    lengths = [sum(map(int, re.findall(r"(\d+) B at", text))) for *_, text in shown]
    assert sorted(lengths) == [4000, 4000, 6000, 6000]
    from tcpx_mpi import _native

    sent = {_native.payload(10000, 1, sender, 0, 0) for sender in (0, 1)}
    starts = {data[at : at + 32] for data in sent for at in (0, 6000)}
    assert {bytes.fromhex(text) for text in PROBE.findall(result.out)} <= starts
    assert len(PROBE.findall(result.out)) == 4


def test_a_plugin_without_device_memory_is_refused_once(refplugin: Path, tmp_path: Path) -> None:
    result = smoke(tmp_path, "--plugin", str(refplugin), "--memory", "emulated")
    assert result.code == 2, result.text
    assert len(result.errors) == 1, result.text
    assert "--memory emulated" in result.errors[0]


def test_ranks_with_different_plugins_are_refused_in_one_line(tmp_path: Path) -> None:
    with_it = mpirun(1, "smoke", "--plugin", "softtcpx")
    without = ["-n", "1", "-x", "UCCL_TCPX_PLUGIN_PATH=/nowhere.so", *tcpx_mpi("smoke")]
    result = run([*with_it, ":", *without], tmp_path)
    assert result.code == 2, result.text
    assert len(result.errors) == 1, result.text
    assert re.search(r"differs from rank 0 on \S+: plugin \(softtcpx", result.errors[0])

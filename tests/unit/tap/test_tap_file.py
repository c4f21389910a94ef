"""Files of the tap, invented: whole ones, cut ones, and what is none."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import numpy as np
import pytest
from invented_tap import START, block, clock, file_of, record

from tcpx_mpi.errors import UsageError
from tcpx_mpi.tap.file import DONE, RECEIVE, SEND, files_of, read_tap
from tcpx_mpi.tap.joined import NONE, read_job
from tcpx_mpi.tap.ways import Way, matched, summarise


def way_of(folder: Path, sent: list[np.void], received: list[np.void]) -> Way:
    (folder / "0.tap").write_bytes(file_of(0, "send", *sent))
    (folder / "1.tap").write_bytes(file_of(1, "receive", *received))
    (way,) = summarise(read_job(files_of([str(folder)]))).ways
    return way


def test_ticks_are_time_between_and_beyond_the_pairs(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    path.write_bytes(file_of(0, "send", record(SEND, 0, 250, 8), record(DONE, 0, 2_000_000, 8)))
    file = read_tap(str(path))
    assert file.times_ns.tolist() == [START + 250, START + 2_000_000]
    assert (file.ns_a_tick, file.lost, file.rank) == (0.5, 0, 0)


def test_time_is_the_callers_then_the_receivers_then_the_plugins(tmp_path: Path) -> None:
    sent = [record(SEND, 0, 0, 1000), record(DONE, 0, 300, 1000, word=3),
            record(SEND, 1, 900, 1000), record(DONE, 1, 1000, 1000, word=1)]  # fmt: skip
    received = [record(RECEIVE, 0, 200, 1000), record(RECEIVE, 1, 210, 1000),
                record(DONE, 0, 310, 1000), record(DONE, 1, 1100, 1000)]  # fmt: skip
    way = way_of(tmp_path, sent, received)
    assert (way.sender, way.receiver, way.sender_nic) == ("rank 0", "rank 1", "eth1")
    assert (way.messages, way.bytes, way.sizes, way.span_ns) == (2, 2000, {1024: 2}, 1000)
    assert (way.gaps, way.longest_gap_ns, way.most) == (1, 600, 1)
    assert (way.caller, way.receiver_late, way.plugin) == pytest.approx((0.6, 0.2, 0.2))
    assert (way.receive_after_send_us, way.send_after_receive_us) == pytest.approx((0.2, 0.69))
    assert way.gb_per_s == pytest.approx(2.0)
    assert sum(way.over_time) / len(way.over_time) == pytest.approx(2.0)


def test_a_message_whose_record_was_dropped_moves_no_other(tmp_path: Path) -> None:
    sent = [record(SEND, n, 100 * n, 10 + n) for n in (0, 2, 3)]
    received = [record(RECEIVE, n, 100 * n + 50, 10 + n) for n in range(4)]
    way = way_of(tmp_path, sent, received)
    assert (way.messages, way.not_done, way.bytes) == (4, 4, 10 + 11 + 12 + 13)
    assert way.receive_after_send_us == pytest.approx(0.05)


def test_grouped_receives_are_matched_by_their_tags(tmp_path: Path) -> None:
    sent = [record(SEND, 0, 0, 5, word=1), record(SEND, 1, 1, 7, word=2)]
    received = [record(RECEIVE, 0, 10, 7, part=0, parts=2, word=2),
                record(RECEIVE, 0, 10, 5, part=1, parts=2, word=1)]  # fmt: skip
    way = way_of(tmp_path, sent, received)
    assert (way.messages, way.bytes) == (2, 12)
    one, other = matched(read_job(files_of([str(tmp_path)])), 0)
    assert one["bytes"].tolist() == other["bytes"].tolist() == [5, 7]


def test_an_end_without_its_file_has_no_name(tmp_path: Path) -> None:
    (tmp_path / "0.tap").write_bytes(file_of(0, "send", record(SEND, 0, 0, 5)))
    job = read_job(files_of([str(tmp_path)]))
    assert [link.receiver for link in job.links] == [NONE]
    (way,) = summarise(job).ways
    assert (way.sender, way.receiver, way.messages) == ("rank 0", "?", 1)


def test_a_file_that_is_cut_off_is_read_to_its_last_whole_block(tmp_path: Path) -> None:
    content = file_of(0, "send", record(SEND, 0, 0, 5), record(DONE, 0, 9, 5))
    path = tmp_path / "a.tap"
    lengths = set()
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        with contextlib.suppress(UsageError):
            lengths.add(len(read_tap(str(path)).records))
    assert lengths == {0, 2}


@pytest.mark.parametrize(("content", "said"), [
    (b"", "is no file of the tap"),
    (b"TCPXTAP2" + bytes(8), "is no file of the tap"),
    (struct.pack("<8sII", b"TCPXTAP1", 48, 7), "has records of 48 bytes, not of 40"),
    (struct.pack("<8sII", b"TCPXTAP1", 40, 7) + bytes(16), "at byte 16 there is no block"),
    (struct.pack("<8sII", b"TCPXTAP1", 40, 7), "it does not say whose it is"),
    (file_of(0, "send").replace(b'"rank": 0', b'"rank":-2'), "rank is -2"),
    (file_of(0, "send").replace(b'"path"', b'"pith"'), "'path' is missing"),
    (file_of(0, "send") + block(9, b""), "a block of another version"),
    (file_of(0, "send") + block(1, b"[1]\n"), "a line is no object"),
    (file_of(0, "send") + clock(-9), "its clock goes back"),
])  # fmt: skip
def test_what_is_no_such_file_is_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=said.replace("[", r"\[")) as refused:
        read_tap(str(path))
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_a_folder_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no file of the tap"):
        files_of([str(tmp_path)])

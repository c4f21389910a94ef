"""Recordings out of invented files: what a post waits for, and that no plugin makes it wait for
ever."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invented_tap import HANDLE, Job, Message, file_with, record, write_job

from tcpx_mpi import patterns
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.patterns.recording import Recording
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter import prove
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.table import NONE, Column, Op, Schedule
from tcpx_mpi.tap import recording as recordings
from tcpx_mpi.tap.file import DONE, RECEIVE, SEND
from tcpx_mpi.tap.recording import Part, read_recording

MS = 1_000_000
TO, BACK = (0, 1, 0), (1, 0, 0)


def replayed(recording: Recording) -> Pattern:
    return patterns.find_program(patterns.RECORDED).pattern(Form(recording=recording))


def schedule_of(recording: Recording, rank: int) -> Schedule:
    return replayed(recording).schedule(rank, recording.world)


def waited_for(schedule: Schedule, step: int) -> set[int]:
    """The sends and receives that a step is behind, through the copies that join them."""
    found: set[int] = set()
    for column in (Column.PRED0, Column.PRED1):
        pred = int(schedule.table[step, column])
        if pred == NONE:
            continue
        joins = schedule.table[pred, Column.OP] in (Op.COPY, Op.PAUSE)
        found |= waited_for(schedule, pred) if joins else {pred}
    return found


def steps_of(schedule: Schedule, op: Op) -> list[int]:
    return np.flatnonzero(schedule.column(Column.OP) == op).tolist()


def test_a_send_waits_for_those_of_its_connection_that_were_done(tmp_path: Path) -> None:
    job = {TO: [Message(0, 50, 0, 60), Message(10, 70, 0, 75), Message(55, 90, 80, 95)]}
    schedule = schedule_of(read_recording(str(write_job(tmp_path, job, 2))), 0)
    assert [waited_for(schedule, step) for step in range(3)] == [set(), set(), {0}]
    receiver = schedule_of(read_recording(str(tmp_path)), 1)
    assert [waited_for(receiver, step) for step in range(3)] == [set(), set(), {1}]


def test_a_post_waits_for_receives_of_every_connection_and_for_sends_of_its_own_alone(
    tmp_path: Path,
) -> None:
    job = {
        (0, 1, 0): [Message(0, 5, 0, 6), Message(100, 105, 90, 106)],
        (0, 2, 0): [Message(1, 5, 0, 6), Message(101, 106, 90, 107)],
        (1, 0, 0): [Message(20, 25, 2, 30)],
        (2, 0, 0): [Message(20, 25, 3, 31)],
        (2, 0, 1): [Message(20, 25, 4, 120)],
    }
    schedule = schedule_of(read_recording(str(write_job(tmp_path, job, 3))), 0)
    sends, receives = steps_of(schedule, Op.SEND), steps_of(schedule, Op.RECV)
    assert waited_for(schedule, sends[2]) == {sends[0], *receives[:2]}
    assert waited_for(schedule, sends[3]) == {sends[1], *receives[:2]}
    assert schedule.peers_received == [(1, 0), (2, 0), (2, 1)]


def test_a_rank_pauses_while_nothing_was_under_way_and_by_gaps(tmp_path: Path) -> None:
    job = {
        TO: [Message(0, MS, 0, MS), Message(4 * MS, 5 * MS, MS, 5 * MS)],
        BACK: [Message(MS, 2 * MS, 0, 2 * MS)],
    }
    folder = str(write_job(tmp_path, job, 2))
    pauses = {}
    for gaps in (0.0, 1.0, 2.5):
        recording = read_recording(folder, gaps)
        for rank in (0, 1):
            schedule = schedule_of(recording, rank)
            steps = steps_of(schedule, Op.PAUSE)
            pauses[gaps, rank] = [int(schedule.table[step, Column.BLOCKS]) for step in steps]
    # Rank 1 has a receive posted all the time.
    assert pauses == {
        (0.0, 0): [], (1.0, 0): [2000], (2.5, 0): [5000],
        (0.0, 1): [], (1.0, 1): [], (2.5, 1): [],
    }  # fmt: skip
    schedule = schedule_of(read_recording(folder), 0)
    (pause,) = steps_of(schedule, Op.PAUSE)
    assert waited_for(schedule, pause) == {steps_of(schedule, Op.RECV)[0], 0}
    assert read_recording(folder, 2.5).longest_idle_s == pytest.approx(0.005)


def test_messages_keep_their_bytes_by_peer_lane_and_order(tmp_path: Path) -> None:
    job: Job = {
        (0, 1, 0): [Message(n, n + 9, 0, n + 9, 10 + n) for n in range(4)],
        (0, 1, 1): [Message(n, n + 9, 0, n + 9, 90 + n) for n in range(3)],
        (1, 0, 0): [Message(n, n + 9, 0, n + 9, 0) for n in range(2)],
    }
    recording = read_recording(str(write_job(tmp_path, job, 2)))
    messages = recording.messages
    for (sender, receiver, lane), sent in job.items():
        here = (messages["sender"] == sender) & (messages["lane"] == lane)
        assert set(messages["receiver"][here].tolist()) == {receiver}
        assert messages["bytes"][here].tolist() == [one.bytes for one in sent]
    assert (recording.busiest_bytes, recording.longest_bytes) == (46 + 273, 92)
    assert recording.depth == 4
    outcome = prove(replayed(recording), 2, recording.busiest_bytes, EngineModel(1 << 20, 1))
    assert outcome.link_bytes == {(0, 1): 46 + 273, (1, 0): 0}


@st.composite
def _jobs(draw: st.DrawFn) -> tuple[Job, int]:
    """Jobs over a plugin that ends a send before its receive is posted, or after it."""
    ranks = draw(st.integers(2, 4))
    ways = [(a, b, lane) for a in range(ranks) for b in range(ranks) if a != b for lane in (0, 1)]
    job = {}
    for way in draw(st.lists(st.sampled_from(ways), min_size=1, max_size=6, unique=True)):
        count = draw(st.integers(1, 4))
        instants = st.lists(st.integers(0, 40_000), min_size=count, max_size=count)
        sent, awaited = sorted(draw(instants)), sorted(draw(instants))
        takes = draw(st.lists(st.integers(0, 9_000), min_size=2 * count, max_size=2 * count))
        job[way] = [
            Message(s, s + takes[2 * n], a, max(s, a) + takes[2 * n + 1], 1 + n)
            for n, (s, a) in enumerate(zip(sent, awaited, strict=True))
        ]
    return job, ranks


@settings(max_examples=60, deadline=None)
@given(jobs=_jobs(), gaps=st.sampled_from([0.0, 1.0]), rendezvous=st.booleans(),
       windows=st.integers(1, 4), order=st.integers(0, 1 << 16))  # fmt: skip
def test_no_recording_waits_for_ever_over_any_plugin(
    jobs: tuple[Job, int], gaps: float, rendezvous: bool, windows: int, order: int
) -> None:
    job, ranks = jobs
    with tempfile.TemporaryDirectory() as folder:
        recording = read_recording(str(write_job(Path(folder), job, ranks)), gaps)
    windows = max(windows, recording.depth)
    engine = EngineModel(1 << 20, 1, windows, windows, rendezvous=rendezvous, order=order)
    prove(replayed(recording), ranks, recording.busiest_bytes, engine, iterations=2)


def test_a_pause_is_behind_no_send_that_ended_before_its_receive_was_posted(tmp_path: Path) -> None:
    # Another plugin would keep the first send until rank 1 has what rank 0 sends after the pause.
    job = {
        TO: [Message(0, MS, 20 * MS, 21 * MS)],
        (0, 1, 1): [Message(10 * MS, 11 * MS, 0, 12 * MS)],
    }
    recording = read_recording(str(write_job(tmp_path, job, 2)))
    assert steps_of(schedule_of(recording, 0), Op.PAUSE)
    prove(replayed(recording), 2, recording.busiest_bytes, EngineModel(1 << 20, 1))


def test_a_rank_is_not_idle_while_an_older_message_goes_on(tmp_path: Path) -> None:
    job = {
        TO: [Message(0, 8 * MS, 0, 8 * MS)],
        (0, 1, 1): [Message(1, MS, 0, MS), Message(5 * MS, 6 * MS, 0, 6 * MS)],
    }
    assert read_recording(str(write_job(tmp_path, job, 2))).longest_idle_s == 0


def test_what_has_one_end_only_is_left_out_and_counted(tmp_path: Path) -> None:
    sent = [each for n in range(3) for each in (record(SEND, n, n, 8), record(DONE, n, n + 5, 8))]
    received = [record(RECEIVE, 0, 0, 8), record(DONE, 0, 9, 8), record(RECEIVE, 2, 1, 8)]
    (tmp_path / "0.tap").write_bytes(file_with(0, [("send", HANDLE)], sent))
    (tmp_path / "1.tap").write_bytes(file_with(1, [("receive", HANDLE)], received, lost=3))
    recording = read_recording(str(tmp_path))
    assert len(recording.messages) == 1
    assert recording.notes[-1] == (
        "left out: 3 records that the tap dropped, 2 messages that were not whole or not done"
    )


def test_ranks_that_no_launcher_numbered_are_those_of_their_processes(tmp_path: Path) -> None:
    sent = [record(SEND, 0, 0, 8), record(DONE, 0, 5, 8)]
    received = [record(RECEIVE, 0, 0, 8), record(DONE, 0, 9, 8)]
    made = ((9, "send", sent), (4, "receive", received))
    for process, side, records in made:
        content = file_with(-1, [(side, HANDLE)], records, ranks=-1, process=process)
        (tmp_path / f"{process}.tap").write_bytes(content)
    recording = read_recording(str(tmp_path))
    assert recording.messages[["sender", "receiver"]].tolist() == [(1, 0)]


def test_a_part_of_a_record_is_by_when_messages_were_sent(tmp_path: Path) -> None:
    job = {TO: [Message(n * MS, n * MS + 9, 0, n * MS + 9, n) for n in range(5)]}
    folder = str(write_job(tmp_path, job, 2))
    assert read_recording(folder, 1.0, Part(0.001, 0.002)).messages["bytes"].tolist() == [1, 2]
    assert read_recording(folder, 1.0, Part(0.003)).messages["bytes"].tolist() == [3, 4]


@pytest.mark.parametrize("what", ["one rank", "lacks a rank", "too many", "nothing", "grouped"])
def test_what_cannot_be_sent_again_is_one_line(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, part = {TO: [Message(n * MS, n * MS + 9, 0, n * MS + 9) for n in range(5)]}, Part()
    write_job(tmp_path, job, 2)
    if what == "one rank":
        (tmp_path / "0.tap").unlink()
        (tmp_path / "1.tap").write_bytes(file_with(0, [("receive", HANDLE)], [], ranks=1))
    elif what == "lacks a rank":
        (tmp_path / "1.tap").unlink()
    elif what == "too many":
        monkeypatch.setattr(recordings, "MOST_MESSAGES", 2)
    elif what == "nothing":
        part = Part(1.0)
    else:
        received = [record(RECEIVE, 0, 0, 8, part=n, parts=2) for n in (0, 1)]
        content = file_with(1, [("receive", "0000000100000000")], received, lost=7)
        (tmp_path / "1.tap").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_recording(str(tmp_path), 1.0, part)
    assert "\n" not in str(caught.value)
    words = {
        "one rank": "has records of one rank only: give the files of all ranks",
        "lacks a rank": "has no records of rank 1, and records of 1 rank of 2: give the files of",
        "too many": "has 5 messages in 0.004 s, more than the 2 of a schedule: take a part by "
        "--replay-from and --replay-for, like --replay-for 0.0016s",
        "nothing": "has no message in what is asked for: give the files of all ranks, or",
        "grouped": "lacks 7 records, and receives of several parts cannot be matched without",
    }[what]
    assert words in str(caught.value)

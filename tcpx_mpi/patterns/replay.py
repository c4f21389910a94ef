"""The messages of a job that was recorded, posted again in its order and depth (`replay`).

A connection of the record is a lane. A post waits for what its rank knew when it posted: for all
receives that were done by then, and a send for the sends that were done on its own connection.
Sends of other connections are not waited for. Some plugins end a send before its receive is posted,
others do not, and over those a rank would wait for a receive that waits for the rank. That a send
waits for those before it on its connection stops nobody else: their receives come before its own.

Where nothing of a rank was under way it pauses (`--gaps`), behind all that was done before: of
sends those alone whose receive had been posted by then, for the same reason. All that is waited for
was so in the order of the recorded time, so no two ranks wait for each other over any plugin.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.patterns.program import After, Form, of_bytes
from tcpx_mpi.patterns.recording import MESSAGE, Post, Recording
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern, fewer_than_two
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import BlockTable, Layout, Schedule, Wait, make_layout


def _invented(world: int) -> Recording:
    """Without a record: a message from each rank to the next, and one back when it is there."""
    ranks = np.arange(world)
    messages = np.zeros(2 * world, MESSAGE)
    messages["sender"] = np.concatenate([ranks, (ranks + 1) % world])
    messages["receiver"] = np.concatenate([(ranks + 1) % world, ranks])
    messages["lane"] = np.repeat([0, 1], world)
    messages["bytes"] = 1

    def posts(rank: int) -> list[Post]:
        before = (rank - 1) % world
        return [
            Post(rank, True),
            Post(before, False),
            Post(world + rank, False),
            Post(world + before, True, arrived=(before,), idle_us=1, left=(rank,)),
        ]

    return Recording(world, messages, posts)


class _Steps:
    """The steps of a rank under way: what its next post has to wait for."""

    def __init__(self, recording: Recording, rank: int) -> None:
        self._messages = recording.messages
        self._steps = ScheduleBuilder()
        sent, received = recording.sent(rank), recording.received(rank)
        self._source = {number: block for block, number in enumerate(sent.tolist())}
        self._target = {number: block for block, number in enumerate(received.tolist())}
        self._empty = len(sent), len(received)
        self._step: dict[tuple[int, bool], int] = {}
        #: A step behind all that was known at one time; none yet.
        self._known: list[int] = []
        #: What is known since, by connection: the last one stands for those before it.
        self._waits: dict[tuple[int, int, int], int] = {}

    def of(self, posts: Sequence[Post]) -> Schedule:
        for post in posts:
            self._add(post)
        return self._steps.build()

    def _add(self, post: Post) -> None:
        for number in post.arrived:
            self._waits[self._connection(number)] = self._step[number, False]
        if post.idle_us:
            for number in post.left:
                self._waits[self._connection(number)] = self._step[number, True]
            pause = self._steps.pause(post.idle_us, after=self._needs(2))
            self._known = [pause]
            self._waits.clear()
        own = [(self._step[post.own, True], Wait.WHOLE)] if post.own >= 0 else []
        after, number = [*self._needs(2 - len(own)), *own], post.message
        sender, receiver, lane = self._connection(number)
        if post.sends:
            step = self._steps.send(receiver, self._source[number], lane=lane, after=after)
        else:
            step = self._steps.receive(sender, self._target[number], lane=lane, after=after)
        self._step[number, post.sends] = step

    def _connection(self, number: int) -> tuple[int, int, int]:
        sender, receiver, lane, _ = self._messages[number].tolist()
        return sender, receiver, lane

    def _needs(self, most: int) -> After:
        """So few steps for all that is known: an empty copy joins two of them."""
        while len(self._known) + len(self._waits) > most:
            joined = list(self._waits)[: 2 - len(self._known)]
            steps = [*self._known, *(self._waits.pop(connection) for connection in joined)]
            after = [(step, Wait.WHOLE) for step in steps]
            self._known = [self._steps.copy(*self._empty, after=after)]
        return [(step, Wait.WHOLE) for step in (*self._known, *self._waits.values())]


def replay(form: Form) -> Pattern:
    recording = form.recording

    def of(world: int) -> Recording:
        return _invented(world) if recording is None else recording

    @functools.lru_cache(maxsize=16)
    def schedule(rank: int, world: int) -> Schedule:
        found = of(world)
        return _Steps(found, rank).of(found.posts(rank))

    def lengths(numbers: NDArray[np.intp], world: int, size_bytes: int) -> BlockTable:
        found = of(world)
        scaled = found.messages["bytes"][numbers]
        if size_bytes != found.busiest_bytes:
            parts = size_bytes / max(found.busiest_bytes, 1)
            scaled = (scaled * parts).astype(np.int64)
        return BlockTable.of_lengths(np.append(scaled, 0))

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        found = of(world)
        return make_layout(
            send=lengths(found.sent(rank), world, size_bytes),
            recv=lengths(found.received(rank), world, size_bytes),
        )

    def expected(rank: int, world: int) -> Expected:
        found = of(world)
        received = found.received(rank)
        senders = found.messages["sender"][received]
        blocks = np.zeros(len(received), np.int32)
        for sender in np.unique(senders).tolist():
            of_sender = senders == sender
            blocks[of_sender] = np.searchsorted(found.sent(sender), received[of_sender])
        return Expected(np.arange(len(received), dtype=np.int32), senders.astype(np.int32), blocks)

    def refuse(world: int) -> str | None:
        return fewer_than_two("replay", world)

    return Pattern(
        name="replay",
        refuse=refuse,
        schedule=schedule,
        layout=layout,
        expected=expected,
        notes=() if recording is None else recording.notes,
    )


#: NCCL has neither lanes nor pauses.
PROGRAMS = (
    dataclasses.replace(
        of_bytes("replay", replay, "replay_path", "gaps", "replay_from_s", "replay_for_s"), nccl=""
    ),
)

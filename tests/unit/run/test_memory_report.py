"""What a run takes of memory: marks, and the rank that took most."""

from __future__ import annotations

from tcpx_mpi.run.memory_report import memory_lines
from tcpx_mpi.transport.memory_marks import MemoryMarks, resident_bytes

MIB = 1 << 20


def test_each_part_is_told_of_the_rank_that_took_most_of_it() -> None:
    lines = memory_lines([([MIB, 2 * MIB, -5], []), ([3 * MIB, MIB, 4096], [])])
    assert lines == [
        "# Memory of a process  : set-up 3 MiB (rank 1), buffers 2 MiB (rank 0), rows 4 KiB "
        "(rank 1), at most"
    ]


def test_a_gpu_is_told_of_where_every_rank_has_one() -> None:
    ranks = [([1, 1, 1], [0, MIB, 2]), ([1, 1, 1], [0, 2 * MIB, 1])]
    assert memory_lines(ranks)[1] == (
        "# Memory of a GPU      : set-up 0 B (rank 0), buffers 2 MiB (rank 1), rows 2 B (rank 0), "
        "at most"
    )


def test_what_is_taken_between_two_marks_is_seen() -> None:
    marks = MemoryMarks()
    free = iter([100, 60])
    marks.mark()
    kept = bytearray(64 * MIB)
    kept[::4096] = b"x" * len(kept[::4096])
    marks.mark(lambda: next(free))
    marks.mark(lambda: next(free))
    host, gpu = marks.taken()
    assert host[0] > 32 * MIB
    assert gpu == [40]
    assert resident_bytes() > len(kept)

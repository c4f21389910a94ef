"""The traffic matrix of alltoallv and of the pattern `matrix`: row i is from rank i to rank j.

As nccl-tests has it: numbers with blanks between them, as many rows as columns, at least as many as
ranks; each is multiplied by the scale and rounded down, in alltoallv to 16 bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import Limits, read_text

Matrix = tuple[tuple[int, ...], ...]

_ALIGNMENT = 16
#: Of a sequence, which is held in memory whole.
MOST_MATRICES = 4096
#: No machine has buffers for more; it keeps sums of many inside 64 bits.
_MOST_BYTES = 1 << 40
#: A number takes up to 10 times its letters as an object of Python: 1,024 ranks have room.
_LIMITS = Limits(bytes=16 << 20, lines=1 << 16)


def read_matrix(
    path: str, scale: float, label: str = "--matrix", alignment: int = _ALIGNMENT
) -> Matrix:
    """The matrix in a file, of multiples of `alignment`. Raises UsageError: line and column."""
    text = read_text(path, _LIMITS, f"{label} ({path})")
    return parse_matrix(text, scale, f"{label} ({path})", alignment)


def parse_matrix(text: str, scale: float, label: str, alignment: int = _ALIGNMENT) -> Matrix:
    """The matrix in a text; see `read_matrix`."""
    rows: list[tuple[int, ...]] = []
    for number, line in enumerate(text.splitlines(), 1):
        row = tuple(
            _bytes_of(
                word.group(), scale, f"{label}, line {number}, column {word.start() + 1}", alignment
            )
            for word in re.finditer(r"\S+", line)
        )
        if not row:
            continue
        if rows and len(row) != len(rows[0]):
            raise UsageError(
                f"{label}, line {number}: {len(row)} numbers, and {len(rows[0])} in the rows above "
                "it; give each row as many"
            )
        rows.append(row)
    if not rows:
        raise UsageError(f"{label} is empty; give a row of bytes for each rank")
    if len(rows) != len(rows[0]):
        raise UsageError(
            f"{label} has {len(rows)} rows of {len(rows[0])} numbers; give as many rows as columns"
        )
    return tuple(rows)


def read_sequence(paths: Sequence[str], scale: float, label: str = "--sequence") -> list[Matrix]:
    """The matrices of these files, in their order: one a file, or of a file one a line, row behind
    row, as a recorder writes them. Raises UsageError."""
    found: list[Matrix] = []
    for path in paths:
        where = f"{label} ({path})"
        text = read_text(path, _LIMITS, where)
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        numbers = len(lines[0][1].split()) if lines else 0
        ranks = math.isqrt(numbers)
        if len(lines) == numbers or ranks**2 != numbers or ranks < 2:
            found.append(parse_matrix(text, scale, where, 1))
        else:
            found += [_of_line(line, ranks, scale, f"{where}, line {n}") for n, line in lines]
        if len(found) > MOST_MATRICES:
            raise UsageError(f"{label} has more than {MOST_MATRICES} matrices; give fewer")
    return found


def _of_line(line: str, ranks: int, scale: float, label: str) -> Matrix:
    words = line.split()
    if len(words) != ranks**2:
        raise UsageError(
            f"{label}: {len(words)} numbers, and {ranks**2} in the first line, a matrix of {ranks} "
            "ranks each; give each line as many"
        )
    numbers = [_bytes_of(word, scale, f"{label}, number {i}", 1) for i, word in enumerate(words, 1)]
    return tuple(tuple(numbers[row * ranks : (row + 1) * ranks]) for row in range(ranks))


def require_ranks(matrix: Matrix, ranks: int, size_bytes: int, label: str) -> None:
    """Raises UsageError if there are more ranks than rows, or a rank has more than the size."""
    if len(matrix) < ranks:
        raise UsageError(too_few_rows(matrix, ranks, label))
    sent = [sum(row[:ranks]) for row in matrix[:ranks]]
    received = [sum(row[rank] for row in matrix[:ranks]) for rank in range(ranks)]
    most = max(*sent, *received)
    if most > size_bytes:
        raise UsageError(
            f"-e/--maxbytes ({size_bytes}) is smaller than what a rank sends or receives by "
            f"{label} ({most} bytes); use -b and -e of {most} or more"
        )


def too_few_rows(matrix: Matrix, ranks: int, label: str) -> str:
    return f"{label} has {len(matrix)} rows, fewer than the {ranks} ranks; give one a rank"


def _bytes_of(word: str, scale: float, label: str, alignment: int) -> int:
    try:
        value = float(word) * scale
    except ValueError:
        value = math.nan
    if not 0 <= value <= _MOST_BYTES:
        raise UsageError(
            f"{label}: {word[:40]} is no number of bytes; write one from 0 to {_MOST_BYTES}"
            + ("" if scale == 1 else f", times the scale of {scale:g}")
        )
    return int(value) // alignment * alignment

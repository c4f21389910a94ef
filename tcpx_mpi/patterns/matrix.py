"""The traffic matrix of alltoallv and of the pattern `matrix`: row i is from rank i to rank j.

As nccl-tests has it: numbers with blanks between them, as many rows as columns, at least as many as
ranks; each is multiplied by the scale and rounded down, in alltoallv to 16 bytes.
"""

from __future__ import annotations

import math
import re

from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import Limits, read_text

Matrix = tuple[tuple[int, ...], ...]

_ALIGNMENT = 16
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

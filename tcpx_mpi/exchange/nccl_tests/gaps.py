"""Rows that a log lacks: sizes that were requested and appear in no row.

nccl-tests prints a row for every size of a pass, rounded down to what its ranks and types divide,
and then its footer. So between header and footer the rows of a pass are as many as the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcpx_mpi.exchange.nccl_tests.model import MOST_SIZES, Log

#: So many of the sizes that are missing are named.
_SHOWN = 5


def missing_rows(log: Log) -> list[str]:
    """Missing rows of a log with a footer, a text for each pass; [] if none is missing, or if the
    log does not say what was asked for."""
    asked = log.asked_count()
    if not _tells_what_was_asked(log):
        return []
    passes = _passes(log)
    # Rows of which pieces are there have been told of.
    in_pieces = log.rows_in_pieces
    found = []
    for key, sizes in passes:
        missing = asked - len(sizes)
        if log.may_be_shortened:
            missing -= _after(log, sizes[-1] if sizes else log.min_bytes)
        known, in_pieces = min(in_pieces, max(missing, 0)), max(in_pieces - max(missing, 0), 0)
        if missing > known:
            found.append(_text(log, key if len(passes) > 1 else None, sizes, missing, known))
    return found


def are_all_there(log: Log) -> bool:
    """Whether it is known that no row is missing."""
    return _tells_what_was_asked(log) and not missing_rows(log)


def _tells_what_was_asked(log: Log) -> bool:
    # Of other steps, as of a list, the sizes are not told.
    told = log.step_factor > 1 or log.step_bytes > 0
    return log.concluded and told and log.asked_count() > 0


def _passes(log: Log) -> list[tuple[tuple[str, str, int], list[int]]]:
    """(type, operation and root; sizes) of each: where they change and the sizes begin again."""
    passes: list[tuple[tuple[str, str, int], list[int]]] = []
    for row in log.rows:
        key = (row.type_name, row.redop, row.root)
        if not passes or (key != passes[-1][0] and row.size_bytes <= passes[-1][1][-1]):
            passes.append((key, []))
        passes[-1][1].append(row.size_bytes)
    return passes or [(("", "", -1), [])]


def _after(log: Log, last: int) -> int:
    """The number of sizes that were asked for beyond this one."""
    if log.asked_count() > MOST_SIZES:
        return log.asked_count()
    return sum(size > last for size in log.asked_sizes())


def _text(
    log: Log, key: tuple[str, str, int] | None, sizes: Sequence[int], missing: int, known: int
) -> str:
    count = missing - known
    of_pass = "" if key is None else f" of the pass {key[0]} {key[1]} root {key[2]}"
    what = f"{count} row{of_pass} is" if count == 1 else f"{count} rows{of_pass} are"
    names = [] if known else _sizes_without_row(log, sizes, missing)
    shown = ", ".join(map(str, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    which = f": no row of {shown}{more} bytes" if names else ""
    return (
        f"{what} not in the log, of {log.asked_count()} sizes from {log.min_bytes} to "
        f"{log.max_bytes} bytes{which}"
    )


def _sizes_without_row(log: Log, sizes: Sequence[int], missing: int) -> list[int]:
    """The sizes that were asked for and have no row; [] if rounding leaves that open."""
    if log.asked_count() > MOST_SIZES:
        return []
    asked = log.asked_sizes()
    lost: list[int] = []
    place = 0
    for index, size in enumerate(asked):
        later = asked[index + 1] if index + 1 < len(asked) else None
        # The row of this size, rounded: not above it, and nearer to it than to the one before.
        if place < len(sizes) and sizes[place] <= size and (later is None or sizes[place] < later):
            before = asked[index - 1] if index else -1
            if sizes[place] > before or size == sizes[place] or not lost:
                place += 1
                continue
        lost.append(size)
    return lost if place == len(sizes) and len(lost) >= missing else []

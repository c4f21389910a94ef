"""Lists of CPUs, as the kernel writes them: 0-3,8."""

from __future__ import annotations

from collections.abc import Iterable

MOST_CPUS = 1 << 16


def cpu_list_text(cpus: Iterable[int]) -> str:
    """CPUs as the kernel writes them: 0-3,8."""
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in ranges_of(cpus))


def parse_cpu_list(text: str, most: int = MOST_CPUS) -> tuple[int, ...]:
    """The CPUs of such a list, sorted, each once. Raises ValueError for any other text, and for one
    that lists more than `most`."""
    cpus: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise ValueError(part)
        begin, end = int(first), int(last or first)
        most -= end - begin + 1
        # Nothing has so many CPUs: a slip of the keyboard must not fill the memory.
        if end < begin or end >= MOST_CPUS or most < 0:
            raise ValueError(part)
        cpus.update(range(begin, end + 1))
    return tuple(sorted(cpus))


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= 9


def ranges_of(cpus: Iterable[int]) -> list[tuple[int, int]]:
    """The runs of neighbouring CPUs, each as its first and its last."""
    ranges: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], cpu)
        else:
            ranges.append((cpu, cpu))
    return ranges

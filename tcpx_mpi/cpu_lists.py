"""Lists of CPUs, as the kernel writes them: 0-3,8."""

from __future__ import annotations

from collections.abc import Iterable


def cpu_list_text(cpus: Iterable[int]) -> str:
    """CPUs as the kernel writes them: 0-3,8."""
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in ranges_of(cpus))


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The CPUs of such a list, sorted, each once. Raises ValueError for any other text."""
    cpus: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(part)
        begin, end = int(first), int(last or first)
        # Nothing has so many CPUs: a slip of the keyboard must not fill the memory.
        if end < begin or end >= 1 << 16:
            raise ValueError(part)
        cpus.update(range(begin, end + 1))
    return tuple(sorted(cpus))


def ranges_of(cpus: Iterable[int]) -> list[tuple[int, int]]:
    """The runs of neighbouring CPUs, each as its first and its last."""
    ranges: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], cpu)
        else:
            ranges.append((cpu, cpu))
    return ranges

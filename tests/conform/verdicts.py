"""What `conform` says of softtcpx, as one table: softtcpx_verdicts.txt.

Of what is not offered because a later version brought it there is no line. To write it anew, which
moves gigabytes: python tests/conform/verdicts.py; then read what `git diff` says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conform_command import conform

from tcpx_mpi.conform.clause import NEWEST, OLDEST, Clause
from tcpx_mpi.conform.table import CLAUSES

TABLE = Path(__file__).with_name("softtcpx_verdicts.txt")
#: The versions that have a memory, the newest first.
VERSIONS = {
    "host": range(NEWEST, OLDEST - 1, -1),
    "emulated": range(NEWEST, OLDEST, -1),
}
_HEAD = """\
# What `tcpx-mpi conform softtcpx --abi all` says: by clause, in which memory, of which versions.
"""
_ANY = "any"


def expected(memory: str, abi: int, quick: bool) -> list[dict[str, Any]]:
    """What the table says of each clause of a version, as the JSON has it."""
    found = {
        clause: (verdict, reason.format(abi=abi))
        for clause, where, versions, verdict, reason in _lines()
        if where in (_ANY, memory) and abi in _range(versions)
    }
    judged = {
        clause: _without_table(clause, abi, quick) or found[clause.name] for clause in CLAUSES
    }
    return [
        {"clause": c.name, "verdict": verdict, "reason": reason, "hurts_nccl": c.hurts}
        for c, (verdict, reason) in judged.items()
    ]


def _without_table(clause: Clause, abi: int, quick: bool) -> tuple[str, str] | None:
    if abi < clause.since:
        return "not offered", f"v{clause.since} brought it"
    return ("not tried", "left out by --quick") if quick and clause.costly else None


def _lines() -> Iterator[list[str]]:
    for line in TABLE.read_text().splitlines():
        if not line.startswith("#"):
            yield [part.strip() for part in line.split(" | ")]


def _range(versions: str) -> range:
    first, _, last = versions.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> None:
    """Writes the table by what is found now."""
    found: dict[str, dict[tuple[str, str], dict[str, list[int]]]] = {}
    for memory in VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            which = ("--abi", "all", "--memory", memory)
            done = conform(Path(folder), "softtcpx", *which, NCCL_SOCKET_IFNAME="=lo")
        for version in done.document["versions"]:
            for each in version["clauses"]:
                if each["reason"].endswith("brought it"):
                    continue
                reason = each["reason"].replace(f"v{version['abi']}", "v{abi}")
                where = found.setdefault(each["clause"], {})
                where = where.setdefault((each["verdict"], reason), {})
                where.setdefault(memory, []).append(version["abi"])
    lines = [
        f"{clause:20} | {memory:8} | {versions:5} | {verdict:11} | {reason}\n"
        for clause, verdicts in found.items()
        for (verdict, reason), where in verdicts.items()
        for memory, versions in _places(where)
    ]
    TABLE.write_text(_HEAD + "".join(lines))


def _places(where: dict[str, list[int]]) -> Iterator[tuple[str, str]]:
    """Which memory, and which versions; one line for both memories, if v6 is all that differs."""
    ranges = {memory: f"{min(of)}-{max(of)}" for memory, of in where.items()}
    host, emulated = where.get("host"), where.get("emulated")
    if host and emulated and [abi for abi in host if abi != OLDEST] == emulated:
        yield _ANY, ranges["host"]
    else:
        yield from ranges.items()


if __name__ == "__main__":
    main()

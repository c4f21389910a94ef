"""Lines of logs that the doctor's tests are made of, and its verdict on them."""

from __future__ import annotations

from collections.abc import Sequence

from tcpx_mpi.doctor import judge, lines
from tcpx_mpi.findings import Severity
from tcpx_mpi.machine import profiles

BAD, DOUBTFUL, NOTE, GOOD = Severity.BAD, Severity.DOUBTFUL, Severity.NOTE, Severity.GOOD

TCPX = "GPUDirectTCPX_v7"


def nccl_line(text: str, rank: int = 0) -> str:
    return f"h{rank // 2}:{100 + rank}:{200 + rank} [{rank % 2}] NCCL {text}"


def networks(*names: str) -> list[str]:
    """The choice of each rank, and how many there are: of one rank alone nothing says that."""
    chosen = [nccl_line(f"INFO Using network {name}", rank) for rank, name in enumerate(names)]
    size = nccl_line(f"INFO comm 0x5 nRanks {len(names)} busId 4000")
    return [*chosen, size] if len(names) > 1 else chosen


def verdict_of(text: str | Sequence[str]) -> judge.Verdict:
    said = text.split("\n") if isinstance(text, str) else text
    return judge.judge(list(lines.read_lines([("job.log", said)])), profiles.recipes())


def whats(verdict: judge.Verdict, severity: Severity) -> str:
    return "\n".join(f.text for f in verdict.findings if f.severity is severity)

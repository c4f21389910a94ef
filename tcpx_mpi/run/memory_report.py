"""The memory of a run (`-M`): its connections, buffers, rows."""

from __future__ import annotations

from collections.abc import Sequence

from tcpx_mpi.transport.engine import RankEngine
from tcpx_mpi.units import format_size
from tcpx_mpi.world import World

#: What ends at each mark of an engine but the first.
_PARTS = ("set-up", "buffers", "rows")


def memory_report(world: World, engine: RankEngine) -> list[str]:
    """Collective: the footer's lines, on rank 0; none where nobody asked for them."""
    if not engine.settings.memory_report:
        return []
    engine.mark_memory()
    taken = world.gather(engine.memory.taken(), "memory")
    return memory_lines(taken) if taken is not None else []


def memory_lines(taken: Sequence[tuple[list[int], list[int]]]) -> list[str]:
    """By rank of what each took: a line for the process, and one for the GPU if all have one."""
    lines = []
    for what, which in (("process", 0), ("GPU", 1)):
        if not all(rank[which] for rank in taken):
            continue
        parts = []
        for number, name in enumerate(_PARTS):
            most = max(range(len(taken)), key=lambda rank: taken[rank][which][number])
            parts.append(f"{name} {format_size(max(taken[most][which][number], 0))} (rank {most})")
        lines.append(f"# {f'Memory of a {what}':<20} : {', '.join(parts)}, at most")
    return lines

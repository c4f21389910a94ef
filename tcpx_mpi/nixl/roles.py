"""Which ranks ask and which are asked, and the slots of memory that each pair of them has. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcpx_mpi.cpu_lists import cpu_list_text, parse_cpu_list
from tcpx_mpi.errors import UsageError
from tcpx_mpi.units import MAX_BYTES, counted, format_size

#: Agents of one machine without mpirun: each is a process.
MOST_ALONE = 64
_MOST_RANKS = 1 << 16


@dataclass(frozen=True)
class Roles:
    """The roles of all ranks: each initiator asks each target, `batch` requests at a time."""

    initiators: tuple[int, ...]
    targets: tuple[int, ...]
    batch: int = 1

    @property
    def world(self) -> int:
        return len(self.initiators) + len(self.targets)

    def role(self, rank: int) -> str:
        return "initiator" if rank in self.initiators else "target"

    def peers(self, rank: int) -> tuple[int, ...]:
        """The ranks on the other side of a rank's requests."""
        return self.targets if rank in self.initiators else self.initiators

    def slots(self, rank: int) -> int:
        """Requests that have memory of their own there."""
        return self.batch * len(self.peers(rank))

    def slot(self, rank: int, peer: int, number: int) -> int:
        """Which of these one request with a peer has."""
        return self.peers(rank).index(peer) * self.batch + number

    def name(self, rank: int) -> str:
        """The name of a rank's agent in a message."""
        role = self.role(rank)
        alone = len(self.initiators if role == "initiator" else self.targets) == 1
        return role if alone else f"{role} of rank {rank}"

    def text(self) -> str:
        def ranks(of: Sequence[int]) -> str:
            return f"rank{'s' if len(of) > 1 else ''} {cpu_list_text(of)}"

        asks, asked = (len(of) == 1 for of in (self.initiators, self.targets))
        return (
            f"{ranks(self.initiators)} {'asks' if asks else 'ask'}, {ranks(self.targets)} "
            f"{'is' if asked else 'are'} asked"
        )


def roles_of(
    initiators: str | None, targets: str | None, batch: int, world: int | None = None
) -> Roles:
    """The roles by `--initiators` and `--targets` (None: not given) among so many ranks (None: as
    many as they name). Raises UsageError."""
    if world is not None and world < 2:
        raise UsageError(f"nixl needs 2 ranks, and mpirun started {world}: start one more")
    asking = None if initiators is None else _ranks("--initiators", initiators)
    asked = None if targets is None else _ranks("--targets", targets)
    if asking is None and asked is None:
        half = 1 if world is None else world // 2
        asking, asked = tuple(range(half)), tuple(range(half, world or 2))
    elif asking is None or asked is None:
        given = asking or asked or ()
        everybody = range(world if world is not None else max(given) + 1)
        others = tuple(rank for rank in everybody if rank not in given)
        if not others:
            missing, name = ("--initiators", "--targets") if asking is None else (
                "--targets", "--initiators")  # fmt: skip
            raise UsageError(
                f"{name} ({cpu_list_text(given)}) leaves no rank for {missing}: give both"
            )
        asking, asked = (others, given) if asking is None else (given, others)
    both = sorted(set(asking) & set(asked))
    if both:
        raise UsageError(
            f"--initiators ({cpu_list_text(asking)}) and --targets ({cpu_list_text(asked)}) "
            f"overlap in rank {cpu_list_text(both)}: a rank asks or is asked"
        )
    _refuse_world({*asking, *asked}, world)
    return Roles(asking, asked, batch)


def _refuse_world(named: set[int], world: int | None) -> None:
    if world is None:
        if len(named) > MOST_ALONE:
            raise UsageError(
                f"{len(named)} agents on one machine are more than {MOST_ALONE}: start ranks by "
                "mpirun"
            )
        world = max(named) + 1
    outside = sorted(rank for rank in named if rank >= world)
    if outside:
        raise UsageError(
            f"--initiators and --targets name rank {cpu_list_text(outside)}, and mpirun started "
            f"{world} (0 to {world - 1}): start more, or name these"
        )
    idle = sorted(set(range(world)) - named)
    if idle:
        raise UsageError(
            f"rank {cpu_list_text(idle)} is neither in --initiators nor in --targets: name it, or "
            f"start {counted(len(named), 'rank')}"
        )


def _ranks(option: str, text: str) -> tuple[int, ...]:
    try:
        found = parse_cpu_list(text, _MOST_RANKS)
    except ValueError:
        raise UsageError(f"{option} ({text[:60]}) is no list of ranks: write 0-3 or 0,2") from None
    if not found:
        raise UsageError(f"{option} ({text[:60]}) names no rank: write 0-3 or 0,2")
    return found


def memory_bytes(roles: Roles, rank: int, slot_bytes: int) -> int:
    """The memory of a rank's agent. Raises UsageError if it overflows."""
    needed = roles.slots(rank) * slot_bytes
    if needed > MAX_BYTES:
        raise UsageError(
            f"{counted(roles.slots(rank), 'request')} of {format_size(slot_bytes)} at once are "
            f"more than {MAX_BYTES} bytes: use a smaller --size or --batch"
        )
    return needed


def refuse_memory(
    roles: Roles, slot_bytes: int, nodes: Sequence[str], names: Sequence[str], free: Sequence[int],
    sides: int = 1,
) -> None:  # fmt: skip
    """Raises UsageError if a node has no memory for its agents; `nodes`, `names` and `free` bytes
    (0: unknown) are by rank, and `sides` have agents there at the same time."""
    for node in dict.fromkeys(nodes):
        ranks = [rank for rank in range(roles.world) if nodes[rank] == node]
        # While bytes are judged, those that are expected and those that differ lie beside them.
        needed = sum(sides * memory_bytes(roles, rank, slot_bytes) + 3 * slot_bytes
                     for rank in ranks)  # fmt: skip
        available = min(free[rank] for rank in ranks)
        if available and needed > available:
            raise UsageError(
                f"the agents on {names[ranks[0]]} need {format_size(needed)}, available are "
                f"{format_size(available)}: use a smaller --size, --kv or --batch"
            )

"""All clauses of a version, one after another, and what the results mean for the exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tcpx_mpi.conform.child import Target, try_clause
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.expectations import Excuses
from tcpx_mpi.conform.outcome import Outcome, Verdict
from tcpx_mpi.conform.table import START

#: A verdict that others may build on.
_HOLDS = (Verdict.PASS, Verdict.KNOWN, Verdict.NOT_OFFERED)


@dataclass(frozen=True)
class Result:
    """A clause and what came of it."""

    clause: Clause
    outcome: Outcome

    @property
    def failed(self) -> bool:
        return self.outcome.verdict is Verdict.FAIL

    @property
    def hurts(self) -> bool:
        return self.clause.hurts and self.outcome.hurts


@dataclass(frozen=True)
class Version:
    """One version of a plugin's table, tried."""

    abi: int
    name: str
    path: str
    results: tuple[Result, ...]

    @property
    def cannot_start(self) -> Result | None:
        """The failed one of the clauses without which a plugin cannot be used."""
        return next((one for one in self.failed if one.clause.name in START), None)

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.results if result.failed]

    def count(self, verdict: Verdict) -> int:
        return sum(result.outcome.verdict is verdict for result in self.results)


def try_all(
    target: Target,
    clauses: Iterable[Clause],
    known: Excuses,
    quick: bool,
    show: Callable[[Result], None],
) -> tuple[Result, ...]:
    """Each clause of the version, and of each what came of it as soon as it is there."""
    found: dict[str, Verdict] = {}
    results = []
    for clause in clauses:
        outcome = _judge(clause, target, found, quick)
        excuse = known.get(clause.name)
        if outcome.verdict is Verdict.FAIL and excuse is not None and excuse.holds(outcome.reason):
            outcome = Outcome(Verdict.KNOWN, f"{excuse.reason} ({outcome.reason})")
        found[clause.name] = outcome.verdict
        results.append(Result(clause, outcome))
        show(results[-1])
    return tuple(results)


def _judge(clause: Clause, target: Target, found: Mapping[str, Verdict], quick: bool) -> Outcome:
    if target.abi < clause.since:
        return Outcome(Verdict.NOT_OFFERED, f"v{clause.since} brought it")
    for need in clause.needs:
        if found.get(need, Verdict.PASS) not in _HOLDS:
            return Outcome(Verdict.NOT_TRIED, f"needs {need}")
    if clause.costly and quick:
        return Outcome(Verdict.NOT_TRIED, "left out by --quick")
    return try_clause(clause, target)

"""Tries a plugin with faults, one by one: python try_faults.py PLUGIN MEMORY DEADLINE_S FAULT...

A line of JSON a fault: its name, and of each clause the verdict and the reason. FAULT is tried with
all clauses but costly ones, FAULT:CLAUSE with that clause, costly or not, what it needs, and what
needs it.
"""

from __future__ import annotations

import json
import os
import sys

from tcpx_mpi.conform.child import Target
from tcpx_mpi.conform.clause import Clause
from tcpx_mpi.conform.suite import Result, try_all
from tcpx_mpi.conform.table import BY_NAME, CLAUSES, with_needs

ABI = 11


def main(plugin: str, memory: str, deadline_s: str, *faults: str) -> None:
    target = Target(plugin, ABI, memory, float(deadline_s))
    for fault in faults:
        os.environ["FAULT"], _, only = fault.partition(":")  # each clause's process reads it
        clauses = around(only) if only else CLAUSES
        quick = not (only and BY_NAME[only].costly)
        results = try_all(target, clauses, {}, quick, show=_nothing)
        found = {
            one.clause.name: (one.outcome.verdict.value, one.outcome.reason) for one in results
        }
        print(json.dumps([os.environ["FAULT"], found]), flush=True)


def around(name: str) -> tuple[Clause, ...]:
    """A clause, all that it needs, and all that needs it, in order."""
    chosen = {clause.name for clause in with_needs(name)} | built_on(name)
    return tuple(clause for clause in CLAUSES if clause.name in chosen)


def built_on(name: str) -> set[str]:
    """The clauses that need it, and those that need them."""
    found = {name}
    for clause in CLAUSES:
        if found & set(clause.needs):
            found.add(clause.name)
    return found - {name}


def _nothing(_: Result) -> None:
    pass


if __name__ == "__main__":
    main(*sys.argv[1:])
